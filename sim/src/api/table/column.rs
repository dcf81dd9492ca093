//! A column of a table, as the server describes it.
//!
//! Which columns a kind has never belongs here.

use serde_json::{Value, json};

/// A column of a table.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) format: &'static str,
    pub(super) priority: i64,
}

impl Column {
    pub(super) fn new(name: &str, kind: &str, priority: i64) -> Self {
        let format = if name == "Name" { "name" } else { "" };
        Self { name: name.to_owned(), kind: kind.to_owned(), format, priority }
    }

    pub(super) fn definition(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format, "description": "", "priority": self.priority})
    }
}
