//! What is checked when a pod leaves because of us.

use super::{Node, Pod, Watcher, selects};

impl Watcher {
    /// 2, 3, 4, 8, 13: a pod leaves by an eviction, from a node that we hold, and no budget breaks.
    pub(super) fn evicts(&mut self, key: &str, pod: &Pod, uid: &str) {
        let times = self.evicted.entry(uid.to_owned()).or_default();
        *times += 1;
        if pod.of_daemon_set {
            self.fault(3, format!("evicts {key}, which a DaemonSet brings back"));
        }
        let node = self.nodes.get(&pod.node).cloned();
        let held = node.as_ref().filter(|node| node.cordoned).and_then(Node::marked_by);
        let claim =
            held.and_then(|(name, uid)| self.claims.get(name).filter(|claim| claim.uid == uid)).cloned();
        let lately =
            node.as_ref().and_then(|node| node.others).is_some_and(|at| !self.knows_node(&pod.node, at));
        let upgrade = claim.as_ref().and_then(|claim| self.upgrades.get(&claim.upgrade)).cloned();
        let of_both = claim.as_ref().zip(upgrade.as_ref());
        let forced = !pod.evicted && of_both.is_some_and(|(claim, upgrade)| upgrade.forces(claim));
        if !pod.evicted && !forced {
            self.fault(3, format!("deletes {key}"));
        }
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        if !forced && upgrade.as_ref().is_some_and(|upgrade| upgrade.exempts(namespace, &pod.labels)) {
            self.fault(3, format!("evicts {key}, which a rule takes out of the drain"));
        }
        // No deadline ends what stays by a rule, as it ends the wait for what is to complete.
        if forced && upgrade.as_ref().is_some_and(|upgrade| upgrade.skips(namespace, &pod.labels)) {
            self.fault(3, format!("deletes {key}, which a rule leaves alone"));
        }
        if pod.bare && upgrade.as_ref().is_some_and(|upgrade| upgrade.drain["barePods"] != "Evict") {
            self.fault(3, format!("evicts {key}, which nothing would make again"));
        }
        if pod.empty_dir && upgrade.as_ref().is_some_and(|upgrade| upgrade.drain["emptyDir"] == "Refuse") {
            self.fault(3, format!("evicts {key}, whose data would be lost"));
        }
        if of_both.is_some_and(|(claim, upgrade)| upgrade.only_cordons(claim)) {
            self.fault(3, format!("evicts {key}, and only the patch of {} changes", pod.node));
        }
        match claim {
            // A moment ago somebody uncordoned it, or deleted the claim.
            None if lately || node.is_none() || self.late.is_some() => {}
            None => self.fault(3, format!("evicts {key} from {}, which we do not hold", pod.node)),
            Some(claim) => {
                self.is_wanted(&claim, "evicts a pod of");
                self.controllers_are_back(&claim, "evicts a pod of");
                if node.is_some_and(|node| node.uid != claim.node_uid) {
                    self.fault(8, format!("evicts {key} from {}, which is another node", pod.node));
                }
            }
        }
        if pod.healthy && !forced {
            self.keeps_budgets(key, pod);
        }
    }

    fn keeps_budgets(&mut self, key: &str, pod: &Pod) {
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let near = |key: &str| key.split_once('/').is_some_and(|(of, _)| of == namespace);
        let mut broken = Vec::new();
        for (name, budget) in self.budgets.iter().filter(|(name, budget)| near(name) && budget.known) {
            if !selects(&budget.labels, &pod.labels) {
                continue;
            }
            let left = self.pods.iter().filter(|(key, pod)| {
                near(key) && selects(&budget.labels, &pod.labels) && pod.healthy && !pod.leaving
            });
            let left = left.count() as i64;
            if left < budget.needs {
                broken.push(format!("evicts {key}: {name} needs {} and has {left} left", budget.needs));
            }
        }
        for line in broken {
            self.fault(4, line);
        }
    }
}
