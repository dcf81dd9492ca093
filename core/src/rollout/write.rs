//! What a server may refuse: one kind of write, and the object that it is about.
//!
//! Here belong the kinds and their words; what is done about a refusal is decided in `refusal_retries.rs`. The
//! invariant: two writes are the same exactly when they do the same to an object of the same name.

use std::fmt;
use std::sync::Arc;

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteKind {
    /// Our finalizer is put on a `ClusterUpgrade`.
    Protect,
    /// Our finalizer is taken off a `ClusterUpgrade`.
    Unprotect,
    /// A `NodeUpgrade` is created.
    CreateClaim,
    /// A `NodeUpgrade` goes to its next state.
    RecordClaim,
    /// A `NodeUpgrade` is deleted, or our finalizer is taken off it.
    DeleteClaim,
    /// A Node is cordoned.
    Cordon,
    /// A Node is given back.
    Uncordon,
    /// Our taint is put on a Node or taken off.
    Taint,
    /// Our mark is taken off a Node that stays cordoned.
    HandOver,
}

/// A write, as the server's refusal of it is remembered and told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    /// What is done.
    pub kind: WriteKind,
    /// The name of the object.
    pub name: Arc<str>,
}

impl fmt::Display for Write {
    /// `cordon node n-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            WriteKind::Protect => "put the finalizer on ClusterUpgrade",
            WriteKind::Unprotect => "take the finalizer off ClusterUpgrade",
            WriteKind::CreateClaim => "create NodeUpgrade",
            WriteKind::RecordClaim => "record NodeUpgrade",
            WriteKind::DeleteClaim => "delete NodeUpgrade",
            WriteKind::Cordon => "cordon node",
            WriteKind::Uncordon => "uncordon node",
            WriteKind::Taint => "taint node",
            WriteKind::HandOver => "hand over node",
        };
        write!(f, "{what} {}", self.name)
    }
}
