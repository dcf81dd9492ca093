//! Writes that lost a race, look after look.
//!
//! Here belongs only how long to wait after one. The invariant: what loses once is decided again in a moment; what loses
//! again and again, as after an event that a watch lost, is sent ever more rarely.

use std::time::Duration;

/// How long to wait after the first look with such a write; by then the watch has usually told what was faster.
const FIRST: Duration = Duration::from_millis(500);
/// The wait stops doubling here.
const LONGEST: Duration = Duration::from_secs(15);

/// Looks in which a write lost a race.
#[derive(Default)]
pub(super) struct Races {
    /// How many looks before this one, in a row.
    before: u32,
    /// Whether one lost in this look.
    now: bool,
}

impl Races {
    /// Another look begins.
    pub(super) fn look_begins(&mut self) {
        self.before = if std::mem::take(&mut self.now) { self.before.saturating_add(1) } else { 0 };
    }

    /// A write lost. Returns how long to wait for the next look.
    pub(super) fn lost(&mut self) -> Duration {
        self.now = true;
        FIRST.saturating_mul(1 << self.before.min(16)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_until_a_look_loses_nothing() {
        let mut races = Races::default();
        for _ in 0..2 {
            let waits = [500, 1000, 2000, 4000, 8000, 15_000, 15_000];
            for wait in waits.map(Duration::from_millis) {
                races.look_begins();
                assert_eq!([races.lost(), races.lost()], [wait, wait], "those of one look count once");
            }
            races.look_begins();
        }
    }
}
