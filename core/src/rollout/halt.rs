//! An upgrade that stops at the first node that could not be drained, and what lets it go on.
//!
//! Here belongs only the question whether a parked node stopped it; what that means for nodes, and a node that is not even
//! begun, are in `nodes` and `next_nodes`. The invariants: the parked claim of the node is all that is remembered of the
//! stop; and the stop does not end with time, but only with what somebody changed.

use jiff::Timestamp;

use super::blockers::SHOWN_BLOCKERS;
use super::claim::{Claim, ClaimState};
use super::exceptions::acceptance;
use super::leftovers::{at_target, holds, node_of};
use super::nodes::retried_after;
use super::round::after;
use crate::cluster::{Cluster, Node};
use crate::drain::OnTimeout;
use crate::plan::is_empty;
use crate::upgrade::Upgrade;

/// Why `upgrade` begins nothing more, in one line that says what lets it go on; `None` where it goes on.
pub(super) fn halted(
    cluster: &Cluster,
    upgrade: &Upgrade,
    mine: &[&Claim],
    now: Timestamp,
) -> Option<String> {
    if upgrade.drain.on_timeout != OnTimeout::Halt {
        return None;
    }
    let stops =
        |claim: &&&Claim| claim.is_of_kubelet() && !claim.ending && claim.subject.to == upgrade.version;
    mine.iter().filter(stops).find_map(|claim| {
        let node = node_of(cluster, claim).filter(|node| !at_target(node, claim))?;
        // A list that may be cut off does not tell all.
        let known = claim.blockers.len() < SHOWN_BLOCKERS;
        let accepted = known && acceptance(&upgrade.accepted, &claim.blockers, now).is_some();
        let left = if known { left(cluster, claim) } else { is_empty(cluster, node) };
        let goes_on = accepted || is_left_to_a_person(node, claim) || left;
        if goes_on || !had_its_time(upgrade, claim) {
            return None;
        }
        Some(format!(
            "halted at {}: {}; remove what blocks it, raise spec.drain.timeoutSeconds, set spec.drain.onTimeout to Park, \
             or delete NodeUpgrade {} to try it again",
            node.name, claim.message, claim.name
        ))
    })
}

/// Whether the claim is parked, and its drain had no less time than the present timeout gives.
fn had_its_time(upgrade: &Upgrade, claim: &Claim) -> bool {
    let ClaimState::Parked { since, retry_at, .. } = claim.state else { return false };
    after(since, retried_after(upgrade.drain.timeout, claim.attempt)) <= retry_at
}

/// Whether somebody took the node upon them since: it is held, or cordoned by someone else.
fn is_left_to_a_person(node: &Node, claim: &Claim) -> bool {
    (node.held || node.unschedulable) && !holds(claim, node)
}

/// Whether every pod that blocked the node is gone from it.
fn left(cluster: &Cluster, claim: &Claim) -> bool {
    let mut here = cluster.pods_on(&claim.subject.node).map(crate::cluster::Pod::full_name);
    !claim.blockers.is_empty() && !here.any(|pod| claim.blockers.iter().any(|blocker| blocker.pod == pod))
}
