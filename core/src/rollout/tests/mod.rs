//! The state machine against a small cluster that answers its writes.

mod avoid;
mod backoff;
mod begun_late;
mod blockers;
mod cluster;
mod control_plane_whole;
mod controllers;
mod drains;
mod exceptions;
mod executors;
mod gates;
mod hope;
mod hops;
mod interruptions;
mod jobs;
mod kubeadm;
mod next_leader;
mod order;
mod parked;
mod places;
mod plane;
mod pods;
mod queue;
mod recreated;
mod refused_writes;
mod replaced;
mod silent;
mod static_pods;
mod trial;
mod unreadable;
mod vendors;
mod whose_turn;
mod zones;

use std::sync::Arc;

use expect_test::expect;

use self::cluster::Toy;
use super::*;
use crate::cluster::{Component, Node, Pod, Traits};
use crate::fixture::{at, node};
use crate::upgrade::{Amount, ApprovalMode};
use crate::version::Observed;

#[test]
fn an_upgrade_runs_in_order_and_ends_even() {
    let mut toy = Toy::new(6, 2);
    for app in 0..3 {
        toy.deploy(&format!("app-{app}"), 4, 3);
    }
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
    assert!(toy.max_in_flight == 2, "the budget is used: {}", toy.max_in_flight);
    assert_eq!(toy.refused, 0, "no eviction was sent that the budget refused");
    expect![[r#"
        Claim up.kube-apiserver.cp-1
        Record up.kube-apiserver.cp-1 Upgrading
        Record up.kube-apiserver.cp-1 Upgraded
        Claim up.kube-apiserver.cp-2
        Record up.kube-apiserver.cp-2 Upgrading
        Record up.kube-apiserver.cp-2 Upgraded
        Claim up.kube-controller-manager.cp-1
        Record up.kube-controller-manager.cp-1 Upgrading
        Record up.kube-controller-manager.cp-1 Upgraded
        Claim up.kube-scheduler.cp-1
        Record up.kube-scheduler.cp-1 Upgrading
        Record up.kube-scheduler.cp-1 Upgraded
        Claim up.kubelet.n-5
        Claim up.kubelet.n-6
        Cordon n-5
        Cordon n-6
        Taint n-1
        Taint n-2
    "#]]
    .assert_eq(&toy.log_head(18));
}

#[test]
fn a_node_that_cannot_be_drained_is_parked_named_and_finished_when_it_can() {
    let mut toy = Toy::new(4, 1);
    toy.deploy("impossible", 1, 1);
    let stuck = toy.pods_of("impossible").first().unwrap().node.clone();
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::NodesParked);
    let status = toy.status();
    assert_eq!(status.parked.len(), 1, "the others went on");
    assert_eq!(status.parked[0].node, stuck);
    assert!(status.message.contains("PDB shop/impossible can never allow an eviction"), "{}", status.message);
    assert!(!toy.world().cluster.node(&stuck).unwrap().unschedulable, "it was given back");
    let written = toy.log.len();
    toy.run_to_the_end(900);
    assert_eq!(toy.log.len(), written, "it is not disturbed again while the budget visibly allows nothing");
    toy.cluster.remove_budget("shop", "impossible");
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn a_node_that_could_not_be_emptied_anyway_is_not_disturbed() {
    for pinned in [false, true] {
        let mut toy = Toy::new(3, 1);
        toy.deploy("impossible", 1, 1);
        toy.deploy("web", 6, 3);
        let pod = (*toy.pods_of("impossible").first().unwrap()).clone();
        let stuck = pod.node.clone();
        if pinned {
            let traits = Traits { hosts: vec![stuck.clone()], ..Traits::default() };
            toy.cluster.set_pod(Pod { special: Some(Arc::new(traits)), ..pod });
        }
        toy.run_to_the_end(900);
        assert_eq!(toy.phase(), UpgradePhase::NodesParked, "pinned: {pinned}");
        assert!(!toy.log.iter().any(|line| line.ends_with(&format!("kubelet.{stuck}"))), "{:?}", toy.log);
    }
}

#[test]
fn a_budget_that_may_recover_is_waited_for_and_not_called_stalled() {
    let mut toy = Toy::new(2, 1);
    // One of two replicas is not there: when it comes back, the other may go.
    toy.absent = 1;
    toy.deploy("short", 1, 1);
    toy.run_until(300, |toy| toy.kubelets("Parked") == 1);
    toy.run_to_the_end(60);
    assert_eq!(toy.phase(), UpgradePhase::Working(crate::plan::Stage::Kubelets));
    toy.pass(3700);
    assert_eq!(toy.phase(), UpgradePhase::NodesParked, "an hour later it is for a person to look at");
}

#[test]
fn a_crash_after_any_write_loses_nothing() {
    let mut whole = Toy::new(3, 1);
    whole.deploy("cart", 3, 2);
    whole.run_to_the_end(600);
    let (evictions, writes) = (whole.evictions, whole.log.len());
    assert_eq!(whole.phase(), UpgradePhase::Completed);
    for crash in 0..writes {
        let mut toy = Toy::new(3, 1);
        toy.deploy("cart", 3, 2);
        toy.crash_after = Some(crash);
        toy.run_to_the_end(600);
        assert_eq!(toy.phase(), UpgradePhase::Completed, "crash after write {crash}");
        assert!(toy.evictions <= evictions + 3, "crash after write {crash}: {} evictions", toy.evictions);
    }
}

#[test]
fn a_persons_cordon_is_respected() {
    let mut toy = Toy::new(3, 2);
    toy.cluster.change_node("n-2", |node| node.unschedulable = true);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::NodesHeld);
    assert!(toy.status().message.contains("n-2: cordoned by someone else"), "{}", toy.status().message);
    assert_eq!(toy.status().lines(), [toy.status().message]);
    toy.cluster.change_node("n-2", |node| node.unschedulable = false);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
    assert!(toy.status().lines().is_empty(), "{:?}", toy.status().lines());
    // A kube-apiserver that does not answer refuses nothing to an upgrade that is over.
    toy.progress.completed = Some(at(toy.seconds));
    toy.cluster.change_instances(|instance| instance.version = Observed::from_report("unknown"));
    assert!(!toy.planned().refused().is_empty());
    assert_eq!((toy.phase(), toy.status().preflight), (UpgradePhase::Completed, Vec::new()));
}

#[test]
fn a_cordon_that_leaves_no_room_for_others_calls_for_whoever_set_it() {
    let mut toy = Toy::new(3, 1);
    toy.cluster.change_node("n-2", |node| node.unschedulable = true);
    toy.run_to_the_end(600);
    let line = "group all: 1 of 3 nodes are unavailable, 1 may be: n-2 (cordoned); mend or uncordon them, or raise maxUnavailable";
    let status = toy.status();
    assert_eq!((status.phase, status.message.as_str()), (UpgradePhase::NodesHeld, line));
    assert_eq!(status.waits[0].reason.ended_by(), EndedBy::Person);
    // A machine that is silent for a moment comes back by itself.
    toy.cluster.change_node("n-2", |node| (node.unschedulable, node.ready) = (false, false));
    toy.cluster.change_node("n-1", |node| node.held = true);
    assert_eq!(toy.kubelets("Upgraded"), 0);
    assert!(!toy.phase().stalled(), "{:?}", toy.status());
    toy.cluster.change_node("n-2", |node| node.ready = true);
    toy.cluster.change_node("n-1", |node| node.held = false);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn a_group_that_is_full_of_machines_that_are_gone_calls_for_a_person() {
    let mut toy = Toy::new(3, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1 && toy.kubelets_in_flight() == 0);
    let done = |node: &&Node| node.kubelet.to_string() == "v1.37.1";
    let name = toy.cluster.nodes().iter().map(AsRef::as_ref).find(done).unwrap().name.clone();
    toy.cluster.change_node(&name, |node| (node.ready, node.heartbeat) = (false, Some(at(0))));
    toy.pass(16 * 60);
    let status = toy.status();
    let line = format!(
        "group all: 1 of 3 nodes are unavailable, 1 may be: {name} (not ready); mend or uncordon them, or raise maxUnavailable"
    );
    assert_eq!((status.phase, status.message), (UpgradePhase::NodesHeld, line));
    toy.cluster.change_node(&name, |node| node.ready = true);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn a_cordoned_control_plane_node_calls_for_whoever_cordoned_it() {
    // As one step each, before anything began; and by their kubelets, when the others are at the target.
    let mut toys = [Toy::kubeadm(3, 1), Toy::new(0, 2)];
    for name in ["cp-1", "cp-2"] {
        toys[1].cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
    }
    toys[1].run_until(600, |toy| toy.kubelets("Upgraded") == 1);
    for (mut toy, phase) in toys.into_iter().zip([UpgradePhase::ControlPlaneHeld, UpgradePhase::NodesHeld]) {
        let done = |name: &str| toy.cluster.node(name).unwrap().kubelet.to_string() == "v1.37.1";
        let cordoned = if done("cp-1") { "cp-1" } else { "cp-2" };
        toy.cluster.change_node(cordoned, |node| node.unschedulable = true);
        for _ in 0..60 {
            toy.tick();
        }
        let status = toy.status();
        assert_eq!(status.phase, phase, "{status:?}");
        assert!(
            status.message.contains(&format!("control-plane node {cordoned} is cordoned")),
            "{}",
            status.message
        );
        toy.cluster.change_node(cordoned, |node| node.unschedulable = false);
        toy.run_to_the_end(1200);
        assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    }
}

#[test]
fn a_completed_upgrade_says_what_is_so_now() {
    let mut toy = Toy::new(2, 1);
    toy.run_to_the_end(600);
    toy.progress.completed = Some(at(toy.seconds));
    let well = "every selected component runs v1.37.1";
    assert_eq!(toy.status().message, well);
    let before = toy.cluster.instances().to_vec();
    // Nobody can tell for a moment, and nobody saw it change.
    toy.cluster.change_instances(|instance| {
        (instance.version, instance.ready) = (Observed::from_report("unknown"), false);
    });
    assert_eq!(toy.status().message, well);
    toy.cluster.set_instances(before);
    toy.cluster.change_node("n-1", |node| node.kubelet = Observed::from_report("v1.36.4"));
    let said = toy.status();
    let line = "every selected component ran v1.37.1 when the upgrade was complete; not all of them do now";
    assert_eq!((said.phase, said.message.as_str()), (UpgradePhase::Completed, line));
}

/// Goes on until a node drains; its name.
fn first_draining(toy: &mut Toy) -> Arc<str> {
    let drains = |claim: &&Claim| matches!(claim.state, ClaimState::Draining { .. });
    toy.run_until(600, |toy| toy.claims.iter().any(|claim| drains(&claim)));
    toy.claims.iter().find(drains).unwrap().subject.node.clone()
}

#[test]
fn a_person_who_uncordons_is_not_fought() {
    let mut toy = Toy::new(2, 1);
    toy.deploy("slow", 2, 1);
    toy.lingers = 1000;
    let node = first_draining(&mut toy);
    toy.cluster.change_node(&node, |node| node.unschedulable = false);
    toy.tick();
    toy.tick();
    let claim = toy.claims.iter().find(|c| c.subject.node == node).unwrap();
    assert!(matches!(claim.state, ClaimState::Parked { .. }), "{:?}", claim.state);
    assert!(claim.message.contains("uncordoned by someone else"));
}

#[test]
fn unhealthy_nodes_count_and_go_first() {
    let mut toy = Toy::new(4, 2);
    toy.cluster.change_node("n-3", |node| node.ready = false);
    toy.cluster.change_node("n-4", |node| node.ready = false);
    toy.run_until(600, |toy| toy.claims.iter().any(|c| c.subject.component == Component::Kubelet));
    let claimed: Vec<_> = toy.claims.iter().filter(|c| c.subject.component == Component::Kubelet).collect();
    let nodes: Vec<_> = claimed.iter().map(|c| c.subject.node.to_string()).collect();
    assert_eq!(nodes, ["n-3", "n-4"], "two of two are unavailable already: no healthy node is taken");
}

#[test]
fn at_most_the_limit_is_in_flight_however_many_are_unhealthy() {
    let mut toy = Toy::new(10, 2);
    for number in 1..=10 {
        // One of each zone, so that none is disrupted.
        let zone = [("topology.kubernetes.io/zone".to_owned(), (number % 5).to_string())];
        toy.cluster.change_node(&format!("n-{number}"), |node| {
            (node.labels, node.ready) = (Arc::new(zone.into()), number > 5);
        });
    }
    toy.run_until(600, |toy| toy.kubelets("Claimed") > 0);
    toy.tick();
    assert_eq!(toy.kubelets_in_flight(), 2);
}

#[test]
fn nodes_that_are_unavailable_for_other_reasons_take_their_place_in_the_budget() {
    let mut toy = Toy::new(4, 2);
    toy.run_until(600, scheduler_upgraded);
    toy.cluster.change_node("n-4", |done| {
        (done.kubelet, done.ready) = (crate::version::Observed::from_report("v1.37.1"), false);
    });
    toy.run_until(600, |toy| toy.kubelets("Claimed") > 0);
    for _ in 0..3 {
        toy.tick();
        assert!(toy.kubelets_in_flight() <= 1, "one of two is unavailable already");
    }
}

#[test]
fn a_person_who_cordons_between_claim_and_cordon_was_faster() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Claimed") > 0);
    toy.cluster.change_node("n-1", |node| node.unschedulable = true);
    toy.tick();
    assert_eq!(toy.kubelets_in_flight(), 0, "the claim is given up");
    let node = toy.world().cluster.node("n-1").unwrap();
    assert!(node.unschedulable && node.cordoned_by.is_none(), "the cordon is theirs");
}

#[test]
fn suspend_gives_back_what_drains_and_finishes_what_is_upgrading() {
    let mut toy = Toy::new(4, 2);
    toy.deploy("slow", 1, 0);
    toy.lingers = 1000;
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0 && toy.kubelets("Upgrading") > 0);
    toy.upgrade.suspended = true;
    let evictions = toy.evictions;
    let moving = toy.kubelets("Upgraded") + toy.kubelets("Upgrading");
    for _ in 0..3 {
        toy.tick();
    }
    assert_eq!(toy.kubelets("Draining"), 0, "what drains is given back at once");
    toy.run_to_the_end(120);
    assert_eq!(toy.phase(), UpgradePhase::Suspended);
    assert!(toy.cluster.nodes().iter().all(|n| !n.unschedulable && n.cordoned_by.is_none()));
    assert_eq!(toy.kubelets_in_flight(), 0);
    assert_eq!(toy.evictions, evictions, "no disruption any more");
    assert_eq!(toy.kubelets("Upgraded"), moving, "only what was upgrading was finished");
}

#[test]
fn an_empty_node_is_watched_for_late_pods_before_its_executor_begins() {
    let mut toy = Toy::new(1, 1);
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    let since = toy.world().now;
    toy.run_until(60, |toy| toy.kubelets("Upgrading") > 0);
    assert!(toy.world().now.duration_since(since).as_secs() >= 5);
}

fn scheduler_upgraded(toy: &Toy) -> bool {
    let mut schedulers = toy.claims.iter().filter(|c| c.subject.component == Component::KubeScheduler);
    schedulers.any(|c| c.state.name() == "Upgraded")
}

#[test]
fn replaced_controllers_get_time_before_the_first_eviction() {
    let mut toy = Toy::new(1, 1);
    toy.cluster.set_node(crate::cluster::Node { held: true, ..crate::fixture::node("n-0", "v1.36.4") });
    toy.run_until(600, scheduler_upgraded);
    let since = toy.world().now;
    toy.tick();
    assert!(!toy.phase().stalled(), "a held node is not all that is left to do: {:?}", toy.phase());
    toy.run_until(60, |toy| toy.kubelets("Claimed") > 0);
    assert!(toy.world().now.duration_since(since).as_secs() >= 15);
}

#[test]
fn the_next_apiserver_waits_until_the_last_was_seen_to_restart() {
    let mut toy = Toy::new(1, 1);
    toy.broken = Some("cp-1".to_owned());
    toy.run_until(60, |toy| toy.claims.iter().any(|c| c.state.name() == "Upgrading"));
    // It says the new version and was not replaced: whatever that is, it is no upgrade that was seen.
    toy.cluster.change_instances(|instance| {
        if instance.component == Component::KubeApiserver && *instance.name == *"cp-1" {
            instance.version = crate::version::Observed::from_report("v1.37.1");
        }
    });
    for _ in 0..10 {
        toy.tick();
    }
    assert_eq!(toy.claims.len(), 1, "{:?}", toy.log);
}

#[test]
fn nothing_begins_without_approval_and_the_hash_of_what_was_seen() {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.mode = ApprovalMode::RequireApproval;
    toy.run_to_the_end(30);
    assert_eq!(toy.phase(), UpgradePhase::AwaitingApproval);
    let hash = toy.status().hash.unwrap();
    let line = format!("to approve this plan, set spec.approval.planHash to \"{hash}\"");
    assert_eq!(toy.status().lines(), [line]);
    assert!(toy.log.is_empty());
    toy.upgrade.approved_hash = Some(hash.as_str().into());
    toy.upgrade.groups[0].max_unavailable = Amount::Count(9);
    toy.run_to_the_end(30);
    assert_eq!(toy.phase(), UpgradePhase::AwaitingApproval, "another plan than the approved one");
    let another = toy.status().hash.unwrap();
    assert_eq!(
        toy.status().lines(),
        [format!(
            "another plan is approved ({hash}): to approve this one, set spec.approval.planHash to \"{another}\""
        )]
    );
    toy.upgrade.groups[0].max_unavailable = Amount::Count(1);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn targets_that_are_refused() {
    for (target, line) in [
        (
            "v1.35.9",
            "v1.35.9 would be a downgrade: kube-apiserver cp-1 runs v1.36.4: choose a target that is not older",
        ),
        (
            "v1.36.4-rc.1",
            "v1.36.4-rc.1 would be a downgrade: kube-apiserver cp-1 runs v1.36.4: choose a target that is not older",
        ),
    ] {
        let mut toy = Toy::new(2, 1);
        toy.upgrade.version = target.parse().unwrap();
        toy.run_to_the_end(30);
        assert_eq!((toy.phase(), toy.status().message.as_str()), (UpgradePhase::PreflightFailed, line));
        assert!(toy.log.is_empty(), "nothing was touched");
    }
}

#[test]
fn a_plan_that_is_blocked_for_long_after_the_beginning_calls_for_a_person() {
    let mut toy = Toy::new(3, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1);
    // Somebody takes a kube-apiserver past the target.
    toy.cluster.change_instances(|instance| {
        if instance.component == Component::KubeApiserver {
            instance.version = Observed::from_report("v1.37.2");
        }
    });
    toy.run_until(600, |toy| toy.kubelets_in_flight() == 0);
    for _ in 0..60 {
        toy.tick();
    }
    assert!(!toy.phase().stalled() && !toy.status().waits.is_empty(), "{:?}", toy.status());
    toy.pass(15 * 60);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::PreflightFailed, "{status:?}");
    assert!(status.message.contains("would be a downgrade"), "{}", status.message);
    assert_eq!(status.waits[0].reason.ended_by(), EndedBy::Person);
    toy.is_told_by_the_next_leader();
    toy.cluster.change_instances(|instance| {
        if instance.component == Component::KubeApiserver {
            instance.version = Observed::from_report("v1.37.1");
        }
    });
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn a_failed_executor_stops_the_control_plane_and_parks_only_its_node() {
    let mut toy = Toy::new(3, 1);
    toy.broken = Some("n-2".to_owned());
    toy.run_to_the_end(3000);
    assert_eq!(toy.phase(), UpgradePhase::NodesFailed);
    let node = toy.world().cluster.node("n-2").unwrap().clone();
    assert!(node.unschedulable, "a half upgraded node stays cordoned, and the status names it");
    let seen = "not observed within 60 s (n-2: kubelet is at v1.36.4 still); the node stays cordoned";
    assert!(toy.status().parked[0].reason.contains(seen), "{:?}", toy.status().parked);

    let mut toy = Toy::new(3, 1);
    toy.broken = Some("cp-2".to_owned());
    toy.run_to_the_end(3000);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneFailed);
    assert!(toy.claims.iter().all(|c| c.subject.component == Component::KubeApiserver));
}

#[test]
fn cordons_of_deleted_claims_are_given_back() {
    let mut toy = Toy::new(2, 1);
    toy.deploy("slow", 2, 1);
    toy.lingers = 1000;
    toy.run_until(600, |toy| toy.claims.iter().any(|c| matches!(c.state, ClaimState::Draining { .. })));
    toy.claims.clear();
    let actions = orphans(&toy.cluster, &toy.claims, |_| false);
    assert!(matches!(actions.as_slice(), [Action::ReleaseOrphan { .. }]), "{actions:?}");
    assert!(orphans(&toy.cluster, &[], |_| true).is_empty(), "a claim that cannot be read exists");
}
