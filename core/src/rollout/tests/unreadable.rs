//! Claims that nobody can read.

use super::cluster::Toy;
use crate::plan::Stage;
use crate::rollout::{Action, JobState, UnreadableClaim, UpgradePhase, deleted_unreadable};

fn unreadable(name: &str, why: String) -> UnreadableClaim {
    UnreadableClaim {
        name: name.into(),
        uid: "1".into(),
        resource_version: "7".into(),
        ending: false,
        finalizers: vec!["example.com/other".into()],
        upgrade: "up".into(),
        place: None,
        goes: false,
        why,
    }
}

#[test]
fn a_claim_that_cannot_be_read_and_was_deleted_leaves_its_node_to_a_person_and_goes() {
    let mut toy = Toy::new(1, 1);
    let mut claim = unreadable("up.kubelet.n-1", "has the state Begun".to_owned());
    toy.cluster.change_node("n-1", |node| {
        (node.cordoned_by, node.unschedulable) = (Some("up.kubelet.n-1/1".into()), true);
    });
    assert_eq!(
        deleted_unreadable(&toy.cluster, &toy.jobs, std::slice::from_ref(&claim)),
        [],
        "nobody deleted it"
    );
    claim.ending = true;
    let node = toy.cluster.node("n-1").unwrap().reference();
    assert_eq!(
        deleted_unreadable(&toy.cluster, &toy.jobs, std::slice::from_ref(&claim)),
        [Action::HandOver { node }]
    );
    // The mark of another claim of that name is not its own.
    toy.cluster.change_node("n-1", |node| node.cordoned_by = Some("up.kubelet.n-1/2".into()));
    let released = Action::Release {
        claim: claim.name.clone(),
        uid: claim.uid.clone(),
        resource_version: claim.resource_version.clone(),
        finalizers: Some(claim.finalizers.clone()),
    };
    assert_eq!(deleted_unreadable(&toy.cluster, &toy.jobs, std::slice::from_ref(&claim)), [released]);
    toy.jobs.made.insert((claim.uid.clone(), 1), JobState::Running);
    assert_eq!(deleted_unreadable(&toy.cluster, &toy.jobs, &[claim]), [], "its executor works");
}

/// It moved the control plane of `cp-2` together, and its executor may work there still.
#[test]
fn nothing_begins_on_a_node_that_a_claim_of_an_earlier_upgrade_may_have_left_half_done() {
    let mut toy = Toy::new(1, 1);
    let why = "NodeUpgrade up.control-plane.cp-2 is deleted, and goes when it has settled";
    let old = unreadable("up.control-plane.cp-2", why.to_owned());
    toy.unreadable.push(UnreadableClaim { place: Some("cp-2".into()), goes: true, ..old });
    toy.run_to_the_end(300);
    let status = toy.status();
    assert_eq!((toy.claims.len(), status.phase), (1, UpgradePhase::Working(Stage::Apiservers)), "{status:?}");
    assert_eq!(status.message, why);
    // Nobody else's claim holds a node of this upgrade.
    toy.unreadable[0].upgrade = "other".into();
    toy.run_until(60, |toy| toy.claims.len() == 2);
}

#[test]
fn nobody_has_to_delete_a_claim_of_a_node_that_goes_by_itself() {
    let mut toy = Toy::new(2, 1);
    let why = "NodeUpgrade up.kubelet.n-2 is deleted, and goes when it has settled".to_owned();
    let old = unreadable("up.kubelet.n-2", why.clone());
    toy.unreadable.push(UnreadableClaim { goes: true, ..old });
    toy.run_to_the_end(600);
    let status = toy.status();
    assert_eq!((status.phase, &status.message), (UpgradePhase::Working(Stage::Kubelets), &why));
    toy.unreadable.clear();
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_claim_that_cannot_be_read_holds_its_own_node_only() {
    let mut toy = Toy::new(3, 1);
    let why =
        "NodeUpgrade up.kubelet.n-2 is Draining without a time; delete it to have it made anew".to_owned();
    toy.unreadable.push(unreadable("up.kubelet.n-2", why.clone()));
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::NodesHeld, "{:?}", toy.status());
    assert_eq!(toy.status().parked[0].reason, why);
    assert_eq!(toy.kubelets("Upgraded"), 2);
    // So does one of the control plane, which nobody may make twice.
    let mut toy = Toy::new(1, 1);
    let why = "NodeUpgrade up.kube-apiserver.cp-2 has the state Begun".to_owned();
    toy.unreadable.push(unreadable("up.kube-apiserver.cp-2", why.clone()));
    toy.run_to_the_end(300);
    assert_eq!((toy.claims.len(), toy.status().lines().first()), (1, Some(&why)), "{:?}", toy.log);
}
