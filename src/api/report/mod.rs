//! `ClusterSkewReport`: where the cluster stands, written by the operator.
//!
//! The schema is in `schema`; `convert` makes a status of what the core says. Nothing is judged here.

mod convert;
mod schema;

pub use convert::{Context, LiveFacts, Server, Unready, count, last_certain, source, status};
pub use schema::{
    Apiserver, BlockingBudget, ClusterSkewReport, ClusterSkewReportSpec, ClusterSkewReportStatus, NAME,
    NextMinor, Omitted, PolicyName, REFRESH_SECONDS, Row, SkewFinding,
};
