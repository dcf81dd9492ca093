//! Ends: what is deleted, changed, refused or broken on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::{Toy, Way};
use super::jobs::{message, with_job};
use crate::cluster::Component;
use crate::disruption::CordonMark;
use crate::drain::OnTimeout;
use crate::fixture::{at, pod};
use crate::rollout::leftovers::KEPT_UPGRADED;
use crate::rollout::{Action, ClaimState, JobState, UpgradePhase};
use crate::version::Observed;
use jiff::SignedDuration;

#[test]
fn a_claim_that_is_deleted_under_way_kills_nothing() {
    let mut toy = Toy::new(2, 1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| toy.kubelets("Upgrading") > 0);
    let of_node = |toy: &Toy| toy.claims.iter().position(crate::rollout::Claim::is_of_kubelet).unwrap();
    let at = of_node(&toy);
    toy.claims[at].ending = true;
    for _ in 0..30 {
        toy.tick();
        assert!(toy.cluster.node("n-1").unwrap().unschedulable, "it may be half upgraded");
    }
    assert_eq!(toy.kubelets("Upgrading"), 1, "its executor goes on: {:?}", toy.log);
    toy.run_until(200, |toy| toy.log.iter().any(|line| line == "HandOver n-1"));
    toy.run_until(5, |toy| !toy.claims.iter().any(|claim| *claim.subject.node == *"n-1"));
    let node = toy.cluster.node("n-1").unwrap();
    assert!(node.unschedulable && node.cordoned_by.is_none(), "the cordon is a person's now");
}

fn selects_all_but_the_first(toy: &mut Toy) {
    let label: BTreeMap<String, String> = [("takes-part".to_owned(), "yes".to_owned())].into();
    toy.cluster.change_node("n-2", |node| node.labels = Arc::new(label.clone()));
    toy.upgrade.groups[0].selector.match_labels = label;
}

#[test]
fn a_claim_that_is_deleted_after_the_end_goes() {
    let mut toy = Toy::new(2, 1);
    toy.run_to_the_end(600);
    toy.progress.completed = toy.status().completed;
    assert!(toy.progress.completed.is_some() && toy.claims.len() > 2, "{:?}", toy.log);
    toy.claims.iter_mut().for_each(|claim| claim.ending = true);
    (0..5).for_each(|_| toy.tick());
    assert_eq!((toy.claims.len(), toy.phase()), (0, UpgradePhase::Completed));
}

/// No group selects the node any more, so that the upgrade is complete without it.
#[test]
fn a_node_that_failed_and_was_taken_out_is_handed_over_when_its_claim_is_deleted() {
    let mut toy = Toy::new(2, 1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(900, |toy| toy.kubelets("Failed") == 1);
    selects_all_but_the_first(&mut toy);
    toy.run_to_the_end(600);
    toy.progress.completed = toy.status().completed;
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    let failed = |claim: &&mut crate::rollout::Claim| matches!(claim.state, ClaimState::Failed { .. });
    toy.claims.iter_mut().find(failed).unwrap().ending = true;
    (0..5).for_each(|_| toy.tick());
    let node = toy.cluster.node("n-1").unwrap();
    assert!(node.unschedulable && node.cordoned_by.is_none(), "the cordon is a person's now: {:?}", toy.log);
    assert_eq!(toy.kubelets("Failed"), 0);
}

/// A person labels it otherwise, or changes the selector.
#[test]
fn a_node_that_is_taken_out_while_it_drains_is_given_back() {
    for state in ["Claimed", "Draining"] {
        let mut toy = Toy::new(2, 1);
        toy.cluster.set_pod(pod("slow", 1, "n-1"));
        toy.lingers = 30;
        let node = |toy: &Toy| {
            let mut claims = toy.claims.iter().filter(|claim| claim.is_of_kubelet());
            claims.find(|claim| claim.state.name() == state && *claim.subject.node == *"n-1").is_some()
        };
        toy.run_until(600, node);
        selects_all_but_the_first(&mut toy);
        toy.run_to_the_end(300);
        let node = toy.cluster.node("n-1").unwrap();
        assert_eq!(
            (node.kubelet.to_string().as_str(), node.unschedulable),
            ("v1.36.4", false),
            "{state}: {:?}",
            toy.log
        );
    }
}

/// A toy whose first node failed while its Job goes on.
fn failed_beside_its_job() -> Toy {
    let mut toy = with_job(1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(900, |toy| toy.kubelets("Failed") == 1);
    assert!(toy.jobs.made.values().any(|job| *job == JobState::Running));
    toy
}

const STILL_RUNS: &str = "n-1: its Job still runs; NodeUpgrade up.kubelet.n-1 goes when the Job has ended";

#[test]
fn a_failed_claim_that_is_deleted_goes_when_its_job_has_ended() {
    // It ends, or a person deletes it.
    let ends: [fn(&mut Toy); 2] = [
        |toy| toy.jobs.made.values_mut().for_each(|job| *job = JobState::Failed("deadline".to_owned())),
        |toy| toy.jobs.made.clear(),
    ];
    for ended in ends {
        let mut toy = failed_beside_its_job();
        toy.claims.iter_mut().find(|claim| claim.is_of_kubelet()).unwrap().ending = true;
        (0..30).for_each(|_| toy.tick());
        assert_eq!(toy.kubelets("Failed"), 1, "{:?}", toy.log);
        let node = toy.cluster.node("n-1").unwrap();
        assert!(node.unschedulable && node.cordoned_by.is_some(), "{:?}", toy.log);
        let status = toy.status();
        assert_eq!(status.phase, UpgradePhase::NodesFailed);
        assert!(status.lines().iter().any(|line| line == STILL_RUNS), "{:?}", status.lines());
        ended(&mut toy);
        toy.run_until(5, |toy| toy.kubelets("Failed") == 0);
        let node = toy.cluster.node("n-1").unwrap();
        assert!(node.unschedulable && node.cordoned_by.is_none(), "the cordon is a person's now");
    }
}

#[test]
fn an_upgrade_that_is_deleted_goes_when_the_jobs_of_failed_claims_have_ended() {
    let mut toy = failed_beside_its_job();
    toy.progress.ending = true;
    (0..30).for_each(|_| toy.tick());
    assert_eq!((toy.kubelets("Failed"), toy.progress.protected), (1, true), "{:?}", toy.log);
    assert_eq!(toy.claims.len(), 1, "all others are gone");
    assert_eq!(toy.status().message, format!("was deleted; {STILL_RUNS}"));
    // Its upgrade is deleted by force: the claim goes as late.
    toy.claims[0].ending = true;
    let abandoned = |toy: &Toy| crate::rollout::abandoned(&toy.cluster, &toy.jobs, &toy.claims);
    assert_eq!(abandoned(&toy), []);
    toy.jobs.made.values_mut().for_each(|job| *job = JobState::Complete);
    assert!(matches!(abandoned(&toy).as_slice(), [Action::HandOver { .. }]));
    toy.run_until(5, |toy| !toy.progress.protected);
    assert!(toy.claims.is_empty() && toy.cluster.node("n-1").unwrap().unschedulable);
}

#[test]
fn a_failed_step_that_is_deleted_goes_when_its_job_has_ended() {
    let mut toy = Toy::kubeadm(2, 0);
    toy.way = Way::Hangs(2);
    toy.run_until(300, |toy| toy.state_of("cp-1") == "Failed");
    toy.delete("cp-1");
    (0..30).for_each(|_| toy.tick());
    assert_eq!((toy.state_of("cp-1"), toy.phase()), ("Failed", UpgradePhase::ControlPlaneFailed));
    let line = "cp-1: its Job still runs; NodeUpgrade up.control-plane.cp-1 goes when the Job has ended";
    assert!(toy.status().lines().iter().any(|said| said == line), "{:?}", toy.status().lines());
    toy.way = Way::Good;
    toy.jobs.made.clear();
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

/// Nobody hears what somebody else does, so nothing is waited for.
#[test]
fn a_failed_claim_without_a_job_goes_at_once() {
    let mut toy = Toy::new(1, 1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(900, |toy| toy.kubelets("Failed") == 1);
    toy.progress.ending = true;
    toy.run_until(5, |toy| !toy.progress.protected);
}

#[test]
fn a_node_that_somebody_uncordoned_is_not_cordoned_when_its_claim_goes() {
    let mut toy = Toy::new(2, 1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(3000, |toy| toy.kubelets("Failed") > 0);
    toy.cluster.change_node("n-1", |node| (node.unschedulable, node.held) = (false, true));
    let at = toy.claims.iter().position(|claim| *claim.subject.node == *"n-1").unwrap();
    toy.claims[at].ending = true;
    toy.run_until(30, |toy| !toy.claims.iter().any(|claim| *claim.subject.node == *"n-1"));
    let node = toy.cluster.node("n-1").unwrap();
    assert!(!node.unschedulable && node.cordoned_by.is_none(), "{:?}", toy.log);
}

#[test]
fn an_upgrade_that_is_deleted_goes_when_what_is_in_flight_has_settled() {
    let mut toy = Toy::new(4, 2);
    toy.deploy("slow", 1, 0);
    toy.lingers = 1000;
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0 && toy.kubelets("Upgrading") > 0);
    toy.progress.ending = true;
    assert_eq!(toy.phase(), UpgradePhase::Deleting);
    toy.run_until(60, |toy| !toy.progress.protected);
    assert!(toy.claims.is_empty(), "{:?}", toy.claims);
    let cordoned = |toy: &Toy| toy.cluster.nodes().iter().filter(|node| node.unschedulable).count();
    assert_eq!(cordoned(&toy), 0, "every node was given back: {:?}", toy.log);
    let upgraded = toy.cluster.nodes().iter().filter(|n| n.kubelet.to_string() == "v1.37.1").count();
    assert!(upgraded >= 1, "what was being upgraded was finished");
}

#[test]
fn an_upgrade_that_is_deleted_lets_a_server_that_is_being_replaced_come_back() {
    let mut toy = Toy::new(1, 1);
    toy.broken = Some("cp-1".to_owned());
    toy.run_until(60, |toy| toy.claims.iter().any(|c| c.state.name() == "Upgrading"));
    toy.progress.ending = true;
    for _ in 0..10 {
        toy.tick();
    }
    assert_eq!((toy.claims.len(), toy.progress.protected), (1, true), "{:?}", toy.log);
    toy.broken = None;
    toy.run_until(10, |toy| !toy.progress.protected);
    assert!(toy.claims.is_empty());
}

#[test]
fn another_version_on_an_upgrade_with_finished_claims_goes_on() {
    let mut toy = Toy::new(2, 1);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
    toy.upgrade.version = "v1.37.2".parse().unwrap();
    (toy.progress.started, toy.progress.completed, toy.progress.from) = (None, None, None);
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    assert!(toy.cluster.nodes().iter().all(|node| node.kubelet.to_string() == "v1.37.2"));
}

#[test]
fn another_version_lets_go_of_a_node_that_is_parked_for_hours() {
    let mut toy = Toy::new(1, 1);
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    let since = toy.world().now;
    let parked = ClaimState::Parked { since, retry_at: at(toy.seconds + 20_000), for_a_person: false };
    toy.claims.iter_mut().find(|claim| claim.is_of_kubelet()).unwrap().state = parked;
    toy.upgrade.version = "v1.37.2".parse().unwrap();
    toy.run_until(5, |toy| toy.claims.iter().all(|claim| !claim.is_of_kubelet()));
    assert!(!toy.cluster.node("n-1").unwrap().unschedulable);
}

#[test]
fn a_persons_drain_on_a_node_at_the_target_does_not_keep_the_upgrade_from_its_end() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1);
    let done = toy.cluster.nodes().iter().find(|n| n.kubelet.to_string() == "v1.37.1").unwrap().name.clone();
    let mark = CordonMark::of_drain(at(0), "ann");
    toy.cluster.change_node(&done, |node| node.cordoned_by = Some(mark.into()));
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_stalled_node_does_not_wait_its_whole_timeout() {
    let mut toy = Toy::new(1, 1);
    toy.upgrade.drain.timeout = SignedDuration::from_hours(1);
    toy.absent = 1;
    toy.deploy("cart", 1, 1);
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    // Now nothing will bring the other replica back.
    toy.absent = 0;
    let since = toy.world().now;
    toy.run_until(120, |toy| toy.kubelets("Parked") > 0);
    let took = toy.world().now.duration_since(since).as_secs();
    assert!((30..60).contains(&took), "{took} s");
    assert!(message(&toy, "n-1").contains("can never allow an eviction"), "{}", message(&toy, "n-1"));
}

#[test]
fn nothing_begins_before_the_upgrade_has_our_finalizer() {
    let mut toy = Toy::new(1, 1);
    toy.progress.protected = false;
    let decision = toy.decided();
    assert_eq!(decision.actions, [crate::rollout::Action::Protect]);
    toy.run_until(20, |toy| !toy.claims.is_empty());
    assert!(matches!(toy.claims[0].state, ClaimState::Claimed | ClaimState::Upgrading { .. }));
}

/// A toy whose executor never comes to the one kubelet, two seconds before that claim's deadline.
fn nearly_late() -> Toy {
    let mut toy = Toy::new(1, 1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| toy.kubelets("Upgrading") > 0);
    toy.pass(58);
    assert_eq!(toy.kubelets("Upgrading"), 1);
    toy
}

#[test]
fn no_claim_fails_by_its_deadline_before_its_node_was_read_afresh() {
    let mut toy = nearly_late();
    toy.pass(5);
    let decision = toy.decided();
    assert!(decision.actions.iter().all(|action| !matches!(action, Action::Record { .. })));
    assert!(
        decision.actions.contains(&Action::Reread { node: "n-1".into(), job: None }),
        "{:?}",
        decision.actions
    );
    // The read finds what the watch has lost: the executor did its work.
    let mut found = nearly_late();
    found.pass(5);
    found.cluster.change_node("n-1", |node| node.kubelet = Observed::from_report("v1.37.1"));
    found.run_until(60, |toy| toy.kubelets("Upgraded") == 1);
    // It finds what was known.
    toy.run_until(20, |toy| toy.kubelets("Failed") == 1);
    let of = |word: &str| toy.log.iter().position(|line| line.contains(word));
    assert!(of("Reread n-1") < of("Failed"), "{:?}", toy.log);
}

#[test]
fn a_deadline_that_passes_while_nothing_is_seen_is_judged_a_minute_later() {
    let mut toy = nearly_late();
    toy.pass(600);
    toy.freshness.unbroken_since = at(toy.seconds);
    let decision = toy.decided();
    assert!(decision.actions.iter().all(|action| !matches!(action, Action::Reread { .. })), "not yet");
    assert_eq!(decision.again_at.map(|again| again <= at(toy.seconds + 60)), Some(true));
    let seen = toy.seconds;
    toy.run_until(90, |toy| toy.kubelets("Failed") == 1);
    assert!(toy.seconds >= seen + 60, "{} s later", toy.seconds - seen);
}

#[test]
fn a_finished_claim_that_is_on_its_way_out_is_released_once() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1);
    let done = toy.claims.iter().find(|claim| claim.is_of_kubelet() && claim.state.name() == "Upgraded");
    let done = done.cloned().unwrap();
    for number in 0..KEPT_UPGRADED {
        let mut other = done.clone();
        (other.name, other.uid) =
            (format!("up.kubelet.gone-{number}").into(), format!("gone-{number}").into());
        other.subject.node = format!("gone-{number}").into();
        (other.subject.node_uid, other.state) = (other.uid.clone(), ClaimState::Upgraded { at: at(0) });
        other.ending = number == 0;
        toy.claims.push(other);
    }
    let actions = toy.decided().actions;
    let of_it = |action: &&Action| matches!(action, Action::Release { uid, .. } if **uid == *"gone-0");
    assert_eq!(actions.iter().filter(of_it).count(), 1, "{actions:?}");
}

#[test]
fn the_claims_of_the_control_plane_are_not_forgotten_however_many_nodes_are_done() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1);
    let done = toy.claims.iter().find(|claim| claim.is_of_kubelet() && claim.state.name() == "Upgraded");
    let done = done.cloned().unwrap();
    for number in 0..KEPT_UPGRADED + 20 {
        let (mut other, name) = (done.clone(), format!("more-{number}"));
        toy.cluster.set_node(crate::fixture::node(&name, "v1.37.1"));
        (other.name, other.uid) = (format!("up.kubelet.{name}").into(), format!("uid-of-{name}").into());
        (other.subject.node_uid, other.subject.node) = (format!("uid-{name}").into(), name.into());
        other.state = ClaimState::Upgraded { at: toy.world().now };
        toy.claims.push(other);
    }
    let of_plane = |toy: &Toy| toy.claims.iter().filter(|claim| !claim.is_of_kubelet()).count();
    let before = of_plane(&toy);
    toy.run_to_the_end(300);
    (0..3).for_each(|_| toy.tick());
    assert_eq!((toy.kubelets("Upgraded"), of_plane(&toy)), (KEPT_UPGRADED, before), "{:?}", toy.log);
    // So one that somebody takes back is named and not fought.
    toy.progress.completed = None;
    toy.cluster.change_instances(|instance| {
        if (instance.component, &*instance.name) == (Component::KubeApiserver, "cp-1") {
            instance.version = Observed::from_report("v1.36.4");
        }
    });
    toy.run_to_the_end(200);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld, "{:?}", toy.status());
}

/// Nothing is written any more once an upgrade is complete: whatever its claims have to say is said before.
#[test]
fn an_upgrade_is_complete_when_all_of_its_claims_say_so() {
    let fails = |toy: &mut Toy| {
        toy.broken = Some("n-1".to_owned());
        "Failed"
    };
    let parks = |toy: &mut Toy| {
        (toy.absent, toy.upgrade.drain.on_timeout) = (1, OnTimeout::Halt);
        toy.deploy("frozen", 1, 1);
        "Parked"
    };
    for out in [fails as fn(&mut Toy) -> &'static str, parks] {
        let mut toy = Toy::new(1, 1);
        let state = out(&mut toy);
        toy.run_until(3000, |toy| toy.kubelets(state) == 1);
        toy.cluster.change_node("n-1", |node| {
            (node.kubelet, node.ready) = (Observed::Known("v1.37.1".parse().unwrap()), false);
        });
        for _ in 0..5 {
            toy.tick();
            assert_ne!(toy.phase(), UpgradePhase::Completed, "a node that is not ready is not upgraded");
        }
        toy.cluster.change_node("n-1", |node| node.ready = true);
        toy.run_until(100, |toy| toy.phase() == UpgradePhase::Completed);
        assert_eq!(toy.kubelets("Upgraded"), 1, "{:?}", toy.log);
    }
}
