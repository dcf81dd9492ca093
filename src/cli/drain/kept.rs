//! What a drain remembers from one look to the next, and what became of its requests.
//!
//! Here belong the values; what is done with them is in `draining`, and what is told of them in `narrate`. The
//! invariant: all of it may be lost; a drain that is started again finds out anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_core::disruption::answer::Answer;
use evenkeel_core::disruption::{Charge, Sent};
use evenkeel_core::drain::{DrainConditions, DrainUnseen, NodeState, RefusedPatches};
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::reread::PodsRead;
use super::waited::{Troubles, Waited};
use crate::act::{EvictionQueue, NotDone};
use crate::observe::lean;

/// What a request does to a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeChange {
    Cordoned,
    Uncordoned,
}

impl NodeChange {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Cordoned => "cordoned",
            Self::Uncordoned => "uncordoned",
        }
    }
}

/// What became of a request.
pub(super) enum Reply {
    Node(Arc<str>, NodeChange, Result<Box<lean::Node>, NotDone>),
    Conditions(Arc<str>, Result<(), NotDone>),
    Pod {
        node: Arc<str>,
        pod: String,
        uid: Arc<str>,
        charge: Option<Charge>,
        /// It was deleted past its budgets.
        forced: bool,
        answer: Answer,
    },
    /// The pods of a node were read, as was asked for at that time, or why they were not.
    Reread(Arc<str>, Timestamp, Result<PodsRead, String>),
}

/// What a drain keeps between two looks.
#[derive(Default)]
pub(super) struct DrainKept {
    /// The evictions that were sent.
    pub(super) sent: Sent,
    /// How far each node is.
    pub(super) states: BTreeMap<Arc<str>, NodeState>,
    /// UIDs of the Nodes, as first seen.
    pub(super) uids: BTreeMap<Arc<str>, Arc<str>>,
    /// Nodes whose pods were read since the last decision, where none has to leave, and when that was asked for.
    pub(super) confirmed: BTreeMap<Arc<str>, Timestamp>,
    /// When the pods of each node were last read by a request of their own.
    pub(super) reread: BTreeMap<Arc<str>, Timestamp>,
    /// Pods that may leave and wait for a place.
    pub(super) queue: EvictionQueue,
    /// The requests that are under way.
    pub(super) running: JoinSet<Reply>,
    /// Nodes that get no new request yet: `None` while one is under way, or the time until which a failed one holds it.
    pub(super) busy: BTreeMap<Arc<str>, Option<Instant>>,
    /// Nodes whose cordon was sent and has no answer yet.
    pub(super) cordoning: BTreeSet<Arc<str>>,
    /// Pods whose eviction the server accepted and that are not gone yet: node and name, by UID.
    pub(super) asked: BTreeMap<Arc<str>, (Arc<str>, String)>,
    /// What the drain waits for, by node and by the budget or pod that holds it up.
    pub(super) waits: BTreeMap<(Arc<str>, String), Waited>,
    /// What fails at the moment.
    pub(super) troubles: Troubles,
    /// How many evictions were accepted.
    pub(super) evictions: usize,
    /// How many evictions were refused.
    pub(super) refused: usize,
    /// Patches of Nodes that the server refuses.
    pub(super) refused_patches: RefusedPatches,
    /// Nodes about which a warning was given already.
    pub(super) warned: BTreeSet<Arc<str>>,
    /// Nodes whose conditions are being written, and what is to be written next: of two requests at once, the first
    /// could arrive last.
    pub(super) conditions: BTreeMap<Arc<str>, Option<DrainConditions>>,
    /// When somebody wanted it to end.
    pub(super) interrupted: Option<Instant>,
    /// When it stopped, because of that or because it sees its cluster no more.
    pub(super) stopped: Option<Instant>,
    /// Since when it does not see its cluster.
    pub(super) unseen: Option<DrainUnseen>,
}
