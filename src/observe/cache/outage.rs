//! Why watches fail at the moment, and when the server was last away. So a kube-apiserver that is away is logged once
//! and not for each kind; when one watch works again, those that failed with it do not wait any longer; and a server
//! that has just come back is not believed when it refuses.
//!
//! Here belongs what watches tell each other; what a failure means for a decision is in [`super::super::fold`]. The
//! invariant: a cause is news when no watch fails for it yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The watches of one program that fail: each kind with its cause. A clone is another handle on the same.
#[derive(Clone, Debug, Default)]
pub struct Outage(Arc<Mutex<Failing>>);

#[derive(Debug, Default)]
struct Failing {
    kinds: BTreeMap<String, Arc<OutageCause>>,
    /// When the server last did not answer, or with an error of its own.
    away: Option<Instant>,
}

/// Why a watch fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchFailure {
    /// What is told of it.
    pub(super) text: String,
    /// The server does not answer, answers with an error of its own, or starts: that ends for all watches at once, whatever each
    /// of them met last.
    pub(super) away: bool,
}

#[derive(Debug)]
struct OutageCause {
    cause: WatchFailure,
    /// A watch that failed for this works again.
    passes: Notify,
}

impl Outage {
    fn failing(&self) -> MutexGuard<'_, Failing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch of `kind` fails for `cause`. Returns whether no watch failed for it before.
    pub(super) fn begins(&self, kind: &str, cause: WatchFailure) -> bool {
        let mut failing = self.failing();
        let known = failing.kinds.values().find(|known| known.cause == cause).cloned();
        let is_news = known.is_none();
        let cause = known.unwrap_or_else(|| Arc::new(OutageCause { cause, passes: Notify::new() }));
        failing.kinds.insert(kind.to_owned(), cause);
        is_news
    }

    /// The server does not answer, or with an error of its own.
    pub(super) fn goes_away(&self) {
        self.failing().away = Some(Instant::now());
    }

    /// How long ago the server last was away; `None` if it never was.
    pub(super) fn was_away(&self) -> Option<Duration> {
        self.failing().away.map(|at| at.elapsed())
    }

    /// The watch of `kind` works again.
    pub(super) fn ends(&self, kind: &str) {
        let mut failing = self.failing();
        let Some(ended) = failing.kinds.remove(kind) else { return };
        ended.passes.notify_waiters();
        for other in failing.kinds.values().filter(|other| ended.cause.away && other.cause.away) {
            other.passes.notify_waiters();
        }
    }

    /// Resolves when another watch works again that failed for the same cause as that of `kind`, or, where the server was
    /// away, for any such cause.
    pub(super) async fn passes(&self, kind: &str) {
        let cause = self.failing().kinds.get(kind).cloned();
        match cause {
            Some(cause) => cause.passes.notified().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_cause_is_news_once_until_no_watch_fails_for_it() {
        let outage = Outage::default();
        let fails =
            |kind: &str, text: &str| outage.begins(kind, WatchFailure { text: text.to_owned(), away: true });
        for _ in 0..2 {
            assert!(fails("Node", "refused"));
            assert!(!fails("Pod", "refused"));
            assert!(fails("Pod", "no answer in time"));
            assert!(!fails("Node", "refused"));
            outage.ends("Node");
            assert!(fails("Lease", "refused"), "nobody failed for it any more");
            outage.ends("Lease");
            outage.ends("Pod");
        }
    }

    #[test]
    fn those_that_failed_alike_are_told_when_one_works_again() {
        let outage = Outage::default();
        let failed = [
            ("Node", "no connection", true),
            ("Pod", "no connection", true),
            ("Event", "connection reset", true),
            ("Lease", "forbidden", false),
            ("Secret", "forbidden", false),
        ];
        for (kind, text, away) in failed {
            outage.begins(kind, WatchFailure { text: text.to_owned(), away });
        }
        for (ends, told) in [("Lease", [false, false, true, false]), ("Node", [true, true, false, false])] {
            let mut waiting = ["Pod", "Event", "Secret", "Job"].map(|kind| Box::pin(outage.passes(kind)));
            let mut woken = || waiting.each_mut().map(|wait| wait.now_or_never().is_some());
            assert_eq!(woken(), [false; 4]);
            outage.ends(ends);
            assert_eq!(woken(), told, "{ends} works again");
        }
    }
}
