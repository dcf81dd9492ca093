//! `ClusterUpgrade`: what a person wants, kept in git, and how far the upgrade is.
//!
//! The schema is in `schema` (what a person writes, of which `drain` and `selector` are parts) and `state` (the status);
//! `convert`, `status`, `waits`, `when` and `outlook` translate between it and the core's values. No rule is decided here.

mod convert;
mod drain;
mod outlook;
mod schema;
mod selector;
mod state;
mod status;
mod waits;
mod when;

pub use convert::{FINALIZER, Invalid, absent_executors, progress, validate};
pub use drain::{Drain, DrainMode, MayLeave, PodBehavior, PodRule};
pub use schema::{
    AcceptedRisk, Approval, ClusterUpgrade, ClusterUpgradeSpec, ControlPlane, Day, FailurePolicy, Freeze,
    Gate, GateCondition, GateObject, Hidden, Mode, NodeGroup, Unit, Window, Zones,
};
pub use selector::{LabelExpression, LabelOperator, LabelSelector};
pub use state::{
    ClusterUpgradeStatus, NodeProgress, ParkedNode, PastUpgrade, Plan, PlanEstimate, PlanFinding, PlanHop,
    PlanStage, PlanWave, SeenComponent, Soak,
};
pub use status::{UNSEEN_REASONS, status, status_of_invalid, status_of_unseen};
pub use waits::WaitingFor;
pub use when::InvalidTime;
