//! `/scale`: how many replicas an object has, in the same form for every kind.
//!
//! Here belongs where a kind keeps its numbers; what follows from them is done by the models. The invariant: a change
//! by `/scale` goes the way of an update of the object itself.

use http::Method;
use serde_json::{Value, json};

use super::patch;
use super::reply::{Reply, ok};
use super::request::{Request, RequestTarget};
use super::state::ApiState;
use super::status::{Failure, Named, Outcome};
use crate::record::selector as selects;
use crate::schema::builtin;

/// Where a kind keeps its wanted replicas, its present replicas and, if it says so, its selector: JSON pointers.
fn paths(subject: &RequestTarget) -> (String, String, Option<String>) {
    let pointer = |path: &Value| path.as_str().map(|path| path.replace('.', "/"));
    match &subject.kind.custom {
        Some(custom) => (
            pointer(&custom.scale["specReplicasPath"]).unwrap_or_default(),
            pointer(&custom.scale["statusReplicasPath"]).unwrap_or_default(),
            pointer(&custom.scale["labelSelectorPath"]),
        ),
        None => ("/spec/replicas".into(), "/status/replicas".into(), None),
    }
}

impl ApiState {
    pub(crate) fn scale(&self, subject: &RequestTarget, name: &str) -> Outcome<Value> {
        let object = self.get(subject, name)?;
        let (spec, status, selector) = paths(subject);
        let count = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
        let metadata = &object["metadata"];
        let mut kept = json!({});
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = metadata.get(name) {
                kept[name] = value.clone();
            }
        }
        let selector = match selector {
            Some(path) => object.pointer(&path).and_then(Value::as_str).unwrap_or_default().to_owned(),
            None => selects(&object).map(|selector| selector.shown()).unwrap_or_default(),
        };
        let mut scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept,
            "spec": {}, "status": {"replicas": count(&status)}});
        if count(&spec) != 0 {
            scale["spec"]["replicas"] = count(&spec).into();
        }
        if !selector.is_empty() {
            scale["status"]["selector"] = selector.into();
        }
        Ok(scale)
    }

    pub(super) fn change_scale(
        &mut self,
        request: &Request,
        subject: &RequestTarget,
        name: &str,
    ) -> Outcome<Reply> {
        let mut scale = self.scale(subject, name)?;
        let kind = &subject.kind;
        if request.method == Method::PUT {
            let sent = request.object()?;
            if let Some(revision) =
                sent["metadata"]["resourceVersion"].as_str().filter(|revision| !revision.is_empty())
                && scale["metadata"]["resourceVersion"] != revision
            {
                return Err(Failure::modified(kind.named(name)));
            }
            scale = sent;
        } else {
            let revision = scale["metadata"]["resourceVersion"].clone();
            match request.content_type.as_str() {
                "application/json-patch+json" => patch::json(&mut scale, &request.body)?,
                "application/strategic-merge-patch+json" => {
                    patch::strategic(&builtin("autoscaling.Scale"), &mut scale, &request.object()?)?;
                }
                _ => patch::merge(&mut scale, &request.object()?),
            }
            if scale["metadata"]["resourceVersion"] != revision {
                return Err(Failure::modified(kind.named(name)));
            }
        }
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let why = "must be greater than or equal to 0";
            let cause = super::status::StatusCause::invalid("spec.replicas", &replicas.into(), why);
            return Err(Failure::invalid(Named { group: "autoscaling", kind: "Scale", name }, &[cause]));
        }
        let key = kind.key(subject.namespace.as_deref(), name);
        let before = self.store.get(&kind.resource, &key).cloned();
        let before = before.ok_or_else(|| Failure::not_found(kind.named(name)))?;
        let mut object = before.copy();
        let (spec, ..) = paths(subject);
        let field = spec.trim_start_matches("/spec/").to_owned();
        object["spec"][field] = replicas.into();
        let options = Self::options(request, subject)?;
        self.replace(kind, &key, &before, object, &options)?;
        ok(self.scale(subject, name)?)
    }
}
