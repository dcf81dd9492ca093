//! The pods of a toy cluster: how they leave, come back and count in their budgets, and what is checked when we send
//! one away.

use jiff::SignedDuration;

use super::super::*;
use super::cluster::Toy;
use crate::cluster::{Phase, Pod, Traits};
use crate::disruption::{Busy, Refused, may_stay};
use crate::drain;
use crate::fixture::at;

impl Toy {
    pub(super) fn is_drained(&self, Drained { node, mark, rules }: &Drained) {
        let stays = |pod: &Pod| match rules {
            None => true,
            Some(rules) if rules.pods.is_empty() => false,
            Some(rules) => may_stay(pod, rules, self.cluster.surroundings(), at(self.seconds)),
        };
        let moves = |pod: &&Pod| {
            let of_set = pod.owner.as_ref().is_some_and(|owner| *owner.kind == *"DaemonSet");
            !of_set && !pod.mirror && !stays(pod)
        };
        let left = self.cluster.pods_on(&node.name).filter(moves).count();
        assert_eq!(left, 0, "{} is upgraded with pods on it", node.name);
        let live = self.cluster.node(&node.name).unwrap();
        assert!(live.unschedulable && live.cordoned_by.as_deref() == Some(mark.as_str()));
    }

    pub(super) fn force(&mut self, forced: &drain::Forced) {
        self.log.push(format!("Delete {}", forced.pod()));
        let until = self.claims.iter().filter_map(|claim| match claim.state {
            // It began within the second of which the whole ones are stored.
            ClaimState::Draining { since, .. } => {
                Some(since + self.upgrade.drain.timeout + SignedDuration::from_secs(1))
            }
            _ => None,
        });
        let forces = self.upgrade.drain.on_timeout == drain::OnTimeout::Force;
        assert!(forces && until.min().is_some_and(|until| until <= at(self.seconds)), "only after its time");
        let read = self.freshness.reread.get(&forced.asked().node);
        let lately = at(self.seconds - 30);
        assert!(read.is_some_and(|read| *read > lately), "its node was read a moment ago");
        if let Some(why) = self.keeps_pods.clone() {
            let (uid, now) = (forced.uid().clone(), at(self.seconds));
            let since = match self.memory.pods.get(&uid) {
                Some(PodMemory::NotDeleted { refused, .. }) if refused.at > at(self.seconds - 20) => {
                    refused.since
                }
                _ => now,
            };
            let refused = Refused { why, since, at: now };
            let until = at(self.seconds + 15);
            self.memory.pods.insert(uid, PodMemory::NotDeleted { until, refused, passes: false });
            return;
        }
        self.memory.pods.insert(forced.uid().clone(), PodMemory::Sent);
        let gone_at = at(self.seconds + self.lingers);
        self.cluster.delete(forced.uid(), gone_at);
        self.deleted += 1;
    }

    pub(super) fn evict(&mut self, permit: &crate::disruption::Permit) {
        self.log.push(format!("Evict {}", permit.pod()));
        let now = at(self.seconds);
        if let Some(refused) = self.memory.refused.get_mut(permit.uid()) {
            (refused.since, refused.at) = (refused.since.min(now), now);
            let later = PodMemory::NotBefore(at(self.seconds + 30), Some(refused.why.clone()));
            self.memory.pods.insert(permit.uid().clone(), later);
            return;
        }
        self.memory.pods.insert(permit.uid().clone(), PodMemory::Sent);
        if let Some(charge) = permit.charge() {
            self.memory.budgets.insert(charge.budget.clone(), Busy::Until(charge.resource_version.clone()));
        }
        if !self.cluster.evict(permit, at(self.seconds + self.lingers)) {
            self.refused += 1;
            return;
        }
        self.evictions += 1;
    }

    /// Terminating pods go, and come back on a node that is free, ready two seconds later.
    pub(super) fn workloads(&mut self) {
        let now = at(self.seconds);
        let gone = self.cluster.pass(now);
        let stays_unready = self.stays_unready;
        self.cluster.change_pods(|pod| {
            if pod.deleting().is_none() && !stays_unready && pod.phase != Phase::Finished {
                pod.ready = true;
                pod.phase = Phase::Running;
                if pod.traits().starting_since.is_some() {
                    pod.special = None;
                }
            }
        });
        for old in gone {
            let mut free: Vec<_> =
                self.cluster.nodes().iter().filter(|n| !n.unschedulable && n.ready).collect();
            // As the scheduler does, where it has a choice.
            if free.iter().any(|node| node.outdated_for.is_none()) {
                free.retain(|node| node.outdated_for.is_none());
            }
            let Some(node) = free.get(self.made % free.len().max(1)) else { continue };
            let node = node.name.clone();
            self.made += 1;
            self.cluster.set_pod(Pod {
                name: format!("{}+{}", old.name, self.made).into(),
                uid: format!("made-{}", self.made).into(),
                node,
                special: Some(Traits { starting_since: Some(now), ..Traits::default() }.into()),
                ready: false,
                phase: Phase::Pending,
                ..old
            });
        }
    }

    pub(super) fn settle_budgets(&mut self) {
        for mut budget in self.cluster.budgets().cloned().collect::<Vec<_>>() {
            let of = |p: &&Pod| p.labels.get("app").is_some_and(|app| **app == *budget.name);
            let pods: Vec<&Pod> = self.cluster.pods().filter(of).collect();
            let healthy = i32::try_from(pods.iter().filter(|p| p.ready).count()).unwrap();
            let expected = i32::try_from(pods.iter().filter(|p| p.deleting().is_none()).count()).unwrap();
            let expected = expected + self.absent;
            let allowed = (healthy - budget.desired_healthy).max(0);
            if (budget.current_healthy, budget.disruptions_allowed) != (healthy, allowed) {
                budget.resource_version = format!("{}.", budget.resource_version).into();
            }
            (budget.current_healthy, budget.expected_pods, budget.disruptions_allowed) =
                (healthy, expected, allowed);
            self.cluster.set_budget(budget);
        }
    }
}
