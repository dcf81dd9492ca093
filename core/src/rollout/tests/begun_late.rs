//! What was claimed, and waits so long that it may not be opened any more.

use std::sync::Arc;

use super::super::*;
use super::cluster::Toy;
use super::gates::window;
use crate::cluster::{Component, Selector};
use crate::fixture::node;
use crate::version::Observed;

/// The other kube-apiserver goes away in the second in which a step was claimed, and comes back when it is too late.
#[test]
fn a_step_that_waits_after_its_claim_is_not_begun_when_it_may_not_be_opened_any_more() {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.calendar.windows = vec![window(0, 60), window(200, 60)];
    let claimed = |toy: &Toy| toy.claims.iter().any(|claim| claim.state.name() == "Claimed");
    toy.run_until(100, claimed);
    let ready = |toy: &mut Toy, ready: bool| {
        toy.cluster.change_instances(|one| {
            if *one.name == *"cp-2" {
                one.ready = ready;
            }
        });
    };
    ready(&mut toy, false);
    toy.pass(90 * 60 - toy.seconds);
    toy.tick();
    assert!(claimed(&toy), "it waits for the other kube-apiserver: {:?}", toy.log);
    ready(&mut toy, true);
    let before = toy.log.len();
    toy.tick();
    toy.pass(200 * 60 - 2 - toy.seconds);
    toy.tick();
    let begun = toy.log[before..].iter().filter(|line| line.ends_with(" Upgrading")).count();
    assert_eq!((begun, toy.claims.len()), (0, 0), "{:?}", &toy.log[before..]);
    assert_eq!(toy.phase(), UpgradePhase::WaitingForWindow);
    toy.run_until(3600, |toy| toy.phase() == UpgradePhase::Completed);
}

/// The process dies after the claim, and another one begins long after it.
#[test]
fn a_node_whose_cordon_comes_too_late_is_not_taken_up_any_more() {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.calendar.windows = vec![window(0, 60), window(200, 60)];
    let claimed = |toy: &Toy| toy.claims.iter().any(Claim::is_of_kubelet);
    toy.run_until(600, claimed);
    assert!(toy.claims.iter().any(|claim| claim.is_of_kubelet() && claim.state.name() == "Claimed"));
    toy.pass(90 * 60 - toy.seconds);
    toy.run_until(10, |toy| toy.claims.iter().all(|claim| !claim.is_of_kubelet()));
    assert!(!toy.log.iter().any(|line| line.starts_with("Cordon ")), "{:?}", toy.log);
    assert_eq!(toy.phase(), UpgradePhase::WaitingForWindow);
}

fn claimed(toy: &Toy) -> Option<Claim> {
    toy.claims.iter().find(|claim| claim.is_of_kubelet()).cloned()
}

/// Loses another node between the claim of the first one and its cordon, which gives that up. Returns the lost one.
fn first_is_given_up(toy: &mut Toy) -> Arc<str> {
    toy.run_until(600, |toy| claimed(toy).is_some());
    let first = claimed(toy).unwrap().subject.node;
    let lost = toy.cluster.nodes().iter().find(|node| node.name != first).unwrap().name.clone();
    toy.cluster.change_node(&lost, |node| node.ready = false);
    toy.tick();
    assert!(!toy.log.contains(&format!("Cordon {first}")), "{:?}", toy.log);
    toy.run_until(10, |toy| claimed(toy).is_none_or(|claim| claim.subject.node != first));
    lost
}

/// The process dies after the claim, and meanwhile another node of the group is lost.
#[test]
fn a_node_that_was_claimed_stays_when_as_many_others_are_unavailable_as_may_be() {
    let mut toy = Toy::new(3, 1);
    let lost = first_is_given_up(&mut toy);
    // The one that is away anyway goes first.
    toy.run_until(100, |toy| claimed(toy).is_some_and(|claim| claim.subject.node == lost));
    toy.cluster.change_node(&lost, |node| node.ready = true);
    toy.run_until(3600, |toy| toy.phase() == UpgradePhase::Completed);
}

/// The process dies after the claim, and meanwhile another node of the control plane is lost.
#[test]
fn a_node_of_the_control_plane_that_was_claimed_stays_when_another_one_is_lost() {
    let mut toy = Toy::new(3, 3);
    for node in ["n-1", "n-2", "n-3"] {
        toy.cluster.change_node(node, |node| node.control_plane = true);
    }
    let lost = first_is_given_up(&mut toy);
    toy.cluster.change_node(&lost, |node| node.ready = true);
    toy.run_until(3600, |toy| toy.phase() == UpgradePhase::Completed);
}

/// Somebody else upgrades it in that moment, and its new kubelet is not ready.
#[test]
fn a_claimed_node_that_came_to_the_target_is_upgraded_only_if_it_is_ready() {
    for ready in [true, false] {
        let mut toy = Toy::new(1, 1);
        toy.run_until(600, |toy| claimed(toy).is_some());
        let version = Observed::Known("v1.37.1".parse().unwrap());
        toy.cluster.change_node("n-1", |node| (node.kubelet, node.ready) = (version, ready));
        toy.tick();
        assert_eq!(toy.kubelets("Upgraded"), usize::from(ready), "{:?}", toy.log);
    }
}

/// The other kube-apiserver goes away in the second in which a step was claimed, and the plan is blocked when it comes back.
#[test]
fn a_step_that_was_claimed_is_not_begun_when_the_plan_must_not_be_carried_out_any_more() {
    let mut toy = Toy::new(2, 1);
    let pool = [("pool".to_owned(), "a".to_owned())];
    for node in ["n-1", "n-2"] {
        toy.cluster.change_node(node, |node| node.labels = Arc::new(pool.clone().into()));
    }
    toy.upgrade.groups[0].selector = Selector { match_labels: pool.into(), ..Selector::default() };
    toy.run_until(100, |toy| toy.claims.iter().any(|claim| claim.state.name() == "Claimed"));
    let ready = |toy: &mut Toy, ready: bool| {
        toy.cluster.change_instances(|one| one.ready |= *one.name == *"cp-2");
        toy.cluster.change_instances(|one| one.ready &= ready || *one.name != *"cp-2");
    };
    ready(&mut toy, false);
    (0..30).for_each(|_| toy.tick());
    // Nobody selects it, and it is too old for the plan.
    toy.cluster.set_node(node("n-old", "v1.33.2"));
    toy.tick();
    assert_eq!(toy.claims.len(), 1, "it waits for the other kube-apiserver: {:?}", toy.log);
    ready(&mut toy, true);
    (0..30).for_each(|_| toy.tick());
    assert!(!toy.log.iter().any(|line| line.ends_with(" Upgrading")), "{:?}", toy.log);
    assert_eq!(toy.claims.len(), 0, "{:?}", toy.log);
    let waits = toy.status().waits;
    assert_eq!(waits[0].reason, WaitReason::PlanBlocked, "{waits:?}");
    toy.cluster.remove_node("n-old");
    toy.run_until(3600, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn a_node_that_was_claimed_is_not_cordoned_when_the_plan_must_not_be_carried_out_any_more() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| claimed(toy).is_some());
    // Somebody takes the kube-apiservers past the target, and back.
    let runs = |toy: &mut Toy, version: &str| {
        toy.cluster.change_instances(|one| {
            if one.component == Component::KubeApiserver {
                one.version = Observed::from_report(version);
            }
        });
    };
    runs(&mut toy, "v1.37.2");
    (0..10).for_each(|_| toy.tick());
    assert!(!toy.log.iter().any(|line| line.starts_with("Cordon ")), "{:?}", toy.log);
    assert!(claimed(&toy).is_none(), "{:?}", toy.log);
    runs(&mut toy, "v1.37.1");
    toy.run_until(3600, |toy| toy.phase() == UpgradePhase::Completed);
}
