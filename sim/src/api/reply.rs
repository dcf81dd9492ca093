//! The answers to requests, and how they are put into HTTP.
//!
//! Here belongs the form of an answer, whatever it says; the words of errors are in `status`.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use http::{Response, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::Value;

use super::status::{Failure, Outcome};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

pub(super) enum Reply {
    Value(u16, Arc<Value>, Vec<String>),
    Text(u16, String),
    Plain(u16, String),
    /// JSON with a media type of its own.
    Typed(&'static str, Value),
    Lines(Pin<Box<dyn Stream<Item = Result<Bytes, std::io::Error>> + Send>>),
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        Self::Value(failure.code, Arc::new(*failure.body), Vec::new())
    }
}

#[allow(clippy::unnecessary_wraps, reason = "what every handler returns")]
pub(super) fn ok(value: impl Into<Arc<Value>>) -> Outcome<Reply> {
    Ok(Reply::Value(200, value.into(), Vec::new()))
}

/// The error of a request whose connection broke.
pub(super) fn broken() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer")
}

pub(super) fn print(answer: Reply) -> Result<Response<Body>, std::io::Error> {
    let full = |text: String| {
        http_body_util::Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
    };
    let json = "application/json";
    let mut builder = Response::builder();
    let (code, kind, body) = match answer {
        Reply::Value(code, value, warnings) => {
            for warning in warnings {
                let said = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
                builder = builder.header(header::WARNING, said);
            }
            if let Some(seconds) = value["details"]["retryAfterSeconds"].as_u64().filter(|_| code >= 400) {
                builder = builder.header(header::RETRY_AFTER, seconds);
            }
            (code, json, full(value.to_string()))
        }
        Reply::Text(code, text) => (code, json, full(text)),
        Reply::Typed(kind, value) => (200, kind, full(value.to_string())),
        Reply::Plain(code, text) => (code, "text/plain; charset=utf-8", full(text)),
        Reply::Lines(lines) => {
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
