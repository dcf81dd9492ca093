//! Server-side tables: what `kubectl get` prints, wide columns included.
//!
//! Which objects a list has never belongs here. A row depends on one object and the time, and on nothing else.

mod age;
mod builtin;
mod cell;
mod column;
mod custom;
mod pod;
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::request::Request;
use super::shown_as;
use super::status::{Failure, Outcome};
use column::Column;

/// How much of each object goes with its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Include {
    None,
    Metadata,
    Object,
}

/// The form of a table that a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    include: Include,
}

impl Style {
    /// As the request asks; an unknown `includeObject` is refused.
    pub(crate) fn of(request: &Request) -> Outcome<Self> {
        let include = match request.param("includeObject") {
            None | Some("Metadata") => Include::Metadata,
            Some("Object") => Include::Object,
            Some("None") => Include::None,
            Some(other) => {
                return Err(Failure::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                     must be 'Metadata', 'Object', 'None', or empty"
                )));
            }
        };
        Ok(Self { include })
    }
}

/// Objects as a table, with or without its columns' names: the later rows of a watch come without.
pub(crate) fn of<'a>(
    kind: &Kind,
    objects: impl IntoIterator<Item = &'a Value>,
    style: Style,
    now: Timestamp,
    metadata: &Value,
    headers: bool,
) -> Value {
    let (columns, cells): (Vec<Column>, Box<dyn Fn(&Value) -> Vec<Value>>) = match &kind.custom {
        Some(custom) => {
            let defined = custom::defined(&custom.columns);
            (custom::columns(&defined), Box::new(move |object| custom::cells(&defined, object, now)))
        }
        None => {
            (builtin::columns(&kind.kind), Box::new(move |object| builtin::cells(&kind.kind, object, now)))
        }
    };
    let row = |object: &Value| {
        let mut row = json!({"cells": cells(object)});
        row["object"] = match style.include {
            Include::None => Value::Null,
            Include::Object => object.clone(),
            Include::Metadata => shown_as::metadata(object),
        };
        if kind.custom.is_none()
            && kind.kind == "Pod"
            && let Some(conditions) = pod::conditions(object)
        {
            row["conditions"] = conditions;
        }
        row
    };
    let rows: Vec<Value> = objects.into_iter().map(row).collect();
    let definitions: Vec<Value> = columns.iter().filter(|_| headers).map(Column::definition).collect();
    let definitions = if headers { definitions.into() } else { Value::Null };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions,
        "rows": rows})
}
