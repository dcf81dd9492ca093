//! How long a drain has been waiting for one thing, and when it said so.
//!
//! Here belong the moments, and whether trouble with a request or a watch is over; what is told of it is in `narrate`.
//! The invariant: the moments are of the machine's monotonic clock, so a clock that is set back changes no wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// A wait that goes on is told again after this time.
pub(super) const TELL_AGAIN: Duration = Duration::from_mins(1);

/// Since when the drain waits for one thing, and when that was told.
#[derive(Clone, Copy)]
pub(super) struct Waited {
    pub(super) since: Instant,
    /// When the wait was last seen to go on.
    pub(super) seen: Instant,
    pub(super) told: Option<Instant>,
}

impl Waited {
    pub(super) fn begins(now: Instant) -> Self {
        Self { since: now, seen: now, told: None }
    }

    /// Whether it is to be told `now`, again if it was told before; counts it as told then.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.told.is_none_or(|told| now >= told + TELL_AGAIN);
        if due {
            self.told = Some(now);
        }
        due
    }
}

/// What the drain itself has trouble with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DrainTrouble {
    /// With a watch.
    Watch,
    /// With the cordon of the node of this name, or with taking it off.
    Patch(Arc<str>),
    /// With reading the pods of the node of this name.
    Reread(Arc<str>),
}

/// The troubles that there are, and those that were told lately, each with its line.
#[derive(Default)]
pub(super) struct Troubles(BTreeMap<(DrainTrouble, String), (Waited, bool)>);

impl Troubles {
    /// Remembers that the trouble told by `line` is there `now`. Returns whether it is to be told.
    pub(super) fn begins(&mut self, trouble: DrainTrouble, line: &str, now: Instant) -> bool {
        // What passes and comes back is not told each time.
        self.0.retain(|_, (waited, lasts)| *lasts || waited.told.is_some_and(|told| now < told + TELL_AGAIN));
        let others = self.0.iter_mut().filter(|((of, other), _)| *of == trouble && other != line);
        others.for_each(|(_, (_, lasts))| *lasts = false);
        let (waited, lasts) = self.0.entry((trouble, line.to_owned())).or_insert((Waited::begins(now), true));
        if !*lasts {
            (waited.since, *lasts) = (now, true);
        }
        waited.is_due(now)
    }

    /// The trouble is over.
    pub(super) fn ends(&mut self, trouble: &DrainTrouble) {
        let same = self.0.iter_mut().filter(|((of, _), _)| of == trouble);
        same.for_each(|(_, (_, lasts))| *lasts = false);
    }

    /// The one that lasts longest: its line, and since when.
    pub(super) fn longest(&self) -> Option<(&str, Instant)> {
        let lasting = self.0.iter().filter(|(_, (_, lasts))| *lasts);
        lasting.map(|((_, line), (waited, _))| (line.as_str(), waited.since)).min_by_key(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn trouble_is_shown_until_it_is_over_and_told_once_a_minute() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let patch = |node: &str| DrainTrouble::Patch(node.into());
        let mut troubles = Troubles::default();
        assert!(troubles.begins(patch("n-1"), "no right", at(0)));
        assert!(!troubles.begins(patch("n-1"), "no right", at(2)));
        assert!(troubles.begins(DrainTrouble::Watch, "no answer", at(3)));
        assert_eq!(troubles.longest(), Some(("no right", at(0))));
        troubles.ends(&patch("n-2"));
        assert_eq!(troubles.longest(), Some(("no right", at(0))), "another node's");
        troubles.ends(&patch("n-1"));
        assert_eq!(troubles.longest(), Some(("no answer", at(3))));
        troubles.ends(&DrainTrouble::Watch);
        assert_eq!(troubles.longest(), None);
        assert!(!troubles.begins(DrainTrouble::Watch, "no answer", at(20)), "it comes and goes");
        assert_eq!(troubles.longest(), Some(("no answer", at(20))), "and begins anew");
        assert!(troubles.begins(DrainTrouble::Watch, "no answer", at(63)));
        assert!(troubles.begins(patch("n-1"), "busy", at(64)), "another trouble with the same node");
        assert!(troubles.begins(patch("n-1"), "no right", at(90)));
        troubles.ends(&DrainTrouble::Watch);
        assert_eq!(troubles.longest(), Some(("no right", at(90))), "it is busy no more");
    }
}
