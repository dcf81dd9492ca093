//! Whose turn it is.

use super::super::*;
use super::cluster::Toy;
use crate::cluster::Component;
use crate::fixture::at;
use crate::plan::Stage;
use crate::upgrade::{ApprovalMode, Progress, Upgrade};
use crate::version::{Observed, Unknown};

fn upgrade(name: &str) -> Upgrade {
    Upgrade { name: name.into(), ..Upgrade::to("v1.37.1".parse().unwrap()) }
}

#[test]
fn the_one_that_began_first_has_its_turn() {
    let queue = Queue::new([(at(2), "a".into()), (at(1), "c".into()), (at(1), "b".into())]);
    let progress = Progress::default();
    assert_eq!(queue.ahead_of(&upgrade("a"), &progress).as_deref(), Some("b"));
    assert_eq!(queue.ahead_of(&upgrade("b"), &progress), None);
    let completed = Progress { completed: Some(at(0)), ..Progress::default() };
    assert_eq!(queue.ahead_of(&upgrade("a"), &completed), None, "what is done waits for nothing");
}

#[test]
fn where_none_is_under_way_the_first_that_begins_has_its_turn() {
    let mut toy = Toy::new(1, 1);
    let mut queue = Queue::default();
    toy.upgrade.suspended = true;
    queue.decided(&upgrade("waits"), &toy.status());
    assert_eq!(queue.ahead_of(&upgrade("b"), &Progress::default()), None);
    toy.upgrade.suspended = false;
    queue.decided(&upgrade("begins"), &toy.status());
    assert_eq!(queue.ahead_of(&upgrade("b"), &Progress::default()).as_deref(), Some("begins"));
}

#[test]
fn one_that_somebody_deleted_takes_no_turn() {
    let mut toy = Toy::new(1, 1);
    toy.run_until(60, |toy| !toy.claims.is_empty());
    toy.progress.ending = true;
    toy.run_until(60, |toy| !toy.progress.protected);
    let mut queue = Queue::default();
    queue.decided(&upgrade("up"), &toy.status());
    assert_eq!(queue.ahead_of(&upgrade("b"), &Progress::default()), None);
}

#[test]
fn an_upgrade_that_was_never_begun_is_patient_with_a_kube_apiserver_that_does_not_answer() {
    let mut toy = Toy::new(1, 1);
    let known = toy.cluster.instances().to_vec();
    toy.cluster.change_instances(|instance| {
        if *instance.name == *"cp-2" && instance.component == Component::KubeApiserver {
            instance.version = Observed::Unknown(Unknown::Unreachable);
        }
    });
    (0..60).for_each(|_| toy.tick());
    let status = toy.status();
    assert!(status.message.starts_with("the version of kube-apiserver cp-2 is not known"), "{status:?}");
    assert_eq!((status.phase, toy.claims.len()), (UpgradePhase::Working(Stage::Apiservers), 0));
    assert!(toy.decided().again_at.is_some(), "somebody looks when its time is over");
    toy.upgrade.mode = ApprovalMode::RequireApproval;
    assert_eq!(toy.phase(), UpgradePhase::AwaitingApproval);
    toy.upgrade.mode = ApprovalMode::Automatic;
    toy.pass(15 * 60);
    assert_eq!(toy.phase(), UpgradePhase::PreflightFailed);
    toy.is_told_by_the_next_leader();
    toy.cluster.set_instances(known);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn an_upgrade_that_was_never_begun_calls_at_once_where_an_image_names_no_version() {
    let mut toy = Toy::new(1, 1);
    toy.cluster.change_instances(|instance| {
        if instance.component == Component::KubeScheduler {
            instance.version = Observed::Unknown(Unknown::NoTag);
        }
    });
    assert_eq!(toy.phase(), UpgradePhase::PreflightFailed);
}

/// What blocks it may be what the upgrade before it brings along, or a kube-apiserver that this one replaces.
#[test]
fn an_upgrade_that_is_queued_calls_nobody_because_its_plan_is_blocked() {
    let mut toy = Toy::new(1, 1);
    toy.upgrade.version = "v1.30.0".parse().unwrap();
    assert_eq!(toy.phase(), UpgradePhase::PreflightFailed);
    toy.progress.queued_behind = Some("other".into());
    assert_eq!(toy.phase(), UpgradePhase::Queued);
    assert!(!toy.status().preflight.is_empty(), "its condition PreflightPassed says so all the same");
}
