//! The cluster's wall clock: a fixed beginning, and as much more as tokio's clock has moved.
//!
//! On a paused runtime it stands still until everybody waits, and then jumps to the next timer: that is what makes
//! hours pass in seconds. The machine's own clock never belongs here; whoever wants real time gives it as the
//! beginning.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The cluster's wall clock.
#[derive(Clone, Debug)]
pub struct Clock {
    began: Timestamp,
    origin: Instant,
    /// How far it was set forward or back, in milliseconds; shared by all copies.
    ahead: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that now shows `began`.
    pub fn starting_at(began: Timestamp) -> Self {
        Self { began, origin: Instant::now(), ahead: Arc::default() }
    }

    /// The time in the cluster.
    pub fn now(&self) -> Timestamp {
        self.began + self.elapsed() + SignedDuration::from_millis(self.ahead.load(Ordering::SeqCst))
    }

    /// Sets the clock forward, or back. Timers do not notice, as on a real machine.
    pub fn jump(&self, by: SignedDuration) {
        self.ahead.fetch_add(i64::try_from(by.as_millis()).unwrap_or(0), Ordering::SeqCst);
    }

    /// How long the clock has run; setting it does not change that.
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The moment at which the clock will have run for `elapsed`.
    pub fn at(&self, elapsed: Duration) -> Instant {
        self.origin + elapsed
    }
}

/// `time` as Kubernetes writes a `Time`: in whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `time` as Kubernetes writes a `MicroTime`.
pub fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Reads a time that Kubernetes wrote.
pub fn read(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
