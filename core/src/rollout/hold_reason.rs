//! Why a node is left alone for now.
//!
//! Here belong the reasons, as values that code compares and that are put into words once.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::claim::{Claim, ClaimState, UnreadableClaim};
use crate::cluster::Node;
use crate::text::harmless;
use crate::version::KubeVersion;

/// In which way a node is out of the rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOf {
    /// Its drain is blocked.
    Parked,
    /// Its executor failed or took too long; it stays cordoned for a person.
    Failed,
    /// Somebody or something else holds it.
    Held,
}

impl OutOf {
    /// The word for it in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parked => "Parked",
            Self::Failed => "Failed",
            Self::Held => "Held",
        }
    }
}

/// A node that is out of the rollout for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOut {
    /// `metadata.name` of the Node.
    pub node: Arc<str>,
    /// What keeps it out; `reason` says it in words.
    pub state: OutOf,
    /// `None` of a held node: nothing records since when a person holds it.
    pub since: Option<Timestamp>,
    /// Why, in one line.
    pub reason: String,
    /// A person accepted that it stays behind.
    pub excepted: Option<Exception>,
}

impl fmt::Display for NodeOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.why())
    }
}

impl NodeOut {
    /// Why it is out, and whether a person accepted that, in one line.
    pub fn why(&self) -> String {
        match &self.excepted {
            Some(by) => format!("{} ({by})", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// Why a node may stay behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The acceptance ends then, and the node calls for a person again.
    pub until: Timestamp,
    /// In the person's words.
    pub reason: Arc<str>,
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "accepted until {}: {}", self.until, harmless(&self.reason))
    }
}

/// Why a node that is not at the target is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A person put `evenkeel.dev/hold` on the Node.
    Annotation,
    /// Somebody else cordoned it.
    Cordon,
    /// Its machine has been silent for so long that no executor could do anything there.
    Silent,
    /// Its kubelet does not say a version that can be read.
    UnknownVersion,
    /// It reached the target, and somebody took it back.
    WentBack {
        /// The claim that says so.
        claim: Arc<str>,
        /// What it runs now.
        to: String,
    },
    /// It runs a newer minor than the target, and nothing is ever taken back.
    Newer(String),
    /// Its claim cannot be read.
    Unreadable(String),
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation => {
                f.write_str("held by annotation evenkeel.dev/hold; remove it when the node may move")
            }
            Self::Cordon => f.write_str("cordoned by someone else; uncordon it to let it take part"),
            Self::Silent => {
                f.write_str("its machine has long been silent: bring it back, or delete its Node")
            }
            Self::UnknownVersion => f.write_str(
                "its kubelet does not say a version that can be read: restart it, or delete the Node if its machine is gone",
            ),
            Self::WentBack { claim, to } => write!(
                f,
                "went back to {to} after it was upgraded; delete NodeUpgrade {claim} to have it upgraded again"
            ),
            Self::Newer(version) => write!(
                f,
                "runs {version}, a newer minor than the target, and nothing is ever taken back: choose a target of its minor, or \
                 groups without it"
            ),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

/// Why `node`, which is not at `target`, is left alone for now; `None` when it may be taken up. `claim` is its own, and
/// `silent` is whether its machine has been silent for long.
pub(super) fn why_held(
    node: &Node,
    claim: Option<&Claim>,
    unreadable: Option<&UnreadableClaim>,
    target: &KubeVersion,
    silent: bool,
) -> Option<Hold> {
    let ours = node.cordoned_by.as_deref().is_some_and(|mark| claim.is_some_and(|claim| claim.is_mark(mark)));
    if let Some(unreadable) = unreadable {
        return Some(Hold::Unreadable(unreadable.why.clone()));
    }
    if ours {
        return None;
    }
    if node.held {
        return Some(Hold::Annotation);
    }
    if node.unschedulable {
        return Some(Hold::Cordon);
    }
    if silent {
        return Some(Hold::Silent);
    }
    let Some(version) = node.kubelet.known() else { return Some(Hold::UnknownVersion) };
    if version.minor() > target.minor() {
        return Some(Hold::Newer(version.to_string()));
    }
    let upgraded = |claim: &&Claim| {
        matches!(claim.state, ClaimState::Upgraded { .. }) && claim.subject.to == *target && !claim.ending
    };
    claim.filter(upgraded).map(|claim| Hold::WentBack { claim: claim.name.clone(), to: version.to_string() })
}
