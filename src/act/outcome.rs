//! What becomes of a write: what it returned, or why it did not happen.
//!
//! Nothing is sent from here. The invariant: a write that lost a race is told apart from one that failed.

use std::sync::Arc;

use evenkeel_core::cluster::{Leader, NodeRef};
use evenkeel_core::disruption::answer::{Answer, WEBHOOK_AWAY};
use evenkeel_core::disruption::{CORDON_MANAGER, Charge};
use evenkeel_core::rollout::{Blocker, ClaimState, GateFound, JobState, Write};
use evenkeel_core::upgrade::GateObject;
use jiff::Timestamp;
use kube::core::DynamicObject;

use super::authority::NotDone;
use crate::observe::lean;

/// Field manager of everything written about an upgrade.
pub const FIELD_MANAGER: &str = CORDON_MANAGER;

/// What became of an action: what the server returned, or why nothing was done.
#[derive(Debug)]
pub enum Outcome {
    /// The claim as the server has it now.
    Claim(Box<DynamicObject>),
    /// The claim is deleted.
    ClaimGone {
        /// `metadata.name` of the `NodeUpgrade`.
        name: Arc<str>,
        /// `metadata.uid`: another one of the name may be there by now.
        uid: Arc<str>,
    },
    /// The claim is deleted and without our finalizer, and those of others keep it.
    ClaimKept(Box<DynamicObject>),
    /// The Node as the server has it now.
    Node(Box<lean::Node>),
    /// The Node that was asked for is gone; nothing was changed.
    NodeGone {
        /// Its name.
        name: Arc<str>,
        /// Its UID: another one of the name may be there by now.
        uid: Arc<str>,
    },
    /// What a request found that only reads.
    Read(ReadNow),
    /// A node that was seen empty is not, by a fresh look, and nothing was changed.
    NotDrained {
        /// What is still on it, in one line.
        line: String,
        /// The node and its pods as the look found them: no watch may tell of them any more.
        read: ReadNow,
    },
    /// The upgrade as the server has it now.
    Upgrade(Box<DynamicObject>),
    /// The executor's Job exists.
    Job(Box<lean::Job>),
    /// The server takes no such Job, and says why.
    JobRefused {
        /// UID of the claim.
        claim: Arc<str>,
        /// The server's reason, in one line.
        why: String,
    },
    /// What the server said to a Job that was only tried.
    JobTried {
        /// The name of the `UpgradeExecutor`.
        executor: Arc<str>,
        /// The pod template, as canonical JSON, which may differ from what the executor has by now.
        template: Arc<str>,
        /// Why the server would refuse it, in one line.
        refused: Option<String>,
    },
    /// The eviction was sent; also when no answer came.
    Eviction {
        /// UID of the pod.
        uid: Arc<str>,
        /// The budget it was charged to.
        charge: Option<Charge>,
        /// What the answer means for the pod and its budget.
        answer: Answer,
    },
    /// The deletion of a pod past its budgets was sent; also when no answer came.
    Deletion {
        /// UID of the pod.
        uid: Arc<str>,
        /// What the answer means for the pod.
        answer: Answer,
    },
    /// Somebody was faster: the object had changed, was gone or existed already, and nothing was changed. One line.
    Lost(String),
    /// The server refused the write, and will refuse the same again until a person changes something.
    Refused {
        /// What was to be written.
        write: Write,
        /// The server's reason, in one line.
        why: String,
    },
    /// The request failed, or it is not known whether it was carried out. One line.
    Failed(String),
    /// We do not lead any more; nothing was sent, or it was given up on its way.
    NotLeading,
}

/// What the server has now, by a request that only reads.
#[derive(Debug)]
pub enum ReadNow {
    /// A node and its pods as the server has them now.
    Node {
        /// The node's name.
        name: Arc<str>,
        /// The Node; none if there is none of that name, and none was known.
        node: Option<Box<lean::Node>>,
        /// All of its pods, whatever the watch had shown.
        pods: Vec<lean::Pod>,
        /// The resourceVersion of the list of pods.
        version: String,
        /// The Job that moves the node, where it was asked for.
        job: Option<JobNow>,
    },
    /// The attached volumes as the server has them now.
    Attachments {
        /// Those of all nodes.
        all: Vec<lean::VolumeAttachment>,
        /// The resourceVersion of the list.
        version: String,
    },
    /// Who leads the controllers, by their leases as the server has them now.
    Leases {
        /// When the server was asked.
        asked: Timestamp,
        /// Who leads each controller that has a lease.
        leaders: Vec<Leader>,
    },
    /// What the object of a gate is like.
    Gate {
        /// Which object was read; several gates may name it.
        object: GateObject,
        /// Its conditions, or why they cannot be read.
        found: GateFound,
    },
}

/// An executor's Job as the server has it now.
#[derive(Debug)]
pub struct JobNow {
    /// The UID of its claim.
    pub claim: Arc<str>,
    /// Its name.
    pub name: String,
    /// It, if it is there.
    pub found: Vec<lean::Job>,
    /// The resourceVersion at which it was looked for.
    pub version: String,
}

/// The state a claim goes to.
pub(super) struct NextState {
    pub(super) state: ClaimState,
    pub(super) attempt: u32,
    pub(super) message: String,
    pub(super) blockers: Vec<Blocker>,
    pub(super) job: Option<JobState>,
}

/// Why a write did not happen, before it is told as an [`Outcome`].
#[derive(Debug)]
pub(super) enum Stop {
    Lost(String),
    /// Refused: what was asked, and the server's reason.
    Refused(String, String),
    Failed(String),
    NotLeading,
}

impl Stop {
    /// What became of an action that was to write `write`, if it was to write anything.
    pub(super) fn of(self, write: Option<Write>) -> Outcome {
        match (self, write) {
            (Self::Lost(why), _) => Outcome::Lost(why),
            (Self::Refused(_, why), Some(write)) => Outcome::Refused { write, why },
            (Self::Refused(what, why), None) => Outcome::Failed(format!("{what}: {why}")),
            (Self::Failed(why), _) => Outcome::Failed(why),
            (Self::NotLeading, _) => Outcome::NotLeading,
        }
    }
}

/// What an error means for a write with a precondition.
pub(super) fn stop(what: &str, error: &NotDone) -> Stop {
    let line = format!("{what}: {}", error.line());
    match (error, error.code()) {
        (NotDone::NotLeading(_), _) => Stop::NotLeading,
        // Conflict, AlreadyExists, or the object is gone: somebody was faster.
        (_, Some(404 | 409)) => Stop::Lost(line),
        _ => match refusal(error) {
            Some(why) => Stop::Refused(what.to_owned(), why),
            None => Stop::Failed(line),
        },
    }
}

/// Whether the server says that there is no object of that name. What else may answer 404, such as a proxy or a server
/// that starts, names none.
pub(super) fn is_absent(error: &NotDone, name: &str) -> bool {
    let NotDone::Failed(kube::Error::Api(status)) = error else { return false };
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// What became of a request for `node`, which is gone.
pub(super) fn gone(node: &NodeRef) -> Outcome {
    Outcome::NodeGone { name: Arc::clone(&node.name), uid: Arc::clone(&node.uid) }
}

/// Why the server refuses such a write, if it refused for a reason that lasts: a quota, a webhook, a policy, a wrong
/// field, a missing namespace. `None` for a server that is busy or does not answer: that is no refusal.
pub(crate) fn refusal(error: &NotDone) -> Option<String> {
    let line = error.line();
    let lasts = match error.code()? {
        400 | 401 | 403 | 404 | 405 | 413 | 415 | 422 => true,
        // A webhook that is away and fails closed.
        500 => line.contains(WEBHOOK_AWAY),
        _ => false,
    };
    lasts.then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quota, a webhook or a missing namespace stays until a person acts; a busy server, a lost race and silence do not.
    #[test]
    fn only_what_lasts_is_a_refusal() {
        let said = |code| {
            let status = kube::core::Status::failure("exceeded quota", "").with_code(code);
            refusal(&NotDone::Failed(kube::Error::Api(status.boxed())))
        };
        for code in [400, 403, 404, 422] {
            assert_eq!(said(code), Some(format!("exceeded quota (HTTP {code})")));
        }
        for code in [409, 429, 500, 503] {
            assert_eq!(said(code), None, "{code}");
        }
        let silent = std::io::Error::other("connection refused");
        assert_eq!(refusal(&NotDone::Failed(kube::Error::Service(Box::new(silent)))), None);
    }
}
