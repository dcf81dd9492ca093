//! The API server: requests in, answers out, one store behind.
//!
//! Every request runs to its end under the store's lock, except an eviction that waits to try again; so requests are
//! linearisable. Models use `State` directly and meet the same rules.

mod custom;
mod defaults;
mod discovery;
mod eviction;
mod kinds;
mod patch;
mod read;
mod request;
mod scale;
pub(crate) mod selector;
mod status;
mod table;
mod validate;
mod watch;
mod write;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::{Method, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};

pub(crate) use kinds::{Kind, Kinds};
use request::Request;
pub(crate) use status::{Failure, Outcome};
pub(crate) use write::{Deletion, Options};

use crate::clock::Clock;
use crate::faults::{Call, Fault, Faults, Mode};
use crate::models::ControlPlane;
use crate::random::Random;
use crate::store::Store;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Everything that a request can touch.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) random: Random,
    pub(crate) clock: Clock,
    pub(crate) version: Value,
    /// The minor version that it plays, where minors differ.
    pub(crate) minor: u32,
}

/// The state, shared by all clients and models.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state, for whoever writes to it.
    pub(crate) fn lock_as(&self, author: &str) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.store.authored_by(author);
        state
    }

    /// A panic elsewhere left the state as it was: every write is one insertion.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// Is a pod's Ready condition true?
pub(crate) fn ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

enum Answer {
    Value(u16, Value, Vec<String>),
    Text(u16, String),
    Plain(u16, String),
    Lines(Pin<Box<dyn Stream<Item = Result<Bytes, std::io::Error>> + Send>>),
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        Self::Value(failure.code, *failure.body, Vec::new())
    }
}

#[allow(clippy::unnecessary_wraps, reason = "what every handler returns")]
fn ok(value: Value) -> Outcome<Answer> {
    Ok(Answer::Value(200, value, Vec::new()))
}

/// Why a request got no answer.
fn broken() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer")
}

/// A client's way to the server: it carries that client's crash.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) shared: Shared,
    pub(crate) faults: Faults,
    pub(crate) crashed: Arc<std::sync::atomic::AtomicBool>,
    /// The `User-Agent` of a client that says none.
    pub(crate) agent: Arc<str>,
    pub(crate) control: ControlPlane,
    /// The one apiserver that is asked, where it is not any of them.
    pub(crate) endpoint: Option<Arc<str>>,
}

impl Server {
    /// Answers a request.
    pub(crate) async fn serve(
        self,
        request: http::Request<kube::client::Body>,
    ) -> Result<Response<Body>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let mut request = Request::new(&parts, body);
        if request.agent.is_empty() {
            self.agent.as_ref().clone_into(&mut request.agent);
        }
        let subject = self.shared.lock().subject(&request);
        let absent = self.endpoint.as_ref().is_some_and(|at| self.control.version_at(at).is_none());
        let dead = || self.crashed.load(std::sync::atomic::Ordering::SeqCst);
        if dead() || absent {
            return Err(broken());
        }
        let fault = self.faults.next(call(&request, subject.as_ref().ok()));
        let crash = || {
            self.crashed.store(true, std::sync::atomic::Ordering::SeqCst);
            self.faults.crash();
        };
        let answer = fault.as_ref().and_then(|fault| instead(fault, &request)).map(Answer::from);
        match &fault {
            Some(Fault::Rewrite(rewrite)) => {
                if let Some(body) = rewrite.apply(&request.body) {
                    request.body = body;
                }
            }
            Some(Fault::ResetBefore) => return Err(broken()),
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::CrashBefore) => {
                crash();
                return Err(broken());
            }
            Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
            Some(Fault::Compact) => {
                let mut state = self.shared.lock();
                let revision = state.store.revision();
                state.store.compact(revision);
            }
            _ => {}
        }
        let answer = if let Some(answer) = answer {
            answer
        } else {
            let stale = match fault {
                Some(Fault::Stale(back)) => back,
                _ => 0,
            };
            let mode = match fault {
                Some(Fault::Bookmarks) => Mode::Bookmarks,
                Some(Fault::Silence) => Mode::Silence,
                _ => Mode::Everything,
            };
            let answered = if let Some(Fault::Late(time)) = fault {
                let server = self.clone();
                // A task of its own: it goes on when whoever asked has gone.
                let late = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    server.answer(&request, subject, stale, mode).await
                });
                late.await.map_err(std::io::Error::other)?
            } else {
                self.answer(&request, subject, stale, mode).await
            };
            answered.unwrap_or_else(Answer::from)
        };
        match fault {
            Some(Fault::ResetAfter) => return Err(broken()),
            Some(Fault::HangAfter) => std::future::pending().await,
            Some(Fault::CrashAfter) => {
                crash();
                return Err(broken());
            }
            Some(Fault::AnswerAfter(code)) => return print(refusal(code).into()),
            _ => {}
        }
        print(answer)
    }

    async fn answer(
        &self,
        request: &Request,
        subject: Outcome<Subject>,
        stale: u64,
        mode: Mode,
    ) -> Outcome<Answer> {
        if request.body.len() > request::MOST_BYTES {
            let most = request::MOST_BYTES;
            return Err(Failure::new(
                413,
                "RequestEntityTooLarge",
                format!("Request entity too large: limit is {most}"),
            ));
        }
        let subject = match subject {
            Ok(subject) => subject,
            Err(failure) => {
                if let Some(version) = self.endpoint.as_ref().and_then(|at| self.control.version_at(at))
                    && request.path == "/version"
                {
                    return ok(crate::cluster::version(&version));
                }
                let state = self.shared.lock();
                return match discovery::answer(&state, request) {
                    Some(answer) => Ok(answer),
                    None => Err(failure),
                };
            }
        };
        if request.method == Method::POST
            && let (Some("eviction"), Some(name), "Pod") =
                (subject.subresource.as_deref(), &subject.name, subject.kind.kind.as_str())
        {
            let done = eviction::evict(&self.shared, request, &subject, name).await?;
            return Ok(Answer::Value(201, done, Vec::new()));
        }
        if request.method == Method::GET && subject.subresource.is_none() && request.flag("watch") {
            let faults = self.faults.stream(&subject.kind.resource, &request.agent, mode);
            return Ok(Answer::Lines(watch::start(&self.shared, request, &subject, faults, stale)?));
        }
        let mut state = self.shared.lock_as(&request.agent);
        if stale > 0 && request.method == Method::GET {
            return state.stale(request, &subject, stale);
        }
        state.handle(request, &subject)
    }
}

/// The answer that a fault gives instead of the server.
fn instead(fault: &Fault, request: &Request) -> Option<Failure> {
    let busy = || Failure::new(429, "TooManyRequests", "Too many requests, please try again later.");
    Some(match fault {
        Fault::Refuse(code) => refusal(*code),
        Fault::Throttle { retry_after } => busy().retry_after(*retry_after),
        Fault::Budget { retry_after } => eviction::refused_by_budget(*retry_after),
        Fault::Deny(webhook) => {
            let why = format!("admission webhook \"{webhook}\" denied the request without explanation");
            Failure::new(400, "", why)
        }
        Fault::WebhookDown(webhook) => {
            let why = format!(
                "Internal error occurred: failed calling webhook \"{webhook}\": failed to call webhook: Post \
                 \"https://{webhook}.svc:443/\": dial tcp 10.96.0.1:443: connect: connection refused"
            );
            Failure::new(500, "InternalError", why)
        }
        Fault::TooLarge => {
            let asked = request.param("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
            Failure::too_large_revision(asked, asked.saturating_sub(1))
        }
        _ => return None,
    })
}

fn refusal(code: u16) -> Failure {
    let (reason, message) = match code {
        400 => ("BadRequest", "the server rejected our request for an unknown reason"),
        403 => ("Forbidden", "forbidden by a fault"),
        404 => ("NotFound", "the server could not find the requested resource"),
        409 => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        410 => ("Expired", "the resource version is too old"),
        413 => ("RequestEntityTooLarge", "Request entity too large"),
        422 => ("Invalid", "the server rejected our request due to an error in our request"),
        429 => ("TooManyRequests", "Too many requests, please try again later."),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "the server was unable to return a response in the time allotted"),
        _ => ("InternalError", "Internal error occurred: a fault"),
    };
    Failure::new(code, reason, message)
}

fn call(request: &Request, subject: Option<&Subject>) -> Call {
    let named = subject.is_some_and(|subject| subject.name.is_some());
    let verb = match request.method {
        Method::GET if request.flag("watch") => "watch",
        Method::GET if named || subject.is_none() => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        _ => "deletecollection",
    };
    Call {
        ordinal: 0,
        nth: 0,
        at: tokio::time::Instant::now(),
        body: request.body.clone(),
        verb,
        resource: subject.map(|subject| subject.kind.resource.to_string()).unwrap_or_default(),
        namespace: subject.and_then(|subject| subject.namespace.clone()),
        name: subject.and_then(|subject| subject.name.clone()),
        subresource: subject.and_then(|subject| subject.subresource.clone()),
        agent: request.agent.clone(),
    }
}

fn print(answer: Answer) -> Result<Response<Body>, std::io::Error> {
    let full = |text: String| {
        http_body_util::Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
    };
    let json = "application/json";
    let mut builder = Response::builder();
    let (code, kind, body) = match answer {
        Answer::Value(code, value, warnings) => {
            for warning in warnings {
                let said = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
                builder = builder.header(header::WARNING, said);
            }
            if let Some(seconds) = value["details"]["retryAfterSeconds"].as_u64().filter(|_| code >= 400) {
                builder = builder.header(header::RETRY_AFTER, seconds);
            }
            (code, json, full(value.to_string()))
        }
        Answer::Text(code, text) => (code, json, full(text)),
        Answer::Plain(code, text) => (code, "text/plain; charset=utf-8", full(text)),
        Answer::Lines(lines) => {
            use futures::StreamExt as _;
            let body = http_body_util::StreamBody::new(lines.map(|line| line.map(Frame::data)));
            (200, json, body.boxed_unsync())
        }
    };
    builder
        .status(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        .header(header::CONTENT_TYPE, kind)
        .body(body)
        .map_err(std::io::Error::other)
}

impl State {
    /// What a path names.
    fn subject(&self, request: &Request) -> Outcome<Subject> {
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
        let subject = |kind: &Arc<Kind>, namespace: Option<&str>, rest: &[&str]| Subject {
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

    fn options(request: &Request, subject: &Subject) -> Outcome<Options> {
        Ok(Options {
            manager: request.manager(),
            subresource: subject.subresource.clone(),
            dry_run: request.dry_run()?,
            tracked: true,
        })
    }

    /// A get or list as it would have been answered so many revisions ago.
    fn stale(&self, request: &Request, subject: &Subject, back: u64) -> Outcome<Answer> {
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
            Ok(Answer::Text(200, self.list(&request, subject)?))
        }
    }

    fn handle(&mut self, request: &Request, subject: &Subject) -> Outcome<Answer> {
        let not_allowed = || Err(Failure::method(subject.named("")));
        let kind = subject.kind.clone();
        let Some(name) = subject.name.clone() else {
            return match request.method {
                Method::GET => Ok(Answer::Text(200, self.list(request, subject)?)),
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
            (Some("log"), Method::GET) if kind.kind == "Pod" => Ok(Answer::Plain(200, String::new())),
            (Some(_), _) => Err(Failure::no_resource()),
            (None, Method::GET) => {
                let object = self.get(subject, &name)?;
                ok(read::one(self, &kind, object, request))
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

    fn how(request: &Request) -> Outcome<Deletion> {
        let mut how = Deletion::default();
        if !request.body.is_empty() {
            how = eviction::deletion(&request.object()?);
        }
        if let Some(grace) = request.param("gracePeriodSeconds") {
            how.grace = grace.parse().ok();
        }
        if let Some(policy) = request.param("propagationPolicy") {
            how.propagation = Some(policy.to_owned());
        }
        if let Some(policy) = how
            .propagation
            .as_deref()
            .filter(|policy| !matches!(*policy, "Orphan" | "Background" | "Foreground"))
        {
            let cause = status::Cause::unsupported(
                "propagationPolicy",
                &policy.into(),
                &["Foreground", "Background", "Orphan", "nil"],
            );
            let named = status::Named { group: "meta.k8s.io", kind: "DeleteOptions", name: "" };
            return Err(Failure::invalid(named, &[cause]));
        }
        how.dry_run |= request.dry_run()?;
        Ok(how)
    }

    fn delete_all(&mut self, request: &Request, subject: &Subject) -> Outcome<Answer> {
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
        Ok(Answer::Text(200, list))
    }

    /// Unknown fields are refused, warned of or ignored, as the request asks.
    fn validated(request: &Request, kind: &Kind, warnings: Vec<String>) -> Outcome<Vec<String>> {
        match request.param("fieldValidation") {
            Some("Strict") if !warnings.is_empty() => Err(Failure::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: strict decoding error: {2}",
                kind.kind,
                kind.version,
                warnings.join(", ")
            ))),
            Some("Ignore") => Ok(Vec::new()),
            _ => Ok(warnings),
        }
    }

    /// Strict validation comes before anything is written.
    fn strict(request: &Request, kind: &Kind, object: &Value) -> Outcome<()> {
        if request.param("fieldValidation") == Some("Strict") {
            let unknown = kind.decode(&mut object.clone())?;
            let warnings = unknown.into_iter().map(|field| format!("unknown field {field:?}")).collect();
            Self::validated(request, kind, warnings)?;
        }
        Ok(())
    }

    /// The body of a create or update.
    fn body(request: &Request, kind: &Kind) -> Outcome<Value> {
        let must = |mut failure: Failure| {
            let why = failure.body["message"].as_str().unwrap_or_default().to_owned();
            if why.starts_with("couldn't") {
                let kind = &kind.kind;
                failure.body["message"] =
                    format!("the object provided is unrecognized (must be of type {kind}): {why}").into();
            }
            failure
        };
        let object = request.object().map_err(must)?;
        if object.is_array() {
            let shape = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            let why = format!("json: cannot unmarshal array into Go value of type {shape}");
            return Err(must(request.unreadable(&why)));
        }
        if kind.custom.is_some() && object["kind"].as_str().is_none_or(str::is_empty) {
            let text = String::from_utf8_lossy(&request.body).into_owned();
            let short: String = text.chars().take(30).collect();
            return Err(Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{text}' ({short} ...)",
                kind.kind
            )));
        }
        Ok(object)
    }

    fn post(&mut self, request: &Request, subject: &Subject) -> Outcome<Answer> {
        let object = Self::body(request, &subject.kind)?;
        let options = Self::options(request, subject)?;
        Self::strict(request, &subject.kind, &object)?;
        let written = self.create(&subject.kind, subject.namespace.as_deref(), object, &options)?;
        let warnings = Self::validated(request, &subject.kind, written.warnings)?;
        Ok(Answer::Value(201, read::one(self, &subject.kind, written.object, request), warnings))
    }

    fn put_object(&mut self, request: &Request, subject: &Subject, name: &str) -> Outcome<Answer> {
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
            // A few kinds are made by an update that finds nothing.
            let creates = subject.subresource.is_none()
                && matches!(kind.kind.as_str(), "Lease" | "Event" | "EndpointSlice");
            if !creates {
                return Err(Failure::not_found(kind.named(name)));
            }
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.insert("name".into(), name.into());
            }
            let written = self.create(kind, subject.namespace.as_deref(), object, &options)?;
            return Ok(Answer::Value(201, written.object, written.warnings));
        };
        let written = self.replace(kind, &key, &before, object, &options)?;
        let warnings = Self::validated(request, kind, written.warnings)?;
        Ok(Answer::Value(200, written.object, warnings))
    }

    fn patch(&mut self, request: &Request, subject: &Subject, name: &str) -> Outcome<Answer> {
        let kind = subject.kind.clone();
        let options = Self::options(request, subject)?;
        let force = request.param("force");
        if request.content_type == "application/apply-patch+yaml" {
            if options.manager.is_empty() || request.param("fieldManager").is_none() {
                let cause = status::Cause::required("fieldManager", "is required for apply patch");
                let named = status::Named { group: "meta.k8s.io", kind: "PatchOptions", name: "" };
                return Err(Failure::invalid(named, &[cause]));
            }
            let applied = request.object()?;
            Self::strict_apply(request, &kind, &applied)?;
            let (written, created) = self.apply(subject, name, applied, &options, force == Some("true"))?;
            return Ok(Answer::Value(if created { 201 } else { 200 }, written.object, written.warnings));
        }
        if force.is_some() {
            let cause = status::Cause::forbidden("force", "may not be specified for non-apply patch");
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
        let mut object: Value = serde_json::from_str(&read::shown(&kind, &before)).unwrap_or_default();
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
            let cause = status::Cause::invalid("metadata.uid", &uid.into(), "field is immutable");
            // Before 1.37 metadata is looked at twice.
            let causes = if self.minor < 37 { vec![cause.clone(), cause] } else { vec![cause] };
            return Err(Failure::invalid(kind.typed(name), &causes));
        }
        Self::strict(request, &kind, &object).and_then(|()| kind.decode(&mut object.clone())).map_err(
            |failure| {
                let why = failure.body["message"].as_str().unwrap_or_default();
                let why = why.split_once(": ").map_or(why, |(_, why)| why);
                let cause = status::Cause::invalid("patch", &object.to_string().into(), why);
                Failure::invalid(status::Named { group: "", kind: "", name: "" }, &[cause])
            },
        )?;
        let written = self.replace(&kind, &key, &before, object, &options)?;
        let warnings = Self::validated(request, &kind, written.warnings)?;
        Ok(Answer::Value(200, written.object, warnings))
    }

    /// An apply refuses unknown fields of built-in kinds whatever it asks for.
    fn strict_apply(request: &Request, kind: &Kind, applied: &Value) -> Outcome<()> {
        if kind.custom.is_some() {
            return Self::strict(request, kind, applied);
        }
        let mut copy = applied.clone();
        let unknown = kind.decode(&mut copy).unwrap_or_default();
        match unknown.first() {
            None => Ok(()),
            Some(field) => {
                let name = applied["metadata"]["name"].as_str().unwrap_or_default();
                let namespace = applied["metadata"]["namespace"].as_str().unwrap_or_default();
                Err(Failure::new(
                    500,
                    "",
                    format!(
                        "failed to create typed patch object ({namespace}/{name}; {}/{}, Kind={}): .{field}: field not declared in schema",
                        kind.group, kind.version, kind.kind
                    ),
                ))
            }
        }
    }

    fn finalize(&mut self, request: &Request, subject: &Subject, name: &str) -> Outcome<Answer> {
        let kind = &subject.kind;
        let sent = request.object()?;
        let before = self.store.get(&kind.resource, name).cloned();
        let before = before.ok_or_else(|| Failure::not_found(kind.named(name)))?;
        let mut object = before.value();
        object["spec"] = sent["spec"].clone();
        let options = Self::options(request, subject)?;
        let written = self.replace(kind, name, &before, object, &options)?;
        ok(written.object)
    }

    /// A scheduler's word: the pod runs there.
    fn bind(&mut self, request: &Request, subject: &Subject, name: &str) -> Outcome<Answer> {
        let body = request.object()?;
        let node = body["target"]["name"].as_str().unwrap_or_default().to_owned();
        if node.is_empty() {
            let cause = status::Cause::required("target.name", "");
            let named = status::Named { group: "", kind: "Binding", name: "" };
            return Err(Failure::invalid(named, &[cause]));
        }
        let key = subject.kind.key(subject.namespace.as_deref(), name);
        self.assign(&subject.kind, &key, &node)?;
        let done =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Answer::Value(201, done, Vec::new()))
    }

    /// Binds a pod to a node.
    pub(crate) fn assign(&mut self, kind: &Arc<Kind>, key: &str, node: &str) -> Outcome<()> {
        let before = self.store.get(&kind.resource, key).cloned();
        let name = key.rsplit('/').next().unwrap_or(key).to_owned();
        let before = before.ok_or_else(|| Failure::not_found(kind.named(&name)))?;
        let mut pod = before.value();
        let binding = status::Named { group: "", kind: "pods/binding", name: &name };
        if pod["metadata"].get("deletionTimestamp").is_some() {
            return Err(Failure::conflict(
                binding,
                format!("pod {name} is being deleted, cannot be assigned to a host"),
            ));
        }
        if let Some(taken) = pod["spec"]["nodeName"].as_str() {
            return Err(Failure::conflict(
                binding,
                format!("pod {name} is already assigned to node {taken:?}"),
            ));
        }
        pod["spec"]["nodeName"] = node.into();
        let now = self.now();
        let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
        crate::models::condition(&mut pod["status"], &condition, &now);
        self.put(kind, key, &mut pod);
        Ok(())
    }
}

/// A server forgets what is older than this.
pub(crate) const COMPACTION: Duration = Duration::from_mins(5);
