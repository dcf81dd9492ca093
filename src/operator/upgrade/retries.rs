//! Requests that did not come through, and when each may be sent again.
//!
//! Here belongs only how long a request waits; what it would write by then is decided anew. The invariant: what did not come
//! through once waits a moment; what fails again and again, as after an event that a watch lost or at a server that is busy,
//! is sent ever more rarely, whatever else changes in the cluster meanwhile, and holds up no other request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::rollout::{Action, Write};
use evenkeel_core::upgrade::GateObject;
use tokio::time::Instant;

/// How long a write waits that lost one race; by then the watch has usually told what was faster.
const AFTER_RACE: Duration = Duration::from_millis(500);
/// How long one waits that was refused, or failed for another reason.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// The wait stops doubling here.
const LONGEST: Duration = Duration::from_secs(15);

/// A request, whatever it says or brings: it loses to whoever changes the same object, and fails where its server does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetriedRequest {
    /// One of the writes that the core decides.
    Decided(Write),
    /// The executor's Job for the claim of this name.
    Job(Arc<str>),
    /// The Job of the executor of this name, which is only tried.
    Trial(Arc<str>),
    /// The status of the `ClusterUpgrade` of this name.
    Status(String),
    /// The node of this name is read, and its pods.
    Node(Arc<str>),
    /// Volumes that are attached are read.
    Attachments,
    /// Leases of controllers are read.
    Leases,
    /// The object of a gate is read.
    Gate(GateObject),
}

impl RetriedRequest {
    /// What `action` of `upgrade` asks for; `None` for what has a rule of its own: evictions, deletions of pods, and questions
    /// to kube-apiservers.
    pub(super) fn of(action: &Action, upgrade: &str) -> Option<Self> {
        match action {
            Action::StartJob { claim, .. } => Some(Self::Job(Arc::clone(claim))),
            Action::TryJob { executor, .. } => Some(Self::Trial(Arc::clone(executor))),
            Action::Reread { node, .. } => Some(Self::Node(Arc::clone(node))),
            Action::ReadAttachments => Some(Self::Attachments),
            Action::ReadLeases => Some(Self::Leases),
            Action::ReadGate { object } => Some(Self::Gate(object.clone())),
            _ => action.write(upgrade).map(Self::Decided),
        }
    }
}

/// How often a request did not come through in a row, and until when it waits.
struct Wait {
    times: u32,
    until: Instant,
}

/// The requests that did not come through. Losing it is safe: they are sent again.
#[derive(Default)]
pub(super) struct Retries(BTreeMap<RetriedRequest, Wait>);

impl Retries {
    /// Forgets those that were not sent again when they might have been: nobody wants them any more.
    pub(super) fn look_begins(&mut self) {
        let now = Instant::now();
        self.0.retain(|_, wait| now < wait.until + LONGEST);
    }

    /// Until when `retried` is not sent, if it has to wait.
    pub(super) fn waits_until(&self, retried: &RetriedRequest) -> Option<Instant> {
        self.0.get(retried).map(|wait| wait.until).filter(|until| *until > Instant::now())
    }

    /// `retried` lost a race. Returns until when it waits.
    pub(super) fn lost(&mut self, retried: RetriedRequest) -> Instant {
        self.waits(retried, AFTER_RACE)
    }

    /// `retried` was refused, or failed. Returns until when it waits.
    pub(super) fn failed(&mut self, retried: RetriedRequest) -> Instant {
        self.waits(retried, AFTER_FAILURE)
    }

    fn waits(&mut self, retried: RetriedRequest, first: Duration) -> Instant {
        let now = Instant::now();
        let wait = self.0.entry(retried).or_insert(Wait { times: 0, until: now });
        let time = first.saturating_mul(1 << wait.times.min(16)).min(LONGEST);
        *wait = Wait { times: wait.times.saturating_add(1), until: now + time };
        wait.until
    }

    /// `retried` came through.
    pub(super) fn over(&mut self, retried: &RetriedRequest) {
        self.0.remove(retried);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;

    fn status(of: &str) -> RetriedRequest {
        RetriedRequest::Status(of.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_of_a_write_grows_until_it_comes_through() {
        let mut retries = Retries::default();
        for _ in 0..2 {
            let waits = [500, 1000, 2000, 4000, 8000, 15_000, 15_000];
            for wait in waits.map(Duration::from_millis) {
                retries.look_begins();
                let until = retries.lost(status("a"));
                assert_eq!(until.duration_since(Instant::now()), wait);
                assert_eq!(retries.waits_until(&status("a")), Some(until));
                assert_eq!(retries.waits_until(&status("b")), None, "it holds up no other");
                sleep_until(until).await;
                assert_eq!(retries.waits_until(&status("a")), None);
            }
            retries.over(&status("a"));
        }
        let waits = [2, 4, 8, 15, 15].map(Duration::from_secs);
        for wait in waits {
            assert_eq!(retries.failed(status("a")).duration_since(Instant::now()), wait);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_wants_any_more_is_forgotten() {
        let mut retries = Retries::default();
        let until = retries.lost(status("a"));
        sleep_until(until + LONGEST).await;
        retries.look_begins();
        assert!(retries.0.is_empty());
        retries.lost(status("a"));
        advance(AFTER_RACE + LONGEST / 2).await;
        retries.look_begins();
        assert_eq!(retries.lost(status("a")), Instant::now() + 2 * AFTER_RACE, "it was wanted a moment ago");
    }
}
