//! Upgrades over several minors.

use super::cluster::Toy;
use crate::cluster::{Component, Instance};
use crate::fixture::{cluster, node};
use crate::rollout::UpgradePhase;
use crate::upgrade::Hidden;
use crate::version::Minor;

/// Three workers at `kubelets`, two kube-apiservers and one controller of each kind at `control_plane`, on the way to
/// 1.37.1.
fn toy(control_plane: &str, kubelets: &[&str]) -> Toy {
    let mut toy = Toy::new(kubelets.len(), 1);
    *toy.cluster = cluster(&[control_plane, control_plane], control_plane, kubelets);
    toy
}

/// What was claimed, in order: each component or node with the version that it went to.
fn claimed(toy: &mut Toy) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for _ in 0..3000 {
        toy.tick();
        for claim in &toy.claims {
            let line = format!("{} to {}", claim.name.trim_start_matches("up."), claim.subject.to);
            if !all.contains(&line) {
                all.push(line);
            }
        }
        if toy.phase() == UpgradePhase::Completed {
            break;
        }
    }
    all
}

#[test]
fn the_control_plane_goes_minor_by_minor_and_kubelets_once() {
    let mut toy = toy("v1.35.2", &["v1.35.2", "v1.34.1"]);
    let all = claimed(&mut toy);
    expect_test::expect![[r#"
        kube-apiserver.cp-1 to v1.36.9
        kube-apiserver.cp-2 to v1.36.9
        kube-controller-manager.cp-1 to v1.36.9
        kube-scheduler.cp-1 to v1.36.9
        kube-apiserver.cp-1 to v1.37.1
        kube-apiserver.cp-2 to v1.37.1
        kube-controller-manager.cp-1 to v1.37.1
        kube-scheduler.cp-1 to v1.37.1
        kubelet.n-2 to v1.37.1
        kubelet.n-1 to v1.37.1"#]]
    .assert_eq(&all.join("\n"));
    assert_eq!(toy.phase(), UpgradePhase::Completed);
    let status = toy.status();
    assert_eq!(status.way.iter().map(ToString::to_string).collect::<Vec<_>>(), ["v1.36.9"]);
    assert_eq!(status.from.map(|from| from.to_string()).as_deref(), Some("v1.35.2"));
}

#[test]
fn kubelets_that_the_next_hop_would_leave_behind_move_before_it() {
    let mut toy = toy("v1.35.2", &["v1.35.2", "v1.33.0", "v1.31.0"]);
    expect_test::expect![[r#"
        kubelet.n-3 to v1.35.2
        kube-apiserver.cp-1 to v1.36.9
        kube-apiserver.cp-2 to v1.36.9
        kube-controller-manager.cp-1 to v1.36.9
        kube-scheduler.cp-1 to v1.36.9
        kubelet.n-2 to v1.36.9
        kube-apiserver.cp-1 to v1.37.1
        kube-apiserver.cp-2 to v1.37.1
        kube-controller-manager.cp-1 to v1.37.1
        kube-scheduler.cp-1 to v1.37.1
        kubelet.n-1 to v1.37.1
        kubelet.n-3 to v1.37.1
        kubelet.n-2 to v1.37.1"#]]
    .assert_eq(&claimed(&mut toy).join("\n"));
}

#[test]
fn a_node_that_joins_between_two_hops_is_not_left_behind() {
    let mut toy = toy("v1.35.2", &["v1.35.2"]);
    let at_hop =
        |toy: &Toy, version: &str| toy.progress.hop.as_ref().is_some_and(|hop| hop.to_string() == version);
    let servers_done = |toy: &Toy| {
        let mut controllers = toy.cluster.instances().iter().filter(|i| i.component.is_controller());
        at_hop(toy, "v1.36.9") && controllers.all(|i| i.version.to_string() == "v1.36.9")
    };
    toy.run_until(3000, servers_done);
    toy.cluster.set_node(node("late", "v1.33.0"));
    let all = claimed(&mut toy);
    let place = |line: &str| all.iter().position(|other| other == line).unwrap_or(usize::MAX);
    assert!(place("kubelet.late to v1.36.9") < place("kube-apiserver.cp-1 to v1.37.1"), "{all:#?}");
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn what_is_gone_for_a_moment_does_not_take_the_upgrade_to_the_next_hop() {
    let mut toy = toy("v1.35.2", &["v1.35.2"]);
    let first_done = |toy: &Toy| {
        let servers = toy.cluster.of(Component::KubeApiserver);
        servers.filter(|server| server.version.minor() == Some(Minor::new(1, 36))).count() == 1
    };
    toy.run_until(600, first_done);
    // The server that is left is not seen: those that are seen are at 1.36.
    let all: Vec<Instance> = toy.cluster.instances().to_vec();
    let old = |i: &Instance| {
        i.component == Component::KubeApiserver && i.version.minor() == Some(Minor::new(1, 35))
    };
    toy.cluster.set_instances(all.iter().filter(|i| !old(i)).cloned().collect());
    for _ in 0..60 {
        toy.tick();
        assert!(toy.claims.iter().all(|claim| claim.subject.component == Component::KubeApiserver));
        assert_eq!(toy.progress.hop.as_ref().unwrap().to_string(), "v1.36.9");
    }
    let mut back = toy.cluster.instances().to_vec();
    back.extend(all.into_iter().filter(old));
    toy.cluster.set_instances(back);
    toy.run_to_the_end(3000);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn controllers_that_nothing_shows_are_not_left_two_minors_behind() {
    let mut toy = toy("v1.35.2", &["v1.35.2"]);
    let servers = |toy: &Toy| toy.cluster.of(Component::KubeApiserver).cloned().collect::<Vec<_>>();
    let alone = servers(&toy);
    toy.cluster.set_instances(alone);
    toy.hidden.push((Component::KubeScheduler, "kube-scheduler is led by x".to_owned()));
    let all = claimed(&mut toy);
    assert_eq!(all, ["kube-apiserver.cp-1 to v1.36.9", "kube-apiserver.cp-2 to v1.36.9"]);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld);
    let asked =
        "when you know that it runs v1.36.9, and will go to every further minor with the kube-apiservers";
    assert!(toy.status().message.ends_with(asked), "{}", toy.status().message);
    // Another patch of the same minor leaves nobody further behind.
    toy.upgrade.version = "v1.36.10".parse().unwrap();
    let all = claimed(&mut toy);
    assert_eq!(all, ["kube-apiserver.cp-1 to v1.36.10", "kube-apiserver.cp-2 to v1.36.10"]);
    toy.upgrade.version = "v1.37.1".parse().unwrap();
    toy.upgrade.control_plane.hidden = Hidden::Accept;
    assert!(claimed(&mut toy).contains(&"kubelet.n-1 to v1.37.1".to_owned()));
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn the_version_on_the_way_stays_what_was_approved() {
    // It was approved when the release data knew no newer patch.
    let mut recorded = toy("v1.35.2", &["v1.35.2"]);
    let hash = recorded.status().hash;
    recorded.progress.via = vec!["v1.36.4".parse().unwrap()];
    assert_ne!(recorded.status().hash, hash, "another way is another plan");
    let all = claimed(&mut recorded);
    assert!(all.contains(&"kube-apiserver.cp-1 to v1.36.4".to_owned()), "{all:#?}");
    // A person's word counts more.
    let mut named = toy("v1.35.2", &["v1.35.2"]);
    named.progress.via = vec!["v1.36.4".parse().unwrap()];
    named.upgrade.via = vec!["v1.36.2".parse().unwrap()];
    assert!(claimed(&mut named).contains(&"kube-apiserver.cp-1 to v1.36.2".to_owned()));
}

/// A version that a kube-apiserver runs already is on the way too: the approval holds when that one is taken back.
#[test]
fn a_version_that_is_there_already_is_recorded_with_the_others() {
    let mut half = toy("v1.35.2", &["v1.35.2"]);
    half.cluster.change_instances(|instance| {
        if instance.component == Component::KubeApiserver && *instance.name == *"cp-2" {
            instance.version = crate::version::Observed::from_report("v1.36.3");
        }
    });
    let way = |toy: &Toy| toy.status().way.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(way(&half), ["v1.36.3"]);
    assert!(claimed(&mut half).contains(&"kube-apiserver.cp-1 to v1.36.3".to_owned()));
    assert_eq!(half.phase(), UpgradePhase::Completed);
}

#[test]
fn a_crash_after_any_write_of_two_hops_ends_alike() {
    let mut whole = toy("v1.35.2", &["v1.35.2", "v1.33.0"]);
    whole.run_to_the_end(3000);
    assert_eq!(whole.phase(), UpgradePhase::Completed);
    for write in 1..whole.log.len() {
        let mut toy = toy("v1.35.2", &["v1.35.2", "v1.33.0"]);
        toy.crash_after = Some(write);
        toy.run_to_the_end(3000);
        assert_eq!(toy.phase(), UpgradePhase::Completed, "after write {write}");
        let runs = |toy: &Toy| toy.cluster.nodes().iter().map(|n| n.kubelet.to_string()).collect::<Vec<_>>();
        assert_eq!(runs(&toy), runs(&whole));
    }
}

#[test]
fn a_node_without_which_there_is_no_further_hop_may_not_stay_behind() {
    let mut toy = toy("v1.35.2", &["v1.33.0", "v1.33.0"]);
    toy.deploy("frozen", 1, 1);
    toy.cluster.set_pod(crate::fixture::pod("free", 2, "n-2"));
    toy.upgrade.accepted = vec![crate::upgrade::AcceptedRisk {
        finding: "U3/PodDisruptionBudget/shop/frozen".into(),
        until: crate::fixture::at(1_000_000),
        reason: "OPS-1".into(),
    }];
    toy.run_to_the_end(3000);
    let status = toy.status();
    assert_eq!((status.phase, toy.kubelets("Upgraded")), (UpgradePhase::NodesParked, 1), "{status:?}");
    assert_eq!(status.hop, Some("v1.36.9".parse().unwrap()));
}

#[test]
fn a_controller_with_numbers_of_its_own_is_left_alone() {
    let mut toy = toy("v1.36.4", &["v1.36.4"]);
    let mut own = crate::fixture::instance(Component::CloudControllerManager, "cp-1", "v1.36.4");
    own.version = crate::version::Observed::Unknown(crate::version::Unknown::OwnNumber("v0.0.3".into()));
    toy.cluster.add_instance(own);
    assert!(claimed(&mut toy).iter().all(|line| !line.contains("cloud")));
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}
