//! What becomes of the events of one watch.
//!
//! The script says which fault an event meets. What the events are never belongs here. The invariant: delayed events
//! come in their order, after what was told before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Faults, WatchFault};
use crate::program::ProgramLife;
use crate::signal::Waiter;

/// Which lines a watch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamMode {
    Everything,
    Bookmarks,
    Silence,
}

/// One watch, with the events that a fault holds back.
pub(crate) struct Stream {
    faults: Faults,
    resource: String,
    agent: String,
    mode: StreamMode,
    life: Arc<ProgramLife>,
    late: VecDeque<(Instant, String)>,
    delay: Duration,
    /// An event that waits for the next to go first.
    swapped: Option<String>,
    cuts: Waiter,
}

/// How a watch ends because of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Quiet,
    Broken,
}

impl Faults {
    /// The faults of one watch.
    pub(crate) fn stream(
        &self,
        resource: &str,
        agent: &str,
        mode: StreamMode,
        life: &Arc<ProgramLife>,
    ) -> Stream {
        Stream {
            faults: self.clone(),
            resource: resource.to_owned(),
            agent: agent.to_owned(),
            mode,
            life: life.clone(),
            late: VecDeque::new(),
            delay: Duration::ZERO,
            swapped: None,
            cuts: self.0.cuts.subscribe(),
        }
    }
}

impl Stream {
    /// Takes an event that is to be delivered. Returns how the watch ends, if it ends with this event.
    pub(crate) fn deliver(&mut self, line: String, lines: &mut VecDeque<String>) -> Option<Ending> {
        if self.mode != StreamMode::Everything {
            return None;
        }
        match self.faults.event_fault(&self.resource, &self.agent, &line) {
            Some(WatchFault::Drop) => return None,
            Some(WatchFault::Duplicate) => self.push(line.clone(), lines),
            Some(WatchFault::Delay(time)) => self.delay = time,
            Some(WatchFault::Swap) if self.swapped.is_none() => {
                self.swapped = Some(line);
                return None;
            }
            Some(WatchFault::Swap) | None => {}
            Some(WatchFault::Gone) => {
                let gone = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;
                lines.push_back(gone.to_owned());
                return Some(Ending::Quiet);
            }
            Some(WatchFault::End) => return Some(Ending::Quiet),
            Some(WatchFault::Reset) => return Some(Ending::Broken),
            Some(WatchFault::Garbage) => {
                lines.push_back("{\"type\":\"MODIFIED\",\"object\":{\"metadata\":7".to_owned());
                return Some(Ending::Quiet);
            }
        }
        self.push(line, lines);
        if let Some(before) = self.swapped.take() {
            self.push(before, lines);
        }
        None
    }

    /// Whether the watch sends bookmarks, and ends when its time is over.
    pub(crate) fn speaks(&self) -> bool {
        self.mode != StreamMode::Silence
    }

    /// Says `line` after the delayed events: a bookmark that came before them would promise what was not told yet.
    pub(crate) fn push(&mut self, line: String, lines: &mut VecDeque<String>) {
        if self.delay.is_zero() {
            lines.push_back(line);
        } else {
            self.late.push_back((Instant::now() + self.delay, line));
        }
    }

    /// Waits until the program that watches goes on, if it is stopped.
    pub(crate) async fn awake(&self) {
        self.life.awake().await;
    }

    /// Waits until a delayed event is due, or a blackout begins.
    pub(crate) async fn wait(&mut self) {
        let due = async {
            match self.late.front() {
                Some((due, _)) => tokio::time::sleep_until(*due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // The sender lives as long as `faults`.
            _ = self.cuts.changed() => {}
            () = due => {}
        }
    }

    /// Whether a blackout breaks this watch.
    pub(crate) fn is_cut(&self) -> bool {
        self.faults.lock().is_dark(&self.agent)
    }

    /// The delayed events that are due now.
    pub(crate) fn due(&mut self) -> Vec<String> {
        let now = Instant::now();
        let count = self.late.iter().take_while(|(due, _)| *due <= now).count();
        self.late.drain(..count).map(|(_, line)| line).collect()
    }
}
