//! `create`: an object that was not there.
//!
//! Here belongs what a new object is given by the server. The invariant: an object that exists is never replaced by
//! this.

use std::sync::Arc;

use serde_json::Value;

use super::super::kinds::Kind;
use super::super::state::ApiState;
use super::super::status::{self, Failure, Outcome};
use super::super::{defaults, validate};
use super::{WriteOptions, WriteResult, drop_field, text, warnings};
use crate::clock;
use crate::fields::Managed;

impl ApiState {
    /// Makes an object.
    pub(crate) fn create(
        &mut self,
        kind: &Arc<Kind>,
        namespace: Option<&str>,
        mut object: Value,
        options: &WriteOptions,
    ) -> Outcome<WriteResult> {
        let unknown = kind.decode(&mut object)?;
        self.check_names(kind, namespace, &mut object, None)?;
        let sent_name = text(&object, "/metadata/name").unwrap_or_default().to_owned();
        let generate = text(&object, "/metadata/generateName").map(str::to_owned);
        if sent_name.is_empty() && generate.is_none() {
            let cause = status::StatusCause::required("metadata.name", "name or generateName is required");
            return Err(Failure::invalid(kind.typed(""), &[cause]));
        }
        self.check_namespace(kind, namespace, &sent_name)?;
        if text(&object, "/metadata/resourceVersion").is_some() {
            return Err(
                Failure::internal("resourceVersion should not be set on objects to be created").bare()
            );
        }
        self.stamp(kind, &mut object, &sent_name, generate.as_deref());
        if kind.status && !matches!(kind.kind.as_str(), "Node") {
            match (&kind.custom, kind.blank_status()) {
                (Some(_), _) => drop(object.as_object_mut().map(|object| object.remove("status"))),
                (None, status) => object["status"] = status,
            }
        }
        if let Some(custom) = &kind.custom {
            custom.default(&mut object);
        }
        defaults::fill(kind, &mut object, self.release.minor);
        let warnings = warnings(unknown);
        if options.tracked {
            let mut managed = Managed::read(&object);
            let before = kind.blank();
            managed.update(
                &kind.shape,
                &before,
                &object,
                &kind.writer(options, false),
                &self.now(),
                kind.status,
            );
            managed.write(&mut object);
        }
        // Fields that admission adds have no owner.
        self.admit(kind, &mut object)?;
        let name = text(&object, "/metadata/name").unwrap_or_default().to_owned();
        let mut causes = validate::create(kind, &object, self.release.minor);
        if causes.is_empty() {
            causes = validate::rules(kind, &object);
        }
        if !causes.is_empty() {
            return Err(Failure::invalid(kind.typed(&name), &causes));
        }
        let key = kind.key(namespace, &name);
        if let Some(found) = self.store.get(&kind.resource, &key) {
            let mut failure = Failure::exists(kind.named(&name));
            if found.leaving {
                let said = failure.body["message"].as_str().unwrap_or_default();
                failure.body["message"] = format!("object is being deleted: {said}").into();
            }
            return Err(failure);
        }
        if options.dry_run {
            return Ok(WriteResult { object: Arc::new(object), warnings });
        }
        Ok(WriteResult { object: self.put(kind, &key, object), warnings })
    }

    /// Gives a new object the metadata that only the server gives, and its name where it was sent without one.
    fn stamp(&mut self, kind: &Kind, object: &mut Value, sent_name: &str, generate: Option<&str>) {
        for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            drop_field(object, name);
        }
        let metadata = &mut object["metadata"];
        metadata["uid"] = self.random.uid().into();
        metadata["creationTimestamp"] = clock::seconds(self.clock.now()).into();
        if kind.numbers(self.release.minor) {
            metadata["generation"] = 1.into();
        }
        if sent_name.is_empty() {
            let base: String = generate.unwrap_or_default().chars().take(58).collect();
            object["metadata"]["name"] = format!("{base}{}", self.random.suffix(5)).into();
        }
    }
}
