//! One hop of a plan as work: its steps, its groups and waves, and about how long they take.
//!
//! Here belongs which steps follow each other, and which go on at the same time; how long one step takes is given, as a
//! guess or as earlier upgrades took. Windows, soaks and parked nodes never belong here, nor does what others have to move
//! first. The invariant: more nodes of a group, or more pods of a budget at once, never make the time longer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use jiff::SignedDuration;

use super::hops::Hop;
use super::length::{Durations, Length, times};
use super::pods_to_leave::{Leaving, Room};
use super::waves::Wave;
use crate::cluster::Cluster;
use crate::upgrade::{NodeGroup, Unit, Upgrade};

/// One hop, and what is known of its work.
pub(super) struct HopWork<'a> {
    pub(super) hop: &'a Hop,
    pub(super) waves: &'a [Wave],
    pub(super) unit: Unit,
    pub(super) upgrade: &'a Upgrade,
    pub(super) cluster: &'a Cluster,
    pub(super) durations: &'a Durations,
    pub(super) leaving: &'a Leaving,
}

impl<'a> HopWork<'a> {
    /// The nodes that it moves besides those that its steps move.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &'a Arc<str>> {
        self.waves.iter().flat_map(|wave| &wave.nodes)
    }

    /// Its control-plane nodes, of which only one is away at a time, whichever groups they are in.
    pub(super) fn control_plane(&self) -> BTreeSet<&'a Arc<str>> {
        let alone = |node| self.cluster.goes_alone(node);
        self.nodes().filter(|name| self.cluster.node(name).is_some_and(alone)).collect()
    }

    /// The waves of each group, in the order in which groups begin.
    pub(super) fn groups(&self) -> Vec<(usize, Vec<&'a Wave>)> {
        let mut groups: Vec<(usize, Vec<&Wave>)> = Vec::new();
        for wave in self.waves {
            match groups.iter_mut().find(|(group, _)| *group == wave.group) {
                Some((_, waves)) => waves.push(wave),
                None => groups.push((wave.group, vec![wave])),
            }
        }
        groups
    }

    /// The group of that index in [`Upgrade::groups`].
    pub(super) fn group(&self, group: usize) -> Option<&'a NodeGroup> {
        self.upgrade.groups.get(group)
    }

    /// The name of the group of that index.
    pub(super) fn group_name(&self, group: usize) -> &'a str {
        self.group(group).map_or("", |group| &group.name)
    }

    /// Which of `done`, the groups before it in this hop, `group` waits for. One without a node to move is done.
    pub(super) fn needed<T>(&self, group: usize, done: &BTreeMap<usize, T>) -> Vec<usize> {
        let before = self.group(group).map(|group| self.upgrade.groups_before(group)).unwrap_or_default();
        let needs = |name: &str| before.iter().any(|needed| *needed.name == *name);
        done.keys().copied().filter(|before| needs(self.group_name(*before))).collect()
    }

    /// About how long the hop takes.
    pub(super) fn length(&self) -> Length {
        let mut ends: BTreeMap<usize, Length> = BTreeMap::new();
        for (group, waves) in self.groups() {
            let needed = self.needed(group, &ends);
            let begin = needed.iter().filter_map(|before| ends.get(before)).copied();
            let begin = begin.fold(Length::default(), Length::beside);
            ends.insert(group, waves.iter().fold(begin, |end, wave| end.then(self.wave(wave))));
        }
        let nodes = ends.into_values().chain(self.across_groups());
        self.before_nodes().then(nodes.fold(Length::default(), Length::beside))
    }

    /// About how long it takes until nodes may begin, if any do.
    pub(super) fn before_nodes(&self) -> Length {
        let (steps, durations) = (&self.hop.steps, self.durations);
        let all =
            steps.iter().fold(Length::default(), |sum, step| sum.then(Length::of(durations.step(step))));
        let mut components = steps.iter().flat_map(|step| &step.components);
        if !self.waves.is_empty() && components.any(|component| component.is_controller()) {
            return all.then(Length::certain(durations.after_controllers));
        }
        all
    }

    /// About how long the nodes take by what concerns several groups: the control-plane nodes in turn, and each budget.
    pub(super) fn across_groups(&self) -> Vec<Length> {
        if self.waves.is_empty() {
            return Vec::new();
        }
        let durations = self.durations;
        let control_plane = self.control_plane();
        let pauses = times(durations.after_control_plane_node, control_plane.len().saturating_sub(1));
        let control_plane = self.in_turn(control_plane.into_iter(), 1).then(Length::certain(pauses));
        // The last node whose pods a budget held back still has its executor before it.
        let of_budget = |(room, pods): (&Room, usize)| {
            let time = times(durations.replacement, pods.div_ceil(room.at_once));
            Length::certain(time).then(Length::of(durations.node))
        };
        let budgets = self.leaving.guarding(self.nodes()).into_iter().map(of_budget);
        [control_plane].into_iter().chain(budgets).collect()
    }

    /// About how long `wave` takes from when it begins.
    pub(super) fn wave(&self, wave: &Wave) -> Length {
        self.in_turn(wave.nodes.iter(), wave.at_once)
    }

    /// About how long `nodes` take, `at_once` at a time: a node begins when one before it is done.
    fn in_turn<'n>(&self, nodes: impl ExactSizeIterator<Item = &'n Arc<str>>, at_once: usize) -> Length {
        let at_once = at_once.clamp(1, nodes.len().max(1));
        let executor = Length::of(self.durations.node);
        let rounds = u32::try_from(nodes.len().div_ceil(at_once)).unwrap_or(u32::MAX);
        let mut ends: BinaryHeap<Reverse<SignedDuration>> =
            vec![Reverse(SignedDuration::ZERO); at_once].into();
        for node in nodes {
            let drain = times(self.durations.replacement, self.leaving.rounds(node));
            if let Some(mut first) = ends.peek_mut() {
                first.0 = first.0.saturating_add(drain).saturating_add(executor.median);
            }
        }
        let last = ends.into_iter().map(|Reverse(end)| end).max().unwrap_or_default();
        Length { median: last, variance: executor.variance * f64::from(rounds) }
    }
}
