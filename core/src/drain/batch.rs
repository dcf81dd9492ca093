//! Which nodes may be drained at the same time.
//!
//! A pinned pod is away until its node is back, so two nodes that each hold one, and each wait for what the other took
//! from a budget, wait for ever. The invariant: a node opens only when everything that its pinned pods take from their
//! budgets, and what the pinned pods of all open nodes still have to take, is there at once. Nodes that were opened
//! earlier in the same round are open, too. A pod that its budget lets go without being asked takes nothing from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::{Budget, Cluster, Phase};
use crate::disruption::{BudgetName, Budgets, Class, Rules, budget_name, class, pinned};

/// Why a node does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAdmitted {
    /// The budget that allows too little.
    pub budget: BudgetName,
    /// Why, in one line.
    pub reason: String,
    /// It stays so even when no other node is open, and every pod of the budget is healthy.
    pub lasting: bool,
    /// At least one budget that refuses the node may allow it later, for example when another node is back. It need not
    /// be [`Self::budget`].
    pub passes: bool,
    /// Since when the budget has allowed no eviction, where that is known.
    pub closed_since: Option<Timestamp>,
}

/// The nodes that are being drained, and what their pinned pods still take from their budgets.
pub struct Batch<'c> {
    cluster: &'c Cluster,
    budgets: Budgets<'c>,
    rules: &'c Rules,
    now: Timestamp,
    open: BTreeSet<Arc<str>>,
    taken: BTreeMap<BudgetName, usize>,
}

impl<'c> Batch<'c> {
    /// A batch in which no node is open.
    pub fn new(cluster: &'c Cluster, rules: &'c Rules, now: Timestamp) -> Self {
        let budgets = Budgets::new(cluster, BTreeMap::new(), now);
        Self { cluster, budgets, rules, now, open: BTreeSet::new(), taken: BTreeMap::new() }
    }

    /// How many nodes are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no node is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Counts the node of that name as open.
    pub fn open(&mut self, node: &Arc<str>) {
        if !self.open.insert(Arc::clone(node)) {
            return;
        }
        for (key, (_, count)) in self.pinned(node) {
            *self.taken.entry(key).or_default() += count;
        }
    }

    /// Whether the node of that name may open beside the open ones.
    ///
    /// # Errors
    /// [`NotAdmitted`], for the first budget that has not enough.
    pub fn admit(&self, node: &str) -> Result<(), NotAdmitted> {
        let mut refused: Option<NotAdmitted> = None;
        for (key, (budget, here)) in self.pinned(node) {
            let theirs = self.taken.get(&key).copied().unwrap_or_default();
            let allowed = usize::try_from(budget.disruptions_allowed).unwrap_or(0);
            if here + theirs <= allowed {
                continue;
            }
            let lasting = here > self.budgets.at_best(budget);
            if let Some(first) = &mut refused {
                first.passes |= !lasting;
                continue;
            }
            let reason = format!(
                "{here} of its pods under PDB {} can run on it only, {theirs} on nodes that are being drained, and {allowed} \
                 may be away now",
                budget.full_name()
            );
            let closed_since = budget.closed_since;
            refused = Some(NotAdmitted { budget: key, reason, lasting, passes: !lasting, closed_since });
        }
        refused.map_or(Ok(()), Err)
    }

    /// Whether an open node has still to take from `budget`.
    pub(super) fn takes_from(&self, budget: &BudgetName) -> bool {
        self.taken.contains_key(budget)
    }

    /// The budgets of a node's pinned pods, and of those that are on their way out.
    pub(super) fn guarding_pinned(&self, node: &str) -> BTreeSet<BudgetName> {
        let surroundings = self.cluster.surroundings();
        let on_node = self.cluster.pods_on(node);
        let pods = on_node.filter(|pod| pod.phase == Phase::Running && pinned(pod, surroundings));
        pods.flat_map(|pod| self.budgets.guarding(pod)).map(budget_name).collect()
    }

    /// What the pinned pods of a node still take from their budgets.
    fn pinned(&self, node: &str) -> BTreeMap<BudgetName, (&'c Budget, usize)> {
        let mut counts: BTreeMap<BudgetName, (&Budget, usize)> = BTreeMap::new();
        for pod in self.cluster.pods_on(node) {
            let pinned = || class(pod, self.rules, self.cluster.surroundings(), self.now) == Class::Pinned;
            if pod.phase == Phase::Running && pinned() && self.budgets.freed_by(pod).is_none() {
                for budget in self.budgets.guarding(pod) {
                    counts.entry(budget_name(budget)).or_insert((budget, 0)).1 += 1;
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Parts, Pod, Traits, UnhealthyPolicy};
    use crate::fixture::{at, budget, pod};

    fn guard(app: &str, node: &str) -> Pod {
        let traits = Traits { hosts: vec![node.into()], ..Traits::default() };
        Pod { special: Some(Arc::new(traits)), name: format!("{app}-{node}").into(), ..pod(app, 0, node) }
    }

    #[test]
    fn two_nodes_with_two_guards_go_one_after_the_other() {
        let nodes = ["n-1", "n-2", "n-3"];
        let pods = nodes.iter().flat_map(|node| [guard("etcd", node), guard("api", node)]).collect();
        let budgets = vec![budget("etcd", 1, 3, 2), budget("api", 1, 3, 2)];
        let cluster = Parts { pods, budgets, ..Parts::default() }.seal();
        let rules = Rules::default();
        let mut batch = Batch::new(&cluster, &rules, at(0));
        assert!(batch.admit("n-1").is_ok());
        batch.open(&"n-1".into());
        let second = batch.admit("n-2").unwrap_err();
        assert!(!second.lasting && second.reason.contains("1 on nodes that are being drained"), "{second:?}");
    }

    #[test]
    fn a_budget_that_lasts_does_not_hide_that_another_is_taken() {
        let pods = ["n-1", "n-2"].iter().flat_map(|node| [guard("api", node), guard("etcd", node)]).collect();
        // The first by its name never allows anything.
        let budgets = vec![budget("api", 0, 2, 2), budget("etcd", 1, 2, 1)];
        let cluster = Parts { pods, budgets, ..Parts::default() }.seal();
        let rules = Rules::default();
        let mut batch = Batch::new(&cluster, &rules, at(0));
        let first = batch.admit("n-1").unwrap_err();
        assert!(first.lasting && !first.passes, "{first:?}");
        batch.open(&"n-1".into());
        let second = batch.admit("n-2").unwrap_err();
        assert!(second.lasting && second.passes, "{second:?}");
    }

    #[test]
    fn all_or_nothing_on_one_node() {
        let twice = Pod { name: "etcd-b".into(), uid: "b".into(), ..guard("etcd", "n-1") };
        let cluster = Parts {
            pods: vec![guard("etcd", "n-1"), twice],
            budgets: vec![budget("etcd", 1, 3, 2)],
            ..Parts::default()
        }
        .seal();
        let rules = Rules::default();
        let refused = Batch::new(&cluster, &rules, at(0)).admit("n-1").unwrap_err();
        assert!(refused.lasting, "two are pinned, and one may be away: {refused:?}");
    }

    #[test]
    fn a_pod_that_goes_free_of_its_budget_takes_nothing_from_it() {
        let admits = |budget: Budget, ready: [bool; 2]| {
            let on = |node: &str, ready| Pod { ready, ..guard("etcd", node) };
            let pods = vec![on("n-1", ready[0]), on("n-2", ready[1])];
            let cluster = Parts { pods, budgets: vec![budget], ..Parts::default() }.seal();
            Batch::new(&cluster, &Rules::default(), at(0)).admit("n-1").is_ok()
        };
        let closed = || Budget { expected_pods: 3, ..budget("etcd", 0, 2, 2) };
        assert!(
            admits(closed(), [false, true]),
            "it keeps its own budget closed, and goes without being counted"
        );
        assert!(!admits(closed(), [true, false]), "a ready pod is counted");
        let short = || Budget { current_healthy: 1, ..closed() };
        assert!(!admits(short(), [false, true]), "a budget that lacks more lets no unready pod go");
        let always = |budget| Budget { unhealthy_policy: UnhealthyPolicy::AlwaysAllow, ..budget };
        assert!(admits(always(short()), [false, true]));
        assert!(admits(always(Budget { expected_pods: 1, ..budget("etcd", 0, 0, 1) }), [false, true]));
    }

    #[test]
    fn pods_that_move_hold_up_nobody() {
        let pods = vec![pod("web", 1, "n-1"), pod("web", 2, "n-2")];
        let cluster = Parts { pods, budgets: vec![budget("web", 0, 2, 2)], ..Parts::default() }.seal();
        let rules = Rules::default();
        let mut batch = Batch::new(&cluster, &rules, at(0));
        batch.open(&"n-1".into());
        assert!(batch.admit("n-2").is_ok());
    }
}
