//! What may be done: one value for each write or request.
//!
//! Here belong the values, each with the precondition that makes it harmless when the world has moved on; nothing here
//! is sent.

use std::sync::Arc;

use super::claim::{Blocker, ClaimState, Subject};
use super::jobs::JobState;
use super::taints::Taints;
use super::write::{Write, WriteKind};
use crate::cluster::NodeRef;
use crate::disruption::{Permit, Rules};
use crate::drain::Forced;
use crate::upgrade::GateObject;

/// One write, or one request that only reads.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Put our finalizer on the upgrade, so that it cannot vanish while something of it is in flight. Fails when it has
    /// changed.
    Protect,
    /// Take our finalizer off the upgrade that somebody deleted: nothing of it is in flight any more.
    Unprotect,
    /// Ask every kube-apiserver afresh what it runs and whether it is ready: what was heard is too old to begin by.
    AskApiservers,
    /// Read a node and its pods by a request of their own, because the watch may be behind: before a claim fails, before a drain
    /// is given up, and before pods are deleted past their budgets.
    Reread {
        /// The node's name.
        node: Arc<str>,
        /// The Job to read with them, if one moves the node: the UID of its claim, and the attempt.
        job: Option<(Arc<str>, u32)>,
    },
    /// Read the attached volumes by a request of their own: a node has waited for one of them for long, and the watch may
    /// have lost that it was detached.
    ReadAttachments,
    /// Read who leads the controllers by a request of its own: a watch may tell late that a lease was renewed.
    ReadLeases,
    /// Read the object of a gate.
    ReadGate {
        /// Whatever gate asks for it: gates that name the same object share one read.
        object: GateObject,
    },
    /// Ask the server whether it would take the Job of this executor, without making it.
    TryJob {
        /// The name of the `UpgradeExecutor`.
        executor: Arc<str>,
        /// Its pod template, as canonical JSON.
        template: Arc<str>,
        /// What to move, for the environment that the Job would get.
        subject: Subject,
    },
    /// Record a claim. Fails when one of that name exists.
    Claim {
        /// `metadata.name` of the `NodeUpgrade` to create.
        name: String,
        /// What is to move, where to, and by which executor.
        subject: Subject,
    },
    /// Mark a node unschedulable as ours. Fails when the Node has changed. Where the claim is gone by then, the mark names none
    /// that exists, and [`Self::ReleaseOrphan`] follows.
    Cordon {
        /// As it was when this was decided.
        node: NodeRef,
        /// Value of the cordon annotation.
        mark: String,
    },
    /// Evict one pod of one UID.
    Evict(Permit),
    /// Delete one pod of one UID past its budgets: its node's drain was told to force, and its time is over.
    Delete(Forced),
    /// Record a claim's next state. Fails when the claim has changed.
    Record {
        /// The claim's name.
        claim: Arc<str>,
        /// Of the claim, as it was when this was decided.
        resource_version: Arc<str>,
        /// The state to record; its attempt, line and blockers replace the earlier ones.
        state: ClaimState,
        /// How often it was tried, the present one included.
        attempt: u32,
        /// One line for a person.
        message: String,
        /// The pods that keep the node from being drained; empty where nothing does.
        blockers: Vec<Blocker>,
        /// How the Job of this attempt stands, where nothing more is waited for: it is told when the Job is long gone.
        job: Option<JobState>,
        /// What a fresh read must find before this is recorded.
        drained: Option<Box<Drained>>,
    },
    /// Start the executor's Job for a claim. Does nothing when it exists.
    StartJob {
        /// The claim's name.
        claim: Arc<str>,
        /// Its UID, which with the attempt names the Job.
        uid: Arc<str>,
        /// The number of this attempt, from 1: each has a Job of its own.
        attempt: u32,
        /// What to move, for the environment of the Job.
        subject: Subject,
        /// The pod template, as canonical JSON: the one that was decided by, which may differ from what there is by then.
        template: Arc<str>,
    },
    /// Make a node schedulable again that was cordoned by `mark` when this was decided. Fails when the Node has changed since.
    Uncordon {
        /// As it was when this was decided.
        node: NodeRef,
        /// The value of its cordon annotation, which names the claim that gets further by this.
        mark: String,
        /// The Node's taints without [`OUTDATED_TAINT`](crate::cluster::OUTDATED_TAINT), where that goes as well.
        taints: Option<Taints>,
    },
    /// Put our taint on a node whose kubelet is to move yet, or take it off. Fails when the Node has changed.
    Taint {
        /// As it was when this was decided: `taints` were made from that.
        node: NodeRef,
        /// All its taints afterwards.
        taints: Taints,
    },
    /// Take our mark off a node and leave it cordoned: a person has to look at it. Fails when the Node has changed.
    HandOver {
        /// As it was when this was decided.
        node: NodeRef,
    },
    /// Make a node schedulable again whose claim does not exist. Fails when the Node has changed or a fresh read finds
    /// the claim.
    ReleaseOrphan {
        /// As it was when this was decided.
        node: NodeRef,
        /// The value of its cordon annotation, which names the claim to look for.
        mark: String,
    },
    /// Delete a claim that is about nothing any more, or take our finalizer off one that is deleted. Fails when the
    /// claim has changed.
    Release {
        /// The claim's name.
        claim: Arc<str>,
        /// Of the claim: another one of its name is left alone.
        uid: Arc<str>,
        /// Of the claim, as it was when this was decided.
        resource_version: Arc<str>,
        /// The finalizers that stay, if the claim is deleted already and only our finalizer is to be taken off.
        finalizers: Option<Vec<Arc<str>>>,
    },
}

impl Action {
    /// What this writes for the `ClusterUpgrade` of that name. `None` for what only reads, and for Jobs and evictions,
    /// whose answers are told elsewhere.
    pub fn write(&self, upgrade: &str) -> Option<Write> {
        let (kind, name) = match self {
            Self::Protect => (WriteKind::Protect, upgrade.into()),
            Self::Unprotect => (WriteKind::Unprotect, upgrade.into()),
            Self::Claim { name, .. } => (WriteKind::CreateClaim, name.as_str().into()),
            Self::Record { claim, .. } => (WriteKind::RecordClaim, claim.clone()),
            Self::Release { claim, .. } => (WriteKind::DeleteClaim, claim.clone()),
            Self::Cordon { node, .. } => (WriteKind::Cordon, node.name.clone()),
            Self::Uncordon { node, .. } | Self::ReleaseOrphan { node, .. } => {
                (WriteKind::Uncordon, node.name.clone())
            }
            Self::Taint { node, .. } => (WriteKind::Taint, node.name.clone()),
            Self::HandOver { node } => (WriteKind::HandOver, node.name.clone()),
            Self::AskApiservers
            | Self::Reread { .. }
            | Self::ReadAttachments
            | Self::ReadLeases
            | Self::ReadGate { .. }
            | Self::TryJob { .. }
            | Self::StartJob { .. }
            | Self::Evict(_)
            | Self::Delete(_) => return None,
        };
        Some(Write { kind, name })
    }

    /// The name of the claim that gets further by this.
    pub(super) fn claim(&self) -> Option<&str> {
        match self {
            Self::Record { claim, .. } | Self::Release { claim, .. } => Some(claim),
            Self::Cordon { mark, .. } | Self::Uncordon { mark, .. } => {
                Some(mark.split_once('/').map_or(mark, |(name, _)| name))
            }
            _ => None,
        }
    }
}

/// A node that a fresh read must find cordoned by this mark, of this UID, and without a pod that has to leave.
#[derive(Debug, PartialEq, Eq)]
pub struct Drained {
    /// As it was when this was decided; the fresh read may find it changed, but not another Node.
    pub node: NodeRef,
    /// The value of its cordon annotation.
    pub mark: String,
    /// Which pods have to leave; none where the node is only cordoned and its pods stay.
    pub rules: Option<Rules>,
}
