//! Patches of Nodes that the API server refuses, for a reason that lasts, to a drain that a person began.
//!
//! Here belongs how long a refusal is hoped to end; what becomes of the node is decided in `request`. The invariant:
//! one node's refusal changes nothing about another node.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::policy::STALLED;

/// The refused patches, by the name of the Node. Losing them is safe: the patches are sent, and refused, again.
#[derive(Clone, Debug, Default)]
pub struct RefusedPatches(BTreeMap<Arc<str>, RefusedPatch>);

#[derive(Clone, Debug)]
struct RefusedPatch {
    since: Timestamp,
    why: String,
}

impl RefusedPatches {
    /// The server refused a patch of `node` at `now` for the reason `why`, one line.
    pub fn refused(&mut self, node: &Arc<str>, why: String, now: Timestamp) {
        self.0.entry(Arc::clone(node)).or_insert(RefusedPatch { since: now, why: String::new() }).why = why;
    }

    /// The server took a patch of `node`, or would have, had nobody else changed the Node.
    pub fn taken(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Until when the patch of `node` is tried, and why it is refused; `None` while it is not. What refuses it may be in
    /// the middle of a change itself, as a role or a webhook that is installed anew.
    pub(super) fn of(&self, node: &str) -> Option<(Timestamp, &str)> {
        let RefusedPatch { since, why } = self.0.get(node)?;
        Some((since.saturating_add(STALLED).unwrap_or(Timestamp::MAX), why))
    }
}
