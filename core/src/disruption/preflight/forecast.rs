//! What a drain of several nodes will take, and what more nodes at once would bring.
//!
//! Here belongs the arithmetic of rounds: of a budget's pods as many leave at a time as it can spare, and their
//! replacements take as long to be ready as those pods once did. The forecast is made before a drain begins, so of the
//! budgets it reads only their status. The invariant: no number of nodes is named that would be faster than the budgets
//! allow.

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;

use super::super::budget_name::{BudgetName, budget_name};
use super::super::class::{Handling, class, handling};
use super::super::permit::Budgets;
use super::bounds::duration_text;
use super::question::Question;
use crate::cluster::{Budget, Phase};
use crate::text::plural;

/// How long a replacement is taken to need until it is ready, where no pod tells.
const REPLACEMENT: SignedDuration = SignedDuration::from_mins(1);
/// How long it takes besides until a pod that was asked is gone and its budget is counted anew, where a pod tells.
const LEAVES: SignedDuration = SignedDuration::from_secs(2);

/// What a drain of several nodes will take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainForecast {
    /// How many nodes are to be drained.
    pub nodes: usize,
    /// How many of them at a time.
    pub at_once: usize,
    /// How long a replacement is taken to need.
    pub slot: SignedDuration,
    /// Whether `slot` is what the pods that have to leave once needed; otherwise it is a guess.
    pub known: bool,
    /// About how long the whole drain takes.
    pub time: SignedDuration,
    /// How many at a time are much faster, and how long that takes; more would not be faster.
    pub better: Option<(usize, SignedDuration)>,
    /// Pods that have to leave.
    pub pods: usize,
    /// Those of them that no budget guards.
    pub unguarded: usize,
    /// Those of them whose budget can spare none; the time is without them.
    pub kept: usize,
}

impl fmt::Display for DrainForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_a_time = match self.at_once {
            1 => "one at a time".to_owned(),
            several => format!("{several} at a time"),
        };
        write!(
            f,
            "{} nodes, {at_a_time}: about {} if a replacement is ready in {}{}",
            self.nodes,
            duration_text(self.time),
            duration_text(self.slot),
            if self.known { ", as most of these pods were" } else { "" }
        )?;
        if let Some((nodes, time)) = &self.better {
            write!(
                f,
                "; with --concurrency {nodes} about {}, and the PDBs allow nothing faster",
                duration_text(*time)
            )?;
            if self.unguarded > 0 {
                let of = plural(self.pods, "pod");
                write!(f, "; but {} of its {of} have no PDB, and may then leave together", self.unguarded)?;
            }
        }
        if self.kept > 0 {
            let have = if self.kept == 1 { "has" } else { "have" };
            write!(
                f,
                "; {} {have} a PDB that can spare none: see evenkeel preflight",
                plural(self.kept, "pod")
            )?;
        }
        Ok(())
    }
}

/// What a drain of the nodes of `question` will take. `None` for a single node, and where no pod has to leave.
pub fn forecast(question: &Question<'_>) -> Option<DrainForecast> {
    let Question { cluster, at_once, .. } = *question;
    let budgets = Budgets::new(cluster, BTreeMap::new(), question.now);
    let (mut pods, mut unguarded, mut kept) = (0, 0, 0);
    let (mut rounds, mut took) = (Vec::new(), Vec::new());
    let mut of_all: BTreeMap<BudgetName, (usize, usize)> = BTreeMap::new();
    for node in &question.nodes {
        let mut of_node: BTreeMap<BudgetName, (usize, usize)> = BTreeMap::new();
        let before = pods;
        for pod in cluster.pods_on(&node.name) {
            let class = class(pod, question.rules, cluster.surroundings(), question.now);
            if handling(pod, class, question.rules) != Handling::Evict || pod.phase == Phase::Finished {
                continue;
            }
            pods += 1;
            let guarding = budgets.guarding(pod);
            took.extend(pod.ready_after.filter(|_| !guarding.is_empty()));
            unguarded += usize::from(guarding.is_empty());
            // One that is not ready may leave without being counted.
            if budgets.freed_by(pod).is_some() {
                continue;
            }
            kept += usize::from(guarding.iter().any(|budget| spare(budget) == 0));
            for budget in guarding.into_iter().filter(|budget| spare(budget) > 0) {
                of_node.entry(budget_name(budget)).or_insert((0, spare(budget))).0 += 1;
                of_all.entry(budget_name(budget)).or_insert((0, spare(budget))).0 += 1;
            }
        }
        if pods > before {
            rounds.push(longest(&of_node).max(1));
        }
    }
    if question.nodes.len() < 2 || rounds.is_empty() {
        return None;
    }
    let by_budgets = longest(&of_all);
    let (slot, known) = slot(took);
    let time = |nodes: usize| {
        let rounds = in_turn(&rounds, nodes).max(by_budgets);
        let round = if known { slot.saturating_add(LEAVES) } else { slot };
        round.saturating_mul(i32::try_from(rounds).unwrap_or(i32::MAX))
    };
    let (now, best) = (time(at_once), time(rounds.len()));
    // A gain of less than a third is not worth a word.
    let worth = best.as_secs().saturating_mul(3) <= now.as_secs().saturating_mul(2);
    let better = (at_once + 1..=rounds.len()).find(|nodes| time(*nodes) == best).filter(|_| worth);
    let nodes = question.nodes.len();
    let better = better.map(|nodes| (nodes, best));
    Some(DrainForecast {
        nodes,
        at_once: at_once.min(nodes),
        slot,
        known,
        time: now,
        better,
        pods,
        unguarded,
        kept,
    })
}

/// How long a replacement is taken to need, and whether that is known: the upper quartile of `took`, the seconds that
/// guarded pods needed, and at least one second; [`REPLACEMENT`] where none is known.
fn slot(mut took: Vec<u16>) -> (SignedDuration, bool) {
    took.sort_unstable();
    match took.get(took.len() * 3 / 4) {
        Some(seconds) => (SignedDuration::from_secs(i64::from(*seconds).max(1)), true),
        None => (REPLACEMENT, false),
    }
}

/// How many of its pods `budget` can spare when all are healthy, by its status.
fn spare(budget: &Budget) -> usize {
    let spare = i64::from(budget.expected_pods) - i64::from(budget.desired_healthy);
    if budget.sync_failed.is_some() { 0 } else { usize::try_from(spare).unwrap_or(0) }
}

/// The rounds of the budget that needs most of them.
fn longest(budgets: &BTreeMap<BudgetName, (usize, usize)>) -> usize {
    budgets.values().map(|(pods, spare)| pods.div_ceil((*spare).max(1))).max().unwrap_or(0)
}

/// How many rounds all nodes need together, `at_once` at a time. `rounds` are those of each node; a node begins when
/// one before it is done.
fn in_turn(rounds: &[usize], at_once: usize) -> usize {
    let mut ends = vec![0; at_once.clamp(1, rounds.len().max(1))];
    for rounds in rounds {
        if let Some(first) = ends.iter_mut().min() {
            *first += rounds;
        }
    }
    ends.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::super::class::Rules;
    use super::*;
    use crate::cluster::{Node, Parts, Pod};
    use crate::fixture::{at, budget, node, pod};

    /// Nodes with so many pods of each app, and budgets of apps: how many are expected, and how many needed.
    fn told(nodes: &[&[(&str, usize)]], budgets: &[(&str, i32, i32)], at_once: usize) -> String {
        told_of(nodes, budgets, at_once, None)
    }

    /// The same of pods that needed so many seconds to be ready.
    fn told_of(
        nodes: &[&[(&str, usize)]],
        budgets: &[(&str, i32, i32)],
        at_once: usize,
        ready_after: Option<u16>,
    ) -> String {
        let mut parts = Parts::default();
        for (number, apps) in nodes.iter().enumerate() {
            let name = format!("n-{number}");
            parts.nodes.push(node(&name, "v1.36.4").into());
            for (app, count) in *apps {
                let of = |at: usize| Pod { ready_after, ..pod(app, number * 1000 + at, &name) };
                let pods = (0..*count).map(of);
                parts.pods.extend(pods.collect::<Vec<Pod>>());
            }
        }
        parts.budgets = budgets
            .iter()
            .map(|(app, expected, desired)| Budget {
                expected_pods: *expected,
                ..budget(app, 1, *expected, *desired)
            })
            .collect();
        let cluster = parts.seal();
        let nodes: Vec<&Node> = cluster.nodes().iter().map(AsRef::as_ref).collect();
        let rules = Rules::default();
        let question =
            Question { cluster: &cluster, nodes, at_once, rules: &rules, timeout: None, now: at(0) };
        forecast(&question).map_or("nothing".to_owned(), |forecast| forecast.to_string())
    }

    #[test]
    fn what_a_drain_will_take() {
        let ten: Vec<&[(&str, usize)]> = vec![&[("a", 3), ("b", 3)]; 10];
        let budgets = [("a", 30, 24), ("b", 30, 24)];
        let lines = [
            told(&ten, &budgets, 1),
            told(&ten, &budgets, 5),
            told(&ten, &[("a", 30, 24)], 1),
            told(&ten, &[], 1),
            told(&ten, &[("a", 30, 29), ("b", 30, 29)], 1),
            told(&[&[("a", 1)], &[("b", 2)]], &[("a", 1, 1), ("b", 9, 1)], 1),
            told(&[&[("a", 3)]], &budgets, 1),
            told(&[&[], &[]], &budgets, 1),
            told_of(&ten, &budgets, 1, Some(27)),
        ];
        expect_test::expect![[r#"
            10 nodes, one at a time: about 10 min if a replacement is ready in 60 s; with --concurrency 2 about 5 min, and the PDBs allow nothing faster
            10 nodes, 5 at a time: about 5 min if a replacement is ready in 60 s
            10 nodes, one at a time: about 10 min if a replacement is ready in 60 s; with --concurrency 2 about 5 min, and the PDBs allow nothing faster; but 30 of its 60 pods have no PDB, and may then leave together
            10 nodes, one at a time: about 10 min if a replacement is ready in 60 s; with --concurrency 10 about 60 s, and the PDBs allow nothing faster; but 60 of its 60 pods have no PDB, and may then leave together
            10 nodes, one at a time: about 30 min if a replacement is ready in 60 s
            2 nodes, one at a time: about 2 min if a replacement is ready in 60 s; with --concurrency 2 about 60 s, and the PDBs allow nothing faster; 1 pod has a PDB that can spare none: see evenkeel preflight
            nothing
            nothing
            10 nodes, one at a time: about 5 min if a replacement is ready in 27 s, as most of these pods were; with --concurrency 2 about 2 min, and the PDBs allow nothing faster"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn a_replacement_takes_as_long_as_three_of_four_pods_did() {
        let of = |took: &[u16]| slot(took.to_vec());
        let seconds = SignedDuration::from_secs;
        assert_eq!(of(&[]), (REPLACEMENT, false));
        assert_eq!(of(&[0]), (seconds(1), true));
        assert_eq!(of(&[9, 4, 5, 6]), (seconds(9), true));
        assert_eq!(of(&[3, 8, 3, 3, 60_000, 4, 3, 3]), (seconds(8), true));
    }

    #[test]
    fn nodes_begin_when_one_before_them_is_done() {
        assert_eq!([1, 2, 3, 9].map(|at_once| in_turn(&[3, 1, 1, 1], at_once)), [6, 3, 3, 3]);
        assert_eq!(in_turn(&[], 4), 0);
    }
}
