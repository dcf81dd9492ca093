//! In which form a request wants its objects, and an object in each form that depends on it alone.
//!
//! Which objects an answer has never belongs here, nor does what the rows of a table say.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::request::Request;
use crate::record::Record;

/// In which form objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShownForm {
    Whole,
    Metadata,
    Table,
}

impl ShownForm {
    pub(crate) fn of(request: &Request) -> Self {
        if request.wants("Table") {
            Self::Table
        } else if request.wants("PartialObjectMetadata") || request.wants("PartialObjectMetadataList") {
            Self::Metadata
        } else {
            Self::Whole
        }
    }
}

/// The object as this version of the kind shows it.
pub(crate) fn shown(kind: &Kind, record: &Record) -> String {
    if kind.converts() { kind.seen(record).to_string() } else { record.text().to_string() }
}

/// The object without everything but its metadata.
pub(crate) fn metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
