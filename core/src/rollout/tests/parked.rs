//! Parked nodes that somebody takes out of the rollout, or holds.

use std::sync::Arc;

use super::cluster::Toy;
use crate::cluster::Node;
use crate::drain::OnTimeout;
use crate::fixture::at;
use crate::rollout::{OutOf, UpgradePhase, WaitReason};
use crate::upgrade::Amount;

/// Two nodes of a pool: `n-1` is parked, because its pod waits for a replica that does not come; `n-2` goes as far as it may.
fn parked(change: impl Fn(&mut Toy)) -> Toy {
    let mut toy = Toy::new(2, 1);
    let pool = [("pool".to_owned(), "web".to_owned())];
    for name in ["n-1", "n-2"] {
        toy.cluster.change_node(name, |node| node.labels = Arc::new(pool.clone().into()));
    }
    toy.upgrade.groups[0].selector.match_labels = pool.into();
    toy.absent = 1;
    toy.deploy("short", 1, 1);
    toy.cluster.set_pod(crate::fixture::pod("free", 2, "n-2"));
    change(&mut toy);
    toy.run_until(400, |toy| toy.kubelets("Parked") == 1);
    toy.run_to_the_end(400);
    assert_eq!(toy.status().out(OutOf::Parked), 1, "{:?}", toy.log);
    toy
}

#[test]
fn a_parked_node_that_somebody_else_holds_back_is_told_as_held() {
    type Change = (fn(&mut Node), &'static str);
    let changes: [Change; 3] = [
        (|node| node.unschedulable = true, "cordoned by someone else; uncordon it to let it take part"),
        (|node| node.held = true, "held by annotation evenkeel.dev/hold; remove it when the node may move"),
        (
            |node| (node.ready, node.heartbeat) = (false, Some(at(-200_000))),
            "its machine has long been silent: bring it back, or delete its Node",
        ),
    ];
    for (change, why) in changes {
        let mut toy = parked(|_| {});
        // What blocked its drain is gone, and it goes on all the same only when that person lets it.
        toy.absent = 0;
        toy.deploy("short", 0, 0);
        let before = toy.cluster.node("n-1").unwrap().clone();
        toy.cluster.change_node("n-1", change);
        toy.run_to_the_end(400);
        let status = toy.status();
        let line = format!("n-1: {why}");
        assert_eq!((status.phase, &status.message), (UpgradePhase::NodesHeld, &line), "{status:?}");
        assert_eq!((status.out(OutOf::Held), status.out(OutOf::Parked)), (1, 0), "{:?}", status.parked);
        assert_eq!((status.waits[0].reason, &status.waits[0].line), (WaitReason::NODES_HELD, &line));
        assert_eq!(toy.kubelets("Parked"), 1, "{:?}", toy.log);
        toy.cluster.set_node(before);
        toy.run_to_the_end(900);
        assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    }
}

/// Else it would be counted and named for as long as the upgrade is there, and could never be tried again.
#[test]
fn a_parked_node_that_is_taken_out_of_the_groups_is_let_go() {
    let limit: fn(&mut Toy) = |toy| toy.upgrade.failures.max_parked = Some(Amount::Count(1));
    let halt: fn(&mut Toy) = |toy| toy.upgrade.drain.on_timeout = OnTimeout::Halt;
    for (change, phase) in [
        ((|_| {}) as fn(&mut Toy), UpgradePhase::NodesParked),
        (limit, UpgradePhase::FailurePolicy),
        (halt, UpgradePhase::NodesHalted),
    ] {
        let mut toy = parked(change);
        toy.pass(3700);
        assert_eq!(toy.phase(), phase);
        toy.cluster.change_node("n-1", |node| node.labels = Arc::default());
        toy.run_to_the_end(400);
        let status = toy.status();
        assert_eq!(status.phase, UpgradePhase::Completed, "{:?}", toy.log);
        assert_eq!((toy.kubelets("Parked"), status.parked), (0, Vec::new()), "{:?}", toy.log);
    }
}

/// The write was lost that was to let it go when the upgrade was complete.
#[test]
fn a_completed_upgrade_lets_a_parked_node_go() {
    let mut toy = parked(|_| {});
    toy.cluster.change_node("n-1", |node| node.labels = Arc::default());
    toy.progress.completed = Some(at(toy.seconds));
    toy.tick();
    assert_eq!((toy.kubelets("Parked"), toy.status().parked), (0, Vec::new()), "{:?}", toy.log);
}
