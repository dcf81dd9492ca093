//! From a spec to the core's value, and back from what was recorded.

use kube::core::DynamicObject;

use super::*;
use crate::api::upgrade::status_schema::Plan;
use crate::api::upgrade::{status_of_invalid, status_of_unseen};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

fn object(groups: &serde_json::Value) -> ClusterUpgrade {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": { "name": "up" },
        "spec": {
            "version": "v1.37.1", "controlPlane": { "executor": "x" }, "nodeGroups": groups,
        },
    });
    serde_json::from_value(object).unwrap()
}

fn executor(name: &str, spec: &serde_json::Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "UpgradeExecutor", "metadata": { "name": name }, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// An executor `x`, and one that nobody names.
fn there() -> Executors {
    let mut there = Executors::default();
    there.add(&executor("x", &json!({ "external": {} })));
    there.add(&executor("unnamed", &json!({ "job": { "template": {} } })));
    there
}

/// What `object` means where these executors are there.
fn read(object: &ClusterUpgrade) -> Result<Upgrade, Invalid> {
    validate(object, &there())
}

#[test]
fn a_completed_upgrade_is_history_until_its_plan_changes() {
    let group = |name: &str| json!({ "name": name, "selector": {}, "executor": "x" });
    let mut done = object(&json!([group("a")]));
    let from = "v1.36.4".parse().unwrap();
    let hash = plan::hash(&read(&done).unwrap(), &from, &[]);
    done.status = Some(ClusterUpgradeStatus {
        plan: Some(Plan { hash, from: from.to_string(), to: "v1.37.1".to_owned(), ..Default::default() }),
        start_time: Some(Time(Timestamp::UNIX_EPOCH)),
        completion_time: Some(Time(Timestamp::UNIX_EPOCH)),
        ..Default::default()
    });
    let of = |object: &ClusterUpgrade| progress(object, &read(object).unwrap());
    let completed = |object: &ClusterUpgrade| of(object).completed.is_some();
    assert!(completed(&done));
    let mut suspended = done.clone();
    suspended.spec.suspend = true;
    assert!(completed(&suspended), "suspending what is complete begins nothing");
    let wider = ClusterUpgrade { status: done.status.clone(), ..object(&json!([group("a"), group("b")])) };
    assert!(!completed(&wider), "another group is another plan");
    assert!(of(&done).started.is_some() && of(&wider).started.is_none(), "it has lost its turn");
    let mut further = done.clone();
    further.spec.version = "v1.37.2".to_owned();
    assert!(!completed(&further) && of(&further).from.is_none(), "another version begins anew");
}

#[test]
fn what_is_written_of_groups_ways_and_risks() {
    let group = |name: &str, before: &[&str]| json!({ "name": name, "selector": {}, "executor": "x", "dependsOn": before });
    let told = |groups: serde_json::Value| {
        read(&object(&groups)).map_or_else(|why| why.to_string(), |_| "good".to_owned())
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
    some.spec.accepted_risks =
        ["2026-12-01", "2026-12-01T10:00:00Z", "2026-12-01T10:00+01:00"].map(risk).into();
    let upgrade = read(&some).unwrap();
    assert_eq!(upgrade.via, ["v1.37.2".parse().unwrap()]);
    let ends: Vec<String> = upgrade.accepted.iter().map(|risk| risk.until.to_string()).collect();
    assert_eq!(ends, ["2026-12-02T00:00:00Z", "2026-12-01T10:00:00Z", "2026-12-01T09:00:00Z"]);
    // Without its time the last one would be accepted for hours longer than it says.
    for until in ["soon", "2026-12-24T18:00", "2026-12-24T18", "20261224", "2026-12-32"] {
        some.spec.accepted_risks = vec![risk(until)];
        let line = format!(
            "acceptedRisks O5/a/b: until {until} is no day and no time with an offset; write it like 2026-12-01 or \
             2026-12-01T18:00:00Z"
        );
        assert_eq!(read(&some).unwrap_err().to_string(), line);
    }
    some.spec.accepted_risks.clear();
    some.spec.via = vec!["v1.37.2".to_owned(), "v1.37.3".to_owned()];
    let line = "spec.via names two versions of 1.37; name one";
    assert_eq!(read(&some).unwrap_err().to_string(), line);
}

/// A selector of the label `app`.
fn expression(operator: &str, values: &[&str]) -> serde_json::Value {
    json!({ "matchExpressions": [{ "key": "app", "operator": operator, "values": values }] })
}

/// As a kube-apiserver judges the selectors of its own kinds.
#[test]
fn a_selector_has_values_where_its_operator_needs_them_and_nowhere_else() {
    let told = |operator: &str, values: &[&str]| {
        let selector = expression(operator, values);
        let object = object(&json!([{ "name": "a", "selector": selector, "executor": "x" }]));
        read(&object).map_or_else(|why| why.to_string(), |_| "good".to_owned())
    };
    for (operator, values) in
        [("In", &["a"][..]), ("NotIn", &["a", "b"]), ("Exists", &[]), ("DoesNotExist", &[])]
    {
        assert_eq!(told(operator, values), "good");
    }
    for operator in ["In", "NotIn"] {
        let line =
            format!("nodeGroups a: matchExpressions of app: {operator} needs values; name at least one");
        assert_eq!(told(operator, &[]), line);
    }
    for operator in ["Exists", "DoesNotExist"] {
        let line = format!(
            "nodeGroups a: matchExpressions of app: {operator} takes no values; take them out, or write In or NotIn"
        );
        assert_eq!(told(operator, &["a"]), line);
    }
    let mut object = object(&json!([]));
    let rules = json!([{ "selector": expression("NotIn", &[]), "behavior": "Skip" }]);
    object.spec.drain.pod_rules = serde_json::from_value(rules).unwrap();
    let line = "drain.podRules[0]: matchExpressions of app: NotIn needs values; name at least one";
    assert_eq!(read(&object).unwrap_err().to_string(), line, "it would be for every pod");
}

/// Each of these passes the schema, and nothing can be begun by it.
#[test]
fn whatever_is_wrong_with_a_spec_what_is_in_flight_settles_by_the_rest() {
    let begun = || {
        let mut object = object(&json!([{ "name": "a", "selector": {}, "executor": "x" }]));
        let plan = Plan { from: "v1.36.4".to_owned(), to: "v1.37.1".to_owned(), ..Default::default() };
        object.status = Some(ClusterUpgradeStatus { plan: Some(plan), ..Default::default() });
        object
    };
    let wrong: [(&str, serde_json::Value); 16] = [
        ("/version", json!("v1.99999.1")),
        ("/via", json!(["v1.37.2", "v1.37.3"])),
        ("/via", json!(["v1.99999.1"])),
        ("/acceptedRisks", json!([{ "finding": "O5", "until": "soon", "reason": "r" }])),
        (
            "/windows",
            json!([{ "name": "w", "timeZone": "Europe/Berln", "start": "01:00", "durationSeconds": 3600 }]),
        ),
        (
            "/freezes",
            json!([{ "name": "f", "timeZone": "UTC", "from": "2026-11-31", "until": "2026-12-02" }]),
        ),
        ("/controlPlane/firstExecutor", json!("x")),
        ("/nodeGroups/0/maxUnavailable", json!("0%")),
        ("/nodeGroups/0/dependsOn", json!(["a"])),
        ("/nodeGroups/0/dependsOn", json!(["nobody"])),
        ("/failurePolicy", json!({ "maxFailed": 0 })),
        ("/failurePolicy", json!({ "maxParked": "101%" })),
        ("/drain/podRules", json!([{ "behavior": "Skip" }])),
        ("/drain/podRules", json!([{ "selector": expression("NotIn", &[]), "behavior": "Skip" }])),
        ("/nodeGroups/0/selector", expression("NotIn", &[])),
        ("/nodeGroups/0/selector", expression("Exists", &["a"])),
    ];
    for (field, value) in wrong {
        let mut spec = serde_json::to_value(begun().spec).unwrap();
        let (parent, name) = field.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[name] = value;
        let spec = serde_json::from_value(spec).unwrap_or_else(|error| panic!("{field}: {error}"));
        let object = ClusterUpgrade { spec, ..begun() };
        assert!(read(&object).is_err(), "{field} is valid");
        let settles = read(&settling(&object)).unwrap_or_else(|invalid| panic!("{field}: {invalid}"));
        assert_eq!((settles.version.to_string().as_str(), settles.groups.len()), ("v1.37.1", 1), "{field}");
    }
}

#[test]
fn any_release_of_a_minor_may_be_asked_for() {
    let mut some = object(&json!([]));
    some.spec.version = "v1.38".to_owned();
    some.spec.via = vec!["v1.37".to_owned()];
    let upgrade = read(&some).unwrap();
    assert_eq!(
        (&upgrade.version, &upgrade.via[..]),
        (&"v1.38".parse().unwrap(), &["v1.37".parse().unwrap()][..])
    );
    // What is stored of it is of the same version.
    let to = upgrade.version.to_string();
    let plan = Plan { hash: "0".to_owned(), from: "v1.36.4".to_owned(), to, ..Default::default() };
    some.status = Some(ClusterUpgradeStatus { plan: Some(plan), ..Default::default() });
    assert_eq!(progress(&some, &upgrade).from, Some("v1.36.4".parse().unwrap()));
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
    let progress = progress(&some, &read(&some).unwrap());
    let shown = |versions: &[KubeVersion]| versions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&progress.via), ["v1.37.2"]);
    assert_eq!(progress.hop.as_ref().map(ToString::to_string).as_deref(), Some("v1.37.2"));
}

#[test]
fn an_upgrade_has_the_executors_that_it_names_and_no_other() {
    let group = |name: &str, executor: &str| json!({ "name": name, "selector": {}, "executor": executor });
    let groups = object(&json!([group("a", "y"), group("b", "y"), group("c", "x"), group("d", "w")]));
    let upgrade = read(&groups).unwrap();
    let names: Vec<&str> = upgrade.executors.keys().map(|name| &**name).collect();
    assert_eq!(names, ["x"]);
    let absent = absent_executors(&groups, &there());
    let names: Vec<&str> = absent.iter().map(|absent| &*absent.name).collect();
    assert_eq!(names, ["w", "y"]);
    let line = "spec.nodeGroups a names UpgradeExecutor y, which does not exist: install it, for example with kubectl \
                apply -k config/executors/kubeadm";
    assert_eq!(absent[1].to_string(), line);
    assert_eq!(absent_executors(&object(&json!([])), &there()), []);
}

/// What a person approves covers what the executors are, and only of those that it names.
#[test]
fn the_hash_covers_what_an_executor_is() {
    let group = object(&json!([{ "name": "a", "selector": {}, "executor": "y" }]));
    let hash = |executors: &[(&str, serde_json::Value)]| {
        let mut there = Executors::default();
        for (name, spec) in executors {
            there.add(&executor(name, spec));
        }
        plan::hash(&validate(&group, &there).unwrap(), &"v1.36.4".parse().unwrap(), &[])
    };
    let job = |image: &str, seconds: i64| {
        let template = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
        json!({ "job": { "template": template, "deadlineSeconds": seconds } })
    };
    let x = ("x", json!({ "external": {} }));
    let of = |y: serde_json::Value| hash(&[x.clone(), ("y", y)]);
    let first = of(job("a@sha256:1", 60));
    assert_eq!(hash(&[("z", json!({ "external": {} })), ("y", job("a@sha256:1", 60)), x.clone()]), first);
    let mut others =
        vec![of(job("a@sha256:2", 60)), of(job("a@sha256:1", 61)), of(json!({ "external": {} }))];
    others.extend([hash(std::slice::from_ref(&x)), hash(&[("y", job("a@sha256:1", 60))])]);
    assert!(!others.contains(&first), "{first}: {others:?}");
}

/// An executor is changed or taken away for the upgrades to come; those that are complete stay so.
#[test]
fn what_becomes_of_an_executor_begins_no_completed_upgrade_anew() {
    let mut done = object(&json!([]));
    done.metadata.generation = Some(3);
    done.status = Some(ClusterUpgradeStatus {
        observed_generation: Some(3),
        plan: Some(Plan {
            hash: "of another".to_owned(),
            from: "v1.36.4".to_owned(),
            to: "v1.37.1".to_owned(),
            ..Default::default()
        }),
        completion_time: Some(Time(Timestamp::UNIX_EPOCH)),
        ..Default::default()
    });
    let completed = |object: &ClusterUpgrade| {
        let upgrade = validate(object, &Executors::default()).unwrap();
        progress(object, &upgrade).completed.is_some()
    };
    assert!(completed(&done));
    done.metadata.generation = Some(4);
    assert!(!completed(&done), "somebody changed the upgrade itself");
}

/// A newer Evenkeel may know what this one does not: what it finds in the spec then was never carried out.
#[test]
fn a_spec_that_was_found_invalid_is_not_complete_because_one_before_it_was() {
    let mut done = object(&json!([]));
    done.metadata.generation = Some(1);
    let from: KubeVersion = "v1.36.4".parse().unwrap();
    let hash = plan::hash(&read(&done).unwrap(), &from, &[]);
    let plan = Plan { hash, from: from.to_string(), to: "v1.37.1".to_owned(), ..Default::default() };
    done.status = Some(ClusterUpgradeStatus {
        observed_generation: Some(1),
        plan: Some(plan),
        completion_time: Some(Time(Timestamp::UNIX_EPOCH)),
        ..Default::default()
    });
    let completed = |object: &ClusterUpgrade| progress(object, &read(object).unwrap()).completed.is_some();
    assert!(completed(&done));
    let group = json!([{ "name": "a", "selector": {}, "executor": "x" }]);
    for (groups, complete) in [(&group, false), (&json!([]), true)] {
        let mut changed = ClusterUpgrade { status: done.status.clone(), ..object(groups) };
        changed.metadata.generation = Some(2);
        let invalid = status_of_invalid(&changed, "time zone", None, Timestamp::UNIX_EPOCH);
        assert_eq!(
            invalid.observed_generation,
            Some(2),
            "else kstatus and Argo CD wait for somebody to look at it"
        );
        changed.status = Some(invalid);
        assert_eq!(completed(&changed), complete, "{groups}");
        let unseen = status_of_unseen(&changed, "why", false, Timestamp::UNIX_EPOCH);
        changed.status = Some(unseen);
        assert_eq!(completed(&changed), complete, "{groups}");
    }
}

#[test]
fn what_moves_together_and_who_moves_the_first_is_read() {
    let plane = |plane: serde_json::Value| {
        let mut upgrade = object(&json!([]));
        upgrade.spec.control_plane = serde_json::from_value(plane).unwrap();
        read(&upgrade).map(|upgrade| upgrade.control_plane)
    };
    let plain = plane(json!({ "executor": "x" })).unwrap();
    assert_eq!((plain.unit, plain.first_executor), (upgrade::Unit::Component, None));
    let whole = plane(json!({ "executor": "x", "unit": "Node", "firstExecutor": "x" })).unwrap();
    assert_eq!((whole.unit, whole.first_executor.as_deref()), (upgrade::Unit::Node, Some("x")));
    let unknown = plane(json!({ "executor": "x", "unit": "Node", "firstExecutor": "y" })).unwrap();
    assert_eq!(unknown.first_executor.as_deref(), Some("y"), "it may come");
    let alone = plane(json!({ "executor": "x", "firstExecutor": "x" })).unwrap_err();
    assert_eq!(alone, Invalid::FirstExecutor);
}
