//! The API server: requests in, answers out, one store behind.
//!
//! Every request runs to its end under the store's lock, so requests are linearisable; only an eviction takes the lock
//! anew for each of its steps, as a real one is several requests to etcd. Models use `ApiState` directly and meet the
//! same rules.

mod admission;
mod bind;
mod custom;
mod defaults;
mod discovery;
mod eviction;
mod kinds;
mod openapi;
mod patch;
mod patching;
mod read;
mod release;
mod reply;
mod request;
mod request_body;
mod route;
mod scale;
mod selector;
mod server;
mod services;
mod shown_as;
mod state;
mod status;
mod table;
mod validate;
mod verbs;
mod versions;
mod watch;
mod write;

pub(crate) use kinds::{Kind, Kinds};
pub(crate) use release::Release;
pub use reply::Body;
pub(crate) use request::RequestTarget;
pub(crate) use server::Server;
pub(crate) use state::{ApiState, COMPACTION, Shared};
pub(crate) use status::Outcome;
pub(crate) use write::{Deletion, WriteOptions};
