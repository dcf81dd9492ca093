//! Writes that the server refuses because of what they ask for: a webhook, a policy, a quota, a missing permission or
//! the object's own rules are in the way.
//!
//! Here belongs what is remembered of them; which writes are sent in spite of it is decided in `refusal_retries.rs`.
//! Executors' Jobs and evictions are not here: what is said to them belongs to a claim or to a budget. The invariant: a
//! refusal that is not repeated is forgotten.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::claim::{Claim, ClaimState};
use super::since::is_within;
use super::write::{Write, WriteKind};
use crate::drain::STALLED;

/// From so many refusals in a row on it is told. A kube-apiserver that starts may forbid what it allows a moment later.
pub(super) const TOLD_FROM: u32 = 2;
/// A refusal that was not repeated for so long is over: nobody wants the write any more, or it was taken.
const LASTS: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug)]
pub(super) struct RefusedWrite {
    pub(super) why: String,
    pub(super) times: u32,
    /// When it was refused for the first time.
    since: Timestamp,
    /// When it was refused last.
    pub(super) at: Timestamp,
}

/// The writes that the server refuses. Losing it is safe: the writes are sent again.
#[derive(Clone, Debug, Default)]
pub struct RefusedWrites(pub(super) BTreeMap<Write, RefusedWrite>);

impl RefusedWrites {
    /// The server refused `write` at `now` for the reason `why`, one line.
    pub fn refused(&mut self, write: Write, why: String, now: Timestamp) {
        let (times, since) = self.0.get(&write).map_or((0, now), |before| (before.times, before.since));
        self.0.insert(write, RefusedWrite { why, times: times.saturating_add(1), since, at: now });
    }

    /// Forgets what was not refused again, and cordons of nodes that are parked in `claims`: when such a node is tried again,
    /// so is its cordon.
    pub fn forget(&mut self, claims: &[Claim], now: Timestamp) {
        let parked = |write: &Write| {
            let of = |claim: &Claim| {
                matches!(claim.state, ClaimState::Parked { .. }) && claim.subject.node == write.name
            };
            write.kind == WriteKind::Cordon && claims.iter().any(of)
        };
        self.0.retain(|write, refusal| is_within(refusal.at, LASTS, now) && !parked(write));
    }

    /// Why the server refuses to cordon `node`, once it has done so for [`STALLED`]. What refuses it may be in the middle of a
    /// change itself, as a webhook that is installed anew.
    pub(super) fn of_cordon(&self, node: &str) -> Option<&str> {
        let refusal = self.0.get(&Write { kind: WriteKind::Cordon, name: node.into() })?;
        (refusal.at.duration_since(refusal.since) >= STALLED).then_some(&*refusal.why)
    }
}
