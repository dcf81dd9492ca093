//! `delete`: at once, or when grace and finalizers allow.
//!
//! Here belongs when an object is gone; what its owner's end does to it is the garbage model's. The invariant: an
//! object with a finalizer stays.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::Value;

use super::super::kinds::Kind;
use super::super::state::ApiState;
use super::super::status::{Failure, Named, Outcome, success};
use super::{Deletion, same};
use crate::clock;
use crate::record::Record;

impl ApiState {
    /// Deletes an object, at once or when its grace and finalizers allow.
    pub(crate) fn delete(&mut self, kind: &Arc<Kind>, key: &str, how: &Deletion) -> Outcome<Arc<Value>> {
        let name = key.rsplit('/').next().unwrap_or(key).to_owned();
        let named = kind.named(&name);
        let before = self.store.get(&kind.resource, key).cloned().ok_or_else(|| Failure::not_found(named))?;
        check_preconditions(kind.typed(&name), &before, how)?;
        let old = kind.seen(&before);
        let mut object = Value::clone(&old);
        let pod = kind.kind == "Pod";
        let grace = if pod { grace(&object, how) } else { 0 };
        let leaving = object["metadata"].get("deletionTimestamp").is_some();
        if leaving && pod && is_no_sooner(&object, how, grace) {
            return Ok(old);
        }
        let finalizers = finalizers(kind, &object, how);
        let waits = !finalizers.is_empty()
            || kind.kind == "Namespace"
                && object["spec"]["finalizers"].as_array().is_some_and(|left| !left.is_empty());
        if how.dry_run {
            return Ok(self.gone(kind, object, &before));
        }
        if waits || grace > 0 {
            let metadata = &mut object["metadata"];
            if finalizers.is_empty() {
                drop(metadata.as_object_mut().map(|metadata| metadata.remove("finalizers")));
            } else {
                metadata["finalizers"] = finalizers.into();
            }
            self.mark(metadata, grace);
            if kind.kind == "Namespace" {
                object["status"]["phase"] = "Terminating".into();
            }
            return Ok(if same(&old, &object) { old } else { self.put(kind, key, object) });
        }
        if pod {
            let now = self.now();
            let metadata = &mut object["metadata"];
            metadata["deletionTimestamp"] = now.into();
            metadata["deletionGracePeriodSeconds"] = 0.into();
            if let Some(generation) = metadata["generation"].as_i64().filter(|_| !leaving) {
                metadata["generation"] = (generation + 1).into();
            }
        }
        if let Some(gone) = self.remove(kind, key) {
            object["metadata"]["resourceVersion"] = gone.revision.to_string().into();
        }
        Ok(self.gone(kind, object, &before))
    }

    /// Says that an object is being deleted, and by when. What it says already can only become sooner.
    fn mark(&self, metadata: &mut Value, grace: i64) {
        let leaving = metadata.get("deletionTimestamp").is_some();
        let sooner = metadata["deletionGracePeriodSeconds"].as_i64().is_none_or(|left| grace < left);
        if leaving && !sooner {
            return;
        }
        let end = self.clock.now() + SignedDuration::from_secs(grace);
        metadata["deletionTimestamp"] = clock::seconds(end).into();
        metadata["deletionGracePeriodSeconds"] = grace.into();
        if let Some(generation) =
            metadata["generation"].as_i64().filter(|generation| *generation > 0 && !leaving)
        {
            metadata["generation"] = (generation + 1).into();
        }
    }

    fn gone(&self, kind: &Kind, object: Value, before: &Record) -> Arc<Value> {
        Arc::new(if kind.shows_deleted { object } else { success(kind.named(before.name()), &before.uid) })
    }
}

/// Refuses to delete another object, or another version of it, than was asked for.
fn check_preconditions(named: Named<'_>, before: &Record, how: &Deletion) -> Outcome<()> {
    if let Some(uid) = how.uid.as_deref().filter(|uid| *uid != &*before.uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            before.uid
        );
        return Err(Failure::conflict(named, why));
    }
    if let Some(revision) =
        how.revision.as_deref().filter(|revision| *revision != before.revision.to_string())
    {
        let why = format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            before.revision
        );
        return Err(Failure::conflict(named, why));
    }
    Ok(())
}

/// How many seconds a pod has to end.
fn grace(pod: &Value, how: &Deletion) -> i64 {
    let unborn = pod["spec"]["nodeName"].is_null()
        || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let wanted = how.grace.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
    if unborn {
        0
    } else if wanted < 0 {
        1
    } else {
        wanted
    }
}

/// Whether a pod that is being deleted ends no sooner by another deletion, which can only shorten the grace period.
fn is_no_sooner(pod: &Value, how: &Deletion, grace: i64) -> bool {
    let left = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    how.grace.is_none_or(|grace| grace >= left) && grace > 0 && left > 0 || left == 0 && grace > 0
}

/// The finalizers of an object that is being deleted: what becomes of its dependents is one of them.
fn finalizers(kind: &Kind, object: &Value, how: &Deletion) -> Vec<Value> {
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    // The pods of a ReplicationController are orphaned unless the request says otherwise.
    let default = (kind.kind == "ReplicationController").then_some("Orphan");
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        let wanted = how.propagation.as_deref().or(default) == Some(policy);
        let at = finalizers.iter().position(|found| found == finalizer);
        match at {
            None if wanted => finalizers.push(finalizer.into()),
            Some(at) if !wanted && how.propagation.is_some() => drop(finalizers.remove(at)),
            _ => {}
        }
    }
    finalizers
}
