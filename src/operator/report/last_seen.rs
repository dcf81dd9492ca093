//! What the report says while it does not show what is now: the cluster is not seen, or the report is suspended.
//!
//! Here belongs what becomes of the last observation; whether there is a newer one is found out elsewhere. The invariants: what
//! was seen stays, with the time at which it was seen; and nobody takes a verdict on it for one of now.

use evenkeel_core::skew::Verdict;
use k8s_openapi::jiff::Timestamp;

use crate::api::report::{self, ClusterSkewReportStatus};
use crate::api::{ConditionStatus, ConditionType, Kstatus, Wanted, conditions};
use crate::observe::NotReady;

/// What the report says while the cluster is not seen: the last observation with its time, and why it is not newer.
pub(super) fn while_unseen(
    before: &ClusterSkewReportStatus,
    why: &NotReady,
    generation: Option<i64>,
    now: Timestamp,
) -> ClusterSkewReportStatus {
    let reason = if why.is_pending() { "Pending" } else { "CollectorFailed" };
    let line = match &before.last_observed_time {
        Some(last) => format!("{why}; what is below was seen at {}", last.0),
        None => why.to_string(),
    };
    let unseen = "the cluster is not seen at the moment";
    let wanted = [
        (
            ConditionType::Ready,
            if why.is_pending() { ConditionStatus::Unknown } else { ConditionStatus::False },
            reason,
            line.as_str(),
        ),
        (ConditionType::Reconciling, ConditionStatus::True, reason, "looking again until everything is seen"),
        (ConditionType::Stalled, ConditionStatus::False, reason, "nothing needs a person yet"),
        (ConditionType::SkewSupported, ConditionStatus::Unknown, "NotObserved", unseen),
        (ConditionType::NextMinorAllowed, ConditionStatus::Unknown, "NotObserved", unseen),
        (ConditionType::InventoryComplete, ConditionStatus::False, reason, line.as_str()),
    ];
    old(before, &line, &wanted, generation, now)
}

/// What the report says while it is suspended: the last observation with its time, and how to have a newer one.
pub(super) fn while_suspended(
    before: &ClusterSkewReportStatus,
    generation: Option<i64>,
    now: Timestamp,
) -> ClusterSkewReportStatus {
    const REASON: &str = "Suspended";
    let seen = match &before.last_observed_time {
        Some(last) => format!("what is below was seen at {}", last.0),
        None => "it was suspended before the cluster was looked at".to_owned(),
    };
    let line =
        format!("suspended by spec.suspend; {seen}; set spec.suspend to false to have it written again");
    let others =
        [ConditionType::SkewSupported, ConditionType::NextMinorAllowed, ConditionType::InventoryComplete]
            .map(|type_| (type_, ConditionStatus::Unknown, REASON, line.as_str()));
    let wanted = [&Kstatus::Paused.conditions(REASON, &line)[..], &others].concat();
    old(before, &line, &wanted, generation, now)
}

/// The observation of `before` without a verdict, for the reason that `line` says, and with the conditions that `wanted` lists.
fn old(
    before: &ClusterSkewReportStatus,
    line: &str,
    wanted: &[Wanted<'_>],
    generation: Option<i64>,
    now: Timestamp,
) -> ClusterSkewReportStatus {
    ClusterSkewReportStatus {
        observed_generation: generation,
        supported: Verdict::Unknown.name().to_owned(),
        reason: line.to_owned(),
        next_minor: report::NextMinor {
            allowed: Verdict::Unknown.name().to_owned(),
            ..before.next_minor.clone()
        },
        conditions: conditions(wanted, &before.conditions, generation, now),
        ..before.clone()
    }
}
