//! What time it is: the machine's, or that of a cluster that does not exist.
//!
//! Here is the one place that the program's wall clock comes from where a decision depends on it. Waiting is tokio's and
//! needs none. The invariant: whoever is given a clock reads no other.

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

    /// One that shows the time of this one now, and from now on moves as timers do, whatever happens to this one.
    #[must_use]
    pub fn steady(&self) -> Self {
        let (began, origin) = (self.now(), Instant::now());
        Self::new(move || began.saturating_add(origin.elapsed()).unwrap_or(Timestamp::MAX))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// The machine's.
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
