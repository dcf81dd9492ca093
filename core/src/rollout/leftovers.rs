//! What becomes of claims whose upgrade is over, deleted or unknown, or that nobody can read, and of the nodes that
//! they hold.
//!
//! The invariants: no claim goes while its executor's Job runs, unless its Node is gone, with which the Job ends; and a node
//! that may be half upgraded is never made schedulable: it is handed over to a person, cordoned.

use std::collections::HashSet;
use std::sync::Arc;

use super::action::Action;
use super::claim::{Claim, ClaimState, UnreadableClaim};
use super::jobs::{JobState, Jobs};
use super::round::{Round, release};
use super::taints::Taints;
use super::waiting::WaitReason;
use crate::cluster::{Cluster, Node};
use crate::disruption::CordonMark;

/// How many finished claims of kubelets are kept; beyond, the oldest are deleted. So many nodes are known to have been
/// upgraded, so that one of them that a person takes back is left as it is.
pub(super) const KEPT_UPGRADED: usize = 500;

/// The Node that `claim` is about, if it is still that Node.
pub(super) fn node_of<'c>(cluster: &'c Cluster, claim: &Claim) -> Option<&'c Node> {
    cluster.node(&claim.subject.node).filter(|node| node.uid == claim.subject.node_uid)
}

/// Whether `node` is cordoned by `claim`.
pub(super) fn holds(claim: &Claim, node: &Node) -> bool {
    node.cordoned_by.as_deref().is_some_and(|mark| claim.is_mark(mark))
}

/// Whether `node` is cordoned, and by none of the claims in `mine`.
pub(super) fn is_cordoned_by_others(mine: &[&Claim], node: &Node) -> bool {
    node.unschedulable && !mine.iter().any(|claim| holds(claim, node))
}

/// Whether `node` was observed at what `claim` wants.
pub(super) fn at_target(node: &Node, claim: &Claim) -> bool {
    node.kubelet.known().is_some_and(|version| version.satisfies(&claim.subject.to))
}

/// One step towards the end of `claim`, which is about nothing any more: its node is given back, or handed over to a
/// person where its executor may have left it half upgraded; then the claim goes.
pub(super) fn settle(cluster: &Cluster, claim: &Claim) -> Action {
    let Some(node) = node_of(cluster, claim).filter(|node| holds(claim, node)) else { return release(claim) };
    let touched = matches!(claim.state, ClaimState::Failed { .. } | ClaimState::Upgrading { .. });
    // One that somebody uncordoned meanwhile loses the mark alone.
    if touched && node.unschedulable && !(at_target(node, claim) && node.ready) {
        Action::HandOver { node: node.reference() }
    } else {
        Action::Uncordon { node: node.reference(), mark: claim.mark(), taints: Taints::without_ours(node) }
    }
}

/// Whether the executor's Job of `claim` still runs. While it does, the claim says whose it is and keeps its node.
fn job_runs(jobs: &Jobs, claim: &Claim) -> bool {
    jobs.of(claim) == Some(&JobState::Running)
}

/// Takes `step`, with which `claim` goes, or a step towards that; not before the executor's Job has ended. A person who
/// does not want to wait deletes the Job.
pub(super) fn goes_with(round: &mut Round<'_>, claim: &Claim, step: Action) {
    if job_runs(round.world.jobs, claim) {
        let Claim { subject, name, .. } = claim;
        let line =
            format!("{}: its Job still runs; NodeUpgrade {name} goes when the Job has ended", subject.node);
        round.works(WaitReason::ExecutorWorking, line);
    } else {
        round.actions.push(step);
    }
}

/// Deletes what is finished and of no use any more: the oldest upgraded claims of kubelets that are not on their way out
/// already. Those of the control plane say until the end of the hop what went back, and that its first node is done.
pub(super) fn forget(round: &mut Round<'_>) {
    let cluster = round.world.cluster;
    let is_done =
        |claim: &&&Claim| claim.is_of_kubelet() && matches!(claim.state, ClaimState::Upgraded { .. });
    if round.mine.iter().filter(is_done).count() <= KEPT_UPGRADED {
        return;
    }
    // A claim whose node went back to an older version is needed to say so.
    let done = |claim: &Claim| node_of(cluster, claim).is_none_or(|node| at_target(node, claim));
    let mut finished: Vec<_> = round
        .mine
        .iter()
        // A Job that still runs has its claim to say whose it is.
        .filter(|claim| claim.is_of_kubelet() && done(claim) && !job_runs(round.world.jobs, claim))
        .filter_map(|claim| match claim.state {
            ClaimState::Upgraded { at } => Some((at, *claim)),
            _ => None,
        })
        .collect();
    finished.sort_by(|(a, x), (b, y)| (a, &x.name).cmp(&(b, &y.name)));
    let surplus = finished.len().saturating_sub(KEPT_UPGRADED);
    let oldest = finished.into_iter().take(surplus).map(|(_, claim)| claim);
    let released: Vec<_> = oldest.filter(|claim| !round.releases(claim)).map(release).collect();
    round.actions.extend(released);
}

/// What to do about `claims` whose upgrade does not exist: it was deleted before it had our finalizer, or by force. The
/// caller makes sure that its list of upgrades is complete. One whose executor's Job runs waits for its end.
pub fn abandoned<'a>(
    cluster: &Cluster,
    jobs: &Jobs,
    claims: impl IntoIterator<Item = &'a Claim>,
) -> Vec<Action> {
    let ends = claims.into_iter().filter(|claim| !job_runs(jobs, claim));
    ends.map(|claim| settle(cluster, claim)).collect()
}

/// What to do about those of `claims` that somebody deleted. Nobody knows how far the node of such a claim is, so that it
/// is handed over to a person; then the claim goes. One whose executor's Job runs waits for its end.
pub fn deleted_unreadable(cluster: &Cluster, jobs: &Jobs, claims: &[UnreadableClaim]) -> Vec<Action> {
    let ends = |claim: &UnreadableClaim| {
        let has_mark = |node: &&Arc<Node>| {
            let mark = node.cordoned_by.as_deref().and_then(CordonMark::read);
            mark == Some(CordonMark::Upgrade { claim: &claim.name, uid: &claim.uid })
        };
        match cluster.nodes().iter().find(has_mark) {
            Some(node) => Action::HandOver { node: node.reference() },
            None => Action::Release {
                claim: claim.name.clone(),
                uid: claim.uid.clone(),
                resource_version: claim.resource_version.clone(),
                finalizers: Some(claim.finalizers.clone()),
            },
        }
    };
    let runs = |claim: &UnreadableClaim| {
        let mut made = jobs.made.iter();
        made.any(|((of, _), state)| *of == claim.uid && *state == JobState::Running)
    };
    claims.iter().filter(|claim| claim.ending && !runs(claim)).map(ends).collect()
}

/// Nodes that carry a cordon of ours whose claim no longer exists.
///
/// The caller makes sure that `claims` is complete. `known` says whether a claim of that name exists that cannot be
/// read. The uncordon itself looks the claim up once more.
pub fn orphans(cluster: &Cluster, claims: &[Claim], known: impl Fn(&str) -> bool) -> Vec<Action> {
    let there: HashSet<(&str, &str)> = claims.iter().map(|claim| (&*claim.name, &*claim.uid)).collect();
    let marked = cluster.nodes().iter().filter_map(|node| Some((node, node.cordoned_by.clone()?)));
    marked
        .filter(|(_, mark)| match CordonMark::read(mark) {
            Some(CordonMark::Upgrade { claim, uid }) => !known(claim) && !there.contains(&(claim, uid)),
            // A drain that a person began is theirs to end, and what nobody can read is nobody's.
            Some(CordonMark::Drain { .. }) | None => false,
        })
        .map(|(node, mark)| Action::ReleaseOrphan { node: node.reference(), mark: mark.to_string() })
        .collect()
}
