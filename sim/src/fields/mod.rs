//! Who owns which field: sets of paths, and how objects are compared, merged and cut by them for server-side apply.
//!
//! Never here: what the fields mean, or HTTP.

mod managed;
mod set;
mod walk;

pub(crate) use managed::{Managed, Writer};
