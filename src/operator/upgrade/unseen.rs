//! For how long something has been out of sight, so that nothing can be decided.
//!
//! Here belongs when a person is told; what has to be seen, and the words for it, belong to the caller. The invariant:
//! what passes by itself within a moment is no news.

use std::time::Duration;

use tokio::time::Instant;

/// How long something may be unseen before a person is told. A watch that breaks with its kube-apiserver is open again within a
/// second or two.
const PATIENCE: Duration = Duration::from_secs(10);

/// Since when something has been out of sight. It counts anew from when the upgrades are in sight again: their kube-apiserver
/// may have been away for long, and the other watches hear of its return a moment later than theirs.
#[derive(Clone, Copy)]
pub(super) struct UnseenSince {
    at: Instant,
    /// Whether the upgrades are in sight.
    pub(super) beside_upgrades: bool,
}

impl UnseenSince {
    /// Returns `before`, if the upgrades are in sight now as they were then, or out of sight as they were then
    /// (`beside_upgrades`). Otherwise the time begins now.
    pub(super) fn goes_on(before: Option<Self>, beside_upgrades: bool) -> Self {
        before
            .filter(|before| before.beside_upgrades == beside_upgrades)
            .unwrap_or_else(|| Self { at: Instant::now(), beside_upgrades })
    }

    /// Until when it may pass by itself, if it may still.
    pub(super) fn passes_until(self) -> Option<Instant> {
        (self.at.elapsed() < PATIENCE).then(|| self.at + PATIENCE)
    }

    /// Whether it is logged: also what is `refused`, which only a person changes.
    pub(super) fn is_news(self, refused: bool) -> bool {
        refused || self.passes_until().is_none()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_passes_by_itself_has_its_time_and_anew_when_the_upgrades_are_seen_again() {
        let away = UnseenSince::goes_on(None, false);
        assert!(away.passes_until().is_some() && !away.is_news(false));
        assert!(away.is_news(true), "only a person changes that");
        advance(PATIENCE).await;
        assert!(UnseenSince::goes_on(Some(away), false).is_news(false));
        let back = UnseenSince::goes_on(Some(away), true);
        assert_eq!(back.passes_until(), Some(Instant::now() + PATIENCE));
        advance(PATIENCE).await;
        assert!(UnseenSince::goes_on(Some(back), true).is_news(false));
    }
}
