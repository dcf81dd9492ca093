//! Server-side tables: what `kubectl get` prints.

use serde_json::{Value, json};

use super::State;
use super::kinds::Kind;
use super::request::Request;
use crate::clock;

struct Column {
    name: String,
    kind: &'static str,
    format: &'static str,
    priority: i64,
}

fn column(name: &str, kind: &'static str, priority: i64) -> Column {
    let format = if name == "Name" { "name" } else { "" };
    Column { name: name.to_owned(), kind, format, priority }
}

/// Objects as a table.
pub(crate) fn of(
    state: &State,
    kind: &Kind,
    objects: &[Value],
    request: &Request,
    metadata: &Value,
) -> Value {
    let now = state.clock.now();
    let age = |object: &Value| age(object["metadata"]["creationTimestamp"].as_str().unwrap_or_default(), now);
    let (columns, cells): (Vec<Column>, Box<dyn Fn(&Value) -> Vec<Value>>) = columns(kind, age);
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = json!({"cells": cells(object)});
            match request.param("includeObject") {
                Some("None") => row["object"] = Value::Null,
                Some("Object") => row["object"] = object.clone(),
                _ => row["object"] = super::read::metadata(object),
            }
            row
        })
        .collect();
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({"name": column.name, "type": column.kind, "format": column.format, "description": "",
                "priority": column.priority})
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions,
        "rows": rows})
}

type Cells<'a> = Box<dyn Fn(&Value) -> Vec<Value> + 'a>;

fn columns<'a>(kind: &'a Kind, age: impl Fn(&Value) -> String + 'a) -> (Vec<Column>, Cells<'a>) {
    let name = |object: &Value| object["metadata"]["name"].clone();
    let count = |object: &Value, path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    if let Some(custom) = &kind.custom {
        let defined = custom.columns.as_array().cloned().unwrap_or_default();
        let mut columns = vec![column("Name", "string", 0)];
        if defined.is_empty() {
            columns.push(column("Age", "date", 0));
            return (
                columns,
                Box::new(move |object| vec![name(object), object["metadata"]["creationTimestamp"].clone()]),
            );
        }
        for definition in &defined {
            let kind = match definition["type"].as_str() {
                Some("integer") => "integer",
                Some("number") => "number",
                Some("boolean") => "boolean",
                Some("date") => "date",
                _ => "string",
            };
            columns.push(column(
                definition["name"].as_str().unwrap_or_default(),
                kind,
                definition["priority"].as_i64().unwrap_or(0),
            ));
        }
        return (
            columns,
            Box::new(move |object| {
                let mut cells = vec![name(object)];
                for definition in &defined {
                    let value = path(object, definition["jsonPath"].as_str().unwrap_or_default());
                    cells.push(match (definition["type"].as_str(), value) {
                        (_, None) => Value::Null,
                        (Some("date"), Some(value)) => age_of(&value, &age, object).into(),
                        (Some("string"), Some(value)) if !value.is_string() => value.to_string().into(),
                        (_, Some(value)) => value,
                    });
                }
                cells
            }),
        );
    }
    match kind.kind.as_str() {
        "Node" => (
            vec![
                column("Name", "string", 0),
                column("Status", "string", 0),
                column("Roles", "string", 0),
                column("Age", "string", 0),
                column("Version", "string", 0),
            ],
            Box::new(move |object| {
                let ready = object["status"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find(|c| c["type"] == "Ready");
                let mut status = match ready.map(|ready| ready["status"] == "True") {
                    Some(true) => "Ready",
                    Some(false) => "NotReady",
                    None => "Unknown",
                }
                .to_owned();
                if object["spec"]["unschedulable"] == true {
                    status.push_str(",SchedulingDisabled");
                }
                let mut roles: Vec<&str> = object["metadata"]["labels"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
                    .collect();
                roles.sort_unstable();
                let roles = if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") };
                vec![
                    name(object),
                    status.into(),
                    roles.into(),
                    age(object).into(),
                    object["status"]["nodeInfo"]["kubeletVersion"].clone(),
                ]
            }),
        ),
        "Pod" => (
            vec![
                column("Name", "string", 0),
                column("Ready", "string", 0),
                column("Status", "string", 0),
                column("Restarts", "string", 0),
                column("Age", "string", 0),
            ],
            Box::new(move |object| {
                let statuses = object["status"]["containerStatuses"].as_array();
                let ready = statuses.into_iter().flatten().filter(|status| status["ready"] == true).count();
                let all = object["spec"]["containers"].as_array().map_or(0, Vec::len);
                let status = if object["metadata"].get("deletionTimestamp").is_some() {
                    "Terminating".into()
                } else {
                    object["status"]["phase"].clone()
                };
                vec![name(object), format!("{ready}/{all}").into(), status, "0".into(), age(object).into()]
            }),
        ),
        "Deployment" => (
            vec![
                column("Name", "string", 0),
                column("Ready", "string", 0),
                column("Up-to-date", "string", 0),
                column("Available", "string", 0),
                column("Age", "string", 0),
            ],
            Box::new(move |object| {
                let ready =
                    format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas"));
                vec![
                    name(object),
                    ready.into(),
                    count(object, "/status/updatedReplicas").into(),
                    count(object, "/status/availableReplicas").into(),
                    age(object).into(),
                ]
            }),
        ),
        "PodDisruptionBudget" => (
            vec![
                column("Name", "string", 0),
                column("Min Available", "string", 0),
                column("Max Unavailable", "string", 0),
                column("Allowed Disruptions", "integer", 0),
                column("Age", "string", 0),
            ],
            Box::new(move |object| {
                let shown = |name: &str| match &object["spec"][name] {
                    Value::Null => "N/A".into(),
                    Value::String(text) => Value::String(text.clone()),
                    other => other.to_string().into(),
                };
                vec![
                    name(object),
                    shown("minAvailable"),
                    shown("maxUnavailable"),
                    count(object, "/status/disruptionsAllowed").into(),
                    age(object).into(),
                ]
            }),
        ),
        _ => (
            vec![column("Name", "string", 0), column("Age", "string", 0)],
            Box::new(move |object| vec![name(object), age(object).into()]),
        ),
    }
}

fn age_of(value: &Value, age: &impl Fn(&Value) -> String, object: &Value) -> String {
    if *value == object["metadata"]["creationTimestamp"] {
        return age(object);
    }
    age(&json!({"metadata": {"creationTimestamp": value}}))
}

/// The little of `JSONPath` that printer columns use: fields, indices and equality filters.
fn path(object: &Value, text: &str) -> Option<Value> {
    let mut at = object;
    let mut rest = text.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix("[?(") {
            let (test, after) = inside.split_once(")]")?;
            let (field, wanted) = test.split_once("==")?;
            let field = field.trim().trim_start_matches("@.");
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            at = at.as_array()?.iter().find(|item| item[field] == wanted)?;
            rest = after;
        } else if let Some(inside) = rest.strip_prefix('[') {
            let (index, after) = inside.split_once(']')?;
            at = match index.parse::<usize>() {
                Ok(index) => at.get(index)?,
                Err(_) => at.get(index.trim_matches(['"', '\'']))?,
            };
            rest = after;
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (field, after) = after.split_at(end);
            at = at.get(field)?;
            rest = after;
        }
    }
    Some(at.clone())
}

/// How long ago, as kubectl says it.
fn age(since: &str, now: jiff::Timestamp) -> String {
    let Some(since) = clock::read(since) else { return "<unknown>".to_owned() };
    let seconds = now.duration_since(since).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let both = |big: i64, sign: char, small: i64, unit: char| {
        if small == 0 { format!("{big}{sign}") } else { format!("{big}{sign}{small}{unit}") }
    };
    match seconds {
        ..0 => "<invalid>".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => both(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => both(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => both(days, 'd', hours % 24, 'h'),
        _ => format!("{days}d"),
    }
}
