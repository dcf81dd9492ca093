//! Nodes of the control plane go one at a time, each while every other one is whole, and nothing is taken away before
//! the static pods of the last one are back.

use jiff::SignedDuration;

use super::cluster::Toy;
use super::scheduler_upgraded;
use crate::cluster::{Component, Node, Pod};
use crate::fixture::{at, instance, node, pod};
use crate::rollout::{Action, Claim, ClaimState, UpgradePhase, WaitReason, Waiting};
use crate::version::Observed;

#[test]
fn control_plane_nodes_go_one_at_a_time_whatever_their_group_allows() {
    let mut toy = Toy::new(0, 3);
    for name in ["cp-1", "cp-2", "cp-3", "cp-4"] {
        toy.cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
    }
    let mut seen = 0;
    for _ in 0..900 {
        toy.tick();
        seen = seen.max(toy.kubelets_in_flight());
    }
    assert_eq!((toy.phase(), seen), (UpgradePhase::Completed, 1), "{:?}", toy.log);
}

/// Two control-plane nodes whose components move one by one, and are at the target already.
fn moved_by_others() -> Toy {
    let mut toy = Toy::new(0, 2);
    for name in ["cp-1", "cp-2"] {
        toy.cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
    }
    toy.cluster.change_instances(|instance| instance.version = Observed::from_report("v1.37.1"));
    toy
}

/// Somebody takes the kube-apiserver of `name` back.
fn takes_back(toy: &mut Toy, name: &str) {
    toy.cluster.change_instances(|instance| {
        if (instance.component, &*instance.name) == (Component::KubeApiserver, name) {
            instance.version = Observed::from_report("v1.36.4");
        }
    });
}

fn step_begins(toy: &Toy) -> bool {
    toy.claims.iter().any(|claim| !claim.is_of_kubelet() && claim.state.name() == "Upgrading")
}

#[test]
fn no_component_is_taken_away_while_the_kubelet_of_a_control_plane_node_is_replaced() {
    for back in ["cp-1", "cp-2"] {
        let mut toy = moved_by_others();
        toy.broken = Some("cp-1".to_owned());
        toy.run_until(60, |toy| toy.kubelets("Upgrading") == 1);
        takes_back(&mut toy, back);
        for _ in 0..20 {
            toy.tick();
            assert!(!step_begins(&toy), "{:?}", toy.log);
        }
        let line = format!("{back}: waits until NodeUpgrade up.kubelet.cp-1 has ended");
        let waits = toy.status().waits;
        let told = |wait: &Waiting| wait.line == line && wait.reason == WaitReason::NodesInOrder;
        assert!(waits.iter().any(told), "{waits:?}");
        let now = toy.world().now;
        toy.cluster.change_node("cp-1", |node| {
            (node.kubelet, node.heartbeat) = (Observed::from_report("v1.37.1"), Some(now));
        });
        toy.run_until(60, |toy| toy.kubelets("Upgraded") == 1);
        toy.broken = None;
        toy.run_to_the_end(600);
        assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    }
}

/// The drain waits for the control plane, so that the step must not wait for the drain. No executor begins on the node before
/// the step is over.
#[test]
fn a_component_does_not_wait_for_a_control_plane_node_that_drains() {
    let mut toy = moved_by_others();
    toy.upgrade.drain.timeout = SignedDuration::from_hours(1);
    toy.lingers = 10_000;
    toy.deploy("web", 2, 1);
    toy.run_until(60, |toy| toy.kubelets("Draining") == 1);
    takes_back(&mut toy, "cp-1");
    toy.run_until(30, step_begins);
    toy.desired.clear();
    toy.cluster.retain_pods(|_| false);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn nodes_that_nobody_labelled_go_one_at_a_time_where_kube_apiservers_are_seen_on_them() {
    let mut toy = Toy::new(1, 4);
    toy.cluster.add_instance(instance(Component::KubeApiserver, "cp-3", "v1.36.4"));
    for name in ["cp-1", "cp-2", "cp-3"] {
        toy.cluster.set_node(node(name, "v1.36.4"));
    }
    let mut most = 0;
    for _ in 0..1200 {
        toy.tick();
        let flies = |claim: &&Claim| claim.is_of_kubelet() && claim.state.in_flight();
        most = most.max(
            toy.claims.iter().filter(flies).filter(|claim| claim.subject.node.starts_with("cp-")).count(),
        );
    }
    assert_eq!((toy.phase(), most), (UpgradePhase::Completed, 1), "{:?}", toy.log);
}

#[test]
fn an_empty_control_plane_node_waits_until_every_other_one_is_whole() {
    let mut toy = Toy::new(0, 2);
    toy.upgrade.drain.timeout = SignedDuration::from_secs(60);
    for name in ["cp-1", "cp-2"] {
        toy.cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
    }
    toy.run_until(300, |toy| toy.kubelets("Draining") == 1);
    toy.stays_unready = true;
    toy.cluster.set_pod(Pod { mirror: true, ready: false, owner: None, ..pod("etcd", 1, "cp-2") });
    for _ in 0..30 {
        toy.tick();
    }
    assert_eq!(toy.kubelets("Upgrading"), 0, "one member of etcd less is all that three of them bear");
    let line = "cp-1: drained; waits until static pod shop/etcd-1 is ready";
    assert_eq!(toy.status().lines()[0], line);
    // It is given back when its time is over, and taken up anew when that is back.
    toy.run_until(60, |toy| !toy.cluster.node("cp-1").unwrap().unschedulable);
    toy.stays_unready = false;
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn control_plane_nodes_that_were_parked_go_one_at_a_time_too() {
    let mut toy = Toy::new(0, 3);
    toy.upgrade.drain.timeout = SignedDuration::from_secs(20);
    for name in ["cp-1", "cp-2"] {
        toy.cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
    }
    toy.cluster.set_node(Node { held: true, ..node("n-9", "v1.36.4") });
    toy.deploy("web", 2, 0);
    for (number, name) in [(0, "cp-1"), (1, "cp-2")] {
        toy.cluster.set_pod(pod("web", number, name));
    }
    // As long as one pod is not ready elsewhere, the budget lets none go: not for good, so that each node is tried.
    toy.absent = 1;
    let shuts = |toy: &mut Toy, shut: i32| {
        toy.cluster.change_budget("web", |budget| budget.desired_healthy = shut);
    };
    shuts(&mut toy, 2);
    toy.run_until(600, |toy| toy.kubelets("Parked") == 2);
    // Then both may be tried again at once.
    (0..30).for_each(|_| toy.tick());
    assert_eq!(toy.kubelets("Parked"), 2, "{:?}", toy.log);
    shuts(&mut toy, 0);
    let mut most = 0;
    for _ in 0..600 {
        toy.tick();
        most = most.max(toy.kubelets_in_flight());
    }
    assert_eq!(most, 1, "{:?}", toy.log);
}

#[test]
fn a_control_plane_node_waits_until_every_other_one_is_there_with_what_runs_on_it() {
    let opens = |change: fn(&mut Toy)| {
        let mut toy = Toy::new(0, 3);
        for name in ["cp-1", "cp-2"] {
            toy.cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
        }
        // Nobody takes the second one up, whatever it is like.
        toy.cluster.change_node("cp-2", |node| node.held = true);
        toy.run_until(300, scheduler_upgraded);
        change(&mut toy);
        (0..60).any(|_| {
            toy.tick();
            toy.kubelets_in_flight() > 0
        })
    };
    assert!(opens(|_| ()), "it goes where nothing is wrong");
    let silent = |toy: &mut Toy| _ = toy.cluster.change_node("cp-2", |node| node.ready = false);
    assert!(!opens(silent), "its machine is silent");
    let cordoned = |toy: &mut Toy| _ = toy.cluster.change_node("cp-2", |node| node.unschedulable = true);
    assert!(!opens(cordoned), "somebody works on it");
    let server = |toy: &mut Toy| {
        toy.cluster.change_instances(|server| {
            server.ready &= (server.component, &*server.name) != (Component::KubeApiserver, "cp-2");
        });
    };
    assert!(!opens(server), "its kube-apiserver is not ready");
    // One member of etcd less is all that three of them bear.
    let etcd = |toy: &mut Toy| {
        toy.stays_unready = true;
        toy.cluster.set_pod(Pod { mirror: true, ready: false, owner: None, ..pod("etcd", 1, "cp-2") });
    };
    assert!(!opens(etcd), "its static pod is not ready");
}

#[test]
fn nothing_is_taken_away_while_the_static_pods_of_a_control_plane_node_come_back() {
    let mut toy = Toy::new(12, 2);
    for name in ["cp-1", "cp-2"] {
        toy.cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
    }
    // No node is spare, so that those of the control plane are the first by name. What leaves the first worker takes its
    // time, one pod after the other.
    toy.deploy("web", 14, 0);
    toy.deploy("slow", 6, 5);
    for number in 0..6 {
        toy.cluster.set_pod(pod("slow", number, "n-1"));
    }
    toy.lingers = 5;
    toy.upgrade.drain.timeout = SignedDuration::from_secs(200);
    let observed = |claim: &&Claim| {
        claim.is_of_kubelet() && matches!(claim.state, ClaimState::Upgrading { observed: Some(_), .. })
    };
    toy.run_until(300, |toy| toy.claims.iter().any(|c| observed(&c) && c.subject.node.starts_with("cp-")));
    let claims = |toy: &Toy| toy.log.iter().filter(|line| line.starts_with("Claim")).count();
    let (begun, evicted) = (claims(&toy), toy.evictions);
    assert_eq!(toy.kubelets("Draining"), 1, "{:?}", toy.log);
    for _ in 0..28 {
        toy.tick();
    }
    assert_eq!((claims(&toy), toy.evictions), (begun, evicted), "{:?}", toy.log);
    assert!(toy.decided().again_at.is_some());
    toy.run_until(60, |toy| claims(toy) > begun && toy.evictions > evicted);
}

#[test]
fn nodes_wait_in_one_line_for_static_pods_that_come_back() {
    let mut toy = Toy::new(6, 3);
    for number in 1..=6 {
        let name = format!("n-{number}");
        toy.cluster.set_pod(pod("web", number, &name));
    }
    toy.cluster.set_node(Node { control_plane: true, ..node("cp-1", "v1.36.4") });
    toy.upgrade.groups[0].max_unavailable = crate::upgrade::Amount::Count(1);
    let line = "cp-1: observed at v1.37.1; gives its static pods time to come back";
    toy.run_until(300, |toy| toy.status().lines().first().is_some_and(|wait| wait == line));
    let since = toy.world().now;
    // They go when the node is Ready at the target already.
    let away = |toy: &mut Toy, away: bool| {
        toy.cluster.change_instances(|i| i.ready = !(away && i.component == Component::KubeScheduler));
    };
    away(&mut toy, true);
    (0..5).for_each(|_| toy.tick());
    let status = toy.status();
    assert_eq!(status.lines(), [line]);
    assert_eq!(status.phase, UpgradePhase::Working(crate::plan::Stage::Kubelets), "it does not go back");
    assert_eq!((toy.kubelets("Upgrading"), toy.kubelets("Upgraded")), (1, 0));
    away(&mut toy, false);
    toy.run_until(60, |toy| toy.kubelets("Upgraded") == 1);
    assert!(toy.world().now.duration_since(since).as_secs() >= 30);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

/// Its claim says so before its cordon is off.
#[test]
fn a_node_that_was_parked_a_moment_ago_calls_for_nobody() {
    for plane in [false, true] {
        let mut toy = Toy::new(0, 1);
        toy.upgrade.drain.timeout = SignedDuration::from_secs(20);
        for name in ["m-1", "m-2"] {
            toy.cluster.set_node(Node { control_plane: plane, ..node(name, "v1.36.4") });
        }
        toy.deploy("web", 1, 1);
        toy.cluster.set_pod(pod("web", 0, "m-1"));
        toy.absent = 1;
        toy.run_until(600, |toy| toy.kubelets("Parked") == 1);
        for _ in 0..5 {
            assert!(!toy.phase().stalled(), "{plane}: {:?} {:?}", toy.phase(), toy.log.last());
            toy.tick();
        }
        assert!(toy.kubelets_in_flight() + toy.kubelets("Upgraded") > 0, "the other one goes: {:?}", toy.log);
    }
}

#[test]
fn members_of_etcd_without_a_control_plane_go_one_at_a_time_and_are_not_spare() {
    let with = |members: usize| {
        let mut toy = Toy::new(1, 3);
        for number in 1..=members {
            let name = format!("a-{number}");
            toy.cluster.set_node(Node { etcd: true, ..node(&name, "v1.36.4") });
        }
        toy
    };
    let mut toy = with(3);
    toy.run_until(300, |toy| toy.claims.iter().any(Claim::is_of_kubelet));
    let first = toy.claims.iter().find(|claim| claim.is_of_kubelet()).unwrap();
    assert_eq!(*first.subject.node, *"n-1", "a worker is spare, and goes first");
    let members = |toy: &Toy| {
        let flies = |claim: &&Claim| claim.state.in_flight() && claim.subject.node.starts_with("a-");
        toy.claims.iter().filter(flies).count()
    };
    let mut most = 0;
    for _ in 0..900 {
        toy.tick();
        most = most.max(members(&toy));
    }
    assert_eq!((toy.phase(), most), (UpgradePhase::Completed, 1), "{:?}", toy.log);
    // One that is not ready is one less already.
    let mut toy = with(2);
    toy.cluster.change_node("a-2", |node| node.held = true);
    toy.stays_unready = true;
    toy.cluster.set_pod(Pod { mirror: true, ready: false, owner: None, ..pod("etcd", 1, "a-2") });
    (0..200).for_each(|_| toy.tick());
    assert_eq!((toy.kubelets("Upgraded"), members(&toy)), (1, 0), "{:?}", toy.log);
}

/// As after a crash between the two: its static pods go a moment later.
#[test]
fn a_claimed_worker_is_given_back_when_static_pods_are_about_to_go() {
    let mut toy = Toy::new(2, 2);
    toy.cluster.set_node(Node { control_plane: true, ..node("cp-1", "v1.36.4") });
    toy.run_until(300, |toy| toy.claims.iter().any(Claim::is_of_kubelet));
    toy.broken = Some("cp-1".to_owned());
    let of_plane = |claim: &&Claim| claim.is_of_kubelet() && *claim.subject.node == *"cp-1";
    let works = |claim: &Claim| matches!(claim.state, ClaimState::Upgrading { .. });
    toy.run_until(300, |toy| toy.claims.iter().find(of_plane).is_some_and(works));
    let mut claimed = toy.claims.iter().find(of_plane).unwrap().clone();
    (claimed.name, claimed.uid) = ("up.kubelet.a-1".into(), "uid-of-a-1".into());
    toy.cluster.set_node(node("a-1", "v1.36.4"));
    (claimed.subject.node, claimed.subject.node_uid) = ("a-1".into(), "uid-a-1".into());
    claimed.state = ClaimState::Claimed;
    toy.claims.push(claimed);
    toy.claims.sort_by(|a, b| a.name.cmp(&b.name));
    let cordons = |toy: &Toy| {
        let mut actions = toy.decided().actions.into_iter();
        actions.any(|action| matches!(action, Action::Cordon { node, .. } if *node.name == *"a-1"))
    };
    assert!(cordons(&toy), "{:?}", toy.decided().actions);
    let now = at(toy.seconds);
    toy.cluster.change_node("cp-1", |node| {
        (node.kubelet, node.heartbeat) = (Observed::from_report("v1.37.1"), Some(now));
    });
    let actions = toy.decided().actions;
    assert!(!cordons(&toy), "{actions:?}");
    let goes =
        |action: &Action| matches!(action, Action::Release { claim, .. } if **claim == *"up.kubelet.a-1");
    assert!(actions.iter().any(goes), "{actions:?}");
}
