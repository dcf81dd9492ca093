//! Namespaces: what each gets when it is created, and how it is emptied before it goes.
//!
//! Here belongs a namespace and what is in it as a whole; how one object goes is `write`'s. The invariant: a namespace
//! goes when nothing is left in it.

use std::time::Duration;

use serde_json::json;

use super::model::{Model, ModelStep};
use super::objects::leaving;
use crate::api::{ApiState, Deletion};
use crate::store::Change;

/// The namespace controller, with the service account and root CA publishers.
pub(super) struct Namespaces;

impl Model for Namespaces {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn keys(&mut self, resource: &str, change: &Change, _: &ApiState) -> Vec<String> {
        match resource {
            "namespaces" if !change.deleted => vec![change.record.key.to_string()],
            "serviceaccounts" if change.deleted => vec![change.record.namespace().to_owned()],
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(namespace) = world.get("namespaces", key) else { return };
        if !leaving(&namespace) {
            let account = json!({"metadata": {"name": "default"}});
            let root = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}});
            // Both may be there already.
            let _ = world.create("serviceaccounts", Some(key), account);
            let _ = world.create("configmaps", Some(key), root);
            return;
        }
        let resources: Vec<_> = world
            .state
            .kinds
            .resources()
            .filter(|kind| kind.namespaced)
            .map(|kind| kind.resource.clone())
            .collect();
        let mut left = 0;
        for resource in resources {
            for record in world.list(&resource, key) {
                left += 1;
                if !leaving(&record.value()) {
                    let _ = world.delete(&resource, &record.key, &Deletion::default());
                }
            }
        }
        if left > 0 {
            world.after(Duration::from_millis(500), key);
            return;
        }
        let _ = world.change("namespaces", key, false, |namespace| {
            if let Some(spec) = namespace["spec"].as_object_mut() {
                spec.remove("finalizers");
            }
        });
    }
}
