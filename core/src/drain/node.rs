//! One cordoned node, a step further.
//!
//! Here belong the order of asking, waiting, forcing, giving up and settling. Who cordons the node, and what becomes of
//! it afterwards, is the caller's. The invariant: how a node stands is said without asking any pod to leave, so that a
//! caller knows every node that is given up before it asks anything of another; and no node is given up, and no pod
//! deleted past its budgets, by what only a watch tells, because a watch that lost the end of a pod keeps it for ever.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::emptying::{Emptying, PodLeft, PodWait, STUCK_AFTER, ask_pods, first_wait, pods_left};
use super::policy::{DrainPolicy, OnTimeout, STALLED};
use super::volumes::attached;
use crate::cluster::{Cluster, Node};
use crate::disruption::{AskedPod, Budgets, Memory, Permit, PodMemory};
use crate::time::after;

/// A node is given up, and pods are deleted past their budgets, by what was read no longer ago.
const READ_LASTS: SignedDuration = SignedDuration::from_secs(30);

/// The times of one node's drain: all that has to be remembered of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDrain {
    /// When the node was cordoned, as far as is known.
    pub cordoned: Timestamp,
    /// When its drain began; the timeout counts from here.
    pub begun: Timestamp,
    /// Since when nothing on it can move without a person.
    pub stalled: Option<Timestamp>,
}

/// What a step is decided from, besides the node and the budgets.
#[derive(Clone, Copy, Debug)]
pub struct DrainView<'c, 'w> {
    /// The node's pods, and what surrounds them.
    pub cluster: &'c Cluster,
    /// What this process has asked for and not seen yet.
    pub memory: &'w Memory,
    /// Which pods leave, how long that may take, and what follows then.
    pub policy: &'w DrainPolicy,
    /// Nothing more is asked for now: a person stopped the drain, or part of the control plane is away.
    pub stopped: bool,
    /// When the node's pods were last read by a request of their own.
    pub reread: Option<Timestamp>,
    /// The time of the look; the core has no clock.
    pub now: Timestamp,
}

impl DrainView<'_, '_> {
    fn was_read_lately(&self) -> bool {
        self.reread.is_some_and(|at| at <= self.now && self.now < after(at, READ_LASTS))
    }
}

/// The right to delete one pod of one UID past its budget. It exists only after the deadline of a drain that was told
/// to force, and the deletion consumes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Forced {
    namespace: Arc<str>,
    pod: Arc<str>,
    asked: AskedPod,
    grace: Option<i64>,
}

impl Forced {
    /// Namespace of the pod.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the pod.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// UID of the pod: the precondition that the deletion must carry.
    pub fn uid(&self) -> &Arc<str> {
        &self.asked.uid
    }

    /// What has to be remembered of it.
    pub fn asked(&self) -> &AskedPod {
        &self.asked
    }

    /// The grace period that the deletion must name, in seconds; `None` where the pod's own will do, which is at least a
    /// second: a pod that is killed without grace may still run when its successor begins.
    pub fn grace(&self) -> Option<i64> {
        self.grace
    }
}

/// Why a node is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// Its time is over.
    Late {
        /// How long it had.
        timeout: SignedDuration,
        /// What the pods that are left wait for, in one line.
        waits: String,
    },
    /// Nothing on it can move without a person.
    Stalled(String),
    /// Its kubelet is gone, and confirms no pod's end.
    Unconfirmed(String),
    /// The server does not let us delete the pods that are left.
    NotDeleted {
        /// The first of them, as `namespace/name`.
        pod: String,
        /// Why, in one line.
        why: String,
        /// It stays so until a person changes something, as far as can be seen.
        lasting: bool,
    },
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late { timeout, waits } => write!(f, "not drained within {} s: {waits}", timeout.as_secs()),
            Self::Stalled(waits) => f.write_str(waits),
            Self::NotDeleted { pod, why, .. } => {
                write!(f, "pod {pod} is not deleted past its budgets: {why}")
            }
            Self::Unconfirmed(waits) => write!(f, "its kubelet confirms no pod's end: {waits}"),
        }
    }
}

/// What is asked of a node that pods have yet to leave.
#[derive(Debug)]
pub struct DrainAsks<'c> {
    /// The times, with when it began to stall.
    pub drain: NodeDrain,
    /// The evictions to send.
    pub permits: Vec<Permit>,
    /// The deletions to send instead, after the deadline of a drain that forces.
    pub forced: Vec<Forced>,
    /// The node's pods are to be read by a request of their own before any of them is deleted past its budgets.
    pub reread: bool,
    /// The pods that have to leave and have not, by namespace and name.
    pub left: Vec<PodLeft<'c>>,
    /// When to look again even if nothing changes.
    pub again_at: Option<Timestamp>,
}

/// How a node stands now.
#[derive(Debug)]
pub enum DrainStep<'c> {
    /// Pods have yet to leave it, and are to be asked.
    Leaving,
    /// It is empty, and volumes of the pods that left are still attached to it: which, in one line.
    Detaching(String),
    /// It is empty, and was cordoned only a moment ago.
    Settling,
    /// It has settled and is empty, as far as is seen. A fresh look has to confirm it.
    Empty,
    /// As far as is seen it has to be given up. Its pods are to be read by a request of their own first.
    Doubtful {
        /// What a person would be told as the reason.
        why: GivenUp,
        /// The pods that have not left, as far as is seen.
        left: Vec<PodLeft<'c>>,
    },
    /// Not everything left in time, or ever will.
    GivenUp {
        /// What a person is told as the reason.
        why: GivenUp,
        /// The pods that have not left.
        left: Vec<PodLeft<'c>>,
    },
}

impl NodeDrain {
    /// A drain that begins at `now`, of a node that has been cordoned since `cordoned`.
    pub fn new(cordoned: Timestamp, now: Timestamp) -> Self {
        Self { cordoned, begun: now, stalled: None }
    }

    /// How `node` stands, which is cordoned, and when to look again even if nothing changes. Nothing is taken from
    /// `budgets`.
    pub fn step<'c>(
        self,
        node: &'c Node,
        seen: DrainView<'c, '_>,
        budgets: &Budgets<'_>,
    ) -> (DrainStep<'c>, Option<Timestamp>) {
        let DrainView { cluster, policy, now, .. } = seen;
        let ahead = self.ahead(policy, now);
        let late = self.is_late(policy, now);
        let left = pods_left(cluster, &node.name, &policy.rules, seen.memory, budgets, now);
        if !left.is_empty() {
            let may_end = late || self.stalled.is_some_and(|since| now >= after(since, STALLED));
            return match given_up(node, &left, seen, late).filter(|_| may_end) {
                Some(why) => (gives_up(why, left, seen), None),
                None => (DrainStep::Leaving, ahead),
            };
        }
        if let Some(volumes) =
            policy.await_volumes.then(|| attached(cluster, node, &policy.rules, now)).flatten()
        {
            return match policy.timeout.filter(|_| late) {
                Some(timeout) => {
                    let why = GivenUp::Late { timeout, waits: volumes };
                    (gives_up(why, Vec::new(), seen), None)
                }
                None => (DrainStep::Detaching(volumes), ahead),
            };
        }
        let settled = self.settled(policy);
        if now < settled { (DrainStep::Settling, Some(settled)) } else { (DrainStep::Empty, ahead) }
    }

    /// What to do about a node that is only cordoned, and whose pods stay, at `now`.
    pub fn keep<'c>(self, policy: &DrainPolicy, now: Timestamp) -> (DrainStep<'c>, Option<Timestamp>) {
        let settled = self.settled(policy);
        if now < settled { (DrainStep::Settling, Some(settled)) } else { (DrainStep::Empty, None) }
    }

    /// What is asked of the pods of `node`, which stands at [`DrainStep::Leaving`].
    ///
    /// What is asked for is taken from `budgets`; nodes that ask first are served first.
    pub fn ask<'c>(
        self,
        node: &'c Node,
        seen: DrainView<'c, '_>,
        budgets: &mut Budgets<'_>,
    ) -> DrainAsks<'c> {
        let Emptying { permits, left, again_at } = asks(node, seen, budgets);
        if seen.stopped {
            return DrainAsks {
                drain: self,
                permits,
                forced: Vec::new(),
                reread: false,
                left,
                again_at: None,
            };
        }
        // Only a drain that forces goes on after its time. A deletion, too, uses up what a budget allows, so that what
        // the pods took of it stays taken.
        let (permits, mut forced) = if self.is_late(seen.policy, seen.now) {
            (Vec::new(), forced(node, &left, seen))
        } else {
            (permits, Vec::new())
        };
        let reread = !forced.is_empty() && !seen.was_read_lately();
        if reread {
            forced.clear();
        }
        let stalled = stall(node, &left).map(|_| self.stalled.unwrap_or(seen.now));
        // Where the deadline deletes pods, the node is not given up for its stall: the next look is at the deadline then,
        // which its step asks for.
        let gives_up = stalled.map(|since| after(since, STALLED)).filter(|at| *at > seen.now);
        let again_at = earliest([again_at, gives_up]);
        DrainAsks { drain: Self { stalled, ..self }, permits, forced, reread, left, again_at }
    }

    /// From when on no pod is put on the node any more by whoever did not know of its cordon.
    pub(super) fn settled(self, policy: &DrainPolicy) -> Timestamp {
        after(self.cordoned, policy.settle)
    }

    /// When its time is over, while it is not.
    fn ahead(self, policy: &DrainPolicy, now: Timestamp) -> Option<Timestamp> {
        policy.timeout.map(|timeout| after(self.begun, timeout)).filter(|deadline| *deadline > now)
    }

    /// Whether its time is over.
    fn is_late(self, policy: &DrainPolicy, now: Timestamp) -> bool {
        policy.timeout.is_some() && self.ahead(policy, now).is_none()
    }
}

/// The step of a node that is to be given up for the reason `why`: it is, if its pods were read a moment ago.
fn gives_up<'c>(why: GivenUp, left: Vec<PodLeft<'c>>, seen: DrainView<'c, '_>) -> DrainStep<'c> {
    if seen.was_read_lately() { DrainStep::GivenUp { why, left } } else { DrainStep::Doubtful { why, left } }
}

/// Why a node that is `late`, or on which nothing has moved for long, is given up, if it is. Some pod is `left` on it.
fn given_up(node: &Node, left: &[PodLeft<'_>], seen: DrainView<'_, '_>, late: bool) -> Option<GivenUp> {
    let DrainView { memory, policy, now, .. } = seen;
    let forces = policy.on_timeout == OnTimeout::Force && policy.timeout.is_some();
    if late {
        let not_deleted = left.iter().filter(|_| forces).find_map(|left| not_deleted(left, memory, now));
        let moves = forces && left.iter().any(|left| yields(left) || leaves(left, now));
        let late = policy
            .timeout
            .filter(|_| !moves)
            .map(|timeout| GivenUp::Late { timeout, waits: first_wait(left) });
        return not_deleted.or(late);
    }
    if forces && left.iter().any(yields) {
        // Its time will come.
        return None;
    }
    match stall(node, left)? {
        Stall::Person => Some(GivenUp::Stalled(first_wait(left))),
        Stall::Kubelet => Some(GivenUp::Unconfirmed(first_wait(left))),
    }
}

/// That the server refuses to delete a pod past its budgets, once it has done so for [`STALLED`]. What refuses it may be
/// in the middle of a change itself, as a role or a webhook that is installed anew.
fn not_deleted(left: &PodLeft<'_>, memory: &Memory, now: Timestamp) -> Option<GivenUp> {
    let Some(PodMemory::NotDeleted { until, refused, passes }) = memory.pods.get(&left.pod.uid) else {
        return None;
    };
    (*until > now && refused.lasted() >= STALLED).then(|| GivenUp::NotDeleted {
        pod: left.pod.full_name(),
        why: refused.why.clone(),
        lasting: !passes,
    })
}

/// Asks the pods that may go, and nobody where the drain was stopped.
fn asks<'c>(node: &'c Node, seen: DrainView<'c, '_>, budgets: &mut Budgets<'_>) -> Emptying<'c> {
    let DrainView { cluster, memory, policy, stopped, now, .. } = seen;
    if stopped {
        let left = pods_left(cluster, &node.name, &policy.rules, memory, budgets, now);
        return Emptying { left, ..Emptying::default() };
    }
    ask_pods(cluster, &node.name, &policy.rules, memory, budgets, now)
}

/// Why nothing on a node moves by itself.
enum Stall {
    /// A person has to change something.
    Person,
    /// The kubelet that has to confirm the end of its pods is gone.
    Kubelet,
}

/// Pods that only wait for their turn move when the others have, and no sooner.
fn stall(node: &Node, left: &[PodLeft<'_>]) -> Option<Stall> {
    let first: Vec<_> = left.iter().filter(|left| left.wait != PodWait::Turn).collect();
    let lasting = |left: &PodLeft<'_>| left.wait.lasts();
    let over = |left: &PodLeft<'_>| !node.ready && matches!(left.wait, PodWait::Stuck(_) | PodWait::Kept(_));
    if first.is_empty() || !first.iter().all(|left| lasting(left) || over(left)) {
        return None;
    }
    // Where both are so, a person has to come anyway.
    Some(if first.iter().any(|left| lasting(left)) { Stall::Person } else { Stall::Kubelet })
}

/// Whether a pod goes when it is deleted: it is not terminating, it is no person's to decide, and it does not come back each
/// time.
pub fn yields(left: &PodLeft<'_>) -> bool {
    let stays = matches!(
        left.wait,
        PodWait::Leaving
            | PodWait::Stuck(_)
            | PodWait::Kept(_)
            | PodWait::Refused(_)
            | PodWait::Returned { .. }
    );
    !stays && left.pod.deleting().is_none()
}

/// Whether a pod is terminating and may still be at `now`.
fn leaves(left: &PodLeft<'_>, now: Timestamp) -> bool {
    let in_time = |at: Timestamp| now < after(at, STUCK_AFTER);
    !matches!(left.wait, PodWait::Stuck(_)) && left.pod.deleting().is_some_and(in_time)
}

/// The deletions of the pods in `left` that yield to one, and for which no request is under way, accepted already, or
/// refused a moment ago.
fn forced(node: &Node, left: &[PodLeft<'_>], seen: DrainView<'_, '_>) -> Vec<Forced> {
    let may = |left: &&PodLeft<'_>| {
        let waits = match seen.memory.pods.get(&left.pod.uid) {
            Some(PodMemory::Sent) => true,
            Some(PodMemory::NotDeleted { until, .. }) => *until > seen.now,
            // A deletion does not wait for what an eviction waits for.
            Some(PodMemory::NotBefore(..)) | None => false,
        };
        yields(left) && !waits
    };
    let force = |left: &PodLeft<'_>| Forced {
        namespace: Arc::clone(&left.pod.namespace),
        pod: Arc::clone(&left.pod.name),
        asked: AskedPod::of(left.pod, seen.cluster.pods_on(&node.name)),
        grace: left.pod.traits().grace.filter(|seconds| *seconds < 1).map(|_| 1),
    };
    left.iter().filter(may).map(force).collect()
}

pub(super) fn earliest(times: [Option<Timestamp>; 2]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
