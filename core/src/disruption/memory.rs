//! What this process has asked for and not yet seen, so that it does not ask twice. Losing it is safe: the UID and the
//! budget make a second eviction harmless.
//!
//! Here belongs what an answer makes us wait for. The invariant: everything remembered ends by itself, for the watch
//! that should have ended it may have missed it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::answer::{AfterAnswer, Answer};
use super::asked_pod::AskedPod;
use super::budget_name::BudgetName;
use super::permit::{Busy, Charge, Permit, Taken, WhenCounted};
use super::refused_requests::{Refused, RefusedRequests};
use crate::cluster::{Cluster, Pod};

/// How long an accepted eviction may stay without a trace before it is asked for again.
const ACCEPTED: SignedDuration = SignedDuration::from_secs(60);
/// What fails again and again is asked for ever more rarely, but at least this often unless the server wants longer.
const LONGEST: SignedDuration = SignedDuration::from_secs(30);
/// A deletion that is refused is tried again after at least this long.
const DELETED_AGAIN: SignedDuration = SignedDuration::from_secs(2);
/// A pod that came back to its node is asked again after this long, because somebody may have mended the cause.
const RETURNED: SignedDuration = SignedDuration::from_mins(10);
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
    /// The controllers of which pods were evicted from a node, by the node and the controller's UID.
    pub origins: BTreeMap<(Arc<str>, Arc<str>), Origin>,
    /// The pods whose eviction is refused by what only a person changes, and how long it has been.
    pub refused: BTreeMap<Arc<str>, Refused>,
}

/// Which pods of a controller were on a node when the first of them was evicted: the others came later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// When the first of them was evicted.
    pub since: Timestamp,
    /// UIDs of the pods that may be evicted.
    pub pods: Vec<Arc<str>>,
    /// Some of those pods came after the first eviction.
    pub again: bool,
}

/// What is remembered of a pod's eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodMemory {
    /// It is on its way, or accepted and not seen yet.
    Sent,
    /// Not to be sent again before this, for this reason if there is one to show.
    NotBefore(Timestamp, Option<String>),
    /// The server refuses to delete it past its budgets.
    NotDeleted {
        /// Its deletion is not to be sent again before this.
        until: Timestamp,
        /// Since when, and why.
        refused: Refused,
        /// What refuses it is to come back by itself.
        passes: bool,
    },
}

/// Evictions under way and their answers, each with the time at which it is forgotten.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    pods: BTreeMap<Arc<str>, (PodMemory, Timestamp)>,
    budgets: BTreeMap<BudgetName, OfBudget>,
    throttled_until: Option<Timestamp>,
    /// How often in a row the server was busy.
    throttles: u32,
    /// How often in a row the eviction of a pod failed, by UID.
    failures: BTreeMap<Arc<str>, u32>,
    refused_evictions: RefusedRequests,
    refused_deletions: RefusedRequests,
    /// The node of each pod whose eviction was sent, by the pod's UID: where to look for it.
    nodes: BTreeMap<Arc<str>, Arc<str>>,
    origins: BTreeMap<(Arc<str>, Arc<str>), Origin>,
    /// The time of the last call, by which a clock that was set back is noticed.
    last: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
struct OfBudget {
    sent: bool,
    refused: Option<(Arc<str>, Timestamp)>,
    taken: Vec<(Taken, Timestamp)>,
}

impl Sent {
    /// Records that the eviction of `permit` goes out at `now`.
    pub fn sends(&mut self, permit: &Permit, now: Timestamp) {
        self.follow(now);
        self.pods.insert(permit.uid().clone(), (PodMemory::Sent, Timestamp::MAX));
        self.nodes.insert(permit.uid().clone(), permit.node().clone());
        if let Some(charge) = permit.charge() {
            self.budgets.entry(charge.budget.clone()).or_default().sent = true;
        }
        if let Some(owner) = permit.owner() {
            self.leaves(permit.uid(), permit.node(), owner, permit.siblings(), now);
        }
    }

    /// Records that a pod of `owner` leaves `node`, and which of the controller's pods were beside it.
    fn leaves(
        &mut self,
        uid: &Arc<str>,
        node: &Arc<str>,
        owner: &Arc<str>,
        siblings: &[Arc<str>],
        now: Timestamp,
    ) {
        let origin = self.origins.entry((node.clone(), owner.clone())).or_insert_with(|| Origin {
            since: now,
            pods: siblings.to_vec(),
            again: false,
        });
        if !origin.pods.contains(uid) {
            origin.pods.extend_from_slice(siblings);
            origin.again = true;
        }
    }

    /// Records that the deletion of `asked` past its budgets goes out at `now`.
    pub fn deletes(&mut self, asked: &AskedPod, now: Timestamp) {
        self.follow(now);
        self.pods.insert(asked.uid.clone(), (PodMemory::Sent, Timestamp::MAX));
        // It is not evicted any more.
        self.refused_evictions.taken(&asked.uid);
        self.nodes.insert(asked.uid.clone(), asked.node.clone());
        if let Some(owner) = &asked.owner {
            self.leaves(&asked.uid, &asked.node, owner, &asked.siblings, now);
        }
    }

    /// Records the answer to the deletion of the pod of that UID past its budgets.
    pub fn deleted(&mut self, uid: Arc<str>, answer: &Answer, now: Timestamp) {
        self.follow(now);
        let after = |wait: SignedDuration| now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        let pod = match answer.next() {
            AfterAnswer::Watch => {
                self.refused_deletions.taken(&uid);
                (PodMemory::Sent, after(ACCEPTED))
            }
            // It may have been carried out, or the server has no time for it: as if it were under way, for so long.
            AfterAnswer::Budget(wait) | AfterAnswer::Quiet(wait) | AfterAnswer::Again(wait, _) => {
                (PodMemory::Sent, after(wait))
            }
            AfterAnswer::Show(_, why) => {
                let why = answer.said().unwrap_or(why);
                let refused = self.refused_deletions.refused(&uid, why, now);
                // What has been refused for a moment may be allowed in a moment.
                let until = after(refused.lasted().clamp(DELETED_AGAIN, LONGEST));
                let passes = matches!(answer, Answer::WebhookDown { .. });
                (PodMemory::NotDeleted { until, refused, passes }, until)
            }
        };
        self.pods.insert(uid, pod);
    }

    /// Records the answer to the eviction of the pod of that UID, which was to be taken from `charge`.
    pub fn answered(&mut self, uid: Arc<str>, charge: Option<Charge>, answer: &Answer, now: Timestamp) {
        self.follow(now);
        let after = |wait: SignedDuration| now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        let not_before = |wait, why| (PodMemory::NotBefore(after(wait), why), after(wait));
        let next = answer.next();
        if !matches!(next, AfterAnswer::Quiet(_)) {
            self.throttles = 0;
        }
        if !matches!(next, AfterAnswer::Quiet(_) | AfterAnswer::Again(..)) {
            self.failures.remove(&uid);
            match &next {
                AfterAnswer::Show(_, why) if answer.needs_a_person() => {
                    self.refused_evictions.refused(&uid, why.clone(), now);
                }
                _ => self.refused_evictions.taken(&uid),
            }
        }
        let pod = match next {
            AfterAnswer::Watch => (PodMemory::Sent, after(ACCEPTED)),
            // The watch has not shown this budget yet, so no change of it can end the wait.
            AfterAnswer::Budget(within) if charge.is_none() => not_before(within, None),
            // The budget is what it waits for.
            AfterAnswer::Budget(_) => not_before(SignedDuration::ZERO, None),
            AfterAnswer::Quiet(wait) => {
                // Requests that were under way together are refused together, and count as one.
                if self.throttled_until.is_none_or(|until| until <= now) {
                    self.throttles = self.throttles.saturating_add(1);
                }
                let wait = grown(wait, self.throttles);
                self.throttled_until = self.throttled_until.max(Some(after(wait)));
                not_before(wait, None)
            }
            AfterAnswer::Again(wait, why) => {
                let failures = self.failures.entry(uid.clone()).or_default();
                *failures = failures.saturating_add(1);
                not_before(grown(wait, *failures), why.map(str::to_owned))
            }
            AfterAnswer::Show(wait, why) => not_before(wait, Some(why)),
        };
        self.pods.insert(uid, pod);
        let Some(Charge { budget, resource_version, pod }) = charge else { return };
        let of = self.budgets.entry(budget).or_default();
        of.sent = false;
        let taken = |counted| (Taken { pod, counted }, after(COUNTED));
        match (answer, answer.next()) {
            (Answer::Accepted(Some(version)), _) => of.taken.push(taken(WhenCounted::From(version.clone()))),
            (Answer::Accepted(None), _) => of.taken.push(taken(WhenCounted::After(resource_version))),
            (_, AfterAnswer::Budget(within)) => of.refused = Some((resource_version, after(within))),
            // It may have been carried out.
            (Answer::ServerTrouble { wait } | Answer::NoAnswer { wait }, _) => {
                of.refused = Some((resource_version, after(*wait)));
            }
            _ => {}
        }
    }

    /// What the next decision takes into account: everything that `cluster`, as seen now, does not show yet.
    pub fn memory(&mut self, cluster: &Cluster, now: Timestamp) -> Memory {
        // A node that is schedulable takes pods again: those on it did not come back, they were placed there.
        self.origins.retain(|(node, _), _| cluster.node(node).is_some_and(|node| node.unschedulable));
        self.recall(cluster, now)
    }

    fn recall(&mut self, cluster: &Cluster, now: Timestamp) -> Memory {
        self.follow(now);
        let nodes = &self.nodes;
        let is_waiting = |uid: &Arc<str>| {
            let waits = |pod: &Pod| pod.uid == *uid && pod.deleting().is_none();
            match nodes.get(uid) {
                Some(node) => cluster.pods_on(node).any(waits),
                None => cluster.pods().any(waits),
            }
        };
        self.pods.retain(|uid, (_, until)| *until > now && (*until == Timestamp::MAX || is_waiting(uid)));
        self.failures.retain(|uid, _| is_waiting(uid));
        self.refused_evictions.forget(now, is_waiting);
        self.refused_deletions.forget(now, is_waiting);
        let (pods, failures) = (&self.pods, &self.failures);
        let refused = [&self.refused_evictions, &self.refused_deletions];
        self.nodes.retain(|uid, _| {
            let refused = refused.iter().any(|of| of.contains(uid));
            pods.contains_key(uid) || failures.contains_key(uid) || refused
        });
        self.throttled_until = self.throttled_until.filter(|until| *until > now);
        self.origins.retain(|_, origin| now.duration_since(origin.since) < RETURNED);
        self.budgets.retain(|(namespace, name), of| {
            // What was seen once is counted for good: the controller takes the name off again when it has recounted.
            let shown = cluster.budget(namespace, name);
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
            origins: self.origins.clone(),
            refused: self.refused_evictions.all().clone(),
        }
    }

    /// Follows a clock that was set back: every time moves back as far as the clock did, so no wait becomes longer.
    fn follow(&mut self, now: Timestamp) {
        let back = self.last.replace(now).map_or(SignedDuration::ZERO, |last| last.duration_since(now));
        if back <= SignedDuration::ZERO {
            return;
        }
        let shift = |time: &mut Timestamp| {
            if *time != Timestamp::MAX {
                *time = time.saturating_sub(back).unwrap_or(now);
            }
        };
        for (memory, until) in self.pods.values_mut() {
            shift(until);
            match memory {
                PodMemory::Sent => {}
                PodMemory::NotBefore(time, _) => shift(time),
                PodMemory::NotDeleted { until, refused, .. } => {
                    [until, &mut refused.since, &mut refused.at].into_iter().for_each(shift);
                }
            }
        }
        self.refused_evictions.shift(shift);
        self.refused_deletions.shift(shift);
        for of in self.budgets.values_mut() {
            of.refused.iter_mut().for_each(|(_, until)| shift(until));
            of.taken.iter_mut().for_each(|(_, until)| shift(until));
        }
        self.throttled_until.iter_mut().for_each(shift);
        self.origins.values_mut().for_each(|origin| shift(&mut origin.since));
    }

    /// The next time at which something is forgotten, and the world should be looked at again.
    pub fn next(&self) -> Option<Timestamp> {
        let pods = self.pods.values().map(|(_, until)| *until);
        let budgets = self.budgets.values().flat_map(|of| {
            of.refused.iter().map(|(_, until)| *until).chain(of.taken.iter().map(|(_, until)| *until))
        });
        let refused = self.refused_evictions.ends().chain(self.refused_deletions.ends());
        pods.chain(budgets)
            .chain(refused)
            .chain(self.throttled_until)
            .filter(|until| *until != Timestamp::MAX)
            .min()
    }
}

/// `wait` after the first failure, twice as long after each further one.
fn grown(wait: SignedDuration, failures: u32) -> SignedDuration {
    let doubled = 1_i32.checked_shl(failures.saturating_sub(1).min(16)).unwrap_or(i32::MAX);
    wait.saturating_mul(doubled).min(LONGEST).max(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Budget, Node, Parts};
    use crate::disruption::Budgets;
    use crate::fixture::{at, budget, node, of, pod};

    fn answered(answer: &Answer) -> (Sent, [Budget; 1], Pod) {
        let (budgets, pod) = ([budget("cart", 1, 3, 2)], pod("cart", 1, "n-1"));
        let permit = Budgets::new(&of(&[], &budgets), BTreeMap::new(), at(0)).take(&pod).unwrap();
        let mut sent = Sent::default();
        sent.sends(&permit, at(0));
        sent.answered(permit.uid().clone(), permit.charge().cloned(), answer, at(0));
        (sent, budgets, pod)
    }

    #[test]
    fn nothing_is_asked_again_while_it_is_unanswered() {
        let (budgets, pod) = ([budget("cart", 2, 4, 2)], pod("cart", 1, "n-1"));
        let permit = Budgets::new(&of(&[], &budgets), BTreeMap::new(), at(0)).take(&pod).unwrap();
        let mut sent = Sent::default();
        sent.sends(&permit, at(0));
        let memory = sent.recall(&of(std::slice::from_ref(&pod), &budgets), at(1000));
        assert_eq!(memory.pods.get(&pod.uid), Some(&PodMemory::Sent));
        assert_eq!(memory.budgets.values().collect::<Vec<_>>(), [&Busy::Sent]);
    }

    #[test]
    fn a_refused_budget_is_asked_when_it_changes_and_after_its_time() {
        let within = SignedDuration::from_secs(10);
        let (mut sent, budgets, pod) = answered(&Answer::Budget { within });
        let pods = [pod];
        assert!(!sent.clone().recall(&of(&pods, &budgets), at(9)).budgets.is_empty());
        assert!(
            sent.clone().recall(&of(&pods, &budgets), at(10)).budgets.is_empty(),
            "the watch may have missed it"
        );
        let changed = [Budget { resource_version: "2".into(), ..budgets[0].clone() }];
        assert!(sent.recall(&of(&pods, &changed), at(1)).budgets.is_empty());
    }

    #[test]
    fn an_accepted_eviction_is_counted_once_and_for_good() {
        let (mut sent, budgets, pod) = answered(&Answer::Accepted(Some("100".into())));
        let pods = [pod];
        assert!(!sent.recall(&of(&pods, &budgets), at(1)).budgets.is_empty());
        let named = [Budget { disrupted: [("cart-1".into(), at(0))].into(), ..budgets[0].clone() }];
        assert!(sent.recall(&of(&pods, &named), at(1)).budgets.is_empty());
        assert!(
            sent.recall(&of(&pods, &budgets), at(1)).budgets.is_empty(),
            "an older view does not bring it back"
        );
    }

    #[test]
    fn a_budget_that_is_not_known_yet_is_not_asked_again_at_once() {
        let free = pod("web", 1, "n-1");
        let permit = Budgets::new(&Cluster::default(), BTreeMap::new(), at(0)).take(&free).unwrap();
        let mut sent = Sent::default();
        sent.sends(&permit, at(0));
        let answer = Answer::Budget { within: SignedDuration::from_secs(10) };
        sent.answered(permit.uid().clone(), None, &answer, at(0));
        let pods = [free];
        let later = PodMemory::NotBefore(at(10), None);
        assert_eq!(sent.recall(&of(&pods, &[]), at(9)).pods.get(&pods[0].uid), Some(&later));
        assert!(sent.recall(&of(&pods, &[]), at(10)).pods.is_empty());
    }

    #[test]
    fn who_was_on_a_node_at_first_is_remembered_for_a_while() {
        let web = |number| pod("web", number, "n-1");
        let mut sent = Sent::default();
        let mut sends = |number, beside: &[Pod], seconds| {
            let permit =
                Budgets::new(&Cluster::default(), BTreeMap::new(), at(0)).take(&web(number)).unwrap();
            sent.sends(&permit.beside(beside.iter()), at(seconds));
            sent.recall(&of(&[], &[]), at(seconds)).origins.into_values().collect::<Vec<_>>()
        };
        let origin = |numbers: &[usize], again| {
            let pods = numbers.iter().map(|number| web(*number).uid).collect();
            vec![Origin { since: at(0), pods, again }]
        };
        assert_eq!(sends(1, &[web(1), web(2), pod("db", 1, "n-1")], 0), origin(&[1, 2], false));
        assert_eq!(sends(2, &[web(2), web(3)], 1), origin(&[1, 2], false), "3 came later");
        assert_eq!(sends(3, &[web(3), web(4)], 2), origin(&[1, 2, 3, 4], true));
        let left = |seconds| sent.clone().recall(&of(&[], &[]), at(seconds)).origins.len();
        assert_eq!((left(599), left(600)), (1, 0));
        let with = |unschedulable| {
            let node = Node { unschedulable, ..node("n-1", "v1.37.1") };
            let cluster = Parts { nodes: vec![node.into()], ..Parts::default() }.seal();
            sent.clone().memory(&cluster, at(1)).origins.len()
        };
        assert_eq!(
            (with(true), with(false)),
            (1, 0),
            "what is on a node that was opened again was put there"
        );
    }

    #[test]
    fn what_fails_again_and_again_is_asked_ever_more_rarely() {
        let secs = SignedDuration::from_secs;
        for (answer, throttles) in
            [(Answer::Conflict { wait: secs(1) }, false), (Answer::Throttled { wait: secs(1) }, true)]
        {
            let (mut sent, _, pod) = answered(&answer);
            let (pods, uid, mut now) = ([pod.clone()], pod.uid.clone(), 0);
            let mut waits = Vec::new();
            for _ in 0..7 {
                let memory = sent.recall(&of(&pods, &[]), at(now));
                let Some(PodMemory::NotBefore(until, _)) = memory.pods.get(&uid).cloned() else { panic!() };
                assert_eq!(memory.throttled_until, throttles.then_some(until));
                waits.push(until.duration_since(at(now)).as_secs());
                now += waits[waits.len() - 1];
                sent.recall(&of(&pods, &[]), at(now));
                sent.answered(uid.clone(), None, &answer, at(now));
            }
            assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30], "{answer:?}");
            sent.answered(uid.clone(), None, &Answer::Budget { within: secs(1) }, at(now));
            sent.recall(&of(&pods, &[]), at(now + 1));
            sent.answered(uid.clone(), None, &answer, at(now + 40));
            let memory = sent.recall(&of(&pods, &[]), at(now + 40));
            assert_eq!(
                memory.pods.get(&uid),
                Some(&PodMemory::NotBefore(at(now + 41), None)),
                "it begins anew"
            );
        }
    }

    #[test]
    fn requests_that_are_throttled_together_count_as_one() {
        let (mut sent, _, pod) = answered(&Answer::Throttled { wait: SignedDuration::from_secs(1) });
        for name in ["uid-x", "uid-y", "uid-z"] {
            let answer = Answer::Throttled { wait: SignedDuration::from_secs(1) };
            sent.answered(name.into(), None, &answer, at(0));
        }
        assert_eq!(sent.recall(&of(&[pod], &[]), at(0)).throttled_until, Some(at(1)));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_wait_longer() {
        let secs = SignedDuration::from_secs;
        for answer in [
            Answer::Throttled { wait: secs(3) },
            Answer::Budget { within: secs(3) },
            Answer::Conflict { wait: secs(3) },
        ] {
            let (mut sent, budgets, pod) = answered(&answer);
            let (pods, hour) = ([pod], 3600);
            sent.recall(&of(&pods, &budgets), at(1));
            let waits = |memory: Memory| {
                memory.throttled_until.is_some() || !memory.budgets.is_empty() || !memory.pods.is_empty()
            };
            assert!(waits(sent.recall(&of(&pods, &budgets), at(2 - hour))), "{answer:?}");
            assert!(!waits(sent.recall(&of(&pods, &budgets), at(5 - hour))), "{answer:?}: {:?}", sent.next());
        }
    }

    #[test]
    fn a_throttled_request_quiets_everything_and_blames_no_budget() {
        let (mut sent, budgets, pod) = answered(&Answer::Throttled { wait: SignedDuration::from_secs(3) });
        let memory = sent.recall(&of(&[pod], &budgets), at(1));
        assert_eq!(memory.throttled_until, Some(at(3)));
        assert!(memory.budgets.is_empty());
    }
}
