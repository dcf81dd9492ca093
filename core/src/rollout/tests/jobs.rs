//! Jobs of executors: what the server refuses, what becomes of their pods, and how long they have.

use std::sync::Arc;

use super::cluster::Toy;
use crate::cluster::{Owner, Pod, Traits};
use crate::fixture::{at, pod};
use crate::rollout::leftovers::KEPT_UPGRADED;
use crate::rollout::{Action, ClaimState, JobState, UpgradePhase, WaitReason};
use crate::upgrade::{Amount, Executor};
use crate::version::Observed;
use jiff::SignedDuration;

pub(super) fn with_job(nodes: usize) -> Toy {
    let mut toy = Toy::new(nodes, 1);
    let deadline = SignedDuration::from_mins(5);
    toy.upgrade.executors.insert("job".into(), Executor::Job { template: "{}".into(), deadline });
    toy.upgrade.groups[0].executor = "job".into();
    toy
}

fn job_pod() -> Pod {
    Pod { namespace: "executors".into(), ..pod("job", 1, "n-1") }
}

pub(super) fn message(toy: &Toy, node: &str) -> String {
    let of = toy.claims.iter().find(|claim| claim.is_of_kubelet() && *claim.subject.node == *node);
    of.map(|claim| claim.message.clone()).unwrap_or_default()
}

#[test]
fn a_job_that_the_server_would_refuse_lets_nothing_begin() {
    let mut toy = with_job(2);
    toy.refuses = Some("jobs is forbidden".to_owned());
    toy.run_to_the_end(300);
    assert_eq!(toy.log, [""; 0], "no component of the control plane either");
    let message = toy.status().message;
    assert_eq!(
        message,
        "executor job: the server would refuse its Job (asked every 15 s): jobs is forbidden"
    );
    toy.refuses = None;
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
}

#[test]
fn a_job_that_is_refused_later_is_told_and_then_failed() {
    let mut toy = with_job(1);
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    (toy.refuses, toy.broken) = (Some("exceeded quota".to_owned()), Some("n-1".to_owned()));
    toy.run_until(60, |toy| message(toy, "n-1") == "its Job is refused: exceeded quota");
    assert_eq!(toy.kubelets("Upgrading"), 1);
    toy.run_until(200, |toy| toy.kubelets("Failed") == 1);
    assert!(
        message(&toy, "n-1").starts_with("its Job is refused: exceeded quota"),
        "{}",
        message(&toy, "n-1")
    );
}

/// What the server says of the Job counts from when it says so, not from when the node was given to its executor: somebody
/// may delete the Job, and the operator may be away.
#[test]
fn a_job_fails_two_minutes_after_it_is_refused_for_the_first_time() {
    let mut toy = with_job(1);
    let deadline = SignedDuration::from_hours(1);
    toy.upgrade.executors.insert("job".into(), Executor::Job { template: "{}".into(), deadline });
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    toy.pass(600);
    toy.jobs.made.clear();
    toy.refuses = Some("exceeded quota".to_owned());
    let refused = "its Job is refused: exceeded quota";
    toy.run_until(10, |toy| message(toy, "n-1") == refused);
    (0..100).for_each(|_| toy.tick());
    assert_eq!((toy.kubelets("Upgrading"), message(&toy, "n-1").as_str()), (1, refused));
    let until = |toy: &Toy| toy.status().waits.iter().find_map(|of| of.until);
    assert!(until(&toy).is_some(), "it says until when it is asked: {:?}", toy.status().waits);
    // Nobody asked for a while: counting begins anew.
    toy.pass(300);
    (0..100).for_each(|_| toy.tick());
    assert_eq!(toy.kubelets("Upgrading"), 1, "{}", message(&toy, "n-1"));
    toy.run_until(30, |toy| toy.kubelets("Failed") == 1);
    assert!(message(&toy, "n-1").starts_with(refused), "{}", message(&toy, "n-1"));
}

#[test]
fn a_job_that_was_refused_before_a_clock_was_set_back_is_sent_at_once() {
    let mut toy = with_job(1);
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    toy.refuses = Some("exceeded quota".to_owned());
    toy.run_until(60, |toy| !toy.jobs.refused.is_empty());
    toy.pass(-3600);
    toy.refuses = None;
    toy.run_until(3, |toy| !toy.jobs.made.is_empty());
}

#[test]
fn a_job_that_is_refused_at_its_deadline_says_so() {
    let mut toy = with_job(1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    toy.pass(240);
    toy.jobs.made.clear();
    toy.refuses = Some("exceeded quota".to_owned());
    toy.run_until(100, |toy| toy.kubelets("Failed") == 1);
    let line = "was not observed within 300 s: its Job is refused: exceeded quota";
    assert!(message(&toy, "n-1").contains(line), "{}", message(&toy, "n-1"));
}

#[test]
fn a_job_has_until_its_deadline_and_is_never_run_again_after_it() {
    let mut toy = with_job(1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| toy.kubelets("Upgrading") > 0);
    // It exits with 0, and the version is what it was.
    let key = toy.jobs.made.keys().next().cloned();
    toy.run_until(20, |toy| !toy.jobs.made.is_empty());
    let key = key.or_else(|| toy.jobs.made.keys().next().cloned()).unwrap();
    toy.jobs.made.insert(key.clone(), JobState::Complete);
    toy.run_until(400, |toy| toy.kubelets("Failed") == 1);
    assert!(
        message(&toy, "n-1").contains("was not observed within 300 s: its Job is complete"),
        "{}",
        message(&toy, "n-1")
    );
    // The server cleans it up: that starts nothing.
    toy.jobs.made.clear();
    let started = toy.log.iter().filter(|line| line.starts_with("StartJob")).count();
    for _ in 0..400 {
        toy.tick();
    }
    assert_eq!(toy.log.iter().filter(|line| line.starts_with("StartJob")).count(), started);
}

#[test]
fn a_job_of_the_control_plane_is_tried_and_its_refusal_is_told_too() {
    let with_job = || {
        let mut toy = with_job(1);
        toy.upgrade.control_plane.executor = "job".into();
        toy
    };
    let mut toy = with_job();
    toy.refuses = Some("jobs is forbidden".to_owned());
    toy.run_to_the_end(60);
    assert!(toy.claims.is_empty(), "{:?}", toy.log);
    let mut toy = with_job();
    toy.run_until(60, |toy| !toy.claims.is_empty());
    (toy.refuses, toy.broken) = (Some("exceeded quota".to_owned()), Some("cp-1".to_owned()));
    toy.run_until(60, |toy| toy.claims[0].message == "its Job is refused: exceeded quota");
    assert_eq!(toy.claims[0].state.name(), "Upgrading");
    toy.run_until(200, |toy| toy.claims[0].state.name() == "Failed");
}

#[test]
fn a_job_whose_image_never_comes_fails_by_its_deadline_and_says_why() {
    let mut toy = with_job(1);
    toy.broken = Some("n-1".to_owned());
    toy.podless = true;
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    toy.stays_unready = true;
    let of = toy.claims.iter().find(|claim| claim.is_of_kubelet()).map(|claim| claim.uid.clone());
    let waiting = Some("ImagePullBackOff".into());
    let traits = Traits { executor_of: of, waiting, ..Traits::default() };
    toy.cluster.set_pod(Pod { ready: false, special: Some(Arc::new(traits)), ..job_pod() });
    toy.run_until(400, |toy| toy.kubelets("Failed") == 1);
    let message = message(&toy, "n-1");
    let line = "was not observed within 300 s: its pod executors/job-1 waits: ImagePullBackOff";
    assert!(message.contains(line), "{message}");
}

/// A quota or a policy may refuse the pod of a Job that was taken. Only an event of the Job says so.
#[test]
fn a_job_that_gets_no_pod_is_told_long_before_its_deadline() {
    let mut toy = with_job(1);
    (toy.podless, toy.broken) = (true, Some("n-1".to_owned()));
    let line = "its Job gets no pod; kubectl -n executors describe jobs says why";
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    assert!(!toy.status().lines()[0].contains(line), "it may come in a moment: {:?}", toy.status().lines());
    toy.run_until(70, |toy| message(toy, "n-1") == line);
    let refused = |toy: &Toy| toy.status().waits.iter().any(|of| of.reason == WaitReason::JobRefused);
    assert!(refused(&toy), "{:?}", toy.status().waits);
    // Mended, it goes on; else the claim says so at its end.
    toy.run_until(400, |toy| toy.kubelets("Failed") == 1);
    let message = message(&toy, "n-1");
    assert!(message.contains(&format!("was not observed within 300 s: {line}")), "{message}");
}

/// A watch tells of a new pod a moment later.
#[test]
fn a_job_whose_pod_is_made_anew_is_not_said_to_get_none() {
    let mut toy = with_job(1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    (0..90).for_each(|_| toy.tick());
    toy.podless = true;
    (0..50).for_each(|_| toy.tick());
    let told = |toy: &Toy| toy.status().waits.iter().any(|of| of.reason == WaitReason::JobRefused);
    assert!(!told(&toy), "{:?}", toy.status().waits);
    toy.run_until(20, told);
}

/// Its pod has its grace period, and a second executor beside it would be one too many.
#[test]
fn a_job_that_is_deleted_is_made_again_when_its_pod_has_ended() {
    let mut toy = with_job(1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    let begun = |toy: &Toy| toy.log.iter().filter(|line| line.starts_with("StartJob")).count();
    let of = toy.claims.iter().find(|claim| claim.is_of_kubelet()).map(|claim| claim.uid.clone());
    let traits = Traits { executor_of: of, ..Traits::default() };
    let old = Pod { special: Some(Arc::new(traits)), ..job_pod() };
    toy.cluster.set_pod(Pod { namespace: "shop".into(), ..old.clone() });
    toy.cluster.set_pod(old);
    toy.jobs.made.clear();
    for _ in 0..20 {
        toy.tick();
    }
    assert_eq!(begun(&toy), 1, "{:?}", toy.log);
    let line = "its Job was deleted, and is made again when its pod executors/job-1 has ended";
    assert!(toy.status().lines()[0].ends_with(line), "{:?}", toy.status().lines());
    // Observed meanwhile, the node is not given back beside it either.
    let before = toy.cluster.node("n-1").cloned();
    toy.cluster.change_node("n-1", |node| {
        (node.kubelet, node.heartbeat) = (Observed::Known("v1.37.1".parse().unwrap()), Some(at(toy.seconds)));
    });
    toy.tick();
    assert_eq!(toy.kubelets("Upgrading"), 1);
    toy.cluster.set_node(before.unwrap());
    toy.cluster.retain_pods(|pod| &*pod.namespace != "executors");
    toy.tick();
    assert_eq!(begun(&toy), 2, "somebody else's pod has the same label: {:?}", toy.log);
}

#[test]
fn what_the_pod_of_a_job_said_at_its_end_is_told() {
    let mut toy = with_job(1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    toy.stays_unready = true;
    let of = toy.claims.iter().find(|claim| claim.is_of_kubelet()).map(|claim| claim.uid.clone());
    let last_words = Some("error: cgroup v1".into());
    let traits = Traits { executor_of: of, last_words, ..Traits::default() };
    toy.cluster.set_pod(Pod { ready: false, special: Some(Arc::new(traits)), ..job_pod() });
    toy.tick();
    let waits = toy.status().lines();
    let line = "; its pod executors/job-1 said: error: cgroup v1";
    assert!(waits.iter().any(|wait| wait.ends_with(line)), "{waits:?}");
    let job = toy.jobs.made.keys().next().cloned().unwrap();
    toy.jobs.made.insert(job, crate::rollout::JobState::Failed("BackoffLimitExceeded".to_owned()));
    toy.run_until(10, |toy| toy.kubelets("Failed") == 1);
    let told = "its Job failed: BackoffLimitExceeded; its pod executors/job-1 said: error: cgroup v1";
    assert!(message(&toy, "n-1").starts_with(told), "{}", message(&toy, "n-1"));
}

#[test]
fn a_job_that_was_cleaned_up_while_nobody_looked_is_not_run_again() {
    let mut toy = with_job(1);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    toy.pass(200_000);
    toy.jobs.made.clear();
    toy.run_until(200, |toy| toy.kubelets("Failed") == 1);
    assert_eq!(toy.log.iter().filter(|line| line.starts_with("StartJob")).count(), 1, "{:?}", toy.log);
}

fn of_daemon_set(name: &str, ready: bool) -> Pod {
    let owner = Owner {
        api_version: "apps/v1".into(),
        kind: "DaemonSet".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
    };
    Pod { owner: Some(Arc::new(owner)), ready, ..pod(name, 1, "n-1") }
}

#[test]
fn a_daemon_set_that_was_broken_before_holds_nobody_up() {
    let ends_at = |was_ready: bool| {
        let mut toy = Toy::new(1, 1);
        toy.stays_unready = !was_ready;
        toy.cluster.set_pod(of_daemon_set("logs", was_ready));
        toy.run_until(600, |toy| toy.kubelets("Upgrading") > 0);
        toy.stays_unready = true;
        toy.cluster.set_pod(of_daemon_set("logs", false));
        toy.run_to_the_end(300);
        toy.phase()
    };
    assert_eq!(ends_at(false), UpgradePhase::Completed);
    assert_eq!(
        ends_at(true),
        UpgradePhase::NodesFailed,
        "one that the upgrade broke is waited for, until the deadline"
    );
}

/// A node that is at the target after all, whose claim failed, waits for no more than one that comes there in time.
#[test]
fn a_failed_node_waits_for_no_daemon_set_that_was_broken_before() {
    let mut toy = with_job(1);
    (toy.stays_unready, toy.broken) = (true, Some("n-1".to_owned()));
    toy.cluster.set_pod(of_daemon_set("logs", false));
    toy.run_until(900, |toy| toy.kubelets("Failed") == 1);
    toy.cluster.set_pod(of_daemon_set("net", false));
    toy.jobs.made.values_mut().for_each(|job| *job = JobState::Complete);
    let now = at(toy.seconds);
    toy.cluster.change_node("n-1", |node| {
        (node.kubelet, node.heartbeat) = (Observed::Known("v1.37.1".parse().unwrap()), Some(now));
    });
    (0..5).for_each(|_| toy.tick());
    let line = "n-1: observed at v1.37.1 after all, but DaemonSet pod shop/net-1 is not ready";
    let status = toy.status();
    assert_eq!((status.phase, status.message.as_str()), (UpgradePhase::NodesFailed, line));
    assert!(toy.cluster.node("n-1").unwrap().unschedulable);
    toy.cluster.set_pod(of_daemon_set("net", true));
    toy.run_until(10, |toy| toy.phase() == UpgradePhase::Completed);
    assert!(!toy.cluster.node("n-1").unwrap().unschedulable);
}

/// The claim owns the Job, so that the server would kill it with the claim.
#[test]
fn a_finished_claim_is_not_forgotten_while_its_job_still_runs() {
    let forgotten = |goes_on: bool| {
        let nodes = KEPT_UPGRADED + 3;
        let mut toy = with_job(nodes);
        toy.upgrade.groups[0].max_unavailable = Amount::Count(nodes);
        toy.allow(nodes);
        toy.run_until(2000, |toy| toy.kubelets("Upgraded") == nodes);
        if goes_on {
            // It was away when its claim ended, and is seen again.
            toy.jobs.made.values_mut().for_each(|job| *job = JobState::Running);
        }
        toy.tick();
        nodes - toy.kubelets("Upgraded")
    };
    assert_eq!((forgotten(false), forgotten(true)), (3, 0));
}

#[test]
fn a_node_is_not_given_back_while_its_job_runs() {
    let mut toy = with_job(2);
    toy.goes_on = true;
    toy.run_until(600, |toy| toy.cluster.node("n-1").unwrap().kubelet.to_string() == "v1.37.1");
    for _ in 0..60 {
        toy.tick();
    }
    assert!(toy.cluster.node("n-1").unwrap().unschedulable, "{:?}", toy.log);
    let line = "kubelet on n-1 from v1.36.4 to v1.37.1 is observed; its Job still runs";
    assert_eq!(toy.status().lines(), [line]);
    for state in toy.jobs.made.values_mut() {
        *state = JobState::Complete;
    }
    toy.run_until(5, |toy| toy.kubelets("Upgraded") == 1);
    // One that runs for longer than it may failed, until it ends.
    toy.run_until(900, |toy| toy.kubelets("Failed") == 1);
    let failed = toy.claims.iter().find(|claim| claim.state.name() == "Failed").unwrap();
    let line = "kubelet on n-2 from v1.36.4 to v1.37.1 was observed, but its Job still runs after 300 s";
    assert!(failed.message.starts_with(line), "{}", failed.message);
    (0..60).for_each(|_| toy.tick());
    assert!(toy.cluster.node("n-2").unwrap().unschedulable, "{:?}", toy.log);
    toy.jobs.made.values_mut().for_each(|job| *job = JobState::Complete);
    toy.run_until(5, |toy| toy.kubelets("Upgraded") == 2);
}

/// A watch may have lost that it ended.
#[test]
fn no_claim_fails_by_its_deadline_before_its_job_was_read_afresh() {
    let mut toy = with_job(1);
    toy.goes_on = true;
    toy.run_until(600, |toy| toy.kubelets("Upgrading") == 1);
    toy.pass(301);
    let uid = toy.claims.iter().find(|claim| claim.is_of_kubelet()).unwrap().uid.clone();
    let read = Action::Reread { node: "n-1".into(), job: Some((uid.clone(), 1)) };
    assert!(toy.decided().actions.contains(&read), "{:?}", toy.decided().actions);
    // The node alone does not say how its Job stands.
    toy.freshness.reread.insert("n-1".into(), at(toy.seconds));
    let decision = toy.decided();
    assert!(decision.actions.contains(&read), "{:?}", decision.actions);
    assert!(decision.actions.iter().all(|action| !matches!(action, Action::Record { .. })));
    toy.freshness.reread_jobs.insert(uid, at(toy.seconds));
    let fails = |action: &Action| matches!(action, Action::Record { state: ClaimState::Failed { .. }, .. });
    let decision = toy.decided();
    assert!(decision.actions.iter().any(fails), "{:?}", decision.actions);
    // Where that write fails, a time that is over would have it sent again at once, and again.
    assert!(decision.again_at.is_none_or(|again| again > at(toy.seconds)), "{:?}", decision.again_at);
}
