//! Executors that are not there, come, go and change while an upgrade is under way.

use jiff::SignedDuration;

use super::cluster::Toy;
use crate::cluster::Node;
use crate::fixture::node;
use crate::rollout::{Action, ClaimState, JobState, UpgradePhase};
use crate::upgrade::{AbsentExecutor, ApprovalMode, Executor};

const WHAT: &str = "spec.nodeGroups all names UpgradeExecutor job, which does not exist";

fn job(template: &str) -> Executor {
    Executor::Job { template: template.into(), deadline: SignedDuration::from_mins(5) }
}

/// A toy whose nodes are moved by executor `job`, which is like this.
fn toy(nodes: usize, executor: impl Into<Option<Executor>>) -> Toy {
    let mut toy = Toy::new(nodes, 1);
    toy.upgrade.groups[0].executor = "job".into();
    become_of(&mut toy, executor);
    toy
}

/// Executor `job` is like this from now on; with `None` it is not there.
fn become_of(toy: &mut Toy, executor: impl Into<Option<Executor>>) {
    (toy.absent_executors, _) = (Vec::new(), toy.upgrade.executors.remove("job"));
    match executor.into() {
        Some(executor) => drop(toy.upgrade.executors.insert("job".into(), executor)),
        None => toy.absent_executors.push(AbsentExecutor {
            name: "job".into(),
            what: WHAT.into(),
            remedy: "install it".into(),
        }),
    }
}

fn message(toy: &Toy, node: &str) -> String {
    let of = toy.claims.iter().find(|claim| claim.is_of_kubelet() && *claim.subject.node == *node);
    of.map(|claim| claim.message.clone()).unwrap_or_default()
}

fn jobs_begun(toy: &Toy) -> usize {
    toy.log.iter().filter(|line| line.starts_with("StartJob")).count()
}

#[test]
fn nothing_begins_before_every_executor_is_there() {
    let mut toy = toy(2, None);
    toy.run_to_the_end(60);
    assert!(toy.claims.is_empty(), "{:?}", toy.log);
    let status = toy.status();
    assert_eq!((status.phase, status.message), (UpgradePhase::Invalid, format!("{WHAT}: install it")));
    assert!(UpgradePhase::Invalid.stalled());
    become_of(&mut toy, job("{}"));
    toy.run_until(3000, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn a_job_goes_on_without_its_executor_and_nothing_new_opens() {
    let mut toy = toy(2, job("{}"));
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    become_of(&mut toy, None);
    for _ in 0..30 {
        toy.tick();
    }
    assert_eq!((toy.kubelets("Upgrading"), toy.phase()), (1, UpgradePhase::Invalid));
    toy.broken = None;
    toy.run_until(60, |toy| toy.kubelets("Upgraded") == 1);
    for _ in 0..60 {
        toy.tick();
    }
    assert_eq!((toy.kubelets_in_flight(), toy.kubelets("Upgraded")), (0, 1), "{:?}", toy.log);
    become_of(&mut toy, job("{}"));
    toy.run_until(3000, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn a_node_that_drains_is_given_back_when_its_executor_goes() {
    let mut toy = toy(2, job("{}"));
    toy.deploy("web", 4, 2);
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    become_of(&mut toy, None);
    toy.run_until(20, |toy| toy.claims.iter().all(|claim| !claim.is_of_kubelet()));
    assert!(toy.cluster.nodes().iter().all(|node| !node.unschedulable));
}

/// A toy of which one node is given to its executor, and the server refuses the Job.
fn without_its_job(mut toy: Toy) -> Toy {
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    (toy.refuses, toy.broken) = (Some("exceeded quota".to_owned()), Some("n-1".to_owned()));
    toy.run_until(60, |toy| message(toy, "n-1") == "its Job is refused: exceeded quota");
    toy.refuses = None;
    toy
}

#[test]
fn a_claim_that_lost_its_executor_before_its_job_says_so() {
    let mut toy = without_its_job(toy(1, job("{}")));
    toy.jobs.refused.clear();
    become_of(&mut toy, None);
    let told = format!("its Job has not begun: {WHAT}: install it");
    let begun = jobs_begun(&toy);
    toy.run_until(10, |toy| message(toy, "n-1") == told);
    toy.run_until(400, |toy| toy.kubelets("Failed") == 1);
    assert_eq!(jobs_begun(&toy), begun);
    let line = format!("was not observed within 300 s: {told}");
    assert!(message(&toy, "n-1").contains(&line), "{}", message(&toy, "n-1"));
}

#[test]
fn the_job_of_a_claim_begins_when_its_executor_comes_back() {
    let mut toy = without_its_job(toy(1, job("{}")));
    toy.jobs.refused.clear();
    become_of(&mut toy, None);
    toy.run_until(10, |toy| message(toy, "n-1").starts_with("its Job has not begun"));
    become_of(&mut toy, job("{}"));
    toy.broken = None;
    toy.run_until(600, |toy| toy.phase() == UpgradePhase::Completed);
    assert_eq!(toy.jobs.made.len(), 1);
}

#[test]
fn no_job_begins_by_a_template_that_nobody_approved() {
    let mut toy = toy(1, job("{}"));
    toy.upgrade.mode = ApprovalMode::RequireApproval;
    toy.upgrade.approved_hash = toy.status().hash.map(Into::into);
    let mut toy = without_its_job(toy);
    toy.jobs.refused.clear();
    become_of(&mut toy, job("{\"other\":1}"));
    let begun = jobs_begun(&toy);
    toy.run_until(10, |toy| {
        message(toy, "n-1") == "its Job has not begun: the plan as it is now is not approved"
    });
    assert_eq!((jobs_begun(&toy), toy.phase()), (begun, UpgradePhase::AwaitingApproval));
    toy.upgrade.approved_hash = toy.status().hash.map(Into::into);
    toy.broken = None;
    toy.run_until(600, |toy| toy.phase() == UpgradePhase::Completed);
    assert_eq!(jobs_begun(&toy), begun + 1);
}

#[test]
fn what_has_begun_keeps_its_deadline_and_its_job() {
    let mut toy = toy(1, job("{}"));
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| !toy.jobs.made.is_empty());
    become_of(&mut toy, Executor::External { deadline: SignedDuration::from_secs(5) });
    for _ in 0..60 {
        toy.tick();
    }
    assert_eq!(toy.kubelets("Upgrading"), 1, "{:?}", toy.claims);
    toy.run_until(400, |toy| toy.kubelets("Failed") == 1);
    let line = "was not observed within 300 s: its Job still runs";
    assert!(message(&toy, "n-1").contains(line), "{}", message(&toy, "n-1"));
}

/// Somebody else is at work, so no Job begins beside them.
#[test]
fn what_somebody_else_began_gets_no_job() {
    let mut toy = toy(1, Executor::External { deadline: SignedDuration::from_mins(5) });
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| toy.kubelets("Upgrading") == 1);
    become_of(&mut toy, job("{}"));
    for _ in 0..30 {
        toy.tick();
    }
    assert_eq!(jobs_begun(&toy), 0);
    toy.broken = None;
    toy.run_until(60, |toy| toy.kubelets("Upgraded") == 1);
}

#[test]
fn a_claim_of_an_executor_that_is_not_named_any_more_is_made_anew() {
    let mut toy = toy(2, job("{}"));
    toy.deploy("web", 2, 1);
    toy.run_until(600, |toy| toy.kubelets("Draining") > 0);
    toy.upgrade.executors.remove("job");
    toy.upgrade.executors.insert("other".into(), job("{}"));
    toy.upgrade.groups[0].executor = "other".into();
    let node = toy.claims.iter().find(|claim| claim.is_of_kubelet()).unwrap().subject.node.clone();
    let other = |toy: &Toy| {
        let mut of_node =
            toy.claims.iter().filter(|claim| claim.is_of_kubelet() && claim.subject.node == node);
        of_node.any(|claim| {
            *claim.subject.executor == *"other" && matches!(claim.state, ClaimState::Upgrading { .. })
        })
    };
    toy.run_until(600, other);
    toy.run_until(600, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn the_next_component_waits_for_the_job_of_the_last_one() {
    let mut toy = Toy::new(1, 1);
    toy.upgrade.executors.insert("job".into(), job("\"job\""));
    toy.upgrade.control_plane.executor = "job".into();
    for name in ["cp-1", "cp-2"] {
        toy.cluster.set_node(Node { control_plane: true, ..node(name, "v1.36.4") });
    }
    toy.goes_on = true;
    let of_plane = |toy: &Toy| toy.claims.iter().filter(|claim| !claim.is_of_kubelet()).count();
    toy.run_until(60, |toy| !toy.jobs.made.is_empty());
    (0..30).for_each(|_| toy.tick());
    assert_eq!(of_plane(&toy), 1, "{:?}", toy.log);
    let line = "kube-apiserver on cp-1 from v1.36.4 to v1.37.1 is observed; its Job still runs";
    assert_eq!(toy.status().lines()[0], line);
    assert!(toy.decided().again_at.is_some());
    toy.jobs.made.values_mut().for_each(|job| *job = JobState::Complete);
    toy.run_until(10, |toy| of_plane(toy) == 2);
    // One that runs for longer than it may failed, and nothing is begun beside it.
    let failed = |toy: &Toy| toy.claims.iter().any(|claim| claim.state.name() == "Failed");
    toy.run_until(400, failed);
    (0..60).for_each(|_| toy.tick());
    assert_eq!(of_plane(&toy), 2, "{:?}", toy.log);
    toy.jobs.made.values_mut().for_each(|job| *job = JobState::Complete);
    toy.run_until(10, |toy| of_plane(toy) == 3 && !failed(toy));
}

#[test]
fn what_became_of_a_job_is_recorded_with_the_end_of_its_claim() {
    let ends = |toy: &Toy| {
        let decided = toy.decided().actions.into_iter();
        let mut ends = decided.filter_map(|action| match action {
            Action::Record {
                state: ClaimState::Upgraded { .. } | ClaimState::Failed { .. }, job, ..
            } => Some(job),
            _ => None,
        });
        ends.next()
    };
    let mut good = toy(1, job("{}"));
    good.run_until(3000, |toy| toy.kubelets_in_flight() == 1 && ends(toy).is_some());
    assert_eq!(ends(&good), Some(Some(JobState::Complete)), "{:?}", good.log);

    let mut bad = without_its_job(toy(1, job("{}")));
    bad.jobs.refused.clear();
    bad.run_until(600, |toy| !toy.jobs.made.is_empty());
    let failed = JobState::Failed("backoff limit".to_owned());
    bad.jobs.made.values_mut().for_each(|job| *job = failed.clone());
    assert_eq!(ends(&bad), None, "what its pod said is read first: {:?}", bad.log);
    let now = bad.world().now;
    bad.freshness.reread_jobs.extend(bad.claims.iter().map(|claim| (claim.uid.clone(), now)));
    assert_eq!(ends(&bad), Some(Some(failed)), "{:?}", bad.log);
}

/// A person may uncordon the node before its claim fails, and afterwards.
#[test]
fn a_failed_node_is_said_to_stay_cordoned_only_while_it_does() {
    const STAYS: &str =
        "; the node stays cordoned: mend it, delete NodeUpgrade up.kubelet.n-1 and uncordon it";
    for uncordoned_before in [false, true] {
        let mut toy = toy(1, Executor::External { deadline: SignedDuration::from_mins(5) });
        toy.broken = Some("n-1".to_owned());
        toy.run_until(600, |toy| toy.kubelets("Upgrading") > 0);
        toy.cluster.change_node("n-1", |node| node.unschedulable = !uncordoned_before);
        toy.run_until(400, |toy| toy.kubelets("Failed") == 1);
        assert_eq!(message(&toy, "n-1").ends_with(STAYS), !uncordoned_before, "{}", message(&toy, "n-1"));
        toy.tick();
        assert_eq!(toy.status().message.ends_with(STAYS), !uncordoned_before, "{}", toy.status().message);
        toy.cluster.change_node("n-1", |node| node.unschedulable = false);
        let said = toy.status().message;
        assert!(said.ends_with("; mend the node, then delete NodeUpgrade up.kubelet.n-1"), "{said}");
        assert!(!said.contains("cordoned"), "{said}");
        assert!(toy.status().message.starts_with("n-1: kubelet on n-1 from"), "{}", toy.status().message);
    }
}

#[test]
fn what_is_seen_of_a_kubelet_is_told_while_it_is_waited_for_and_when_it_failed() {
    let change = |toy: &mut Toy, ready: bool, version: &str| {
        toy.cluster.change_node("n-1", |node| {
            (node.ready, node.kubelet) = (ready, crate::version::Observed::from_report(version));
        });
    };
    for (ready, version, seen) in [
        (true, "v1.36.4", "n-1: kubelet is at v1.36.4 still"),
        (true, "v1.36.9", "n-1: kubelet is at v1.36.9"),
        (false, "v1.36.4", "n-1: kubelet is not Ready"),
        (true, "v1.37.1", "n-1: kubelet was not seen to restart"),
    ] {
        for by_job in [true, false] {
            let external = Executor::External { deadline: SignedDuration::from_mins(5) };
            let mut toy = toy(1, if by_job { job("{}") } else { external });
            toy.broken = Some("n-1".to_owned());
            toy.run_until(600, |toy| toy.kubelets("Upgrading") > 0);
            toy.tick();
            change(&mut toy, ready, version);
            let line = format!("{seen}; waits for ");
            let waits = toy.status().lines();
            assert!(waits.iter().any(|wait| wait.starts_with(&line)), "{line}: {waits:?}");
            toy.run_until(400, |toy| toy.kubelets("Failed") == 1);
            let said = message(&toy, "n-1");
            assert!(said.contains(&format!(" ({seen}); the node stays cordoned: ")), "{said}");
        }
    }
}
