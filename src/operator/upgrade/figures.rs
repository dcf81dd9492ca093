//! What the metrics count of upgrades.
//!
//! How a metric is served never belongs here. The invariant: every label is one of a closed set.

use evenkeel_core::disruption::answer::Answer;
use evenkeel_core::plan::Stage;
use evenkeel_core::rollout::{self, OutOf};

use super::super::metrics;

/// How many nodes of an upgrade are in each state, for the metrics.
pub(super) fn counts(status: &rollout::UpgradeStatus) -> Vec<(&'static str, u64)> {
    let (upgraded, total) =
        status.stages.iter().find(|s| s.stage == Stage::Kubelets).map_or((0, 0), |s| (s.upgraded, s.total));
    let out = status.parked.len();
    vec![
        ("Pending", total.saturating_sub(upgraded + status.nodes_in_flight + out) as u64),
        ("InFlight", status.nodes_in_flight as u64),
        ("Upgraded", upgraded as u64),
        (OutOf::Parked.name(), status.out(OutOf::Parked) as u64),
        (OutOf::Failed.name(), status.out(OutOf::Failed) as u64),
        (OutOf::Held.name(), status.out(OutOf::Held) as u64),
    ]
}

pub(super) fn label(answer: &Answer) -> metrics::Eviction {
    match answer {
        Answer::Accepted(_) => metrics::Eviction::Evicted,
        Answer::Gone => metrics::Eviction::NotFound,
        Answer::Budget { .. } | Answer::Stale { .. } => metrics::Eviction::RefusedPdb,
        Answer::NamespaceTerminating { .. } => metrics::Eviction::TerminatingNamespace,
        Answer::Denied { .. } | Answer::WebhookDown { .. } => metrics::Eviction::WebhookDenied,
        _ => metrics::Eviction::Error,
    }
}
