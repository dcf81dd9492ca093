//! Statuses of which the server dropped a field, because its `CustomResourceDefinition` is of another version.
//!
//! Here belongs what is remembered of them; when a status is sent again is the caller's to say. The invariant: where the
//! server drops what later looks go by, the status says so; where it drops only what people read, the log does.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::{CustomResourceExt as _, ResourceExt as _};

use crate::act::status::dropped;
use crate::api::{ClusterUpgrade, ClusterUpgradeStatus, upgrade};

/// A status that is not stored as a whole.
struct Cut {
    /// Of the upgrade: another one of its name is told nothing of it.
    uid: Option<String>,
    /// The resourceVersion of what the server kept of it.
    version: Option<String>,
    told: ClusterUpgradeStatus,
    /// What a person has to do, where the server dropped something that has to be remembered: then nothing is done.
    unstored: Option<String>,
}

/// The statuses that are not stored as a whole, by the name of the upgrade. Losing them is safe: each is sent once more.
#[derive(Default)]
pub(super) struct DroppedStatuses(BTreeMap<String, Cut>);

impl DroppedStatuses {
    fn of(&self, object: &ClusterUpgrade) -> Option<&Cut> {
        self.0.get(&object.name_any()).filter(|cut| cut.uid == object.uid())
    }

    /// Whether `object` is what the server kept of `status`.
    pub(super) fn is_kept_of(&self, object: &ClusterUpgrade, status: &ClusterUpgradeStatus) -> bool {
        self.of(object).is_some_and(|cut| cut.version == object.resource_version() && cut.told == *status)
    }

    /// Whether something is not stored that has to be remembered of `object`.
    pub(super) fn is_unstored(&self, object: &ClusterUpgrade) -> bool {
        self.unstored(object).is_some()
    }

    fn unstored(&self, object: &ClusterUpgrade) -> Option<&str> {
        self.of(object)?.unstored.as_deref()
    }

    /// `object` has everything stored that has to be remembered of `status`, if it has: somebody else wrote it.
    pub(super) fn decided(&mut self, object: &ClusterUpgrade, status: &ClusterUpgradeStatus) {
        let is_stored = object.status.as_ref().is_some_and(|of| of.remembered() == status.remembered());
        if let Some(cut) = self.0.get_mut(&object.name_any()).filter(|_| is_stored) {
            cut.unstored = None;
        }
    }

    /// What is told of `object`: `status`, or why nothing is done. For one that is complete nothing is done anyway.
    pub(super) fn told(
        &self,
        object: &ClusterUpgrade,
        status: ClusterUpgradeStatus,
        now: Timestamp,
    ) -> ClusterUpgradeStatus {
        let is_complete = object.status.as_ref().is_some_and(|before| before.completion_time.is_some());
        match self.unstored(object) {
            Some(line) if !is_complete => upgrade::status_of_unstored(object, status, line, now),
            _ => status,
        }
    }

    /// Takes note of what the server kept of `status`: `written`. The log has it once. Returns whether everything is stored
    /// that has to be remembered.
    pub(super) fn note(&mut self, written: &DynamicObject, status: ClusterUpgradeStatus) -> bool {
        // What cannot be written as JSON was not sent.
        let lacks = |status: &ClusterUpgradeStatus| {
            dropped(written, &serde_json::to_value(status).unwrap_or_default(), ClusterUpgrade::crd_name())
        };
        let name = written.name_any();
        let Some(first) = lacks(&status) else {
            self.0.remove(&name);
            return true;
        };
        let unstored = lacks(&status.remembered());
        if self.0.get(&name).is_none_or(|before| before.unstored != unstored) {
            let problem = unstored.as_ref().unwrap_or(&first);
            tracing::warn!(problem, upgrade = name, "the status is not whole");
        }
        let is_stored = unstored.is_none();
        self.0.insert(
            name,
            Cut { uid: written.uid(), version: written.resource_version(), told: status, unstored },
        );
        is_stored
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::ConditionType;

    fn stored(status: &Value) -> Value {
        json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade",
            "metadata": {"name": "up", "resourceVersion": "7"},
            "spec": {"version": "v1.37.1", "controlPlane": {"executor": "x"}}, "status": status})
    }

    /// The reason of condition Ready with which `all` tell of an upgrade that has `before` as its status.
    fn reason(all: &DroppedStatuses, before: &Value) -> Option<String> {
        let object: ClusterUpgrade = serde_json::from_value(stored(before)).unwrap();
        let told = all.told(&object, ClusterUpgradeStatus::default(), Timestamp::UNIX_EPOCH);
        Some(ConditionType::Ready.of(&told.conditions)?.reason.clone())
    }

    #[test]
    fn a_status_says_what_is_not_stored_only_where_that_has_to_be_remembered() {
        let status =
            json!({"observedGeneration": 1, "startTime": "2026-11-26T10:00:00Z", "waitingForOmitted": 3});
        let status: ClusterUpgradeStatus = serde_json::from_value(status).unwrap();
        let whole = serde_json::to_value(&status).unwrap();
        for (field, is_remembered) in [("startTime", true), ("waitingForOmitted", false)] {
            let mut left = whole.clone();
            left.as_object_mut().unwrap().remove(field);
            let written: DynamicObject = serde_json::from_value(stored(&left)).unwrap();
            let mut all = DroppedStatuses::default();
            assert_eq!(all.note(&written, status.clone()), !is_remembered, "{field}");
            let object: ClusterUpgrade = serde_json::from_value(stored(&left)).unwrap();
            assert!(all.is_kept_of(&object, &status), "{field}: it is not sent again for nothing");
            let refused = is_remembered.then(|| "WritesRefused".to_owned());
            assert_eq!((reason(&all, &left), all.is_unstored(&object)), (refused, is_remembered), "{field}");
            let mut another = object.clone();
            another.metadata.uid = Some("another".to_owned());
            assert!(!all.is_unstored(&another), "{field}: its name is all that it has of that");
            let mut complete = left.clone();
            complete["completionTime"] = json!("2026-11-26T11:00:00Z");
            assert_eq!(reason(&all, &complete), None, "{field}: nothing is done for it anyway");
            all.decided(&object, &ClusterUpgradeStatus::default());
            assert_eq!(all.is_unstored(&object), is_remembered, "{field}");
            let object = ClusterUpgrade { status: Some(status.clone()), ..object };
            all.decided(&object, &status);
            assert_eq!(reason(&all, &left), None, "{field}");
            let written: DynamicObject = serde_json::from_value(stored(&whole)).unwrap();
            assert!(all.note(&written, status.clone()) && !all.is_kept_of(&object, &status), "{field}");
        }
    }
}
