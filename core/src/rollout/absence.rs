//! Since when components of the control plane are away.
//!
//! Here belongs only the time, and when it is too long; what waits for them is in `components` and `control_plane_whole`. The
//! invariant: what was back for a moment is away since then.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::claim::{Claim, ClaimState};
use super::components::waits;
use super::presence::name_of;
use super::round::{GONE, Round, after};
use super::static_pods::unready_statics;
use crate::cluster::{Cluster, Component};
use crate::plan::Stage;
use crate::upgrade::Place;

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

/// Since when parts of the control plane have been away, by the clock of whoever looks again and again. Losing it is safe: the time begins
/// anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Absences(BTreeMap<Away, Timestamp>);

impl Absences {
    /// Takes in what is away at `now`: the [`Status::away`](super::Status::away) of what is carried out.
    pub fn see(&mut self, away: impl IntoIterator<Item = Away>, now: Timestamp) {
        let before = std::mem::take(&mut self.0);
        // A time that lies ahead was noted before somebody set a clock back.
        let since = |of: &Away| before.get(of).copied().filter(|since| *since <= now).unwrap_or(now);
        self.0 = away.into_iter().map(|of| (of.clone(), since(&of))).collect();
    }
}

/// The components and static pods of the control plane that are not ready, and the components that are `missing`.
pub(super) fn away(cluster: &Cluster, missing: &[Place]) -> Vec<Away> {
    let unready = cluster.instances().iter().filter(|instance| !instance.ready);
    let moved = unready.filter(|of| Stage::of(of.component).is_some_and(|stage| stage < Stage::Kubelets));
    let moved = moved.map(|of| Away::Component(of.component, name_of(of).clone()));
    let missing = missing.iter().map(|place| Away::Component(place.component, place.name.clone()));
    let statics = cluster.nodes().iter().filter(|node| node.goes_alone());
    let statics = statics.flat_map(|node| unready_statics(cluster, node));
    let statics = statics.map(|pod| Away::StaticPod(pod.full_name().into()));
    moved.chain(missing).chain(statics).collect()
}

/// From when on `away` does not come back by itself, as far as anybody can say.
pub(super) fn lost_at(round: &Round<'_>, away: &Away) -> Timestamp {
    let now = round.world.now;
    let since = round.world.freshness.absences.0.get(away).filter(|since| **since <= now);
    // At the next look it is known since when.
    since.map_or_else(|| after(now, KNOWN_SOON), |since| after(*since, GONE))
}

/// Says which components a person has to look at, because they have been away for long and no step of ours moves them. Of the
/// others, this asks for another decision when they have.
pub(super) fn tell(round: &mut Round<'_>) {
    // One that is claimed and waits begins nothing.
    let moves = |claim: &&Claim| {
        let waits = claim.state == ClaimState::Claimed && waits(round, claim);
        !claim.is_of_kubelet() && claim.state.unfinished() && !waits
    };
    if round.control_plane_is_done() || round.mine.iter().any(moves) {
        return;
    }
    let now = round.world.now;
    for away in away(round.world.cluster, round.missing) {
        let lost = lost_at(round, &away);
        if now < lost {
            round.wake(lost);
        } else if let Away::Component(component, name) = away {
            // What was seen is forgotten with its Node, or when another one took its place.
            let node = round.world.cluster.node(&name).is_some();
            let instead = if node { "delete its Node" } else { "another one in its place" };
            let minutes = GONE.as_mins();
            round.needs_a_person.push(format!(
                "{component} on {name} has been away for {minutes} minutes: bring it back, or {instead}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    #[test]
    fn what_was_back_for_a_moment_is_away_since_then() {
        let server = Away::Component(Component::KubeApiserver, "cp-1".into());
        let mut absences = Absences::default();
        let mut since = |away: bool, now: i64| {
            absences.see(away.then(|| server.clone()), at(now));
            absences.0.get(&server).copied()
        };
        assert_eq!(since(true, 10), Some(at(10)));
        assert_eq!(since(true, 20), Some(at(10)));
        assert_eq!(since(false, 30), None);
        assert_eq!(since(true, 40), Some(at(40)));
        assert_eq!(since(true, 5), Some(at(5)), "a clock was set back");
    }
}
