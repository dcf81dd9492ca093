//! Nodes that wait until what left the last one is ready elsewhere.

use std::sync::Arc;

use super::super::*;
use super::cluster::Toy;
use crate::upgrade::Zones;

/// Two pods of one workload, on `n-1` and `n-2`, that no budget protects, and an empty node. `n-1` was just emptied, and
/// what left it starts elsewhere, and is not ready.
fn starting() -> Toy {
    let mut toy = Toy::new(3, 1);
    toy.deploy("web", 2, 0);
    toy.run_until(300, |toy| toy.evictions == 1);
    toy.stays_unready = true;
    toy.run_until(60, |toy| toy.kubelets("Upgraded") == 2);
    toy
}

#[test]
fn the_next_node_waits_until_what_left_the_last_one_is_ready() {
    let mut toy = starting();
    for _ in 0..60 {
        toy.tick();
    }
    assert_eq!((toy.evictions, toy.kubelets_in_flight()), (1, 0), "the other pod serves alone");
    let status = toy.status();
    let line = status.lines().join("\n");
    assert!(line.starts_with("n-2 waits until pod shop/web-0+"), "{line}");
    assert!(line.contains("which took the place of what left, is ready, at the latest until "), "{line}");
    assert_eq!(status.phase, UpgradePhase::Working(crate::plan::Stage::Kubelets));
    assert!(toy.decided().again_at.is_some(), "it is looked at again even if nothing changes");
    toy.stays_unready = false;
    toy.run_until(60, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn a_pod_that_never_becomes_ready_holds_nobody_up() {
    let mut toy = starting();
    let begun = toy.seconds;
    toy.run_until(900, |toy| toy.kubelets_in_flight() == 1);
    assert!((540..=600).contains(&(toy.seconds - begun)), "{}", toy.seconds - begun);
}

/// Two pods of one workload run in zone `a`, and a node of zone `b` has nothing of it.
#[test]
fn the_next_zone_waits_while_a_node_of_this_one_does() {
    let mut toy = Toy::new(3, 1);
    toy.upgrade.groups[0].zones = Zones::OneAtATime;
    for (node, zone) in [("n-1", "a"), ("n-2", "a"), ("n-3", "b")] {
        let labels = [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())];
        toy.cluster.change_node(node, |node| node.labels = Arc::new(labels.into()));
    }
    toy.deploy("web", 2, 0);
    toy.run_until(300, |toy| toy.evictions == 1);
    toy.stays_unready = true;
    toy.run_until(60, |toy| toy.kubelets("Upgraded") == 1);
    for _ in 0..60 {
        toy.tick();
    }
    let begun: Vec<&str> = toy.log.iter().filter_map(|line| line.strip_prefix("Cordon ")).collect();
    assert_eq!(begun, ["n-1"], "zone a is half done");
    toy.stays_unready = false;
    toy.run_until(200, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn a_pod_that_does_not_serve_is_nothing_to_lose() {
    let mut toy = starting();
    let on_next = toy.pods_of("web").into_iter().find(|pod| &*pod.node == "n-2").map(|pod| pod.uid.clone());
    toy.cluster.change_pod(&on_next.unwrap(), |pod| pod.ready = false);
    let begun = toy.seconds;
    toy.run_until(200, |toy| toy.kubelets_in_flight() == 1);
    assert!(toy.seconds - begun <= 10, "{}", toy.seconds - begun);
}

#[test]
fn what_starts_for_other_reasons_is_not_waited_for() {
    // Nothing of ours was emptied yet.
    let mut toy = Toy::new(2, 1);
    toy.deploy("web", 2, 0);
    toy.stays_unready = true;
    let web = toy.pods_of("web").into_iter().map(|pod| pod.uid.clone()).collect::<Vec<_>>();
    let now = toy.world().now;
    for uid in web {
        toy.cluster.change_pod(&uid, |pod| {
            let traits = crate::cluster::Traits { starting_since: Some(now), ..Default::default() };
            (pod.ready, pod.special) = (false, Some(traits.into()));
        });
    }
    toy.run_until(100, |toy| toy.kubelets_in_flight() == 1);
}

#[test]
fn many_nodes_that_wait_are_not_all_listed() {
    // `n-1` was emptied alone; then all at once may go, and each of them has a pod of the same workload.
    let mut toy = Toy::new(41, 1);
    toy.deploy("web", 40, 0);
    // The last by name is empty.
    toy.cluster.change_node("n-9", |node| node.held = true);
    toy.run_until(300, |toy| toy.evictions == 1);
    toy.stays_unready = true;
    toy.run_until(60, |toy| toy.kubelets("Upgraded") == 1);
    toy.upgrade.groups[0].max_unavailable = crate::upgrade::Amount::Count(41);
    toy.allow(41);
    for _ in 0..5 {
        toy.tick();
    }
    assert_eq!(toy.kubelets_in_flight(), 0);
    let waits = toy.status().lines();
    assert!((1..=5).contains(&waits.len()), "{waits:#?}");
    assert!(toy.decided().again_at.is_some());
}
