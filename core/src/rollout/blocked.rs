//! How long a plan has been blocked.
//!
//! Here belongs only when that is too long; what blocks a plan is found by [`crate::plan`]. The invariant: nobody is
//! called because a plan is blocked for a moment, for what is seen of a cluster comes and goes while its control plane
//! is replaced.

use super::round::{GONE, Round, after};
use crate::plan::Planned;
use crate::upgrade::Lasting;

/// How long a plan has been blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Blockage {
    /// It is not blocked, or may mend itself.
    #[default]
    ForAMoment,
    /// It does not mend itself, as far as anybody can say.
    ForLong,
}

/// How long `planned` has been blocked. If not for long yet, this asks for another decision when it has. Before anything has
/// begun, a person is called at once for what does not mend itself.
pub(super) fn blockage(round: &mut Round<'_>, planned: &Planned) -> Blockage {
    let has_begun = round.progress.started.is_some() || !round.mine.is_empty();
    if planned.refused().is_empty() || has_begun && !round.may_disrupt {
        return Blockage::ForAMoment;
    }
    if !has_begun && !planned.may_mend_itself() {
        return Blockage::ForLong;
    }
    let now = round.world.now;
    let since = round.world.freshness.blocked.of(&round.upgrade.uid, now);
    let until = after(since.unwrap_or(now), GONE);
    if round.lasts(Lasting::PlanBlocked, until) {
        return Blockage::ForLong;
    }
    round.wake(until);
    Blockage::ForAMoment
}
