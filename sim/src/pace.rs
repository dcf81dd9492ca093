//! Virtual time at a speed that a person can watch.
//!
//! A paused clock jumps to the next timer whenever everybody waits, but not while a blocking task runs. So a blocking
//! task runs for as long as real time has to catch up. What happens meanwhile never belongs here. The invariant: timers
//! still fire one after the other, each at its own time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How long the clock is held at a time.
const TICK: Duration = Duration::from_millis(20);
/// The most real time that one tick makes up for. More is lost: the machine is too slow for the speed.
const ARREARS: Duration = Duration::from_millis(200);

/// Holds the paused clock of a runtime to a multiple of real time, until it is dropped.
#[derive(Debug)]
pub struct Pace {
    speed: watch::Sender<u32>,
    task: AbortHandle,
}

impl Pace {
    /// From now on `speed` seconds of the clock pass in each real second; with 0 the clock stands still.
    ///
    /// It has to be called inside a current-thread tokio runtime whose clock is paused.
    pub fn begin(speed: u32) -> Self {
        let (speed, told) = watch::channel(speed);
        Self { speed, task: tokio::spawn(hold(told)).abort_handle() }
    }

    /// How many seconds of the cluster pass in one of ours.
    pub fn speed(&self) -> u32 {
        *self.speed.borrow()
    }

    /// Sets another speed from now on.
    pub fn set(&self, speed: u32) {
        self.speed.send_replace(speed);
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn hold(speed: watch::Receiver<u32>) {
    let mut real = std::time::Instant::now();
    loop {
        if tokio::task::spawn_blocking(|| std::thread::sleep(TICK)).await.is_err() {
            return;
        }
        let passed = real.elapsed().min(ARREARS);
        real = std::time::Instant::now();
        let speed = *speed.borrow();
        tokio::time::sleep_until(Instant::now() + passed * speed).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_passes_as_fast_as_it_is_told() {
        let pace = Pace::begin(100);
        let (real, began) = (std::time::Instant::now(), Instant::now());
        let mut ticks = 0;
        while real.elapsed() < Duration::from_millis(500) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            ticks += 1;
        }
        let (real, passed) = (real.elapsed().as_secs_f64(), began.elapsed().as_secs_f64());
        // A machine that is busy may lose time, and never win any.
        assert!(passed <= real * 105.0, "{passed} s in {real} s");
        assert!(ticks >= 5, "{ticks} timers, each at its time");
        drop(pace);
        tokio::time::sleep(Duration::from_hours(10)).await;
        assert!(began.elapsed() > Duration::from_hours(10));
    }

    #[tokio::test(start_paused = true)]
    async fn it_can_stand_still() {
        let pace = Pace::begin(0);
        let began = Instant::now();
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(100))).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
        pace.set(1000);
        assert_eq!(pace.speed(), 1000);
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}
