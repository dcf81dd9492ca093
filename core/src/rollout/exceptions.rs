//! Nodes that may stay behind: what keeps them from being drained was accepted by a person, in the upgrade and for a
//! time.
//!
//! Here belongs which nodes these are. What keeps a node back is seen by [`crate::drain`], as everywhere, and an
//! acceptance allows no write that would be forbidden without it. The invariants: such a node is named; it goes on as
//! soon as it can; and it stands in nobody's way until the time that the person named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::blockers::{SHOWN_BLOCKERS, lasting_blockers};
use super::claim::{Blocker, ClaimState};
use super::group::held_by;
use super::hold_reason::Exception;
use super::round::{Round, Selected};
use crate::cluster::{Cluster, Pod};
use crate::disruption::preflight::{CauseObject, ObjectKind};
use crate::upgrade::AcceptedRisk;

/// The nodes that may stay behind in the hop of `round`, by name. A hop that is not the last needs all of its nodes.
pub(super) fn excepted(round: &Round<'_>) -> BTreeMap<Arc<str>, Exception> {
    if !round.hop.last {
        return BTreeMap::new();
    }
    let concerned = concerned(round);
    let of = |of: &&Selected<'_>| of.member.at_target == Some(false) && held_by(round, of).is_none();
    let those = round.selected.iter().filter(|of| concerned.contains(&of.member.node.name)).filter(of);
    those.filter_map(|of| Some((of.member.node.name.clone(), exception(round, of)?))).collect()
}

/// The nodes of pods that an acceptance is about. Only these are looked at closely.
fn concerned(round: &Round<'_>) -> BTreeSet<Arc<str>> {
    let (cluster, now) = (round.world.cluster, round.world.now);
    let open = round.upgrade.accepted.iter().filter(|risk| now < risk.until);
    let mut nodes: BTreeSet<Arc<str>> =
        open.filter_map(about).flat_map(|object| nodes_of(cluster, &object)).collect();
    // Pods may be gone that blocked a drain.
    let parked = round.mine.iter().filter(|claim| accepted(round, &claim.blockers).is_some());
    nodes.extend(parked.map(|claim| claim.subject.node.clone()));
    nodes
}

/// The nodes that run this pod, or pods that this budget guards.
fn nodes_of(cluster: &Cluster, object: &CauseObject) -> Vec<Arc<str>> {
    let CauseObject { kind, namespace, name } = object;
    match kind {
        ObjectKind::Pod => cluster.pod(namespace, name).map(|pod| pod.node.clone()).into_iter().collect(),
        ObjectKind::Budget => {
            let guarded = |pod: &&Pod| cluster.budgets_of(pod).iter().any(|budget| budget.name == *name);
            cluster.pods_in(namespace).filter(guarded).map(|pod| pod.node.clone()).collect()
        }
        ObjectKind::Node | ObjectKind::Webhook | ObjectKind::Controller(_) => Vec::new(),
    }
}

/// Why the node of `of` may stay behind: all that keeps it from being drained is accepted.
fn exception(round: &Round<'_>, of: &Selected<'_>) -> Option<Exception> {
    let node = of.member.node;
    if !round.will_empty(node) {
        return None;
    }
    let recorded = match of.claim.map(|claim| (&claim.state, &claim.blockers)) {
        None => &[][..],
        // A list that may be cut off does not tell all.
        Some((ClaimState::Parked { .. }, blockers)) if blockers.len() < SHOWN_BLOCKERS => blockers,
        Some((ClaimState::Parked { .. }, _)) => &[],
        Some(_) => return None,
    };
    let lasting = lasting_blockers(round, node);
    accepted(round, if lasting.is_empty() { recorded } else { &lasting })
}

/// The acceptance of all `blockers`, of several the one that ends first; `None` where one of them is not accepted, or there
/// are none.
fn accepted(round: &Round<'_>, blockers: &[Blocker]) -> Option<Exception> {
    acceptance(&round.upgrade.accepted, blockers, round.world.now)
}

/// The acceptance in `risks` of all `blockers` at `now`, of several the one that ends first; `None` where one of them is not
/// accepted, or there are none.
pub(super) fn acceptance(risks: &[AcceptedRisk], blockers: &[Blocker], now: Timestamp) -> Option<Exception> {
    let of = |blocker: &Blocker| {
        let named = |risk: &&AcceptedRisk| now < risk.until && about(risk).is_some_and(|it| is(&it, blocker));
        risks.iter().filter(named).max_by_key(|risk| risk.until)
    };
    let all: Option<Vec<&AcceptedRisk>> = blockers.iter().map(of).collect();
    let first = all?.into_iter().min_by_key(|risk| risk.until)?;
    Some(Exception { until: first.until, reason: first.reason.clone() })
}

/// What the finding of `risk` is about, where that is something that keeps nodes from being drained.
fn about(risk: &AcceptedRisk) -> Option<CauseObject> {
    CauseObject::of_id(&risk.finding)
}

fn is(object: &CauseObject, blocker: &Blocker) -> bool {
    let CauseObject { kind, namespace, name } = object;
    match kind {
        ObjectKind::Pod => blocker.pod.split_once('/') == Some((namespace, name)),
        ObjectKind::Budget => {
            blocker.budget.as_ref().is_some_and(|(of, budget)| (of, budget) == (namespace, name))
        }
        ObjectKind::Node | ObjectKind::Webhook | ObjectKind::Controller(_) => false,
    }
}
