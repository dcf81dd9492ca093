//! Static pods, which have to be back before their node is given back or the next one is taken up.

use super::super::*;
use super::cluster::Toy;
use crate::cluster::{Component, Node, Pod};
use crate::fixture::{node, pod};
use crate::plan::Stage;
use crate::version::Observed;

/// The copy of a static pod of `node` in the API.
fn mirror(app: &str, node: &str, ready: bool) -> Pod {
    let name = format!("{app}-{node}");
    Pod {
        mirror: true,
        owner: None,
        ready,
        uid: name.as_str().into(),
        name: name.into(),
        ..pod(app, 1, node)
    }
}

#[test]
fn the_next_control_plane_waits_until_every_static_pod_is_back() {
    let mut toy = Toy::kubeadm(2, 1);
    let etcd = |ready| mirror("etcd", "cp-1", ready);
    toy.cluster.set_pod(etcd(true));
    toy.run_until(60, |toy| !toy.jobs.made.is_empty());
    let waits = |toy: &mut Toy| {
        for _ in 0..25 {
            toy.tick();
        }
        assert_eq!(toy.claims.len(), 1, "{:?}", toy.log);
        let line = "static pod shop/etcd-cp-1 is not back";
        assert!(toy.status().lines().iter().any(|said| said.contains(line)), "{:?}", toy.status().lines());
    };
    toy.cluster.remove_pod("shop", "etcd-cp-1");
    waits(&mut toy);
    toy.stays_unready = true;
    toy.cluster.set_pod(etcd(false));
    waits(&mut toy);
    toy.stays_unready = false;
    toy.cluster.set_pod(etcd(true));
    toy.run_until(60, |toy| toy.claims.len() == 2);
}

#[test]
fn a_kubelet_is_upgraded_when_every_static_pod_is_back_however_long_that_takes() {
    let mut toy = Toy::new(2, 1);
    toy.cluster.set_node(Node { control_plane: true, ..node("cp-1", "v1.36.4") });
    toy.cluster.set_pod(mirror("kube-scheduler", "cp-1", true));
    let moves = |toy: &Toy, state: &str| {
        toy.claims.iter().any(|c| *c.name == *"up.kubelet.cp-1" && c.state.name() == state)
    };
    let unready = |toy: &mut Toy, unready: bool| {
        toy.cluster.change_instances(|i| i.ready = !(unready && i.component == Component::KubeScheduler));
    };
    toy.run_until(600, |toy| moves(toy, "Upgrading"));
    unready(&mut toy, true);
    assert_eq!(
        toy.phase(),
        UpgradePhase::Working(Stage::Kubelets),
        "its kubelet has just begun to start again"
    );
    unready(&mut toy, false);
    // Most go when the node is Ready at the target already.
    toy.run_until(600, |toy| {
        moves(toy, "Upgrading") && toy.cluster.node("cp-1").unwrap().kubelet.to_string() == "v1.37.1"
    });
    toy.tick();
    let whole = toy.cluster.instances().to_vec();
    toy.cluster.remove_pod("shop", "kube-scheduler-cp-1");
    toy.cluster
        .set_instances(whole.iter().filter(|of| of.component != Component::KubeScheduler).cloned().collect());
    // A leader that dies meanwhile leaves the same claim to the next one.
    for _ in 0..50 {
        toy.tick();
        assert!(!moves(&toy, "Upgraded"), "{:?}", toy.log);
        assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Kubelets), "STAGE does not go back");
    }
    let status = toy.status();
    let line = "static pod shop/kube-scheduler-cp-1 is not back";
    assert!(status.lines().iter().any(|said| said.contains(line)), "{:?}", status.lines());
    assert!(toy.cluster.node("cp-1").unwrap().unschedulable, "it is not given back");
    toy.cluster.set_pod(mirror("kube-scheduler", "cp-1", true));
    toy.cluster.set_instances(whole);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn a_static_pod_that_is_away_with_its_kubelet_takes_no_stage_back() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgrading") == 1);
    let whole = toy.cluster.instances().to_vec();
    let without = whole.iter().filter(|of| of.component != Component::KubeScheduler).cloned().collect();
    toy.cluster.set_instances(without);
    // Its lease is held on.
    let line = "kube-scheduler is led by cp-1_x, which cannot be seen from here".to_owned();
    toy.hidden.push((Component::KubeScheduler, line));
    toy.tick();
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::Working(Stage::Kubelets));
    let asks = |line: &&String| line.contains("controlPlane.hidden");
    assert_eq!(status.lines().iter().find(asks), None, "nobody has to answer for what was seen a moment ago");
    for _ in 0..20 {
        toy.tick();
    }
    assert_eq!(toy.kubelets("Upgraded"), 1, "no other node is taken up meanwhile");
    assert_eq!(toy.kubelets_in_flight(), 0, "{:?}", toy.log);
    toy.hidden.clear();
    toy.cluster.set_instances(whole);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

/// Its kubelet may have come when the executor's time was over, and the member of etcd not at all.
#[test]
fn a_failed_control_plane_node_is_not_given_back_before_its_static_pods_are_back() {
    let mut toy = Toy::new(1, 1);
    toy.cluster.set_node(Node { control_plane: true, ..node("cp-1", "v1.36.4") });
    toy.cluster.set_pod(mirror("etcd", "cp-1", true));
    let of_cp = |toy: &Toy, state: &str| {
        toy.claims.iter().any(|c| *c.name == *"up.kubelet.cp-1" && c.state.name() == state)
    };
    toy.run_until(900, |toy| of_cp(toy, "Draining"));
    toy.broken = Some("cp-1".to_owned());
    toy.run_until(900, |toy| of_cp(toy, "Failed"));
    toy.cluster.remove_pod("shop", "etcd-cp-1");
    toy.cluster.change_node("cp-1", |node| node.kubelet = Observed::from_report("v1.37.1"));
    (0..5).for_each(|_| toy.tick());
    assert!(of_cp(&toy, "Failed") && toy.cluster.node("cp-1").unwrap().unschedulable, "{:?}", toy.log);
    let line = "cp-1: observed at v1.37.1 after all, but static pod shop/etcd-cp-1 is not back";
    assert!(toy.status().lines().iter().any(|said| said == line), "{:?}", toy.status().lines());
    toy.cluster.set_pod(mirror("etcd", "cp-1", true));
    toy.run_until(10, |toy| of_cp(toy, "Upgraded"));
}
