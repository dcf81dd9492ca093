//! The upgrades' part of the common loop: how a look is taken and told of.
//!
//! Here belongs what [`crate::drive`] asks of whoever it drives, and what is told while a look does not see everything;
//! what it does otherwise belongs to the parent module. The invariant: no failure ends the loop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::metrics::{Controller, Reason, ReconcileOutcome};
use super::unseen::UnseenSince;
use super::{AT_LEAST, BETWEEN_DECISIONS, Driver, UpgradesKept};
use crate::act::Outcome;
use crate::api::{ClusterUpgrade, decode_parts, upgrade};
use crate::drive::{Driven, Interrupt, NextLook, drive};
use crate::observe::fold::{SyncState, Unseen};

/// The driver, with what it keeps between two looks.
struct Driving<'a> {
    driver: Driver<'a>,
    kept: UpgradesKept,
}

impl Driven for Driving<'_> {
    type Done = Outcome;
    type Failure = Infallible;

    fn running(&mut self) -> &mut JoinSet<Outcome> {
        &mut self.kept.evictions.under_way
    }

    async fn look(&mut self) -> Result<NextLook, Infallible> {
        let Self { driver, kept } = self;
        let began = Instant::now();
        kept.again = None;
        kept.retries.look_begins();
        kept.evictions.forget();
        let (look_at, outcome) = match driver.once(kept).await {
            Ok(looked) => {
                kept.complaint.clear();
                kept.unseen = None;
                let outcome = if looked.failed { ReconcileOutcome::Error } else { ReconcileOutcome::Ok };
                (looked.again_at, outcome)
            }
            Err(unseen) => {
                kept.sees = false;
                driver.tell_unseen(kept, &unseen).await;
                driver.metrics.reconcile_failed(Controller::Upgrade, Reason::NotReady);
                (None, ReconcileOutcome::Error)
            }
        };
        let upgrades = driver.caches.upgrades.list();
        kept.announced.show(driver.metrics, |name| upgrades.iter().any(|there| there.name_any() == name));
        driver.metrics.reconciled(Controller::Upgrade, outcome, began.elapsed());
        Ok(NextLook::Again(wait_until(look_at, kept.again, driver.clock.now())))
    }

    fn take(&mut self, done: Result<Outcome, JoinError>) -> Result<(), Infallible> {
        match done {
            Ok(outcome) => self.driver.take(&mut self.kept, None, outcome),
            Err(error) => tracing::error!(%error, "an eviction did not end"),
        }
        let Self { driver, kept } = self;
        kept.evictions.send(&driver.hands, &mut kept.sent, driver.clock.now());
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

    /// Logs why nothing is decided, once, and writes it into the status of each upgrade that is neither complete nor
    /// suspended; both when it does not pass by itself. What only a person changes is logged at once.
    async fn tell_unseen(&self, kept: &mut UpgradesKept, unseen: &Unseen) {
        let since = UnseenSince::goes_on(kept.unseen, self.caches.upgrades.state() == SyncState::Synced);
        kept.unseen = Some(since);
        if kept.complaint != unseen.line && since.is_news(unseen.refused) {
            tracing::warn!(problem = unseen.line, "upgrades wait");
            kept.complaint.clone_from(&unseen.line);
        }
        if let Some(until) = since.passes_until() {
            kept.looks_by(until);
            return;
        }
        if !since.beside_upgrades {
            return;
        }
        let read =
            |stored: &Arc<DynamicObject>| decode_parts::<ClusterUpgrade>(stored, &["spec", "status"]).ok();
        for object in self.caches.upgrades.list().iter().filter_map(read) {
            let complete = object.status.as_ref().is_some_and(|status| status.completion_time.is_some());
            // One that is suspended does nothing, whatever is seen.
            if !complete && !object.spec.suspend && upgrade::validate(&object, &kept.executors).is_ok() {
                let status =
                    upgrade::status_of_unseen(&object, &unseen.line, unseen.refused, self.clock.now());
                self.tell(kept, &object, status).await;
            }
        }
    }
}

/// How long to sleep if nothing changes: until the earlier of `look_at` and `again`, and at most [`AT_LEAST`].
fn wait_until(look_at: Option<Timestamp>, again: Option<Instant>, now: Timestamp) -> Duration {
    let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
    let again = again.map(|at| at.saturating_duration_since(Instant::now()));
    look_at.map(until).into_iter().chain(again).min().unwrap_or(AT_LEAST).min(AT_LEAST)
}
