//! What keeps a node from being drained, as a person reads it.
//!
//! Here belongs what is said of it; what holds a pod back is seen by [`crate::drain`], and what follows for the node is
//! in `nodes`, `next_nodes` and `exceptions`. The invariant: a claim is written for it only when it lasts.

use jiff::SignedDuration;

use super::action::Action;
use super::claim::{Blocker, Claim, ClaimState};
use super::round::{Round, after};
use crate::cluster::{Node, Pod};
use crate::drain::{NodeDrain, OnTimeout, PodHeld, PodLeft, PodWait, pods_held, pods_left, yields};

/// What holds a drain back is written to its claim only when it lasts; numbers of a busy budget change all the time.
const SAY_BLOCKED_AFTER: SignedDuration = SignedDuration::from_secs(15);
/// How many blockers a claim names.
pub(super) const SHOWN_BLOCKERS: usize = 5;

/// What only a person takes away of that which keeps `node` from being drained. What keeps it as a whole comes first, and
/// names no pod.
pub(super) fn lasting_blockers(round: &Round<'_>, node: &Node) -> Vec<Blocker> {
    let forces = round.policy.on_timeout == OnTimeout::Force;
    let refused = round.batch.admit(&node.name).err().filter(|refused| refused.lasting && !forces);
    let refused = refused.map(|refused| Blocker {
        pod: String::new(),
        budget: Some(refused.budget),
        reason: refused.reason,
        lasting: true,
    });
    refused
        .into_iter()
        .chain(what_blocks(round, node).into_iter().filter(|blocker| blocker.lasting))
        .collect()
}

/// What would hold back the pods of `node` if it was drained now.
pub(super) fn what_blocks(round: &Round<'_>, node: &Node) -> Vec<Blocker> {
    let world = round.world;
    let forces = round.policy.on_timeout == OnTimeout::Force;
    let mut left =
        pods_left(world.cluster, &node.name, &round.policy.rules, world.memory, &round.budgets, world.now);
    // At its deadline such a pod goes past its budgets. And what the server said to an earlier drain is soon forgotten, and
    // tells nothing of the next one.
    left.retain(|left| !(forces && yields(left) || matches!(left.wait, PodWait::NotEvicted(_))));
    blockers(&left)
}

/// What holds `left` back, for a person, and what a person can end first.
pub(super) fn blockers(left: &[PodLeft<'_>]) -> Vec<Blocker> {
    let blocker = |(pod, held): (&Pod, PodHeld)| {
        let PodHeld { budget, reason, lasting } = held;
        Blocker { pod: pod.full_name(), budget, reason, lasting }
    };
    pods_held(left).into_iter().map(blocker).collect()
}

/// Writes to the claim what holds its drain back when it lasts, or that nothing does any more, and since when nothing moves
/// without a person.
pub(super) fn say_blocked(
    round: &mut Round<'_>,
    claim: &Claim,
    drain: &NodeDrain,
    blockers: Vec<Blocker>,
    message: String,
) {
    let ClaimState::Draining { since, stalled } = claim.state else { return };
    let begins_to_stall = drain.stalled.is_some() != stalled.is_some();
    let lasts = SAY_BLOCKED_AFTER.min(round.upgrade.drain.timeout / 2);
    // A budget that lets one pod go after the other blocks nothing, however long all of them take.
    let closed_since = |blocker: &Blocker| {
        let (namespace, name) = blocker.budget.as_ref()?;
        round.world.cluster.budget(namespace, name)?.closed_since
    };
    let from = |blocker: &Blocker| after(closed_since(blocker).map_or(since, |at| at.max(since)), lasts);
    let first = blockers.iter().map(from).min();
    let changes = begins_to_stall || blockers.is_empty() && !claim.blockers.is_empty();
    let Some(from) = first.or_else(|| changes.then_some(since)) else { return };
    if !begins_to_stall && round.world.now < from {
        round.wake(from);
        return;
    }
    let shown: Vec<Blocker> = blockers.into_iter().take(SHOWN_BLOCKERS).collect();
    let same = |a: &Blocker, b: &Blocker| a.pod == b.pod && a.budget == b.budget;
    let told =
        shown.len() == claim.blockers.len() && shown.iter().zip(&claim.blockers).all(|(a, b)| same(a, b));
    if told && !begins_to_stall {
        return;
    }
    round.actions.push(Action::Record {
        claim: claim.name.clone(),
        resource_version: claim.resource_version.clone(),
        state: ClaimState::Draining { since, stalled: drain.stalled },
        attempt: claim.attempt,
        message,
        blockers: shown,
        job: None,
        drained: None,
    });
}
