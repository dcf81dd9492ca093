//! The control plane of a node as one step: what moves together, what is waited for, and how each way of an executor
//! ends.

use super::super::*;
use super::cluster::{Toy, Way};
use super::kubeadm::{ALL, OLD};
use crate::cluster::{Component, Instance, Pod, Reach};
use crate::fixture::{instance, pod};
use crate::rollout::UpgradePhase;
use crate::upgrade::{ApprovalMode, Unit};
use crate::version::Observed;

const NEW: &str = "v1.37.1";

#[test]
fn the_control_plane_of_a_node_moves_as_a_whole_and_nodes_go_one_after_the_other() {
    let mut toy = Toy::kubeadm(3, 1);
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    expect_test::expect![[r#"
        Claim up.control-plane.cp-1
        Record up.control-plane.cp-1 Upgrading
        StartJob up.control-plane.cp-1
        Record up.control-plane.cp-1 Upgraded
        Claim up.control-plane.cp-2
        Record up.control-plane.cp-2 Upgrading
        StartJob up.control-plane.cp-2
        Record up.control-plane.cp-2 Upgraded
        Claim up.control-plane.cp-3
        Record up.control-plane.cp-3 Upgrading
        StartJob up.control-plane.cp-3
        Record up.control-plane.cp-3 Upgraded
        Claim up.kubelet.n-1
        Cordon n-1
        Taint cp-1
        Taint cp-2
        Taint cp-3
    "#]]
    .assert_eq(&toy.log_head(17));
    let of = |place: &str| {
        let subject = &toy.plane(place).unwrap().subject;
        (subject.component, subject.components.clone(), subject.executor.to_string())
    };
    assert_eq!(of("cp-1"), (ALL[0], ALL.to_vec(), "apply".to_owned()), "the first of the hop");
    assert_eq!(of("cp-2"), (ALL[0], ALL.to_vec(), "node".to_owned()));
    assert_eq!(of("cp-3").2, "node");
}

#[test]
fn what_a_step_waits_for_is_said_with_its_node() {
    let mut toy = Toy::kubeadm(2, 0);
    let mut said: Vec<String> = Vec::new();
    for _ in 0..25 {
        toy.tick();
        let status = toy.status();
        assert!(!status.phase.stalled(), "{status:?}");
        if let Some(line) = status.lines().first().filter(|line| said.last() != Some(line)) {
            said.push(line.clone());
        }
    }
    expect_test::expect![[r#"
        cp-1: kube-apiserver is at v1.36.4; starts the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: kube-apiserver is not seen; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: kube-apiserver is not ready yet; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: kube-controller-manager is at v1.36.4; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: kube-controller-manager is not seen; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: kube-controller-manager is not ready yet; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: kube-scheduler is at v1.36.4; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: kube-scheduler is not seen; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: kube-scheduler is not ready yet; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-1: every component is observed at v1.37.1; waits for the Job that takes the control plane on cp-1 from v1.36.4 to v1.37.1
        cp-2: kube-apiserver is at v1.36.4; starts the Job that takes the control plane on cp-2 from v1.36.4 to v1.37.1
        cp-2: kube-apiserver is not seen; waits for the Job that takes the control plane on cp-2 from v1.36.4 to v1.37.1
        cp-2: kube-apiserver is not ready yet; waits for the Job that takes the control plane on cp-2 from v1.36.4 to v1.37.1
        cp-2: kube-controller-manager is at v1.36.4; waits for the Job that takes the control plane on cp-2 from v1.36.4 to v1.37.1
        cp-2: kube-controller-manager is not seen; waits for the Job that takes the control plane on cp-2 from v1.36.4 to v1.37.1"#]].assert_eq(&said.join("\n"));
}

/// How each way of an executor ends.
#[test]
fn the_ends_of_a_step() {
    use UpgradePhase::{Completed, ControlPlaneFailed};
    for (way, phase, state, message) in [
        (Way::Good, Completed, "Upgraded", "observed at v1.37.1"),
        (Way::SaysEarly(1), Completed, "Upgraded", "observed at v1.37.1"),
        (
            Way::Fails(1),
            ControlPlaneFailed,
            "Failed",
            "its Job failed: BackoffLimitExceeded (cp-1: kube-controller-manager is at v1.36.4)",
        ),
        (
            Way::Hangs(2),
            ControlPlaneFailed,
            "Failed",
            "the control plane on cp-1 from v1.36.4 to v1.37.1 was not observed within 60 s: its Job still runs \
             (cp-1: kube-scheduler is at v1.36.4)",
        ),
        (
            Way::FailsLast,
            ControlPlaneFailed,
            "Failed",
            "its Job failed: cannot write kubeadm-config (cp-1: every component is observed at v1.37.1)",
        ),
        (
            Way::HangsLast,
            ControlPlaneFailed,
            "Failed",
            "the control plane on cp-1 from v1.36.4 to v1.37.1 was observed, but its Job is not complete after 60 s: \
             its Job still runs (cp-1: every component is observed at v1.37.1)",
        ),
    ] {
        let mut toy = Toy::kubeadm(2, 1);
        toy.way = way;
        toy.run_to_the_end(900);
        let claim = toy.plane("cp-1").unwrap();
        assert_eq!(
            (toy.phase(), claim.state.name(), claim.message.as_str()),
            (phase, state, message),
            "{way:?}"
        );
        let second = if phase == Completed { "Upgraded" } else { "none" };
        assert_eq!(toy.state_of("cp-2"), second, "{way:?}: nothing else begins");
        assert_eq!(toy.kubelets_in_flight(), 0, "{way:?}");
        if phase == ControlPlaneFailed {
            assert!(toy.status().message.starts_with("the control plane on cp-1: "), "{:?}", toy.status());
            // Somebody makes it good, deletes the Job if it still runs, and the claim.
            toy.way = Way::Good;
            toy.jobs.made.clear();
            toy.delete("cp-1");
            toy.run_to_the_end(900);
            assert_eq!(toy.phase(), Completed, "{way:?}: {:?}", toy.status());
        }
    }
}

#[test]
fn a_job_that_failed_last_is_not_taken_for_one_that_is_complete() {
    let mut toy = Toy::kubeadm(2, 0);
    toy.way = Way::FailsLast;
    toy.run_to_the_end(300);
    let line = "delete NodeUpgrade up.control-plane.cp-1 when nothing is left to do there";
    assert!(toy.status().message.ends_with(line), "{}", toy.status().message);
    // It was only slow.
    let mut toy = Toy::kubeadm(2, 0);
    toy.way = Way::HangsLast;
    toy.run_until(300, |toy| toy.state_of("cp-1") == "Failed");
    toy.way = Way::Good;
    toy.jobs.made.values_mut().for_each(|job| *job = JobState::Complete);
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn somebody_outside_is_done_when_everything_is_seen() {
    let mut toy = Toy::kubeadm(2, 0);
    (toy.upgrade.control_plane.executor, toy.upgrade.control_plane.first_executor) =
        ("external".into(), None);
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    assert!(toy.jobs.made.is_empty());
}

#[test]
fn the_first_of_a_hop_is_asked_again_until_a_node_is_upgraded() {
    for way in [Way::Fails(1), Way::FailsLast] {
        let mut toy = Toy::kubeadm(2, 0);
        toy.way = way;
        toy.run_until(300, |toy| toy.state_of("cp-1") == "Failed");
        toy.way = Way::Good;
        toy.delete("cp-1");
        let begun = |toy: &Toy| {
            toy.claims
                .iter()
                .find(|c| c.subject.is_of_plane() && !c.ending)
                .map(|c| c.subject.executor.clone())
        };
        toy.run_until(60, |toy| begun(toy).is_some());
        assert_eq!(begun(&toy).as_deref(), Some("apply"), "{way:?}");
    }
    // And again in the next hop.
    let mut toy = Toy::kubeadm(2, 0);
    toy.upgrade.version = "v1.38.1".parse().unwrap();
    let mut asked: Vec<String> = Vec::new();
    for _ in 0..300 {
        toy.tick();
        for claim in toy.claims.iter().filter(|claim| claim.subject.is_of_plane()) {
            let of = &claim.subject;
            let line = format!("{} {} by {}", of.node, of.to, of.executor);
            if !asked.contains(&line) {
                asked.push(line);
            }
        }
    }
    expect_test::expect![[r#"
        cp-1 v1.37.9 by apply
        cp-2 v1.37.9 by node
        cp-1 v1.38.1 by apply
        cp-2 v1.38.1 by node"#]]
    .assert_eq(&asked.join("\n"));
}

#[test]
fn a_crash_after_any_write_of_a_step_ends_alike() {
    let mut whole = Toy::kubeadm(2, 1);
    whole.run_to_the_end(600);
    assert_eq!(whole.phase(), UpgradePhase::Completed);
    for crash in 0..whole.log.len() {
        let mut toy = Toy::kubeadm(2, 1);
        toy.crash_after = Some(crash);
        toy.run_to_the_end(600);
        assert_eq!(toy.phase(), UpgradePhase::Completed, "crash after write {crash}");
        let executors: Vec<_> =
            ["cp-1", "cp-2"].map(|of| toy.plane(of).unwrap().subject.executor.clone()).into();
        assert_eq!(executors, ["apply".into(), "node".into()], "crash after write {crash}");
    }
}

#[test]
fn what_is_left_of_a_node_that_was_begun_comes_first() {
    let mut toy = Toy::kubeadm(2, 0);
    toy.cluster.change_instances(|i| {
        if (i.component, &*i.name) == (Component::KubeApiserver, "cp-2") {
            i.version = Observed::from_report(NEW);
        }
    });
    toy.run_until(60, |toy| !toy.claims.is_empty());
    let claim = toy.plane("cp-2").expect("cp-2 comes first");
    assert_eq!(claim.subject.components, ALL[1..]);
    // One of its parts is there when it begins: that one need not restart.
    toy.cluster.change_instances(|i| {
        if (i.component, &*i.name) == (Component::KubeScheduler, "cp-2") {
            i.version = Observed::from_report(NEW);
        }
    });
    toy.run_until(10, |toy| toy.state_of("cp-2") == "Upgrading");
    let ClaimState::Upgrading { before, .. } = &toy.plane("cp-2").unwrap().state else { unreachable!() };
    let parts: Vec<_> = before.parts.iter().map(|(of, _)| *of).collect();
    assert_eq!(parts, [Component::KubeControllerManager]);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_part_that_is_away_is_waited_for_although_another_one_joins() {
    let mut toy = Toy::kubeadm(2, 0);
    toy.cluster.change_instances(|i| {
        if *i.name == *"cp-1" && i.component != Component::KubeScheduler {
            i.version = Observed::from_report(NEW);
        }
    });
    toy.run_until(60, |toy| !toy.away.is_empty());
    assert_eq!(toy.plane("cp-1").unwrap().subject.components, [Component::KubeScheduler]);
    // There are as many as before, so that none is missing.
    toy.cluster
        .add_instance(Instance { reach: Reach::Local, ..instance(Component::KubeScheduler, "cp-9", NEW) });
    toy.tick();
    assert_eq!(toy.state_of("cp-1"), "Upgrading", "{:?}", toy.log);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn each_part_has_to_be_seen_to_restart() {
    let mut toy = Toy::kubeadm(2, 0);
    toy.broken = Some("cp-1".to_owned());
    toy.run_until(60, |toy| toy.state_of("cp-1") == "Upgrading" && !toy.jobs.made.is_empty());
    toy.jobs.made.values_mut().for_each(|job| *job = JobState::Complete);
    toy.cluster.change_instances(|i| {
        if *i.name == *"cp-1" {
            i.version = Observed::from_report(NEW);
            if i.component != Component::KubeScheduler {
                i.incarnation = "another".into();
            }
        }
    });
    for _ in 0..10 {
        toy.tick();
        let status = toy.status();
        assert!(
            status.lines()[0].starts_with("cp-1: kube-scheduler was not seen to restart"),
            "{:?}",
            status.lines()
        );
    }
    toy.cluster.change_instances(|i| i.incarnation = format!("{}-again", i.incarnation).into());
    toy.run_until(5, |toy| toy.state_of("cp-1") == "Upgraded");
}

#[test]
fn one_process_of_the_kubelet_and_the_control_plane_moves_without_a_drain() {
    let mut toy = Toy::k3s();
    toy.upgrade.groups[0].max_unavailable = crate::upgrade::Amount::Count(1);
    toy.deploy("web", 3, 2);
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?} {:?}", toy.status(), toy.planned().refused());
    let moved = &toy.plane("cp-1").unwrap().subject.components;
    assert_eq!(*moved, [&ALL[..], &[Component::Kubelet]].concat());
    let cordoned: Vec<&String> = toy.log.iter().filter(|line| line.starts_with("Cordon")).collect();
    assert_eq!(cordoned, ["Cordon n-1"], "{:?}", toy.log);
    let (first, second) = (toy.log.iter(), toy.log.iter());
    let ended = first.clone().position(|line| line == "Record up.control-plane.cp-1 Upgraded").unwrap();
    let begun = second.clone().position(|line| line == "Claim up.control-plane.cp-2").unwrap();
    assert!(ended < begun);
}

#[test]
fn a_server_of_one_process_waits_for_its_kubelet_and_what_every_node_runs() {
    let mut toy = Toy::k3s();
    toy.broken = Some("cp-1".to_owned());
    toy.run_until(60, |toy| toy.state_of("cp-1") == "Upgrading" && !toy.jobs.made.is_empty());
    toy.jobs.made.values_mut().for_each(|job| *job = JobState::Complete);
    toy.cluster.change_instances(|i| {
        if *i.name == *"cp-1" {
            (i.version, i.incarnation) = (Observed::from_report("v1.37.1+k3s1"), "another".into());
        }
    });
    let waits = |toy: &mut Toy, line: &str| {
        toy.tick();
        assert!(toy.status().lines()[0].starts_with(line), "{:?}", toy.status().lines());
    };
    waits(&mut toy, "cp-1: kubelet is at v1.36.4+k3s1");
    toy.cluster.change_node("cp-1", |node| node.kubelet = Observed::from_report("v1.37.1+k3s1"));
    waits(&mut toy, "cp-1: kubelet was not seen to restart");
    let now = toy.world().now;
    toy.cluster.change_node("cp-1", |node| node.heartbeat = Some(now));
    toy.stays_unready = true;
    toy.cluster.set_pod(Pod { mirror: true, ready: false, owner: None, ..pod("etcd", 1, "cp-1") });
    waits(&mut toy, "cp-1: kubelet is observed, but static pod shop/etcd-1 is not ready");
    toy.stays_unready = false;
    waits(&mut toy, "cp-1: observed at v1.37.1+k3s1; gives its static pods time to come back");
    let since = toy.world().now;
    toy.run_until(60, |toy| toy.state_of("cp-1") == "Upgraded");
    assert!(toy.world().now.duration_since(since).as_secs() >= 29);
    toy.broken = None;
    toy.run_until(10, |toy| toy.state_of("cp-2") != "none");
}

#[test]
fn a_node_waits_until_every_other_one_is_whole() {
    let opens = |change: fn(&mut Toy)| {
        let mut toy = Toy::kubeadm(2, 0);
        change(&mut toy);
        (0..20).any(|_| {
            toy.tick();
            toy.state_of("cp-1") == "Upgrading"
        })
    };
    assert!(opens(|_| ()));
    assert!(!opens(|toy| _ = toy.cluster.change_node("cp-2", |node| node.ready = false)), "silent");
    assert!(!opens(|toy| _ = toy.cluster.change_node("cp-2", |node| node.unschedulable = true)), "cordoned");
    let unready = |component: Component| {
        move |toy: &mut Toy| {
            toy.cluster.change_instances(|i| i.ready &= (i.component, &*i.name) != (component, "cp-2"));
        }
    };
    let mut toy = Toy::kubeadm(2, 0);
    unready(Component::KubeScheduler)(&mut toy);
    toy.run_to_the_end(60);
    assert!(toy.claims.is_empty(), "one of its components is not ready: {:?}", toy.log);
    let etcd = |toy: &mut Toy| {
        toy.stays_unready = true;
        toy.cluster.set_pod(Pod { mirror: true, ready: false, owner: None, ..pod("etcd", 1, "cp-2") });
    };
    assert!(!opens(etcd), "its static pod is not ready");
}

#[test]
fn no_two_executors_work_on_one_node() {
    let mut toy = Toy::kubeadm(2, 0);
    toy.cluster.change_instances(|i| i.version = Observed::from_report(NEW));
    toy.broken = Some("cp-1".to_owned());
    toy.run_until(60, |toy| toy.kubelets("Upgrading") == 1);
    // Somebody takes the kube-apiserver of the node back whose kubelet is being upgraded.
    toy.cluster.change_instances(|i| {
        if (i.component, &*i.name) == (Component::KubeApiserver, "cp-1") {
            i.version = Observed::from_report(OLD);
        }
    });
    for _ in 0..20 {
        toy.tick();
        assert_ne!(toy.state_of("cp-1"), "Upgrading", "{:?}", toy.log);
    }
    let line = "cp-1: waits until NodeUpgrade up.kubelet.cp-1 has ended";
    assert!(toy.status().lines().iter().any(|wait| wait == line), "{:?}", toy.status().lines());
    let now = toy.world().now;
    toy.cluster.change_node("cp-1", |node| {
        (node.kubelet, node.heartbeat) = (Observed::from_report(NEW), Some(now));
    });
    toy.run_until(60, |toy| toy.kubelets("Upgraded") == 1);
    toy.broken = None;
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn another_unit_on_the_way_settles_what_is_under_way() {
    // Not begun: given up, and planned anew.
    let mut toy = Toy::kubeadm(2, 0);
    toy.upgrade.control_plane.unit = Unit::Component;
    toy.run_until(60, |toy| !toy.claims.is_empty());
    assert_eq!(&*toy.claims[0].name, "up.kube-apiserver.cp-1");
    assert_eq!(toy.claims[0].state, ClaimState::Claimed);
    toy.upgrade.control_plane.unit = Unit::Node;
    toy.run_until(5, |toy| toy.state_of("cp-1") != "none");
    assert_eq!(toy.claims.len(), 1, "{:?}", toy.log);
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
    // Under way: it is finished first, and the rest of its node goes as a whole.
    let mut toy = Toy::kubeadm(2, 0);
    toy.upgrade.control_plane.unit = Unit::Component;
    toy.run_until(60, |toy| toy.claims.iter().any(|claim| claim.state.name() == "Upgrading"));
    toy.upgrade.control_plane.unit = Unit::Node;
    toy.run_until(60, |toy| toy.state_of("cp-1") != "none");
    assert_eq!(toy.plane("cp-1").unwrap().subject.components, ALL[1..]);
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    // And back.
    let mut toy = Toy::kubeadm(2, 0);
    toy.run_until(60, |toy| toy.state_of("cp-1") == "Upgrading");
    toy.upgrade.control_plane.unit = Unit::Component;
    toy.upgrade.mode = ApprovalMode::Automatic;
    toy.run_to_the_end(300);
    assert_eq!(
        (toy.phase(), toy.state_of("cp-1")),
        (UpgradePhase::Completed, "Upgraded"),
        "{:?}",
        toy.status()
    );
}

#[test]
fn a_part_that_goes_back_is_named_and_one_that_is_new_is_moved() {
    let upgraded = || {
        let mut toy = Toy::kubeadm(2, 0);
        toy.run_until(300, |toy| toy.state_of("cp-1") == "Upgraded");
        toy
    };
    let mut toy = upgraded();
    toy.cluster.change_instances(|i| {
        if (i.component, &*i.name) == (Component::KubeScheduler, "cp-1") {
            i.version = Observed::from_report(OLD);
        }
    });
    toy.run_to_the_end(200);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld);
    let line = "kube-scheduler on cp-1 went back to v1.36.4 after it was upgraded; delete NodeUpgrade \
                up.control-plane.cp-1 to have it moved again";
    assert_eq!(toy.status().message, line);
    let mut toy = upgraded();
    toy.cluster.add_instance(Instance {
        reach: Reach::Local,
        incarnation: "ccm".into(),
        ..instance(Component::CloudControllerManager, "cp-1", OLD)
    });
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    assert_eq!(toy.plane("cp-1").unwrap().subject.components, [Component::CloudControllerManager]);
}

#[test]
fn suspend_and_deletion_let_a_step_come_to_its_end() {
    let mut toy = Toy::kubeadm(2, 0);
    toy.run_until(60, |toy| toy.state_of("cp-1") == "Upgrading");
    toy.upgrade.suspended = true;
    toy.run_to_the_end(200);
    assert_eq!((toy.phase(), toy.state_of("cp-1")), (UpgradePhase::Suspended, "Upgraded"));
    assert_eq!(toy.state_of("cp-2"), "none");
    let mut toy = Toy::kubeadm(2, 0);
    toy.run_until(60, |toy| toy.state_of("cp-1") == "Upgrading");
    toy.progress.ending = true;
    toy.run_until(60, |toy| !toy.progress.protected);
    assert!(toy.away.is_empty() && toy.cluster.instances().iter().all(|i| i.ready));
    // Who deletes the claim kills nothing either.
    let mut toy = Toy::kubeadm(2, 0);
    toy.run_until(60, |toy| toy.state_of("cp-1") == "Upgrading");
    toy.delete("cp-1");
    for _ in 0..8 {
        toy.tick();
        assert!(toy.state_of("cp-1") == "Upgrading" && toy.state_of("cp-2") == "none");
    }
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_control_plane_of_one_node_is_upgraded_although_nothing_of_it_is_seen_for_a_while() {
    let mut toy = Toy::kubeadm(1, 1);
    toy.run_until(300, |toy| toy.state_of("cp-1") == "Upgraded");
    let since = toy.world().now;
    toy.run_until(60, |toy| toy.kubelets("Claimed") > 0);
    assert!(
        toy.world().now.duration_since(since).as_secs() >= 15,
        "its controllers take up their work first"
    );
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}
