//! The upgrade state machine: what may be done about an upgrade now.
//!
//! [`decide()`] is total and pure: from a [`World`] it says which [`Action`]s to take and what the status is. It keeps
//! nothing between calls; everything it needs to go on after a crash is in the cluster, in the claims and in the
//! upgrade's own [`Progress`](crate::upgrade::Progress), which are stored. The invariants it keeps are those of the
//! design: stages in order, a claim before the cordon, a cordon of somebody else never touched, budgets of groups
//! counted with unhealthy nodes, and "upgraded" only when observed.
//!
//! A node's way: [`ClaimState::Claimed`] → cordon → [`ClaimState::Draining`] → evictions → [`ClaimState::Upgrading`] →
//! the executor → observed → uncordon → [`ClaimState::Upgraded`]. A node whose drain does not end in time becomes
//! [`ClaimState::Parked`], is uncordoned, and is tried again later. A control-plane component, or all of them of one
//! node together, goes from claimed to upgrading at once, without a drain.

mod absent;
mod action;
mod avoid;
mod claim;
mod components;
mod controllers;
mod decide;
mod ends;
mod executor;
mod forecast;
mod gate;
mod group;
mod halt;
mod hold;
mod hop;
mod nodes;
mod open;
mod phase;
mod queue;
mod refused;
mod replaced;
mod round;
mod seen;
mod soak;
mod status;
mod trial;
mod turn;
mod wait;
mod waiting;
mod whole;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::{Cluster, Component, Renewals};
use crate::upgrade::GateObject;

pub use crate::disruption::{Memory, PodMemory};
pub use absent::{Absences, Away};
pub use action::{Action, Drained};
pub use avoid::{Taints, unavoided};
pub use claim::{Asked, Before, Blocker, Claim, ClaimState, Subject, Unreadable};
pub use decide::decide;
pub use ends::{abandoned, orphans};
pub use forecast::{Forecast, forecast};
pub use hold::{Hold, Out, OutOf};
pub use hop::planned;
pub use phase::Phase;
pub use queue::Queue;
pub use refused::Refusals;
pub use status::Status;
pub use trial::{Trial, refused_jobs};
pub use wait::Wait;
pub use waiting::{EndedBy, WaitReason, Waiting};

/// How an executor's Job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Not finished.
    Running,
    /// Condition `Complete`.
    Complete,
    /// Condition `Failed`, with its message.
    Failed(String),
}

/// What the server says to the Jobs of executors. Losing it is safe: it is asked again.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// Jobs that exist, by claim UID and attempt.
    pub made: BTreeMap<(Arc<str>, u32), JobState>,
    /// Why the Job of a claim was refused when it was to be made, in one line, by claim UID.
    pub refused: BTreeMap<Arc<str>, String>,
    /// What was said to Jobs that were only tried, by executor.
    pub tried: BTreeMap<Arc<str>, Trial>,
}

/// What the object of a gate was like when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateFound {
    /// Its conditions: type and status.
    Conditions(Vec<(Arc<str>, Arc<str>)>),
    /// The cluster does not serve the kind.
    NoKind,
    /// There is no such object.
    NoObject,
    /// The server does not let us read it; one line.
    Forbidden(String),
    /// It could not be read; one line.
    Failed(String),
}

/// What was last read of the objects of gates, and when. Losing it is safe: they are read again.
pub type Gates = BTreeMap<GateObject, (Timestamp, GateFound)>;

/// How fresh what is seen is. Losing it is safe: it is looked at again.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    /// Since when every source has been seen without a gap.
    pub unbroken_since: Timestamp,
    /// When a node and its pods were last read by a request of their own, by the node's name.
    pub reread: BTreeMap<Arc<str>, Timestamp>,
    /// When the attached volumes were last read by a request of their own.
    pub attachments: Timestamp,
    /// When controllers renewed their leases.
    pub renewals: Renewals,
    /// Since when components of the control plane are away.
    pub absences: Absences,
}

/// Everything a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Every stored claim, by name.
    pub claims: &'a [Claim],
    /// Stored claims that cannot be read.
    pub unreadable: &'a [Unreadable],
    /// Executors' Jobs.
    pub jobs: &'a Jobs,
    /// Controllers that lead where nothing shows their version, each with a line for a person.
    pub hidden: &'a [(Component, String)],
    /// What is under way.
    pub memory: &'a Memory,
    /// The objects of gates.
    pub gates: &'a Gates,
    /// Writes that the server refuses.
    pub refused: &'a Refusals,
    /// How fresh the rest of it is.
    pub freshness: &'a Freshness,
    /// The namespace executors' Jobs run in.
    pub executors: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// What to do now, and how things stand.
#[derive(Debug)]
pub struct Decision {
    /// The writes, in the order in which to begin them.
    pub actions: Vec<Action>,
    /// The status of the upgrade.
    pub status: Status,
    /// When to decide again even if nothing changes.
    pub again_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests;
