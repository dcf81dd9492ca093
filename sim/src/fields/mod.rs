//! Who owns which field: sets of paths, and how objects are compared, merged and cut by them for server-side apply.
//!
//! What the fields mean never belongs here, nor does HTTP.

mod managed;
mod set;
mod walk;

pub(crate) use managed::{Conflict, Managed, Writer};
