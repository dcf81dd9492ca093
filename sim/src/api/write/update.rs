//! `replace`: an object becomes another, by an update or a patch.
//!
//! Here belongs what a change may not touch and what a precondition demands. The invariant: a write that changes
//! nothing makes no new revision.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::kinds::Kind;
use super::super::state::ApiState;
use super::super::status::{self, Failure, Outcome};
use super::super::{defaults, validate};
use super::{WriteOptions, WriteResult, drop_field, same, text, warnings};
use crate::fields::Managed;
use crate::record::Record;

impl ApiState {
    /// Changes an object from what it is to `object`, which may be a patch's result.
    pub(crate) fn replace(
        &mut self,
        kind: &Arc<Kind>,
        key: &str,
        before: &Record,
        object: Value,
        options: &WriteOptions,
    ) -> Outcome<WriteResult> {
        self.replace_seen(kind, key, before, &kind.seen(before), object, options)
    }

    /// The same for a caller who has the object as it was, `old`.
    pub(crate) fn replace_seen(
        &mut self,
        kind: &Arc<Kind>,
        key: &str,
        before: &Record,
        old: &Arc<Value>,
        mut object: Value,
        options: &WriteOptions,
    ) -> Outcome<WriteResult> {
        let (namespace, name) = (Some(before.namespace()), before.name());
        let unknown = kind.decode_beside(&mut object, Some(old))?;
        self.check_names(kind, namespace, &mut object, Some(name))?;
        check_sent(kind, key, before, &object)?;
        self.keep(kind, old, &mut object, options);
        if let Some(custom) = &kind.custom {
            custom.default(&mut object);
        }
        defaults::fill(kind, &mut object, self.release.minor);
        let warnings = warnings(unknown);
        let counts = kind.numbers(self.release.minor) && options.subresource.as_deref() != Some("status");
        if counts && kind.counts(old, &object) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = generation.into();
        }
        if options.tracked {
            let sent = &object["metadata"]["managedFields"];
            let reset = sent.as_array().is_some_and(|sent| {
                matches!(sent.as_slice(), [] | [Value::Object(_)])
                    && sent.iter().all(|entry| entry == &json!({}))
            });
            let (writer, now) = (kind.writer(options, false), self.now());
            let scaled = options.subresource.as_deref() == Some("scale");
            if reset
                || scaled
                || !Managed::update_written(&kind.shape, old, &mut object, &writer, &now, kind.status)
            {
                // A request to a subresource cannot change `managedFields` directly.
                let said = if options.subresource.is_some() { old } else { &object };
                let mut managed = if reset { Managed::default() } else { Managed::read(said) };
                if !reset && managed.is_empty() {
                    managed = Managed::read(old);
                }
                if !managed.is_empty() {
                    managed.update(&kind.shape, old, &object, &writer, &now, kind.status);
                }
                // A scale of zero replicas does not name them, so nobody owns them through it.
                if scaled && object["spec"]["replicas"] == 0 {
                    managed.forget(&writer);
                }
                managed.write(&mut object);
            }
        } else if let Some(fields) = old["metadata"].get("managedFields") {
            object["metadata"]["managedFields"] = fields.clone();
        }
        self.store_update(kind, key, before, old, object, warnings, options)
    }

    /// The end of an update or an apply: validates the object, writes nothing where nothing differs, and removes an
    /// object that lost its last finalizer.
    #[allow(clippy::too_many_arguments, reason = "the two callers have all of it at hand")]
    pub(super) fn store_update(
        &mut self,
        kind: &Arc<Kind>,
        key: &str,
        before: &Record,
        old: &Arc<Value>,
        mut object: Value,
        warnings: Vec<String>,
        options: &WriteOptions,
    ) -> Outcome<WriteResult> {
        object["metadata"]["resourceVersion"] = before.revision.to_string().into();
        let mut causes = validate::create(kind, &object, self.release.minor);
        causes.extend(validate::update(
            kind,
            old,
            &object,
            options.subresource.as_deref(),
            self.release.minor,
        ));
        if !causes.is_empty() {
            return Err(Failure::invalid(kind.typed(before.name()), &causes));
        }
        if same(old, &object) {
            return Ok(WriteResult { object: old.clone(), warnings });
        }
        if options.dry_run {
            return Ok(WriteResult { object: Arc::new(object), warnings });
        }
        let leaving = object["metadata"].get("deletionTimestamp").is_some();
        let free = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
            && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
            && object["spec"]["finalizers"]
                .as_array()
                .is_none_or(|left| kind.kind != "Namespace" || left.is_empty());
        if leaving && free {
            self.remove(kind, key);
            return Ok(WriteResult { object: Arc::new(object), warnings });
        }
        Ok(WriteResult { object: self.put(kind, key, object), warnings })
    }

    /// Puts back what this write may not change.
    pub(super) fn keep(&self, kind: &Kind, old: &Value, object: &mut Value, options: &WriteOptions) {
        let metadata = &mut object["metadata"];
        for name in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "generateName",
        ] {
            match old["metadata"].get(name) {
                Some(value) if metadata.get(name) == Some(value) => {}
                Some(value) => metadata[name] = value.clone(),
                None => drop(metadata.as_object_mut().map(|metadata| metadata.remove(name))),
            }
        }
        let set = |object: &mut Value, name: &str, value: Option<&Value>| match value {
            Some(value) if object.get(name) == Some(value) => {}
            Some(value) => object[name] = value.clone(),
            None => drop(object.as_object_mut().map(|object| object.remove(name))),
        };
        match options.subresource.as_deref() {
            Some("status") => {
                if kind.custom.is_some() {
                    let metadata = object["metadata"].take();
                    let new = object.get("status").cloned();
                    *object = old.clone();
                    set(object, "status", new.as_ref());
                    for name in ["managedFields", "resourceVersion"] {
                        if let Some(value) = metadata.get(name) {
                            object["metadata"][name] = value.clone();
                        }
                    }
                } else {
                    set(object, "spec", old.get("spec"));
                    let kept: &[&str] = match kind.kind.as_str() {
                        "Pod" => &["ownerReferences"],
                        "Deployment" => &["labels"],
                        _ => &[],
                    };
                    for name in kept {
                        match old["metadata"].get(*name) {
                            Some(value) => object["metadata"][*name] = value.clone(),
                            None => drop_field(object, name),
                        }
                    }
                }
            }
            None if kind.status => set(object, "status", old.get("status")),
            _ => {}
        }
    }
}

/// What the server says when a precondition of an update is not met.
fn precondition(kind: &Kind, key: &str, why: &str) -> String {
    let path = match kind.group.as_str() {
        "" | "apps" | "batch" | "policy" => kind.plural.clone(),
        "coordination.k8s.io" => "leases".to_owned(),
        group => format!("{group}/{}", kind.plural),
    };
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{path}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: {why}"
    )
}

/// Whether the UID and the resourceVersion of `object`, as it was sent, are those of the object `before`.
fn check_sent(kind: &Kind, key: &str, before: &Record, object: &Value) -> Outcome<()> {
    match text(object, "/metadata/uid") {
        Some(uid) if uid != &*before.uid => {
            let why = precondition(
                kind,
                key,
                &format!("UID in precondition: {uid}, UID in object meta: {}", before.uid),
            );
            return Err(Failure::conflict(kind.named(before.name()), why));
        }
        _ => {}
    }
    match text(object, "/metadata/resourceVersion") {
        Some("0") | None => {
            if kind.conditional || kind.custom.is_some() {
                let cause = status::StatusCause::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                let mut cause = cause;
                cause.message = "Invalid value: 0: must be specified for an update".into();
                return Err(Failure::invalid(kind.named(before.name()), &[cause]));
            }
        }
        Some(sent) if sent != before.revision.to_string() => {
            return Err(Failure::modified(kind.named(before.name())));
        }
        Some(_) => {}
    }
    Ok(())
}
