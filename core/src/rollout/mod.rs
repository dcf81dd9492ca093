//! The upgrade state machine: what may be done about an upgrade now.
//!
//! [`decide()`] is total and pure: from a [`World`] it says which [`Action`]s to take and what the status is. It keeps
//! nothing between calls; everything it needs to go on after a crash is in the cluster, in the claims and in the
//! upgrade's own [`Progress`](crate::upgrade::Progress), which are stored. It keeps these invariants: stages go in
//! order; a claim is stored before its node is cordoned; a cordon of somebody else is never touched; unhealthy nodes
//! count in the limits of groups; and a node is called upgraded only when its new version is observed.
//!
//! A node's way: [`ClaimState::Claimed`] → cordon → [`ClaimState::Draining`] → evictions → [`ClaimState::Upgrading`] →
//! the executor → observed → uncordon → [`ClaimState::Upgraded`]. A node whose drain does not end in time, or stands
//! still, becomes [`ClaimState::Parked`], is uncordoned, and is tried again later. A control-plane component, or all of
//! them of one node together, goes from claimed to upgrading at once, without a drain.

mod absence;
mod action;
mod avoid;
mod blocked;
mod blockers;
mod claim;
mod components;
mod control_plane_whole;
mod controllers;
mod decide;
mod exceptions;
mod executor;
mod forecast;
mod gate;
mod gate_object;
mod group;
mod halt;
mod hidden;
mod hold_reason;
mod hop;
mod jobs;
mod kubelet;
mod leftovers;
mod next_nodes;
mod nodes;
mod not_opened;
mod presence;
mod queue;
mod refusal_retries;
mod refused_writes;
mod replaced;
mod round;
mod since;
mod soak;
mod static_pods;
mod status;
mod taints;
mod trial;
mod upgrade_phase;
mod waiting;
mod whose_turn;
mod world;
mod write;
mod zone_count;
mod zones;

pub use crate::disruption::{Memory, PodMemory};
pub use absence::Away;
pub use action::{Action, Drained};
pub use avoid::unavoided;
pub use claim::{AskedExecutor, Before, Blocker, Claim, ClaimState, Subject, UnreadableClaim};
pub use decide::{Decision, decide};
pub use forecast::{Forecast, forecast};
pub use gate_object::{GateFound, Gates};
pub use hold_reason::{Hold, NodeOut, OutOf};
pub use hop::planned;
pub use jobs::{JobState, Jobs, RefusedJob, Trial};
pub use leftovers::{abandoned, deleted_unreadable, orphans};
pub use not_opened::NotOpened;
pub use queue::Queue;
pub use refused_writes::RefusedWrites;
pub use since::Since;
pub use status::{UpgradeStatus, another_is_approved};
pub use taints::Taints;
pub use trial::refused_jobs;
pub use upgrade_phase::UpgradePhase;
pub use waiting::{EndedBy, WaitReason, Waiting};
pub use world::{Freshness, World};
pub use write::{Write, WriteKind};

#[cfg(test)]
mod tests;
