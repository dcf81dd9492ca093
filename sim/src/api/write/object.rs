//! What a kind says of its objects: their form, their names in answers, what a change of them is.
//!
//! Here belongs what differs from kind to kind in a write; the steps of a write are in the other files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::kinds::{Kind, Kinds};
use super::super::request::RequestTarget;
use super::super::status::{Failure, Named, Outcome};
use super::{WriteOptions, alike, text};
use crate::fields::Writer;
use crate::schema::Decoded;

impl RequestTarget {
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.kind.group, kind: &self.kind.plural, name }
    }
}

impl Kind {
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.group, kind: &self.plural, name }
    }

    /// As `named`, but with the kind instead of the plural, as answers name an invalid object.
    pub(crate) fn typed<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.group, kind: &self.kind, name }
    }

    /// Brings an object that was sent into the form that is kept. Returns the paths of unknown fields.
    pub(crate) fn decode(&self, object: &mut Value) -> Outcome<Vec<String>> {
        self.decode_beside(object, None)
    }

    /// The same for a change of the object `old`, whose unchanged parts are in the right form already; but not those of
    /// a custom resource, whose form changes with its definition.
    pub(crate) fn decode_beside(&self, object: &mut Value, old: Option<&Value>) -> Outcome<Vec<String>> {
        let (api_version, kind) = (self.api_version(), self.kind.clone());
        if !object.is_object() {
            return Err(Failure::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: json: cannot unmarshal into Go value of type map[string]interface {{}}",
                self.version
            )));
        }
        let sent =
            (text(object, "/apiVersion").unwrap_or(&api_version), text(object, "/kind").unwrap_or(&kind));
        if sent != (api_version.as_str(), kind.as_str()) {
            return Err(self.foreign(sent.0, sent.1));
        }
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.clone().into();
        let mut decoded = Decoded::default();
        let kept = old.filter(|_| self.custom.is_none());
        self.shape.decode(object, kept, &mut decoded).map_err(|error| {
            Failure::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: {error}",
                self.version
            ))
        })?;
        if self.type_name() == "core.Secret" {
            encode_texts(object);
        }
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
        Ok(decoded.unknown)
    }

    /// The answer to an object of another kind.
    pub(crate) fn foreign(&self, api_version: &str, kind: &str) -> Failure {
        if self.custom.is_some() {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let group = if group.is_empty() { String::new() } else { format!("{group}, ") };
            let _ = (group, version);
            return Failure::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                self.api_version()
            ));
        }
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        let known = Kinds::default().by_kind(api_version, kind).is_some();
        let why = if known {
            format!("converting ({version}.{kind}) to ({}): unknown conversion", self.type_name())
        } else {
            format!(
                "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        Failure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {why}",
            self.kind
        ))
    }

    /// An object of this kind without any fields of its own.
    pub(crate) fn blank(&self) -> Value {
        let mut blank = json!({"apiVersion": self.api_version(), "kind": self.kind});
        let _ = self.shape.decode(&mut blank, None, &mut Decoded::default());
        blank
    }

    pub(super) fn blank_status(&self) -> Value {
        self.blank().get_mut("status").map(Value::take).unwrap_or_default()
    }

    pub(super) fn writer(&self, options: &WriteOptions, applies: bool) -> Writer {
        Writer {
            manager: options.manager.clone(),
            applies,
            api_version: self.api_version(),
            subresource: options.subresource.clone(),
        }
    }

    /// Whether a server of this minor counts the changes of the spec. For autoscalers it does so from 1.37 on.
    pub(super) fn numbers(&self, minor: u32) -> bool {
        self.generation && (self.kind != "HorizontalPodAutoscaler" || minor >= 37)
    }

    /// Whether the change from `old` to `new` makes a new generation.
    pub(super) fn counts(&self, old: &Value, new: &Value) -> bool {
        let but = ["metadata", "apiVersion", "kind", "status"];
        let but = if self.status { &but[..] } else { &but[..3] };
        let same = match (old, new) {
            (Value::Object(old), Value::Object(new)) => alike(old, new, but),
            _ => old == new,
        };
        !same || self.kind == "Deployment" && old["metadata"]["annotations"] != new["metadata"]["annotations"]
    }
}

/// Puts the `stringData` of a Secret into its `data`, in base64.
fn encode_texts(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.as_object_mut().and_then(|fields| fields.remove("stringData"))
    else {
        return;
    };
    for (key, text) in texts {
        secret["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}
