//! What this process has asked for and not yet seen, so that it does not ask twice. Losing it is safe.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::Cluster;
use evenkeel_core::disruption::answer::Answer;
use evenkeel_core::disruption::{BudgetName, Busy, Charge, Permit};
use evenkeel_core::rollout::{Memory, PodMemory};
use jiff::{SignedDuration, Timestamp};

/// How long an accepted eviction may stay without a trace before it is asked for again.
const ACCEPTED: SignedDuration = SignedDuration::from_secs(60);
/// How long a budget may take to show an eviction; the disruption controller is one worker.
const COUNTED: SignedDuration = SignedDuration::from_secs(10);
/// A pod whose eviction is refused for good is asked for again this often.
const REFUSED: SignedDuration = SignedDuration::from_secs(30);

/// Evictions under way and their answers, each with the time at which it is forgotten.
#[derive(Default)]
pub(super) struct Sent {
    pods: BTreeMap<Arc<str>, (PodMemory, Timestamp)>,
    budgets: BTreeMap<BudgetName, (Busy, Timestamp)>,
    throttled_until: Option<Timestamp>,
}

impl Sent {
    /// The eviction of `permit` goes out.
    pub(super) fn sends(&mut self, permit: &Permit) {
        self.pods.insert(permit.uid().clone(), (PodMemory::Sent, Timestamp::MAX));
        if let Some(charge) = permit.charge() {
            self.budgets.insert(charge.budget.clone(), (Busy::Sent, Timestamp::MAX));
        }
    }

    /// It was answered.
    pub(super) fn answered(
        &mut self,
        uid: Arc<str>,
        charge: Option<Charge>,
        answer: &Answer,
        now: Timestamp,
    ) {
        let after = |wait: SignedDuration| now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        let not_before = |wait, why| (PodMemory::NotBefore(after(wait), why), after(wait));
        let pod = match answer {
            Answer::Accepted | Answer::Gone => (PodMemory::Sent, after(ACCEPTED)),
            Answer::Budget { .. } => not_before(SignedDuration::ZERO, None),
            Answer::Throttled { wait } => {
                self.throttled_until = Some(after(*wait));
                not_before(*wait, None)
            }
            Answer::Unclear { wait } => not_before(*wait, None),
            Answer::Refused { why } => not_before(REFUSED, Some(format!("is not evicted: {why}"))),
        };
        self.pods.insert(uid, pod);
        if let Some(Charge { budget, resource_version }) = charge {
            let counted = match answer {
                Answer::Accepted => COUNTED,
                Answer::Budget { within } => *within,
                Answer::Unclear { wait } => *wait,
                Answer::Gone | Answer::Throttled { .. } | Answer::Refused { .. } => SignedDuration::ZERO,
            };
            self.budgets.insert(budget, (Busy::Until(resource_version), after(counted)));
        }
    }

    /// What the next decision takes into account: everything that `cluster` does not show yet.
    pub(super) fn memory(&mut self, cluster: &Cluster, now: Timestamp) -> Memory {
        let waiting: std::collections::BTreeSet<&Arc<str>> =
            cluster.pods.iter().filter(|pod| pod.deleting.is_none()).map(|pod| &pod.uid).collect();
        self.pods
            .retain(|uid, (_, until)| *until > now && (waiting.contains(uid) || *until == Timestamp::MAX));
        self.budgets.retain(|_, (_, until)| *until > now);
        self.throttled_until = self.throttled_until.filter(|until| *until > now);
        Memory {
            pods: self.pods.iter().map(|(uid, (pod, _))| (uid.clone(), pod.clone())).collect(),
            budgets: self.budgets.iter().map(|(name, (busy, _))| (name.clone(), busy.clone())).collect(),
            throttled_until: self.throttled_until,
        }
    }

    /// The next time at which something is forgotten, and the world should be looked at again.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let pods = self.pods.values().map(|(_, until)| *until);
        let budgets = self.budgets.values().map(|(_, until)| *until);
        pods.chain(budgets).filter(|until| *until != Timestamp::MAX).min()
    }
}
