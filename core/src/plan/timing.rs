//! How long a plan takes: at the least, with what sets that, about how long, and until when.
//!
//! Here belongs adding up the hops. Nothing here knows gates, nodes that are parked, or what others have to move first.
//! The invariant: no time is shorter than the least one.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;

use super::bounds::HopBound;
use super::forecast_input::ForecastInput;
use super::hop_duration::HopWork;
use super::hop_end::hop_end;
use super::length::{Durations, Estimate, Length};
use super::order::Stage;
use super::pods_to_leave::Leaving;
use crate::disruption::preflight::Question;
use crate::upgrade::Soak;
use crate::version::Minor;

/// How long one hop takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopTiming {
    /// Which hop, by the minor that it leads to.
    pub hop: Minor,
    /// At least so long, by all bounds together.
    pub least: SignedDuration,
    /// About so long.
    pub estimate: Estimate,
    /// About how long each of its waves takes from when it begins, in their order.
    pub waves: Vec<Estimate>,
}

/// How long a plan takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanTiming {
    /// What sets the least time, the longest first; all of them.
    pub bounds: Vec<HopBound>,
    /// Each hop, in order.
    pub hops: Vec<HopTiming>,
    /// The whole plan takes at least so long.
    pub least: SignedDuration,
    /// The whole plan takes about so long, of the time in which it may begin something.
    pub estimate: Estimate,
    /// About so long until it is done, closed windows, freezes and soaks in between included. `None` where no end is in
    /// sight.
    pub until_done: Option<SignedDuration>,
}

/// How long the plan takes from where its cluster is, when nothing is in its way; `soaks` are those under way.
///
/// The estimate takes every duration for independent of the others and their sums for normal: medians add up, and so do
/// variances, where a duration's standard deviation is (P90 − P50) / 1.2816. The P90 of many nodes in sequence is
/// therefore far below the sum of their P90s. What goes on at the same time takes as long as the longest of it. That a
/// round of many nodes ends with its slowest is not counted, so groups that move many nodes at once take a little longer.
pub fn timing(input: &ForecastInput<'_>, durations: &Durations, soaks: &[Soak]) -> PlanTiming {
    let ForecastInput { plan, waves, upgrade, cluster, rules, now } = *input;
    let nodes = input.emptied().into_keys().filter_map(|name| cluster.node(name)).collect();
    let leaving = Leaving::of(&Question { cluster, nodes, at_once: 1, rules, timeout: None, now });
    let mut all = PlanTiming {
        bounds: Vec::new(),
        hops: Vec::new(),
        least: SignedDuration::ZERO,
        estimate: Length::default().estimate(),
        until_done: None,
    };
    let mut whole = Length::default();
    let mut end = Some(now);
    let mut moved: BTreeSet<&Arc<str>> = BTreeSet::new();
    for (hop, waves) in plan.hops.iter().zip(waves) {
        let work = HopWork { hop, waves, unit: plan.unit, upgrade, cluster, durations, leaving: &leaving };
        let bounds = work.bounds(&moved);
        let length = work.length();
        let least = least(&bounds);
        let of_waves = waves.iter().map(|wave| work.wave(wave).estimate()).collect();
        let (minor, estimate) = (hop.version.minor(), length.estimate());
        all.hops.push(HopTiming { hop: minor, least, estimate, waves: of_waves });
        all.least = all.least.saturating_add(least);
        all.bounds.extend(bounds);
        whole = whole.then(length);
        end = end.and_then(|begin| hop_end(&work, soaks, begin));
        moved.extend(waves.iter().flat_map(|wave| &wave.nodes));
    }
    all.bounds.sort_by(HopBound::order);
    all.estimate = whole.estimate();
    all.until_done = end.map(|end| end.duration_since(now));
    all
}

/// The time that a hop takes by all of its `bounds`: stages follow each other.
fn least(bounds: &[HopBound]) -> SignedDuration {
    let of_stage = |stage| bounds.iter().filter(|bound| bound.stage == stage).map(|bound| bound.least).max();
    Stage::ALL.into_iter().filter_map(of_stage).fold(SignedDuration::ZERO, SignedDuration::saturating_add)
}

#[cfg(test)]
mod tests;
