//! How long a node is left alone whose drain did not end.

use jiff::SignedDuration;

use super::super::nodes::retried_after;
use super::cluster::Toy;
use crate::fixture::pod;
use crate::rollout::{EndedBy, UpgradePhase};

/// For how many seconds the node of the only kubelet's claim was parked, each time.
fn parked(toy: &mut Toy, times: usize) -> Vec<i64> {
    (0..times)
        .map(|_| {
            toy.run_until(20_000, |toy| toy.kubelets("Parked") == 1);
            let since = toy.seconds;
            toy.run_until(30_000, |toy| toy.kubelets("Parked") == 0);
            toy.seconds - since
        })
        .collect()
}

#[test]
fn a_node_whose_drain_never_ends_is_tried_again_after_twice_as_long_each_time() {
    let mut toy = Toy::new(1, 1);
    toy.cluster.set_pod(pod("slow", 1, "n-1"));
    toy.lingers = 10_000_000;
    // The drain may take forty seconds.
    assert_eq!(parked(&mut toy, 6), [40, 80, 160, 320, 640, 1280]);
    assert_eq!(toy.evictions, 1, "a pod that is leaving is not asked again");
}

/// The window shuts between its claim and its cordon.
#[test]
fn a_node_that_is_given_up_before_its_next_drain_is_parked_as_before() {
    let mut toy = Toy::new(1, 1);
    toy.cluster.set_pod(pod("slow", 1, "n-1"));
    toy.lingers = 10_000_000;
    parked(&mut toy, 3);
    let claim = |toy: &Toy| toy.claims.iter().find(|claim| claim.is_of_kubelet()).unwrap().clone();
    assert_eq!((claim(&toy).state.name(), claim(&toy).attempt), ("Claimed", 4));
    let said = claim(&toy).message;
    assert!(said.starts_with("was parked before: "), "{said}");
    toy.upgrade.suspended = true;
    toy.tick();
    let parked = claim(&toy);
    assert_eq!((parked.state.name(), parked.attempt), ("Parked", 3), "{:?}", toy.log);
    assert_eq!(parked.message, said, "why it was parked stays");
    toy.upgrade.suspended = false;
    toy.run_until(60, |toy| claim(toy).state.name() == "Claimed");
    assert_eq!(claim(&toy).message, said, "it is said once");
    toy.run_until(60, |toy| claim(toy).state.name() == "Draining");
    assert_eq!(claim(&toy).attempt, 4);
    // While it drains, too; and where the reason is gone when its node is given back.
    for goes_on_at_once in [false, true] {
        let attempt = claim(&toy).attempt;
        toy.upgrade.suspended = true;
        toy.tick();
        assert!(!toy.cluster.node("n-1").unwrap().unschedulable);
        toy.upgrade.suspended = !goes_on_at_once;
        toy.tick();
        assert_eq!((claim(&toy).state.name(), claim(&toy).attempt), ("Parked", attempt - 1), "{:?}", toy.log);
        toy.upgrade.suspended = false;
        toy.run_until(60, |toy| claim(toy).state.name() == "Draining");
    }
}

#[test]
fn a_node_that_was_tried_before_and_is_taken_out_leaves_no_claim() {
    let mut toy = Toy::new(1, 1);
    toy.cluster.set_pod(pod("slow", 1, "n-1"));
    toy.lingers = 10_000_000;
    parked(&mut toy, 1);
    assert_eq!(toy.kubelets("Claimed"), 1);
    toy.upgrade.groups[0].selector.match_labels = [("takes-part".to_owned(), "yes".to_owned())].into();
    toy.run_to_the_end(60);
    assert!(!toy.claims.iter().any(crate::rollout::Claim::is_of_kubelet), "{:?}", toy.log);
}

/// Lets minutes pass until so many nodes are parked.
fn is_parked(toy: &mut Toy, nodes: usize) {
    for _ in 0..2000 {
        if toy.kubelets("Parked") == nodes {
            return;
        }
        toy.pass(60);
        // What is read afresh is good for some seconds.
        (0..3).for_each(|_| toy.tick());
    }
    panic!("{:?}: {:?}", toy.status(), toy.log);
}

/// Nobody has to do anything: it is tried again by itself.
#[test]
fn a_parked_node_that_is_soon_tried_again_calls_for_nobody_before_it_was_tried_often() {
    let mut toy = Toy::new(1, 1);
    toy.cluster.set_pod(pod("slow", 1, "n-1"));
    toy.lingers = 10_000_000;
    toy.upgrade.drain.timeout = SignedDuration::from_hours(2);
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    for (attempt, stalled) in [(1, false), (2, false), (3, false), (4, true)] {
        is_parked(&mut toy, 1);
        toy.pass(90 * 60);
        let status = toy.status();
        assert_eq!(status.phase == UpgradePhase::NodesParked, stalled, "attempt {attempt}: {status:?}");
        assert_eq!(status.waits[0].reason.ended_by() == EndedBy::Person, stalled, "{:?}", status.waits);
        assert!(status.waits[0].until.is_some(), "it says when: {:?}", status.waits);
        is_parked(&mut toy, 0);
    }
}

#[test]
fn a_parked_node_is_left_alone_no_longer_than_six_hours_or_its_drain_may_take() {
    let after =
        |timeout: i64, attempt: u32| retried_after(SignedDuration::from_secs(timeout), attempt).as_secs();
    let hours = |count: i64| count * 60 * 60;
    assert_eq!([1, 2, 3, 4].map(|attempt| after(1800, attempt)), [1800, 3600, 7200, 14_400]);
    assert_eq!([5, 6, 100, u32::MAX].map(|attempt| after(1800, attempt)), [hours(6); 4]);
    // A drain that may take days is not tried more often than that.
    assert_eq!([1, 2].map(|attempt| after(hours(48), attempt)), [hours(48); 2]);
    // However short a drain is, its node has some seconds.
    assert_eq!([0, 1, 2].map(|attempt| after(1, attempt)), [10, 10, 20]);
}
