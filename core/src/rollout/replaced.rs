//! Pods that were made in the place of others that left, and are not ready yet.
//!
//! Here belongs whether a node may be taken up while they start: a workload without a budget would otherwise lose its
//! pods on the next node before those of the last one are back. What a budget allows is not asked here, and nodes that
//! are under way at the same time may hold all pods of a workload: only a budget keeps those apart. The invariant:
//! nothing is waited for without an end: a pod that does not become ready in time holds nobody up, and a node on which
//! no pod of the workload is ready does not wait for it.

use jiff::{SignedDuration, Timestamp};

use super::claim::{Claim, ClaimState};
use super::not_opened::NotOpened;
use super::round::{Round, after};
use crate::cluster::{Node, Owner, Phase, Pod};

/// A pod that is not ready so long after it was made has other troubles than ours.
const START: SignedDuration = SignedDuration::from_mins(10);
/// So long after the last node was emptied, whatever starts is no matter of ours.
const RECENT: SignedDuration = SignedDuration::from_mins(10);
/// What serves by all of its pods together. The pods of a Job come and go by themselves.
const SERVING: [&str; 3] = ["ReplicaSet", "StatefulSet", "ReplicationController"];

/// The owner of `pod`, if it serves by all of its pods.
fn serving_owner(pod: &Pod) -> Option<&Owner> {
    pod.owner.as_deref().filter(|owner| SERVING.contains(&&*owner.kind))
}

/// When the last node of this upgrade was emptied, or given back.
fn last_emptied(round: &Round<'_>) -> Option<Timestamp> {
    let at = |claim: &&Claim| match claim.state {
        ClaimState::Upgrading { since, .. } | ClaimState::Parked { since, .. } => Some(since),
        ClaimState::Upgraded { at } => Some(at),
        _ => None,
    };
    round.mine.iter().filter(|claim| claim.is_of_kubelet()).filter_map(at).max()
}

/// Whether `node` may be taken up as far as the workloads of its pods are back where others left.
pub(super) fn allow(round: &Round<'_>, node: &Node) -> Result<(), NotOpened> {
    let (cluster, now) = (round.world.cluster, round.world.now);
    let Some(over) = last_emptied(round).map(|at| after(at, RECENT)).filter(|over| now < *over) else {
        return Ok(());
    };
    // One that is not ready serves nobody now: a workload that is broken would hold up each node that it is on.
    let leaves = |pod: &&Pod| pod.ready && pod.phase != Phase::Finished && pod.deleting().is_none();
    let mut owners: Vec<&Owner> =
        cluster.pods_on(&node.name).filter(leaves).filter_map(serving_owner).collect();
    owners.sort_by_key(|owner| &owner.uid);
    owners.dedup_by_key(|owner| &owner.uid);
    let starts = |pod: &Pod| {
        let until = after(pod.traits().starting_since?, START).min(over);
        (now < until && pod.node != node.name).then_some(until)
    };
    let mut starting = owners
        .into_iter()
        .flat_map(|owner| cluster.starting_of(&owner.uid))
        .filter_map(|pod| Some((starts(pod)?, pod)));
    let Some((mut until, first)) = starting.next() else { return Ok(()) };
    let mut more = 0;
    for (one, _) in starting {
        (until, more) = (until.max(one), more + 1);
    }
    Err(NotOpened::Replacements { node: node.name.clone(), pod: first.full_name(), more, until })
}
