//! A request taken apart: method, path, parameters and body, and what it is about.
//!
//! Here belongs what can be read from the request alone; whether it is allowed is asked later. The invariant:
//! everything after this works on a request whose body is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::kinds::Kind;
use super::status::{Failure, Named, Outcome, StatusCause};
use crate::schema::{Shape, Wire, builtin, fields};

/// A request whose body has been read.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    pub(crate) agent: String,
    pub(crate) body: Bytes,
}

/// What a request is about.
#[derive(Clone, Debug)]
pub(crate) struct RequestTarget {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// A longer body is refused.
pub(crate) const MOST_BYTES: usize = 3 * 1024 * 1024;

impl Request {
    pub(crate) fn new(parts: &http::request::Parts, body: Bytes) -> Self {
        let header = |name: http::HeaderName| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let query = parts.uri.query().unwrap_or_default();
        Self {
            method: parts.method.clone(),
            path: unescape(parts.uri.path(), false),
            query: query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (unescape(key, true), unescape(value, true))
                })
                .collect(),
            content_type: header(http::header::CONTENT_TYPE)
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
            accept: header(http::header::ACCEPT),
            agent: header(http::header::USER_AGENT),
            body,
        }
    }

    /// A query parameter, unless it is empty.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.query
            .get(name)
            .is_some_and(|value| matches!(value.as_str(), "" | "1" | "true" | "True" | "TRUE"))
    }

    /// The body as an object.
    pub(crate) fn object(&self) -> Outcome<Value> {
        if self.content_type == BINARY {
            return binary(&self.body)
                .ok_or_else(|| self.unsupported(&format!("{BINARY}, of a kind that is not built in")));
        }
        let text =
            std::str::from_utf8(&self.body).map_err(|error| Failure::bad_request(error.to_string()))?;
        if self.content_type.ends_with("yaml") {
            return serde_saphyr::from_str(text).map_err(|error| Failure::bad_request(error.to_string()));
        }
        match self.content_type.as_str() {
            "" | "application/json" => {}
            other if other.ends_with("json") => {}
            other => return Err(self.unsupported(other)),
        }
        serde_json::from_str(text).map_err(|error| {
            let why =
                if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
            self.unreadable(&why)
        })
    }

    fn unsupported(&self, sent: &str) -> Failure {
        let why = "the body of the request was in an unknown format - accepted media types include";
        let forms =
            "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor";
        Failure::new(415, "UnsupportedMediaType", format!("{why}: {forms} (sent {sent})"))
    }

    /// The answer to a body that is no object.
    pub(crate) fn unreadable(&self, why: &str) -> Failure {
        let hex: String = if self.body.starts_with(b"{") {
            String::from_utf8_lossy(&self.body).into_owned()
        } else {
            self.body.iter().take(64).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
        };
        Failure::bad_request(format!("couldn't get version/kind; json parse error: {why} ({hex})"))
    }

    /// Who writes, by the parameter or the program's name.
    pub(crate) fn manager(&self) -> String {
        self.param("fieldManager")
            .map_or_else(|| self.agent.split('/').next().unwrap_or_default().to_owned(), str::to_owned)
    }

    /// Whether this is a dry run. Any value of the parameter but `All` is refused.
    pub(crate) fn dry_run(&self) -> Outcome<bool> {
        match self.query.get("dryRun").map(String::as_str) {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let kind = match self.method {
                    http::Method::POST => "CreateOptions",
                    http::Method::PUT => "UpdateOptions",
                    http::Method::PATCH => "PatchOptions",
                    _ => "DeleteOptions",
                };
                let cause = StatusCause::unsupported("dryRun", &serde_json::json!([other]), &["All"]);
                Err(Failure::invalid(Named { group: "meta.k8s.io", kind, name: "" }, &[cause]))
            }
        }
    }

    /// Whether the answer may be JSON.
    pub(crate) fn takes_json(&self) -> bool {
        let mut forms = self.accept.split(',').map(|form| form.split(';').next().unwrap_or_default().trim());
        self.accept.trim().is_empty()
            || forms.any(|form| matches!(form, "application/json" | "application/*" | "*/*"))
    }

    /// Whether the answer is wanted in this form instead of whole objects: `Table`, `PartialObjectMetadata`, …
    pub(crate) fn wants(&self, what: &str) -> bool {
        // The first acceptable form counts.
        self.accept
            .split(',')
            .map(str::trim)
            .find(|form| form.starts_with("application/json") || *form == "*/*")
            .is_some_and(|form| form.split(';').any(|part| part.trim() == format!("as={what}")))
    }
}

/// The media type of protocol buffers, in which Go clients send built-in kinds.
const BINARY: &str = "application/vnd.kubernetes.protobuf";

/// An object in its envelope: a mark, then kind and version, then the object itself.
fn binary(body: &[u8]) -> Option<Value> {
    let envelope = fields(body.strip_prefix(b"k8s\0")?)?;
    let part = |number: u64| {
        envelope.iter().find_map(|(at, wire)| match wire {
            Wire::Bytes(bytes) if *at == number => Some(*bytes),
            _ => None,
        })
    };
    let names = fields(part(1)?)?;
    let name = |number: u64| {
        names.iter().find_map(|(at, wire)| match wire {
            Wire::Bytes(bytes) if *at == number => std::str::from_utf8(bytes).ok(),
            _ => None,
        })
    };
    let (version, kind) = (name(1)?, name(2)?);
    let package = match version.rsplit_once('/') {
        _ if kind == "DeleteOptions" => "meta",
        None => "core",
        Some((group, _)) => group.split('.').next().unwrap_or_default(),
    };
    let shape = builtin(&format!("{package}.{kind}"));
    if !matches!(*shape, Shape::Struct(_)) {
        return None;
    }
    let mut object = shape.binary(part(2).unwrap_or_default())?;
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    Some(object)
}

/// Undoes percent encoding.
fn unescape(text: &str, plus: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |c: &u8| char::from(*c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                if let (Some(high), Some(low)) = (digit(high), digit(low)) {
                    bytes.push(high * 16 + low);
                    rest = tail;
                } else {
                    bytes.push(b'%');
                }
            }
            (b'+', _) if plus => bytes.push(b' '),
            _ => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
