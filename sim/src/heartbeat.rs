//! Heartbeats: the versions of a Lease or a Node that differ in nothing but the time and their resourceVersion.
//!
//! A template knows where in an object's text the time and the resourceVersion are, so that thousands of versions a
//! second need no text of their own. What decides when there is a heartbeat never belongs here. The invariant: what a
//! template makes is what writing the changed object would make.

use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;

use crate::clock;

/// The conditions of a node whose kubelet is well: reason, status and type, in the order in which a condition's text
/// has them.
const WELL: [&str; 4] = [
    r#""reason":"KubeletHasSufficientMemory","status":"False","type":"MemoryPressure""#,
    r#""reason":"KubeletHasNoDiskPressure","status":"False","type":"DiskPressure""#,
    r#""reason":"KubeletHasSufficientPID","status":"False","type":"PIDPressure""#,
    r#""reason":"KubeletReady","status":"True","type":"Ready""#,
];

/// The text of an object, and where in it the version and the times of a heartbeat are.
#[derive(Debug)]
pub(crate) struct Template {
    text: Arc<str>,
    version: Range<usize>,
    times: Vec<Range<usize>>,
    /// How the times are written.
    written: fn(Timestamp) -> String,
}

impl Template {
    /// The template of an object's text. `None` for an object without heartbeats: one that is neither a lease that was
    /// renewed nor a node that is well.
    ///
    /// A quote inside a JSON string is escaped, so a field's name with its quotes is found only where the field is.
    pub(crate) fn of(text: Arc<str>) -> Option<Self> {
        let version = value(&text, 0, "\"resourceVersion\":\"")?;
        if let Some(time) = value(&text, version.end, "\"renewTime\":\"") {
            return Some(Self { text, version, times: vec![time], written: clock::micros });
        }
        let mut times = Vec::new();
        let mut at = version.end;
        while let Some(time) = value(&text, at, "\"lastHeartbeatTime\":\"") {
            at = time.end;
            // Fields are written in alphabetical order, so the type is a condition's last.
            let kind = value(&text, at, "\"type\":\"")?;
            let condition = text.get(at..=kind.end)?;
            if WELL.iter().any(|well| condition.ends_with(well)) {
                times.push(time);
            }
        }
        (times.len() == WELL.len()).then_some(Self { text, version, times, written: clock::seconds })
    }

    /// The text of the version that is a heartbeat at `time`.
    pub(crate) fn at(&self, revision: u64, time: Timestamp) -> String {
        let (revision, time) = (revision.to_string(), (self.written)(time));
        let mut text = String::with_capacity(self.text.len() + 8);
        let mut end = 0;
        let spots =
            std::iter::once((&self.version, &revision)).chain(self.times.iter().map(|at| (at, &time)));
        for (spot, value) in spots {
            text.push_str(self.text.get(end..spot.start).unwrap_or_default());
            text.push_str(value);
            end = spot.end;
        }
        text.push_str(self.text.get(end..).unwrap_or_default());
        text
    }
}

/// Where in `text` the string is that follows `field`; the search begins at `from`.
fn value(text: &str, from: usize, field: &str) -> Option<Range<usize>> {
    let start = from + text.get(from..)?.find(field)? + field.len();
    Some(start..start + text.get(start..)?.find('"')?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn beaten(object: &Value) -> Option<Value> {
        let template = Template::of(object.to_string().into())?;
        let text = template.at(12_345, "2026-03-01T10:00:00.25Z".parse().unwrap());
        serde_json::from_str(&text).unwrap()
    }

    fn lease() -> Value {
        json!({
            "metadata": {"name": "n", "annotations": {"note": "\"renewTime\":\"never\""}, "resourceVersion": "7",
                "managedFields": [{"fieldsV1": {"f:spec": {"f:renewTime": {}}}}]},
            "spec": {"holderIdentity": "n", "renewTime": "2026-01-01T00:00:00.000000Z"},
        })
    }

    fn node() -> Value {
        let old = "2026-01-01T00:00:00Z";
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": "a } and a \"type\":\"",
                "lastHeartbeatTime": old, "lastTransitionTime": old})
        };
        json!({
            "metadata": {"name": "n", "resourceVersion": "7"},
            "status": {"conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("NetworkUnavailable", "False", "RouteCreated"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ], "nodeInfo": {"kubeletVersion": "v1.37.1"}},
        })
    }

    #[test]
    fn a_lease_is_renewed_and_nothing_else() {
        let mut wanted = lease();
        wanted["metadata"]["resourceVersion"] = "12345".into();
        wanted["spec"]["renewTime"] = "2026-03-01T10:00:00.250000Z".into();
        assert_eq!(beaten(&lease()), Some(wanted));
    }

    #[test]
    fn a_node_that_is_well_says_so_again() {
        let mut wanted = node();
        wanted["metadata"]["resourceVersion"] = "12345".into();
        for at in [0, 1, 3, 4] {
            wanted["status"]["conditions"][at]["lastHeartbeatTime"] = "2026-03-01T10:00:00Z".into();
        }
        assert_eq!(beaten(&node()), Some(wanted), "and others' conditions are theirs");
    }

    #[test]
    fn what_is_not_well_has_no_such_heartbeat() {
        let mut sick = node();
        sick["status"]["conditions"][4]["status"] = "Unknown".into();
        assert_eq!(beaten(&sick), None);
        let mut new = lease();
        new["spec"] = json!({"holderIdentity": "n"});
        assert_eq!(beaten(&new), None);
        assert_eq!(beaten(&json!({"metadata": {"resourceVersion": "7"}, "data": {"a": "b"}})), None);
    }
}
