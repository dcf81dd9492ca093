//! Which parts of the control plane are away, and for how long.
//!
//! Here belongs when an absence is too long; who waits for such a part is in `components` and `control_plane_whole`.
//! The invariant: nobody is called because of a part that a step of ours moves.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::claim::{Claim, ClaimState};
use super::components::waits;
use super::presence::name_of;
use super::round::{GONE, Round, after};
use super::static_pods::unready_statics;
use crate::cluster::{Cluster, Component};
use crate::plan::Stage;
use crate::upgrade::{ComponentPlace, Lasting};

/// A time that was not known at the last look is known so soon.
const KNOWN_SOON: SignedDuration = SignedDuration::from_secs(1);

/// What of the control plane is away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Away {
    /// A component, and its Node, or its own name where no Node is visible.
    Component(Component, Arc<str>),
    /// A static pod of a control-plane node that is not ready, as `namespace/name`.
    StaticPod(Arc<str>),
}

impl Away {
    /// That it has been away for long.
    fn lasting(self) -> Lasting {
        match self {
            Self::Component(component, name) => Lasting::ComponentAway(component, name),
            Self::StaticPod(name) => Lasting::StaticPodAway(name),
        }
    }
}

/// The components and static pods of the control plane that are not ready, and the components that are `missing`.
pub(super) fn away(cluster: &Cluster, missing: &[ComponentPlace]) -> Vec<Away> {
    let unready = cluster.instances().iter().filter(|instance| !instance.ready);
    let moved = unready.filter(|of| Stage::of(of.component).is_some_and(|stage| stage < Stage::Kubelets));
    let moved = moved.map(|of| Away::Component(of.component, name_of(of).clone()));
    let missing = missing.iter().map(|place| Away::Component(place.component, place.name.clone()));
    let statics = cluster.nodes().iter().filter(|node| cluster.goes_alone(node));
    let statics = statics.flat_map(|node| unready_statics(cluster, node));
    let statics = statics.map(|pod| Away::StaticPod(pod.full_name().into()));
    moved.chain(missing).chain(statics).collect()
}

/// From when on `away` does not come back by itself, as far as anybody can say.
pub(super) fn lost_at(round: &Round<'_>, away: &Away) -> Timestamp {
    let now = round.world.now;
    // At the next look it is known since when.
    round
        .world
        .freshness
        .absences
        .of(away, now)
        .map_or_else(|| after(now, KNOWN_SOON), |since| after(since, GONE))
}

/// Remembers which static pods have been away for long, of which whoever waits for one tells.
pub(super) fn remember_static_pods(round: &mut Round<'_>) {
    for away in away(round.world.cluster, &[]).into_iter().filter(|away| matches!(away, Away::StaticPod(_))) {
        let lost = lost_at(round, &away);
        round.lasts(away.lasting(), lost);
    }
}

/// Says which components a person has to look at, because they have been away for long and no step of ours moves them. Of the
/// others, this asks for another decision when they have.
pub(super) fn tell(round: &mut Round<'_>) {
    // One that is claimed and waits begins nothing, and neither does one whose own kube-apiserver does not answer.
    let moves = |claim: &&Claim| {
        let waits = claim.state == ClaimState::Claimed && (waits(round, claim) || is_unheard(round, claim));
        !claim.is_of_kubelet() && claim.state.unfinished() && !waits
    };
    if round.control_plane_is_done() || round.mine.iter().any(moves) {
        return;
    }
    for away in away(round.world.cluster, round.missing) {
        let lost = lost_at(round, &away);
        if round.lasts(away.clone().lasting(), lost) {
            let line = line_of(round, &away);
            round.needs_a_person.extend(line);
        } else {
            round.wake(lost);
        }
    }
}

/// Whether the kube-apiserver that `claim` moves does not answer.
fn is_unheard(round: &Round<'_>, claim: &Claim) -> bool {
    let mut servers = round.world.cluster.of(Component::KubeApiserver);
    let moved = claim.subject.moves().contains(&Component::KubeApiserver);
    moved && servers.any(|server| *name_of(server) == claim.subject.node && !server.ready)
}

/// What a person is told of `away` that has been away for long. Whoever waits for a static pod tells of it.
fn line_of(round: &Round<'_>, away: &Away) -> Option<String> {
    let Away::Component(component, name) = away else { return None };
    // What was seen is forgotten with its Node, when another one took its place, and with the ClusterUpgrade.
    let instead = match round.world.cluster.node(name) {
        Some(_) if *component == Component::KubeApiserver => "delete its Node",
        Some(_) => "delete this ClusterUpgrade and apply it anew if it is to stay away",
        None => "another one in its place",
    };
    let minutes = GONE.as_mins();
    Some(format!("{component} on {name} has been away for {minutes} minutes: bring it back, or {instead}"))
}
