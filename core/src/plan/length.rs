//! Lengths of time that are not certain: as they were measured or guessed, added up, and told as percentiles.
//!
//! Here belongs arithmetic alone; what follows what, and what goes on at the same time, is known to the caller. The
//! invariants: nothing is shorter than zero, and no estimate has a 90th percentile below its median.

use std::fmt;

use jiff::SignedDuration;

use super::hops::Step;
use crate::cluster::Component;
use crate::disruption::preflight::duration_text;

/// The 90th percentile of a normal distribution is this many standard deviations above its mean.
const TO_P90: f64 = 1.2816;

/// How long something took, or is taken to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// The median: half of the times are no longer.
    pub p50: SignedDuration,
    /// The 90th percentile: nine of ten times are no longer.
    pub p90: SignedDuration,
}

impl Took {
    /// Fewer samples than these say nothing.
    pub const ENOUGH: usize = 3;

    /// The median and the 90th percentile of `samples`, both by nearest rank, so that each is one of the samples: of an
    /// even number, the median is the lower of the two in the middle. `None` where there is no sample. Sorts `samples`.
    pub fn of(samples: &mut [SignedDuration]) -> Option<Self> {
        samples.sort_unstable();
        let ranked = |tenths: usize| samples.get((samples.len() * tenths).div_ceil(10).saturating_sub(1));
        Some(Self { p50: *ranked(5)?, p90: *ranked(9)? })
    }

    /// The one of both percentiles that is longer, for what ends with the last of its parts.
    pub(super) fn longer(self, other: Self) -> Self {
        Self { p50: self.p50.max(other.p50), p90: self.p90.max(other.p90) }
    }

    /// The median, or zero where it is negative.
    pub(super) fn least(self) -> SignedDuration {
        self.p50.max(SignedDuration::ZERO)
    }
}

/// How long the parts of an upgrade take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// A step that begins with a kube-apiserver, until it is observed at its version.
    pub server: Took,
    /// A step of a controller, until it is observed at its version.
    pub controller: Took,
    /// The executor of one node, from the end of the node's drain until its kubelet is observed at its version.
    pub node: Took,
    /// How long the replacement of a pod that left needs until it is ready.
    pub replacement: SignedDuration,
    /// The rollout's pause after the last controller of a hop, before nodes move. No bound counts it.
    pub after_controllers: SignedDuration,
    /// The rollout's pause after a control-plane node, before the next one. No bound counts it.
    pub after_control_plane_node: SignedDuration,
}

impl Default for Durations {
    /// Guesses, for a cluster of which nothing was measured: kubeadm with images that are pulled over a fast line, and
    /// pods that are ready within a minute. The pauses are those that the rollout makes.
    fn default() -> Self {
        let minutes =
            |p50, p90| Took { p50: SignedDuration::from_mins(p50), p90: SignedDuration::from_mins(p90) };
        Self {
            server: minutes(2, 4),
            controller: minutes(1, 2),
            node: minutes(4, 8),
            replacement: SignedDuration::from_mins(1),
            after_controllers: SignedDuration::from_secs(15),
            after_control_plane_node: SignedDuration::from_secs(30),
        }
    }
}

impl Durations {
    /// How long it takes until `component` is observed at its version, in nine of ten cases; a kubelet with the drain of its
    /// node.
    pub fn at_most(&self, component: Component) -> SignedDuration {
        match component {
            Component::KubeApiserver => self.server.p90,
            Component::Kubelet => self.node.p90.saturating_add(self.replacement),
            _ => self.controller.p90,
        }
    }

    /// How long `step` takes: as long as the longest of what it moves together.
    pub(super) fn step(&self, step: &Step) -> Took {
        let of = |component: &Component| match component {
            Component::KubeApiserver => self.server,
            Component::Kubelet => self.node,
            _ => self.controller,
        };
        let none = Took { p50: SignedDuration::ZERO, p90: SignedDuration::ZERO };
        step.components.iter().map(of).fold(none, Took::longer)
    }
}

/// About how long something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// It takes longer in half of all cases.
    pub p50: SignedDuration,
    /// It takes longer in one of ten cases. Never below `p50`.
    pub p90: SignedDuration,
}

impl fmt::Display for Estimate {
    /// `P50 13 h 35 min, P90 14 h 21 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P50 {}, P90 {}", duration_text(self.p50), duration_text(self.p90))
    }
}

/// A length of time that is not certain: its median, and the variance around it in seconds squared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Length {
    pub(super) median: SignedDuration,
    pub(super) variance: f64,
}

impl Length {
    pub(super) const fn certain(median: SignedDuration) -> Self {
        Self { median, variance: 0.0 }
    }

    pub(super) fn of(took: Took) -> Self {
        let median = took.least();
        let deviation = took.p90.max(median).saturating_sub(median).as_secs_f64() / TO_P90;
        Self { median, variance: deviation * deviation }
    }

    /// Both, one after the other.
    pub(super) fn then(self, next: Self) -> Self {
        Self { median: self.median.saturating_add(next.median), variance: self.variance + next.variance }
    }

    /// Both at the same time, until the longer one ends, by either percentile.
    pub(super) fn beside(self, other: Self) -> Self {
        let (own, others) = (self.estimate(), other.estimate());
        Self::of(Took { p50: own.p50, p90: own.p90 }.longer(Took { p50: others.p50, p90: others.p90 }))
    }

    pub(super) fn estimate(self) -> Estimate {
        let above = SignedDuration::try_from_secs_f64(self.variance.max(0.0).sqrt() * TO_P90);
        let p90 = self.median.saturating_add(above.unwrap_or(SignedDuration::MAX));
        Estimate { p50: self.median, p90: p90.max(self.median) }
    }
}

/// `time`, `count` times.
pub(super) fn times(time: SignedDuration, count: usize) -> SignedDuration {
    time.saturating_mul(i32::try_from(count).unwrap_or(i32::MAX))
}
