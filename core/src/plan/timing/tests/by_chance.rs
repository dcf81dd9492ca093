//! Times of clusters by chance, against a rollout that is played round by round.

use proptest::prelude::*;

use super::*;

/// What an ideal upgrade of nodes that all go at once takes, by playing it: in each slot a budget lets `at_once` of its
/// pods go, those of the fullest nodes first, and a node's executor works when it is empty.
fn played(pods: &[usize], at_once: usize, slot: i64, executor: i64) -> i64 {
    let (mut left, mut now, mut end) = (pods.to_vec(), 0, executor);
    loop {
        for _ in 0..at_once {
            let Some(fullest) = left.iter_mut().max().filter(|left| **left > 0) else { break };
            *fullest -= 1;
            end = end.max(now + executor);
        }
        if left.iter().all(|left| *left == 0) {
            return end;
        }
        now += slot;
    }
}

fn by_chance() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<usize>, Durations, bool, usize, usize)> {
    let took = || (0..600_i64, 0..600_i64).prop_map(|(p50, more)| took(p50, p50 + more));
    let durations =
        (took(), took(), took(), 0..200_i64).prop_map(|(server, controller, node, replacement)| Durations {
            server,
            controller,
            node,
            replacement: seconds(replacement),
            ..Durations::default()
        });
    // For each group its nodes, for each node its pods of the one budget.
    let groups = prop::collection::vec(prop::collection::vec(0..6_usize, 1..9), 1..4);
    (groups, prop::collection::vec(1..5_usize, 4), durations, any::<bool>(), 1..5_usize, 0..3_usize)
}

const POOLS: [&str; 3] = ["a", "b", "c"];

fn by_chance_timed(
    pools: &[Vec<usize>],
    limits: &[usize],
    durations: &Durations,
    chained: bool,
    at_once: usize,
    canary: usize,
) -> PlanTiming {
    let mut parts = Parts::default();
    let mut groups: Vec<NodeGroup> = Vec::new();
    let mut pods: Vec<Pod> = Vec::new();
    for ((name, nodes), limit) in POOLS.iter().zip(pools).zip(limits) {
        let before = groups.last().map(|group: &NodeGroup| group.name.clone()).filter(|_| chained);
        groups.push(NodeGroup { depends_on: before.into_iter().collect(), canary, ..group(name, *limit) });
        for (number, count) in nodes.iter().enumerate() {
            let own = Node { control_plane: *name == "a", ..of_pool(name, number) };
            (0..*count).for_each(|at| pods.push(pod("cart", pods_number(name, number, at), &own.name)));
            parts.nodes.push(own.into());
        }
    }
    guarded(&mut parts, "cart", pods.len(), at_once, &[]);
    parts.pods = pods;
    timed(&whole(), &upgrade(groups), parts, durations)
}

fn pods_number(pool: &str, node: usize, at: usize) -> usize {
    POOLS.iter().position(|name| *name == pool).unwrap() * 10_000 + node * 100 + at
}

proptest! {
    /// No bound is above what its hop is estimated to take, and no percentile below another.
    #[test]
    fn estimates_are_above_all_bounds((pools, limits, durations, chained, at_once, canary) in by_chance()) {
        let timing = by_chance_timed(&pools, &limits, &durations, chained, at_once, canary);
        prop_assert!(timing.estimate.p50 <= timing.estimate.p90);
        prop_assert!(timing.least <= timing.estimate.p50, "{timing:?}");
        prop_assert_eq!(timing.until_done, Some(timing.estimate.p50), "nothing but work passes");
        for hop in &timing.hops {
            prop_assert!(hop.estimate.p50 <= hop.estimate.p90);
            prop_assert!(hop.least <= hop.estimate.p50);
            let mut own = timing.bounds.iter().filter(|bound| bound.hop == hop.hop);
            prop_assert!(own.all(|bound| bound.least <= hop.least), "{timing:?}");
        }
        prop_assert!(timing.bounds.is_sorted_by(|a, b| a.least >= b.least));
    }

    /// More nodes of a group or more pods of a budget at once never make the least or the likely time longer.
    #[test]
    fn more_at_once_is_never_slower(
        (pools, limits, durations, chained, at_once, canary) in by_chance(), wider in 0..3_usize,
    ) {
        let timing = by_chance_timed(&pools, &limits, &durations, chained, at_once, canary);
        let mut more = limits.clone();
        more[wider] += 1;
        let more = by_chance_timed(&pools, &more, &durations, chained, at_once + 1, canary);
        prop_assert!(more.least <= timing.least && more.estimate.p50 <= timing.estimate.p50);
    }

    /// What a budget and the executor of its last node set is what the best order of its evictions takes.
    #[test]
    fn a_budget_alone_sets_what_an_ideal_upgrade_takes(
        pods in prop::collection::vec(0..9_usize, 1..9), at_once in 1..5_usize,
        slot in 1..200_i64, executor in 0..600_i64,
    ) {
        let mut parts = Parts::default();
        for (number, count) in pods.iter().enumerate() {
            let own = of_pool("a", number);
            parts.pods.extend((0..*count).map(|at| pod("cart", pods_number("a", number, at), &own.name)));
            parts.nodes.push(own.into());
        }
        let total = parts.pods.len();
        guarded(&mut parts, "cart", total, at_once, &[]);
        let durations =
            Durations { node: took(executor, executor), replacement: seconds(slot), ..Durations::default() };
        let only_nodes = plan(vec![hop("v1.37.1", Vec::new(), Pass::All)]);
        let timing = timed(&only_nodes, &upgrade(vec![group("a", 99)]), parts, &durations);
        prop_assert_eq!(timing.least, seconds(played(&pods, at_once, slot, executor)));
    }

    /// The P90 of a sum is above its P50, and not above the sum of the P90s.
    #[test]
    fn the_p90_of_a_sum(all in prop::collection::vec((0..9_000_i64, 0..9_000_i64), 1..20)) {
        let lengths = || all.iter().map(|(p50, more)| Length::of(took(*p50, p50 + more)));
        let sum = lengths().fold(Length::default(), Length::then).estimate();
        let p90s: i64 = all.iter().map(|(p50, more)| p50 + more).sum();
        prop_assert_eq!(sum.p50, seconds(all.iter().map(|(p50, _)| p50).sum()));
        prop_assert!(sum.p50 <= sum.p90 && sum.p90 <= seconds(p90s) + SignedDuration::from_millis(1));
        let beside = lengths().fold(Length::default(), Length::beside).estimate();
        prop_assert!(beside.p50 <= sum.p50 && beside.p90 <= sum.p90 + SignedDuration::from_millis(1));
        let longest = all.iter().map(|(p50, _)| *p50).max().unwrap_or(0);
        prop_assert_eq!(beside.p50, seconds(longest));
    }
}
