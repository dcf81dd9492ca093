//! Writes that the server refuses, with 403 or 422: a webhook, a policy, a quota or a missing permission is in the way.
//!
//! Here belongs which of the decided writes are sent in spite of it, and when. Executors' Jobs and evictions are not
//! here: what is said to them belongs to a claim or to a budget. The invariant: a refused write is not sent again at
//! once, and one that was refused twice is named for as long as it is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::round::after;
use super::wait::Wait;
use super::{Action, Claim, World};

/// How long a write waits that was refused for the first time.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(2);
/// How long a write waits that is told as refused: a person removes the reason meanwhile.
const SENT_AGAIN: SignedDuration = SignedDuration::from_secs(15);
/// From so many refusals in a row on it is told. A kube-apiserver that starts may forbid what it allows a moment later.
pub(super) const TOLD_FROM: u32 = 2;
/// A refusal that was not repeated for so long is over: nobody wants the write any more, or it was taken.
const LASTS: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug)]
struct Refusal {
    why: String,
    times: u32,
    at: Timestamp,
}

/// What the server refuses, by [`Action::write`]. Losing it is safe: the writes are sent again.
#[derive(Clone, Debug, Default)]
pub struct Refusals(BTreeMap<String, Refusal>);

impl Refusals {
    /// The server refused `write` at `now` for the reason `why`, one line.
    pub fn refused(&mut self, write: String, why: String, now: Timestamp) {
        let times = self.0.get(&write).map_or(0, |before| before.times).saturating_add(1);
        self.0.insert(write, Refusal { why, times, at: now });
    }

    /// Forgets what was not refused again.
    pub fn forget_old(&mut self, now: Timestamp) {
        self.0.retain(|_, refusal| now.duration_since(refusal.at) < LASTS);
    }

    /// Why the server refuses to cordon `node`, once it did so twice.
    pub(super) fn of_cordon(&self, node: &str) -> Option<&str> {
        let refusal = self.0.get(&super::action::cordon(node))?;
        (refusal.times >= TOLD_FROM).then_some(&*refusal.why)
    }
}

/// The writes of one decision that were refused before.
#[derive(Default)]
pub(super) struct Withheld {
    /// What is told of them.
    pub(super) waits: Vec<Wait>,
    /// Those that are sent again with this decision.
    pub(super) again: Vec<Action>,
    /// When the first of the others is sent again.
    pub(super) again_at: Option<Timestamp>,
    /// A refusal may have been of a moment.
    pub(super) hope: bool,
    /// The names of the claims of `mine` that are in flight and get no further because of them.
    pub(super) stuck: BTreeSet<Arc<str>>,
}

/// Takes out of `actions` of `upgrade` what was refused before.
pub(super) fn withhold(
    actions: &mut Vec<Action>,
    upgrade: &str,
    mine: &[&Claim],
    world: World<'_>,
) -> Withheld {
    let (refusals, now) = (world.refused, world.now);
    let mut withheld = Withheld::default();
    for action in std::mem::take(actions) {
        let refusal = action.write(upgrade).and_then(|write| Some((refusals.0.get(&write)?, write)));
        let Some((refusal, write)) = refusal else {
            actions.push(action);
            continue;
        };
        let told = refusal.times >= TOLD_FROM;
        let due = after(refusal.at, if told { SENT_AGAIN } else { TRIED_AGAIN });
        withheld.hope |= !told;
        if told {
            let of_claim = |claim: &&&Claim| claim.state.in_flight() && action.claim() == Some(&*claim.name);
            withheld.stuck.extend(mine.iter().find(of_claim).map(|claim| claim.name.clone()));
            withheld.waits.push(Wait::Refused { write, why: refusal.why.clone(), sent_at: due.max(now) });
        }
        if due <= now {
            withheld.again.push(action);
        } else {
            withheld.again_at = Some(withheld.again_at.map_or(due, |earlier| earlier.min(due)));
        }
    }
    withheld
}
