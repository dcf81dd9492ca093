//! Since when components of the control plane are away.
//!
//! Here belongs only the time, and when it is too long; what waits for them is in `components`. The invariant: a component
//! that was back for a moment is away since then.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::claim::Claim;
use super::presence::name_of;
use super::round::{GONE, Round, after};
use crate::cluster::{Cluster, Component};
use crate::plan::Stage;
use crate::upgrade::Place;

/// A time that was not known at the last look is known so soon.
const KNOWN_SOON: SignedDuration = SignedDuration::from_secs(1);

/// A component of the control plane, and its Node, or its own name where no Node is visible.
pub type Away = (Component, Arc<str>);

/// Since when components have been away, by the clock of whoever looks again and again. Losing it is safe: the time begins
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

/// The components of the control plane that are not ready, and those that are `missing`.
pub(super) fn away(cluster: &Cluster, missing: &[Place]) -> Vec<Away> {
    let unready = cluster.instances().iter().filter(|instance| !instance.ready);
    let moved = unready.filter(|of| Stage::of(of.component).is_some_and(|stage| stage < Stage::Kubelets));
    let missing = missing.iter().map(|place| (place.component, place.name.clone()));
    moved.map(|instance| (instance.component, name_of(instance).clone())).chain(missing).collect()
}

/// Says which components a person has to look at, because they have been away for long and no step of ours moves them. Of the
/// others, this asks for another decision when they have.
pub(super) fn tell(round: &mut Round<'_>) {
    let unfinished = |claim: &&Claim| !claim.is_of_kubelet() && claim.state.unfinished();
    if round.control_plane_is_done() || round.mine.iter().any(unfinished) {
        return;
    }
    let now = round.world.now;
    for away in away(round.world.cluster, round.missing) {
        let since = round.world.freshness.absences.0.get(&away).filter(|since| **since <= now);
        let (component, name) = away;
        match since.map(|since| after(*since, GONE)) {
            Some(lost) if lost <= now => {
                // What was seen is forgotten with its Node, or when another one took its place.
                let node = round.world.cluster.node(&name).is_some();
                let instead = if node { "delete its Node" } else { "another one in its place" };
                let minutes = GONE.as_mins();
                round.needs_a_person.push(format!(
                    "{component} on {name} has been away for {minutes} minutes: bring it back, or {instead}"
                ));
            }
            Some(lost) => round.wake(lost),
            None => round.wake(after(now, KNOWN_SOON)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    #[test]
    fn what_was_back_for_a_moment_is_away_since_then() {
        let server: Away = (Component::KubeApiserver, "cp-1".into());
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
