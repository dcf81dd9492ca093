//! `ClusterUpgrade`: what a person wants, kept in git, and how far the upgrade is.
//!
//! The schema is in `schema`; `convert` translates between it and the core's values. No rule is decided here.

mod convert;
mod schema;
mod when;

pub use convert::{FINALIZER, Invalid, progress, status, status_of_invalid, status_of_unseen, validate};
pub use schema::{
    AcceptedRisk, Approval, ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus, ControlPlane, Day,
    Drain, ExecutorSpec, ExternalExecutor, FailurePolicy, Freeze, Hidden, JobExecutor, LabelExpression,
    LabelOperator, LabelSelector, Mode, NodeGroup, OnTimeout, ParkedNode, Plan, PlanFinding, PlanHop,
    PlanStage, Progress, SeenComponent, Soak, Unit, Window, Zones,
};
pub use when::InvalidTime;
