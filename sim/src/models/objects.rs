//! What every model reads and writes in objects: conditions, owners, deletion.
//!
//! Here belongs what is alike for objects of every kind. The store never belongs here, nor does what a model does about
//! an object.

use serde_json::{Value, json};

/// Sets a condition in a status; its transition time moves only when its status changes. Returns whether anything
/// changed.
pub(crate) fn condition(status: &mut Value, wanted: &Value, now: &str) -> bool {
    if !status.is_object() {
        *status = json!({});
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return false };
    let mut condition = wanted.clone();
    if condition["message"] == "" && condition["type"] != "DisruptionAllowed" {
        drop(condition.as_object_mut().map(|condition| condition.remove("message")));
    }
    condition["lastTransitionTime"] = now.into();
    let Some(found) = conditions.iter_mut().find(|found| found["type"] == wanted["type"]) else {
        conditions.push(condition);
        return true;
    };
    if found["status"] == wanted["status"] {
        condition["lastTransitionTime"] = found["lastTransitionTime"].clone();
    }
    let changed = *found != condition;
    *found = condition;
    changed
}

/// A condition of an object, by its type.
pub(crate) fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// An owner reference to a controller.
pub(crate) fn owned_by(owner: &Value) -> Value {
    json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
}

/// Whether the object has a deletionTimestamp.
pub(crate) fn leaving(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}
