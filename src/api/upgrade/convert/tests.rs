//! From a spec to the core's value, and back from what was recorded.

use super::*;
use serde_json::json;

fn object(groups: &serde_json::Value) -> ClusterUpgrade {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": { "name": "up" },
        "spec": {
            "version": "v1.37.1", "controlPlane": { "executor": "x" }, "nodeGroups": groups,
            "executors": [{ "name": "x", "external": {} }],
        },
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_completed_upgrade_is_history_until_its_plan_changes() {
    let group = |name: &str| json!({ "name": name, "selector": {}, "executor": "x" });
    let mut done = object(&json!([group("a")]));
    let from = "v1.36.4".parse().unwrap();
    let hash = plan::hash(&validate(&done).unwrap(), &from, &[]);
    done.status = Some(ClusterUpgradeStatus {
        plan: Some(Plan { hash, from: from.to_string(), to: "v1.37.1".to_owned(), ..Default::default() }),
        completion_time: Some(Time(Timestamp::UNIX_EPOCH)),
        ..Default::default()
    });
    let of = |object: &ClusterUpgrade| progress(object, &validate(object).unwrap());
    let completed = |object: &ClusterUpgrade| of(object).completed.is_some();
    assert!(completed(&done));
    let mut suspended = done.clone();
    suspended.spec.suspend = true;
    assert!(completed(&suspended), "suspending what is complete begins nothing");
    let wider = ClusterUpgrade { status: done.status.clone(), ..object(&json!([group("a"), group("b")])) };
    assert!(!completed(&wider), "another group is another plan");
    let mut further = done.clone();
    further.spec.version = "v1.37.2".to_owned();
    assert!(!completed(&further) && of(&further).from.is_none(), "another version begins anew");
}

#[test]
fn what_is_not_seen_leaves_the_rest_of_the_status_as_it_was() {
    let mut object = object(&json!([]));
    object.metadata.generation = Some(1);
    let mut before = status_of_invalid(&object, "why", Timestamp::UNIX_EPOCH);
    let paused = Condition { type_: "Paused".to_owned(), ..before.conditions[0].clone() };
    before.conditions.push(paused);
    object.status = Some(before.clone());
    object.metadata.generation = Some(2);
    for (refused, ready, stalled) in [(true, "False", "True"), (false, "Unknown", "False")] {
        let told = status_of_unseen(&object, "volumes: not allowed", refused, Timestamp::UNIX_EPOCH);
        let of = |type_: &str| told.conditions.iter().find(|of| of.type_ == type_).unwrap();
        assert_eq!((of("Ready").status.as_str(), of("Stalled").status.as_str()), (ready, stalled));
        assert_eq!(
            (of("Ready").message.as_str(), told.observed_generation),
            ("volumes: not allowed", Some(1))
        );
        assert_eq!(told.conditions.len(), before.conditions.len());
        assert_eq!(told.waiting_for, ["volumes: not allowed"]);
    }
}

#[test]
fn what_is_written_of_groups_ways_and_risks() {
    let group = |name: &str, before: &[&str]| json!({ "name": name, "selector": {}, "executor": "x", "dependsOn": before });
    let told = |groups: serde_json::Value| {
        validate(&object(&groups)).map_or_else(|why| why.to_string(), |_| "good".to_owned())
    };
    assert_eq!(told(json!([group("a", &["b"]), group("b", &[])])), "good");
    assert_eq!(
        told(json!([group("a", &["b"]), group("b", &["a"])])),
        "nodeGroups a: dependsOn leads back to the group itself"
    );
    let line = "nodeGroups a: dependsOn names c, which is no group of this upgrade";
    assert_eq!(told(json!([group("a", &["c"])])), line);

    let mut some = object(&json!([]));
    some.spec.version = "v1.38.1".to_owned();
    some.spec.via = vec!["v1.37.2".to_owned()];
    let risk = |until: &str| AcceptedRisk {
        finding: "O5/a/b".to_owned(),
        until: until.to_owned(),
        reason: "tried".to_owned(),
    };
    some.spec.accepted_risks = vec![risk("2026-12-01"), risk("2026-12-01T10:00:00Z")];
    let upgrade = validate(&some).unwrap();
    assert_eq!(upgrade.via, ["v1.37.2".parse().unwrap()]);
    let ends: Vec<String> = upgrade.accepted.iter().map(|risk| risk.until.to_string()).collect();
    assert_eq!(ends, ["2026-12-02T00:00:00Z", "2026-12-01T10:00:00Z"], "a day counts to its end");
    some.spec.accepted_risks = vec![risk("soon")];
    let line = "acceptedRisks O5/a/b: until soon is no day and no time; write it like 2026-12-01";
    assert_eq!(validate(&some).unwrap_err().to_string(), line);
    some.spec.accepted_risks.clear();
    some.spec.via = vec!["v1.37.2".to_owned(), "v1.37.3".to_owned()];
    let line = "spec.via names two versions of 1.37; name one";
    assert_eq!(validate(&some).unwrap_err().to_string(), line);
}

#[test]
fn what_is_recorded_of_the_plan_is_read_again() {
    let mut some = object(&json!([]));
    some.spec.version = "v1.38.1".to_owned();
    some.status = Some(ClusterUpgradeStatus {
        plan: Some(Plan {
            hash: "0".to_owned(),
            from: "v1.36.4".to_owned(),
            to: "v1.38.1".to_owned(),
            via: vec!["v1.37.2".to_owned()],
            hop: "v1.37.2".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    });
    let progress = progress(&some, &validate(&some).unwrap());
    let shown = |versions: &[KubeVersion]| versions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&progress.via), ["v1.37.2"]);
    assert_eq!(progress.hop.as_ref().map(ToString::to_string).as_deref(), Some("v1.37.2"));
}

#[test]
fn executors_must_exist() {
    let group = json!([{ "name": "a", "selector": {}, "executor": "y" }]);
    let told = validate(&object(&group)).unwrap_err().to_string();
    assert_eq!(told, "nodeGroups a names executor y, which is not in spec.executors");
}

#[test]
fn what_moves_together_and_who_moves_the_first_is_read() {
    let read = |plane: serde_json::Value| {
        let mut upgrade = object(&json!([]));
        upgrade.spec.control_plane = serde_json::from_value(plane).unwrap();
        validate(&upgrade).map(|upgrade| upgrade.control_plane)
    };
    let plain = read(json!({ "executor": "x" })).unwrap();
    assert_eq!((plain.unit, plain.first_executor), (upgrade::Unit::Component, None));
    let whole = read(json!({ "executor": "x", "unit": "Node", "firstExecutor": "x" })).unwrap();
    assert_eq!((whole.unit, whole.first_executor.as_deref()), (upgrade::Unit::Node, Some("x")));
    let unknown = read(json!({ "executor": "x", "unit": "Node", "firstExecutor": "y" })).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "controlPlane.firstExecutor names executor y, which is not in spec.executors"
    );
    let alone = read(json!({ "executor": "x", "firstExecutor": "x" })).unwrap_err();
    assert_eq!(alone, Invalid::FirstExecutor);
}
