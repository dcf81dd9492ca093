//! `ClusterUpgrade`: what a person wants, kept in git, and how far the upgrade is.
//!
//! The schema is in `schema` (what a person writes) and `state` (the status); `convert`, `when` and `outlook` translate
//! between it and the core's values. No rule is decided here.

mod convert;
mod outlook;
mod schema;
mod state;
mod when;

pub use convert::{FINALIZER, Invalid, progress, status, status_of_invalid, status_of_unseen, validate};
pub use schema::{
    AcceptedRisk, Approval, ClusterUpgrade, ClusterUpgradeSpec, ControlPlane, Day, Drain, ExecutorSpec,
    ExternalExecutor, FailurePolicy, Freeze, Hidden, JobExecutor, LabelExpression, LabelOperator,
    LabelSelector, Mode, NodeGroup, OnTimeout, Unit, Window, Zones,
};
pub use state::{
    ClusterUpgradeStatus, ParkedNode, PastUpgrade, Plan, PlanEstimate, PlanFinding, PlanHop, PlanStage,
    PlanWave, Progress, SeenComponent, Soak,
};
pub use when::InvalidTime;
