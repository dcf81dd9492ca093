//! Kinds that are served in several versions, of which one is kept.
//!
//! Here belongs the way from a version to the one that is kept, and back. The versions of a custom resource differ in
//! nothing but their name, as with a real server without a conversion webhook. An Event of `events.k8s.io/v1` is one of
//! `v1` with other names for some fields (pkg/apis/events/v1/conversion.go). The invariant: there and back is the same
//! object.

use std::sync::Arc;

use serde_json::Value;

use super::kinds::Kind;
use crate::record::Record;

/// `events.k8s.io/v1` and `v1`.
const EVENT: [(&str, &str); 7] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

impl Kind {
    /// Whether objects of this kind are kept in another version.
    pub(crate) fn converts(&self) -> bool {
        self.is_event() || self.custom.as_ref().is_some_and(|custom| !custom.storage)
    }

    fn is_event(&self) -> bool {
        self.group == "events.k8s.io"
    }

    /// A kept object, as this version shows it.
    pub(crate) fn seen(&self, record: &Record) -> Arc<Value> {
        if !self.converts() {
            return record.value();
        }
        let mut object = record.copy();
        object["apiVersion"] = self.api_version().into();
        if self.is_event() {
            rename(&mut object, EVENT.map(|(new, old)| (old, new)));
        }
        Arc::new(object)
    }

    /// An object of this version, as the version `kept` keeps it.
    pub(crate) fn keep_as(&self, kept: &Self, object: &Value) -> Value {
        let mut object = object.clone();
        object["apiVersion"] = kept.api_version().into();
        if self.is_event() {
            rename(&mut object, EVENT);
        }
        object
    }
}

fn rename(object: &mut Value, names: [(&str, &str); EVENT.len()]) {
    let Some(fields) = object.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
