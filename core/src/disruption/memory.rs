//! What this process has asked for and not yet seen, so that it does not ask twice. Losing it is safe: the UID and the
//! budget make a second eviction harmless.
//!
//! Here belongs what an answer makes us wait for. The invariant: everything remembered ends by itself, for the watch
//! that should have ended it may have missed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::answer::{Answer, Next};
use super::permit::{BudgetName, Busy, Charge, Counted, Permit, Taken};
use crate::cluster::{Budget, Pod};

/// How long an accepted eviction may stay without a trace before it is asked for again.
const ACCEPTED: SignedDuration = SignedDuration::from_secs(60);
/// How long a budget may take to show an eviction; the disruption controller is one worker.
const COUNTED: SignedDuration = SignedDuration::from_secs(10);

/// What a decision takes into account of what this process has sent.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Pods whose eviction was sent, accepted, or answered so that it is not to be sent again before a time.
    pub pods: BTreeMap<Arc<str>, PodMemory>,
    /// Budgets of which less may be taken than they allow.
    pub budgets: BTreeMap<BudgetName, Busy>,
    /// No eviction at all before this.
    pub throttled_until: Option<Timestamp>,
    /// When the first pod of a controller was evicted that a cordon does not keep away, by node and the controller's
    /// UID.
    pub returning: BTreeMap<(Arc<str>, Arc<str>), Timestamp>,
}

/// What is remembered of a pod's eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodMemory {
    /// It is on its way, or accepted and not seen yet.
    Sent,
    /// Not to be sent again before this, for this reason if there is one to show.
    NotBefore(Timestamp, Option<String>),
}

/// Evictions under way and their answers, each with the time at which it is forgotten.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    pods: BTreeMap<Arc<str>, (PodMemory, Timestamp)>,
    budgets: BTreeMap<BudgetName, OfBudget>,
    throttled_until: Option<Timestamp>,
    returning: BTreeMap<(Arc<str>, Arc<str>), Timestamp>,
}

#[derive(Clone, Debug, Default)]
struct OfBudget {
    sent: bool,
    refused: Option<(Arc<str>, Timestamp)>,
    taken: Vec<(Taken, Timestamp)>,
}

impl Sent {
    /// The eviction of `permit` goes out at `now`.
    pub fn sends(&mut self, permit: &Permit, now: Timestamp) {
        self.pods.insert(permit.uid().clone(), (PodMemory::Sent, Timestamp::MAX));
        if let Some(charge) = permit.charge() {
            self.budgets.entry(charge.budget.clone()).or_default().sent = true;
        }
        if let Some(owner) = permit.returns_by() {
            self.returning.entry((permit.node().clone(), owner.clone())).or_insert(now);
        }
    }

    /// The pod of that UID is deleted past its budget at `now`.
    pub fn deletes(&mut self, uid: Arc<str>, now: Timestamp) {
        let until = now.saturating_add(ACCEPTED).unwrap_or(Timestamp::MAX);
        self.pods.insert(uid, (PodMemory::Sent, until));
    }

    /// It was answered.
    pub fn answered(&mut self, uid: Arc<str>, charge: Option<Charge>, answer: &Answer, now: Timestamp) {
        let after = |wait: SignedDuration| now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        let not_before = |wait, why| (PodMemory::NotBefore(after(wait), why), after(wait));
        let pod = match answer.next() {
            Next::Watch => (PodMemory::Sent, after(ACCEPTED)),
            // The budget is what it waits for.
            Next::Budget(_) => not_before(SignedDuration::ZERO, None),
            Next::Quiet(wait) => {
                self.throttled_until = Some(after(wait));
                not_before(wait, None)
            }
            Next::Again(wait) => not_before(wait, None),
            Next::Show(wait, why) => not_before(wait, Some(why)),
        };
        self.pods.insert(uid, pod);
        let Some(Charge { budget, resource_version, pod }) = charge else { return };
        let of = self.budgets.entry(budget).or_default();
        of.sent = false;
        let taken = |counted| (Taken { pod, counted }, after(COUNTED));
        match (answer, answer.next()) {
            (Answer::Accepted(Some(version)), _) => of.taken.push(taken(Counted::From(version.clone()))),
            (Answer::Accepted(None), _) => of.taken.push(taken(Counted::After(resource_version))),
            (_, Next::Budget(within)) => of.refused = Some((resource_version, after(within))),
            // It may have been carried out.
            (Answer::ServerTrouble { wait } | Answer::NoAnswer { wait }, _) => {
                of.refused = Some((resource_version, after(*wait)));
            }
            _ => {}
        }
    }

    /// What the next decision takes into account: everything that `pods` and `budgets`, as seen now, do not show yet.
    pub fn memory(&mut self, pods: &[Pod], budgets: &[Budget], now: Timestamp) -> Memory {
        let waiting: BTreeSet<&Arc<str>> =
            pods.iter().filter(|pod| pod.deleting.is_none()).map(|pod| &pod.uid).collect();
        self.pods
            .retain(|uid, (_, until)| *until > now && (waiting.contains(uid) || *until == Timestamp::MAX));
        self.throttled_until = self.throttled_until.filter(|until| *until > now);
        self.budgets.retain(|(namespace, name), of| {
            // What was seen once is counted for good: the controller takes the name off again when it has recounted.
            let shown = budgets.iter().find(|b| b.name == *name && b.namespace == *namespace);
            of.taken.retain(|(taken, until)| {
                *until > now && !shown.is_some_and(|budget| taken.is_counted_by(budget))
            });
            of.refused.take_if(|(version, until)| {
                *until <= now || shown.is_some_and(|budget| budget.resource_version != *version)
            });
            of.sent || of.refused.is_some() || !of.taken.is_empty()
        });
        let busy = |of: &OfBudget| match &of.refused {
            _ if of.sent => Busy::Sent,
            Some((version, _)) => Busy::Until(version.clone()),
            None => Busy::Taken(of.taken.iter().map(|(taken, _)| taken.clone()).collect()),
        };
        Memory {
            pods: self.pods.iter().map(|(uid, (pod, _))| (uid.clone(), pod.clone())).collect(),
            budgets: self.budgets.iter().map(|(name, of)| (name.clone(), busy(of))).collect(),
            throttled_until: self.throttled_until,
            returning: self.returning.clone(),
        }
    }

    /// The next time at which something is forgotten, and the world should be looked at again.
    pub fn next(&self) -> Option<Timestamp> {
        let pods = self.pods.values().map(|(_, until)| *until);
        let budgets = self.budgets.values().flat_map(|of| {
            of.refused.iter().map(|(_, until)| *until).chain(of.taken.iter().map(|(_, until)| *until))
        });
        pods.chain(budgets).chain(self.throttled_until).filter(|until| *until != Timestamp::MAX).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disruption::Budgets;
    use crate::fixture::{at, budget, pod};

    fn answered(answer: &Answer) -> (Sent, [Budget; 1], Pod) {
        let (budgets, pod) = ([budget("cart", 1, 3, 2)], pod("cart", 1, "n-1"));
        let permit = Budgets::new(&budgets, BTreeMap::new()).take(&pod).unwrap();
        let mut sent = Sent::default();
        sent.sends(&permit, at(0));
        sent.answered(permit.uid().clone(), permit.charge().cloned(), answer, at(0));
        (sent, budgets, pod)
    }

    #[test]
    fn nothing_is_asked_again_while_it_is_unanswered() {
        let (budgets, pod) = ([budget("cart", 2, 4, 2)], pod("cart", 1, "n-1"));
        let permit = Budgets::new(&budgets, BTreeMap::new()).take(&pod).unwrap();
        let mut sent = Sent::default();
        sent.sends(&permit, at(0));
        let memory = sent.memory(std::slice::from_ref(&pod), &budgets, at(1000));
        assert_eq!(memory.pods.get(&pod.uid), Some(&PodMemory::Sent));
        assert_eq!(memory.budgets.values().collect::<Vec<_>>(), [&Busy::Sent]);
    }

    #[test]
    fn a_refused_budget_is_asked_when_it_changes_and_after_its_time() {
        let within = SignedDuration::from_secs(10);
        let (mut sent, budgets, pod) = answered(&Answer::Budget { within });
        let pods = [pod];
        assert!(!sent.clone().memory(&pods, &budgets, at(9)).budgets.is_empty());
        assert!(
            sent.clone().memory(&pods, &budgets, at(10)).budgets.is_empty(),
            "the watch may have missed it"
        );
        let changed = [Budget { resource_version: "2".into(), ..budgets[0].clone() }];
        assert!(sent.memory(&pods, &changed, at(1)).budgets.is_empty());
    }

    #[test]
    fn an_accepted_eviction_is_counted_once_and_for_good() {
        let (mut sent, budgets, pod) = answered(&Answer::Accepted(Some("100".into())));
        let pods = [pod];
        assert!(!sent.memory(&pods, &budgets, at(1)).budgets.is_empty());
        let named = [Budget { disrupted: [("cart-1".into(), at(0))].into(), ..budgets[0].clone() }];
        assert!(sent.memory(&pods, &named, at(1)).budgets.is_empty());
        assert!(
            sent.memory(&pods, &budgets, at(1)).budgets.is_empty(),
            "an older view does not bring it back"
        );
    }

    #[test]
    fn a_throttled_request_quiets_everything_and_blames_no_budget() {
        let (mut sent, budgets, pod) = answered(&Answer::Throttled { wait: SignedDuration::from_secs(3) });
        let memory = sent.memory(&[pod], &budgets, at(1));
        assert_eq!(memory.throttled_until, Some(at(3)));
        assert!(memory.budgets.is_empty());
    }
}
