//! What the disruption controller will write into a budget's status, computed from the objects.
//!
//! Here belongs its arithmetic and nothing that judges the result. Its source is `getExpectedPodCount`,
//! `getExpectedScale`, `countHealthyPods`, `buildDisruptedPodMap` and `updatePdbStatus` in
//! `pkg/controller/disruption/disruption.go`. An eviction is never decided on these numbers: the eviction handler goes
//! by the status, so [`super::Budgets`] does too. They say what the status would be in files that have none, and what a
//! change of the spec would bring.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::cluster::{Budget, Cluster, Demand, Disrupted, Phase, Pod, Quantity, Scale, Surroundings};

/// How long the controller leaves an evicted pod that is not deleted out of `currentHealthy`.
pub const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// What the controller says of a pod whose controller it does not find; the pod's name follows, in quotes.
pub(super) const NO_CONTROLLERS: &str = "found no controllers for pod ";

/// An eviction whose pod the controller has not seen deleted after this long is lost: handler and controller take
/// milliseconds.
const DELETED_WITHIN: SignedDuration = SignedDuration::from_secs(3);

/// The numbers of a budget's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// `disruptionsAllowed`.
    pub allowed: i64,
    /// `currentHealthy`.
    pub healthy: i64,
    /// `desiredHealthy`.
    pub desired: i64,
    /// `expectedPods`.
    pub expected: i64,
}

impl Numbers {
    /// How many may be gone at once when every expected pod is healthy: what the budget allows in the long run.
    pub fn steady(self) -> i64 {
        if self.expected <= 0 { 0 } else { (self.expected - self.desired).max(0) }
    }
}

/// Why the controller cannot compute the numbers: it then allows nothing and leaves the others as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// A pod's controller has no scale.
    NoScale {
        /// The name of the first such pod.
        pod: Arc<str>,
        /// The controller: `DaemonSet logs`.
        owner: String,
    },
    /// A pod's controller does not exist.
    NoController {
        /// The name of the first such pod.
        pod: Arc<str>,
        /// What it names: `ReplicaSet cart-1`.
        owner: String,
    },
    /// The spec has no number.
    Unreadable,
    /// Not the controller's trouble but ours: the controllers of pods were not read.
    Unknown,
}

/// The numbers of `budget` for `pods` (those it selects) at `now`.
///
/// # Errors
/// [`Unsynced`].
pub fn compute(
    budget: &Budget,
    pods: &[&Pod],
    surroundings: &Surroundings,
    now: Timestamp,
) -> Result<Numbers, Unsynced> {
    let (expected, desired) = expected(budget, pods, surroundings)?;
    let kept = disrupted(budget, pods, now);
    let counts = |pod: &&&Pod| pod.deleting().is_none() && !kept.contains_key(&pod.name) && pod.ready;
    let healthy = count(pods.iter().filter(counts).count());
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    Ok(Numbers { allowed, healthy, desired, expected })
}

/// The same with as many `expected` as may be healthy at once when the controllers of `pods` have made all of theirs. A
/// plain `minAvailable` counts every pod that exists, so its `expectedPods` has those that have finished, too, and those
/// whose replacements are there already.
///
/// # Errors
/// [`Unsynced`].
pub fn in_the_long_run(
    budget: &Budget,
    pods: &[&Pod],
    surroundings: &Surroundings,
    now: Timestamp,
) -> Result<Numbers, Unsynced> {
    let numbers = compute(budget, pods, surroundings, now)?;
    if !matches!(budget.demand, Demand::MinAvailable(Quantity::Count(_))) {
        return Ok(numbers);
    }
    // Its controller may make one that goes again, as a StatefulSet does, and leaves one that has finished.
    let may_be_healthy = |pod: &Pod, scale: Option<&Scale>| match scale {
        None | Some(Scale::Gone) => pod.stays(),
        Some(_) => pod.deleting().is_some() || pod.phase != Phase::Finished,
    };
    let there = count(pods.iter().filter(|pod| pod.stays()).count());
    Ok(Numbers { expected: there.max(made(pods, surroundings, may_be_healthy)), ..numbers })
}

/// `expectedPods` and `desiredHealthy`.
fn expected(budget: &Budget, pods: &[&Pod], surroundings: &Surroundings) -> Result<(i64, i64), Unsynced> {
    match budget.demand {
        Demand::Nothing => Ok((0, 0)),
        Demand::Unreadable => Err(Unsynced::Unreadable),
        Demand::MaxUnavailable(quantity) => {
            let expected = scale(pods, surroundings)?;
            Ok((expected, expected.saturating_sub(quantity.of(expected)).max(0)))
        }
        // A plain number asks no controller, so it works for pods of any kind.
        Demand::MinAvailable(Quantity::Count(number)) => Ok((count(pods.len()), number.into())),
        Demand::MinAvailable(percent) => {
            let expected = scale(pods, surroundings)?;
            Ok((expected, percent.of(expected)))
        }
    }
}

/// Whether the disruption controller can compute a budget by itself again soon, which it cannot now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPasses {
    /// As far as is known, not before somebody changes something.
    No,
    /// It finds no controller of a pod that is on its way out. Another such pod is named when that one is gone.
    WhenPodIsGone,
    /// It finds no controller of a pod that is not seen: the pod may be on its way out, or gone.
    Perhaps,
}

impl SyncPasses {
    /// Of `budget`, which cannot be computed now, as `message` says.
    pub fn of(cluster: &Cluster, budget: &Budget, message: &str) -> Self {
        let named = message.split_once(NO_CONTROLLERS).and_then(|(_, pod)| pod.split('"').nth(1));
        let Some(named) = named else { return Self::No };
        match cluster.pod(&budget.namespace, named) {
            Some(pod) if pod.deleting().is_some() => Self::WhenPodIsGone,
            Some(_) => Self::No,
            None => Self::Perhaps,
        }
    }
}

/// How many pods `budget` will expect once the controllers of `pods` (those it selects) have made all of theirs, as far
/// as those were read. Only a plain `minAvailable` counts the pods that exist; the rest asks the controllers anyway.
pub fn expected_later(budget: &Budget, pods: &[&Pod], surroundings: &Surroundings) -> Option<i64> {
    let (Demand::MinAvailable(Quantity::Count(_)), Some(_)) = (budget.demand, &surroundings.workloads) else {
        return None;
    };
    Some(made(pods, surroundings, |_, _| true))
}

/// The sum of the known scales of the controllers of `pods`, and of the other pods those that `count`.
fn made(pods: &[&Pod], surroundings: &Surroundings, counts: impl Fn(&Pod, Option<&Scale>) -> bool) -> i64 {
    let mut scales: BTreeMap<Arc<str>, i64> = BTreeMap::new();
    let mut others = 0;
    for pod in pods {
        match pod.owner.as_ref().map(|owner| surroundings.scale(&pod.namespace, owner)) {
            Some(Scale::Of(uid, replicas)) => _ = scales.insert(uid, replicas.into()),
            scale => others += i64::from(counts(pod, scale.as_ref())),
        }
    }
    scales.values().sum::<i64>().saturating_add(others)
}

/// The sum of the scales of the distinct controllers of `pods`; pods without one add nothing.
fn scale(pods: &[&Pod], surroundings: &Surroundings) -> Result<i64, Unsynced> {
    let mut scales: BTreeMap<Arc<str>, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = &pod.owner else { continue };
        if scales.contains_key(&owner.uid) {
            continue;
        }
        let named = || (Arc::clone(&pod.name), format!("{} {}", owner.kind, owner.name));
        match surroundings.scale(&pod.namespace, owner) {
            Scale::Of(uid, replicas) => _ = scales.insert(uid, replicas.into()),
            Scale::None => {
                let (pod, owner) = named();
                return Err(Unsynced::NoScale { pod, owner });
            }
            Scale::Gone => {
                let (pod, owner) = named();
                return Err(Unsynced::NoController { pod, owner });
            }
            Scale::Unknown => return Err(Unsynced::Unknown),
        }
    }
    Ok(scales.values().sum())
}

/// What the controller keeps of `status.disruptedPods` at `now`: an entry goes when its pod is gone or deleting, or
/// after two minutes.
pub fn disrupted(budget: &Budget, pods: &[&Pod], now: Timestamp) -> Disrupted {
    let there = |name: &Arc<str>| pods.iter().any(|pod| pod.name == *name && pod.deleting().is_none());
    let fresh = |since: &Timestamp| now.duration_since(*since) < DELETION_TIMEOUT;
    let kept = budget.disrupted.iter().filter(|(name, since)| there(name) && fresh(since));
    kept.map(|(name, since)| (Arc::clone(name), *since)).collect()
}

/// An eviction that a budget counts although its pod was not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The name of the pod, in the budget's namespace.
    pub pod: Arc<str>,
    /// When the disruption controller counts the pod as healthy again.
    pub until: Timestamp,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {} counts as evicted until {} without being deleted", self.pod, self.until)
    }
}

/// The eviction that `budget` has lost at `now`; of several, the one that is given back first. The handler took it from
/// the budget and did not delete the pod, because the pod ended in between or the eviction named another UID.
pub fn lost(budget: &Budget, now: Timestamp) -> Option<Lost> {
    let is_lost = |since: Timestamp| (DELETED_WITHIN..DELETION_TIMEOUT).contains(&now.duration_since(since));
    let all = budget.disrupted.iter().filter(|(_, since)| is_lost(**since));
    let (pod, since) = all.min_by_key(|(_, since)| **since)?;
    let until = since.saturating_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX);
    Some(Lost { pod: Arc::clone(pod), until })
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::{Owner, Workload};
    use crate::fixture::{at, budget, pod};

    fn workload(kind: &str, name: &str, replicas: i32, owner: Option<Arc<Owner>>) -> Workload {
        let this = Arc::new(Owner {
            api_version: "apps/v1".into(),
            kind: kind.into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
        });
        Workload {
            this,
            namespace: "shop".into(),
            replicas: Some(replicas),
            owner,
            ignores_disruption: false,
        }
    }

    fn of(demand: Demand, replicas: i32, pods: usize) -> Result<Numbers, Unsynced> {
        let surroundings = Surroundings {
            workloads: Some([workload("ReplicaSet", "cart", replicas, None)].into_iter().collect()),
            ..Surroundings::default()
        };
        let pods: Vec<Pod> = (0..pods).map(|number| pod("cart", number, "n-1")).collect();
        let budget = Budget { demand, ..budget("cart", 0, 0, 0) };
        compute(&budget, &pods.iter().collect::<Vec<_>>(), &surroundings, at(0))
    }

    #[test]
    fn two_replica_sets_of_a_deployment_count_once() {
        let deployment = workload("Deployment", "cart", 4, None);
        let sets =
            ["cart-1", "cart-2"].map(|name| workload("ReplicaSet", name, 3, Some(deployment.this.clone())));
        let pods: Vec<Pod> = sets
            .iter()
            .zip(0..)
            .map(|(set, number)| Pod { owner: Some(set.this.clone()), ..pod("cart", number, "n-1") })
            .collect();
        let surroundings = Surroundings {
            workloads: Some([vec![deployment], sets.to_vec()].concat().into_iter().collect()),
            ..Surroundings::default()
        };
        let budget = Budget { demand: Demand::MaxUnavailable(Quantity::Count(1)), ..budget("cart", 0, 0, 0) };
        let numbers = compute(&budget, &pods.iter().collect::<Vec<_>>(), &surroundings, at(0)).unwrap();
        assert_eq!(
            (numbers.expected, numbers.desired),
            (4, 3),
            "the Deployment's replicas, not the ReplicaSets'"
        );
    }

    #[test]
    fn what_was_not_read_is_unknown_and_what_is_not_there_is_gone() {
        let cart = pod("cart", 1, "n-1");
        let budget = Budget { demand: Demand::MaxUnavailable(Quantity::Count(1)), ..budget("cart", 0, 0, 0) };
        let compute = |surroundings| compute(&budget, &[&cart], &surroundings, at(0));
        assert_eq!(compute(Surroundings::default()), Err(Unsynced::Unknown));
        let read = |workload| Surroundings {
            workloads: Some([workload].into_iter().collect()),
            ..Surroundings::default()
        };
        assert_eq!(
            compute(read(workload("StatefulSet", "db", 3, None))),
            Err(Unsynced::Unknown),
            "no ReplicaSets"
        );
        let elsewhere = compute(read(workload("ReplicaSet", "web", 3, None)));
        assert!(matches!(elsewhere, Err(Unsynced::NoController { .. })));
        let mut other = workload("ReplicaSet", "cart", 3, None);
        Arc::make_mut(&mut other.this).uid = "another".into();
        let another = compute(read(other));
        assert!(matches!(another, Err(Unsynced::NoController { .. })), "another UID is another controller");
    }

    #[test]
    fn evicted_pods_count_as_gone_for_two_minutes() {
        let pods: Vec<Pod> = (0..3).map(|number| pod("cart", number, "n-1")).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let disrupted = [("cart-0".into(), at(0)), ("cart-9".into(), at(0))].into();
        let demand = Demand::MinAvailable(Quantity::Count(1));
        let budget = Budget { demand, disrupted, ..budget("cart", 0, 0, 0) };
        let healthy =
            |seconds| compute(&budget, &pods, &Surroundings::default(), at(seconds)).unwrap().healthy;
        assert_eq!((healthy(0), healthy(119), healthy(120)), (2, 2, 3));
    }

    #[test]
    fn an_eviction_is_lost_between_seconds_and_two_minutes() {
        let disrupted = [("cart-1".into(), at(7)), ("cart-2".into(), at(5))].into();
        let budget = Budget { disrupted, ..budget("cart", 0, 3, 2) };
        let lost = |seconds| lost(&budget, at(seconds)).map(|lost| (lost.pod.to_string(), lost.until));
        assert_eq!(lost(7), None, "the controller has not got to it yet");
        assert_eq!(lost(8), Some(("cart-2".to_owned(), at(125))), "the first to come back");
        assert_eq!(lost(125), Some(("cart-1".to_owned(), at(127))), "the first of them has come back");
        assert_eq!(lost(127), None);
    }

    proptest! {
        /// Both percentages round up: in favour of disruption there, of protection here.
        #[test]
        fn percentages_round_up(percent in 0..=100_i32, replicas in 0..5_000_i32) {
            let up = Quantity::Percent(percent).of(replicas.into());
            let hundredfold = i64::from(percent) * i64::from(replicas);
            prop_assert!(up * 100 >= hundredfold && (up - 1) * 100 < hundredfold, "the least that is enough");
            let numbers = of(Demand::MaxUnavailable(Quantity::Percent(percent)), replicas, 1).unwrap();
            prop_assert_eq!(numbers.desired, i64::from(replicas) - up);
            let numbers = of(Demand::MinAvailable(Quantity::Percent(percent)), replicas, 1).unwrap();
            prop_assert_eq!(numbers.desired, up);
        }

        /// However the numbers are, nothing is allowed that leaves fewer healthy pods than are desired.
        #[test]
        fn never_below_the_desired(
            value in -5..200_i32, percent: bool, min: bool, replicas in 0..30_i32, pods in 0..30_usize,
        ) {
            let quantity = if percent { Quantity::Percent(value) } else { Quantity::Count(value) };
            let demand = if min { Demand::MinAvailable(quantity) } else { Demand::MaxUnavailable(quantity) };
            let numbers = of(demand, replicas, pods).unwrap();
            prop_assert!(numbers.allowed >= 0);
            prop_assert!(numbers.allowed == 0 || numbers.healthy - numbers.allowed >= numbers.desired);
            prop_assert!(numbers.expected > 0 || numbers.allowed == 0);
        }
    }
}
