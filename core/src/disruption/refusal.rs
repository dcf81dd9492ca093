//! Why a pod may not be evicted now, in one line with the budget and its numbers.
//!
//! Here belong the words; what is refused is decided in [`super::permit`]. The invariant: what stays until a person
//! changes something is told apart from what passes by itself.

use std::fmt;
use std::sync::Arc;

use super::arithmetic::{Lost, SyncPasses};
use super::budget_name::BudgetName;
use crate::text::plural;

/// Why a pod may not be evicted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The budget allows none.
    Exhausted {
        /// The one that is used up.
        budget: BudgetName,
        /// `currentHealthy`.
        healthy: i32,
        /// `desiredHealthy`.
        desired: i32,
        /// `expectedPods`.
        expected: i32,
        /// How many more it will expect, where that is known: controllers have yet to make those pods.
        coming: i32,
        /// An eviction that the budget counts although its pod was not deleted.
        lost: Option<Lost>,
        /// Why the pod is not ready, such as `CrashLoopBackOff`; an empty text where the reason is not known, `None`
        /// where the pod is ready.
        unready: Option<Arc<str>>,
    },
    /// The disruption controller could not compute the budget.
    SyncFailed {
        /// The one whose numbers are not known.
        budget: BudgetName,
        /// The message of condition `DisruptionAllowed`.
        message: Arc<str>,
        /// Whether it passes by itself.
        passes: SyncPasses,
    },
    /// The budget's status is older than its spec, or than its pods.
    Stale {
        /// The one whose status is behind.
        budget: BudgetName,
        /// What the status does not tell of.
        lacks: StatusLacks,
    },
    /// The budget's status is one that the handler forbids to use.
    Broken {
        /// The one whose status has to be repaired.
        budget: BudgetName,
        /// `disruptionsAllowed`.
        allowed: i32,
        /// How many pods `disruptedPods` names.
        disrupted: usize,
    },
    /// Several budgets select the pod, which the eviction API answers with an error.
    Overlapping {
        /// All budgets that select the pod.
        budgets: Vec<BudgetName>,
    },
    /// The budget's `unhealthyPodEvictionPolicy` is not known, and the pod is not ready.
    UnknownPolicy {
        /// The one with that policy.
        budget: BudgetName,
    },
    /// Our earlier evictions on this budget come first: one is unanswered, just refused, or not counted yet.
    Queued {
        /// The one that they are charged to.
        budget: BudgetName,
    },
}

/// What a budget's status does not tell of yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusLacks {
    /// Anything: the disruption controller has not computed it before.
    All,
    /// The last change of the spec.
    Change,
    /// The pods: it expects none.
    Pods,
}

impl Refusal {
    /// The budget to name; where several select the pod, the first of them.
    pub fn budget(&self) -> Option<&BudgetName> {
        match self {
            Self::Exhausted { budget, .. }
            | Self::SyncFailed { budget, .. }
            | Self::Stale { budget, .. }
            | Self::Broken { budget, .. }
            | Self::UnknownPolicy { budget }
            | Self::Queued { budget } => Some(budget),
            Self::Overlapping { budgets } => budgets.first(),
        }
    }

    /// Whether it stays until a person changes something. Otherwise healthy pods or the disruption controller may end
    /// it.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Exhausted { desired, expected, coming, .. } => *desired >= expected.saturating_add(*coming),
            Self::SyncFailed { passes, .. } => *passes == SyncPasses::No,
            Self::Broken { .. } | Self::Overlapping { .. } | Self::UnknownPolicy { .. } => true,
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
            Self::Exhausted { budget, healthy, desired, expected, .. } if self.is_lasting() => write!(
                f,
                "PDB {} can never allow an eviction: it needs {desired} healthy of {expected} ({healthy} healthy now)",
                show(budget)
            ),
            Self::Exhausted { budget, healthy, desired, expected, coming, lost, unready } => {
                let budget = show(budget);
                write!(
                    f,
                    "PDB {budget} allows 0 evictions: {healthy} of {expected} healthy, {desired} needed"
                )?;
                if *coming > 0 {
                    let are = if *coming == 1 { "is" } else { "are" };
                    write!(
                        f,
                        "; {} {are} to come",
                        plural(usize::try_from(*coming).unwrap_or(0), "more pod")
                    )?;
                }
                if let Some(lost) = lost {
                    write!(f, "; {lost}")?;
                }
                let Some(why) = unready else { return Ok(()) };
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                write!(
                    f,
                    "; the pod is not ready{why}: unhealthyPodEvictionPolicy AlwaysAllow would let it go"
                )
            }
            Self::SyncFailed { budget, message, passes } => {
                write!(f, "PDB {} failed to sync: {message}", show(budget))?;
                if *passes == SyncPasses::WhenPodIsGone {
                    f.write_str(", which is terminating")
                } else {
                    Ok(())
                }
            }
            Self::Stale { budget, lacks: StatusLacks::All } => write!(
                f,
                "PDB {} has no status: the disruption controller has not computed it yet, or does not run",
                show(budget)
            ),
            Self::Stale { budget, lacks: StatusLacks::Change } => {
                write!(f, "PDB {} was changed and its status is not computed yet", show(budget))
            }
            Self::Stale { budget, lacks: StatusLacks::Pods } => write!(
                f,
                "PDB {} expects 0 pods, though it selects this one: the disruption controller has not counted it yet, or \
                 does not run",
                show(budget)
            ),
            Self::Broken { budget, allowed, disrupted } => write!(
                f,
                "PDB {} has a broken status ({allowed} allowed, {disrupted} disrupted pods), which the server refuses",
                show(budget)
            ),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::Budgets;
    use super::Refusal;
    use crate::cluster::{Budget, Demand, Parts, Pod, Quantity, Surroundings, Traits, Workload};
    use crate::fixture::{at, budget, of, pod, terminating};

    #[test]
    fn refusals_name_the_budget_and_its_numbers() {
        let line = |b: Budget| {
            Budgets::new(&of(&[], &[b]), BTreeMap::new(), at(0))
                .take(&pod("cart", 1, "n-1"))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            line(budget("cart", 0, 3, 3)),
            "PDB shop/cart can never allow an eviction: it needs 3 healthy of 3 (3 healthy now)"
        );
        assert_eq!(
            line(Budget { expected_pods: 4, ..budget("cart", 0, 3, 3) }),
            "PDB shop/cart allows 0 evictions: 3 of 4 healthy, 3 needed"
        );
        let crashing = |waiting: Option<&str>| {
            let traits = Traits { waiting: waiting.map(Into::into), ..Traits::default() };
            let short = Budget { expected_pods: 4, current_healthy: 2, ..budget("cart", 0, 3, 3) };
            let pod = Pod { ready: false, special: Some(Arc::new(traits)), ..pod("cart", 1, "n-1") };
            Budgets::new(&of(&[], &[short]), BTreeMap::new(), at(0)).take(&pod).unwrap_err().to_string()
        };
        assert_eq!(
            crashing(Some("CrashLoopBackOff")),
            "PDB shop/cart allows 0 evictions: 2 of 4 healthy, 3 needed; the pod is not ready (CrashLoopBackOff): \
             unhealthyPodEvictionPolicy AlwaysAllow would let it go"
        );
        assert!(crashing(None).contains("; the pod is not ready: "));
        let disrupted: crate::cluster::Disrupted = [("cart-7".into(), at(-60))].into();
        assert_eq!(
            line(Budget { expected_pods: 4, disrupted, ..budget("cart", 0, 3, 3) }),
            "PDB shop/cart allows 0 evictions: 3 of 4 healthy, 3 needed; pod cart-7 counts as evicted until \
             2027-01-15T08:01:00Z without being deleted"
        );
        assert_eq!(
            line(budget("cart", -1, 3, 3)),
            "PDB shop/cart has a broken status (-1 allowed, 0 disrupted pods), which the server refuses"
        );
    }

    fn refused(parts: Parts) -> Refusal {
        let cluster = parts.seal();
        Budgets::new(&cluster, BTreeMap::new(), at(0)).take(&pod("cart", 1, "n-1")).unwrap_err()
    }

    #[test]
    fn a_budget_whose_pods_are_to_come_passes() {
        let of = |replicas: Option<i32>| {
            let workload = |replicas| Workload {
                this: pod("cart", 1, "").owner.unwrap(),
                namespace: "shop".into(),
                replicas: Some(replicas),
                owner: None,
                ignores_disruption: false,
            };
            let workloads = replicas.map(|replicas| [workload(replicas)].into_iter().collect());
            refused(Parts {
                pods: vec![pod("cart", 1, "n-1")],
                budgets: vec![budget("cart", 0, 1, 2)],
                surroundings: Surroundings { workloads, ..Surroundings::default() },
                ..Parts::default()
            })
        };
        assert!(of(None).is_lasting(), "nobody knows of more");
        assert!(of(Some(2)).is_lasting(), "it needs both");
        let passes = of(Some(3));
        assert!(!passes.is_lasting());
        assert_eq!(
            passes.to_string(),
            "PDB shop/cart allows 0 evictions: 1 of 1 healthy, 2 needed; 2 more pods are to come"
        );
    }

    #[test]
    fn a_budget_that_expects_no_pod_passes_unless_it_never_will() {
        let of = |demand, owned: bool| {
            let mut cart = pod("cart", 1, "n-1");
            cart.owner = cart.owner.filter(|_| owned);
            let seen = Budget { demand, expected_pods: 0, ..budget("cart", 0, 0, 0) };
            Budgets::new(&of(std::slice::from_ref(&cart), &[seen]), BTreeMap::new(), at(0))
                .take(&cart)
                .unwrap_err()
        };
        let one = Quantity::Count(1);
        for (demand, owned, lasts) in [
            (Demand::MaxUnavailable(one), true, false),
            (Demand::MaxUnavailable(one), false, true),
            (Demand::MinAvailable(one), false, false),
            (Demand::Nothing, true, true),
        ] {
            assert_eq!(of(demand, owned).is_lasting(), lasts, "{demand} {owned}");
        }
        assert!(
            of(Demand::MaxUnavailable(one), true).to_string().starts_with("PDB shop/cart expects 0 pods, ")
        );
    }

    #[test]
    fn a_budget_that_fails_for_a_pod_on_its_way_out_passes() {
        let of = |message: &str| {
            refused(Parts {
                pods: vec![pod("cart", 1, "n-1"), terminating(pod("cart", 2, "n-2"), at(30))],
                budgets: vec![Budget { sync_failed: Some(message.into()), ..budget("cart", 0, 2, 1) }],
                ..Parts::default()
            })
        };
        assert!(!of("found no controllers for pod \"cart-2\"").is_lasting());
        assert!(of("found no controllers for pod \"cart-1\"").is_lasting(), "it stays");
        assert!(of("jobs.batch does not implement the scale subresource").is_lasting());
        // A drain reads no pods of other nodes.
        let unseen = of("found no controllers for pod \"cart-9\"");
        assert!(!unseen.is_lasting());
        assert!(unseen.to_string().ends_with("\"cart-9\""), "{unseen}");
    }
}
