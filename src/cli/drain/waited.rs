//! How long a drain has been waiting for one thing, and when it said so.
//!
//! Here belong the three moments; what is waited for and when it is told is in `narrate`. The invariant: they are of
//! the machine's monotonic clock, so a clock that is set back changes no wait.

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
