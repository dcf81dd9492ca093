//! When a hop is done, by the clock: closed windows, freezes and soaks included.
//!
//! Here belongs what passes while nothing is worked at; how long the work takes is reckoned in [`super::hop_duration`].
//! Work waits for its calendar, a soak does not. The invariant: without windows, freezes and soaks, a hop is done when
//! [`HopWork::length`] is over.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::hop_duration::HopWork;
use super::length::Length;
use crate::cluster::Component;
use crate::time::after;
use crate::upgrade::{NodeGroup, Soak, Soaked};

/// When the hop of `work` is done that begins at `begin`. `soaks` are those under way. `None` where no end is in sight.
pub(super) fn hop_end(work: &HopWork<'_>, soaks: &[Soak], begin: Timestamp) -> Option<Timestamp> {
    let hop = HopWithSoaks { work, soaks };
    let nodes = hop.worked(begin, work.before_nodes())?;
    if work.waves.is_empty() {
        return Some(nodes);
    }
    let length = work.upgrade.control_plane.soak;
    let nodes = if work.hop.steps.is_empty() {
        hop.under_way(nodes, &Soaked::ControlPlane, length)
    } else {
        after(nodes, length)
    };
    let mut ends: BTreeMap<usize, Timestamp> = BTreeMap::new();
    for (at, waves) in work.groups() {
        let Some(group) = work.group(at) else { continue };
        let mut end = hop.others(nodes, group, &ends);
        if !waves.iter().any(|wave| wave.canary) {
            end = hop.under_way(end, &Soaked::Canaries(group.name.clone()), group.soak);
        }
        let mut of_canaries = false;
        for wave in waves {
            if of_canaries && !wave.canary {
                end = after(end, group.soak);
            }
            of_canaries = wave.canary;
            end = hop.worked(end, work.wave(wave))?;
        }
        ends.insert(at, end);
    }
    let across: Option<Vec<_>> =
        work.across_groups().into_iter().map(|length| hop.worked(nodes, length)).collect();
    ends.into_values().chain(across?).chain([nodes]).max()
}

/// A hop, and the soaks under way.
struct HopWithSoaks<'a> {
    work: &'a HopWork<'a>,
    soaks: &'a [Soak],
}

impl HopWithSoaks<'_> {
    /// When work is done that begins at `begin` and takes `length`.
    fn worked(&self, begin: Timestamp, length: Length) -> Option<Timestamp> {
        if length.median <= SignedDuration::ZERO {
            return Some(begin);
        }
        let durations = self.work.durations;
        let needs = durations.at_most(Component::Kubelet);
        // The last node of a window is begun while it fits, and on average half a node before it does not any more.
        let idle = needs.saturating_sub(durations.node.least() / 2);
        self.work.upgrade.calendar.done(begin, length.median, needs, idle)
    }

    /// `begin`, or when `what` has soaked for `length`, if it is done and soaks.
    fn under_way(&self, begin: Timestamp, what: &Soaked, length: SignedDuration) -> Timestamp {
        let version = &self.work.hop.version;
        let soak = self.soaks.iter().find(|soak| soak.what == *what && soak.version == *version);
        soak.map_or(begin, |soak| begin.max(after(soak.done, length)))
    }

    /// `begin`, or when those groups have soaked that `group` depends on; `ends` says when those are done that move nodes.
    fn others(&self, begin: Timestamp, group: &NodeGroup, ends: &BTreeMap<usize, Timestamp>) -> Timestamp {
        let all = self.work.upgrade.groups.iter().enumerate();
        let before = self.work.upgrade.groups_before(group);
        let needed = all.filter(|(_, other)| before.contains(other));
        needed.fold(begin, |begin, (at, other)| match ends.get(&at) {
            Some(end) => begin.max(after(*end, other.soak)),
            None => self.under_way(begin, &Soaked::Group(other.name.clone()), other.soak),
        })
    }
}
