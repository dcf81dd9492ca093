//! The operator: its two controllers and their frame, which is leadership, health, metrics, logs and shutdown.
//!
//! Here belongs when a controller looks and what it writes; what it decides belongs to the core. The invariant:
//! whatever the controllers do, the program answers for its health and metrics, and stops within its pod's grace
//! period.

mod caches;
mod decoded;
mod figures;
pub mod metrics;
mod prerequisites;
mod report;
mod run;
pub mod serve;
pub mod shutdown;
pub mod telemetry;
mod upgrade;

pub use run::{NotBegun, OperatorOptions, operate, run};
