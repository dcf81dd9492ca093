//! Which pods a drain moves, and what a `PodDisruptionBudget` allows.
//!
//! [`class`] says what a drain does with a pod, [`Budgets::take`] says whether it may leave now and hands out the
//! [`Permit`] that its eviction consumes; [`answer`] reads what the eviction handler said. Nothing here sends
//! anything. The invariant: a permit exists only when the budget's own status, as last seen and not stale, allows the
//! eviction and none of ours on that budget is still on its way. The handler decides in the end; a permit only keeps
//! us from asking what it must refuse.

pub mod answer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::cluster::{Budget, Phase, Pod, UnhealthyPolicy};

/// What a drain does with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Evict it.
    Evict,
    /// It is on its way out: wait for it.
    Terminating,
    /// Nothing would bring it back, so it is not evicted; a person must move it.
    Bare,
    /// Leave it: a `DaemonSet`'s pod, a static pod, a finished one, or the executor's own.
    Stay,
}

/// What a drain does with `pod`, by kubectl's filters in their order.
///
/// `executors` is the one namespace whose Jobs' pods are executors; a label alone exempts no pod, or every tenant
/// could exempt its own.
pub fn class(pod: &Pod, executors: &str) -> Class {
    let owner = pod.owner.as_ref();
    let owned_by = |api_version: &str, kind: &str| {
        owner.is_some_and(|o| o.kind.as_ref() == kind && o.api_version.as_ref() == api_version)
    };
    let executor =
        pod.executor_of.is_some() && pod.namespace.as_ref() == executors && owned_by("batch/v1", "Job");
    if pod.mirror || pod.phase == Phase::Finished || owned_by("apps/v1", "DaemonSet") || executor {
        Class::Stay
    } else if pod.deleting.is_some() {
        Class::Terminating
    } else if owner.is_none() {
        Class::Bare
    } else {
        Class::Evict
    }
}

/// A budget's key.
pub type BudgetName = (Arc<str>, Arc<str>);

/// The right to send one eviction, for one pod of one UID. It cannot be copied; the eviction consumes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    namespace: Arc<str>,
    pod: Arc<str>,
    uid: Arc<str>,
    node: Arc<str>,
    charge: Option<Charge>,
}

/// The budget an eviction takes from, and what that budget looked like when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The budget.
    pub budget: BudgetName,
    /// Its resourceVersion then: until it changes, the budget has not yet counted the eviction.
    pub resource_version: Arc<str>,
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
    pub fn node(&self) -> &str {
        &self.node
    }

    /// What it takes from, if a budget guards the pod.
    pub fn charge(&self) -> Option<&Charge> {
        self.charge.as_ref()
    }
}

/// Why a pod may not be evicted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The budget allows none.
    Exhausted {
        /// The budget.
        budget: BudgetName,
        /// `currentHealthy`.
        healthy: i32,
        /// `desiredHealthy`.
        desired: i32,
        /// `expectedPods`.
        expected: i32,
    },
    /// The disruption controller could not compute the budget.
    SyncFailed {
        /// The budget.
        budget: BudgetName,
        /// What it said.
        message: Arc<str>,
    },
    /// The budget's status is older than its spec.
    Stale {
        /// The budget.
        budget: BudgetName,
    },
    /// Several budgets select the pod, which the eviction API answers with an error.
    Overlapping {
        /// The budgets.
        budgets: Vec<BudgetName>,
    },
    /// The budget's `unhealthyPodEvictionPolicy` is not known, and the pod is not ready.
    UnknownPolicy {
        /// The budget.
        budget: BudgetName,
    },
    /// Another eviction on this budget is on its way; this one is next.
    Queued {
        /// The budget.
        budget: BudgetName,
    },
}

impl Refusal {
    /// The budget, where one is to name.
    pub fn budget(&self) -> Option<&BudgetName> {
        match self {
            Self::Exhausted { budget, .. }
            | Self::SyncFailed { budget, .. }
            | Self::Stale { budget }
            | Self::UnknownPolicy { budget }
            | Self::Queued { budget } => Some(budget),
            Self::Overlapping { budgets } => budgets.first(),
        }
    }

    /// Whether it stays until a person changes something; otherwise healthy pods or the disruption controller may end it.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Exhausted { desired, expected, .. } => desired >= expected,
            Self::SyncFailed { .. } | Self::Overlapping { .. } | Self::UnknownPolicy { .. } => true,
            Self::Stale { .. } | Self::Queued { .. } => false,
        }
    }

    /// Whether it is only our own pacing, which resolves itself in moments.
    pub fn is_pacing(&self) -> bool {
        matches!(self, Self::Queued { .. })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |(namespace, name): &BudgetName| format!("{namespace}/{name}");
        match self {
            Self::Exhausted { budget, healthy, desired, expected } if desired >= expected => write!(
                f,
                "PDB {} can never allow an eviction: it needs {desired} healthy of {expected} ({healthy} healthy now)",
                show(budget)
            ),
            Self::Exhausted { budget, healthy, desired, expected } => write!(
                f,
                "PDB {} allows 0 evictions: {healthy} of {expected} healthy, {desired} needed",
                show(budget)
            ),
            Self::SyncFailed { budget, message } => {
                write!(f, "PDB {} failed to sync: {message}", show(budget))
            }
            Self::Stale { budget } => {
                write!(f, "PDB {} was changed and its status is not computed yet", show(budget))
            }
            Self::Overlapping { budgets } => {
                let all: Vec<_> = budgets.iter().map(show).collect();
                write!(f, "more than one PDB selects it ({}), which the eviction API refuses", all.join(", "))
            }
            Self::UnknownPolicy { budget } => {
                write!(f, "PDB {} has an unhealthyPodEvictionPolicy this version does not know", show(budget))
            }
            Self::Queued { budget } => write!(f, "next in the queue of PDB {}", show(budget)),
        }
    }
}

/// The budgets of a cluster with what has been taken from them in this round.
pub struct Budgets<'a> {
    by_namespace: BTreeMap<&'a str, Vec<&'a Budget>>,
    busy: BTreeMap<BudgetName, Busy>,
}

/// Why nothing more is taken from a budget for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    /// An eviction was sent when the budget had this resourceVersion, and is not answered.
    Sent,
    /// An eviction was accepted or refused; the budget has to change from this resourceVersion first.
    Until(Arc<str>),
}

impl<'a> Budgets<'a> {
    /// The budgets, and those that are waited for.
    pub fn new(budgets: &'a [Budget], busy: BTreeMap<BudgetName, Busy>) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<&Budget>> = BTreeMap::new();
        for budget in budgets {
            by_namespace.entry(&budget.namespace).or_default().push(budget);
        }
        Self { by_namespace, busy }
    }

    /// The permit to evict `pod` now, or why not.
    ///
    /// Follows the eviction handler's order (`pkg/registry/core/pod/storage/eviction.go`): a pending pod asks no
    /// budget; two budgets are an error; an unready pod goes without taking where the budget's policy says so; else
    /// one is taken from `disruptionsAllowed`.
    ///
    /// # Errors
    /// [`Refusal`], with the budget and its numbers.
    pub fn take(&mut self, pod: &Pod) -> Result<Permit, Refusal> {
        let permit = |charge| Permit {
            namespace: Arc::clone(&pod.namespace),
            pod: Arc::clone(&pod.name),
            uid: Arc::clone(&pod.uid),
            node: Arc::clone(&pod.node),
            charge,
        };
        if pod.phase == Phase::Pending {
            return Ok(permit(None));
        }
        let budget = match self.guarding(pod).as_slice() {
            [] => return Ok(permit(None)),
            [budget] => *budget,
            several => {
                return Err(Refusal::Overlapping { budgets: several.iter().map(|b| name(b)).collect() });
            }
        };
        if !pod.ready {
            match budget.unhealthy_policy {
                UnhealthyPolicy::AlwaysAllow => return Ok(permit(None)),
                UnhealthyPolicy::Unrecognised => return Err(Refusal::UnknownPolicy { budget: name(budget) }),
                UnhealthyPolicy::IfHealthyBudget
                    if budget.current_healthy >= budget.desired_healthy && budget.desired_healthy > 0 =>
                {
                    return Ok(permit(None));
                }
                UnhealthyPolicy::IfHealthyBudget => {}
            }
        }
        allows(budget)?;
        let key = name(budget);
        let waiting = match self.busy.get(&key) {
            Some(Busy::Sent) => true,
            Some(Busy::Until(version)) => *version == budget.resource_version,
            None => false,
        };
        if waiting {
            return Err(Refusal::Queued { budget: key });
        }
        self.busy.insert(key.clone(), Busy::Sent);
        Ok(permit(Some(Charge { budget: key, resource_version: Arc::clone(&budget.resource_version) })))
    }

    fn guarding(&self, pod: &Pod) -> Vec<&'a Budget> {
        let of_namespace = self.by_namespace.get(pod.namespace.as_ref());
        let selects = |budget: &&Budget| budget.selector.as_ref().is_some_and(|s| s.matches(&pod.labels));
        of_namespace.into_iter().flatten().copied().filter(selects).collect()
    }
}

/// Whether the budget's status, as last written, has room for one eviction.
fn allows(budget: &Budget) -> Result<(), Refusal> {
    if budget.observed_generation < budget.generation {
        return Err(Refusal::Stale { budget: name(budget) });
    }
    if budget.disruptions_allowed > 0 {
        return Ok(());
    }
    Err(match &budget.sync_failed {
        Some(message) => Refusal::SyncFailed { budget: name(budget), message: Arc::clone(message) },
        None => Refusal::Exhausted {
            budget: name(budget),
            healthy: budget.current_healthy,
            desired: budget.desired_healthy,
            expected: budget.expected_pods,
        },
    })
}

fn name(budget: &Budget) -> BudgetName {
    (Arc::clone(&budget.namespace), Arc::clone(&budget.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Owner;
    use crate::fixture::{budget, pod};

    fn take(budgets: &[Budget], pod: &Pod) -> Result<Permit, Refusal> {
        Budgets::new(budgets, BTreeMap::new()).take(pod)
    }

    #[test]
    fn what_a_drain_does_with_a_pod() {
        let owned = |api_version: &str, kind: &str| Pod {
            owner: Some(Owner { api_version: api_version.into(), kind: kind.into(), name: "x".into() }),
            ..pod("a", 1, "n-1")
        };
        let executor = Pod {
            namespace: "executors".into(),
            executor_of: Some("uid".into()),
            ..owned("batch/v1", "Job")
        };
        for (what, pod, class_) in [
            ("replica set", pod("a", 1, "n-1"), Class::Evict),
            ("daemon set", owned("apps/v1", "DaemonSet"), Class::Stay),
            ("someone else's kind of that name", owned("x.io/v1", "DaemonSet"), Class::Evict),
            ("bare", Pod { owner: None, ..pod("a", 1, "n-1") }, Class::Bare),
            (
                "bare but finished",
                Pod { owner: None, phase: Phase::Finished, ..pod("a", 1, "n-1") },
                Class::Stay,
            ),
            ("static", Pod { mirror: true, ..owned("v1", "Node") }, Class::Stay),
            (
                "deleting",
                Pod { deleting: Some(crate::fixture::at(1)), ..pod("a", 1, "n-1") },
                Class::Terminating,
            ),
            ("executor", executor.clone(), Class::Stay),
            ("a tenant that claims to be one", Pod { namespace: "shop".into(), ..executor }, Class::Evict),
        ] {
            assert_eq!(class(&pod, "executors"), class_, "{what}");
        }
    }

    #[test]
    fn the_handlers_order() {
        let running = pod("cart", 1, "n-1");
        let unready = Pod { ready: false, ..running.clone() };
        let pending = Pod { phase: Phase::Pending, ..running.clone() };
        let with = |change: fn(&mut Budget)| {
            let mut b = budget("cart", 0, 2, 2);
            change(&mut b);
            vec![b]
        };
        let exhausted = with(|_| {});
        assert!(take(&exhausted, &pending).is_ok(), "no budget is asked for a pending pod");
        assert!(take(&exhausted, &running).is_err());
        assert!(take(&exhausted, &unready).is_ok(), "healthy budget, unready pod: takes nothing");
        assert!(take(&with(|b| b.current_healthy = 1), &unready).is_err(), "budget itself is unhealthy");
        assert!(
            take(&with(|b| b.desired_healthy = 0), &unready).is_err(),
            "desired 0 never counts as healthy"
        );
        assert!(take(&with(|b| b.unhealthy_policy = UnhealthyPolicy::AlwaysAllow), &unready).is_ok());
        assert!(take(&with(|b| b.selector = None), &running).is_ok(), "a null selector selects nothing");
        assert!(take(&with(|b| b.disruptions_allowed = 1), &running).is_ok());
        assert!(
            matches!(
                take(&with(|b| (b.disruptions_allowed, b.generation) = (1, 2)), &running),
                Err(Refusal::Stale { .. })
            ),
            "numbers of an older spec permit nothing"
        );
        let two = [budget("cart", 1, 3, 2), Budget { name: "all".into(), ..budget("cart", 1, 3, 2) }];
        assert!(matches!(take(&two, &running), Err(Refusal::Overlapping { .. })));
    }

    #[test]
    fn one_eviction_at_a_time_on_a_budget() {
        let budgets = [budget("cart", 2, 4, 2), budget("db", 1, 4, 3)];
        let mut round = Budgets::new(&budgets, BTreeMap::new());
        let permit = round.take(&pod("cart", 1, "n-1")).unwrap();
        let charge = permit.charge().unwrap().clone();
        assert!(round.take(&pod("cart", 2, "n-1")).unwrap_err().is_pacing());
        assert!(round.take(&pod("db", 1, "n-1")).is_ok(), "other budgets go on");
        let answered: BTreeMap<_, _> = [(charge.budget, Busy::Until(charge.resource_version))].into();
        let mut next = Budgets::new(&budgets, answered.clone());
        assert!(next.take(&pod("cart", 2, "n-1")).is_err(), "the budget has not counted the first yet");
        let counted = [Budget { resource_version: "2".into(), disruptions_allowed: 1, ..budgets[0].clone() }];
        assert!(Budgets::new(&counted, answered).take(&pod("cart", 2, "n-1")).is_ok());
    }

    #[test]
    fn refusals_name_the_budget_and_its_numbers() {
        let line = |b: Budget| take(&[b], &pod("cart", 1, "n-1")).unwrap_err().to_string();
        assert_eq!(
            line(budget("cart", 0, 3, 3)),
            "PDB shop/cart can never allow an eviction: it needs 3 healthy of 3 (3 healthy now)"
        );
        assert_eq!(
            line(Budget { expected_pods: 4, ..budget("cart", 0, 3, 3) }),
            "PDB shop/cart allows 0 evictions: 3 of 4 healthy, 3 needed"
        );
    }
}
