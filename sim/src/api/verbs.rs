//! Requests that write: their bodies and options are checked here; `write` carries them out.
//!
//! Here belongs what a request says of how to write. The invariant: what is refused here has changed nothing.

use std::sync::Arc;

use serde_json::{Value, json};

use super::reply::{Reply, ok};
use super::request::{Request, RequestTarget};
use super::state::ApiState;
use super::status::{self, Failure, Outcome};
use super::write::Deletion;
use super::{eviction, read};

/// How the options of a deletion are named in errors.
const OPTIONS: status::Named<'_> = status::Named { group: "meta.k8s.io", kind: "DeleteOptions", name: "" };

/// `DeleteOptions` in a query.
fn asked(request: &Request) -> Value {
    let grace = request.param("gracePeriodSeconds").and_then(|seconds| seconds.parse::<i64>().ok());
    let orphans = request.param("orphanDependents").map(|word| !matches!(word, "" | "0" | "false"));
    json!({"gracePeriodSeconds": grace, "propagationPolicy": request.param("propagationPolicy"), "orphanDependents": orphans})
}

impl ApiState {
    pub(super) fn how(request: &Request) -> Outcome<Deletion> {
        // The query counts only where there is no body.
        let options = if request.body.is_empty() { asked(request) } else { request.object()? };
        if let (Some(policy), true) =
            (options["propagationPolicy"].as_str(), options["orphanDependents"].is_boolean())
        {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let cause = status::StatusCause::invalid("propagationPolicy", &policy.into(), why);
            return Err(Failure::invalid(OPTIONS, &[cause]));
        }
        let mut how = eviction::deletion(&options);
        if let Some(policy) = how
            .propagation
            .as_deref()
            .filter(|policy| !matches!(*policy, "Orphan" | "Background" | "Foreground"))
        {
            let cause = status::StatusCause::unsupported(
                "propagationPolicy",
                &policy.into(),
                &["Foreground", "Background", "Orphan", "nil"],
            );
            return Err(Failure::invalid(OPTIONS, &[cause]));
        }
        how.dry_run |= request.dry_run()?;
        Ok(how)
    }

    pub(super) fn delete_all(&mut self, request: &Request, subject: &RequestTarget) -> Outcome<Reply> {
        let how = Self::how(request)?;
        let list = self.list(request, subject)?;
        let filter = read::Filter::of(request, subject)?;
        let shelf = self.store.shelf(&subject.kind.resource);
        let keys: Vec<Arc<str>> = shelf
            .into_iter()
            .flat_map(|shelf| shelf.live.values())
            .filter(|record| filter.within(record) && filter.matches(record))
            .map(|record| record.key.clone())
            .collect();
        for key in keys {
            self.delete(&subject.kind, &key, &how)?;
        }
        Ok(Reply::Text(200, list))
    }

    pub(super) fn post(&mut self, request: &Request, subject: &RequestTarget) -> Outcome<Reply> {
        let object = Self::body(request, &subject.kind)?;
        let options = Self::options(request, subject)?;
        Self::strict(request, &subject.kind, &object)?;
        let written = self.create(&subject.kind, subject.namespace.as_deref(), object, &options)?;
        let warnings = Self::validated(request, &subject.kind, written.warnings)?;
        Ok(Reply::Value(201, read::one(self, &subject.kind, written.object, request)?, warnings))
    }

    pub(super) fn put_object(
        &mut self,
        request: &Request,
        subject: &RequestTarget,
        name: &str,
    ) -> Outcome<Reply> {
        let kind = &subject.kind;
        let mut object = Self::body(request, kind)?;
        let options = Self::options(request, subject)?;
        Self::strict(request, kind, &object)?;
        let key = kind.key(subject.namespace.as_deref(), name);
        kind.decode(&mut object.clone())?;
        if object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
            return Err(Failure::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        if let Some(sent) = object["metadata"]["name"].as_str().filter(|sent| *sent != name) {
            return Err(Failure::bad_request(format!(
                "the name of the object ({sent}) does not match the name on the URL ({name})"
            )));
        }
        let Some(before) = self.store.get(&kind.resource, &key).cloned() else {
            // An update of these kinds creates the object if there is none.
            let creates = subject.subresource.is_none()
                && matches!(kind.kind.as_str(), "Lease" | "Event" | "EndpointSlice");
            if !creates {
                return Err(Failure::not_found(kind.named(name)));
            }
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.insert("name".into(), name.into());
            }
            let written = self.create(kind, subject.namespace.as_deref(), object, &options)?;
            return Ok(Reply::Value(201, written.object, written.warnings));
        };
        let written = self.replace(kind, &key, &before, object, &options)?;
        let warnings = Self::validated(request, kind, written.warnings)?;
        Ok(Reply::Value(200, written.object, warnings))
    }

    pub(super) fn finalize(
        &mut self,
        request: &Request,
        subject: &RequestTarget,
        name: &str,
    ) -> Outcome<Reply> {
        let kind = &subject.kind;
        let sent = request.object()?;
        let before = self.store.get(&kind.resource, name).cloned();
        let before = before.ok_or_else(|| Failure::not_found(kind.named(name)))?;
        let mut object = before.copy();
        object["spec"] = sent["spec"].clone();
        let options = Self::options(request, subject)?;
        let written = self.replace(kind, name, &before, object, &options)?;
        ok(written.object)
    }
}
