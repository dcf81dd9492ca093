//! The second judge of waves: it goes through them as they would be carried out.
//!
//! Here belongs what groups ask for: order, canaries, zones and limits. How waves are made never belongs here. The
//! invariant: every node that a hop moves is in exactly one wave of it, which is of its own group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::refutation::Refutation;
use crate::cluster::{Component, Node};
use crate::disruption::CordonMark;
use crate::plan::hops::{Hop, Plan};
use crate::plan::waves::{Wave, ZONE};
use crate::upgrade::{Member, NodeGroup, Upgrade, Zones};
use crate::version::KubeVersion;

/// How far a group is in a hop.
#[derive(Default)]
struct Begun {
    canaries: usize,
    /// Nodes that are no canaries.
    others: bool,
    /// The zone of its last wave, and whether that had a node that is ready.
    zone: Option<(bool, Arc<str>)>,
}

impl Begun {
    /// The group, of which so many nodes are `there` from the start, goes on with `wave`; returns what is out of turn. `behind` is
    /// whether the wave has to come behind nodes that are not ready, whatever their zone.
    fn goes_on(&mut self, wave: &Wave, group: &NodeGroup, (there, behind): (usize, bool)) -> Vec<String> {
        let mut wrong = Vec::new();
        self.canaries += if wave.canary { wave.nodes.len() } else { 0 };
        let wanted = group.canary.saturating_sub(there);
        let few = !wave.canary && self.canaries < wanted;
        if wave.canary && self.others || few || self.canaries > wanted {
            wrong.push(format!("group {}: its canaries are {wanted} and not first", group.name));
        }
        self.others |= !wave.canary;
        // Canaries too: while a node of a zone is under way, none of another zone begins.
        let now = wave.zone.clone().map(|zone| (behind, zone));
        if self.zone > now {
            let name = |zone: &Option<(bool, Arc<str>)>| {
                zone.as_ref().map(|(_, zone)| zone.to_string()).unwrap_or_default()
            };
            let (now, before) = (name(&now), name(&self.zone));
            wrong.push(format!("group {}: zone {now:?} comes after zone {before:?}", group.name));
        }
        self.zone = now;
        wrong
    }
}

/// What the nodes run that are not left alone, with the member that each is.
type MemberVersions<'a> = BTreeMap<&'a str, (&'a Member<'a>, &'a KubeVersion)>;

/// How many nodes of each group are `such`.
fn counted(members: &[Member<'_>], such: impl Fn(&Node) -> bool) -> BTreeMap<usize, usize> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    members.iter().filter(|of| such(of.node)).for_each(|of| *counts.entry(of.group).or_default() += 1);
    counts
}

/// How many nodes of each group run `version` already, those that are left alone too.
fn there(members: &[Member<'_>], runs: &MemberVersions<'_>, version: &KubeVersion) -> BTreeMap<usize, usize> {
    let mut there: BTreeMap<usize, usize> = BTreeMap::new();
    for member in members {
        let moved = runs.get(&*member.node.name).map(|(_, version)| *version);
        if moved.or(member.node.kubelet.known()).is_some_and(|runs| runs.satisfies(version)) {
            *there.entry(member.group).or_default() += 1;
        }
    }
    there
}

/// The nodes of `runs` that move in `hop`. Only what is not ready may stay behind because it is silent.
fn to_move<'a>(plan: &Plan, hop: &Hop, runs: &MemberVersions<'a>) -> BTreeSet<&'a str> {
    let moves = runs.iter().filter(|(_, (_, version))| hop.kubelets.moves(version, &hop.version));
    moves
        .filter(|(name, (member, _))| !plan.silent.contains(**name) || member.node.ready)
        .map(|(n, _)| *n)
        .collect()
}

/// The names of the groups that come before `group` and have nodes among those that are `late`.
fn unfinished<'a>(
    upgrade: &'a Upgrade,
    group: &'a NodeGroup,
    runs: &MemberVersions<'_>,
    late: &BTreeSet<&str>,
) -> Vec<&'a Arc<str>> {
    let of_group =
        |node: &&str, at: Option<usize>| runs.get(*node).is_some_and(|(member, _)| Some(member.group) == at);
    let before = upgrade.groups_before(group).into_iter().map(|before| &before.name);
    let open = |needed: &&Arc<str>| {
        let at = upgrade.groups.iter().position(|group| group.name == **needed);
        late.iter().any(|node| of_group(node, at))
    };
    before.filter(open).collect()
}

/// What of `waves`, those of each hop of `plan`, does not keep what the groups of `upgrade` ask for.
pub fn check_waves(
    plan: &Plan,
    waves: &[Vec<Wave>],
    upgrade: &Upgrade,
    members: &[Member<'_>],
) -> Vec<Refutation> {
    let mut wrong = BTreeSet::new();
    let mut say = |line: String| wrong.insert(Refutation::Waves(line));
    let mut runs = MemberVersions::new();
    let sizes = counted(members, |_| true);
    let away = counted(members, |node| !node.ready || node.unschedulable);
    for member in members {
        let theirs = CordonMark::is_foreign(member.node);
        if let Some(version) = member.node.kubelet.known().filter(|_| !theirs && !member.node.held) {
            runs.insert(&member.node.name, (member, version));
        }
    }
    for (hop, waves) in plan.hops.iter().zip(waves) {
        let minor = hop.version.minor();
        for step in hop.steps.iter().filter(|step| step.components.contains(&Component::Kubelet)) {
            runs.entry(&step.place).and_modify(|(_, version)| *version = &hop.version);
        }
        let mut late = to_move(plan, hop, &runs);
        let there = there(members, &runs, &hop.version);
        let mut begun: BTreeMap<usize, Begun> = BTreeMap::new();
        for wave in waves {
            let Some(group) = upgrade.groups.get(wave.group) else {
                say(format!("a wave of the hop to {minor} is of no group"));
                continue;
            };
            let limit = group.max_unavailable.of(sizes.get(&wave.group).copied().unwrap_or_default());
            if wave.at_once > limit || wave.at_once == 0 {
                say(format!(
                    "group {}: {} at once, and {limit} may be unavailable",
                    group.name, wave.at_once
                ));
            }
            let before = begun.entry(wave.group).or_default();
            let is_away = |name: &Arc<str>| runs.get(&**name).is_some_and(|(member, _)| !member.node.ready);
            let full = away.get(&wave.group).is_some_and(|away| *away >= limit);
            let behind = full && !wave.nodes.iter().all(is_away);
            let there = there.get(&wave.group).copied().unwrap_or_default();
            for line in before.goes_on(wave, group, (there, behind)) {
                say(line);
            }
            for needed in unfinished(upgrade, group, &runs, &late) {
                say(format!(
                    "group {} begins before group {needed}, on which it depends, is done",
                    group.name
                ));
            }
            for node in &wave.nodes {
                let Some((member, _)) = runs.get(&**node).filter(|_| late.remove(&**node)) else {
                    say(format!(
                        "{node} is in a wave of the hop to {minor} and does not move, or moves twice"
                    ));
                    continue;
                };
                if member.group != wave.group {
                    say(format!("{node} is in a wave of group {}, which is not its own", group.name));
                }
                let zone = member.node.labels.get(ZONE).map_or("", String::as_str);
                if group.zones == Zones::OneAtATime && wave.zone.as_deref() != Some(zone) {
                    say(format!("{node} is in a wave of another zone than {zone:?}"));
                }
            }
        }
        for node in late {
            say(format!("{node} is in no wave of the hop to {minor}"));
        }
        for (_, version) in runs.values_mut().filter(|(_, version)| hop.kubelets.moves(version, &hop.version))
        {
            *version = &hop.version;
        }
    }
    wrong.into_iter().collect()
}
