//! The upgrade state machine: what an upgrade is, and what may be done about it now.
//!
//! [`decide()`] is total and pure: from a [`World`] it says which [`Action`]s to take and what the status is. It keeps
//! nothing between calls; everything it needs to go on after a crash is in the cluster and in the claims, which are
//! stored. The invariants it keeps are those of the design: stages in order, a claim before the cordon, a cordon of
//! somebody else never touched, budgets of groups counted with unhealthy nodes, and "upgraded" only when observed.
//!
//! A node's way: [`State::Claimed`] → cordon → [`State::Draining`] → evictions → [`State::Upgrading`] → the executor
//! → observed → uncordon → [`State::Upgraded`]. A drain that does not end in time is [`State::Parked`] and uncordoned,
//! and comes back later. A control-plane component goes from claimed to upgrading at once.

mod decide;
mod drain;
mod nodes;
mod round;
mod servers;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::{Cluster, Component};
use crate::disruption::{BudgetName, Permit};
use crate::version::KubeVersion;

pub use crate::disruption::{Memory, PodMemory};
pub use decide::decide;
pub use nodes::orphans;
pub use status::{Parked, Phase, Status};

/// What a claim is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Recorded; nothing was touched yet.
    Claimed,
    /// Cordoned by us; its pods are leaving.
    Draining {
        /// Since when.
        since: Timestamp,
    },
    /// Drained; the executor may work.
    Upgrading {
        /// Since when.
        since: Timestamp,
        /// What changes when the process is replaced, as it was before: the kubelet's last heartbeat, or a pod's UID.
        before: Arc<str>,
    },
    /// Observed at the target, and given back.
    Upgraded {
        /// Since when.
        at: Timestamp,
    },
    /// The drain did not end in time. The node is uncordoned; it is tried again.
    Parked {
        /// Since when.
        since: Timestamp,
        /// Tried again then, or earlier when nothing blocks it any more.
        retry_at: Timestamp,
    },
    /// The executor failed or took too long. The node stays as it is, for a person to look at.
    Failed {
        /// Since when.
        since: Timestamp,
    },
}

impl State {
    /// The word for it in a status.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claimed => "Claimed",
            Self::Draining { .. } => "Draining",
            Self::Upgrading { .. } => "Upgrading",
            Self::Upgraded { .. } => "Upgraded",
            Self::Parked { .. } => "Parked",
            Self::Failed { .. } => "Failed",
        }
    }

    /// Whether it takes a place in its group's budget.
    pub const fn in_flight(&self) -> bool {
        matches!(self, Self::Claimed | Self::Draining { .. } | Self::Upgrading { .. })
    }
}

/// What keeps a node from being drained, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// The budget, where one is to blame.
    pub budget: Option<BudgetName>,
    /// Why, in one line.
    pub reason: String,
    /// It stays until a person changes something, as far as can be seen. Not stored: it is seen anew.
    pub lasting: bool,
}

/// What a claim is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Which component moves.
    pub component: Component,
    /// The node, or for a control-plane component without a visible node the instance's name.
    pub node: Arc<str>,
    /// UID of that Node; empty where there is none.
    pub node_uid: Arc<str>,
    /// The version before.
    pub from: String,
    /// The version to reach.
    pub to: KubeVersion,
    /// Who moves it.
    pub executor: Arc<str>,
}

/// A stored claim: a `NodeUpgrade`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// The upgrade it belongs to.
    pub upgrade: Arc<str>,
    /// What it is about.
    pub subject: Subject,
    /// Where it is.
    pub state: State,
    /// How often it was tried, the present one included.
    pub attempt: u32,
    /// What its status last said in one line.
    pub message: String,
    /// What its status last named as blocking.
    pub blockers: Vec<Blocker>,
}

impl Claim {
    /// The value of the cordon annotation of this claim.
    pub fn mark(&self) -> String {
        format!("{}/{}", self.name, self.uid)
    }
}

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

/// Everything a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Every stored claim, by name.
    pub claims: &'a [Claim],
    /// Executors' Jobs by claim UID and attempt.
    pub jobs: &'a BTreeMap<(Arc<str>, u32), JobState>,
    /// What is under way.
    pub memory: &'a Memory,
    /// The namespace executors' Jobs run in.
    pub executors: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// One write, with the precondition that makes it harmless when the world has moved on.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Record a claim. Fails when one of that name exists.
    Claim {
        /// Its name.
        name: String,
        /// What it is about.
        subject: Subject,
    },
    /// Mark a node unschedulable as ours. Fails when the Node or the claim has changed.
    Cordon {
        /// The node.
        node: NodeRef,
        /// Value of the cordon annotation.
        mark: String,
    },
    /// Evict one pod of one UID.
    Evict(Permit),
    /// Record a claim's next state. Fails when the claim has changed.
    Record {
        /// The claim's name.
        claim: Arc<str>,
        /// Its resourceVersion.
        resource_version: Arc<str>,
        /// The state.
        state: State,
        /// The attempt.
        attempt: u32,
        /// One line for a person.
        message: String,
        /// What blocks it.
        blockers: Vec<Blocker>,
        /// Node that must be found cordoned by us, of this UID and without a pod to move, by a fresh read.
        drained: Option<NodeRef>,
    },
    /// Start the executor's Job for a claim. Does nothing when it exists.
    StartJob {
        /// The claim's name.
        claim: Arc<str>,
        /// Its UID, which with the attempt names the Job.
        uid: Arc<str>,
        /// The attempt.
        attempt: u32,
        /// What to move.
        subject: Subject,
    },
    /// Make a node schedulable again. Fails when the Node has changed or is not marked by `mark`.
    Uncordon {
        /// The node.
        node: NodeRef,
        /// The value its annotation must have.
        mark: String,
    },
    /// Make a node schedulable again whose claim does not exist. Fails when the Node has changed or a fresh read finds
    /// the claim.
    ReleaseOrphan {
        /// The node.
        node: NodeRef,
        /// The value of its annotation.
        mark: String,
    },
    /// Delete a claim that is about nothing any more. Fails when the claim has changed.
    Release {
        /// The claim's name.
        claim: Arc<str>,
        /// Its UID.
        uid: Arc<str>,
        /// Its resourceVersion.
        resource_version: Arc<str>,
    },
}

/// A Node as it was when the decision was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRef {
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// resourceVersion.
    pub resource_version: Arc<str>,
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
