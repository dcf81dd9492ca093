//! How long something has been waited for.

use tokio::time::Instant;

/// Something that is waited for.
#[derive(Clone, Copy)]
pub(super) struct Waited {
    pub(super) since: Instant,
    /// When it still held.
    pub(super) seen: Instant,
    pub(super) told: Option<Instant>,
}

impl Waited {
    pub(super) fn begins(now: Instant) -> Self {
        Self { since: now, seen: now, told: None }
    }
}
