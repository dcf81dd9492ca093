//! 5: the zones of a group that go one after the other: who has gone on to the next one does not come back for a node that
//! could have been done before.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Group, Upgrade};
use super::turns::{is_at, zone};
use super::{Claim, Node, Watcher};

impl Watcher {
    /// Why `claim` of a node of zone `here` is out of order: its zone was left before, when that node could have been done.
    pub(super) fn comes_back(
        &mut self,
        upgrade: &Upgrade,
        group: &Group,
        claim: &Claim,
        here: &str,
    ) -> Option<String> {
        let key = (upgrade.uid.clone(), group.name.clone(), claim.to.clone());
        let last = self.zones.get(&key).map(|(zone, _)| zone.clone());
        let mut left: BTreeSet<String> =
            self.zones.get(&key).map(|(_, left)| left.clone()).unwrap_or_default();
        let back = left.contains(&claim.node_uid);
        if let Some(last) = last.clone().filter(|last| last != here) {
            let members: BTreeMap<&String, &Node> = self
                .nodes
                .iter()
                .filter(|(_, node)| upgrade.group_of(&node.labels).is_some_and(|of| of.name == group.name))
                .collect();
            let could = members.into_iter().filter(|(name, node)| {
                zone(&node.labels) == last && self.could_be_done(name, node, claim, upgrade)
            });
            left.extend(could.map(|(_, node)| node.uid.clone()));
        }
        self.zones.insert(key, (here.to_owned(), left));
        back.then(|| format!("although zone {here} was left for another one when it could have been done"))
    }

    /// Whether nothing keeps `node` from being taken up for the version of `claim`, and nothing did a moment ago.
    fn could_be_done(&self, name: &str, node: &Node, claim: &Claim, upgrade: &Upgrade) -> bool {
        let known = |since| self.knows_node(name, since);
        let free = node.ready && !node.cordoned && !node.held && node.others.is_none_or(known);
        let was_claimed = self.claims.values().any(|of| of.of_kubelet() && of.node == name);
        let stays = self
            .pods
            .iter()
            .any(|(key, pod)| pod.node == name && !pod.of_daemon_set && self.never_leaves(key, pod, upgrade));
        let to_do = !is_at(&node.kubelet, &claim.to) && known(node.kubelet_since);
        free && to_do && known(node.ready_since) && !was_claimed && !stays
    }
}
