//! 5 and 13: whose turn it is where groups depend on each other, in a group whose zones go one after the other, or that has
//! canaries.

use tokio::time::Instant;

use super::model::{Group, Upgrade};
use super::{Claim, Labels, Node, Watcher, version};

const ZONE: &str = "topology.kubernetes.io/zone";

pub(super) fn zone(labels: &Labels) -> &str {
    labels.get(ZONE).map_or("", String::as_str)
}

/// Is `found` the release `wanted`, or a later patch of its minor?
pub(super) fn is_at(found: &str, wanted: &str) -> bool {
    match (version(found), version(wanted)) {
        (Some(found), Some(wanted)) => found.0 == wanted.0 && found.1 >= wanted.1,
        _ => false,
    }
}

impl Watcher {
    /// A node is taken up: nothing of another zone of its group is under way where zones go one after the other, and the
    /// canaries of its group run the version, and have soaked, unless it is one of them.
    pub(super) fn has_its_turn(&mut self, claim: &Claim, does: &str) {
        let Some(upgrade) = self.upgrades.get(&claim.upgrade).cloned() else { return };
        let Some(node) = self.nodes.get(&claim.node).cloned() else { return };
        // What was sent before another replica led may arrive after it.
        let Some(group) = upgrade.group_of(&node.labels).filter(|_| self.late.is_none()).cloned() else {
            return;
        };
        let members: Vec<(&String, &Node)> = self
            .nodes
            .iter()
            .filter(|(_, one)| upgrade.group_of(&one.labels).is_some_and(|of| of.name == group.name))
            .collect();
        let here = zone(&node.labels);
        let other = members.iter().find(|(name, one)| {
            group.one_zone && zone(&one.labels) != here && self.is_claimed(name, one, claim, &FLIGHT)
        });
        let other =
            other.map(|(name, one)| format!("while {name} of zone {} is under way", zone(&one.labels)));
        let early = self
            .goes_before_canaries(&upgrade, &group, &members, claim)
            .or_else(|| self.goes_before_groups(&upgrade, &group, claim));
        let here = here.to_owned();
        let back = if group.one_zone { self.comes_back(&upgrade, &group, claim, &here) } else { None };
        if let Some(other) = other.or(back) {
            self.fault(5, format!("{does} {} of zone {here} {other}", claim.node));
        }
        if let Some(early) = early {
            self.fault(13, format!("{does} {} {early}", claim.node));
        }
    }

    /// Whether another claim than `mine` of the same upgrade has `node`, in one of these states.
    fn is_claimed(&self, name: &str, node: &Node, mine: &Claim, states: &[&str]) -> bool {
        self.claims.values().any(|of| {
            let on_it = of.of_kubelet() && of.node == name && of.node_uid == node.uid;
            on_it && of.upgrade == mine.upgrade && of.uid != mine.uid && states.contains(&of.state.as_str())
        })
    }

    /// Why `claim` is too early for the groups before `group`: a node of theirs is under way, failed and is cordoned still, has
    /// the version and is not ready, or is still to be begun.
    fn goes_before_groups(&self, upgrade: &Upgrade, group: &Group, claim: &Claim) -> Option<String> {
        let groups = upgrade.groups_before(group);
        let before_it = |node: &Node| {
            let of = upgrade.group_of(&node.labels)?;
            groups.contains(of.name.as_str()).then(|| of.name.clone())
        };
        self.nodes.iter().find_map(|(name, node)| {
            let before = before_it(node)?;
            let failed = node.cordoned && self.is_claimed(name, node, claim, &["Failed"]);
            let out = failed
                || self.is_unwell(name, node, claim)
                || self.is_claimed(name, node, claim, &FLIGHT)
                || self.is_to_begin(upgrade, name, node, claim);
            out.then(|| format!("before {name} of group {before}"))
        })
    }

    /// Whether `node` is known to be as it was at first and to have to move yet: it is ready, nobody holds it, and nothing was
    /// found to keep it from being drained. To a minor on the way not every node moves.
    fn is_to_begin(&self, upgrade: &Upgrade, name: &str, node: &Node, claim: &Claim) -> bool {
        let behind = match (version(&node.kubelet), version(&claim.to)) {
            (Some(runs), Some(wanted)) => runs < wanted && upgrade.version == claim.to,
            _ => false,
        };
        let free = node.ready && !node.cordoned && !node.held && !node.kubelet_is_another;
        let begun = self.claims.values().any(|of| of.of_kubelet() && of.node == name);
        let known =
            self.knows_node(name, node.same_since) && self.knows_upgrade(&upgrade.name, upgrade.spec_since);
        behind && free && known && !begun && !self.may_stay(upgrade, name)
    }

    /// Whether `node` came to the version of `claim` and is known not to be ready, and nobody holds it.
    fn is_unwell(&self, name: &str, node: &Node, claim: &Claim) -> bool {
        let known = self.knows_node(name, node.ready_since) && self.knows_node(name, node.kubelet_since);
        node.kubelet_is_another && is_at(&node.kubelet, &claim.to) && !node.ready && !node.held && known
    }

    /// Why `claim` is too early for the canaries of `group`.
    fn goes_before_canaries(
        &self,
        upgrade: &Upgrade,
        group: &Group,
        members: &[(&String, &Node)],
        claim: &Claim,
    ) -> Option<String> {
        if group.canary == 0 {
            return None;
        }
        let (mut proven, mut taken): (Vec<Instant>, usize) = (Vec::new(), 0);
        for (name, node) in members.iter().filter(|(name, _)| **name != claim.node) {
            let busy = self.is_claimed(name, node, claim, &FLIGHT);
            let failed = self.is_claimed(name, node, claim, &["Failed"]);
            // What changed a moment ago may be known as it was before.
            let there = is_at(&node.kubelet, &claim.to) || !self.knows_node(name, node.kubelet_since);
            let unwell = self.is_unwell(name, node, claim);
            if there && !busy && !failed && !unwell {
                proven.push(node.kubelet_since);
            } else {
                taken += usize::from(busy || failed || unwell);
            }
        }
        if proven.len() < group.canary {
            let full = proven.len() + taken >= group.canary;
            return full.then(|| format!("before the canaries of group {} run {}", group.name, claim.to));
        }
        proven.sort();
        let youngest = proven[group.canary - 1];
        let soaks = youngest.elapsed() < group.soak && upgrade.version == claim.to && !self.clocks_jump;
        soaks.then(|| format!("while the canaries of group {} soak", group.name))
    }
}

/// The states in which a claim has its node.
const FLIGHT: [&str; 3] = ["Claimed", "Draining", "Upgrading"];
