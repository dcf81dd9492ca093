//! Conditions as kstatus, Argo CD and `kubectl wait` read them.
//!
//! Here belongs how a condition is written; which ones are true is the caller's to say. The invariant: a condition's
//! lastTransitionTime changes only when its status changes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The conditions that `wanted` lists as `(type, status, reason, message)`. A condition whose status is the same in
/// `before` keeps its lastTransitionTime; any other one gets `now`.
///
/// Every wanted condition is returned, in the order of `wanted`: tools do not agree on what an absent condition
/// means.
pub fn conditions(
    wanted: &[(&str, &str, &str, &str)],
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let condition = |(type_, status, reason, message): &(&str, &str, &str, &str)| {
        let same = before.iter().find(|c| c.type_ == *type_ && c.status == *status);
        Condition {
            type_: (*type_).to_owned(),
            status: (*status).to_owned(),
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            observed_generation: generation,
            last_transition_time: same.map_or(Time(now), |c| c.last_transition_time.clone()),
        }
    };
    wanted.iter().map(condition).collect()
}
