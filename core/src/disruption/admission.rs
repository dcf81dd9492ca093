//! Which nodes may be drained at the same time.
//!
//! A pinned pod is away until its node is back, so two nodes that each hold one, and each wait for what the other took
//! from a budget, wait for ever. The invariant: a node begins only when everything that its pinned pods take from
//! their budgets, and what the open nodes' pinned pods still have to take, is there at once.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::class::{Class, Rules, class};
use super::permit::{BudgetName, Budgets, name};
use crate::cluster::{Budget, Cluster, Phase};

/// Why a node does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAdmitted {
    /// The budget.
    pub budget: BudgetName,
    /// Why, in one line.
    pub reason: String,
    /// It stays so even when no other node is open.
    pub lasting: bool,
}

/// Whether `node` may begin beside the nodes of `open`.
///
/// # Errors
/// [`NotAdmitted`], for the first budget that has not enough.
pub fn admit(
    cluster: &Cluster,
    node: &str,
    open: &[&str],
    rules: &Rules,
    now: Timestamp,
) -> Result<(), NotAdmitted> {
    let budgets = Budgets::new(cluster, BTreeMap::new(), now);
    let pinned = |node: &str| {
        let mut counts: BTreeMap<BudgetName, (&Budget, usize)> = BTreeMap::new();
        for pod in cluster.pods_on(node) {
            if pod.phase == Phase::Running && class(pod, rules, cluster.around(), now) == Class::Pinned {
                for budget in budgets.guarding(pod) {
                    counts.entry(name(budget)).or_insert((budget, 0)).1 += 1;
                }
            }
        }
        counts
    };
    let elsewhere: Vec<_> = open.iter().map(|node| pinned(node)).collect();
    for (key, (budget, here)) in pinned(node) {
        let theirs: usize = elsewhere.iter().filter_map(|counts| Some(counts.get(&key)?.1)).sum();
        let allowed = usize::try_from(budget.disruptions_allowed).unwrap_or(0);
        if here + theirs > allowed {
            let at_best =
                usize::try_from(budget.expected_pods.saturating_sub(budget.desired_healthy)).unwrap_or(0);
            let reason = format!(
                "{here} of its pods under PDB {} can run on it only, {theirs} on nodes that are being drained, and {allowed} \
                 may be away now",
                budget.full_name()
            );
            return Err(NotAdmitted { budget: key, reason, lasting: here > at_best });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::{Parts, Pod, Traits};
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
        let admit = |node, open: &[&str]| admit(&cluster, node, open, &Rules::default(), at(0));
        assert!(admit("n-1", &[]).is_ok());
        let second = admit("n-2", &["n-1"]).unwrap_err();
        assert!(!second.lasting && second.reason.contains("1 on nodes that are being drained"), "{second:?}");
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
        let refused = admit(&cluster, "n-1", &[], &Rules::default(), at(0)).unwrap_err();
        assert!(refused.lasting, "two are pinned, and one may be away: {refused:?}");
    }

    #[test]
    fn pods_that_move_hold_up_nobody() {
        let pods = vec![pod("web", 1, "n-1"), pod("web", 2, "n-2")];
        let cluster = Parts { pods, budgets: vec![budget("web", 0, 2, 2)], ..Parts::default() }.seal();
        assert!(admit(&cluster, "n-2", &["n-1"], &Rules::default(), at(0)).is_ok());
    }
}
