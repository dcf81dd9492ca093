//! Which object or list a request is about, and which handler answers it.
//!
//! Here belongs the table of paths and verbs; what a handler does is its own file's.

use std::sync::Arc;

use http::Method;
use serde_json::Value;

use super::kinds::Kind;
use super::read;
use super::reply::{Reply, ok};
use super::request::{Request, RequestTarget};
use super::state::ApiState;
use super::status::{Failure, Outcome};
use super::write::WriteOptions;

/// The answer to requests for logs, commands and connections.
const NO_CONTAINERS: &str =
    "the pods of a virtual cluster have no containers that run: no logs, no commands, no connections";

impl ApiState {
    /// What a path names.
    pub(super) fn subject(&self, request: &Request) -> Outcome<RequestTarget> {
        let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Failure::no_resource()),
        };
        let find = |plural: &str| {
            self.kinds
                .find(group, version, plural)
                .filter(|kind| kind.custom.as_ref().is_none_or(|custom| custom.schema != Value::Bool(false)))
        };
        let subject = |kind: &Arc<Kind>, namespace: Option<&str>, rest: &[&str]| RequestTarget {
            kind: kind.clone(),
            namespace: namespace.map(str::to_owned),
            name: rest.first().map(|&name| name.to_owned()),
            subresource: (rest.len() > 1).then(|| rest.iter().skip(1).copied().collect::<Vec<_>>().join("/")),
        };
        match rest {
            ["namespaces", namespace, plural, rest @ ..]
                if find(plural).is_some_and(|kind| kind.namespaced) =>
            {
                find(plural).map(|kind| subject(kind, Some(namespace), rest))
            }
            [plural, rest @ ..] => find(plural)
                .filter(|kind| !kind.namespaced || rest.is_empty())
                .map(|kind| subject(kind, None, rest)),
            [] => None,
        }
        .ok_or_else(Failure::no_resource)
    }

    pub(super) fn options(request: &Request, subject: &RequestTarget) -> Outcome<WriteOptions> {
        Ok(WriteOptions {
            manager: request.manager(),
            subresource: subject.subresource.clone(),
            dry_run: request.dry_run()?,
            tracked: true,
        })
    }

    /// Answers a get or list as it would have been answered `back` revisions ago.
    pub(super) fn stale(&self, request: &Request, subject: &RequestTarget, back: u64) -> Outcome<Reply> {
        let then = self.store.revision().saturating_sub(back).max(self.store.compacted()).max(1);
        if let Some(name) = &subject.name {
            let key = subject.kind.key(subject.namespace.as_deref(), name);
            let all = self.store.at(&subject.kind.resource, then);
            let record = all.get(key.as_str()).ok_or_else(|| Failure::not_found(subject.named(name)))?;
            ok(record.value())
        } else {
            let mut request = request.clone();
            request.query.insert("resourceVersion".into(), then.to_string());
            request.query.insert("resourceVersionMatch".into(), "Exact".into());
            Ok(Reply::Text(200, self.list(&request, subject)?))
        }
    }

    pub(super) fn handle(&mut self, request: &Request, subject: &RequestTarget) -> Outcome<Reply> {
        let not_allowed = || Err(Failure::method(subject.named("")));
        let kind = subject.kind.clone();
        let Some(name) = subject.name.clone() else {
            return match request.method {
                Method::GET => Ok(Reply::Text(200, self.list(request, subject)?)),
                Method::POST => {
                    if kind.namespaced && subject.namespace.is_none() {
                        return not_allowed();
                    }
                    self.post(request, subject)
                }
                Method::DELETE => self.delete_all(request, subject),
                _ => not_allowed(),
            };
        };
        match (subject.subresource.as_deref(), request.method.clone()) {
            (Some("status"), method) if kind.status => match method {
                Method::GET => ok(self.get(subject, &name)?),
                Method::PUT => self.put_object(request, subject, &name),
                Method::PATCH => self.patch(request, subject, &name),
                _ => not_allowed(),
            },
            (Some("scale"), method) if kind.scale => match method {
                Method::GET => ok(self.scale(subject, &name)?),
                Method::PUT | Method::PATCH => self.change_scale(request, subject, &name),
                _ => not_allowed(),
            },
            (Some("binding"), Method::POST) if kind.kind == "Pod" => self.bind(request, subject, &name),
            (Some("eviction"), _) if kind.kind == "Pod" => not_allowed(),
            (Some("finalize"), Method::PUT) if kind.kind == "Namespace" => {
                self.finalize(request, subject, &name)
            }
            (Some("log" | "exec" | "attach" | "portforward" | "proxy" | "ephemeralcontainers"), _)
                if kind.kind == "Pod" =>
            {
                Err(Failure::new(405, "MethodNotAllowed", NO_CONTAINERS))
            }
            (Some(_), _) => Err(Failure::no_resource()),
            (None, Method::GET) => {
                let object = self.get(subject, &name)?;
                ok(read::one(self, &kind, object, request)?)
            }
            (None, Method::PUT) => self.put_object(request, subject, &name),
            (None, Method::PATCH) => self.patch(request, subject, &name),
            (None, Method::DELETE) => {
                let how = Self::how(request)?;
                let key = kind.key(subject.namespace.as_deref(), &name);
                let gone = self.delete(&kind, &key, &how)?;
                ok(gone)
            }
            _ => not_allowed(),
        }
    }
}
