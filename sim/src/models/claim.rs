//! Adopting and releasing: a controller adopts an object that it selects and nobody controls, and releases an object
//! that it controls and does not select.
//!
//! The source is `pkg/controller/controller_ref_manager.go`. The invariants: an object that another controls is not
//! touched; an object that is being deleted is not adopted.

use std::sync::Arc;

use serde_json::{Value, json};

use super::model::ModelStep;
use super::objects::{leaving, owned_by};
use crate::api::ApiState;
use crate::labels::Labels;
use crate::record::Record;
use crate::store::Change;

/// Adopts and releases objects for `owner`; only objects that `may` be its own are adopted.
pub(super) fn claim(world: &mut ModelStep<'_>, resource: &str, owner: &Value, may: impl Fn(&Record) -> bool) {
    let text = |name: &str| owner["metadata"][name].as_str().unwrap_or_default();
    let (namespace, uid) = (text("namespace"), text("uid"));
    let Some(selector) = crate::record::selector(owner) else { return };
    if leaving(owner) || selector.is_empty() {
        return;
    }
    // Most objects have the same labels as the one before.
    let mut last: Option<(Arc<Labels>, bool)> = None;
    let mut selects = |labels: &Arc<Labels>| match &last {
        Some((known, selected)) if Arc::ptr_eq(known, labels) => *selected,
        _ => {
            let selected = selector.matches(labels);
            last = Some((labels.clone(), selected));
            selected
        }
    };
    let wrong = |record: &&Arc<Record>| match &record.controller {
        None => !record.leaving && selects(&record.labels) && may(record),
        Some(of) => !selects(&record.labels) && &*of.uid == uid,
    };
    let mut found: Vec<Arc<Record>> = if resource == "pods" {
        let pods = &world.state.store;
        pods.owned_by(uid).chain(pods.loose_pods(namespace)).filter(wrong).cloned().collect()
    } else {
        world.each(resource, namespace).filter(wrong).cloned().collect()
    };
    found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    for record in found {
        // If the object has changed meanwhile, that change brings the controller here again.
        let _ = world.change(resource, &record.key, false, |object| {
            let owners = &mut object["metadata"]["ownerReferences"];
            if !owners.is_array() {
                *owners = json!([]);
            }
            let Some(list) = owners.as_array_mut() else { return };
            if record.controller.is_some() {
                list.retain(|of| of["uid"] != uid);
            } else {
                list.extend(owned_by(owner).as_array().cloned().unwrap_or_default());
            }
            if list.is_empty()
                && let Some(metadata) = object["metadata"].as_object_mut()
            {
                metadata.remove("ownerReferences");
            }
        });
    }
}

/// Which of `sets`, of this kind, a changed object concerns: those that control it or did so, and those that may adopt
/// it.
pub(super) fn keys(change: &Change, kind: &str, sets: &str, state: &ApiState) -> Vec<String> {
    let namespace = change.record.namespace();
    let versions = || std::iter::once(&change.record).chain(&change.before);
    let controllers = versions().filter_map(|record| record.controller.as_ref());
    let mut keys: Vec<String> = controllers
        .filter(|owner| &*owner.kind == kind)
        .map(|owner| format!("{namespace}/{}", owner.name))
        .collect();
    keys.dedup();
    if change.record.controller.is_none() && !change.deleted {
        let selects = |set: &Arc<Record>| {
            let selector = set.selector.as_ref();
            selector.is_some_and(|selector| !selector.is_empty() && selector.matches(&change.record.labels))
        };
        let here = state.store.within(sets, namespace).filter(|set| selects(set));
        keys.extend(here.map(|set| set.key.to_string()));
    }
    keys
}
