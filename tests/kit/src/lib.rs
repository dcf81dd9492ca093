//! What the tests and the demonstration on a real control plane share.
//!
//! Nothing of the product is in it: the operator is a process here, and the observer counts by itself. The invariant:
//! what several tests need exists once.

#![allow(missing_docs, reason = "each is named for what it does, and read beside the tests")]
#![allow(clippy::missing_errors_doc, reason = "an error is a test that fails")]

mod binary;
pub mod golden;
pub mod lease;
pub mod leaving;
pub mod observer;
pub mod operator;
pub mod requests;
pub mod scenario;
pub mod standin;
pub mod transcript;
pub mod watched;
pub mod working;

pub use binary::binary;
