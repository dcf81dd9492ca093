//! What opens a budget that never allows an eviction.
//!
//! Here belong the ways out and their words. The invariant: whoever follows one of them has a budget that allows an
//! eviction as soon as its pods are healthy, by the disruption controller's own arithmetic. Where no way is known to
//! lead there, none is told.

use jiff::Timestamp;

use super::super::arithmetic::{Unsynced, compute, in_the_long_run};
use crate::cluster::{Budget, Demand, Pod, Quantity, Surroundings};
use crate::text::plural;

/// A way out that needs more pods than this is not offered.
const MOST_PODS: i64 = 20;
/// Kinds of pods' controllers that have a scale in every cluster.
const SCALED: [(&str, &str); 4] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("v1", "ReplicationController"),
];

/// Something that a person can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WayOut {
    /// Another value of `minAvailable` or `maxUnavailable`.
    Demand(Demand),
    /// Another number of replicas.
    Pods(i64),
}

/// A budget, the pods that it selects as far as those were read, and what is around them.
#[derive(Clone, Copy)]
pub(super) struct StuckBudget<'a> {
    pub(super) budget: &'a Budget,
    pub(super) pods: &'a [&'a Pod],
    pub(super) surroundings: &'a Surroundings,
    pub(super) now: Timestamp,
}

impl StuckBudget<'_> {
    /// The ways out, the best first.
    pub(super) fn ways(&self) -> Vec<WayOut> {
        let one = WayOut::Demand(Demand::MaxUnavailable(Quantity::Count(1)));
        let mut ways: Vec<WayOut> = Some(one)
            .filter(|_| self.allows(Demand::MaxUnavailable(Quantity::Count(1))))
            .into_iter()
            .collect();
        if self.has_scale() {
            ways.extend(self.more_pods().map(WayOut::Pods));
        }
        // minAvailable as a number needs no controller's scale; but it does not follow when the number of pods changes.
        let none = Budget { demand: Demand::MinAvailable(Quantity::Count(0)), ..self.budget.clone() };
        let numbers = in_the_long_run(&none, self.pods, self.surroundings, self.now);
        let most = numbers.ok().and_then(|numbers| i32::try_from(numbers.expected).ok());
        let fewer = most.and_then(|pods| pods.checked_sub(1));
        let fewer = fewer.filter(|fewer| *fewer >= 0 && ways.first() != Some(&one));
        let fewer = fewer.map(|fewer| Demand::MinAvailable(Quantity::Count(fewer)));
        ways.extend(fewer.filter(|fewer| self.allows(*fewer)).map(WayOut::Demand));
        ways
    }

    /// Whether the budget would allow something with `demand`, when its pods are healthy.
    fn allows(&self, demand: Demand) -> bool {
        let budget = Budget { demand, ..self.budget.clone() };
        match in_the_long_run(&budget, self.pods, self.surroundings, self.now) {
            // The pods were not read.
            _ if self.pods.is_empty() => matches!(demand, Demand::MaxUnavailable(_)) && self.has_scale(),
            Ok(numbers) => numbers.steady() > 0,
            // maxUnavailable 1 lets one pod of one or more go.
            Err(Unsynced::Unknown) => matches!(demand, Demand::MaxUnavailable(_)) && self.has_scale(),
            Err(_) => false,
        }
    }

    /// Whether the controllers of its pods have a scale, as far as is known.
    fn has_scale(&self) -> bool {
        let by_scale = Budget { demand: Demand::MaxUnavailable(Quantity::Count(1)), ..self.budget.clone() };
        match compute(&by_scale, self.pods, self.surroundings, self.now) {
            Ok(numbers) if !self.pods.is_empty() => numbers.expected > 0,
            Ok(_) | Err(Unsynced::Unknown) => {
                let has = |pod: &&Pod| {
                    pod.owner
                        .as_ref()
                        .is_some_and(|of| SCALED.contains(&(of.api_version.as_ref(), of.kind.as_ref())))
                };
                self.budget.sync_failed.is_none()
                    && (self.is_computed_by_scale() || self.pods.iter().all(has))
            }
            Err(_) => false,
        }
    }

    /// Whether its status was computed from a scale.
    fn is_computed_by_scale(&self) -> bool {
        let by_scale = matches!(
            self.budget.demand,
            Demand::MaxUnavailable(_) | Demand::MinAvailable(Quantity::Percent(_))
        );
        by_scale && self.budget.expected_pods > 0
    }

    /// The number of pods at which `minAvailable` leaves one pod to spare.
    fn more_pods(&self) -> Option<i64> {
        let Demand::MinAvailable(least) = self.budget.demand else { return None };
        let enough = match least {
            Quantity::Count(count) => i64::from(count).saturating_add(1),
            Quantity::Percent(_) => (1..=MOST_PODS).find(|pods| least.of(*pods) < *pods)?,
        };
        Some(enough).filter(|pods| *pods <= MOST_PODS && least.of(*pods) < *pods)
    }

    /// The ways out in words. For a budget that a controller made, the only way out is to change that controller.
    pub(super) fn shown(&self) -> String {
        if let Some(maker) = &self.budget.made_by {
            return format!(
                "change it in {maker}, which made it and may undo what is changed in the PDB itself"
            );
        }
        let shown: Vec<String> = self.ways().into_iter().map(|way| self.way(way)).collect();
        if shown.is_empty() {
            "set minAvailable to a number below that of its pods, or narrow its selector".to_owned()
        } else {
            shown.join(", or ")
        }
    }

    fn way(&self, way: WayOut) -> String {
        let mut owners = self.pods.iter().map(|pod| pod.owner.as_ref().map(|owner| &owner.uid));
        let first = owners.next();
        let one_owner = owners.all(|owner| Some(owner) == first);
        match way {
            WayOut::Demand(Demand::MinAvailable(Quantity::Count(0))) => {
                "set minAvailable 0, or delete the PDB: of one pod it can guard nothing".to_owned()
            }
            WayOut::Demand(Demand::MinAvailable(Quantity::Count(fewer))) => {
                let pods = usize::try_from(fewer).unwrap_or(0).saturating_add(1);
                format!("set minAvailable {fewer}, one less than its {}", plural(pods, "pod"))
            }
            WayOut::Demand(demand) => format!("set {demand}"),
            WayOut::Pods(pods) if one_owner => format!("scale to {pods}"),
            WayOut::Pods(pods) => format!("have {pods} pods"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::cluster::{Owner, Workload};
    use crate::fixture::{at, budget, pod};

    /// What controls the pods, and whether that was read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Control {
        Scaled,
        ScaledUnread,
        Job,
        CustomUnread,
        Nobody,
    }

    fn owner(control: Control) -> Option<Arc<Owner>> {
        let (api_version, kind) = match control {
            Control::Scaled | Control::ScaledUnread => ("apps/v1", "StatefulSet"),
            Control::Job => ("batch/v1", "Job"),
            Control::CustomUnread => ("x.io/v1", "Thing"),
            Control::Nobody => return None,
        };
        Some(Arc::new(Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "cart".into(),
            uid: "uid-cart".into(),
        }))
    }

    fn pods(control: Control, count: usize) -> Vec<Pod> {
        (0..count).map(|number| Pod { owner: owner(control), ..pod("cart", number, "n-1") }).collect()
    }

    /// What was read of a controller's scale; what is really so where `truth` is asked for.
    fn surroundings(control: Control, replicas: i64, truth: bool) -> Surroundings {
        let is_scaled = matches!(control, Control::Scaled | Control::ScaledUnread);
        let read = control == Control::Scaled || truth && is_scaled;
        let set = |this| Workload {
            this,
            namespace: "shop".into(),
            replicas: Some(i32::try_from(replicas).unwrap()),
            owner: None,
            ignores_disruption: false,
        };
        let sets = owner(control).filter(|_| read).map(|this| [set(this)].into_iter().collect());
        Surroundings { workloads: sets, ..Surroundings::default() }
    }

    fn allowed(demand: Demand, control: Control, count: usize) -> i64 {
        let budget = Budget { demand, ..budget("cart", 0, 0, 0) };
        let pods = pods(control, count);
        let surroundings = surroundings(control, i64::try_from(count).unwrap(), true);
        compute(&budget, &pods.iter().collect::<Vec<_>>(), &surroundings, at(0))
            .map_or(0, |numbers| numbers.allowed)
    }

    proptest! {
        /// Whoever does what is said gets an eviction.
        #[test]
        fn each_way_leads_out(
            value in 0..=120_i32, percent: bool, min: bool, nothing: bool, count in 1..12_usize,
            control in prop::sample::select(vec![
                Control::Scaled, Control::ScaledUnread, Control::Job, Control::CustomUnread, Control::Nobody]),
        ) {
            let quantity = if percent { Quantity::Percent(value) } else { Quantity::Count(value) };
            let demand = match (nothing, min) {
                (true, _) => Demand::Nothing,
                (_, true) => Demand::MinAvailable(quantity),
                (_, false) => Demand::MaxUnavailable(quantity),
            };
            let (budget, pods) = (Budget { demand, ..budget("cart", 0, 0, 0) }, pods(control, count));
            let pods: Vec<&Pod> = pods.iter().collect();
            let surroundings = surroundings(control, i64::try_from(count).unwrap(), false);
            let stuck = StuckBudget { budget: &budget, pods: &pods, surroundings: &surroundings, now: at(0) };
            let ways = stuck.ways();
            prop_assert!(!ways.is_empty(), "there is always a way");
            for way in ways {
                let after = match way {
                    WayOut::Demand(demand) => allowed(demand, control, count),
                    WayOut::Pods(pods) => allowed(demand, control, usize::try_from(pods).unwrap()),
                };
                prop_assert!(after > 0, "{way:?} of {demand:?}, {control:?} of {count}");
            }
        }
    }

    #[test]
    fn ways_in_words() {
        let shown = |demand, control, count| {
            let (budget, pods) = (Budget { demand, ..budget("cart", 0, 0, 0) }, pods(control, count));
            let pods: Vec<&Pod> = pods.iter().collect();
            let surroundings = surroundings(control, i64::try_from(count).unwrap(), false);
            StuckBudget { budget: &budget, pods: &pods, surroundings: &surroundings, now: at(0) }.shown()
        };
        let least = |count| Demand::MinAvailable(Quantity::Count(count));
        let share = |percent| Demand::MinAvailable(Quantity::Percent(percent));
        let lines = [
            shown(least(1), Control::Scaled, 1),
            shown(least(2), Control::Scaled, 1),
            shown(share(90), Control::Scaled, 3),
            shown(share(99), Control::Scaled, 3),
            shown(least(3), Control::Job, 3),
            shown(Demand::MaxUnavailable(Quantity::Count(1)), Control::CustomUnread, 3),
            shown(least(1), Control::Nobody, 1),
        ];
        expect_test::expect![[r#"
            set maxUnavailable 1, or scale to 2
            set maxUnavailable 1, or scale to 3
            set maxUnavailable 1, or scale to 10
            set maxUnavailable 1
            set minAvailable 2, one less than its 3 pods
            set minAvailable 2, one less than its 3 pods
            set minAvailable 0, or delete the PDB: of one pod it can guard nothing"#]]
        .assert_eq(&lines.join("\n"));
    }
}
