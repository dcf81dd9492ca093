//! Evictions, and deletions of pods past their budgets: those that are under way, and those that wait for a place.
//!
//! Here belongs when one is sent; which pod may leave is the core's decision. The invariants: only a few are under way at
//! once; what waits is forgotten when the next look begins, which decides it anew, so that nothing is sent that a person has
//! stopped meanwhile; and only what is sent counts as sent.

use std::collections::VecDeque;
use std::time::Duration;

use evenkeel_core::disruption::{Permit, Sent};
use evenkeel_core::drain::Forced;
use evenkeel_core::rollout::Action;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::actions::Hands;
use super::authority::{Effects, EvictionPlace};
use super::outcome::Outcome;

/// For how long a decision counts: a look that is held up by a slow server may be followed by answers before it is followed
/// by another look.
const COUNTS: Duration = Duration::from_secs(1);

/// A pod that is to leave.
pub enum Leaves {
    /// As its budgets allow.
    ByEviction(Permit),
    /// Past its budgets.
    ByDeletion(Forced),
}

/// Pods that are to leave, and wait for a place, in the order in which that was decided.
#[derive(Default)]
pub struct EvictionQueue {
    waiting: VecDeque<Leaves>,
    /// When those that wait were decided last.
    decided: Option<Instant>,
}

impl EvictionQueue {
    /// Forgets what waits: everything is decided anew.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Takes in what was decided just now.
    pub fn push(&mut self, leaves: Leaves) {
        self.waiting.push_back(leaves);
        self.decided = Some(Instant::now());
    }

    /// The next one, and its place among the evictions of `effects`; `None` when none waits or none may be sent now.
    pub fn next(&mut self, effects: &Effects) -> Option<(Leaves, EvictionPlace)> {
        if self.decided.is_none_or(|at| at.elapsed() > COUNTS) {
            self.forget();
        }
        if self.waiting.is_empty() {
            return None;
        }
        let place = effects.eviction_place()?;
        Some((self.waiting.pop_front()?, place))
    }
}

/// Those of an upgrade.
#[derive(Default)]
pub struct Evictions {
    /// The requests that were sent.
    pub under_way: JoinSet<Outcome>,
    queue: EvictionQueue,
}

impl Evictions {
    /// Forgets what waits: everything is decided anew.
    pub fn forget(&mut self) {
        self.queue.forget();
    }

    /// Takes `action` in, if it makes a pod leave; otherwise returns it.
    pub fn take(&mut self, action: Action) -> Option<Action> {
        self.queue.push(match action {
            Action::Evict(permit) => Leaves::ByEviction(permit),
            Action::Delete(forced) => Leaves::ByDeletion(forced),
            other => return Some(other),
        });
        None
    }

    /// Sends as many as there are places for, and remembers in `sent` that they were sent at `now`.
    pub fn send(&mut self, hands: &Hands, sent: &mut Sent, now: Timestamp) {
        while let Some((leaves, place)) = self.queue.next(&hands.effects) {
            match &leaves {
                Leaves::ByEviction(permit) => sent.sends(permit, now),
                Leaves::ByDeletion(forced) => sent.deletes(forced.asked(), now),
            }
            let hands = hands.clone();
            self.under_way.spawn(async move {
                match leaves {
                    Leaves::ByEviction(permit) => hands.evict(permit, place).await,
                    Leaves::ByDeletion(forced) => hands.delete(forced, place).await,
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
