//! Which of the decided writes are sent in spite of a refusal, and when.
//!
//! Here belongs what becomes of the writes of one decision; what was refused before is remembered in
//! `refused_writes.rs`. The invariant: a refused write is not sent again at once, and one that was refused twice is
//! named for as long as it is wanted.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::action::Action;
use super::claim::Claim;
use super::not_opened::{EVERY, NotOpened};
use super::refused_writes::TOLD_FROM;
use super::since::again_at;
use super::world::World;
use super::write::WriteKind;

/// How long a write waits that was refused for the first time.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(2);

/// The writes of one decision that were refused before.
#[derive(Default)]
pub(super) struct Withheld {
    /// What is told of them.
    pub(super) waits: Vec<NotOpened>,
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
        let due = again_at(refusal.at, if told { EVERY } else { TRIED_AGAIN }, now);
        withheld.hope |= !told;
        if told {
            // A node that the server does not let us cordon is parked in a moment.
            let of_claim = |claim: &&&Claim| {
                let of = claim.state.in_flight() && action.claim() == Some(&*claim.name);
                of && write.kind != WriteKind::Cordon
            };
            withheld.stuck.extend(mine.iter().find(of_claim).map(|claim| claim.name.clone()));
            withheld.waits.push(NotOpened::Refused {
                write,
                why: refusal.why.clone(),
                sent_at: due.max(now),
            });
        }
        if due <= now {
            withheld.again.push(action);
        } else {
            withheld.again_at = Some(withheld.again_at.map_or(due, |earlier| earlier.min(due)));
        }
    }
    withheld
}
