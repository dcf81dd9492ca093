//! `ClusterUpgrade`: what a person wants, kept in git, and how far the upgrade is.
//!
//! The schema is in `schema` (what a person writes, of which `drain` and `selector` are parts) and `status_schema`;
//! `convert`, `status`, `waits`, `may_begin` and `outlook` translate between it and the core's values; `named` says which nodes a
//! list that is cut keeps. No rule is decided here.

mod convert;
mod drain;
mod may_begin;
mod named;
mod outlook;
mod schema;
mod selector;
mod status;
mod status_schema;
mod waits;

pub use convert::{FINALIZER, Invalid, absent_executors, progress, settling, validate};
pub use drain::{Drain, DrainMode, InvalidPodRule, MayLeave, PodBehavior, PodRule};
pub use may_begin::InvalidTime;
pub use named::named;
pub use schema::{
    AcceptedRisk, Approval, ApprovalMode, ClusterUpgrade, ClusterUpgradeSpec, ControlPlane, Day,
    FailurePolicy, Freeze, Gate, GateCondition, GateObject, Hidden, NodeGroup, Unit, Window, Zones,
};
pub use selector::{InvalidExpression, LabelExpression, LabelOperator, LabelSelector};
pub use status::{
    UNSEEN_REASONS, status, status_of_invalid, status_of_unreadable, status_of_unseen, status_of_unstored,
};
pub use status_schema::{
    ClusterUpgradeStatus, NodeProgress, ParkedNode, PastUpgrade, Plan, PlanEstimate, PlanFinding, PlanHop,
    PlanStage, PlanWave, SeenComponent, Soak,
};
pub use waits::WaitingFor;
