//! Tables of custom resources: the columns that their definition names.
//!
//! Here belongs the little of `JSONPath` that columns need. The invariant: a value that is not there is an empty cell,
//! never an error.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cell::text;
use super::column::Column;

/// The columns after the name; the age if a definition says nothing.
pub(super) fn defined(columns: &Value) -> Vec<Value> {
    match columns.as_array() {
        Some(columns) if !columns.is_empty() => columns.clone(),
        _ => vec![json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})],
    }
}

pub(super) fn columns(defined: &[Value]) -> Vec<Column> {
    let mut columns = vec![Column::new("Name", "string", 0)];
    columns.extend(defined.iter().map(|column| {
        let mut made = Column::new(
            text(column, "/name"),
            text(column, "/type"),
            column["priority"].as_i64().unwrap_or(0),
        );
        made.format = "";
        made
    }));
    columns
}

pub(super) fn cells(defined: &[Value], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![object["metadata"]["name"].clone()];
    cells.extend(defined.iter().map(|column| {
        let value = path(object, text(column, "/jsonPath"));
        match (text(column, "/type"), value) {
            (_, None | Some(Value::Null)) => Value::Null,
            ("date", Some(Value::String(time))) => age::since(&time, now).into(),
            ("string", Some(Value::String(text))) => text.into(),
            ("string", Some(value)) => value.to_string().into(),
            ("integer", Some(value)) => {
                #[allow(clippy::cast_possible_truncation, reason = "what the server does")]
                let cut = value.as_i64().or_else(|| value.as_f64().map(|value| value as i64));
                cut.into()
            }
            ("number", Some(value)) => value.as_f64().into(),
            ("boolean", Some(value)) => value.as_bool().into(),
            _ => Value::Null,
        }
    }));
    cells
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
