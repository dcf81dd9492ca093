//! The garbage collector: it deletes an object when the last of its owners is gone.
//!
//! Here belongs what follows from owner references; what a finalizer of somebody else does is not known here. The
//! invariant: an object with an owner that lives stays.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::model::{Model, ModelStep};
use super::objects::leaving;
use crate::api::{ApiState, Deletion};
use crate::store::Change;

/// Who owns what, as the watches told it.
#[derive(Default)]
pub(super) struct Garbage {
    /// The keys of an owner's objects, by its UID. Neither this nor `alive` is ever iterated, so their order does not
    /// matter.
    dependents: HashMap<Box<str>, BTreeSet<String>>,
    alive: HashSet<Box<str>>,
    /// UIDs of the objects that have a finalizer for what they own.
    waiting: BTreeSet<Box<str>>,
}

impl Model for Garbage {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn keys(&mut self, resource: &str, change: &Change, _: &ApiState) -> Vec<String> {
        // Events own nothing, and nobody owns them.
        if matches!(resource, "events") {
            return Vec::new();
        }
        let mut look = Vec::new();
        let uid = &change.record.uid;
        let same = change.before.as_ref().is_some_and(|before| before.owners == change.record.owners);
        if !change.deleted && same && !change.record.finalizes {
            return look;
        }
        let key = format!("{resource}|{}", change.record.key);
        if change.deleted {
            self.alive.remove(uid);
            self.waiting.remove(uid);
            for owner in &change.record.owners {
                if let Some(owned) = self.dependents.get_mut(owner) {
                    owned.remove(&key);
                    if owned.is_empty() {
                        self.dependents.remove(owner);
                    }
                }
                if self.waiting.contains(owner) {
                    look.push(format!("owner|{owner}"));
                }
            }
            look.extend(self.dependents.get(uid).into_iter().flatten().cloned());
            return look;
        }
        if change.before.is_none() {
            self.alive.insert(uid.clone());
        }
        if !same {
            for owner in &change.record.owners {
                self.dependents.entry(owner.clone()).or_default().insert(key.clone());
            }
            if !change.record.owners.is_empty() {
                look.push(key.clone());
            }
        }
        if change.record.finalizes {
            self.waiting.insert(uid.clone());
            look.push(key);
        }
        look
    }

    fn lag(&self) -> (u64, u64) {
        (5, 50)
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some((resource, name)) = key.split_once('|') else { return };
        if resource == "owner" {
            let found = world.state.store.shelves().find_map(|(resource, shelf)| {
                let record = shelf.live.values().find(|record| &*record.uid == name && record.finalizes)?;
                Some((resource.to_string(), record.key.to_string()))
            });
            if let Some((resource, key)) = found {
                self.finish(world, &resource, &key);
            }
            return;
        }
        self.finish(world, resource, name);
        let Some(record) = world.record(resource, name) else { return };
        let gone = |uid: &str| !self.alive.contains(uid);
        if record.owners.is_empty() || !record.owners.iter().any(|owner| gone(owner)) {
            return;
        }
        if record.owners.iter().all(|owner| gone(owner)) {
            let how = Deletion {
                uid: Some(record.uid.to_string()),
                propagation: Some("Background".into()),
                ..Deletion::default()
            };
            if !record.leaving && world.delete(resource, name, &how).is_err() {
                world.after(Duration::from_secs(1), key);
            }
        } else {
            let _ = world.change(resource, name, false, |object| {
                if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
                    owners.retain(|owner| owner["uid"].as_str().is_some_and(|uid| !gone(uid)));
                }
            });
        }
    }
}

impl Garbage {
    /// Does for an object that is being deleted what its finalizers ask for: orphans or deletes what it owns.
    fn finish(&mut self, world: &mut ModelStep<'_>, resource: &str, key: &str) {
        let Some(object) = world.record(resource, key).filter(|record| record.leaving) else { return };
        let object = object.value();
        let has = |name: &str| {
            object["metadata"]["finalizers"]
                .as_array()
                .is_some_and(|all| all.iter().any(|found| found == name))
        };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let owned: Vec<String> = self.dependents.get(uid.as_str()).into_iter().flatten().cloned().collect();
        let orphan = has("orphan");
        let foreground = has("foregroundDeletion");
        if !orphan && !foreground {
            return;
        }
        let mut blocking = false;
        for dependent in owned {
            let Some((resource, key)) = dependent.split_once('|') else { continue };
            if orphan {
                let _ = world.change(resource, key, false, |object| {
                    if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
                        owners.retain(|owner| owner["uid"] != uid.as_str());
                        if owners.is_empty()
                            && let Some(metadata) = object["metadata"].as_object_mut()
                        {
                            metadata.remove("ownerReferences");
                        }
                    }
                });
                if let Some(owned) = self.dependents.get_mut(uid.as_str()) {
                    owned.remove(&dependent);
                }
                continue;
            }
            let Some(object) = world.get(resource, key) else { continue };
            let owners = object["metadata"]["ownerReferences"].as_array();
            blocking |= owners
                .into_iter()
                .flatten()
                .any(|owner| owner["uid"] == uid.as_str() && owner["blockOwnerDeletion"] == true);
            if !leaving(&object) {
                let how = Deletion { propagation: Some("Foreground".into()), ..Deletion::default() };
                let _ = world.delete(resource, key, &how);
            }
        }
        if blocking {
            return;
        }
        let _ = world.change(resource, key, false, |object| {
            if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|found| found != "orphan" && found != "foregroundDeletion");
            }
        });
    }
}
