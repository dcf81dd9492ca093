//! Whether one control-plane node may be taken away: every other one is there, with what runs on it.
//!
//! Both ways in which such a node is taken away ask here: its kubelet alone, after a drain, and its control plane as
//! one step. A node that only a member of etcd runs on is one of them. The invariant: while one of them is away, as far
//! as is seen here, we take no second one away.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::absence::{Away, lost_at};
use super::action::Action;
use super::claim::{Claim, ClaimState, Subject};
use super::kubelet::kubelet_lacks;
use super::leftovers::{is_cordoned_by_others, node_of};
use super::round::{Round, after, gone_at};
use super::static_pods::unready_statics;
use super::waiting::{WaitReason, Waiting};
use crate::cluster::{Cluster, Component, Node};
use crate::plan::Stage;
use crate::upgrade::Lasting;

/// A new kubelet restarts the static pods of its control-plane node some time after it is Ready; until they are back, the
/// node is not upgraded, and nothing else is taken away.
const STATIC_PODS_SETTLE: SignedDuration = SignedDuration::from_secs(30);

/// Until when the static pods of `claim`'s node have time to come back, as far as its kubelet is observed.
pub(super) fn settles(claim: &Claim) -> Option<Timestamp> {
    match claim.state {
        ClaimState::Upgrading { observed: Some(at), .. } => Some(after(at, STATIC_PODS_SETTLE)),
        _ => None,
    }
}

/// Until when the static pods of a control-plane node have time to come back whose kubelet was replaced; `None` where
/// they had it. One that is observed for the first time in this decision counts already.
pub(super) fn static_pods_settle(cluster: &Cluster, mine: &[&Claim], now: Timestamp) -> Option<Timestamp> {
    let is_new = |claim: &Claim| match &claim.state {
        ClaimState::Upgrading { before, observed: None, .. } if claim.is_of_kubelet() => {
            let node = node_of(cluster, claim).filter(|node| cluster.goes_alone(node));
            node.is_some_and(|node| kubelet_lacks(node, claim, before).is_none())
        }
        _ => false,
    };
    let until =
        |claim: &&Claim| settles(claim).or_else(|| is_new(claim).then(|| after(now, STATIC_PODS_SETTLE)));
    mine.iter().filter_map(until).max().filter(|until| now < *until)
}

/// The stage that people are told: none goes back because static pods are away that a later one restarts.
pub(super) fn shown_stage(stage: Stage, mine: &[&Claim], cluster: &Cluster) -> Stage {
    let of_plane = |claim: &Claim| {
        cluster.node(&claim.subject.node).is_some_and(|node| cluster.is_of_control_plane(node))
    };
    let restarts = |claim: &&&Claim| matches!(claim.state, ClaimState::Upgrading { .. }) && of_plane(claim);
    let returning = mine.iter().filter(restarts);
    returning.map(|claim| claim.subject.stage()).max().map_or(stage, |of| of.max(stage))
}

/// Whether the static pods of `node` still have time to come back: `claim` moved its kubelet, which is observed at the
/// target. The first time, this records since when.
pub(super) fn statics_return(round: &mut Round<'_>, claim: &Claim, node: &Node) -> bool {
    let ClaimState::Upgrading { since, before, observed } = &claim.state else { return false };
    if !round.world.cluster.goes_alone(node) {
        return false;
    }
    let line = format!("observed at {}; gives its static pods time to come back", node.kubelet);
    if observed.is_none() {
        let state =
            ClaimState::Upgrading { since: *since, before: before.clone(), observed: Some(round.world.now) };
        round.record(claim, state, line.clone());
    }
    let until = settles(claim).unwrap_or_else(|| after(round.world.now, STATIC_PODS_SETTLE));
    let returns = round.world.now < until;
    if returns {
        round.wake(until);
        let line = format!("{}: {line}", node.name);
        round.working.push(Waiting::new(WaitReason::Settling, line).until(until));
    }
    returns
}

/// Why a control-plane node may not be taken away.
pub(super) struct NotWhole {
    /// In words that follow the node's name.
    pub(super) line: String,
    /// Only a person ends it.
    pub(super) lasting: bool,
    /// From when on only a person ends it, where it may end by itself before.
    pub(super) lasts_from: Option<Timestamp>,
}

impl NotWhole {
    fn passing(line: String) -> Self {
        Self { line, lasting: false, lasts_from: None }
    }

    /// The same; where only a person ends it, the line says how.
    fn todo(self, todo: &str) -> Self {
        let line = if self.lasting { format!("{}: {todo}", self.line) } else { self.line };
        Self { line, ..self }
    }

    /// One that only a person ends `from` then on.
    fn until(round: &Round<'_>, from: Option<Timestamp>, line: String) -> Self {
        let lasting = from.is_some_and(|from| from <= round.world.now);
        Self { line, lasting, lasts_from: from.filter(|_| !lasting) }
    }
}

/// What is taken up in this round: anew, or again after it was parked.
pub(super) fn opened<'a>(round: &'a Round<'_>) -> impl Iterator<Item = &'a Subject> {
    let subject_of =
        move |name: &str| round.mine.iter().find(|claim| *claim.name == *name).map(|c| &c.subject);
    let again = round.actions.iter().filter_map(move |action| match action {
        Action::Record { claim, state: ClaimState::Claimed, .. } => subject_of(claim),
        _ => None,
    });
    round.opened.iter().chain(again)
}

/// Whether a control-plane node is taken up in this round.
fn one_is_opened(round: &Round<'_>) -> bool {
    let cluster = round.world.cluster;
    let of_plane = |node: &str| cluster.node(node).is_some_and(|node| cluster.goes_alone(node));
    opened(round).any(|of| of.component == Component::Kubelet && of_plane(&of.node))
}

/// Whether the control-plane node `name` may be taken away.
pub(super) fn others_are_whole(round: &Round<'_>, name: &str) -> Result<(), NotWhole> {
    let cluster = round.world.cluster;
    let mut others = cluster.nodes().iter().filter(|other| cluster.goes_alone(other) && *other.name != *name);
    let claims_of = |other: &Node| {
        let uid = other.uid.clone();
        round.mine.iter().filter(move |claim| claim.is_of_kubelet() && claim.subject.node_uid == uid)
    };
    let in_flight = |other: &Node| claims_of(other).any(|claim| claim.state.in_flight());
    let failed =
        |other: &Node| claims_of(other).any(|claim| matches!(claim.state, ClaimState::Failed { .. }));
    let away = others.find(|other| !other.ready || other.unschedulable || in_flight(other));
    if let Some(other) = away {
        let theirs = other.ready && is_cordoned_by_others(round.mine, other);
        let is = if theirs { "cordoned" } else { "away" };
        let line = format!("waits: control-plane node {} is {is}, and they go one at a time", other.name);
        let now = Some(round.world.now).filter(|_| theirs || failed(other));
        let lack = NotWhole::until(round, now.or_else(|| gone_at(other)), line);
        return Err(lack.todo(if theirs { "uncordon it" } else { "mend it, or delete its Node" }));
    }
    if one_is_opened(round) {
        return Err(NotWhole::passing("waits: control-plane nodes go one at a time".to_owned()));
    }
    let mut servers = cluster.of(Component::KubeApiserver);
    if let Some(silent) = servers.find(|server| !server.ready && server.node.as_deref() != Some(name)) {
        return Err(NotWhole::passing(format!("waits until kube-apiserver {} answers", silent.name)));
    }
    let mut statics =
        cluster.nodes().iter().filter(|other| cluster.goes_alone(other) && *other.name != *name);
    let Some(pod) = statics.find_map(|other| unready_statics(cluster, other).next()) else { return Ok(()) };
    let line = format!("waits until static pod {} is ready", pod.full_name());
    let pod: Arc<str> = pod.full_name().into();
    let lost = lost_at(round, &Away::StaticPod(Arc::clone(&pod)));
    let lasts = round.has_lasted(&Lasting::StaticPodAway(pod), lost);
    let lack = NotWhole::until(round, Some(if lasts { round.world.now } else { lost }), line);
    Err(lack.todo("mend it, or take it off its node"))
}
