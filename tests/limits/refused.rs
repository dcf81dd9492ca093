//! ClusterUpgrades that cannot be: the real server refuses each, with a sentence that says why.

use std::time::Duration;

use evenkeel_devcluster::{Cluster, TestResult};
use evenkeel_testkit::scenario::until;
use serde_json::{Value, json};

use super::{create, expect, soon, written};

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
        (
            "unknown",
            &[("a", &["b"])],
            "group a depends on b, which is not in nodeGroups; add that group, or take its name out of dependsOn",
        ),
        (
            "itself",
            &[("a", &["a"])],
            "`dependsOn` must name other groups; take the name of the group itself out",
        ),
        (
            "pair",
            &[("c", &[]), ("a", &["b"]), ("b", &["a"])],
            "group a could never begin: what it depends on waits",
        ),
        (
            "three",
            &[("c", &["a"]), ("a", &["b"]), ("b", &["c"]), ("d", &[])],
            "group c could never begin: what it depends on waits for itself; take a name out of dependsOn",
        ),
    ];
    for (name, wrong, line) in refused {
        create(cluster, "admin", &upgrade(name, &groups(wrong)), line).await?;
    }
    let fine: Groups<'_> = &[("d", &["c", "b"]), ("c", &["a"]), ("b", &["a"]), ("a", &[])];
    create(cluster, "admin", &upgrade("diamond", &groups(fine)), "").await?;
    // More groups after one another than the policy follows, the last one first.
    let long: Groups<'_> = &[
        ("k", &["j"]),
        ("j", &["i"]),
        ("i", &["h"]),
        ("h", &["g"]),
        ("g", &["f"]),
        ("f", &["e"]),
        ("e", &["d"]),
        ("d", &["c"]),
        ("c", &["b"]),
        ("b", &["a"]),
        ("a", &[]),
    ];
    create(cluster, "admin", &upgrade("long", &groups(long)), "").await
}

/// A version that is older than a kube-apiserver, as the report has it.
async fn downgrades(cluster: &Cluster) -> TestResult {
    let to = |name: &str, version: &str| upgrade(name, &json!({"version": version}));
    create(cluster, "admin", &to("no-report", "v1.20.0"), "").await?;
    let report = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterSkewReport",
        "metadata": {"name": "cluster"}, "spec": {}});
    create(cluster, "admin", &report, "").await?;
    let runs = async |server: &str| {
        let status = json!({"status": {"server": server}}).to_string();
        let patch = ["patch", "clusterskewreport", "cluster", "--subresource=status", "--type=merge", "-p"];
        expect(cluster, "admin", &[&patch[..], &[&status]].concat(), "").await
    };
    runs("v1.37.1").await?;
    let line = "v1.20.0 would be a downgrade: a kube-apiserver runs v1.37.1, as kubectl get clusterskewreport says; \
                choose a target that is not older";
    soon(cluster, "admin", &["create", "-f", &written(cluster, &to("lower", "v1.20.0"))?], line).await?;
    for (server, version, refused) in [
        ("v1.36.4..v1.37.1", "v1.36.9", true),
        ("v1.36.4+k3s1..v1.37.1+k3s1", "v1.37.0+k3s2", true),
        ("v1.38.0", "v1.37.9", true),
        ("v1.36.4-eks-1.2..v1.37.1-eks-3.4", "v1.37.1-eks-0.1", false),
        ("v1.9.11", "v1.10.0", false),
        ("v1.36.4", "v1.35", true),
        ("v1.36.4", "v1.36", false),
        ("v1.36.4", "v1.37", false),
        ("unknown", "v1.2.0", false),
        ("v1.38.0", "v1.37.9", true),
    ] {
        runs(server).await?;
        // The policy hears of the report a moment after it was written.
        until(server, Duration::from_secs(10), async || {
            let dry = written(cluster, &to("tried", version))?;
            let line = if refused { "would be a downgrade: a kube-apiserver runs " } else { "" };
            expect(cluster, "admin", &["create", "--dry-run=server", "-f", &dry], line).await.map(|()| true)
        })
        .await?;
    }
    // What does not change the version is let through, whatever runs by now.
    let suspend = r#"{"spec":{"suspend":true}}"#;
    expect(cluster, "admin", &["patch", "clusterupgrade", "no-report", "--type=merge", "-p", suspend], "")
        .await?;
    expect(cluster, "admin", &["delete", "clusterskewreport", "cluster"], "").await?;
    let dry = written(cluster, &to("tried", "v1.37.1"))?;
    soon(cluster, "admin", &["create", "--dry-run=server", "-f", &dry], "").await
}

/// Values that cannot be, and what the server says of each.
fn wrong() -> Vec<(Value, &'static str)> {
    let freeze = |from: &str, until: &str| json!({"freezes": [{"name": "f", "from": from, "until": until}]});
    let plane = |plane: Value| json!({"controlPlane": plane});
    let day = "must be a day such as `2026-12-18`, or a time such as `2026-12-18T18:00:00Z`";
    let order = "`until` must be after `from`, where a last day counts to its end; choose a later `until` or an earlier `from`";
    let risk = json!([{"finding": "O5/x", "until": "soon", "reason": "r"}]);
    let rule =
        |operator: &str, values: &[&str]| json!({"selector": term(operator, values), "behavior": "Skip"});
    let rules = |rule: Value| json!({"drain": {"podRules": [rule]}});
    let group =
        |selector: Value| json!({"nodeGroups": [{"name": "a", "selector": selector, "executor": "x"}]});
    let values = "`In` and `NotIn` need `values`, and `Exists` and `DoesNotExist` take none; name values, or take them out";
    vec![
        (rules(rule("NotIn", &[])), values),
        (
            rules(
                json!({"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn"}]}, "behavior": "Skip"}),
            ),
            values,
        ),
        (group(term("In", &[])), values),
        (group(term("Exists", &["a"])), values),
        (group(term("DoesNotExist", &["a"])), values),
        (
            window(0),
            "spec.windows[0].durationSeconds: Invalid value: 0: must be from 60 to 604800 seconds (a minute to a week); to \
             begin nothing for a time, write a freeze or set `suspend`",
        ),
        (
            json!({"windows": [{"name": "n", "start": "24:30", "durationSeconds": 60}]}),
            "spec.windows[0].start: Invalid value: \"24:30\": must be a time of the day from `00:00` to `23:59`, such as \
             `22:00`",
        ),
        (
            json!({"windows": [{"name": "n", "days": ["Someday"], "start": "22:00", "durationSeconds": 60}]}),
            "spec.windows[0].days[0]: Unsupported value: \"Someday\": supported values: \"Mon\", \"Tue\"",
        ),
        (freeze("2027-01-07", "2026-12-18"), order),
        (freeze("2026-12-18T18:00", "2026-12-18T18:00"), order),
        (freeze("2026-12-18T18:00:00Z", "2026-12-18T17:59:59Z"), order),
        (freeze("tomorrow", "2026-12-18"), day),
        (freeze("2026-12-18", "never"), day),
        (json!({"acceptedRisks": risk}), day),
        (
            json!({"via": ["v1.36.4", "1.35"]}),
            "spec.via[1]: Invalid value: \"1.35\": must be a version such as `v1.37.1` or `v1.37.1+k3s1`, or `v1.37` where any release of it will do",
        ),
        (
            json!({"approval": {"planHash": "yes"}}),
            "must be the 32 characters of `status.plan.hash`, such as `3f9c0e1b7a42d5860b1e94c7f2a8d36e`",
        ),
        (
            json!({"failurePolicy": {"maxFailed": "101%"}}),
            "must be a number from 1 to 5000, or a percentage from `1%` to `100%`",
        ),
        (
            json!({"drain": {"podRules": [{"behavior": "Skip"}]}}),
            "a rule must say which pods it is for: set `selector` or `namespaces`; without both it would be for every pod",
        ),
        (
            json!({"drain": {"podRules": [{"namespaces": ["a"], "behavior": "Kill"}]}}),
            "spec.drain.podRules[0].behavior: Unsupported value: \"Kill\": supported values: ",
        ),
        (
            json!({"drain": {"onTimeout": "Explode"}}),
            "spec.drain.onTimeout: Unsupported value: \"Explode\": supported values: ",
        ),
        (
            plane(json!({"executor": "x", "firstExecutor": "y"})),
            "`firstExecutor` needs `unit: Node`; set that, or leave `firstExecutor` out",
        ),
        (
            plane(json!({"executor": "x", "unit": "Rack"})),
            "spec.controlPlane.unit: Unsupported value: \"Rack\": supported values: \"Component\", \"Node\"",
        ),
        (
            json!({"version": "v1.37.1", "mode": "Sometimes"}),
            "spec.mode: Unsupported value: \"Sometimes\": supported values: ",
        ),
    ]
}

/// A selector of the label `app`.
fn term(operator: &str, values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]})
}

fn window(length: i64) -> Value {
    json!({"windows": [{"name": "n", "start": "22:00", "durationSeconds": length}]})
}

pub async fn what_cannot_be(cluster: &Cluster) -> TestResult {
    downgrades(cluster).await?;
    order(cluster).await?;
    for (at, (fields, line)) in wrong().into_iter().enumerate() {
        create(cluster, "admin", &upgrade(&format!("wrong-{at}"), &fields), line).await?;
    }
    let long = "n".repeat(64);
    let line = "metadata.name must be at most 63 characters long, because it is part of other names; choose a shorter one";
    create(cluster, "admin", &upgrade(&long, &window(3600)), line).await?;
    let terms = [term("In", &["a"]), term("NotIn", &["a"]), term("Exists", &[]), term("DoesNotExist", &[])];
    let name = |at: usize| format!("group-{at}");
    let groups = terms
        .iter()
        .enumerate()
        .map(|(at, term)| json!({"name": name(at), "selector": term, "executor": "x"}));
    let groups = json!({"nodeGroups": groups.collect::<Vec<_>>()});
    create(cluster, "admin", &upgrade("terms", &groups), "").await?;
    create(cluster, "admin", &upgrade("fine", &window(3600)), "").await
}
