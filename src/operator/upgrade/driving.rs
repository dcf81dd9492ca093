//! The upgrades' part of the common loop: how a look is taken and told of.
//!
//! Here belongs what [`crate::drive`] asks of whoever it drives; what a look does belongs to the parent module. The
//! invariant: no failure ends the loop.

use std::convert::Infallible;
use std::time::Duration;

use futures::stream;
use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::metrics::{Controller, Reason, ReconcileOutcome};
use super::{AT_LEAST, BETWEEN_DECISIONS, Driver, PATIENCE, UpgradesKept};
use crate::act::Outcome;
use crate::drive::{Driven, Interrupt, NextLook, drive};
use crate::observe::fold::Unseen;

/// The driver, with what it keeps between two looks.
struct Driving<'a> {
    driver: Driver<'a>,
    kept: UpgradesKept,
}

impl Driven for Driving<'_> {
    type Done = Outcome;
    type Failure = Infallible;

    fn running(&mut self) -> &mut JoinSet<Outcome> {
        &mut self.kept.evictions
    }

    async fn look(&mut self) -> Result<NextLook, Infallible> {
        let Self { driver, kept } = self;
        let began = Instant::now();
        kept.again = None;
        let (look_at, outcome) = match driver.once(kept).await {
            Ok(looked) => {
                kept.complaint.clear();
                (kept.unseen, kept.unseen_beside_upgrades) = (None, None);
                let outcome = if looked.failed { ReconcileOutcome::Error } else { ReconcileOutcome::Ok };
                (looked.again_at, outcome)
            }
            Err(unseen) => {
                kept.sees = false;
                driver.tell_unseen(kept, &unseen).await;
                if unseen.line != kept.complaint && is_news(&unseen, kept.unseen) {
                    tracing::warn!(problem = unseen.line, "upgrades wait");
                    kept.complaint = unseen.line;
                }
                driver.metrics.reconcile_failed(Controller::Upgrade, Reason::NotReady);
                (None, ReconcileOutcome::Error)
            }
        };
        let upgrades = driver.upgrades.list();
        kept.announced.show(driver.metrics, |name| upgrades.iter().any(|there| there.name_any() == name));
        driver.metrics.reconciled(Controller::Upgrade, outcome, began.elapsed());
        Ok(NextLook::Again(wait_until(look_at, kept.again, driver.clock.now())))
    }

    fn take(&mut self, done: Result<Outcome, JoinError>) -> Result<(), Infallible> {
        match done {
            Ok(outcome) => self.driver.take(&mut self.kept, outcome),
            Err(error) => tracing::error!(%error, "an eviction did not end"),
        }
        Ok(())
    }

    fn interrupted(&mut self) -> Result<Interrupt, Infallible> {
        Ok(Interrupt::End)
    }
}

impl Driver<'_> {
    /// Drives upgrades until `stop`; then waits for the requests under way.
    pub(in super::super) async fn run(self, stop: CancellationToken) {
        let changes = self.observer.changes().clone();
        let mut driving = Driving { driver: self, kept: UpgradesKept::default() };
        let stopped = stream::once(stop.cancelled_owned());
        let Ok(_) = drive(&mut driving, &changes, BETWEEN_DECISIONS, stopped).await;
    }
}

/// Whether a person is told of what has been `unseen` since then. A first list that is on its way, or a watch that is
/// opened again, ends by itself in a moment.
fn is_news(unseen: &Unseen, since: Option<Instant>) -> bool {
    unseen.refused || since.is_some_and(|since| since.elapsed() >= PATIENCE)
}

/// How long to sleep if nothing changes: until the earlier of `look_at` and `again`, and at most [`AT_LEAST`].
fn wait_until(look_at: Option<Timestamp>, again: Option<Instant>, now: Timestamp) -> Duration {
    let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
    let again = again.map(|at| at.saturating_duration_since(Instant::now()));
    look_at.map(until).into_iter().chain(again).min().unwrap_or(AT_LEAST).min(AT_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_ends_by_itself_in_a_moment_is_no_news() {
        let unseen = |refused| Unseen { line: "the first list is not complete yet".to_owned(), refused };
        let begun = Some(Instant::now());
        assert!(!is_news(&unseen(false), begun) && !is_news(&unseen(false), None));
        assert!(is_news(&unseen(true), begun), "only a person changes that");
        tokio::time::advance(PATIENCE).await;
        assert!(is_news(&unseen(false), begun));
    }
}
