//! The second judge of waves: it goes through them as they would be carried out.
//!
//! Here belongs what groups ask for: order, canaries, zones and limits. Never here: how waves are made. The invariant:
//! every node that a hop moves is in exactly one wave of it, which is of its own group.

use std::collections::{BTreeMap, BTreeSet};

use super::refutation::Refutation;
use crate::cluster::Component;
use crate::plan::hops::Plan;
use crate::plan::waves::{Wave, ZONE};
use crate::upgrade::{Member, Upgrade, Zones};
use crate::version::KubeVersion;

/// What of `waves`, those of each hop of `plan`, does not keep what the groups of `upgrade` ask for.
pub fn check_waves(
    plan: &Plan,
    waves: &[Vec<Wave>],
    upgrade: &Upgrade,
    members: &[Member<'_>],
) -> Vec<Refutation> {
    let mut wrong = BTreeSet::new();
    let mut say = |line: String| wrong.insert(Refutation::Waves(line));
    let mut runs: BTreeMap<&str, (&Member<'_>, &KubeVersion)> = BTreeMap::new();
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for member in members {
        *sizes.entry(member.group).or_default() += 1;
        let theirs = member.node.unschedulable && member.node.cordoned_by.is_none();
        if let Some(version) = member.node.kubelet.known().filter(|_| !theirs && !member.node.held) {
            runs.insert(&member.node.name, (member, version));
        }
    }
    for (hop, waves) in plan.hops.iter().zip(waves) {
        let minor = hop.version.minor();
        for step in hop.steps.iter().filter(|step| step.components.contains(&Component::Kubelet)) {
            runs.entry(&step.place).and_modify(|(_, version)| *version = &hop.version);
        }
        let mut late: BTreeSet<&str> =
            runs.iter().filter(|(_, (_, v))| hop.kubelets.moves(v, &hop.version)).map(|(n, _)| *n).collect();
        let mut begun: Vec<usize> = Vec::new();
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
            if wave.canary && (begun.contains(&wave.group) || wave.nodes.len() > group.canary) {
                say(format!("group {}: its canaries are {} and not first", group.name, group.canary));
            }
            for needed in &group.depends_on {
                let at = upgrade.groups.iter().position(|group| group.name == *needed);
                let open = |node: &&str| runs.get(*node).is_some_and(|(member, _)| Some(member.group) == at);
                if late.iter().any(open) {
                    say(format!(
                        "group {} begins before group {needed}, on which it depends, is done",
                        group.name
                    ));
                }
            }
            begun.push(wave.group);
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
                let zoned = group.zones == Zones::OneAtATime && !wave.canary;
                if zoned && wave.zone.as_deref() != Some(zone) {
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
