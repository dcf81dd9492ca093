//! Jobs that the server is asked about before anything begins.

use jiff::SignedDuration;

use super::super::*;
use super::cluster::Toy;
use crate::cluster::Selector;
use crate::fixture::at;
use crate::upgrade::{Amount, ApprovalMode, Executor, NodeGroup};
use crate::version::Observed;

/// The nodes move by a Job.
fn by_job() -> Toy {
    let mut toy = Toy::new(2, 1);
    let deadline = SignedDuration::from_mins(5);
    toy.upgrade.executors.insert("job".into(), Executor::Job { template: "{}".into(), deadline });
    toy.upgrade.groups[0].executor = "job".into();
    toy
}

/// The nodes move by a Job that the server refuses, and nobody has approved it yet.
fn unapproved() -> Toy {
    let mut toy = by_job();
    toy.upgrade.mode = ApprovalMode::RequireApproval;
    toy.refuses = Some("exceeded quota".to_owned());
    toy
}

/// What is told of refused Jobs with the plan.
fn refused(toy: &Toy) -> Vec<crate::plan::PlanFinding> {
    refused_jobs(&toy.upgrade, &toy.jobs, at(toy.seconds))
}

#[test]
fn what_the_server_would_refuse_is_found_before_the_approval() {
    let mut toy = unapproved();
    toy.run_until(5, |toy| toy.tries == 1);
    let found = refused(&toy);
    let found: Vec<String> = found.iter().map(|finding| format!("{} {}", finding.id, finding.what)).collect();
    assert_eq!(found, ["E2/job executor job: the server would refuse its Job: exceeded quota"]);
    assert_eq!(toy.phase(), UpgradePhase::AwaitingApproval);
    // A person mends it, and nobody has to ask.
    toy.refuses = None;
    toy.run_until(20, |toy| refused(toy).is_empty());
    assert_eq!((toy.tries, toy.log.len()), (2, 0), "{:?}", toy.log);
    // What was taken is not asked about again.
    (0..60).for_each(|_| toy.tick());
    assert_eq!(toy.tries, 2);
}

#[test]
fn what_the_server_refuses_again_is_for_a_person() {
    let mut toy = unapproved();
    toy.upgrade.mode = ApprovalMode::Automatic;
    toy.run_until(5, |toy| toy.tries == 1);
    let line = "executor job: the server would refuse its Job (asked every 15 s): exceeded quota";
    let once = toy.status();
    assert_eq!((once.phase.stalled(), once.lines()), (false, vec![line.to_owned()]));
    assert_eq!(once.waits[0].reason, WaitReason::JobRefused);
    toy.run_until(30, |toy| toy.tries == 2);
    let twice = toy.status();
    assert_eq!((twice.phase, twice.message.as_str()), (UpgradePhase::WritesRefused, line));
    assert_eq!(twice.waits[0].reason, WaitReason::Upgrade(UpgradePhase::WritesRefused));
    toy.refuses = None;
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

/// What it would have moved is at the target, or in another group, and the server still refuses its Job.
#[test]
fn what_is_refused_to_an_executor_that_nothing_uses_any_more_stops_nothing() {
    let is_refused = |toy: &mut Toy| {
        toy.refuses = Some("exceeded quota".to_owned());
        toy.run_until(60, |toy| toy.phase() == UpgradePhase::WritesRefused);
    };
    // Somebody moves the control plane by hand.
    let mut plane = Toy::kubeadm(2, 1);
    is_refused(&mut plane);
    plane.cluster.change_instances(|instance| instance.version = Observed::from_report("v1.37.1"));
    // Somebody takes the only node out of the group whose executor is refused.
    let mut group = by_job();
    let pool = [("pool".to_owned(), "a".to_owned())];
    group.cluster.change_node("n-1", |node| node.labels = std::sync::Arc::new(pool.clone().into()));
    group.upgrade.groups[0].selector = Selector { match_labels: pool.into(), ..Selector::default() };
    group.upgrade.groups.push(NodeGroup::new("b", Selector::default(), "external"));
    is_refused(&mut group);
    group.cluster.change_node("n-1", |node| node.labels = std::sync::Arc::default());
    for mut toy in [plane, group] {
        toy.run_to_the_end(900);
        assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
        toy.pass(60);
        assert!(refused(&toy).is_empty(), "it was not asked about for long");
    }
}

#[test]
fn what_was_refused_before_a_clock_was_set_back_is_asked_about_at_once() {
    let mut toy = unapproved();
    toy.run_until(5, |toy| toy.tries == 1);
    toy.pass(-3600);
    toy.refuses = None;
    toy.run_until(3, |toy| toy.tries == 2);
}

/// It is busy, or a webhook fails in a way that does not tell whether it will again.
#[test]
fn a_server_that_does_not_say_whether_it_would_take_a_job_is_told_of() {
    let mut toy = by_job();
    let fails = |toy: &mut Toy| {
        toy.jobs.was_not_answered("job".into(), "too many requests (HTTP 429)".to_owned(), at(toy.seconds));
    };
    assert!(toy.status().waits.is_empty(), "it answers in a moment: {:?}", toy.status());
    fails(&mut toy);
    let line = "executor job: nothing begins until the server says whether it would take its Job (asked at least \
                every 15 s): too many requests (HTTP 429)";
    let once = toy.status();
    assert_eq!((once.phase.stalled(), once.lines()), (false, vec![line.to_owned()]));
    assert_eq!(once.waits[0].reason, WaitReason::ReadingAgain);
    // Nobody asked for a while: counting begins anew.
    toy.pass(3600);
    fails(&mut toy);
    assert!(!toy.phase().stalled());
    for _ in 0..60 {
        toy.pass(15);
        fails(&mut toy);
    }
    let lasts = toy.status();
    assert_eq!((lasts.phase, lasts.message.as_str()), (UpgradePhase::WritesRefused, line));
    assert_eq!(lasts.waits[0].reason.ended_by(), EndedBy::Person);
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn what_else_is_in_the_way_is_told_before_a_server_that_does_not_answer_about_a_job() {
    let mut toy = by_job();
    toy.cluster.change_instances(|instance| instance.ready = *instance.name != *"cp-2");
    toy.jobs.was_not_answered("job".into(), "HTTP 503".to_owned(), at(toy.seconds));
    let said = toy.status().message;
    assert!(said.contains("waits until kube-apiserver cp-2 is ready"), "{said}");
}

/// Its quota is used up, or a policy came, after the upgrade began.
#[test]
fn no_further_node_begins_when_the_server_refuses_a_job_that_it_would_have_taken() {
    let mut toy = by_job();
    toy.run_until(300, |toy| toy.kubelets("Draining") == 1);
    (toy.refuses, toy.broken) = (Some("exceeded quota".to_owned()), Some("n-1".to_owned()));
    toy.run_until(60, |toy| !toy.jobs.refused.is_empty());
    toy.upgrade.groups[0].max_unavailable = Amount::Count(2);
    toy.allow(2);
    toy.run_until(600, |toy| toy.kubelets("Failed") == 1);
    let sent = toy.log.iter().filter(|line| *line == "StartJob up.kubelet.n-1").count();
    assert!(
        (2..12).contains(&sent),
        "it is sent every fifteen seconds for two minutes, not at every look: {sent}"
    );
    (0..300).for_each(|_| toy.tick());
    let of_nodes = |toy: &Toy| toy.claims.iter().filter(|claim| claim.is_of_kubelet()).count();
    assert_eq!((of_nodes(&toy), toy.phase()), (1, UpgradePhase::WritesRefused), "{:?}", toy.log);
    toy.refuses = None;
    toy.run_until(60, |toy| of_nodes(toy) == 2);
}

#[test]
fn a_changed_template_is_asked_about_again_and_a_suspended_upgrade_asks_nothing() {
    let mut toy = unapproved();
    toy.upgrade.suspended = true;
    (0..30).for_each(|_| toy.tick());
    assert_eq!(toy.tries, 0);
    toy.upgrade.suspended = false;
    toy.tick();
    let deadline = SignedDuration::from_mins(5);
    toy.upgrade.executors.insert("job".into(), Executor::Job { template: "{\"a\":1}".into(), deadline });
    assert!(refused(&toy).is_empty(), "that one was refused, not this one");
    toy.tick();
    assert_eq!((toy.tries, refused(&toy).len()), (2, 1));
}

#[test]
fn a_server_that_is_away_is_told_of_while_a_new_leader_asks_about_jobs() {
    let mut toy = by_job();
    toy.cluster.change_instances(|instance| instance.ready = *instance.name != *"cp-2");
    (0..30).for_each(|_| toy.tick());
    let said = toy.status();
    assert!(said.message.contains("waits until kube-apiserver cp-2 is ready"), "{}", said.message);
    toy.jobs = Jobs::default();
    assert_eq!(toy.status().message, said.message);
    // Nothing is opened before the answers.
    let mut toy = unapproved();
    toy.upgrade.mode = ApprovalMode::Automatic;
    toy.refuses = None;
    assert_eq!(toy.tries, 0);
    toy.tick();
    assert_eq!((toy.tries, toy.claims.len()), (1, 0), "{:?}", toy.log);
}

#[test]
fn nodes_that_a_person_holds_stay_so_while_a_new_leader_asks_about_jobs() {
    let mut toy = by_job();
    toy.cluster.change_node("n-1", |node| node.unschedulable = true);
    toy.run_to_the_end(3000);
    assert_eq!(toy.phase(), UpgradePhase::NodesHeld, "{:?}", toy.log);
    toy.jobs = Jobs::default();
    assert_eq!(toy.phase(), UpgradePhase::NodesHeld);
    toy.tick();
    assert_eq!((toy.phase(), toy.tries), (UpgradePhase::NodesHeld, 2));
}

#[test]
fn a_control_plane_that_failed_stays_so_while_a_new_leader_asks_about_jobs() {
    let mut toy = by_job();
    toy.broken = Some("cp-2".to_owned());
    toy.run_to_the_end(3000);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneFailed);
    let tries = toy.tries;
    toy.jobs = Jobs::default();
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneFailed, "a person is needed as before");
    toy.tick();
    assert_eq!(toy.tries, tries + 1);
}
