//! Answers that are not objects: `Status`, in the words of Kubernetes.
//!
//! Here belong the code, the reason and the message; when an answer is given is decided elsewhere. The invariant:
//! clients that look at reasons and causes find what a real server sends.

use std::fmt::Display;

use serde_json::{Map, Value, json};

/// An answer other than success.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) body: Box<Value>,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

/// What an object is called in an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) group: &'a str,
    /// The plural, or for what is invalid the kind.
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

impl Named<'_> {
    fn shown(&self) -> String {
        let Self { group, kind, name } = self;
        if group.is_empty() { format!("{kind} {name:?}") } else { format!("{kind}.{group} {name:?}") }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        details
    }
}

/// One field that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct StatusCause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl StatusCause {
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: impl Display) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {}: {why}", shown(value)),
        }
    }

    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: impl Display) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {why}") }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            message: format!("Duplicate value: {}", shown(value)),
        }
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|value| format!("{value:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!("Unsupported value: {}: supported values: {}", shown(value), allowed.join(", ")),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => value.to_string(),
        Value::Null => "null".into(),
        value => value.to_string(),
    }
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "code": code});
        if !reason.is_empty() {
            body["reason"] = reason.into();
        }
        Self { code, body: Box::new(body) }
    }

    fn about(mut self, named: Named<'_>) -> Self {
        self.body["details"] = Value::Object(named.details());
        self
    }

    pub(crate) fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    pub(crate) fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = json!({"reason": reason, "message": message});
        if !field.is_empty() {
            cause["field"] = field.into();
        }
        let details = &mut self.body["details"];
        if details.is_null() {
            *details = json!({});
        }
        match &mut details["causes"] {
            Value::Array(causes) => causes.push(cause),
            causes => *causes = json!([cause]),
        }
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        if seconds > 0 {
            self.body["details"]["retryAfterSeconds"] = seconds.into();
        }
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
            .with_cause("", &message, "")
    }

    pub(crate) fn not_found(named: Named<'_>) -> Self {
        Self::new(404, "NotFound", format!("{} not found", named.shown())).about(named)
    }

    pub(crate) fn no_resource() -> Self {
        let mut failure = Self::new(404, "NotFound", "the server could not find the requested resource");
        failure.body["details"] = json!({});
        failure
    }

    pub(crate) fn method(named: Named<'_>) -> Self {
        let mut details = named.details();
        details.remove("name");
        let mut failure = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        failure.body["details"] = json!({});
        failure
    }

    pub(crate) fn exists(named: Named<'_>) -> Self {
        Self::new(409, "AlreadyExists", format!("{} already exists", named.shown())).about(named)
    }

    pub(crate) fn conflict(named: Named<'_>, why: impl Display) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {}: {why}", named.shown()))
            .about(named)
    }

    pub(crate) fn modified(named: Named<'_>) -> Self {
        Self::conflict(
            named,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn forbidden(named: Named<'_>, why: impl Display) -> Self {
        Self::new(403, "Forbidden", format!("{} is forbidden: {why}", named.shown())).about(named)
    }

    /// What is wrong with an object; `named.kind` is its kind.
    pub(crate) fn invalid(named: Named<'_>, causes: &[StatusCause]) -> Self {
        let mut said: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        said.dedup();
        let said = if let [one] = said.as_slice() { one.clone() } else { format!("[{}]", said.join(", ")) };
        let mut failure =
            Self::new(422, "Invalid", format!("{} is invalid: {said}", named.shown())).about(named);
        for cause in causes {
            failure = failure.with_cause(cause.reason, &cause.message, &cause.field);
        }
        failure
    }

    /// The client accepts none of the forms that the server can send, which are these.
    pub(crate) fn unacceptable(forms: &str) -> Self {
        let why = "only the following media types are accepted";
        Self::new(406, "NotAcceptable", format!("{why}: {forms}"))
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn too_large_revision(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message)
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            .retry_after(1)
    }
}

/// The answer to a deletion that left nothing to show.
pub(crate) fn success(named: Named<'_>, uid: &str) -> Value {
    let mut details = named.details();
    details.insert("uid".into(), uid.into());
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

impl Failure {
    /// The same without reason, details and the words that Kubernetes puts before an unexpected error.
    pub(crate) fn bare(mut self) -> Self {
        let message = self.body["message"].as_str().unwrap_or_default();
        let message = message.strip_prefix("Internal error occurred: ").unwrap_or(message).to_owned();
        self.body["message"] = message.into();
        if let Some(body) = self.body.as_object_mut() {
            body.remove("details");
            body.remove("reason");
        }
        self
    }
}
