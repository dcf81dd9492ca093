//! 7 and 12: a node is parked only when its time is over, or when the cluster shows that no waiting empties it; it is given
//! back, and is not tried again before its time.
//!
//! What keeps a node is established from its pods and their budgets as they are, never from what the operator says of it.

use std::time::Duration;

use super::model::{Budget, Upgrade};
use super::{Claim, Pod, Watcher, selects};

/// Nobody gives a drain up sooner, whatever keeps it.
const STALLS: Duration = Duration::from_secs(30);
/// However short a drain may take, and however soon what blocked it is gone, nobody tries again sooner.
const LEAST: Duration = Duration::from_secs(10);
/// However long a node has been parked before, it is tried again after that, or after the time of a drain.
const MOST: Duration = Duration::from_hours(6);
/// So many times a node is tried again as soon as what blocked it is gone.
const SOON: i64 = 3;
/// The kind of budgets.
const BUDGETS: &str = "poddisruptionbudgets.policy";
/// Times are stored in whole seconds.
const ROUNDED: Duration = Duration::from_secs(2);

impl Upgrade {
    /// How long a drain may take.
    fn drain_time(&self) -> Duration {
        Duration::from_secs(self.drain["timeoutSeconds"].as_u64().unwrap_or(1800))
    }

    /// How long a node is left alone whose drain did not end the `attempt`th time: each time twice as long.
    fn back_off(&self, attempt: i64) -> Duration {
        let time = self.drain_time();
        let doubled = 1_u32 << (attempt - 1).clamp(0, 20);
        time.max(LEAST).saturating_mul(doubled).min(MOST.max(time))
    }
}

/// Of which namespace `key` is.
fn namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

impl Watcher {
    /// The budgets that guard the pod `key`.
    fn guards<'a>(&'a self, key: &'a str, pod: &'a Pod) -> impl Iterator<Item = (&'a String, &'a Budget)> {
        let near = move |(name, _): &(&String, &Budget)| namespace(name) == namespace(key);
        self.budgets.iter().filter(near).filter(|(_, budget)| selects(&budget.labels, &pod.labels))
    }

    /// Whether a budget lets none of its pods go, however well all of them are; or did a moment ago.
    fn never_allows(&self, name: &str, budget: &Budget) -> bool {
        let pods = self.pods.iter().filter(|(key, pod)| {
            namespace(key) == namespace(name) && !pod.finished && selects(&budget.labels, &pod.labels)
        });
        let lately = !self.is_old(budget.since) || self.is_blind(BUDGETS, name, budget.since);
        lately || !budget.known || budget.needs >= pods.count() as i64
    }

    /// Whether the pod `key` on its node stays until a person changes something, or until its kubelet is back.
    pub(super) fn never_leaves(&self, key: &str, pod: &Pod, upgrade: &Upgrade) -> bool {
        let node = self.nodes.get(&pod.node);
        // It was evicted, and came back.
        let returned = node
            .is_some_and(|node| node.cordoned && pod.made.is_some_and(|made| made >= node.cordoned_since));
        let guards: Vec<_> = self.guards(key, pod).collect();
        let unconfirmed =
            pod.leaving && node.is_some_and(|node| !node.ready || !self.is_old(node.ready_since));
        returned
            || unconfirmed
            || guards.len() > 1
            || guards.iter().any(|(name, budget)| self.never_allows(name, budget))
            || pod.bare && upgrade.drain["barePods"] != "Evict"
            || pod.empty_dir && upgrade.drain["emptyDir"] == "Refuse"
    }

    /// 12: a claim is parked.
    pub(super) fn parks(&mut self, name: &str, before: &Claim, after: &Claim) {
        let Some(upgrade) = self.upgrades.get(&after.upgrade).cloned() else { return };
        // Nobody can tell by clocks that are set, and a server that refuses what is asked is a fault or a person's doing.
        if self.clocks_jump || self.late.is_some() || self.events_may_fail {
            return;
        }
        let since = before.draining_since.filter(|_| before.state == "Draining");
        let time = upgrade.drain_time().saturating_sub(ROUNDED);
        let Some(since) = since else {
            return self.fault(12, format!("parks {name}, whose drain has not begun"));
        };
        let changed = !self.knows_upgrade(&after.upgrade, upgrade.spec_since);
        if since.elapsed() >= time || changed {
            return;
        }
        let Some(node) = self.nodes.get(&after.node) else { return };
        let holds = node.cordoned && node.marked_by() == Some((name, after.uid.as_str()));
        // Somebody else took our cordon off.
        if !holds && node.others.is_some_and(|at| at >= after.made) {
            return;
        }
        let stays = self.pods.iter().find(|(key, pod)| {
            pod.node == after.node && !pod.of_daemon_set && self.never_leaves(key, pod, &upgrade)
        });
        let took = since.elapsed();
        if stays.is_none() {
            self.fault(12, format!("parks {name} after {took:?} of {:?}", upgrade.drain_time()));
        } else if took + ROUNDED < STALLS {
            self.fault(12, format!("parks {name} after {took:?}, before it is seen to stand still"));
        }
    }

    /// 7: a parked node is given back.
    pub(super) fn keeps_parked(&self, name: &str, claim: &Claim) -> bool {
        let node = self.nodes.get(&claim.node).filter(|node| node.uid == claim.node_uid);
        claim.state == "Parked"
            && node.is_some_and(|node| node.marked_by() == Some((name, claim.uid.as_str())))
    }

    /// 7 and 12: a parked claim is taken up again.
    pub(super) fn tries_again(&mut self, name: &str, before: &Claim, after: &Claim) {
        let Some(upgrade) = self.upgrades.get(&after.upgrade).cloned() else { return };
        if self.keeps_parked(name, before) && self.late.is_none() {
            self.fault(7, format!("tries {} again, which was not given back", after.node));
        }
        if after.attempt != before.attempt + 1 {
            self.fault(12, format!("counts try {} of {name} after {}", after.attempt, before.attempt));
        }
        // The time was counted from what the person had said then.
        if self.clocks_jump || upgrade.spec_since > before.state_since {
            return;
        }
        let rests = before.state_since.elapsed() + ROUNDED;
        if rests >= upgrade.back_off(before.attempt) {
            return;
        }
        let soon = before.attempt <= SOON && !before.blocked_by.is_empty();
        let still = before.blocked_by.iter().find(|(key, budget)| self.blocks_still(key, budget, after));
        let line = format!("tries {} again after {:?}", after.node, before.state_since.elapsed());
        if rests < LEAST || !soon {
            self.fault(12, format!("{line}, which is try {}", after.attempt));
        } else if let Some((key, _)) = still {
            self.fault(12, format!("{line}, although {key} still cannot leave"));
        }
    }

    /// Whether the pod `key` is still where it was in the way: for another reason than a budget that now has room.
    fn blocks_still(&self, key: &str, budget: &str, claim: &Claim) -> bool {
        let Some(pod) = self.pods.get(key).filter(|pod| pod.node == claim.node && !pod.leaving) else {
            return false;
        };
        let lately = pod.made.is_some_and(|made| !self.knows_pod(key, made));
        let forces = self.upgrades.get(&claim.upgrade).is_some_and(|of| of.drain["onTimeout"] == "Force");
        if lately || forces && !budget.is_empty() {
            return false;
        }
        budget.is_empty()
            || self.guards(key, pod).any(|(name, of)| {
                // What changed a moment ago may be known as it was before.
                let known = self.is_old(of.since) && !self.is_blind(BUDGETS, name, of.since) && of.known;
                known && pod.healthy && self.never_allows(name, of)
            })
    }
}
