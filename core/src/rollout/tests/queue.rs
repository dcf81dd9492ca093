//! Whose turn it is.

use super::super::*;
use super::cluster::Toy;
use crate::fixture::at;
use crate::upgrade::{Progress, Upgrade};

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
