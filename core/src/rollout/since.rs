//! Since when something has been so, as each look finds it, by the clock of the process that looks.
//!
//! Here belongs only the time; each caller says itself how long is too long. The invariants: the time begins anew
//! when a look finds that it is not so; losing all of it is safe, because then every time begins anew; and a time that
//! lies ahead keeps nothing waiting, because it was noted before somebody set a clock back.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// When to do again what was last done at `last`, and is done once in `every`: at once where `last` lies ahead of `now`.
pub(super) fn again_at(last: Timestamp, every: SignedDuration, now: Timestamp) -> Timestamp {
    if last > now { now } else { last.saturating_add(every).unwrap_or(Timestamp::MAX) }
}

/// Whether what happened at `at` happened less than `wait` before `now`.
pub(super) fn is_within(at: Timestamp, wait: SignedDuration, now: Timestamp) -> bool {
    at <= now && now.duration_since(at) < wait
}

/// Since when each of several things has been so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since<K>(BTreeMap<K, Timestamp>);

impl<K> Default for Since<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Since<K> {
    /// Takes in what is so at `now`.
    pub fn see(&mut self, all: impl IntoIterator<Item = K>, now: Timestamp) {
        let before = std::mem::take(self);
        let since = |one: &K| before.of(one, now).unwrap_or(now);
        self.0 = all.into_iter().map(|one| (since(&one), one)).map(|(since, one)| (one, since)).collect();
    }

    /// Since when `one` has been so, as seen at `now`; `None` where it was not so at the last look.
    pub fn of(&self, one: &K, now: Timestamp) -> Option<Timestamp> {
        self.0.get(one).copied().filter(|since| *since <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    #[test]
    fn what_was_not_so_for_a_moment_is_so_since_then() {
        let mut all = Since::default();
        let mut since = |is: bool, now: i64| {
            all.see(is.then_some("away"), at(now));
            all.of(&"away", at(now))
        };
        assert_eq!(since(true, 10), Some(at(10)));
        assert_eq!(since(true, 20), Some(at(10)));
        assert_eq!(since(false, 30), None);
        assert_eq!(since(true, 40), Some(at(40)));
        assert_eq!(since(true, 5), Some(at(5)), "a clock was set back");
    }
}
