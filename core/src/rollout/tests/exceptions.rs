//! Nodes that cannot be drained, which a person accepted for a time: they stop nobody, and nobody is called for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::Toy;
use crate::cluster::Selector;
use crate::drain::{DrainMode, OnTimeout};
use crate::fixture::{at, pod};
use crate::rollout::{UpgradePhase, WaitReason};
use crate::upgrade::{AcceptedRisk, Amount, NodeGroup};

/// Until this second the finding is accepted.
const UNTIL: i64 = 5000;

fn accepts(toy: &mut Toy, finding: &str) {
    let reason = "OPS-1".into();
    toy.upgrade.accepted.push(AcceptedRisk { finding: finding.into(), until: at(UNTIL), reason });
}

/// Three nodes, and on the first a pod whose budget never lets it go, which a person accepted. The others have one without
/// a budget, because empty nodes would go first.
fn frozen() -> Toy {
    let mut toy = Toy::new(3, 1);
    toy.deploy("frozen", 1, 1);
    toy.cluster.set_pod(pod("free", 2, "n-2"));
    toy.cluster.set_pod(pod("free", 3, "n-3"));
    accepts(&mut toy, "U3/PodDisruptionBudget/shop/frozen");
    toy
}

#[test]
fn what_is_left_is_named_and_calls_for_nobody() {
    let mut toy = frozen();
    toy.run_to_the_end(900);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::CompletedWithExceptions, "{:?}", toy.log);
    assert!(status.phase.ready() && !status.phase.stalled());
    let line =
        "2 of 3 nodes run v1.37.1; what is left may stay behind: n-1: pod shop/frozen-0: PDB shop/frozen";
    assert!(status.message.starts_with(line), "{}", status.message);
    assert!(
        status.message.ends_with(&format!("(accepted until {}: OPS-1)", at(UNTIL))),
        "{}",
        status.message
    );
    assert_eq!(status.completed, None, "it goes on when it can");
    assert_eq!((toy.kubelets("Upgraded"), toy.claims.len()), (2, 6), "{:?}", toy.log);
    let rest = toy.cluster.nodes().iter().all(|node| !node.unschedulable && node.outdated_for.is_none());
    assert!(rest, "nothing of it is left on any node");
    let reasons: Vec<_> = status.waits.iter().map(|waiting| (waiting.reason, waiting.until)).collect();
    let whole = WaitReason::Upgrade(UpgradePhase::CompletedWithExceptions);
    assert_eq!(reasons, [(whole, None), (WaitReason::NodeExcepted, Some(at(UNTIL)))]);
}

#[test]
fn an_accepted_node_is_no_canary() {
    let mut toy = frozen();
    toy.upgrade.groups[0].canary = 1;
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::CompletedWithExceptions, "{:?}", toy.log);
    assert_eq!(toy.kubelets("Upgraded"), 2);
}

#[test]
fn it_ends_when_the_acceptance_does() {
    let mut toy = frozen();
    toy.run_to_the_end(900);
    assert_eq!(toy.decided().again_at, Some(at(UNTIL)));
    toy.seconds = UNTIL;
    let status = toy.status();
    assert_eq!((status.phase, status.parked[0].excepted.clone()), (UpgradePhase::NodesParked, None));
    assert!(status.phase.stalled());
}

#[test]
fn the_node_goes_on_when_its_budget_lets_it() {
    let mut toy = frozen();
    toy.run_to_the_end(900);
    toy.deploy("frozen", 2, 1);
    toy.run_until(600, |toy| toy.phase() == UpgradePhase::Completed);
    assert_eq!(toy.kubelets("Upgraded"), 3);
}

#[test]
fn all_that_keeps_it_has_to_be_accepted() {
    let mut toy = frozen();
    toy.deploy("cold", 1, 1);
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::NodesParked, "{:?}", toy.status());
    accepts(&mut toy, "U3/Pod/shop/cold-0");
    assert_eq!(toy.phase(), UpgradePhase::CompletedWithExceptions, "a pod may be named as well");
    toy.upgrade.accepted.pop();
    accepts(&mut toy, "U3/PodDisruptionBudget/elsewhere/cold");
    assert_eq!(toy.phase(), UpgradePhase::NodesParked, "that is another budget");
}

#[test]
fn what_nobody_accepted_is_still_told() {
    let mut toy = frozen();
    toy.cluster.change_node("n-2", |node| node.held = true);
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::NodesHeld, "{:?}", toy.status());
    let mut toy = frozen();
    toy.broken = Some("n-2".to_owned());
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::NodesFailed, "{:?}", toy.status());
}

#[test]
fn a_node_that_was_parked_may_stay_behind_too() {
    let mut toy = frozen();
    // Its budget waits for a replica that does not come, so its drain begins.
    toy.absent = 1;
    toy.upgrade.failures.max_parked = Some(Amount::Count(1));
    toy.upgrade.drain.on_timeout = OnTimeout::Halt;
    toy.run_to_the_end(900);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::CompletedWithExceptions, "{:?}\n{:?}", status, toy.log);
    assert_eq!((toy.kubelets("Parked"), toy.kubelets("Upgraded")), (1, 2));
    let parked = &status.parked[0];
    assert!(parked.why().starts_with("not drained within 40 s: pod shop/frozen-0: PDB shop/frozen"));
    assert!(parked.excepted.is_some());
    // Nobody accepts it any more.
    let now = std::mem::replace(&mut toy.seconds, UNTIL);
    assert_eq!(toy.phase(), UpgradePhase::NodesHalted);
    toy.seconds = now;
    // Its pod is gone; what the claim remembers counts, unless it remembers as much as it can and there may be more.
    toy.cluster.retain_pods(|pod| !pod.name.starts_with("frozen"));
    let excepted = |toy: &Toy| toy.status().parked.first().is_some_and(|out| out.excepted.is_some());
    assert!(excepted(&toy));
    for claim in &mut toy.claims {
        claim.blockers = claim.blockers.iter().cycle().take(5 * claim.blockers.len()).cloned().collect();
    }
    assert!(!excepted(&toy));
}

#[test]
fn a_node_that_is_not_drained_is_waited_for() {
    let mut toy = Toy::new(3, 1);
    toy.deploy("frozen", 0, 1);
    toy.cluster.set_pod(pod("frozen", 0, "n-2"));
    toy.settle_budgets();
    accepts(&mut toy, "U3/PodDisruptionBudget/shop/frozen");
    toy.upgrade.version = "v1.36.5".parse().unwrap();
    toy.upgrade.drain.mode = DrainMode::MinorOnly;
    last_group(&mut toy);
    toy.run_until(300, |toy| toy.log.contains(&"Claim up.kubelet.n-3".to_owned()));
    assert_eq!(toy.kubelets("Upgraded"), 2, "nothing keeps n-2 from being upgraded first: {:?}", toy.log);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn halt_does_not_stop_at_it() {
    let mut toy = frozen();
    toy.upgrade.drain.on_timeout = OnTimeout::Halt;
    toy.run_to_the_end(900);
    assert_eq!((toy.phase(), toy.kubelets("Upgraded")), (UpgradePhase::CompletedWithExceptions, 2));
}

/// Puts the third node into a group of its own, which depends on that of the others.
fn last_group(toy: &mut Toy) {
    let pool = BTreeMap::from([("pool".to_owned(), "last".to_owned())]);
    toy.cluster.change_node("n-3", |node| node.labels = Arc::new(pool.clone()));
    let selector = Selector { match_labels: pool, match_expressions: Vec::new() };
    let last = NodeGroup {
        depends_on: vec![toy.upgrade.groups[0].name.clone()],
        ..NodeGroup::new("last", selector, "external")
    };
    toy.upgrade.groups.insert(0, last);
}

#[test]
fn no_group_waits_for_it() {
    let run = |accepted: bool| {
        let mut toy = frozen();
        if !accepted {
            toy.upgrade.accepted.clear();
        }
        last_group(&mut toy);
        toy.run_to_the_end(900);
        (toy.phase(), toy.kubelets("Upgraded"))
    };
    assert_eq!(run(false), (UpgradePhase::NodesParked, 1));
    assert_eq!(run(true), (UpgradePhase::CompletedWithExceptions, 2));
}
