//! The frame of the operator: who leads, how it is watched from outside, and how it stops.
//!
//! Nothing here knows what is reported or upgraded. The invariant: whatever the controllers do, the program can be
//! asked for its health and metrics, and stops within its grace period.

mod figures;
pub mod metrics;
mod report;
mod run;
pub mod serve;
pub mod shutdown;
pub mod telemetry;
mod upgrade;

pub use run::{NotBegun, Options, operate, run};
