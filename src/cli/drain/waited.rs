//! How long something has been waited for.

use tokio::time::Instant;

/// Since when the drain waits for one thing, and when that was told.
#[derive(Clone, Copy)]
pub(super) struct Waited {
    pub(super) since: Instant,
    /// When the wait was last seen to go on.
    pub(super) seen: Instant,
    pub(super) told: Option<Instant>,
}

impl Waited {
    pub(super) fn begins(now: Instant) -> Self {
        Self { since: now, seen: now, told: None }
    }
}
