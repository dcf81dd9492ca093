//! A ClusterUpgrade in which every field of the spec is set: the server keeps all of it, and every command reads it.

use std::path::Path;
use std::process::Command;

use evenkeel::api::definitions;
use evenkeel_devcluster::{Cluster, Failure, TestResult};
use evenkeel_testkit::scenario::kubectl;
use serde_json::{Value, json};

use super::{binary, says};

fn spec() -> Value {
    json!({
        "version": "v1.37.1",
        "via": ["v1.36.4"],
        "mode": "RequireApproval",
        "approval": {"planHash": "3f9c0e1b7a42d5860b1e94c7f2a8d36e"},
        "suspend": true,
        "controlPlane": {
            "unit": "Node", "executor": "x", "firstExecutor": "first", "hidden": "Accept", "soakSeconds": 60,
        },
        "nodeGroups": [
            group("canary", &[]),
            group("others", &["canary"]),
        ],
        "drain": {
            "timeoutSeconds": 900, "onTimeout": "Halt", "mode": "MinorOnly", "emptyDir": "Refuse",
            "barePods": "Evict", "volumes": "Detach",
            "podRules": [{"selector": selector(), "namespaces": ["shop"], "behavior": "WaitCompleted"}],
        },
        "windows": [{
            "name": "nights", "timeZone": "Europe/Berlin", "days": ["Mon", "Sun"], "start": "22:00",
            "durationSeconds": 3600,
        }],
        "freezes": [{
            "name": "fair", "from": "2026-12-18T18:00", "until": "2027-01-07", "timeZone": "Europe/Berlin",
        }],
        "gates": [{
            "name": "slo",
            "object": {
                "apiVersion": "example.com/v1", "kind": "ServiceLevel", "namespace": "shop", "name": "checkout",
            },
            "condition": {"type": "Healthy", "status": "False"},
        }],
        "failurePolicy": {"maxFailed": 3, "maxParked": "10%"},
        "acceptedRisks": [{
            "finding": "O5/old/validate.example.com", "until": "2030-12-01T18:00:00Z", "reason": "tried on staging",
        }],
    })
}

fn selector() -> Value {
    json!({
        "matchLabels": {"pool": "general"},
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
    })
}

fn group(name: &str, on: &[&str]) -> Value {
    let mut group = json!({
        "name": name, "selector": selector(), "executor": "x", "maxUnavailable": "10%", "zones": "OneAtATime",
        "canary": 1, "soakSeconds": 60,
    });
    if !on.is_empty() {
        group["dependsOn"] = json!(on);
    }
    group
}

/// The paths of the fields in `schema` that `values` leaves out, of which one value has to have each.
fn left_out(schema: &Value, values: &[&Value], path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let values: Vec<&Value> = values.iter().filter_map(|value| value.get(name)).collect();
        if values.is_empty() {
            found.push(path);
        } else if field["type"] == "array" {
            let items: Vec<&Value> = values.iter().filter_map(|value| value.as_array()).flatten().collect();
            left_out(&field["items"], &items, &path, found);
        } else {
            left_out(field, &values, &path, found);
        }
    }
}

/// Runs the program as a person with every right; what it prints, and with which exit code it ends.
pub fn told(kubeconfig: &Path, args: &[&str]) -> Result<(Option<i32>, String), Failure> {
    let output = Command::new(binary()).args(args).arg("--kubeconfig").arg(kubeconfig).output();
    let output = output.map_err(|error| Failure::new(error.to_string()))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

/// `text` has each of `parts`.
pub fn has(text: &str, parts: &[&str]) -> TestResult {
    match parts.iter().find(|part| !text.contains(**part)) {
        None => Ok(()),
        Some(part) => Err(Failure::new(format!("{part:?} is not in\n{text}"))),
    }
}

/// The executors `x` and `first` are there, and the operator runs.
pub async fn is_kept_and_read(cluster: &Cluster) -> TestResult {
    let all = definitions();
    let definition = all.iter().find(|(_, of)| of.spec.names.kind == "ClusterUpgrade");
    let definition = serde_json::to_value(definition.map(|(_, of)| of)).unwrap_or_default();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut missing = Vec::new();
    left_out(schema, &[&spec()], "spec", &mut missing);
    assert_eq!(missing, Vec::<String>::new(), "every field is set");

    let object = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade",
        "metadata": {"name": "whole"}, "spec": spec()});
    let file = cluster.logs().join("whole.json");
    std::fs::write(&file, object.to_string()).map_err(|error| Failure::new(error.to_string()))?;
    let file = file.display().to_string();
    kubectl(cluster, &["create", "--validate=strict", "-f", &file]).await?;
    let kept = kubectl(cluster, &["get", "cup", "whole", "-o", "jsonpath={.spec}"]).await?;
    let kept: Value =
        serde_json::from_str(&kept).map_err(|error| Failure::new(format!("{kept}: {error}")))?;
    assert_eq!(kept, spec(), "it is kept whole");

    says(cluster, "cup", "whole", "Paused", "True").await?;
    let (code, plan) = told(cluster.kubeconfig(), &["plan", "--upgrade", &file])?;
    assert!(matches!(code, Some(0 | 2)), "{code:?}: {plan}");
    has(
        &plan,
        &[
            "v1.37.1",
            "gate slo: condition Healthy of ServiceLevel shop/checkout has to be False",
            "fair",
            "nights",
        ],
    )?;
    let (code, status) = told(cluster.kubeconfig(), &["status", "whole", "-o", "wide"])?;
    assert_eq!(code, Some(2), "a person suspended it, and has to let it go on: {status}");
    has(&status, &["whole", "v1.36.4", "v1.37.1", "Suspended", "suspended by spec.suspend"])?;
    kubectl(cluster, &["delete", "cup", "whole"]).await.map(drop)
}
