//! How long a plan takes: at the least, with what sets that, and about how long.
//!
//! Here belongs the arithmetic of steps, waves and budgets; how long one step takes is given, as a guess or as measured
//! of earlier upgrades. Which pods leave and how many a budget lets go is asked of [`crate::disruption`]. Nothing here
//! knows windows, pauses between waves, nodes that are parked, or what others have to move first. The invariants: a
//! bound is never above the time that an ideal upgrade takes with these durations, whose pods are all healthy and whose
//! replacements find a place at once; and no estimate is below a bound.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::drains::emptied;
use super::hops::{Hop, Plan, Step};
use super::length::{Durations, Estimate, Length, times};
use super::order::Stage;
use super::waves::Wave;
use crate::cluster::{Cluster, Component, Node, Phase};
use crate::disruption::preflight::{Question, bounds, duration_text};
use crate::disruption::{BudgetName, Budgets, Handling, Rules, class, handling};
use crate::text::harmless;
use crate::upgrade::{Unit, Upgrade};
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
    fn order(&self, other: &Self) -> Ordering {
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

/// How long one hop takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopTiming {
    /// Which hop, by the minor that it leads to.
    pub hop: Minor,
    /// At least so long, by all bounds together.
    pub least: SignedDuration,
    /// About so long.
    pub estimate: Estimate,
    /// About how long each of its waves takes from when it begins, in their order.
    pub waves: Vec<Estimate>,
}

/// How long a plan takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanTiming {
    /// What sets the least time, the longest first; all of them.
    pub bounds: Vec<HopBound>,
    /// Each hop, in order.
    pub hops: Vec<HopTiming>,
    /// The whole plan takes at least so long.
    pub least: SignedDuration,
    /// The whole plan takes about so long, of the time in which it may begin something.
    pub estimate: Estimate,
    /// About so long until it is done, closed windows and freezes in between included. `None` where no end is in sight.
    pub with_calendar: Option<SignedDuration>,
}

/// How long `plan` takes from where `cluster` is at `now`, when nothing is in its way. `waves` are those of
/// [`waves()`](super::waves()), and `rules` those of the upgrade's drains.
///
/// The estimate takes every duration for independent of the others and their sums for normal: medians add up, and so do
/// variances, where a duration's standard deviation is (P90 − P50) / 1.2816. The P90 of many nodes in sequence is
/// therefore far below the sum of their P90s. What goes on at the same time takes as long as the longest of it. That a
/// round of many nodes ends with its slowest is not counted, so groups that move many nodes at once take a little longer.
pub fn timing(
    plan: &Plan,
    waves: &[Vec<Wave>],
    upgrade: &Upgrade,
    cluster: &Cluster,
    rules: &Rules,
    durations: &Durations,
    now: Timestamp,
) -> PlanTiming {
    let names = emptied(plan, waves, upgrade, cluster);
    let nodes = names.into_keys().filter_map(|name| cluster.node(name)).collect();
    let drains = Drains::of(&Question { cluster, nodes, rules, timeout: None, now });
    let mut all = PlanTiming {
        bounds: Vec::new(),
        hops: Vec::new(),
        least: SignedDuration::ZERO,
        estimate: Length::default().estimate(),
        with_calendar: None,
    };
    let mut whole = Length::default();
    let mut moved: BTreeSet<&Arc<str>> = BTreeSet::new();
    for (hop, waves) in plan.hops.iter().zip(waves) {
        let work = Work { hop, waves, unit: plan.unit, upgrade, cluster, durations, drains: &drains };
        let bounds = work.bounds(&moved);
        let length = work.length();
        let least = least(&bounds);
        let of_waves = waves.iter().map(|wave| work.wave(wave).estimate()).collect();
        let (hop, estimate) = (hop.version.minor(), length.estimate());
        all.hops.push(HopTiming { hop, least, estimate, waves: of_waves });
        all.least = all.least.saturating_add(least);
        all.bounds.extend(bounds);
        whole = whole.then(length);
        moved.extend(waves.iter().flat_map(|wave| &wave.nodes));
    }
    all.bounds.sort_by(HopBound::order);
    all.estimate = whole.estimate();
    let needs = durations.at_most(Component::Kubelet);
    // The last node of a window is begun while it fits, and on average half a node before it does not any more.
    let idle = needs.saturating_sub(durations.node.least() / 2);
    let done = upgrade.calendar.done(now, all.estimate.p50, needs, idle);
    all.with_calendar = done.map(|done| done.duration_since(now));
    all
}

/// The time that a hop takes by all of its `bounds`: stages follow each other.
fn least(bounds: &[HopBound]) -> SignedDuration {
    let of_stage = |stage| bounds.iter().filter(|bound| bound.stage == stage).map(|bound| bound.least).max();
    Stage::ALL.into_iter().filter_map(of_stage).fold(SignedDuration::ZERO, SignedDuration::saturating_add)
}

/// What has to leave the nodes that move.
struct Drains {
    nodes: BTreeMap<Arc<str>, PodsToLeave>,
    /// The budgets that guard some of it.
    budgets: Vec<Room>,
}

/// What has to leave one node.
#[derive(Default)]
struct PodsToLeave {
    /// Some pod has to.
    any: bool,
    /// How many of each budget's pods have to, by the budget's index in [`Drains::budgets`].
    guarded: BTreeMap<usize, usize>,
}

/// A budget, and how many of its pods may be gone at once when all are healthy: at least one.
struct Room {
    name: BudgetName,
    at_once: usize,
}

impl Drains {
    /// Of all nodes of `question`. A budget that never lets a pod go sets no time: [`super::drain_findings`] tells it.
    fn of(question: &Question<'_>) -> Self {
        let cluster = question.cluster;
        let mut rooms = Vec::new();
        for bound in bounds(question, SignedDuration::ZERO) {
            if let Some(at_once) = usize::try_from(bound.at_once).ok().filter(|at_once| *at_once > 0) {
                rooms.push(Room { name: bound.budget, at_once });
            }
        }
        let index: BTreeMap<(&str, &str), usize> =
            rooms.iter().enumerate().map(|(at, room)| ((&*room.name.0, &*room.name.1), at)).collect();
        let budgets = Budgets::new(cluster, BTreeMap::new(), question.now);
        let mut nodes = BTreeMap::new();
        for node in &question.nodes {
            let mut drain = PodsToLeave::default();
            for pod in cluster.pods_on(&node.name) {
                let class = class(pod, question.rules, cluster.surroundings(), question.now);
                let leaves = handling(pod, class, question.rules) == Handling::Evict;
                if !leaves || pod.phase == Phase::Finished {
                    continue;
                }
                drain.any = true;
                // A pod that is not ready may leave a healthy budget without being counted.
                let free = !pod.ready && budgets.freed_by(pod).is_some();
                if pod.phase == Phase::Running && !free {
                    let guarding = budgets.guarding(pod);
                    let known =
                        guarding.iter().filter_map(|budget| index.get(&(&*budget.namespace, &*budget.name)));
                    known.for_each(|at| *drain.guarded.entry(*at).or_default() += 1);
                }
            }
            nodes.insert(Arc::clone(&node.name), drain);
        }
        Self { nodes, budgets: rooms }
    }

    /// How many times pods have to be replaced, one after the other, until the node of that name is empty.
    fn rounds(&self, node: &Arc<str>) -> usize {
        let Some(drain) = self.nodes.get(node) else { return 0 };
        let of_budget =
            |(at, pods): (&usize, &usize)| self.budgets.get(*at).map(|room| pods.div_ceil(room.at_once));
        drain.guarded.iter().filter_map(of_budget).max().unwrap_or(0).max(usize::from(drain.any))
    }

    /// The budgets with a pod on one of `nodes`, and how many each has there.
    fn guarding<'a>(&self, nodes: impl Iterator<Item = &'a Arc<str>>) -> Vec<(&Room, usize)> {
        let mut pods = vec![0; self.budgets.len()];
        for drain in nodes.filter_map(|node| self.nodes.get(node)) {
            for (at, count) in &drain.guarded {
                if let Some(pods) = pods.get_mut(*at) {
                    *pods += count;
                }
            }
        }
        self.budgets.iter().zip(pods).filter(|(_, pods)| *pods > 0).collect()
    }
}

/// One hop, and what is known of its work.
struct Work<'a> {
    hop: &'a Hop,
    waves: &'a [Wave],
    unit: Unit,
    upgrade: &'a Upgrade,
    cluster: &'a Cluster,
    durations: &'a Durations,
    drains: &'a Drains,
}

impl<'a> Work<'a> {
    fn nodes(&self) -> impl Iterator<Item = &'a Arc<str>> {
        self.waves.iter().flat_map(|wave| &wave.nodes)
    }

    /// Its control-plane nodes, of which only one is away at a time, whichever groups they are in.
    fn control_plane(&self) -> BTreeSet<&'a Arc<str>> {
        self.nodes().filter(|name| self.cluster.node(name).is_some_and(Node::goes_alone)).collect()
    }

    /// The waves of each group, in the order in which groups begin.
    fn groups(&self) -> Vec<(usize, Vec<&'a Wave>)> {
        let mut groups: Vec<(usize, Vec<&Wave>)> = Vec::new();
        for wave in self.waves {
            match groups.iter_mut().find(|(group, _)| *group == wave.group) {
                Some((_, waves)) => waves.push(wave),
                None => groups.push((wave.group, vec![wave])),
            }
        }
        groups
    }

    fn group_name(&self, group: usize) -> &'a str {
        self.upgrade.groups.get(group).map_or("", |group| &group.name)
    }

    /// Which of `done`, the groups before it in this hop, `group` waits for. One without a node to move is done.
    fn needed<T>(&self, group: usize, done: &BTreeMap<usize, T>) -> Vec<usize> {
        let needs = |name: &str| {
            let group = self.upgrade.groups.get(group);
            group.is_some_and(|group| group.depends_on.iter().any(|needed| **needed == *name))
        };
        done.keys().copied().filter(|before| needs(self.group_name(*before))).collect()
    }

    /// About how long the hop takes.
    fn length(&self) -> Length {
        let durations = self.durations;
        let steps = &self.hop.steps;
        let mut all =
            steps.iter().fold(Length::default(), |sum, step| sum.then(Length::of(durations.step(step))));
        if self.waves.is_empty() {
            return all;
        }
        if steps.iter().flat_map(|step| &step.components).any(|component| component.is_controller()) {
            all = all.then(Length::certain(durations.after_controllers));
        }
        let mut ends: BTreeMap<usize, Length> = BTreeMap::new();
        for (group, waves) in self.groups() {
            let needed = self.needed(group, &ends);
            let begin = needed.iter().filter_map(|before| ends.get(before)).copied();
            let begin = begin.fold(Length::default(), Length::beside);
            ends.insert(group, waves.iter().fold(begin, |end, wave| end.then(self.wave(wave))));
        }
        let control_plane = self.control_plane();
        let pauses = times(durations.after_control_plane_node, control_plane.len().saturating_sub(1));
        let control_plane = self.in_turn(control_plane.into_iter(), 1).then(Length::certain(pauses));
        // The last node whose pods a budget held back still has its executor before it.
        let budgets = self.drains.guarding(self.nodes()).into_iter().map(|(room, pods)| {
            let time = times(durations.replacement, pods.div_ceil(room.at_once));
            Length::certain(time).then(Length::of(durations.node))
        });
        let lanes = ends.into_values().chain([control_plane]).chain(budgets);
        all.then(lanes.fold(Length::default(), Length::beside))
    }

    fn wave(&self, wave: &Wave) -> Length {
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
            let drain = times(self.durations.replacement, self.drains.rounds(node));
            if let Some(mut first) = ends.peek_mut() {
                first.0 = first.0.saturating_add(drain).saturating_add(executor.median);
            }
        }
        let last = ends.into_iter().map(|Reverse(end)| end).max().unwrap_or_default();
        Length { median: last, variance: executor.variance * f64::from(rounds) }
    }

    /// What sets the least time of the hop; `moved` are the nodes that earlier hops move.
    fn bounds(&self, moved: &BTreeSet<&Arc<str>>) -> Vec<HopBound> {
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
        self.drains.guarding(counted).into_iter().filter_map(bound).collect()
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

#[cfg(test)]
mod tests;
