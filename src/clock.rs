//! The wall clock: the machine's, or that of the simulated cluster of the demo.
//!
//! Every decision that depends on the time of day takes it from here. Waiting belongs to tokio's timers and needs no
//! wall clock. The invariant: code that is given a clock reads no other one.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

/// A wall clock. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock that shows what `now` says.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// A clock that starts at the time this one shows now, and then moves as tokio's timers do: it never jumps, even
    /// when this one is set.
    #[must_use]
    pub fn steady(&self) -> Self {
        let (began, origin) = (self.now(), Instant::now());
        Self::new(move || began.saturating_add(origin.elapsed()).unwrap_or(Timestamp::MAX))
    }

    /// The time now, which a test or the demonstration may set.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// The clock of the machine.
impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
