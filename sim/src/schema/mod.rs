//! What an object may look like: which fields it has, how its lists merge, which zero values are written.
//!
//! Built-in kinds (from `kubernetes.txt`) and custom ones (from their CustomResourceDefinition) have one form, so that
//! decoding, patching and field ownership are written once. A rule about a particular kind never belongs here.

mod binary;
mod builtin;
mod custom;
mod decode;
mod json_schema;
mod openapi;
mod quantity;
mod shape;
mod wire;

pub(crate) use builtin::builtin;
pub(crate) use custom::{Custom, Violation};
pub(crate) use decode::Decoded;
pub(crate) use openapi::{OBJECT_META, component, definitions};
pub use quantity::milli;
pub(crate) use shape::{Listed, Shape};
pub(crate) use wire::{Wire, fields};
