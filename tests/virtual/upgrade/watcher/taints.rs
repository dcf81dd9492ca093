//! What is checked when we ask the scheduler to avoid a node, or no longer.

use super::{Node, Watcher};

impl Watcher {
    /// 6, 11, 13: other taints stay; ours is on nodes that are to move, and nobody gets it after a person said stop.
    pub(super) fn taints(&mut self, name: &str, before: &Node, after: &Node) {
        if before.taints != after.taints {
            self.fault(6, format!("changes taints of {name} that are not ours"));
        }
        let Some(uid) = after.outdated.as_ref().filter(|_| before.outdated != after.outdated) else { return };
        let Some(upgrade) = self.upgrades.values().find(|upgrade| upgrade.uid == *uid) else {
            return self.fault(6, format!("avoids {name} for an upgrade that is not there"));
        };
        let (there, suspended) = (after.kubelet == upgrade.version, upgrade.suspended_since);
        let known = suspended.is_some_and(|since| self.knows_upgrade(&upgrade.name, since));
        if there && self.knows_node(name, after.kubelet_since) {
            self.fault(11, format!("avoids {name}, which is at {}", after.kubelet));
        }
        if known {
            self.fault(13, format!("avoids {name} of an upgrade that is suspended"));
        }
    }

    /// Why `node`, which carries our taint, should not any more.
    pub(super) fn outlives(&self, node: &Node) -> Option<String> {
        let uid = node.outdated.as_ref()?;
        let Some(upgrade) = self.upgrades.values().find(|upgrade| upgrade.uid == *uid) else {
            return Some("and its upgrade is gone".to_owned());
        };
        if node.kubelet == upgrade.version && !node.cordoned {
            return Some(format!("and runs {}", node.kubelet));
        }
        let done = upgrade.status.get("completionTime").is_some_and(|at| !at.is_null());
        done.then(|| "and its upgrade is over".to_owned())
    }
}
