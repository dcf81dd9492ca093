//! Evictions, and deletions of pods past their budgets: those that are under way, and those that wait for a place.
//!
//! Here belongs when one is sent; which pod may leave is the core's decision. The invariants: only a few are under way at
//! once; what waits is forgotten when the next look begins, which decides it anew, so that nothing is sent that a person has
//! stopped meanwhile; and only what is sent counts as sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::disruption::{Permit, Sent};
use evenkeel_core::drain::Forced;
use evenkeel_core::rollout::Action;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::actions::{Hands, Known};
use super::authority::EVICTIONS_AT_ONCE;
use super::outcome::Outcome;
use crate::api::ClusterUpgrade;

/// For how long a decision counts: a look that is held up by a slow server may be followed by answers before it is followed
/// by another look.
const COUNTS: Duration = Duration::from_secs(1);

/// A pod that is to leave.
enum Leaves {
    ByEviction(Permit),
    ByDeletion(Forced),
}

/// Those under way, and those that wait for one of a few places.
#[derive(Default)]
pub struct Evictions {
    /// The requests that were sent.
    pub under_way: JoinSet<Outcome>,
    /// In the order in which they were decided.
    waiting: VecDeque<(Leaves, Arc<ClusterUpgrade>)>,
    /// When those that wait were decided last.
    decided: Option<Instant>,
}

impl Evictions {
    /// Forgets what waits: everything is decided anew.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Takes `action` of `upgrade` in, if it makes a pod leave; otherwise returns it.
    pub fn take(&mut self, action: Action, upgrade: &Arc<ClusterUpgrade>) -> Option<Action> {
        let leaves = match action {
            Action::Evict(permit) => Leaves::ByEviction(permit),
            Action::Delete(forced) => Leaves::ByDeletion(forced),
            other => return Some(other),
        };
        self.waiting.push_back((leaves, Arc::clone(upgrade)));
        self.decided = Some(Instant::now());
        None
    }

    /// Sends as many as there are places for, and remembers in `sent` that they were sent at `now`.
    pub fn send(&mut self, hands: &Hands, sent: &mut Sent, now: Timestamp) {
        if self.decided.is_none_or(|at| at.elapsed() > COUNTS) {
            self.waiting.clear();
        }
        while self.under_way.len() < EVICTIONS_AT_ONCE {
            let Some((leaves, upgrade)) = self.waiting.pop_front() else { return };
            let action = match leaves {
                Leaves::ByEviction(permit) => {
                    sent.sends(&permit, now);
                    Action::Evict(permit)
                }
                Leaves::ByDeletion(forced) => {
                    sent.deletes(forced.asked(), now);
                    Action::Delete(forced)
                }
            };
            let hands = hands.clone();
            self.under_way.spawn(async move { hands.perform(&upgrade, action, Known::default()).await });
        }
    }
}

#[cfg(test)]
mod tests;
