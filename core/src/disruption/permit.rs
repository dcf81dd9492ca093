//! The right to send one eviction, and the budgets it is taken from.
//!
//! Here belongs the eviction handler's order of questions, asked of the budgets as last seen. The invariant: a
//! [`Permit`] exists only when the budget's own status, not stale, allows the eviction after everything of ours that
//! it has not counted yet, and no eviction of ours on that budget is unanswered. It cannot be copied or made
//! elsewhere; the eviction consumes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::arithmetic::{SyncPasses, expected_later, lost};
use super::budget_name::{BudgetName, budget_name};
use super::refusal::{Refusal, StatusLacks};
use crate::cluster::{Budget, Cluster, Demand, Phase, Pod, Quantity, UnhealthyPolicy};

/// The handler refuses when more evicted pods than this are not seen deleted (`MaxDisruptedPodSize`).
const MAX_DISRUPTED: usize = 2000;

/// The right to send one eviction, for one pod of one UID. It cannot be copied; the eviction consumes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    namespace: Arc<str>,
    pod: Arc<str>,
    uid: Arc<str>,
    node: Arc<str>,
    /// The UID of its controller, which brings another, and perhaps to the same node.
    owner: Option<Arc<str>>,
    /// The UIDs of that controller's pods on the node.
    siblings: Vec<Arc<str>>,
    charge: Option<Charge>,
}

/// The budget an eviction takes from, and what that budget looked like when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The one budget that guards the pod.
    pub budget: BudgetName,
    /// Its resourceVersion then.
    pub resource_version: Arc<str>,
    /// The pod's name, which stands in `status.disruptedPods` when the budget counts the eviction.
    pub pod: Arc<str>,
}

impl Permit {
    /// Namespace of the pod.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the pod.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// UID of the pod: the precondition that the eviction must carry.
    pub fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    /// The node it leaves.
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// The budget that the eviction takes from; `None` where no budget has to give anything.
    pub fn charge(&self) -> Option<&Charge> {
        self.charge.as_ref()
    }

    /// The UID of its controller, which brings another, and perhaps to the same node.
    pub fn owner(&self) -> Option<&Arc<str>> {
        self.owner.as_ref()
    }

    /// The UIDs of that controller's pods which were on the node when the permit was given.
    pub fn siblings(&self) -> &[Arc<str>] {
        &self.siblings
    }

    /// The same permit with its siblings filled in from `pods`, the pods on its node.
    pub(crate) fn beside<'p>(mut self, pods: impl Iterator<Item = &'p Pod>) -> Self {
        if let Some(owner) = &self.owner {
            let of_owner = |pod: &&Pod| pod.owner.as_ref().is_some_and(|of| of.uid == *owner);
            self.siblings = pods.filter(of_owner).map(|pod| Arc::clone(&pod.uid)).collect();
        }
        self
    }
}

/// Why less is taken from a budget than its status allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    /// An eviction was sent and is not answered.
    Sent,
    /// An eviction was refused: the budget has to change from this resourceVersion first.
    Until(Arc<str>),
    /// These were accepted, and the budget may not have counted them yet.
    Taken(Vec<Taken>),
}

/// An accepted eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The name of the pod, as `status.disruptedPods` has it.
    pub pod: Arc<str>,
    /// When the budget has counted it.
    pub counted: WhenCounted,
}

/// When a budget has counted an eviction that its status does not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhenCounted {
    /// When the budget is at this resourceVersion or a later one: it is that of the deleted pod, which the server wrote
    /// after it had written the budget.
    From(Box<str>),
    /// When the budget is no longer at this resourceVersion, which was seen before the eviction was sent. Older servers
    /// answer without the pod, so nothing better is known.
    After(Arc<str>),
}

impl Taken {
    /// Whether `budget` has counted it.
    pub fn is_counted_by(&self, budget: &Budget) -> bool {
        budget.disrupted.contains_key(&self.pod)
            || match &self.counted {
                // ResourceVersions are decimal numbers without leading zeros.
                WhenCounted::From(version) => {
                    let order = |version: &str| (version.len(), version.to_owned());
                    order(&budget.resource_version) >= order(version)
                }
                WhenCounted::After(version) => budget.resource_version != *version,
            }
    }
}

/// The budgets of a cluster with what has been taken from them in this round.
pub struct Budgets<'a> {
    cluster: &'a Cluster,
    busy: BTreeMap<BudgetName, Busy>,
    now: Timestamp,
}

/// What a pod has to ask before it may leave.
enum Guard<'a> {
    /// No budget selects it.
    None,
    /// One budget, but the pod may leave without being counted.
    Free,
    /// One budget, which must allow it.
    One(&'a Budget),
}

impl<'a> Budgets<'a> {
    /// The budgets of `cluster` as they are at `now`; `busy` are those of which less may be taken than they allow.
    pub fn new(cluster: &'a Cluster, busy: BTreeMap<BudgetName, Busy>, now: Timestamp) -> Self {
        Self { cluster, busy, now }
    }

    /// The permit to evict `pod` now, or why not.
    ///
    /// Follows the eviction handler's order (`pkg/registry/core/pod/storage/eviction.go`): a pod that is pending or
    /// finished asks no budget; two budgets are an error; an unready pod goes without taking where the budget's policy
    /// says so; else one is taken from `disruptionsAllowed`.
    ///
    /// # Errors
    /// [`Refusal`], with the budget and its numbers.
    pub fn take(&mut self, pod: &Pod) -> Result<Permit, Refusal> {
        let charge = match self.guard(pod)? {
            Guard::None | Guard::Free => None,
            Guard::One(budget) => {
                let key = budget_name(budget);
                self.allows(budget, pod, self.busy.get(&key))?;
                self.busy.insert(key.clone(), Busy::Sent);
                let resource_version = Arc::clone(&budget.resource_version);
                Some(Charge { budget: key, resource_version, pod: Arc::clone(&pod.name) })
            }
        };
        Ok(Permit {
            namespace: Arc::clone(&pod.namespace),
            pod: Arc::clone(&pod.name),
            uid: Arc::clone(&pod.uid),
            node: Arc::clone(&pod.node),
            owner: pod.owner.as_ref().map(|owner| Arc::clone(&owner.uid)),
            siblings: Vec::new(),
            charge,
        })
    }

    /// Whether `pod` may leave now, as far as its budgets' statuses say, without taking anything.
    ///
    /// # Errors
    /// [`Refusal`]: what it waits for, or why it never can.
    pub fn check(&self, pod: &Pod) -> Result<(), Refusal> {
        match self.guard(pod)? {
            Guard::None | Guard::Free => Ok(()),
            Guard::One(budget) => self.allows(budget, pod, None),
        }
    }

    /// The budgets that select `pod`.
    pub fn guarding(&self, pod: &Pod) -> Vec<&'a Budget> {
        self.cluster.budgets_of(pod)
    }

    /// The budget that lets `pod` go without being asked for it, because the pod is not ready.
    pub fn freed_by(&self, pod: &Pod) -> Option<&'a Budget> {
        match self.guard(pod) {
            Ok(Guard::Free) => self.guarding(pod).first().copied(),
            _ => None,
        }
    }

    fn guard(&self, pod: &Pod) -> Result<Guard<'a>, Refusal> {
        if pod.phase != Phase::Running {
            return Ok(Guard::None);
        }
        let budget = match self.guarding(pod).as_slice() {
            [] => return Ok(Guard::None),
            [budget] => *budget,
            several => {
                return Err(Refusal::Overlapping {
                    budgets: several.iter().map(|b| budget_name(b)).collect(),
                });
            }
        };
        let healthy = budget.current_healthy >= budget.desired_healthy && budget.desired_healthy > 0;
        match budget.unhealthy_policy {
            _ if pod.ready => Ok(Guard::One(budget)),
            UnhealthyPolicy::AlwaysAllow => Ok(Guard::Free),
            UnhealthyPolicy::Unrecognised => Err(Refusal::UnknownPolicy { budget: budget_name(budget) }),
            UnhealthyPolicy::IfHealthyBudget if healthy => Ok(Guard::Free),
            UnhealthyPolicy::IfHealthyBudget => Ok(Guard::One(budget)),
        }
    }

    fn sync_failed(&self, budget: &Budget, message: &Arc<str>) -> Refusal {
        let passes = SyncPasses::of(self.cluster, budget, message);
        Refusal::SyncFailed { budget: budget_name(budget), message: Arc::clone(message), passes }
    }

    /// Whether `budget`, which selects `pod`, expects no pod though it will when the disruption controller counts again.
    fn expects_too_few(&self, budget: &Budget, pod: &Pod) -> bool {
        let counts = |pod: &Pod| match budget.demand {
            Demand::Nothing | Demand::Unreadable => false,
            Demand::MinAvailable(Quantity::Count(_)) => true,
            // Pods without a controller are never expected.
            Demand::MinAvailable(_) | Demand::MaxUnavailable(_) => pod.owner.is_some(),
        };
        let others = || self.cluster.pods_in(&budget.namespace).filter(|pod| budget.selects(pod));
        budget.expected_pods <= 0 && (counts(pod) || others().any(|other| other.stays() && counts(other)))
    }

    /// How many more pods `budget` will expect, where that is known: the controllers of those that it selects have yet
    /// to make them. Asked only where it can never allow anything with those that exist.
    fn coming(&self, budget: &Budget) -> i32 {
        if budget.desired_healthy < budget.expected_pods {
            return 0;
        }
        let selected = self.cluster.pods_in(&budget.namespace).filter(|pod| budget.selects(pod));
        let pods: Vec<&Pod> = selected.collect();
        let later = expected_later(budget, &pods, self.cluster.surroundings()).unwrap_or(0);
        let more = later.saturating_sub(budget.expected_pods.into()).max(0);
        i32::try_from(more).unwrap_or(i32::MAX)
    }

    /// How many pods may be away at once when all that `budget` expects or will expect are healthy.
    pub(crate) fn at_best(&self, budget: &Budget) -> usize {
        let expected = budget.expected_pods.saturating_add(self.coming(budget));
        usize::try_from(expected.saturating_sub(budget.desired_healthy)).unwrap_or(0)
    }

    /// Whether the budget's status, as last written, has room for the eviction of `pod`.
    fn allows(&self, budget: &Budget, pod: &Pod, busy: Option<&Busy>) -> Result<(), Refusal> {
        let key = budget_name(budget);
        if budget.observed_generation < budget.generation {
            let computed = budget.observed_generation > 0;
            let lacks = if computed { StatusLacks::Change } else { StatusLacks::All };
            // A controller that cannot compute a budget does not write observedGeneration; the condition says why.
            return Err(match &budget.sync_failed {
                Some(message) => self.sync_failed(budget, message),
                None => Refusal::Stale { budget: key, lacks },
            });
        }
        if budget.disruptions_allowed < 0 || budget.disrupted.len() > MAX_DISRUPTED {
            let (allowed, disrupted) = (budget.disruptions_allowed, budget.disrupted.len());
            return Err(Refusal::Broken { budget: key, allowed, disrupted });
        }
        if budget.disruptions_allowed == 0 {
            return Err(match &budget.sync_failed {
                Some(message) => self.sync_failed(budget, message),
                None if self.expects_too_few(budget, pod) => {
                    Refusal::Stale { budget: key, lacks: StatusLacks::Pods }
                }
                None => Refusal::Exhausted {
                    budget: key,
                    healthy: budget.current_healthy,
                    desired: budget.desired_healthy,
                    expected: budget.expected_pods,
                    coming: self.coming(budget),
                    lost: lost(budget, self.now),
                    unready: (!pod.ready).then(|| pod.traits().waiting.clone().unwrap_or_default()),
                },
            });
        }
        let ours = match busy {
            Some(Busy::Sent) => return Err(Refusal::Queued { budget: key }),
            Some(Busy::Until(version)) if *version == budget.resource_version => {
                return Err(Refusal::Queued { budget: key });
            }
            None | Some(Busy::Until(_)) => 0,
            Some(Busy::Taken(taken)) => taken.iter().filter(|taken| !taken.is_counted_by(budget)).count(),
        };
        if usize::try_from(budget.disruptions_allowed).unwrap_or(0) > ours {
            Ok(())
        } else {
            Err(Refusal::Queued { budget: key })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{at, budget, of, pod};

    fn take(budgets: &[Budget], pod: &Pod) -> Result<Permit, Refusal> {
        Budgets::new(&of(&[], budgets), BTreeMap::new(), at(0)).take(pod)
    }

    #[test]
    fn the_handlers_order() {
        let running = pod("cart", 1, "n-1");
        let unready = Pod { ready: false, ..running.clone() };
        let pending = Pod { phase: Phase::Pending, ..running.clone() };
        let finished = Pod { phase: Phase::Finished, ..running.clone() };
        let with = |change: fn(&mut Budget)| {
            let mut b = budget("cart", 0, 2, 2);
            change(&mut b);
            vec![b]
        };
        let exhausted = with(|_| {});
        assert!(take(&exhausted, &pending).is_ok(), "no budget is asked for a pending pod");
        assert!(take(&exhausted, &finished).is_ok(), "nor for a finished one");
        assert!(take(&exhausted, &running).is_err());
        assert!(take(&exhausted, &unready).is_ok(), "healthy budget, unready pod: takes nothing");
        assert!(take(&with(|b| b.current_healthy = 1), &unready).is_err(), "budget itself is unhealthy");
        assert!(
            take(&with(|b| b.desired_healthy = 0), &unready).is_err(),
            "desired 0 never counts as healthy"
        );
        assert!(take(&with(|b| b.unhealthy_policy = UnhealthyPolicy::AlwaysAllow), &unready).is_ok());
        assert!(matches!(
            take(
                &with(|b| (b.unhealthy_policy, b.disruptions_allowed) = (UnhealthyPolicy::Unrecognised, 1)),
                &unready
            ),
            Err(Refusal::UnknownPolicy { .. })
        ));
        assert!(take(&with(|b| b.selector = None), &running).is_ok(), "a null selector selects nothing");
        assert!(take(&with(|b| b.selector = Some(crate::cluster::Selector::default())), &running).is_err());
        assert!(take(&with(|b| b.disruptions_allowed = 1), &running).is_ok());
        assert!(matches!(take(&with(|b| b.disruptions_allowed = -1), &running), Err(Refusal::Broken { .. })));
        assert!(
            matches!(
                take(&with(|b| (b.disruptions_allowed, b.generation) = (1, 2)), &running),
                Err(Refusal::Stale { .. })
            ),
            "numbers of an older spec permit nothing"
        );
        let failed = |b: &mut Budget| (b.generation, b.sync_failed) = (2, Some("no scale".into()));
        assert!(
            matches!(take(&with(failed), &running), Err(Refusal::SyncFailed { .. })),
            "a controller that fails observes no generation: its condition says more than that"
        );
        let two = [budget("cart", 1, 3, 2), Budget { name: "all".into(), ..budget("cart", 1, 3, 2) }];
        assert!(matches!(take(&two, &running), Err(Refusal::Overlapping { .. })));
        assert!(take(&two, &pending).is_ok(), "which is not reached for a pending pod");
    }

    #[test]
    fn one_eviction_at_a_time_on_a_budget() {
        let budgets = [budget("cart", 2, 4, 2), budget("db", 1, 4, 3)];
        let cluster = of(&[], &budgets);
        let mut round = Budgets::new(&cluster, BTreeMap::new(), at(0));
        let charge = round.take(&pod("cart", 1, "n-1")).unwrap().charge().unwrap().clone();
        assert!(round.take(&pod("cart", 2, "n-1")).unwrap_err().is_pacing());
        assert!(round.take(&pod("db", 1, "n-1")).is_ok(), "other budgets go on");
        let refused: BTreeMap<_, _> = [(charge.budget, Busy::Until(charge.resource_version))].into();
        let mut next = Budgets::new(&cluster, refused.clone(), at(0));
        assert!(next.take(&pod("cart", 2, "n-1")).is_err(), "refused, and it has not changed since");
        let changed = [Budget { resource_version: "2".into(), ..budgets[0].clone() }];
        assert!(Budgets::new(&of(&[], &changed), refused, at(0)).take(&pod("cart", 2, "n-1")).is_ok());
    }

    #[test]
    fn what_a_budget_has_not_counted_is_not_taken_again() {
        let taken = |pod: &str, counted| Taken { pod: pod.into(), counted };
        let after = |version: &str| WhenCounted::After(version.into());
        let at_2 = Budget { resource_version: "2".into(), ..budget("cart", 2, 4, 2) };
        let take = |budget: &Budget, taken: &[Taken]| {
            let busy = [(budget_name(budget), Busy::Taken(taken.to_vec()))].into();
            let cluster = of(&[], std::slice::from_ref(budget));
            Budgets::new(&cluster, busy, at(0)).take(&pod("cart", 9, "n-1")).is_ok()
        };
        assert!(take(&at_2, &[taken("cart-1", after("2"))]), "two allowed, one not counted: one is left");
        assert!(!take(&at_2, &[taken("cart-1", after("2")), taken("cart-2", after("2"))]));
        assert!(
            take(&at_2, &[taken("cart-1", after("1")), taken("cart-2", after("2"))]),
            "the first is counted"
        );
        let later = |version: &str| WhenCounted::From(version.into());
        assert!(
            !take(&at_2, &[taken("cart-1", later("10")), taken("cart-2", later("11"))]),
            "2 is before 10"
        );
        let named = Budget { disrupted: [("cart-1".into(), at(0))].into(), ..at_2.clone() };
        assert!(
            take(&named, &[taken("cart-1", later("10")), taken("cart-2", later("11"))]),
            "it names the first"
        );
        let past = Budget { resource_version: "12".into(), ..at_2 };
        assert!(take(&past, &[taken("cart-1", later("10")), taken("cart-2", later("11"))]));
    }

    proptest! {
        /// A round never gives out more than the status allows, less what is not counted; and one per budget.
        #[test]
        fn never_more_than_allowed(allowed in -1..5_i32, uncounted in 0..5_usize, pods in 0..8_usize) {
            let budgets = [budget("cart", allowed, 9, 4)];
            let taken = (0..uncounted).map(|n| Taken { pod: format!("gone-{n}").into(), counted: WhenCounted::After("1".into()) });
            let busy = [(budget_name(&budgets[0]), Busy::Taken(taken.collect()))].into();
            let cluster = of(&[], &budgets);
            let mut round = Budgets::new(&cluster, busy, at(0));
            let given = (0..pods).filter(|n| round.take(&pod("cart", *n, "n-1")).is_ok()).count();
            let room = usize::try_from(allowed).unwrap_or(0).saturating_sub(uncounted);
            prop_assert_eq!(given, room.min(1).min(pods));
        }
    }
}
