//! Nodes whose machines have long been silent: they count, they are named, and nobody waits for what they cannot do.

use super::cluster::Toy;
use crate::fixture::at;
use crate::rollout::{OutOf, UpgradePhase};

/// A toy of ten nodes, the first four of which have been silent for days; so many may be unavailable.
fn four_of_ten(limit: usize) -> Toy {
    let mut toy = Toy::new(10, limit);
    for number in 1..=4 {
        let silent = Some(at(-200_000));
        toy.cluster
            .change_node(&format!("n-{number}"), |node| (node.ready, node.heartbeat) = (false, silent));
    }
    toy
}

const REASON: &str = "its machine has long been silent: bring it back, or delete its Node";

#[test]
fn a_machine_that_is_gone_is_held_and_not_taken_up() {
    let mut toy = four_of_ten(5);
    toy.run_to_the_end(900);
    let status = toy.status();
    assert_eq!((status.phase, status.out(OutOf::Held)), (UpgradePhase::NodesHeld, 4), "{status:?}");
    assert_eq!(status.message, format!("n-1: {REASON} (and 3 more nodes)"));
    assert_eq!(toy.kubelets("Upgraded"), 6, "the others go on: {:?}", toy.log);
    assert_eq!(toy.claims.iter().filter(|claim| claim.is_of_kubelet()).count(), 6, "{:?}", toy.log);
    // One that comes back goes on.
    let now = toy.world().now;
    toy.cluster.change_node("n-1", |node| (node.ready, node.heartbeat) = (true, Some(now)));
    toy.run_to_the_end(900);
    assert_eq!((toy.kubelets("Upgraded"), toy.status().out(OutOf::Held)), (7, 3));
}

#[test]
fn machines_that_are_gone_count_against_the_limit() {
    let mut toy = four_of_ten(1);
    toy.upgrade.failures.max_failed = Some(crate::upgrade::Amount::Count(3));
    toy.run_to_the_end(900);
    let status = toy.status();
    let line = "group all: 4 of 10 nodes are unavailable, 1 may be: n-1 (not ready), n-2 (not ready), n-3 (not ready) \
         and 1 more; mend or uncordon them, or raise maxUnavailable";
    assert_eq!((status.phase, status.message.as_str()), (UpgradePhase::NodesHeld, line));
    assert_eq!((toy.kubelets_in_flight(), toy.kubelets("Failed")), (0, 0), "{:?}", toy.log);
}
