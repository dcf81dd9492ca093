//! Stages in order, whatever is hidden, missing or moved early; nodes of the control plane one at a time.

use std::sync::Arc;

use super::cluster::Toy;
use super::scheduler_upgraded;
use crate::cluster::{Component, Evidence, Instance, Node, Pod, Selector, Traits};
use crate::fixture::{instance, node, pod};
use crate::plan::Stage;
use crate::rollout::{Claim, ClaimState, Subject, UpgradePhase};
use crate::upgrade::{Hidden, NodeGroup};
use crate::version::{Effective, Minor, Observed};

/// A claim of the toy's upgrade on a control-plane component.
fn claim(component: Component, place: &str, state: ClaimState) -> Claim {
    Claim {
        name: format!("up.{component}.{place}").into(),
        uid: format!("uid-{component}-{place}").into(),
        resource_version: "1".into(),
        created: None,
        upgrade: "up".into(),
        upgrade_uid: "uid-up".into(),
        ending: false,
        finalizers: Vec::new(),
        subject: Subject {
            component,
            components: Vec::new(),
            node: place.into(),
            node_uid: "".into(),
            from: "v1.36.4".into(),
            to: "v1.37.1".parse().unwrap(),
            executor: "external".into(),
        },
        state,
        attempt: 1,
        message: String::new(),
        blockers: Vec::new(),
    }
}

fn at_target(toy: &mut Toy) {
    toy.cluster.change_instances(|instance| instance.version = Observed::from_report("v1.37.1"));
}

#[test]
fn no_kubelet_moves_while_a_claim_of_the_control_plane_is_not_finished() {
    let mut toy = Toy::new(2, 1);
    at_target(&mut toy);
    toy.broken = Some("cp-2".to_owned());
    let since = toy.world().now;
    let before = crate::rollout::Before { incarnation: "cp-2-1".into(), ..Default::default() };
    toy.claims.push(claim(
        Component::KubeApiserver,
        "cp-2",
        ClaimState::Upgrading { since, before, observed: None },
    ));
    for _ in 0..20 {
        toy.tick();
        assert_eq!(toy.kubelets("Claimed"), 0, "cp-2 is still being restarted: {:?}", toy.log);
    }
}

#[test]
fn a_component_that_is_gone_for_a_moment_is_not_done() {
    let mut toy = Toy::new(2, 1);
    toy.tick();
    let whole = toy.cluster.instances().to_vec();
    at_target(&mut toy);
    toy.claims.clear();
    let seen: Vec<_> = toy.cluster.instances().to_vec();
    let without = seen.iter().filter(|instance| instance.component != Component::KubeScheduler);
    toy.cluster.set_instances(without.cloned().collect());
    for _ in 0..40 {
        toy.tick();
    }
    assert_eq!(toy.kubelets_in_flight(), 0, "{:?}", toy.log);
    let line = "waits until kube-scheduler on cp-1 is seen again";
    assert!(toy.status().lines().iter().any(|wait| wait == line), "{:?}", toy.status().lines());
    assert_eq!(whole.len(), seen.len());
    toy.cluster.set_instances(seen);
    toy.run_until(60, |toy| toy.kubelets_in_flight() > 0);
}

#[test]
fn a_component_that_is_away_for_long_is_for_a_person() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    let whole = toy.cluster.instances().to_vec();
    let lost = |of: &&Instance| of.component == Component::KubeApiserver && *of.name == *"cp-2";
    let without = whole.iter().filter(|of| !lost(of)).cloned().collect();
    let unready = whole.iter().map(|of| Instance { ready: !lost(&of) && of.ready, ..of.clone() }).collect();
    let silent =
        |of: &Instance| Instance { version: Observed::from_report("unknown"), ready: false, ..of.clone() };
    let silent = whole.iter().map(|of| if lost(&of) { silent(of) } else { of.clone() }).collect();
    for instances in [without, unready, silent] {
        toy.cluster.set_instances(instances);
        let mut moving = 0;
        while toy.phase() != UpgradePhase::ControlPlaneHeld {
            assert!(moving < 16 * 60 && !toy.status().waits.is_empty(), "{:?}", toy.status());
            toy.tick();
            moving += 1;
        }
        assert!(moving > 14 * 60, "{moving} s");
        let message = toy.status().message;
        let line =
            "kube-apiserver on cp-2 has been away for 15 minutes: bring it back, or another one in its place";
        assert_eq!(message, line);
        toy.is_told_by_the_next_leader();
        toy.cluster.set_instances(whole.clone());
        toy.tick();
        assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Kubelets));
    }
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn controllers_that_nothing_shows_keep_the_kubelets_until_a_person_answers_for_them() {
    let mut toy = Toy::new(2, 1);
    let line = "kube-scheduler is led by x, which cannot be seen from here".to_owned();
    toy.hidden.push((Component::KubeScheduler, line));
    toy.run_to_the_end(200);
    assert_eq!(
        (toy.kubelets_in_flight(), toy.phase()),
        (0, UpgradePhase::ControlPlaneHeld),
        "only a person helps"
    );
    let message = toy.status().message;
    assert!(message.contains("led by x") && message.contains("controlPlane.hidden"), "{message}");
    toy.upgrade.control_plane.hidden = Hidden::Accept;
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

/// Its lease tells of it while it is renewed. The version of one that is silent is as unknown as before.
#[test]
fn a_hidden_controller_that_falls_silent_is_not_forgotten() {
    let mut toy = Toy::new(2, 1);
    let stays = |of: &&Instance| of.component != Component::KubeScheduler;
    let others = toy.cluster.instances().iter().filter(stays).cloned().collect();
    toy.cluster.set_instances(others);
    let line = "kube-scheduler is led by x, which cannot be seen from here".to_owned();
    toy.hidden.push((Component::KubeScheduler, line));
    toy.run_to_the_end(200);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld, "{:?}", toy.status());
    toy.hidden.clear();
    toy.run_to_the_end(200);
    let status = toy.status();
    assert_eq!((toy.kubelets_in_flight(), status.phase), (0, UpgradePhase::ControlPlaneHeld), "{status:?}");
    assert!(status.message.contains("is silent now"), "{}", status.message);
    // It begins to be seen.
    toy.cluster.add_instance(instance(Component::KubeScheduler, "x", "v1.37.1"));
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_node_that_drains_when_the_control_plane_needs_a_person_is_given_back_in_the_end() {
    let line = "kube-scheduler is led by x, which cannot be seen from here".to_owned();
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    toy.hidden.push((Component::KubeScheduler, line));
    // It is empty, and its executor must not begin.
    for _ in 0..20 {
        toy.tick();
    }
    let status = toy.status();
    assert_eq!(
        (toy.kubelets("Draining"), status.phase),
        (1, UpgradePhase::ControlPlaneHeld),
        "{:?}",
        status.lines()
    );
    assert!(status.phase.stalled() && status.message.contains("led by x"), "{}", status.message);
    let drained = "drained; waits until the whole control plane answers at the target";
    assert!(status.lines().iter().any(|wait| wait.contains(drained)), "{:?}", status.lines());
    // An answer in time goes on where it was.
    toy.upgrade.control_plane.hidden = Hidden::Accept;
    assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Kubelets));
    toy.upgrade.control_plane.hidden = Hidden::Refuse;
    toy.run_until(60, |toy| toy.kubelets_in_flight() == 0);
    assert!(toy.claims.iter().all(|claim| !claim.is_of_kubelet()), "nothing blocked it: {:?}", toy.log);
    assert!(toy.cluster.nodes().iter().all(|node| !node.unschedulable), "{:?}", toy.log);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld);
    toy.upgrade.control_plane.hidden = Hidden::Accept;
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn controllers_that_moved_early_do_not_keep_the_apiservers_from_following() {
    // kubeadm moves the controllers of a node together with its kube-apiserver.
    let mut toy = Toy::new(1, 1);
    toy.cluster.change_instances(|instance| {
        if *instance.name != *"cp-2" {
            instance.version = Observed::from_report("v1.37.1");
        }
    });
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_server_is_not_taken_away_while_another_one_is_not_ready() {
    let mut toy = Toy::new(1, 1);
    toy.claims.push(claim(Component::KubeApiserver, "cp-1", ClaimState::Claimed));
    let ready = |toy: &mut Toy, ready| {
        toy.cluster.change_instances(|server| {
            server.ready = ready || (server.component, &*server.name) != (Component::KubeApiserver, "cp-2");
        });
    };
    ready(&mut toy, false);
    for _ in 0..10 {
        toy.tick();
    }
    assert_eq!(toy.claims[0].state, ClaimState::Claimed, "{:?}", toy.log);
    assert_eq!(toy.status().message, "cp-1: waits until kube-apiserver cp-2 answers");
    ready(&mut toy, true);
    toy.run_until(60, |toy| toy.claims[0].state.name() == "Upgraded");
}

#[test]
fn a_server_that_answers_with_another_version_at_its_own_address_was_replaced() {
    let mut toy = Toy::new(1, 1);
    toy.broken = Some("cp-1".to_owned());
    toy.cluster.change_instances(|instance| instance.evidence = Evidence::Endpoint);
    toy.run_until(60, |toy| toy.claims.iter().any(|c| c.state.name() == "Upgrading"));
    // A process of a host: no pod and no lease tells that it is another one.
    toy.cluster.change_instances(|instance| {
        if (instance.component, &*instance.name) == (Component::KubeApiserver, "cp-1") {
            instance.version = Observed::from_report("v1.37.1");
        }
    });
    toy.run_until(5, |toy| toy.claims[0].state.name() == "Upgraded");
}

#[test]
fn a_claim_on_a_server_whose_machine_is_another_one_or_gone_is_void() {
    // The Node was made anew, and a server runs there again.
    let mut toy = Toy::new(1, 1);
    toy.broken = Some("cp-1".to_owned());
    toy.cluster.set_node(node("cp-1", "v1.37.1"));
    toy.run_until(60, |toy| toy.claims.iter().any(|c| c.state.name() == "Upgrading"));
    toy.cluster.set_node(Node { uid: "another".into(), ..node("cp-1", "v1.37.1") });
    toy.run_until(5, |toy| toy.claims.iter().all(|claim| *claim.subject.node_uid == *"another"));
    // No Node shows it, and another server has taken its place.
    let mut toy = Toy::new(1, 1);
    toy.broken = Some("cp-1".to_owned());
    toy.run_until(60, |toy| toy.claims.iter().any(|c| c.state.name() == "Upgrading"));
    toy.cluster.change_instances(|instance| {
        if (instance.component, &*instance.name) == (Component::KubeApiserver, "cp-1") {
            (instance.name, instance.node) = ("cp-9".into(), Some("cp-9".into()));
        }
    });
    toy.broken = None;
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_kubelet_that_somebody_takes_back_is_not_fought() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1);
    let upgraded = toy.claims.iter().find(|c| c.is_of_kubelet() && c.state.name() == "Upgraded");
    let (name, node) = upgraded.map(|c| (c.name.clone(), c.subject.node.clone())).unwrap();
    toy.cluster.change_node(&node, |node| node.kubelet = Observed::from_report("v1.36.4"));
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::NodesHeld, "{:?}", toy.log);
    let message = toy.status().message;
    assert!(
        message.contains(&format!("went back to v1.36.4 after it was upgraded; delete NodeUpgrade {name}")),
        "{message}"
    );
    toy.claims.iter_mut().find(|claim| claim.name == name).unwrap().ending = true;
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "who deletes the claim lets it go again");
}

/// Of k3s, where a server's kubelet moves with it: the other parts are at the target still, and so is the control plane.
#[test]
fn a_servers_kubelet_that_somebody_takes_back_keeps_other_nodes_where_they_are() {
    let mut toy = Toy::k3s();
    toy.run_until(600, |toy| ["cp-1", "cp-2"].iter().all(|name| toy.state_of(name) == "Upgraded"));
    toy.cluster.change_node("cp-1", |node| node.kubelet = Observed::from_report("v1.36.4+k3s1"));
    toy.run_to_the_end(300);
    let status = toy.status();
    assert_eq!((toy.kubelets_in_flight(), toy.kubelets("Upgraded")), (0, 0), "{:?}", toy.log);
    assert!(status.message.starts_with("kubelet on cp-1 went back to v1.36.4+k3s1"), "{status:?}");
}

#[test]
fn an_apiserver_that_somebody_takes_back_stops_everything_and_is_named() {
    let mut toy = Toy::new(4, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1);
    toy.cluster.change_instances(|instance| {
        if *instance.name == *"cp-2" {
            instance.version = Observed::from_report("v1.36.4");
        }
    });
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld, "{:?}", toy.status());
    assert!(
        toy.status().message.contains("kube-apiserver on cp-2 went back to v1.36.4"),
        "{}",
        toy.status().message
    );
    assert!(toy.kubelets("Upgraded") < 4, "no further kubelet was given to its executor");
    // Nor is another server taken away.
    let mut toy = Toy::new(1, 1);
    let at = toy.world().now;
    toy.claims.push(claim(Component::KubeApiserver, "cp-2", ClaimState::Upgraded { at }));
    for _ in 0..10 {
        toy.tick();
    }
    assert_eq!(toy.claims.len(), 1, "{:?}", toy.log);
}

#[test]
fn what_somebody_moved_on_or_what_cannot_be_read_did_not_go_back() {
    let told = |version: &str| {
        let mut toy = Toy::new(4, 1);
        toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1 && toy.kubelets_in_flight() == 0);
        toy.cluster.change_instances(|instance| {
            if instance.component == Component::KubeScheduler {
                instance.version = Observed::from_report(version);
            }
        });
        (0..30).for_each(|_| toy.tick());
        assert_eq!(toy.kubelets_in_flight(), 0, "{:?}", toy.log);
        toy.status()
    };
    let newer = told("v1.38.0");
    let line = "kube-scheduler on cp-1 runs v1.38.0, a newer minor than v1.37.1, and nothing is ever taken back: choose a target \
                of its minor";
    assert_eq!(newer.phase, UpgradePhase::ControlPlaneHeld, "{newer:?}");
    assert!(newer.lines().iter().any(|told| told == line), "{:#?}", newer.lines());
    let unknown = told("unknown");
    assert!(!unknown.phase.stalled(), "it may be for a moment: {unknown:?}");
    assert!(!unknown.lines().iter().any(|told| told.contains("went back")), "{:#?}", unknown.lines());
}

#[test]
fn a_controller_waits_while_an_apiserver_is_back_at_its_old_version() {
    let mut toy = Toy::new(1, 1);
    let is_of_manager = |claim: &Claim| claim.subject.component == Component::KubeControllerManager;
    toy.run_until(600, |toy| toy.claims.iter().any(is_of_manager));
    // Between the claim and the executor.
    let back = |toy: &mut Toy, version: &str| {
        toy.cluster.change_instances(|instance| {
            if (instance.component, &*instance.name) == (Component::KubeApiserver, "cp-1") {
                instance.version = Observed::from_report(version);
            }
        });
    };
    back(&mut toy, "v1.36.4");
    for _ in 0..30 {
        toy.tick();
        assert!(toy.claims.iter().filter(|c| is_of_manager(c)).all(|c| c.state.name() == "Claimed"));
    }
    assert!(!toy.claims.iter().any(is_of_manager), "nothing is left under way: {:?}", toy.log);
    let message = toy.status().message;
    assert!(message.contains("kube-apiserver on cp-1 went back to v1.36.4"), "{message}");
    back(&mut toy, "v1.37.1");
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn nothing_is_given_to_an_executor_by_what_apiservers_said_a_while_ago() {
    let mut toy = Toy::new(1, 1);
    let then = toy.world().now;
    toy.cluster.change_instances(|instance| {
        instance.probed = (instance.component == Component::KubeApiserver).then_some(then);
    });
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    let asked = toy.asked;
    assert!(asked > 0, "before each component of the control plane");
    // Nobody answers: cp-2 was taken back a second ago.
    let old = toy.world().now.saturating_sub(jiff::SignedDuration::from_secs(9)).unwrap();
    for _ in 0..20 {
        toy.cluster.change_instances(|instance| instance.probed = instance.probed.map(|_| old));
        toy.tick();
        toy.cluster.change_instances(|instance| instance.probed = instance.probed.map(|_| old));
    }
    assert!(toy.asked > asked && toy.kubelets("Upgrading") == 0, "{:?}", toy.log);
    toy.run_until(60, |toy| toy.kubelets("Upgrading") > 0);
}

#[test]
fn two_nodes_with_pinned_pods_of_one_budget_never_open_in_one_round_or_in_two_groups() {
    for groups in [1, 2] {
        let mut toy = Toy::new(2, 2);
        if groups == 2 {
            let group = |name: &str, node: &str| {
                let match_labels = [("name".to_owned(), node.to_owned())].into();
                NodeGroup::new(name, Selector { match_labels, ..Selector::default() }, "external")
            };
            toy.upgrade.groups = vec![group("a", "n-1"), group("b", "n-2")];
            for name in ["n-1", "n-2"] {
                let labels = Arc::new([("name".to_owned(), name.to_owned())].into());
                toy.cluster.change_node(name, |node| node.labels = labels);
            }
        }
        toy.deploy("etcd", 0, 2);
        for (number, host) in ["n-1", "n-2", "n-9"].iter().enumerate() {
            let traits = Traits { hosts: vec![(*host).into()], ..Traits::default() };
            toy.cluster.set_pod(Pod { special: Some(Arc::new(traits)), ..pod("etcd", number, host) });
        }
        toy.cluster.change_budget("etcd", |budget| {
            (budget.disruptions_allowed, budget.current_healthy, budget.expected_pods) = (1, 3, 3);
        });
        toy.run_until(600, |toy| toy.kubelets("Claimed") > 0);
        for _ in 0..3 {
            assert_eq!(toy.kubelets_in_flight(), 1, "{groups} groups: {:?}", toy.log);
            // Nor in a later round, before the first one's pod is asked.
            toy.tick();
        }
    }
}

#[test]
fn an_upgrade_of_the_same_name_is_another_one() {
    let mut toy = Toy::new(1, 1);
    toy.run_until(60, |toy| !toy.claims.is_empty());
    assert_eq!(toy.status().in_flight, 1);
    for claim in &mut toy.claims {
        claim.upgrade_uid = "uid-of-one-that-was-deleted".into();
    }
    assert_eq!(toy.status().in_flight, 0, "those claims are not ours");
}

#[test]
fn a_kube_apiserver_that_is_upgraded_is_no_node() {
    let mut toy = Toy::new(1, 1);
    toy.run_until(60, |toy| !toy.claims.is_empty());
    let status = toy.status();
    assert_eq!((status.in_flight, status.nodes_in_flight), (1, 0));
}

#[test]
fn kubelets_wait_for_what_the_apiservers_emulate() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, scheduler_upgraded);
    // Each kube-apiserver runs the target and still behaves as the minor before.
    let emulating = Effective::reported(Minor::new(1, 37), ("1", "36"), ("1", "35"));
    toy.cluster.change_instances(|instance| {
        instance.effective = (instance.component == Component::KubeApiserver).then_some(emulating);
    });
    toy.run_to_the_end(200);
    assert_eq!(toy.kubelets("Upgraded"), 0, "{:?}", toy.log);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld);
    let line =
        "kube-apiservers are at 1.37 and emulate 1.36: raise --emulated-version before kubelets go to 1.37";
    assert_eq!(toy.status().message, line);
    toy.cluster.change_instances(|instance| instance.effective = None);
    toy.run_to_the_end(2000);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}
