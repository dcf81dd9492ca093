//! What a `ClusterUpgrade` waits for, as its status says it.
//!
//! Here belongs only the form of it; reasons and lines are the core's. The invariant: a status that an older release wrote
//! can be read.

use evenkeel_core::rollout::Waiting;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Something that the upgrade waits for.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WaitingFor {
    /// Why the upgrade waits, in one word: a reason of condition `Ready`, or the reason of a wait beside it, such as
    /// `PodsLeaving`.
    pub reason: String,
    /// What the upgrade waits for, in one line, with the names of what is meant.
    pub message: String,
    /// Who or what ends the wait: `Person`, `Cluster` or `Time`.
    pub ended_by: String,
    /// When the wait is over or is looked at again, where that is known. Whatever changes in the cluster is looked at at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

impl WaitingFor {
    /// As the core says it, with a line that `bounded` keeps short.
    pub(super) fn of(waiting: &Waiting, bounded: impl Fn(&str) -> String) -> Self {
        Self {
            reason: waiting.reason.name().to_owned(),
            message: bounded(&waiting.line),
            ended_by: waiting.reason.ended_by().name().to_owned(),
            until: waiting.until.map(|at| Time(whole_second(at))),
        }
    }
}

/// `at`, or the next second: what is stored has no parts of a second.
fn whole_second(at: Timestamp) -> Timestamp {
    let up = i64::from(at.subsec_nanosecond() > 0);
    Timestamp::from_second(at.as_second() + up).unwrap_or(at)
}

/// Reads a list in which an older release wrote lines alone.
pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WaitingFor>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Whole(WaitingFor),
        Line(String),
    }
    let stored = Vec::<Stored>::deserialize(from)?;
    let whole = |stored| match stored {
        Stored::Whole(waiting) => waiting,
        Stored::Line(message) => WaitingFor { message, ..WaitingFor::default() },
    };
    Ok(stored.into_iter().map(whole).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Status(#[serde(deserialize_with = "read")] Vec<WaitingFor>);

    #[test]
    fn lines_of_an_older_release_are_read() {
        let stored = json!(["no window is open", {
            "reason": "Soaking", "message": "soaks", "endedBy": "Time", "until": "2026-11-25T22:00:00Z",
        }]);
        let Status(read) = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((read[0].message.as_str(), read.len()), ("no window is open", 2));
        assert_eq!(serde_json::to_value(&read).unwrap()[1], stored[1]);
    }
}
