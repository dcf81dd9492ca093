//! The shape of a value: its fields or items, and what decoding, patching and ownership have to know of each.
//!
//! Where a shape is read from never belongs here. The invariant: what is not known of a value is [`Shape::Any`], never
//! an error.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A value that has no parts of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Number,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Bytes,
}

/// What identifies the items of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Nothing: the list is one value.
    Atomic,
    /// Its own value.
    Set,
    /// These fields of the item.
    Map(Vec<Box<str>>),
}

/// What becomes of a zero value, as Go's `omitempty` and pointers decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zero {
    /// It is kept as it was sent.
    Keep,
    /// It is left out.
    Omit,
    /// It is written even if it was not sent.
    Write,
}

/// What decoding, patching and ownership have to know of one field; its name is the key in [`Struct::fields`].
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) shape: Arc<Shape>,
    pub(crate) zero: Zero,
    /// Strategic merge patch: the field by which list items are the same.
    pub(crate) merge_key: Option<Box<str>>,
    /// Strategic merge patch: the list is merged, not replaced.
    pub(crate) merges: bool,
    /// Its number in the binary form. Before it stand the numbers of the messages that enclose the field there and not
    /// in JSON.
    pub(crate) number: Box<[u64]>,
}

/// A value with named fields.
#[derive(Debug, Default)]
pub(crate) struct Struct {
    /// The Go type's name, for messages.
    pub(crate) name: Box<str>,
    pub(crate) fields: BTreeMap<Box<str>, Field>,
    pub(crate) atomic: bool,
    /// Fields that are not named here are kept.
    pub(crate) open: bool,
}

/// What a value may look like.
#[derive(Debug)]
pub(crate) enum Shape {
    Any,
    Scalar(Scalar),
    Struct(Struct),
    Map { of: Arc<Shape>, atomic: bool },
    List { of: Arc<Shape>, listed: Listed },
}

static ANY: Shape = Shape::Any;

impl Shape {
    /// The shape of a field or of a map's values; [`Shape::Any`] where it is not known.
    pub(crate) fn child(&self, name: &str) -> &Shape {
        match self {
            Self::Struct(of) => of.fields.get(name).map_or(&ANY, |field| &field.shape),
            Self::Map { of, .. } => of,
            _ => &ANY,
        }
    }

    /// The shape of a list's items.
    pub(crate) fn item(&self) -> &Shape {
        match self {
            Self::List { of, .. } => of,
            _ => &ANY,
        }
    }

    /// Whether this name is a field of a struct, rather than a key of a map.
    pub(crate) fn names(&self, field: &str) -> bool {
        matches!(self, Self::Struct(of) if of.fields.contains_key(field))
    }

    /// A named field, if this is a struct that has it.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        match self {
            Self::Struct(of) => of.fields.get(name),
            _ => None,
        }
    }
}
