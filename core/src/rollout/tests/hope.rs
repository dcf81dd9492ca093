//! What is waited for in hope: each hope has an end, after which a person is called.

use std::sync::Arc;

use super::cluster::Toy;
use super::scheduler_upgraded;
use crate::cluster::{Component, Node, Phase, Pod, Traits};
use crate::fixture::{at, node, pod};
use crate::plan::Stage;
use crate::rollout::{OutOf, UpgradePhase};

/// Nodes 1 and 2 hold a replica each that can run there only; the third one was on node 3, which failed.
fn one_failed_of_three() -> Toy {
    let mut toy = Toy::new(3, 2);
    toy.deploy("db", 2, 2);
    for number in 0..2 {
        let node: Arc<str> = format!("n-{}", number + 1).into();
        let traits = Traits { hosts: vec![node.clone()], ..Traits::default() };
        toy.cluster.set_pod(Pod { special: Some(Arc::new(traits)), ..pod("db", number, &node) });
    }
    (toy.absent, toy.broken) = (1, Some("n-3".to_owned()));
    toy.settle_budgets();
    toy
}

#[test]
fn a_budget_that_a_failed_node_keeps_shut_is_hoped_for_no_longer_than_an_hour() {
    let mut toy = one_failed_of_three();
    toy.cluster.change_budget("db", |budget| budget.closed_since = Some(at(0)));
    toy.run_until(900, |toy| toy.kubelets("Failed") == 1);
    (0..60).for_each(|_| toy.tick());
    assert_eq!((toy.phase(), toy.kubelets("Parked")), (UpgradePhase::Working(Stage::Kubelets), 0));
    assert!(toy.decided().again_at.is_some(), "somebody looks when the hour is over");
    toy.pass(3600);
    let status = toy.status();
    assert_eq!((status.phase, status.out(OutOf::Parked)), (UpgradePhase::NodesFailed, 2), "{status:?}");
    // The failed node comes back, and its replica with it.
    let now = toy.world().now;
    toy.cluster.change_node("n-3", |node| {
        (node.kubelet, node.heartbeat) = (crate::version::Observed::from_report("v1.37.1"), Some(now));
    });
    toy.cluster.change_budget("db", |budget| budget.closed_since = None);
    toy.cluster.set_pod(pod("db", 2, "n-3"));
    (toy.absent, toy.broken) = (0, None);
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_node_that_nothing_of_ours_keeps_from_its_budget_is_tried() {
    let mut toy = one_failed_of_three();
    toy.run_until(900, |toy| toy.kubelets("Parked") == 2);
    (0..5).for_each(|_| toy.tick());
    assert_eq!((toy.phase(), toy.kubelets("Failed")), (UpgradePhase::Working(Stage::Kubelets), 1));
    toy.pass(3700);
    assert_eq!(toy.phase(), UpgradePhase::NodesFailed);
}

/// The kubelet of `name` lives, and has not been Ready `since` then.
fn is_not_ready(toy: &mut Toy, name: &str, since: jiff::Timestamp) {
    let now = Some(toy.world().now);
    toy.cluster.change_node(name, |node| {
        (node.ready, node.heartbeat, node.not_ready_since) = (false, now, Some(since));
    });
}

#[test]
fn a_node_that_is_not_ready_for_long_calls_for_a_person_although_its_kubelet_lives() {
    let mut toy = Toy::new(3, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1 && toy.kubelets_in_flight() == 0);
    let done = |node: &&Arc<Node>| node.kubelet.to_string() == "v1.37.1";
    let name = toy.cluster.nodes().iter().find(done).unwrap().name.clone();
    let since = toy.world().now;
    is_not_ready(&mut toy, &name, since);
    (0..60).for_each(|_| toy.tick());
    assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Kubelets));
    assert!(toy.decided().again_at.is_some(), "somebody looks when its time is over");
    toy.pass(15 * 60);
    is_not_ready(&mut toy, &name, since);
    let line = format!(
        "group all: 1 of 3 nodes are unavailable, 1 may be: {name} (not ready); mend or uncordon them, or raise maxUnavailable"
    );
    let status = toy.status();
    assert_eq!((status.phase, status.message), (UpgradePhase::NodesHeld, line));
}

#[test]
fn a_node_that_is_not_ready_for_long_is_upgraded_first_while_its_kubelet_lives() {
    let mut toy = Toy::new(3, 1);
    is_not_ready(&mut toy, "n-2", at(-200_000));
    toy.run_until(600, |toy| toy.kubelets("Claimed") == 1);
    assert!(toy.claims.iter().any(|claim| claim.is_of_kubelet() && *claim.subject.node == *"n-2"));
}

/// Of two control-plane nodes one waits, and the other one, which a person holds, has this static pod that is not ready.
fn waits_for(phase: Phase) -> Toy {
    let mut toy = Toy::new(0, 2);
    for name in ["cp-1", "cp-2"] {
        toy.cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
    }
    toy.cluster.change_node("cp-2", |node| node.held = true);
    toy.run_until(300, scheduler_upgraded);
    toy.stays_unready = true;
    let pod = pod("kube-vip", 1, "cp-2");
    toy.cluster.set_pod(Pod { mirror: true, ready: false, owner: None, phase, ..pod });
    toy
}

#[test]
fn a_static_pod_that_never_gets_ready_calls_for_a_person() {
    let mut toy = waits_for(Phase::Running);
    (0..60).for_each(|_| toy.tick());
    assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Kubelets));
    assert!(toy.decided().again_at.is_some(), "somebody looks when its time is over");
    toy.pass(15 * 60);
    let status = toy.status();
    let line = "cp-1 waits until static pod shop/kube-vip-1 is ready: mend it, or take it off its node";
    assert_eq!((status.phase, status.message.as_str()), (UpgradePhase::NodesHeld, line));
    toy.is_told_by_the_next_leader();
}

#[test]
fn a_static_pod_that_has_finished_need_not_be_ready() {
    let mut toy = waits_for(Phase::Finished);
    toy.cluster.change_node("cp-2", |node| node.held = false);
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

/// A part of `cp-2` is lost when the step of `cp-1` is claimed, and stays so for longer than it is hoped for. Returns what is
/// said then.
fn lost(component: Component) -> String {
    let mut toy = Toy::kubeadm(3, 1);
    toy.run_until(60, |toy| toy.state_of("cp-1") == "Claimed");
    let lost =
        |of: &crate::cluster::Instance| of.component == component && of.node.as_deref() == Some("cp-2");
    let kept = toy.cluster.instances().iter().filter(|of| !lost(of)).cloned().collect();
    toy.cluster.set_instances(kept);
    (0..60).for_each(|_| toy.tick());
    assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Apiservers));
    toy.pass(15 * 60);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::ControlPlaneHeld);
    assert_eq!(toy.state_of("cp-1"), "Claimed");
    toy.is_told_by_the_next_leader();
    status.message
}

/// It is asked afresh before its own step begins, and does not answer.
#[test]
fn a_server_that_hangs_before_its_step_begins_calls_for_a_person() {
    let mut toy = Toy::new(1, 1);
    toy.run_until(60, |toy| toy.claims.len() == 1);
    let asked = at(-60);
    for _ in 0..60 {
        toy.cluster.change_instances(|of| {
            if of.component == Component::KubeApiserver && *of.name == *"cp-1" {
                (of.ready, of.probed) = (false, Some(asked));
            }
        });
        toy.tick();
    }
    let state = |toy: &Toy| toy.claims[0].state.name();
    assert_eq!((state(&toy), toy.phase()), ("Claimed", UpgradePhase::Working(Stage::Apiservers)));
    toy.pass(15 * 60);
    let status = toy.status();
    let line =
        "kube-apiserver on cp-1 has been away for 15 minutes: bring it back, or another one in its place";
    assert_eq!((status.phase, status.message.as_str()), (UpgradePhase::ControlPlaneHeld, line));
}

#[test]
fn a_part_that_is_lost_before_a_claimed_step_begins_calls_for_a_person() {
    for (component, line) in [
        (
            Component::KubeApiserver,
            "kube-apiserver on cp-2 has been away for 15 minutes: bring it back, or delete its Node",
        ),
        (
            Component::KubeScheduler,
            "kube-scheduler on cp-2 has been away for 15 minutes: bring it back, or delete this ClusterUpgrade and apply it \
             anew if it is to stay away",
        ),
    ] {
        assert_eq!(lost(component), line);
    }
}
