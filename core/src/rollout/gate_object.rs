//! What was read of the objects of gates.
//!
//! Here belongs what was found and how it is remembered; whether it opens a gate is decided in `gate.rs`. The
//! invariant: what the server refuses once may be of a moment, so that only what it refuses again is left to a person.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::refused_writes::TOLD_FROM;
use crate::upgrade::GateObject;

/// What the object of a gate was like when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateFound {
    /// Its conditions: type and status.
    Conditions(Vec<(Arc<str>, Arc<str>)>),
    /// The cluster does not serve the kind.
    NoKind,
    /// There is no such object.
    NoObject,
    /// The server does not let us read it; one line.
    Forbidden(String),
    /// It cannot be read as the gate names it, and the server will refuse the same again; one line.
    Refused(String),
    /// It could not be read; one line.
    Failed(String),
}

impl GateFound {
    /// Whether reading it again finds the same until a person changes something. An object that is not there may be made by
    /// whoever makes it, and its condition be set.
    const fn lasts(&self) -> bool {
        matches!(self, Self::NoKind | Self::Forbidden(_) | Self::Refused(_))
    }
}

/// What the last read of an object found.
#[derive(Clone, Debug)]
pub(super) struct GateRead {
    pub(super) at: Timestamp,
    pub(super) found: GateFound,
    /// How often in a row it was refused.
    times: u32,
}

impl GateRead {
    /// Whether only a person can have it read. A kube-apiserver that starts may forbid what it allows a moment later, and may
    /// not serve a kind yet.
    pub(super) const fn needs_a_person(&self) -> bool {
        self.times >= TOLD_FROM
    }
}

/// What was last read of the objects of gates. Losing it is safe: they are read again.
#[derive(Clone, Debug, Default)]
pub struct Gates(pub(super) BTreeMap<GateObject, GateRead>);

impl Gates {
    /// `object` was `found` so at `at`.
    pub fn was_read(&mut self, object: GateObject, found: GateFound, at: Timestamp) {
        let before = self.0.get(&object).map_or(0, |read| read.times);
        let times = if found.lasts() { before.saturating_add(1) } else { 0 };
        self.0.insert(object, GateRead { at, found, times });
    }

    /// Forgets the objects that are not `named` any more.
    pub fn retain(&mut self, named: impl Fn(&GateObject) -> bool) {
        self.0.retain(|object, _| named(object));
    }
}
