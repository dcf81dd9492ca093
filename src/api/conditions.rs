//! Conditions as kstatus, Argo CD and `kubectl wait` read them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// `wanted` as `(type, status, reason, message)`, each with the time at which its status last changed.
///
/// All of them are always present, in the order given: a condition that comes and goes is read differently by
/// different tools.
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
