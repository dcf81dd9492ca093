//! `apply`: what one manager wants, merged with what the others own.
//!
//! Here belongs how the result is put together; whose a field is, is in `fields`. The invariant: a value of somebody
//! else is changed only by force.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::defaults;
use super::super::request::RequestTarget;
use super::super::state::ApiState;
use super::super::status::{Failure, Outcome};
use super::{WriteOptions, WriteResult, drop_field, text, warnings};
use crate::fields::{Conflict, Managed, Writer};

impl ApiState {
    /// Server-side apply.
    pub(crate) fn apply(
        &mut self,
        subject: &RequestTarget,
        name: &str,
        mut applied: Value,
        options: &WriteOptions,
        force: bool,
    ) -> Outcome<(WriteResult, bool)> {
        let kind = &subject.kind;
        let key = kind.key(subject.namespace.as_deref(), name);
        let before = self.store.get(&kind.resource, &key).cloned();
        let refuse = |what: &str| Err(Failure::bad_request(what.to_owned()));
        match (text(&applied, "/apiVersion"), text(&applied, "/kind")) {
            (Some(version), Some(sent)) if version != kind.api_version() => {
                let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
                return refuse(&format!("invalid object type: {version}, Kind={sent}"));
            }
            (Some(_), Some(_)) => {}
            _ => return refuse("invalid object type: /, Kind="),
        }
        if applied["metadata"].get("managedFields").is_some_and(|fields| !fields.is_null()) {
            return refuse("metadata.managedFields must be nil");
        }
        self.check_names(kind, subject.namespace.as_deref(), &mut applied, Some(name))?;
        let writer = kind.writer(options, true);
        let old = before.as_ref().map_or_else(|| Arc::new(kind.blank()), |before| kind.seen(before));
        let mut managed = Managed::read(&old);
        if before.is_some() && managed.is_empty() {
            let first = Writer { manager: "before-first-apply".into(), applies: false, ..writer.clone() };
            managed.update(&kind.shape, &kind.blank(), &old, &first, &self.now(), kind.status);
        }
        if let (Some(sent), Some(before)) = (text(&applied, "/metadata/resourceVersion"), &before)
            && sent != before.revision.to_string()
        {
            return Err(Failure::modified(kind.named(name)));
        }
        let result = managed.apply(&kind.shape, &old, &applied, &writer, &self.now(), (force, kind.status));
        let mut object = result.map_err(|conflicts| refusal(&conflicts))?;
        let Some(before) = before else {
            let plain = WriteOptions { tracked: false, ..options.clone() };
            if options.subresource.is_some() {
                return Err(Failure::not_found(kind.named(name)));
            }
            drop_field(&mut object, "resourceVersion");
            // The owners are known already; creating works out no others.
            managed.write(&mut object);
            let fields = object["metadata"]["managedFields"].clone();
            object["metadata"]["managedFields"] = fields;
            let written = self.create(kind, subject.namespace.as_deref(), object, &plain)?;
            return Ok((written, true));
        };
        let unknown = kind.decode(&mut object)?;
        self.keep(kind, &old, &mut object, options);
        if let Some(custom) = &kind.custom {
            custom.default(&mut object);
        }
        defaults::fill(kind, &mut object, self.release.minor);
        if kind.numbers(self.release.minor) && kind.counts(&old, &object) {
            object["metadata"]["generation"] =
                (old["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        managed.write(&mut object);
        let written = self.store_update(kind, &key, &before, &old, object, warnings(unknown), options)?;
        Ok((written, false))
    }
}

/// The answer to an apply that meets `conflicts`.
fn refusal(conflicts: &[Conflict]) -> Failure {
    let message = if let [conflict] = conflicts {
        format!("Apply failed with 1 conflict: conflict with {}: {}", conflict.manager, conflict.path)
    } else {
        let mut by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for conflict in conflicts {
            by.entry(&conflict.manager).or_default().push(&conflict.path);
        }
        let lines: Vec<String> = by
            .into_iter()
            .map(|(manager, paths)| format!("conflicts with {manager}:\n- {}", paths.join("\n- ")))
            .collect();
        format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
    };
    conflicts.iter().fold(Failure::new(409, "Conflict", message), |failure, conflict| {
        let said = format!("conflict with {}", conflict.manager);
        failure.with_cause("FieldManagerConflict", &said, &conflict.path)
    })
}
