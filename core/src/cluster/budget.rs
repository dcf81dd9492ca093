//! A `PodDisruptionBudget`: what it asks for, and the numbers the disruption controller last wrote.
//!
//! Here belong plain values and the pods that they are about; what a budget allows is decided in [`crate::disruption`].
//! The invariant: what cannot be read permits nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::pod::Pod;
use super::selector::Selector;

/// An amount of pods in a budget's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// This number of pods.
    Count(i32),
    /// This percentage of the pods, rounded up.
    Percent(i32),
}

impl Quantity {
    /// The number of pods that this is of `whole`; a percentage is rounded up, as
    /// `intstr.GetScaledValueFromIntOrPercent` does for budgets.
    pub fn of(self, whole: i64) -> i64 {
        match self {
            Self::Count(count) => count.into(),
            Self::Percent(percent) => {
                let hundredfold = i64::from(percent).saturating_mul(whole);
                hundredfold.div_euclid(100) + i64::from(hundredfold.rem_euclid(100) != 0)
            }
        }
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// What a budget asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// Neither field is set: the controller then never allows anything.
    #[default]
    Nothing,
    /// `spec.minAvailable`.
    MinAvailable(Quantity),
    /// `spec.maxUnavailable`.
    MaxUnavailable(Quantity),
    /// A value that is neither a number nor a percentage.
    Unreadable,
}

impl std::fmt::Display for Demand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("neither minAvailable nor maxUnavailable"),
            Self::MinAvailable(quantity) => write!(f, "minAvailable {quantity}"),
            Self::MaxUnavailable(quantity) => write!(f, "maxUnavailable {quantity}"),
            Self::Unreadable => f.write_str("an amount that is no number and no percentage"),
        }
    }
}

/// Pods that the eviction handler counts as gone: each pod's name, and when it was evicted.
pub type Disrupted = BTreeMap<Arc<str>, Timestamp>;

/// `spec.unhealthyPodEvictionPolicy` of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UnhealthyPolicy {
    /// Unset or `IfHealthyBudget`.
    #[default]
    IfHealthyBudget,
    /// Unready pods go without asking.
    AlwaysAllow,
    /// A value this version does not know: the API asks clients to refuse for unready pods.
    Unrecognised,
}

/// A `PodDisruptionBudget` with the numbers the disruption controller last wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.resourceVersion`; changes with every status the controller or an eviction writes.
    pub resource_version: Arc<str>,
    /// `spec.selector`; `None` selects no pod.
    pub selector: Option<Selector>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`; behind `generation` the numbers below are stale.
    pub observed_generation: i64,
    /// `status.disruptionsAllowed`; absent counts as 0, so that what cannot be read permits nothing.
    pub disruptions_allowed: i32,
    /// `status.currentHealthy`.
    pub current_healthy: i32,
    /// `status.desiredHealthy`.
    pub desired_healthy: i32,
    /// `status.expectedPods`.
    pub expected_pods: i32,
    /// The message of `DisruptionAllowed=False` with reason `SyncFailed`: the other numbers are then stale.
    pub sync_failed: Option<Arc<str>>,
    /// Since when `DisruptionAllowed` has been `False`, if it is.
    pub closed_since: Option<Timestamp>,
    /// `spec.unhealthyPodEvictionPolicy`.
    pub unhealthy_policy: UnhealthyPolicy,
    /// `spec.minAvailable` or `spec.maxUnavailable`.
    pub demand: Demand,
    /// `status.disruptedPods`: pods that were evicted and that the controller has not yet seen deleted.
    pub disrupted: Disrupted,
    /// The controller that made the budget and may change it: `CephCluster rook-ceph`.
    pub made_by: Option<Arc<str>>,
}

impl Budget {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it selects `pod`. A null selector selects nothing, an empty one every pod of the namespace.
    pub fn selects(&self, pod: &Pod) -> bool {
        self.namespace == pod.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
    }
}
