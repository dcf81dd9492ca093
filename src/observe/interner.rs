//! Values that many objects share, each held once: texts, label sets, the owner of a workload's pods.
//!
//! What the values mean does not belong here. The invariant: a value that no object uses any more is forgotten at
//! the next sweep, so that the memory follows what exists.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use evenkeel_core::cluster::{Owner, Traits};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The values that are shared.
#[derive(Debug, Default)]
pub struct Interner {
    texts: HashSet<Arc<str>>,
    labels: HashSet<Arc<BTreeMap<String, String>>>,
    owners: HashSet<Arc<Owner>>,
    traits: HashSet<Arc<Traits>>,
    /// The number of values at which the next sweep is due.
    limit: usize,
    detail: Detail,
}

/// How much of an object is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Everything that some decision reads.
    #[default]
    Decisions,
    /// What a report shows. A report selects no node by label, so the label `kubernetes.io/hostname`, which differs
    /// on every node, is left out. Then all nodes of a pool share one label set; otherwise label sets would take a
    /// third of the program's memory.
    Report,
}

/// The copy in `set` of what is equal to `value`; `share` makes it where there is none.
fn shared<T, Q>(set: &mut HashSet<Arc<T>>, value: Q, share: impl FnOnce(Q) -> Arc<T>) -> Arc<T>
where
    T: Hash + Eq + ?Sized,
    Q: Borrow<T>,
{
    if let Some(shared) = set.get(value.borrow()) {
        return Arc::clone(shared);
    }
    let shared = share(value);
    set.insert(Arc::clone(&shared));
    shared
}

impl Interner {
    /// An empty interner for objects of which as much is kept as `detail` says.
    pub fn new(detail: Detail) -> Self {
        Self { detail, ..Self::default() }
    }

    /// How much of an object is wanted.
    pub fn detail(&self) -> Detail {
        self.detail
    }

    /// The shared copy of `text`.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        self.sweep_if_grown();
        shared(&mut self.texts, text, Arc::from)
    }

    /// The shared copy of a label set: the pods of one workload have the same.
    pub fn labels(&mut self, labels: BTreeMap<String, String>) -> Arc<BTreeMap<String, String>> {
        self.sweep_if_grown();
        shared(&mut self.labels, labels, Arc::new)
    }

    /// The shared copy of what `reference` names: the pods of one workload have the same.
    pub fn owner(&mut self, reference: &OwnerReference) -> Arc<Owner> {
        self.sweep_if_grown();
        let OwnerReference { api_version, kind, name, uid, .. } = reference;
        let owner = Owner {
            api_version: shared(&mut self.texts, api_version.as_str(), Arc::from),
            kind: shared(&mut self.texts, kind.as_str(), Arc::from),
            name: name.as_str().into(),
            uid: uid.as_str().into(),
        };
        shared(&mut self.owners, owner, Arc::new)
    }

    /// The shared copy of traits: the pods of one workload have the same, unless each has a volume of its own.
    pub fn traits(&mut self, traits: Traits) -> Arc<Traits> {
        self.sweep_if_grown();
        shared(&mut self.traits, traits, Arc::new)
    }

    /// Sweeps when there are twice as many values as after the last sweep: pods come and go for months without a new
    /// list.
    fn sweep_if_grown(&mut self) {
        if self.len() >= self.limit {
            self.sweep();
        }
    }

    /// Forgets what no object uses any more.
    pub fn sweep(&mut self) {
        self.traits.retain(|shared| Arc::strong_count(shared) > 1);
        self.owners.retain(|shared| Arc::strong_count(shared) > 1);
        self.labels.retain(|shared| Arc::strong_count(shared) > 1);
        self.texts.retain(|shared| Arc::strong_count(shared) > 1);
        self.limit = 2 * self.len().max(512);
    }

    fn len(&self) -> usize {
        self.texts.len() + self.labels.len() + self.owners.len() + self.traits.len()
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.len()
    }
}
