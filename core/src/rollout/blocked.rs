//! Since when the plan of an upgrade that has begun must not be carried on.
//!
//! Here belongs only the time, and when it is too long; what blocks a plan is found by [`crate::plan`]. What is seen of a
//! cluster comes and goes while its control plane is replaced, so a plan may be blocked for a moment. The invariant: a
//! plan that could be carried on for a moment is blocked since then.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::round::{GONE, Round, after};

/// Since when plans have been blocked, by the UIDs of their upgrades and by the clock of whoever looks again and again.
/// Losing it is safe: the time begins anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked(BTreeMap<Arc<str>, Timestamp>);

impl Blocked {
    /// Takes in which upgrades, by UID, have a blocked plan at `now`.
    pub fn see(&mut self, upgrades: impl IntoIterator<Item = Arc<str>>, now: Timestamp) {
        let before = std::mem::take(&mut self.0);
        // A time that lies ahead was noted before somebody set a clock back.
        let since = |uid: &Arc<str>| before.get(uid).copied().filter(|since| *since <= now).unwrap_or(now);
        self.0 = upgrades.into_iter().map(|uid| (uid.clone(), since(&uid))).collect();
    }
}

/// How long a plan has been blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Blockage {
    /// It may mend itself.
    #[default]
    ForAMoment,
    /// It does not mend itself, as far as anybody can say.
    ForLong,
}

/// How long the plan has been blocked. If not for long yet, this asks for another decision when it has.
pub(super) fn blockage(round: &mut Round<'_>) -> Blockage {
    let now = round.world.now;
    let since = round.world.freshness.blocked.0.get(&round.upgrade.uid).filter(|since| **since <= now);
    let until = after(since.copied().unwrap_or(now), GONE);
    if now >= until {
        return Blockage::ForLong;
    }
    round.wake(until);
    Blockage::ForAMoment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    #[test]
    fn a_plan_that_was_free_for_a_moment_is_blocked_since_then() {
        let uid: Arc<str> = "u-1".into();
        let mut blocked = Blocked::default();
        let mut since = |is: bool, now: i64| {
            blocked.see(is.then(|| uid.clone()), at(now));
            blocked.0.get(&uid).copied()
        };
        assert_eq!(since(true, 10), Some(at(10)));
        assert_eq!(since(true, 20), Some(at(10)));
        assert_eq!(since(false, 30), None);
        assert_eq!(since(true, 40), Some(at(40)));
        assert_eq!(since(true, 5), Some(at(5)), "a clock was set back");
    }
}
