//! The pieces that a text falls into, and what a list says of those that are its items.
//!
//! Here belongs what can be said of a piece before anybody asks of what kind it is. How texts fall apart never belongs
//! here, nor does what an object means.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A piece of a text, before its kind is asked for.
pub(crate) enum Piece<'a> {
    /// An object, or what stands in its place. `list` is what its list says of it, and `place` its place in the
    /// list, from 1; 0 if it is in no list.
    Object { raw: &'a RawValue, list: &'a List, place: usize },
    /// A text, a number.
    Scalar,
    /// A list with nothing in it.
    EmptyList(&'a List),
    /// Something that should be a list, or an object.
    Broken(&'a serde_json::Error),
    /// A list that ends before its kind: its file may be cut off.
    CutOff,
}

/// Whoever takes the pieces of a text.
pub(in super::super) type Sink<'a> = dyn FnMut(Piece<'_>) + 'a;

/// What a list says of its items: the apiVersion and kind of every item that does not say them itself.
#[derive(Clone, Default)]
pub(crate) struct List {
    pub(crate) api_version: Option<String>,
    pub(crate) kind: Option<String>,
}

impl List {
    /// A list of the kind `item`. If that is empty, as in the `List` that `kubectl get` writes, the items may be of
    /// any kind.
    pub(super) fn of(api_version: Option<String>, item: &str) -> Self {
        Self { api_version, kind: Some(item.to_owned()).filter(|item| !item.is_empty()) }
    }
}

/// The fields that tell what an object is. Each is taken as it is, so that a wrong type spoils that field only.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Head<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) items: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) spec: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) status: Option<&'a RawValue>,
    /// The message of a `Status`.
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) git_version: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) server_version: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) client_version: Option<&'a RawValue>,
    /// Support bundles wrap the answer of `/version` in this.
    #[serde(borrow)]
    pub(super) info: Option<&'a RawValue>,
}

impl<'a> Head<'a> {
    pub(super) fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }
}
