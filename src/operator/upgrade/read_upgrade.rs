//! What a stored `ClusterUpgrade` says: whether something can be decided about it, and since when it is under way.
//!
//! What is decided never belongs here. The invariant: an upgrade that cannot be carried out still has what it settles
//! by, once it has begun.

use evenkeel_core::rollout::Claim;
use evenkeel_core::upgrade::{Progress, Upgrade};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::core::DynamicObject;

use crate::api::{ClusterUpgrade, Executors, decode_parts, upgrade};

/// A `ClusterUpgrade` about which something can be decided.
#[derive(Clone)]
pub(super) struct DecidableUpgrade {
    pub(super) object: ClusterUpgrade,
    /// What a person wants.
    pub(super) intent: Upgrade,
    pub(super) progress: Progress,
    /// What is wrong with its spec, if something is: then `object` and `intent` have only what its nodes settle by.
    pub(super) invalid: Option<String>,
}

/// What a stored `ClusterUpgrade` says.
#[derive(Clone)]
pub(super) enum ReadUpgrade {
    Decidable(Box<DecidableUpgrade>),
    /// Its spec cannot be carried out, for that reason, and nothing has begun.
    Invalid(Box<ClusterUpgrade>, String),
}

impl ReadUpgrade {
    pub(super) fn object(&self) -> &ClusterUpgrade {
        match self {
            Self::Decidable(of) => &of.object,
            Self::Invalid(object, _) => object,
        }
    }
}

/// What `stored` says, as far as it can be decided about.
///
/// # Errors
/// One line, where it cannot be read at all.
pub(super) fn read(stored: &DynamicObject, executors: &Executors) -> Result<ReadUpgrade, String> {
    let object = decode_parts::<ClusterUpgrade>(stored, &["spec", "status"])?;
    let decidable = |object: ClusterUpgrade, intent: Upgrade, invalid: Option<String>| {
        let progress = upgrade::progress(&object, &intent);
        ReadUpgrade::Decidable(Box::new(DecidableUpgrade { object, intent, progress, invalid }))
    };
    let invalid = match upgrade::validate(&object, executors) {
        Ok(intent) => return Ok(decidable(object, intent, None)),
        Err(invalid) => invalid.to_string(),
    };
    // Whatever has begun, has begun under our finalizer.
    if object.finalizers().iter().any(|name| name == upgrade::FINALIZER) {
        let settling = upgrade::settling(&object);
        if let Ok(intent) = upgrade::validate(&settling, executors) {
            return Ok(decidable(settling, Upgrade { suspended: true, ..intent }, Some(invalid)));
        }
    }
    Ok(ReadUpgrade::Invalid(Box::new(object), invalid))
}

/// Whether `stored`, which somebody deleted, is settled, so that only finalizers of others keep it.
pub(super) fn is_settled(metadata: &ObjectMeta, claims: &[Claim]) -> bool {
    let ours = metadata.finalizers.iter().flatten().any(|name| name == upgrade::FINALIZER);
    let has_claims = claims.iter().any(|claim| metadata.uid.as_deref() == Some(&*claim.upgrade_uid));
    metadata.deletion_timestamp.is_some() && !ours && !has_claims
}

/// Since when `object` is under way, if it is, also where it goes to another version since: its nodes are half done.
pub(super) fn begun_since(object: &ClusterUpgrade) -> Option<Timestamp> {
    let status = object.status.as_ref().filter(|status| status.completion_time.is_none());
    Some(status?.start_time.as_ref()?.0)
}

/// Since when an upgrade that cannot be read is under way, if it is: a newer program may have begun it, which left its
/// nodes half done.
pub(super) fn begun_unread(stored: &DynamicObject) -> Option<Timestamp> {
    let status = &stored.data["status"];
    status["completionTime"].is_null().then(|| status["startTime"].as_str()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deleted_upgrade_is_settled_when_only_others_keep_it() {
        let deleted = |finalizers: &[&str]| ObjectMeta {
            uid: Some("1".to_owned()),
            deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            finalizers: Some(finalizers.iter().map(ToString::to_string).collect()),
            ..ObjectMeta::default()
        };
        assert!(is_settled(&deleted(&["example.com/keep"]), &[]));
        assert!(
            !is_settled(&deleted(&["example.com/keep", upgrade::FINALIZER]), &[]),
            "its nodes are given back"
        );
        let lives = ObjectMeta { deletion_timestamp: None, ..deleted(&["example.com/keep"]) };
        assert!(!is_settled(&lives, &[]));
    }

    #[test]
    fn another_version_does_not_lose_an_upgrade_its_turn() {
        let upgrade = |version: &str, done: Option<&str>| -> ClusterUpgrade {
            let object = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {"name": "up"},
                "spec": {"version": version, "mode": "Automatic", "controlPlane": {"executor": "x"}},
                "status": {"startTime": "2026-11-26T10:00:00Z", "completionTime": done,
                    "plan": {"hash": "", "from": "v1.36.4", "to": "v1.37.1"}}});
            serde_json::from_value(object).unwrap()
        };
        assert!(begun_since(&upgrade("v1.37.1", None)).is_some());
        assert!(begun_since(&upgrade("v1.37.2", None)).is_some(), "its nodes are half done");
        assert_eq!(begun_since(&upgrade("v1.37.2", Some("2026-11-26T11:00:00Z"))), None);
    }
}
