//! How long a drain takes at least, by what its budgets allow.
//!
//! Here belongs the arithmetic of `ceil(pods / allowed) × time`; how long one replacement takes is the caller's guess
//! or measurement. The invariant: a bound is never above the time that an ideal drain takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use super::super::arithmetic::in_the_long_run;
use super::super::budget_name::{BudgetName, budget_name};
use super::super::class::{Handling, class, handling};
use super::super::permit::Budgets;
use super::question::Question;
use crate::cluster::{Budget, Demand, Phase, Pod, Quantity};

/// One budget's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetBound {
    /// The budget that sets the bound.
    pub budget: BudgetName,
    /// What its spec asks for, for the words that explain the bound.
    pub demand: Demand,
    /// How many of its pods have to leave.
    pub pods: usize,
    /// How many may be gone at once when all are healthy.
    pub at_once: i64,
    /// The time it takes at least; `None` where it never ends.
    pub least: Option<SignedDuration>,
    /// A `maxUnavailable` that would be much faster, and the least time with it.
    pub instead: Option<(Quantity, SignedDuration)>,
    /// The node on which most of them are, and how many.
    pub busiest: (Arc<str>, usize),
}

/// The bounds of every budget that guards a pod which has to leave, longest first, when a replacement takes `slot`.
pub fn bounds(question: &Question<'_>, slot: SignedDuration) -> Vec<BudgetBound> {
    let cluster = question.cluster;
    let budgets = Budgets::new(cluster, BTreeMap::new(), question.now);
    let mut leaving: BTreeMap<BudgetName, (&Budget, BTreeMap<Arc<str>, usize>)> = BTreeMap::new();
    for node in &question.nodes {
        for pod in cluster.pods_on(&node.name) {
            let class = class(pod, question.rules, cluster.surroundings(), question.now);
            let leaves =
                pod.phase == Phase::Running && handling(pod, class, question.rules) == Handling::Evict;
            // One that is not ready may leave without being counted.
            let asks = leaves && budgets.freed_by(pod).is_none();
            for budget in budgets.guarding(pod).into_iter().filter(|_| asks) {
                let of = leaving.entry(budget_name(budget)).or_insert((budget, BTreeMap::new()));
                *of.1.entry(Arc::clone(&node.name)).or_default() += 1;
            }
        }
    }
    let rounds = |pods: usize, at_once: i64| {
        let at_once = usize::try_from(at_once).unwrap_or(usize::MAX);
        let rounds = pods.div_ceil(at_once.max(1));
        slot.saturating_mul(i32::try_from(rounds).unwrap_or(i32::MAX))
    };
    let mut all: Vec<BudgetBound> = leaving
        .into_values()
        .map(|(budget, nodes)| {
            let pods: usize = nodes.values().sum();
            let (expected, at_once) = room(question, budget);
            let tenth = Quantity::Percent(10);
            let least = (at_once > 0).then(|| rounds(pods, at_once));
            // A tenth is named only where it is at least two pods, and the budget lets fewer than two go at once.
            let better = (at_once < 2 && tenth.of(expected) > 1).then(|| rounds(pods, tenth.of(expected)));
            let busiest = nodes.into_iter().max_by_key(|(_, count)| *count);
            BudgetBound {
                budget: budget_name(budget),
                demand: budget.demand,
                pods,
                at_once,
                least,
                instead: better.map(|time| (tenth, time)),
                busiest: busiest.unwrap_or_else(|| ("".into(), 0)),
            }
        })
        .collect();
    all.sort_by_key(|bound| {
        (std::cmp::Reverse(bound.least.unwrap_or(SignedDuration::MAX)), bound.budget.clone())
    });
    all
}

/// `90 s`, `4 min`, `1 h`, `2 h 30 min`.
pub fn duration_text(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    match (seconds / 3600, (seconds % 3600 + 30) / 60) {
        (0, _) if seconds < 120 => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, 60) => format!("{} h", hours + 1),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// How many pods `budget` expects, and how many of them may be gone at once when all are healthy.
fn room(question: &Question<'_>, budget: &Budget) -> (i64, i64) {
    let pods: Vec<&Pod> =
        question.cluster.pods_in(&budget.namespace).filter(|pod| budget.selects(pod)).collect();
    match in_the_long_run(budget, &pods, question.cluster.surroundings(), question.now) {
        Ok(numbers) => (numbers.expected, numbers.steady()),
        Err(_) if budget.sync_failed.is_some() => (0, 0),
        Err(_) => {
            let (expected, desired) = (i64::from(budget.expected_pods), i64::from(budget.desired_healthy));
            (expected, (expected - desired).max(0))
        }
    }
}
