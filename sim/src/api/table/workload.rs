//! Rows of what makes pods: templates, the workloads that have one, and what scales and remembers workloads.
//!
//! The pods themselves never belong here, nor do the names of columns. The invariant: each row has the columns that
//! `builtin` names, in their order.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use super::cell::{count, items, labels, number, or, text};
use crate::labels::LabelSelector;

/// Names and images of the containers of a template.
fn containers(object: &Value) -> [Value; 2] {
    containers_at(object, "/spec/template/spec/containers")
}

fn containers_at(object: &Value, path: &str) -> [Value; 2] {
    ["/name", "/image"].map(|field| {
        let all: Vec<&str> = items(object, path).map(|container| text(container, field)).collect();
        all.join(",").into()
    })
}

fn selector(object: &Value, none: &str) -> Value {
    let shown = LabelSelector::object(object["spec"].get("selector")).map(|selector| selector.shown());
    or(&shown.unwrap_or_else(|| "<error>".into()), none).into()
}

fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

/// Ready replicas of those that are wanted.
fn ready(object: &Value) -> Value {
    format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas")).into()
}

pub(super) fn deployment(object: &Value, age: Value) -> Vec<Value> {
    let [containers, images] = containers(object);
    vec![
        name(object),
        ready(object),
        number(object, "/status/updatedReplicas"),
        number(object, "/status/availableReplicas"),
        age,
        containers,
        images,
        selector(object, ""),
    ]
}

pub(super) fn replica_set(object: &Value, age: Value) -> Vec<Value> {
    replicas(object, age, selector(object, "<none>"))
}

pub(super) fn replication_controller(object: &Value, age: Value) -> Vec<Value> {
    replicas(object, age, labels(&object["spec"]["selector"]))
}

/// The row of a set of replicas, of whichever kind, which selects its pods so.
fn replicas(object: &Value, age: Value, selector: Value) -> Vec<Value> {
    let [containers, images] = containers(object);
    vec![
        name(object),
        number(object, "/spec/replicas"),
        number(object, "/status/replicas"),
        number(object, "/status/readyReplicas"),
        age,
        containers,
        images,
        selector,
    ]
}

pub(super) fn stateful_set(object: &Value, age: Value) -> Vec<Value> {
    let [containers, images] = containers(object);
    vec![name(object), ready(object), age, containers, images]
}

pub(super) fn daemon_set(object: &Value, age: Value) -> Vec<Value> {
    let [containers, images] = containers(object);
    vec![
        name(object),
        number(object, "/status/desiredNumberScheduled"),
        number(object, "/status/currentNumberScheduled"),
        number(object, "/status/numberReady"),
        number(object, "/status/updatedNumberScheduled"),
        number(object, "/status/numberAvailable"),
        labels(&object["spec"]["template"]["spec"]["nodeSelector"]),
        age,
        containers,
        images,
        selector(object, "<none>"),
    ]
}

pub(super) fn template(object: &Value) -> Vec<Value> {
    let [containers, images] = containers_at(object, "/template/spec/containers");
    vec![name(object), containers, images, labels(&object["template"]["metadata"]["labels"])]
}

pub(super) fn revision(object: &Value, age: Value) -> Vec<Value> {
    let owner = items(object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
    let owner = owner.map_or_else(|| "<none>".to_owned(), controller);
    vec![name(object), owner.into(), number(object, "/revision"), age]
}

/// An owner in one word: `deployment.apps/name`.
fn controller(owner: &Value) -> String {
    let kind = text(owner, "/kind").to_lowercase();
    match text(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "/name")),
        None => format!("{kind}/{}", text(owner, "/name")),
    }
}

pub(super) fn job(job: &Value, now: Timestamp, age: Value) -> Vec<Value> {
    let (done, parallel) = (count(job, "/status/succeeded"), count(job, "/spec/parallelism"));
    let completions = match job["spec"]["completions"].as_i64() {
        Some(all) => format!("{done}/{all}"),
        None if parallel > 1 => format!("{done}/1 of {parallel}"),
        None => format!("{done}/1"),
    };
    let time = |path: &str| crate::clock::read(text(job, path));
    let length = time("/status/startTime").map_or_else(String::new, |start| {
        age::shown(time("/status/completionTime").unwrap_or(now).duration_since(start))
    });
    let is = |kind: &str| {
        items(job, "/status/conditions")
            .find(|condition| condition["type"] == kind)
            .is_some_and(|condition| condition["status"] == "True")
    };
    let leaving = job["metadata"].get("deletionTimestamp").is_some();
    let status = [
        (is("Complete"), "Complete"),
        (is("Failed"), "Failed"),
        (leaving, "Terminating"),
        (is("Suspended"), "Suspended"),
        (is("FailureTarget"), "FailureTarget"),
        (is("SuccessCriteriaMet"), "SuccessCriteriaMet"),
    ]
    .into_iter()
    .find(|(is, _)| *is)
    .map_or("Running", |(_, status)| status);
    let [containers, images] = containers(job);
    vec![
        name(job),
        status.into(),
        completions.into(),
        length.into(),
        age,
        containers,
        images,
        selector(job, "<none>"),
    ]
}

pub(super) fn autoscaler(object: &Value, age: Value) -> Vec<Value> {
    let of = &object["spec"]["scaleTargetRef"];
    let least = object["spec"]["minReplicas"].as_i64().map(|least| least.to_string());
    vec![
        name(object),
        format!("{}/{}", text(of, "/kind"), text(of, "/name")).into(),
        metrics(object),
        least.unwrap_or_else(|| "<unset>".into()).into(),
        number(object, "/spec/maxReplicas"),
        number(object, "/status/currentReplicas"),
        age,
    ]
}

/// The first two metrics of an autoscaler, each with its present and its wanted value, and how many more there are.
fn metrics(object: &Value) -> Value {
    const MOST: usize = 2;
    let quantity = |of: &Value| of.as_str().map(str::to_owned);
    let shown = |(at, metric): (usize, &Value)| {
        let (field, named) = match text(metric, "/type") {
            "External" => ("external", false),
            "Pods" => ("pods", false),
            "Object" => ("object", false),
            "Resource" => ("resource", true),
            "ContainerResource" => ("containerResource", true),
            _ => return "<unknown type>".to_owned(),
        };
        let (wanted, is) = (
            &metric[field]["target"],
            &object["status"]["currentMetrics"].get(at).unwrap_or(&Value::Null)[field]["current"],
        );
        let percent = |of: &Value| of["averageUtilization"].as_i64().map(|percent| format!("{percent}%"));
        let average = quantity(&wanted["averageValue"]);
        let (is, wanted, note) = match (average, named) {
            (Some(wanted), true) => (quantity(&is["averageValue"]), wanted, ""),
            (None, true) => (percent(is), percent(wanted).unwrap_or_else(|| "<auto>".into()), ""),
            (Some(wanted), false) => {
                (quantity(&is["averageValue"]), wanted, if field == "pods" { "" } else { " (avg)" })
            }
            (None, false) => {
                (quantity(&is["value"]), quantity(&wanted["value"]).unwrap_or_else(|| "0".into()), "")
            }
        };
        let is = is.unwrap_or_else(|| "<unknown>".into());
        let name =
            if named { format!("{}: ", text(metric, &format!("/{field}/name"))) } else { String::new() };
        format!("{name}{is}/{wanted}{note}")
    };
    let all: Vec<String> =
        items(object, "/spec/metrics").collect::<Vec<_>>().into_iter().enumerate().map(shown).collect();
    let first = all.get(..MOST.min(all.len())).unwrap_or_default().join(", ");
    if all.len() > MOST {
        return format!("{first} + {} more...", all.len() - MOST).into();
    }
    or(&first, "<none>").into()
}
