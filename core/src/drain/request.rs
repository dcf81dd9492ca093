//! A drain that a person began: which nodes are cordoned, emptied, done or given up, step by step.
//!
//! [`decide`] is pure and total, like the rollout's. What it must know after a crash is on the Nodes: the cordon and
//! its [`CordonMark`]. The invariants: a node is touched only when no pod of it is refused; a node that somebody
//! uncordons meanwhile is theirs; and how every node stands is known before anything is asked of one, so that a drain
//! that halts asks for nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::batch::{Batch, NotAdmitted};
use super::deleted::{Deleted, left_behind};
use super::emptying::PodLeft;
use super::in_line::InLine;
use super::node::{DrainAsks, DrainStep, DrainView, Forced, GivenUp, NodeDrain};
use super::not_drained::NotDrained;
use super::policy::{DrainPolicy, OnTimeout};
use super::refused_patches::RefusedPatches;
use crate::cluster::{Cluster, Node, NodeRef};
use crate::disruption::{BudgetName, Budgets, CordonMark, Handling, Memory, Permit, Rules, class, handling};
use crate::time::after;

/// How long a cordoned node waits for the others to be cordoned, so that no pod moves from one to the next.
pub const TOGETHER: SignedDuration = SignedDuration::from_secs(10);

/// What a person asked for: one drain of some nodes.
#[derive(Clone, Debug)]
pub struct DrainRequest {
    /// The nodes, in the order in which they begin.
    pub nodes: Vec<Arc<str>>,
    /// How many are emptied at the same time.
    pub concurrency: usize,
    /// How each is drained.
    pub policy: DrainPolicy,
    /// Nodes that are not drained are made schedulable again, if this drain cordoned them.
    pub give_back: bool,
    /// The value of the cordon annotation, `drain:<since>/<who>`: the same on all nodes of this drain.
    pub mark: String,
    /// Why it stops: nothing new is asked for, and every node that is not drained yet is given up for this reason.
    pub stopped: Option<Arc<str>>,
}

/// How far a drain is with one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// Not touched yet.
    #[default]
    Waiting,
    /// Cordoned; it waits for its turn.
    Cordoned(InLine),
    /// Its pods are leaving.
    Draining(NodeDrain),
    /// A fresh look found no pod on it that has to leave.
    Drained {
        /// When a fresh look confirmed that it is empty.
        at: Timestamp,
        /// From when its pods were first asked until then.
        took: SignedDuration,
    },
    /// Given up.
    Failed {
        /// What a person is told as the reason.
        why: NotDrained,
    },
}

impl NodeState {
    /// Whether nothing more is done about it.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Drained { .. } | Self::Failed { .. })
    }
}

/// Everything a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct DrainWorld<'c, 'w> {
    /// The nodes that are drained, their pods, and all budgets.
    pub cluster: &'c Cluster,
    /// What is under way.
    pub memory: &'w Memory,
    /// Where each node was after the last decision.
    pub states: &'w BTreeMap<Arc<str>, NodeState>,
    /// UIDs of the Nodes, as first seen.
    pub uids: &'w BTreeMap<Arc<str>, Arc<str>>,
    /// Nodes whose pods were read by a request of their own since the last decision, which found no pod that has to leave,
    /// and when that was asked for.
    pub confirmed: &'w BTreeMap<Arc<str>, Timestamp>,
    /// When the pods of each node were last read by a request of their own.
    pub reread: &'w BTreeMap<Arc<str>, Timestamp>,
    /// What the server refuses to write to the Nodes.
    pub refused: &'w RefusedPatches,
    /// The time of the look; the core has no clock.
    pub now: Timestamp,
}

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub enum DrainAction {
    /// Mark a node unschedulable as ours. Fails when the Node has changed.
    Cordon(NodeRef),
    /// Take our cordon off. Fails when the Node has changed.
    Uncordon(NodeRef),
    /// Evict one pod of one UID.
    Evict(Permit),
    /// Delete one pod of one UID.
    Delete(Forced),
    /// Read the pods of the node by a request of their own.
    Reread(Arc<str>),
}

/// What to do now, and how things stand.
#[derive(Debug)]
pub struct DrainDecision<'a> {
    /// The requests, in the order in which to begin them.
    pub actions: Vec<DrainAction>,
    /// Where each node is now.
    pub states: BTreeMap<Arc<str>, NodeState>,
    /// The pods that are left, of nodes that are being emptied.
    pub left: BTreeMap<Arc<str>, Vec<PodLeft<'a>>>,
    /// What nodes that have not begun wait for.
    pub waiting: BTreeMap<Arc<str>, String>,
    /// When to decide again even if nothing changes.
    pub again_at: Option<Timestamp>,
    /// Nothing more is to do.
    pub done: bool,
}

/// Why `node` may not be drained at all, as far as can be seen before it is touched.
pub fn refusal(cluster: &Cluster, node: &Node, rules: &Rules, now: Timestamp) -> Option<String> {
    if let Some(CordonMark::Upgrade { claim, .. }) = node.cordoned_by.as_deref().and_then(CordonMark::read) {
        return Some(format!("is being upgraded by NodeUpgrade {claim}; suspend its ClusterUpgrade first"));
    }
    cluster.pods_on(&node.name).find_map(|pod| {
        match handling(pod, class(pod, rules, cluster.surroundings(), now), rules) {
            Handling::Refuse(why) => Some(format!("pod {} {why}", pod.full_name())),
            _ => None,
        }
    })
}

/// What to do about `request` now. Total: any world has an answer.
pub fn decide<'c>(request: &DrainRequest, world: DrainWorld<'c, '_>) -> DrainDecision<'c> {
    let mut round = DrainRound {
        request,
        world,
        batch: Batch::new(world.cluster, &request.policy.rules, world.now),
        budgets: Budgets::new(world.cluster, world.memory.budgets.clone(), world.now),
        decision: DrainDecision {
            actions: Vec::new(),
            states: BTreeMap::new(),
            left: BTreeMap::new(),
            waiting: BTreeMap::new(),
            again_at: None,
            done: false,
        },
    };
    let state_of = |name: &Arc<str>| world.states.get(name).cloned().unwrap_or_default();
    // The node that is nearest to its end goes first, so that its last pods do not wait behind another's first.
    let mut order: Vec<&Arc<str>> = request.nodes.iter().collect();
    order.sort_by_key(|name| match state_of(name) {
        NodeState::Draining(drain) => (0, drain.begun),
        NodeState::Cordoned(_) => (1, Timestamp::MIN),
        _ => (2, Timestamp::MIN),
    });
    let mut all_due = Vec::new();
    for name in order {
        let (state, due) = round.stands(name, state_of(name));
        if matches!(state, NodeState::Draining(_)) {
            round.batch.open(name);
        }
        round.decision.states.insert(Arc::clone(name), state);
        all_due.extend(due);
    }
    round.remember_ahead();
    let halted = request.policy.on_timeout == OnTimeout::Halt
        && round.decision.states.values().any(|state| matches!(state, NodeState::Failed { .. }));
    if halted {
        round.halt();
    } else {
        for due in all_due {
            round.ask(due);
        }
    }
    round.give_back();
    let mut decision = round.decision;
    decision.done = decision.states.values().all(NodeState::is_final) && decision.actions.is_empty();
    decision
}

/// What is due about a node, unless the drain halts.
enum Due<'c> {
    /// That it is cordoned.
    Cordon(&'c Node),
    /// That its pods are asked to leave.
    Leaving(&'c Node, NodeDrain),
    /// That its pods are read by a request of their own.
    Reread(Arc<str>),
}

struct DrainRound<'c, 'w, 'r> {
    request: &'r DrainRequest,
    world: DrainWorld<'c, 'w>,
    /// The nodes that are being emptied after this decision.
    batch: Batch<'r>,
    budgets: Budgets<'c>,
    decision: DrainDecision<'c>,
}

impl<'c: 'r, 'w, 'r: 'w> DrainRound<'c, 'w, 'r> {
    fn wake(&mut self, at: Timestamp) {
        let again = &mut self.decision.again_at;
        *again = Some(again.map_or(at, |earlier| earlier.min(at)));
    }

    /// Where a node is now, and what is due about it. Nothing is asked for.
    fn stands(&mut self, name: &Arc<str>, state: NodeState) -> (NodeState, Option<Due<'c>>) {
        let now = self.world.now;
        let failed = |why: &str| (NodeState::Failed { why: NotDrained::Because(why.to_owned()) }, None);
        if state.is_final() {
            return (state, None);
        }
        // It ends here whatever else is true of it, so that what it looks like afterwards is not taken for another's doing.
        if let Some(why) = &self.request.stopped {
            return failed(why);
        }
        let Some(node) = self.world.cluster.node(name) else {
            return match state {
                NodeState::Draining(drain) => self.deleted(name, drain),
                _ => failed("there is no such node"),
            };
        };
        if self.world.uids.get(name).is_some_and(|uid| *uid != node.uid) {
            return failed("was made again under its name meanwhile; it is another node");
        }
        match state {
            NodeState::Waiting => {
                if let Some(why) = refusal(self.world.cluster, node, &self.request.policy.rules, now) {
                    return failed(&why);
                }
                if node.unschedulable {
                    return self.turn(node, InLine::new(now));
                }
                if let Some((until, why)) = self.world.refused.of(name) {
                    if now >= until {
                        return failed(&format!(
                            "the API server refuses to cordon it: {why}; run the drain again when it allows that"
                        ));
                    }
                    self.wake(until);
                }
                (NodeState::Waiting, Some(Due::Cordon(node)))
            }
            NodeState::Cordoned(_) | NodeState::Draining(_) if !node.unschedulable => {
                failed("was uncordoned by someone else while it drained")
            }
            NodeState::Cordoned(line) => self.turn(node, line),
            NodeState::Draining(drain) => self.draining(node, drain),
            NodeState::Drained { .. } | NodeState::Failed { .. } => (state, None),
        }
    }

    /// What becomes of a node whose Node was deleted in the middle of its drain.
    fn deleted(&self, name: &Arc<str>, drain: NodeDrain) -> (NodeState, Option<Due<'c>>) {
        let DrainWorld { cluster, memory, confirmed, reread, now, .. } = self.world;
        let read = (reread.get(name).copied(), confirmed.contains_key(name));
        let policy = &self.request.policy;
        match left_behind(cluster, name, policy, (memory, &self.budgets), read, now) {
            Deleted::Empty => (NodeState::Drained { at: now, took: now.duration_since(drain.begun) }, None),
            Deleted::Left(why) => (NodeState::Failed { why: NotDrained::Because(why) }, None),
            Deleted::Unread => (NodeState::Draining(drain), Some(Due::Reread(Arc::clone(name)))),
        }
    }

    /// Begins `node` if it is its turn.
    fn turn(&mut self, node: &'c Node, line: InLine) -> (NodeState, Option<Due<'c>>) {
        let together = after(line.since, TOGETHER);
        let at_once = self.request.concurrency.max(1);
        let waits = if self.world.now < together && self.cordons_are_missing(node) {
            self.wake(together);
            "waits until the others are cordoned".to_owned()
        } else if self.batch.len() >= at_once {
            format!("waits for its turn ({at_once} at a time)")
        } else {
            return match self.batch.admit(&node.name) {
                Ok(()) => self.draining(node, NodeDrain::new(line.since, self.world.now)),
                Err(refused) => self.refused(node, line, refused),
            };
        };
        self.decision.waiting.insert(Arc::clone(&node.name), waits);
        (NodeState::Cordoned(InLine { refused: None, ..line }), None)
    }

    /// What becomes of `node`, whose turn it would be if a budget allowed it.
    fn refused(
        &mut self,
        node: &'c Node,
        mut line: InLine,
        refused: NotAdmitted,
    ) -> (NodeState, Option<Due<'c>>) {
        let now = self.world.now;
        let NotAdmitted { budget, reason, lasting, passes, .. } = refused;
        let drains = |name: &Arc<str>| matches!(self.state(name), Some(NodeState::Draining(_)));
        // Another budget than the one that never lets it go is free again when the open nodes are back.
        let in_order = lasting && passes && !self.batch.is_empty();
        let held = in_order || self.batch.takes_from(&budget) || line.ahead(&budget).any(drains);
        // At its deadline such a node goes past its budgets, so it has to begin.
        if self.forces() && !in_order && (lasting || !held) {
            return self.draining(node, NodeDrain::new(line.since, now));
        }
        let failed = |reason| (NodeState::Failed { why: NotDrained::Because(reason) }, None);
        if lasting && self.batch.is_empty() {
            return failed(reason);
        }
        line.refused = (!held).then(|| line.refused.unwrap_or(now));
        if let Some(until) = line.until(self.request.policy.timeout, self.is_gone(&budget, &line)) {
            if now >= until {
                return failed(reason);
            }
            self.wake(until);
        }
        self.decision.waiting.insert(Arc::clone(&node.name), reason);
        (NodeState::Cordoned(line), None)
    }

    /// Whether a node that this drain is done with took from `budget`, for which the node in `line` waits. What pinned
    /// pods took comes back only with their node, and this drain does not bring it back.
    fn is_gone(&self, budget: &BudgetName, line: &InLine) -> bool {
        let mark = self.request.mark.as_str();
        self.request.nodes.iter().any(|name| {
            let node = self.world.cluster.node(name);
            let Some(state) = self.state(name).filter(|_| node.is_none_or(|node| node.unschedulable)) else {
                return false;
            };
            // What had left before anybody looked is not known: before this node was cordoned, or in an earlier run.
            let earlier = node.and_then(|node| node.cordoned_by.as_deref()).is_some_and(|by| by != mark);
            let unseen = match state {
                NodeState::Drained { at, .. } => earlier || *at < line.since,
                _ => false,
            };
            unseen || (state.is_final() && line.ahead(budget).any(|ahead| ahead == name))
        })
    }

    /// Where a node is, as far as this decision has come.
    fn state(&self, name: &Arc<str>) -> Option<&NodeState> {
        self.decision.states.get(name).or_else(|| self.world.states.get(name))
    }

    /// Remembers of nodes in line whose pinned pods take from the same budgets before theirs, while those can be seen.
    fn remember_ahead(&mut self) {
        let mut takers: BTreeMap<BudgetName, Vec<Arc<str>>> = BTreeMap::new();
        for (name, state) in &self.decision.states {
            if matches!(state, NodeState::Draining(_)) {
                for budget in self.batch.guarding_pinned(name) {
                    takers.entry(budget).or_default().push(Arc::clone(name));
                }
            }
        }
        if takers.is_empty() {
            return;
        }
        for (name, state) in &mut self.decision.states {
            let NodeState::Cordoned(line) = state else { continue };
            for budget in self.batch.guarding_pinned(name) {
                let ahead = takers.get(&budget).into_iter().flatten();
                line.behind.extend(ahead.map(|taker| (budget.clone(), Arc::clone(taker))));
            }
        }
    }

    /// Whether pods are deleted past their budgets at the deadline of their node.
    fn forces(&self) -> bool {
        let policy = &self.request.policy;
        policy.on_timeout == OnTimeout::Force && policy.timeout.is_some()
    }

    /// Whether another node is still to be cordoned, to which the pods of `node` could go.
    fn cordons_are_missing(&self, node: &Node) -> bool {
        self.request.nodes.iter().filter(|name| **name != node.name).any(|name| {
            let waits = |state: &NodeState| matches!(state, NodeState::Waiting);
            let before = self.world.states.get(name).is_none_or(waits);
            // One that this very decision gave up is not waited for.
            let now = self.decision.states.get(name).is_none_or(waits);
            let open = |other: &Node| {
                !other.unschedulable
                    && refusal(self.world.cluster, other, &self.request.policy.rules, self.world.now)
                        .is_none()
            };
            before && now && self.world.cluster.node(name).is_some_and(open)
        })
    }

    fn view(&self, node: &Node) -> DrainView<'c, 'w> {
        let DrainWorld { cluster, memory, now, reread, .. } = self.world;
        let (policy, stopped) = (&self.request.policy, self.request.stopped.is_some());
        DrainView { cluster, memory, policy, stopped, reread: reread.get(&node.name).copied(), now }
    }

    fn draining(&mut self, node: &'c Node, drain: NodeDrain) -> (NodeState, Option<Due<'c>>) {
        let now = self.world.now;
        let (step, again) = drain.step(node, self.view(node), &self.budgets);
        if let Some(at) = again {
            self.wake(at);
        }
        let name = || Arc::clone(&node.name);
        let due = match step {
            DrainStep::Doubtful { left, .. } => {
                self.decision.left.insert(name(), left);
                return (NodeState::Draining(drain), Some(Due::Reread(name())));
            }
            DrainStep::GivenUp { why, left } => {
                if !matches!(why, GivenUp::Late { .. }) {
                    self.decision.left.insert(name(), left);
                }
                return (NodeState::Failed { why: NotDrained::GivenUp(why) }, None);
            }
            DrainStep::Leaving => return (NodeState::Draining(drain), Some(Due::Leaving(node, drain))),
            DrainStep::Detaching(volumes) => {
                self.decision.waiting.insert(name(), volumes);
                None
            }
            DrainStep::Settling => None,
            DrainStep::Empty if self.is_confirmed(node, drain) => {
                return (NodeState::Drained { at: now, took: now.duration_since(drain.begun) }, None);
            }
            DrainStep::Empty => Some(Due::Reread(name())),
        };
        (NodeState::Draining(NodeDrain { stalled: None, ..drain }), due)
    }

    /// Whether the pods of `node` were read since it has settled, and none has to leave. A read that was asked for before that may
    /// lack a pod that came after it.
    fn is_confirmed(&self, node: &Node, drain: NodeDrain) -> bool {
        let asked = self.world.confirmed.get(&node.name);
        asked.is_some_and(|asked| *asked >= drain.settled(&self.request.policy))
    }

    /// Asks for what is due.
    fn ask(&mut self, due: Due<'c>) {
        match due {
            Due::Cordon(node) => self.decision.actions.push(DrainAction::Cordon(node.reference())),
            Due::Reread(name) => self.decision.actions.push(DrainAction::Reread(name)),
            Due::Leaving(node, drain) => {
                let DrainAsks { drain, permits, forced, reread, left, again_at } =
                    drain.ask(node, self.view(node), &mut self.budgets);
                let actions = &mut self.decision.actions;
                actions.extend(reread.then(|| DrainAction::Reread(Arc::clone(&node.name))));
                actions.extend(forced.into_iter().map(DrainAction::Delete));
                actions.extend(permits.into_iter().map(DrainAction::Evict));
                self.decision.left.insert(Arc::clone(&node.name), left);
                self.decision.states.insert(Arc::clone(&node.name), NodeState::Draining(drain));
                if let Some(at) = again_at {
                    self.wake(at);
                }
            }
        }
    }

    /// Gives up every node that is not done yet.
    fn halt(&mut self) {
        for state in self.decision.states.values_mut().filter(|state| !state.is_final()) {
            let why = "halted, because another node could not be drained".to_owned();
            *state = NodeState::Failed { why: NotDrained::Because(why) };
        }
    }

    /// Takes marks of drains off nodes that somebody uncordoned, and our own cordons off failed nodes where that was
    /// asked for. A drain goes on from a cordon of any other, and that stays the other's to give back.
    fn give_back(&mut self) {
        for (name, state) in &self.decision.states {
            let Some(node) = self.world.cluster.node(name) else { continue };
            let Some(mark) = node.cordoned_by.as_deref().filter(|mark| CordonMark::is_drain(mark)) else {
                continue;
            };
            let ours = CordonMark::is_own_drain(mark, &self.request.mark);
            let failed = matches!(state, NodeState::Failed { .. });
            // A mark without a cordon would make somebody's later cordon look like ours.
            let orphaned = state.is_final() && !node.unschedulable;
            // Whoever may not uncordon it is told that it is left cordoned.
            if self.world.refused.of(name).is_some_and(|(until, _)| self.world.now >= until) {
                continue;
            }
            if orphaned || (ours && failed && self.request.give_back) {
                self.decision.actions.push(DrainAction::Uncordon(node.reference()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
