//! What cells are made of: parts of an object, and how an empty one is written.
//!
//! What is in the cells of a kind never belongs here. The invariant: what an object lacks is empty, and no error.

use serde_json::Value;

/// Text at a path; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a path; 0 if there is none.
pub(super) fn count(object: &Value, path: &str) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or(0)
}

/// The count at a path as a cell.
pub(super) fn number(object: &Value, path: &str) -> Value {
    count(object, path).into()
}

/// The items of the list at a path.
pub(super) fn items<'a>(object: &'a Value, path: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    object.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

/// `text`, or `none` if it is empty.
pub(super) fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

/// Labels in one cell.
pub(super) fn labels(of: &Value) -> Value {
    let all = of.as_object().into_iter().flatten();
    let all: Vec<String> =
        all.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or(&all.join(","), "<none>").into()
}
