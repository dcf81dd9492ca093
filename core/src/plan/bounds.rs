//! What sets the least time of a hop.
//!
//! Here belong lower bounds and the words for them; about how long something takes is reckoned in
//! [`super::hop_duration`]. The invariants: a bound is never above the time that an ideal upgrade takes with these
//! durations, whose pods are all healthy and whose replacements find a place at once; and no estimate is below a bound.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::SignedDuration;

use super::hop_duration::HopWork;
use super::hops::Step;
use super::length::times;
use super::order::Stage;
use super::pods_to_leave::Room;
use super::waves::Wave;
use crate::disruption::preflight::duration_text;
use crate::text::harmless;
use crate::upgrade::Unit;
use crate::version::Minor;

/// A time that a hop takes at least, and what sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopBound {
    /// Which hop it is of, by the minor that the hop leads to.
    pub hop: Minor,
    /// The stage of the hop. Stages follow each other, so their bounds add up; the bounds of one stage do not.
    pub stage: Stage,
    /// What sets it: `budget shop/cart`, `group workers`, `kube-apiservers`.
    pub subject: String,
    /// Why, in words, without the time: `budget shop/cart lets one of 40 pods go at a time`.
    pub what: String,
    /// No way through that stage is faster than this.
    pub least: SignedDuration,
}

impl HopBound {
    fn new(hop: Minor, stage: Stage, subject: &str, what: &str, least: SignedDuration) -> Self {
        // Names may come from a file that anybody wrote.
        Self { hop, stage, subject: harmless(subject), what: harmless(what), least }
    }

    /// The longest first; what is equal, in a fixed order.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let key = |bound: &Self| (Reverse(bound.least), bound.hop, bound.stage);
        key(self).cmp(&key(other)).then_with(|| self.what.cmp(&other.what))
    }
}

impl fmt::Display for HopBound {
    /// `group workers moves 2 of 400 nodes at a time: 13 h 20 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, duration_text(self.least))
    }
}

impl HopWork<'_> {
    /// What sets the least time of the hop; `moved` are the nodes that earlier hops move.
    pub(super) fn bounds(&self, moved: &BTreeSet<&Arc<str>>) -> Vec<HopBound> {
        let mut all: Vec<HopBound> = [Stage::Apiservers, Stage::Controllers]
            .into_iter()
            .filter_map(|stage| self.steps_of(stage))
            .collect();
        self.groups_bounds(&mut all);
        all.extend(self.budgets_bounds(moved));
        all
    }

    fn bound(&self, stage: Stage, subject: &str, what: &str, least: SignedDuration) -> HopBound {
        HopBound::new(self.hop.version.minor(), stage, subject, what, least)
    }

    /// The steps that begin in `stage` go one after the other.
    fn steps_of(&self, stage: Stage) -> Option<HopBound> {
        let steps: Vec<&Step> = self.hop.steps.iter().filter(|step| step.stage() == stage).collect();
        let least = steps.iter().map(|step| self.durations.step(step).least());
        let least = least.fold(SignedDuration::ZERO, SignedDuration::saturating_add);
        let what = match (stage, self.unit) {
            (Stage::Apiservers, Unit::Node) => "control-plane node",
            (Stage::Apiservers, Unit::Component) => "kube-apiserver",
            _ => "controller",
        };
        let line = match steps.len() {
            0 => return None,
            1 => format!("1 {what}"),
            several => format!("{several} {what}s, one at a time"),
        };
        Some(self.bound(stage, &format!("{what}s"), &line, least))
    }

    /// What the groups' numbers of nodes set, what their dependencies set, and that control-plane nodes go one at a time.
    fn groups_bounds(&self, all: &mut Vec<HopBound>) {
        let node = self.durations.node.least();
        let control_plane = self.control_plane();
        // The longest way to the end of each group.
        let mut ways: BTreeMap<usize, (SignedDuration, Vec<usize>)> = BTreeMap::new();
        let mut covered = SignedDuration::ZERO;
        for (group, waves) in self.groups() {
            let rounds = waves.iter().map(|wave| wave.nodes.len().div_ceil(wave.at_once.max(1))).sum();
            let own = times(node, rounds);
            let name = self.group_name(group);
            all.push(self.bound(Stage::Kubelets, &format!("group {name}"), &group_line(name, &waves), own));
            if waves.iter().flat_map(|wave| &wave.nodes).any(|node| control_plane.contains(node)) {
                covered = covered.max(own);
            }
            let needed = self.needed(group, &ways);
            let (time, mut way) =
                needed.iter().filter_map(|before| ways.get(before)).max().cloned().unwrap_or_default();
            way.push(group);
            ways.insert(group, (time.saturating_add(own), way));
        }
        let together = times(node, control_plane.len());
        if control_plane.len() > 1 && together > covered {
            let line = format!("{} control-plane nodes go one at a time", control_plane.len());
            all.push(self.bound(Stage::Kubelets, "control-plane nodes", &line, together));
        }
        if let Some((time, way)) = ways.into_values().max().filter(|(_, way)| way.len() > 1) {
            let names: Vec<&str> = way.iter().map(|group| self.group_name(*group)).collect();
            let line = format!("groups {} go one after the other", names.join(", "));
            all.push(self.bound(Stage::Kubelets, &format!("groups {}", names.join(", ")), &line, time));
        }
    }

    /// What the budgets set. Before the last of a budget's pods leaves, the pods of every round but the last were
    /// replaced; and the node that it leaves still has its executor before it.
    ///
    /// Pods of nodes that an earlier hop moves may have found a place on a node that stays: where there is one, they do
    /// not count again.
    fn budgets_bounds(&self, moved: &BTreeSet<&Arc<str>>) -> Vec<HopBound> {
        let own: BTreeSet<&Arc<str>> = self.nodes().collect();
        let moves_all = self.cluster.nodes().iter().all(|node| own.contains(&node.name));
        let counted = own.into_iter().filter(|name| moves_all || !moved.contains(*name));
        let bound = |(room, pods): (&Room, usize)| {
            let rounds = pods.div_ceil(room.at_once);
            let before =
                times(self.durations.replacement.max(SignedDuration::ZERO), rounds.saturating_sub(1));
            let (namespace, name) = &room.name;
            let subject = format!("budget {namespace}/{name}");
            let line = format!("{subject} lets {} of {pods} pods go at a time", number(room.at_once));
            let least = before.saturating_add(self.durations.node.least());
            // One round is no longer than the executor of one node.
            (rounds > 1).then(|| self.bound(Stage::Kubelets, &subject, &line, least))
        };
        self.leaving.guarding(counted).into_iter().filter_map(bound).collect()
    }
}

/// How the group of that name goes through its `waves`.
fn group_line(name: &str, waves: &[&Wave]) -> String {
    let nodes: usize = waves.iter().map(|wave| wave.nodes.len()).sum();
    let at_once = waves.iter().map(|wave| wave.at_once).max().unwrap_or(1).max(1);
    match waves.len() {
        1 if nodes == 1 => format!("group {name} moves 1 node"),
        1 if at_once >= nodes => format!("group {name} moves {nodes} nodes at once"),
        1 => format!("group {name} moves {} of {nodes} nodes at a time", number(at_once)),
        several => {
            format!("group {name} moves {nodes} nodes in {several} waves, {} at a time", number(at_once))
        }
    }
}

fn number(count: usize) -> String {
    if count == 1 { "one".to_owned() } else { count.to_string() }
}
