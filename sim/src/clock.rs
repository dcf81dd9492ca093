//! The cluster's wall clock: a fixed beginning, and as much more as tokio's clock has moved.
//!
//! On a paused runtime it stands still until everybody waits, and then jumps to the next timer: that is what makes hours
//! pass in seconds. Never here: the machine's own clock, except for the beginning that real time asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// What time it is in the cluster.
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

    /// Sets it forward, or back. Timers do not notice, as on a real machine.
    pub fn jump(&self, by: SignedDuration) {
        self.ahead.fetch_add(i64::try_from(by.as_millis()).unwrap_or(0), Ordering::SeqCst);
    }

    /// How long the clock has run.
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// When the clock will have run so long.
    pub fn at(&self, elapsed: Duration) -> Instant {
        self.origin + elapsed
    }
}

/// As Kubernetes writes a `Time`: whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// As Kubernetes writes a `MicroTime`.
pub fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Reads a time that Kubernetes wrote.
pub fn read(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
