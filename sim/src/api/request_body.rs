//! The body of a request: is it an object of the kind, and are all of its fields known?
//!
//! Here belongs whether a body is taken at all; what its values must be is in `validate`. The invariant: a body that is
//! refused has changed nothing.

use serde_json::Value;

use super::kinds::Kind;
use super::request::Request;
use super::state::ApiState;
use super::status::{Failure, Outcome};

impl ApiState {
    /// Unknown fields are refused, warned of or ignored, as the request asks.
    pub(super) fn validated(request: &Request, kind: &Kind, warnings: Vec<String>) -> Outcome<Vec<String>> {
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

    /// Refuses unknown fields if the request asks for strict validation, before anything is written.
    pub(super) fn strict(request: &Request, kind: &Kind, object: &Value) -> Outcome<()> {
        if request.param("fieldValidation") == Some("Strict") {
            let unknown = kind.decode(&mut object.clone())?;
            let warnings = unknown.into_iter().map(|field| format!("unknown field {field:?}")).collect();
            Self::validated(request, kind, warnings)?;
        }
        Ok(())
    }

    /// The body of a create or update.
    pub(super) fn body(request: &Request, kind: &Kind) -> Outcome<Value> {
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

    /// An apply refuses unknown fields of built-in kinds whatever it asks for.
    pub(super) fn strict_apply(request: &Request, kind: &Kind, applied: &Value) -> Outcome<()> {
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
}
