//! Whether a program that uses the cluster runs: it may have died, or be stopped for a while.
//!
//! What becomes of its requests never belongs here. The invariant: a program that died stays dead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The life of one program.
#[derive(Debug, Default)]
pub(crate) struct ProgramLife {
    dead: AtomicBool,
    /// Until when the program is stopped.
    wakes: Mutex<Option<Instant>>,
}

impl ProgramLife {
    /// Ends the program for good.
    pub(crate) fn end(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Stops the program for `time`, as with SIGSTOP and SIGCONT.
    pub(crate) fn pause(&self, time: Duration) {
        let wakes = Instant::now() + time;
        let mut known = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(known.map_or(wakes, |known| known.max(wakes)));
    }

    /// Resolves when the program is not stopped, which is mostly at once.
    pub(crate) async fn awake(&self) {
        loop {
            let wakes = *self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
            match wakes.filter(|wakes| *wakes > Instant::now()) {
                Some(wakes) => tokio::time::sleep_until(wakes).await,
                None => return,
            }
        }
    }
}
