//! `delete`: at once, or when grace and finalizers allow.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::Value;

use super::super::State;
use super::super::kinds::Kind;
use super::super::status::{Failure, Outcome, success};
use super::{Deletion, same};
use crate::clock;
use crate::record::Record;

impl State {
    /// Deletes an object, at once or when its grace and finalizers allow.
    pub(crate) fn delete(&mut self, kind: &Arc<Kind>, key: &str, how: &Deletion) -> Outcome<Arc<Value>> {
        let name = key.rsplit('/').next().unwrap_or(key).to_owned();
        let named = kind.named(&name);
        let before = self.store.get(&kind.resource, key).cloned().ok_or_else(|| Failure::not_found(named))?;
        if let Some(uid) = how.uid.as_deref().filter(|uid| *uid != &*before.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                before.uid
            );
            return Err(Failure::conflict(kind.typed(&name), why));
        }
        if let Some(revision) =
            how.revision.as_deref().filter(|revision| *revision != before.revision.to_string())
        {
            let why = format!(
                "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). \
                 The object might have been modified",
                before.revision
            );
            return Err(Failure::conflict(kind.typed(&name), why));
        }
        let old = kind.seen(&before);
        let mut object = Value::clone(&old);
        let pod = kind.kind == "Pod";
        let grace = if pod {
            let unborn = object["spec"]["nodeName"].is_null()
                || matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let wanted =
                how.grace.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
            if unborn {
                0
            } else if wanted < 0 {
                1
            } else {
                wanted
            }
        } else {
            0
        };
        let metadata = &mut object["metadata"];
        let leaving = metadata.get("deletionTimestamp").is_some();
        if leaving && pod {
            let left = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            // A second deletion can only shorten the grace period.
            if how.grace.is_none_or(|grace| grace >= left) && grace > 0 && left > 0 || left == 0 && grace > 0
            {
                return Ok(old);
            }
        }
        let mut finalizers: Vec<Value> = metadata["finalizers"].as_array().cloned().unwrap_or_default();
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
            let sooner = metadata["deletionGracePeriodSeconds"].as_i64().is_none_or(|left| grace < left);
            if !leaving || sooner {
                let end = self.clock.now() + SignedDuration::from_secs(grace);
                metadata["deletionTimestamp"] = clock::seconds(end).into();
                metadata["deletionGracePeriodSeconds"] = grace.into();
                if let Some(generation) =
                    metadata["generation"].as_i64().filter(|generation| *generation > 0 && !leaving)
                {
                    metadata["generation"] = (generation + 1).into();
                }
            }
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

    fn gone(&self, kind: &Kind, object: Value, before: &Record) -> Arc<Value> {
        Arc::new(if kind.shows_deleted { object } else { success(kind.named(before.name()), &before.uid) })
    }
}
