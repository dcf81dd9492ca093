//! Writes that lost a race, and when each may be sent again.
//!
//! Here belongs only how long a write waits; what it would write by then is decided anew. The invariant: what loses once
//! waits a moment; what loses again and again, as after an event that a watch lost, is sent ever more rarely, whatever
//! else changes in the cluster meanwhile, and holds up no other write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::rollout::{Action, Write};
use tokio::time::Instant;

/// How long a write waits that lost once; by then the watch has usually told what was faster.
const FIRST: Duration = Duration::from_millis(500);
/// The wait stops doubling here.
const LONGEST: Duration = Duration::from_secs(15);

/// What is written, whatever it says: it loses to whoever changes the same object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Racer {
    /// One of the writes that the core decides.
    Decided(Write),
    /// The executor's Job for the claim of this name.
    Job(Arc<str>),
    /// The status of the `ClusterUpgrade` of this name.
    Status(String),
}

impl Racer {
    /// What `action` of `upgrade` writes, unless it only reads.
    pub(super) fn of(action: &Action, upgrade: &str) -> Option<Self> {
        match action {
            Action::StartJob { claim, .. } => Some(Self::Job(Arc::clone(claim))),
            _ => action.write(upgrade).map(Self::Decided),
        }
    }
}

/// How often a write lost in a row, and until when it waits.
struct Losses {
    times: u32,
    until: Instant,
}

/// The writes that lost a race. Losing it is safe: they are sent again.
#[derive(Default)]
pub(super) struct Races(BTreeMap<Racer, Losses>);

impl Races {
    /// Forgets those that were not sent again when they might have been: nobody wants them any more.
    pub(super) fn look_begins(&mut self) {
        let now = Instant::now();
        self.0.retain(|_, losses| now < losses.until + LONGEST);
    }

    /// Until when `racer` is not sent, if it has to wait.
    pub(super) fn waits_until(&self, racer: &Racer) -> Option<Instant> {
        self.0.get(racer).map(|losses| losses.until).filter(|until| *until > Instant::now())
    }

    /// `racer` lost. Returns until when it waits.
    pub(super) fn lost(&mut self, racer: Racer) -> Instant {
        let now = Instant::now();
        let losses = self.0.entry(racer).or_insert(Losses { times: 0, until: now });
        let wait = FIRST.saturating_mul(1 << losses.times.min(16)).min(LONGEST);
        *losses = Losses { times: losses.times.saturating_add(1), until: now + wait };
        losses.until
    }

    /// `racer` was sent and did not lose.
    pub(super) fn over(&mut self, racer: &Racer) {
        self.0.remove(racer);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;

    fn status(of: &str) -> Racer {
        Racer::Status(of.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_of_a_write_grows_until_it_loses_no_more() {
        let mut races = Races::default();
        for _ in 0..2 {
            let waits = [500, 1000, 2000, 4000, 8000, 15_000, 15_000];
            for wait in waits.map(Duration::from_millis) {
                races.look_begins();
                let until = races.lost(status("a"));
                assert_eq!(until.duration_since(Instant::now()), wait);
                assert_eq!(races.waits_until(&status("a")), Some(until));
                assert_eq!(races.waits_until(&status("b")), None, "it holds up no other");
                sleep_until(until).await;
                assert_eq!(races.waits_until(&status("a")), None);
            }
            races.over(&status("a"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_wants_any_more_is_forgotten() {
        let mut races = Races::default();
        let until = races.lost(status("a"));
        sleep_until(until + LONGEST).await;
        races.look_begins();
        assert!(races.0.is_empty());
        races.lost(status("a"));
        advance(FIRST + LONGEST / 2).await;
        races.look_begins();
        assert_eq!(races.lost(status("a")), Instant::now() + 2 * FIRST, "it was wanted a moment ago");
    }
}
