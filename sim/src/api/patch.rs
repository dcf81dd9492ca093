//! The three patches that describe a change: JSON patch, merge patch and strategic merge patch.
//!
//! Here belongs what a patch makes of an object; nothing is stored here, and no rule of a kind is asked.

use serde_json::{Map, Value};

use super::status::{Failure, Outcome};
use crate::schema::Shape;

/// A JSON patch (RFC 6902).
pub(crate) fn json(object: &mut Value, patch: &[u8]) -> Outcome<()> {
    let patch: json_patch::Patch =
        serde_json::from_slice(patch).map_err(|error| Failure::bad_request(error.to_string()))?;
    json_patch::patch(object, &patch).map_err(|_| {
        let mut failure =
            Failure::new(422, "Invalid", "the server rejected our request due to an error in our request");
        failure.body["details"] = Value::Object(Map::new());
        failure
    })
}

/// A merge patch (RFC 7396).
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    json_patch::merge(object, patch);
}

/// A strategic merge patch: lists merge by the keys of the object's shape.
pub(crate) fn strategic(shape: &Shape, object: &mut Value, patch: &Value) -> Outcome<()> {
    let (Value::Object(fields), Value::Object(patch)) = (&mut *object, patch) else {
        *object = patch.clone();
        return Ok(());
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let mut patch = patch.clone();
            patch.remove("$patch");
            *object = Value::Object(patch);
            return Ok(());
        }
        Some("delete") => {
            *object = Value::Object(Map::new());
            return Ok(());
        }
        _ => {}
    }
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        fields.retain(|name, _| kept.iter().any(|kept| kept == name.as_str()));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = fields.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        if value.is_null() {
            fields.remove(name);
            continue;
        }
        let field = shape.field(name);
        let merges = field.is_some_and(|field| field.merges);
        match (fields.get_mut(name), value) {
            (Some(old @ Value::Object(_)), Value::Object(_)) => strategic(shape.child(name), old, value)?,
            (Some(Value::Array(old)), Value::Array(new)) if merges => {
                let key = field.and_then(|field| field.merge_key.as_deref());
                list(shape.child(name).item(), old, new, key)?;
            }
            (_, Value::Array(new)) if merges => {
                let mut made = Vec::new();
                let key = field.and_then(|field| field.merge_key.as_deref());
                list(shape.child(name).item(), &mut made, new, key)?;
                fields.insert(name.clone(), made.into());
            }
            (_, Value::Object(_)) => {
                let mut made = Value::Object(Map::new());
                strategic(shape.child(name), &mut made, value)?;
                fields.insert(name.clone(), made);
            }
            _ => {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
    // Items that the patch names are put into the order in which it names them.
    for (name, order) in patch {
        let Some(list) = name.strip_prefix("$setElementOrder/") else { continue };
        let key = shape.field(list).and_then(|field| field.merge_key.as_deref());
        let rank = |item: &Value| {
            order.as_array()?.iter().position(|named| match key {
                Some(key) => named.get(key) == item.get(key),
                None => named == item,
            })
        };
        if let Some(items) = fields.get_mut(list).and_then(Value::as_array_mut) {
            items.sort_by_key(|item| rank(item).unwrap_or(usize::MAX));
        }
    }
    Ok(())
}

fn list(shape: &Shape, old: &mut Vec<Value>, patch: &[Value], key: Option<&str>) -> Outcome<()> {
    let Some(key) = key else {
        // The items of the patch come first.
        let mut merged: Vec<Value> = Vec::new();
        for item in patch.iter().chain(old.iter()) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        *old = merged;
        return Ok(());
    };
    if patch.iter().any(|item| item["$patch"] == "replace") {
        *old = patch.iter().filter(|item| item["$patch"] != "replace").cloned().collect();
        return Ok(());
    }
    // New items come before the ones that were there.
    let mut fresh = Vec::new();
    for item in patch {
        let Some(name) = item.get(key) else {
            return Err(Failure::new(
                500,
                "InternalError",
                format!("Internal error occurred: map: {item} does not contain declared merge key: {key}"),
            ));
        };
        let at = old.iter().position(|found| found.get(key) == Some(name));
        if item["$patch"] == "delete" {
            old.retain(|found| found.get(key) != Some(name));
            continue;
        }
        if let Some(found) = at.and_then(|at| old.get_mut(at)) {
            strategic(shape, found, item)?;
        } else {
            let mut made = Value::Object(Map::new());
            strategic(shape, &mut made, item)?;
            fresh.push(made);
        }
    }
    old.splice(0..0, fresh);
    Ok(())
}
