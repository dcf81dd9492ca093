//! What a comparison of two plans says.

use expect_test::expect;
use serde_json::json;

use super::*;

fn plan(steps: &[&str], more: &serde_json::Value) -> UpgradePlan {
    let step = |place: &&str| json!({"components": ["kube-apiserver"], "place": place, "from": "v1.35.9"});
    let mut plan = json!({
        "hash": "a", "from": "v1.35.9", "to": "v1.37.1", "unit": "Component", "verdict": "Ready",
        "hops": [{"version": "v1.36.4", "pickedBy": "Catalogue", "steps": steps.iter().map(step).collect::<Vec<_>>()}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        plan[key] = value.clone();
    }
    serde_json::from_value(plan).unwrap()
}

fn told(old: &UpgradePlan, new: &UpgradePlan) -> String {
    changes(old, new)
        .iter()
        .map(|change| format!("{} {}: {}\n", change.about, change.how, change.line))
        .collect::<Vec<_>>()
        .concat()
}

#[test]
fn steps_that_come_go_and_change_places() {
    let old = plan(&["cp-1", "cp-2", "cp-3"], &json!({}));
    assert_eq!(told(&old, &old), "");
    expect![[r#"
        step removed: the hop to 1.36 no longer moves kube-apiserver on cp-3
        step added: the hop to 1.36 moves kube-apiserver on cp-4, which is new
        step changed: the steps of the hop to 1.36 have another order: cp-2 comes where cp-1 came
    "#]]
    .assert_eq(&told(&old, &plan(&["cp-2", "cp-1", "cp-4"], &json!({}))));
}

#[test]
fn hops_needs_and_passes() {
    let wave = json!({"order": 1, "group": "web", "zone": "a", "atOnce": 1, "nodes": ["n-1", "n-2"]});
    let later = json!({"order": 2, "group": "web", "zone": "a", "atOnce": 1, "nodes": ["n-1", "n-2"]});
    let groups = json!([{"name": "web", "maxUnavailable": "1"}]);
    let old = plan(
        &["cp-1"],
        &json!({"groups": groups, "hops": [
            {"version": "v1.36.4", "pickedBy": "Catalogue", "kubelets": {"before": "1.34", "waves": [wave]}},
            {"version": "v1.37.1", "pickedBy": "Target"},
        ]}),
    );
    let new = plan(
        &["cp-1"],
        &json!({"groups": groups, "unit": "Node", "hops": [
            {"version": "v1.35.9", "pickedBy": "Cluster"},
            {"version": "v1.36.5", "pickedBy": "Person", "needs": [{"component": "kube-proxy", "least": "1.33"}],
             "kubelets": {"waves": [later]}},
        ]}),
    );
    expect![[r#"
        unit changed: the unit of the control plane is Node, and was Component
        hop removed: the hop to v1.37.1 is gone
        hop added: the hop to v1.35.9 is new (kube-apiservers run it already)
        hop changed: the hop to 1.36 goes to v1.36.5 now (named for the way), and went to v1.36.4
        need added: the hop to 1.36 needs first: kube-proxy: 1.33 or newer
        wave changed: of the kubelets, the hop to 1.36 moves all that are not at its version now, and moved those before 1.34
        wave changed: the wave of group web, zone a in the hop to 1.36 is in place 2, and was in 1
    "#]].assert_eq(&told(&old, &new));
}

#[test]
fn findings_that_are_accepted_and_no_longer() {
    let finding = |weight: &str, accepted: &serde_json::Value, count: usize| json!({"findings": [{"id": "U4/x", "weight": weight, "what": "it is so", "count": count, "accepted": accepted}]});
    let by = json!({"until": "2026-12-01", "reason": "OPS-1", "insteadOf": "stops"});
    let open = plan(&[], &finding("stops", &json!(null), 1));
    let accepted = plan(&[], &finding("warns", &by, 2));
    expect![[r#"
        finding changed: U4/x is accepted now, until 2026-12-01: OPS-1
        finding changed: U4/x is about 2 now, and was about 1: it is so
    "#]]
    .assert_eq(&told(&open, &accepted));
    expect![[r#"
        finding changed: U4/x is not accepted any more, and stops
        finding changed: U4/x is about 1 now, and was about 2: it is so
    "#]]
    .assert_eq(&told(&accepted, &open));
    let warns = plan(&[], &finding("warns", &json!(null), 1));
    expect![[r#"
        finding changed: U4/x is of weight stops now, and was of weight warns
    "#]]
    .assert_eq(&told(&warns, &open));
}
