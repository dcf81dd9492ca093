//! ClusterUpgrades that cannot be: the real server refuses each, with a sentence that says why.

use evenkeel_devcluster::{Cluster, TestResult};
use serde_json::{Value, json};

use super::create;

/// One that the server takes, with `fields` besides in its spec.
fn upgrade(name: &str, fields: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {"name": name},
        "spec": {"version": "v1.37.1", "mode": "PlanOnly", "controlPlane": {"executor": "x"}},
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

/// Each group, and those that it depends on.
type Groups<'a> = &'a [(&'a str, &'a [&'a str])];

fn groups(groups: Groups<'_>) -> Value {
    let group = |(name, on): &(&str, &[&str])| {
        let selector = json!({"matchLabels": {"pool": name}});
        json!({"name": name, "selector": selector, "executor": "x", "dependsOn": on})
    };
    json!({"nodeGroups": groups.iter().map(group).collect::<Vec<_>>()})
}

/// Groups that depend on what is not there, or on themselves.
async fn order(cluster: &Cluster) -> TestResult {
    let refused: [(&str, Groups<'_>, &str); 4] = [
        ("unknown", &[("a", &["b"])], "group a depends on a group that is not in nodeGroups"),
        ("itself", &[("a", &["a"])], "must name other groups"),
        ("pair", &[("c", &[]), ("a", &["b"]), ("b", &["a"])], "group a could never begin"),
        ("three", &[("c", &["a"]), ("a", &["b"]), ("b", &["c"]), ("d", &[])], "group c could never begin"),
    ];
    for (name, wrong, line) in refused {
        create(cluster, "admin", &upgrade(name, &groups(wrong)), line).await?;
    }
    let fine: Groups<'_> = &[("d", &["c", "b"]), ("c", &["a"]), ("b", &["a"]), ("a", &[])];
    create(cluster, "admin", &upgrade("diamond", &groups(fine)), "").await
}

pub async fn what_cannot_be(cluster: &Cluster) -> TestResult {
    order(cluster).await?;
    let window =
        |length: i64| json!({"windows": [{"name": "n", "start": "22:00", "durationSeconds": length}]});
    let freeze = |from: &str, until: &str| json!({"freezes": [{"name": "f", "from": from, "until": until}]});
    let plane = |plane: Value| json!({"controlPlane": plane});
    for (at, (fields, line)) in [
        (window(0), "durationSeconds"),
        (json!({"windows": [{"name": "n", "start": "24:30", "durationSeconds": 60}]}), "start"),
        (
            json!({"windows": [{"name": "n", "days": ["Someday"], "start": "22:00", "durationSeconds": 60}]}),
            "days",
        ),
        (freeze("2027-01-07", "2026-12-18"), "until"),
        (json!({"drain": {"podRules": [{"behavior": "Skip"}]}}), "podRules"),
        (json!({"drain": {"podRules": [{"namespaces": ["a"], "behavior": "Kill"}]}}), "behavior"),
        (json!({"drain": {"onTimeout": "Explode"}}), "onTimeout"),
        (plane(json!({"executor": "x", "firstExecutor": "y"})), "firstExecutor"),
        (plane(json!({"executor": "x", "unit": "Rack"})), "unit"),
        (json!({"version": "v1.37.1", "mode": "Sometimes"}), "mode"),
    ]
    .into_iter()
    .enumerate()
    {
        create(cluster, "admin", &upgrade(&format!("wrong-{at}"), &fields), line).await?;
    }
    create(cluster, "admin", &upgrade("fine", &window(3600)), "").await
}
