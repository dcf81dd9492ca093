//! What the server refuses, with its words: names, labels, and the rules of kinds that matter to a drain.
//!
//! Here belong the rules and their words; `write` asks for them. The invariant: nothing is changed here, and all that
//! is wrong with an object is told at once.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::status::StatusCause;
use crate::labels::{LabelSelector, Labels};
use crate::schema::Violation;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
    is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn ends_well(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

fn label(text: &str) -> bool {
    ends_well(text) && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn subdomain(text: &str) -> bool {
    text.split('.').all(label)
}

fn word(text: &str) -> bool {
    ends_well(text) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// What is wrong with an object as a whole.
pub(crate) fn create(kind: &Kind, object: &Value, minor: u32) -> Vec<StatusCause> {
    let mut causes = metadata(kind, object, minor);
    if let Some(custom) = &kind.custom {
        causes.extend(violations(custom.violations(object)));
        return causes;
    }
    let spec = &object["spec"];
    match kind.kind.as_str() {
        "Pod" => pod_spec(spec, "spec", &mut causes),
        "PodTemplate" => pod_spec(&object["template"]["spec"], "template.spec", &mut causes),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => workload(spec, &mut causes),
        "Job" => {
            pod_spec(&spec["template"]["spec"], "spec.template.spec", &mut causes);
            let restart = &spec["template"]["spec"]["restartPolicy"];
            if restart == "Always" {
                causes.push(StatusCause::required(
                    "spec.template.spec.restartPolicy",
                    "valid values: \"OnFailure\", \"Never\"",
                ));
            }
        }
        "PodDisruptionBudget" => {
            budget(spec, &mut causes);
            for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                let value = &object["status"][name];
                if value.as_i64().is_some_and(|count| count < 0) {
                    causes.push(StatusCause::invalid(
                        format!("status.{name}"),
                        value,
                        "must be greater than or equal to 0",
                    ));
                }
            }
        }
        "Lease" => lease(spec, &mut causes),
        _ => {}
    }
    causes
}

fn violations(found: Vec<Violation>) -> Vec<StatusCause> {
    let cause = |Violation { reason, field, message }| StatusCause { reason, field, message };
    found.into_iter().map(cause).collect()
}

/// What the rules in CEL say of a custom resource that is created.
pub(crate) fn rules(kind: &Kind, object: &Value) -> Vec<StatusCause> {
    kind.custom.as_ref().map(|custom| violations(custom.rules(object, None))).unwrap_or_default()
}

fn metadata(kind: &Kind, object: &Value, minor: u32) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let short = matches!(kind.kind.as_str(), "Namespace" | "Service");
    let fits = if short { label(name) } else { subdomain(name) };
    if !name.is_empty() && name.len() > if short { 63 } else { 253 } {
        let most = if short { 63 } else { 253 };
        causes.push(StatusCause::invalid(
            "metadata.name",
            &name.into(),
            format!("must be no more than {most} bytes"),
        ));
    }
    if kind.kind == "Namespace" && name.contains('.') && subdomain(name) {
        causes.push(StatusCause::invalid("metadata.name", &name.into(), "must not contain dots"));
    } else if !fits {
        causes.push(StatusCause::invalid(
            "metadata.name",
            &name.into(),
            if short { LABEL } else { SUBDOMAIN },
        ));
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        let plain = key.rsplit('/').next().unwrap_or_default();
        if !word(plain) {
            causes.push(StatusCause::invalid("metadata.labels", &key.as_str().into(), QUALIFIED));
        }
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            causes.push(StatusCause::invalid(
                "metadata.labels",
                &value.into(),
                "must be no more than 63 bytes",
            ));
        }
        if !value.is_empty() && !word(value) {
            causes.push(StatusCause::invalid("metadata.labels", &value.into(), VALUE));
        }
    }
    for (at, owner) in metadata["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                // A server before 1.37 does not say which owner.
                let which = if minor < 37 { String::new() } else { format!("[{at}]") };
                let path = format!("metadata.ownerReferences{which}.{field}");
                let why =
                    if field == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                causes.push(if field == "uid" && minor >= 37 {
                    StatusCause::required(path, why)
                } else {
                    StatusCause::invalid(path, &"".into(), why)
                });
            }
        }
    }
    for (at, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        if !text.contains('/') && !matches!(text, "orphan" | "foregroundDeletion" | "kubernetes") {
            let path = format!("metadata.finalizers[{at}]");
            causes.push(StatusCause::invalid(
                path,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    causes
}

fn pod_spec(spec: &Value, path: &str, causes: &mut Vec<StatusCause>) {
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        causes.push(StatusCause::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for (at, container) in containers.iter().enumerate() {
        let name = container["name"].as_str().unwrap_or_default();
        let field = |name: &str| format!("{path}.containers[{at}].{name}");
        if name.is_empty() {
            causes.push(StatusCause::required(field("name"), ""));
        } else if !label(name) {
            causes.push(StatusCause::invalid(field("name"), &name.into(), LABEL));
        } else if names.contains(&name) {
            causes.push(StatusCause::duplicate(field("name"), &name.into()));
        }
        names.push(name);
        if container["image"].as_str().is_none_or(str::is_empty) {
            causes.push(StatusCause::required(field("image"), ""));
        }
    }
    let restart = &spec["restartPolicy"];
    if !["Always", "OnFailure", "Never"].iter().any(|known| restart == known) {
        causes.push(StatusCause::unsupported(
            format!("{path}.restartPolicy"),
            restart,
            &["Always", "OnFailure", "Never"],
        ));
    }
    if let Some(grace) = spec["terminationGracePeriodSeconds"].as_i64().filter(|grace| *grace < 0) {
        causes.push(StatusCause::invalid(
            format!("{path}.terminationGracePeriodSeconds"),
            &grace.into(),
            "must be greater than or equal to 0",
        ));
    }
}

fn workload(spec: &Value, causes: &mut Vec<StatusCause>) {
    if let Some(replicas) = spec["replicas"].as_i64().filter(|replicas| *replicas < 0) {
        causes.push(StatusCause::invalid(
            "spec.replicas",
            &replicas.into(),
            "must be greater than or equal to 0",
        ));
    }
    let labels: Labels = spec["template"]["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    let selector = spec.get("selector").filter(|selector| !selector.is_null());
    match selector {
        None => causes.push(StatusCause::required("spec.selector", "")),
        Some(selector) => {
            let parsed = LabelSelector::object(Some(selector));
            if parsed.as_ref().is_some_and(LabelSelector::is_empty) {
                causes.push(StatusCause::invalid(
                    "spec.selector",
                    selector,
                    "empty selector is invalid for deployment",
                ));
            }
            if !parsed.is_some_and(|parsed| parsed.matches(&labels)) {
                let labels = json!(labels);
                causes.push(StatusCause::invalid(
                    "spec.template.metadata.labels",
                    &labels,
                    "`selector` does not match template `labels`",
                ));
            }
        }
    }
    pod_spec(&spec["template"]["spec"], "spec.template.spec", causes);
    if spec["template"]["spec"]["restartPolicy"] != "Always" {
        causes.push(StatusCause::unsupported(
            "spec.template.spec.restartPolicy",
            &spec["template"]["spec"]["restartPolicy"],
            &["Always"],
        ));
    }
}

fn budget(spec: &Value, causes: &mut Vec<StatusCause>) {
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        let (selector, policy) = (&spec["selector"], &spec["unhealthyPodEvictionPolicy"]);
        // In the order of the type's fields, as Go prints it.
        let message = format!(
            "Invalid value: {{\"MinAvailable\":{least},\"Selector\":{selector},\"MaxUnavailable\":{most},\
             \"UnhealthyPodEvictionPolicy\":{policy}}}: minAvailable and maxUnavailable cannot be both set"
        );
        causes.push(StatusCause { reason: "FieldValueInvalid", field: "spec".into(), message });
    }
    for (name, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        let path = format!("spec.{name}");
        match value {
            Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
                causes.push(StatusCause::invalid(path, value, "must be greater than or equal to 0"));
            }
            Value::String(text) => match text.strip_suffix('%').map(str::parse::<u32>) {
                Some(Ok(percent)) if percent <= 100 => {}
                Some(Ok(_)) => causes.push(StatusCause::invalid(path, value, "must not be greater than 100%")),
                _ => causes.push(StatusCause::invalid(
                    path,
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                )),
            },
            _ => {}
        }
    }
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if !policy.is_null() && policy != "IfHealthyBudget" && policy != "AlwaysAllow" {
        causes.push(StatusCause::unsupported(
            "spec.unhealthyPodEvictionPolicy",
            policy,
            &["AlwaysAllow", "IfHealthyBudget"],
        ));
    }
}

fn lease(spec: &Value, causes: &mut Vec<StatusCause>) {
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        causes.push(StatusCause::invalid(
            "spec.leaseDurationSeconds",
            &seconds.into(),
            "must be greater than 0",
        ));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
        causes.push(StatusCause::invalid(
            "spec.leaseTransitions",
            &count.into(),
            "must be greater than or equal to 0",
        ));
    }
}

/// What an update may not change.
pub(crate) fn update(
    kind: &Kind,
    old: &Value,
    new: &Value,
    subresource: Option<&str>,
    minor: u32,
) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if let Some(custom) = &kind.custom {
        return violations(custom.rules(new, Some(old)));
    }
    if old["metadata"].get("deletionTimestamp").is_some() {
        let empty = Vec::new();
        let before = old["metadata"]["finalizers"].as_array().unwrap_or(&empty);
        let more: Vec<String> = new["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finalizer| !before.contains(finalizer))
            .map(|finalizer| finalizer.as_str().unwrap_or_default().to_string())
            .collect();
        if !more.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                more.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
            );
            // A server before 1.37 checks metadata twice.
            for _ in 0..if minor < 37 { 2 } else { 1 } {
                causes.push(StatusCause::forbidden("metadata.finalizers", &why));
            }
        }
    }
    let immutable = |path: &str, causes: &mut Vec<StatusCause>| {
        let pointer = format!("/{}", path.replace('.', "/"));
        let (was, is) = (old.pointer(&pointer), new.pointer(&pointer));
        if was != is {
            causes.push(StatusCause::invalid(path, is.unwrap_or(&Value::Null), "field is immutable"));
        }
    };
    match kind.kind.as_str() {
        "Deployment" | "ReplicaSet" | "DaemonSet" => immutable("spec.selector", &mut causes),
        "Job" => {
            immutable("spec.selector", &mut causes);
            immutable("spec.completionMode", &mut causes);
        }
        "Pod" if subresource.is_none() && old["spec"] != new["spec"] => {
            let plain = |object: &Value| {
                let mut spec = object["spec"].clone();
                for list in ["containers", "initContainers"] {
                    for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                        container["image"] = Value::Null;
                    }
                }
                for name in ["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"] {
                    spec[name] = Value::Null;
                }
                spec
            };
            if plain(old) != plain(new) {
                causes.push(StatusCause::forbidden(
                    "spec",
                    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
                ));
            }
        }
        "ConfigMap" | "Secret" if old["immutable"] == true => {
            for name in ["data", "binaryData"] {
                if old[name] != new[name] {
                    causes.push(StatusCause::forbidden(name, "field is immutable when `immutable` is set"));
                }
            }
        }
        _ => {}
    }
    causes
}
