//! What has to leave the nodes that a plan moves, and which budgets guard it.
//!
//! Here belongs counting alone; which pods leave and how many a budget lets go is asked of [`crate::disruption`]. The
//! invariant: only budgets that ever let a pod go are counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use crate::cluster::Phase;
use crate::disruption::preflight::{Question, bounds};
use crate::disruption::{BudgetName, Budgets, Handling, class, handling};

/// What has to leave the nodes that move.
pub(super) struct Leaving {
    nodes: BTreeMap<Arc<str>, PodsToLeave>,
    /// The budgets that guard some of it.
    budgets: Vec<Room>,
}

/// What has to leave one node.
#[derive(Default)]
struct PodsToLeave {
    /// Some pod has to.
    any: bool,
    /// How many of each budget's pods have to, by the budget's index in [`Leaving::budgets`].
    guarded: BTreeMap<usize, usize>,
}

/// A budget, and how many of its pods may be gone at once when all are healthy: at least one.
pub(super) struct Room {
    pub(super) name: BudgetName,
    pub(super) at_once: usize,
}

impl Leaving {
    /// Of all nodes of `question`. A budget that never lets a pod go sets no time: [`super::drain_findings()`] tells it.
    pub(super) fn of(question: &Question<'_>) -> Self {
        let cluster = question.cluster;
        let mut rooms = Vec::new();
        for bound in bounds(question, SignedDuration::ZERO) {
            if let Some(at_once) = usize::try_from(bound.at_once).ok().filter(|at_once| *at_once > 0) {
                rooms.push(Room { name: bound.budget, at_once });
            }
        }
        let index: BTreeMap<(&str, &str), usize> =
            rooms.iter().enumerate().map(|(at, room)| ((&*room.name.0, &*room.name.1), at)).collect();
        let budgets = Budgets::new(cluster, BTreeMap::new(), question.now);
        let mut nodes = BTreeMap::new();
        for node in &question.nodes {
            let mut drain = PodsToLeave::default();
            for pod in cluster.pods_on(&node.name) {
                let class = class(pod, question.rules, cluster.surroundings(), question.now);
                let leaves = handling(pod, class, question.rules) == Handling::Evict;
                if !leaves || pod.phase == Phase::Finished {
                    continue;
                }
                drain.any = true;
                // A pod that is not ready may leave a healthy budget without being counted.
                let free = !pod.ready && budgets.freed_by(pod).is_some();
                if pod.phase == Phase::Running && !free {
                    let guarding = budgets.guarding(pod);
                    let known =
                        guarding.iter().filter_map(|budget| index.get(&(&*budget.namespace, &*budget.name)));
                    known.for_each(|at| *drain.guarded.entry(*at).or_default() += 1);
                }
            }
            nodes.insert(Arc::clone(&node.name), drain);
        }
        Self { nodes, budgets: rooms }
    }

    /// How many times pods have to be replaced, one after the other, until the node of that name is empty.
    pub(super) fn rounds(&self, node: &Arc<str>) -> usize {
        let Some(drain) = self.nodes.get(node) else { return 0 };
        let of_budget =
            |(at, pods): (&usize, &usize)| self.budgets.get(*at).map(|room| pods.div_ceil(room.at_once));
        drain.guarded.iter().filter_map(of_budget).max().unwrap_or(0).max(usize::from(drain.any))
    }

    /// The budgets with a pod on one of `nodes`, and how many each has there.
    pub(super) fn guarding<'a>(&self, nodes: impl Iterator<Item = &'a Arc<str>>) -> Vec<(&Room, usize)> {
        let mut pods = vec![0; self.budgets.len()];
        for drain in nodes.filter_map(|node| self.nodes.get(node)) {
            for (at, count) in &drain.guarded {
                if let Some(pods) = pods.get_mut(*at) {
                    *pods += count;
                }
            }
        }
        self.budgets.iter().zip(pods).filter(|(_, pods)| *pods > 0).collect()
    }
}
