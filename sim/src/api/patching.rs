//! `PATCH`: which of the four forms a patch has, and what becomes of the object.
//!
//! Here belongs the order of the steps; how a change is computed is in `patch`. The invariant: whatever the form,
//! `write` stores the result, by the rules of every write.

use serde_json::{Value, json};

use super::patch;
use super::reply::Reply;
use super::request::{Request, RequestTarget};
use super::state::ApiState;
use super::status::{self, Failure, Outcome};

impl ApiState {
    pub(super) fn patch(&mut self, request: &Request, subject: &RequestTarget, name: &str) -> Outcome<Reply> {
        let kind = subject.kind.clone();
        let options = Self::options(request, subject)?;
        let force = request.param("force");
        if request.content_type == "application/apply-patch+yaml" {
            if options.manager.is_empty() || request.param("fieldManager").is_none() {
                let cause = status::StatusCause::required("fieldManager", "is required for apply patch");
                let named = status::Named { group: "meta.k8s.io", kind: "PatchOptions", name: "" };
                return Err(Failure::invalid(named, &[cause]));
            }
            let applied = request.object()?;
            Self::strict_apply(request, &kind, &applied)?;
            let (written, created) = self.apply(subject, name, applied, &options, force == Some("true"))?;
            return Ok(Reply::Value(if created { 201 } else { 200 }, written.object, written.warnings));
        }
        if force.is_some() {
            let cause = status::StatusCause::forbidden("force", "may not be specified for non-apply patch");
            let named = status::Named { group: "meta.k8s.io", kind: "PatchOptions", name: "" };
            return Err(Failure::invalid(named, &[cause]));
        }
        let strategic = match request.content_type.as_str() {
            "application/json-patch+json" => None,
            "application/merge-patch+json" => Some(false),
            "application/strategic-merge-patch+json" if kind.custom.is_none() => Some(true),
            _ => {
                if kind.custom.is_some() {
                    return Err(Failure::new(
                        415,
                        "UnsupportedMediaType",
                        "the body of the request was in an unknown format - accepted media types include: \
                         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                    ));
                }
                let mut failure = Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                failure.body["details"] = json!({});
                return Err(failure);
            }
        };
        let key = kind.key(subject.namespace.as_deref(), name);
        let before = self.store.get(&kind.resource, &key).cloned();
        let before = before.ok_or_else(|| Failure::not_found(kind.named(name)))?;
        let old = kind.seen(&before);
        let mut object = Value::clone(&old);
        match strategic {
            None => patch::json(&mut object, &request.body)?,
            Some(strategic) => {
                let sent = request.object()?;
                if !sent.is_object() {
                    return Err(Failure::bad_request(
                        "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
                    ));
                }
                if strategic {
                    patch::strategic(&kind.shape, &mut object, &sent)?;
                } else {
                    patch::merge(&mut object, &sent);
                }
            }
        }
        if let Some(uid) = object["metadata"]["uid"].as_str().filter(|uid| *uid != &*before.uid) {
            let cause = status::StatusCause::invalid("metadata.uid", &uid.into(), "field is immutable");
            // A server before 1.37 checks metadata twice.
            let causes = if self.release.minor < 37 { vec![cause.clone(), cause] } else { vec![cause] };
            return Err(Failure::invalid(kind.typed(name), &causes));
        }
        Self::strict(request, &kind, &object).and_then(|()| kind.decode(&mut object.clone())).map_err(
            |failure| {
                let why = failure.body["message"].as_str().unwrap_or_default();
                let why = why.split_once(": ").map_or(why, |(_, why)| why);
                let cause = status::StatusCause::invalid("patch", &object.to_string().into(), why);
                Failure::invalid(status::Named { group: "", kind: "", name: "" }, &[cause])
            },
        )?;
        let written = self.replace_seen(&kind, &key, &before, &old, object, &options)?;
        let warnings = Self::validated(request, &kind, written.warnings)?;
        Ok(Reply::Value(200, written.object, warnings))
    }
}
