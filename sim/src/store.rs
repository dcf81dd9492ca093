//! What etcd is in a real cluster: every object as text under its key, one revision counter, and what changed since the
//! last compaction.
//!
//! What an object means never belongs here. The invariants: every write takes the next revision; the log of a kind is
//! in the order of revisions and has no gap after the compacted one; a record that was handed out never changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::by_key::Live;
use crate::index::PodIndex;
use crate::journal::Journal;
pub(crate) use crate::journal::WriteObserver;
pub(crate) use crate::kind_history::Change;
use crate::kind_history::Shelf;
use crate::labels::{LabelSelector, Labels};
use crate::record::Record;
use crate::signal::Waiter;

const PODS: &str = "pods";
/// How many of the objects that were written last are kept as values. All others are kept as text, which is a tenth of
/// the size.
const WARM: usize = 32;

/// Every object of the cluster.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    compacted: u64,
    shelves: BTreeMap<Arc<str>, Shelf>,
    labels: BTreeMap<Labels, Arc<Labels>>,
    nodes: BTreeMap<Box<str>, Arc<str>>,
    pods: PodIndex,
    journal: Journal,
    /// The objects that were written last, the latest at the end. As long as an object is here, its record need not
    /// read its text.
    warm: VecDeque<Arc<Value>>,
    /// Room for a text that is being written.
    scratch: Vec<u8>,
}

impl Store {
    /// An empty store. With `hashed`, every write goes into a hash of the whole history.
    pub(crate) fn new(hashed: bool) -> Self {
        Self {
            revision: 1,
            compacted: 0,
            shelves: BTreeMap::new(),
            labels: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: PodIndex::default(),
            journal: Journal::new(hashed),
            warm: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Names the program that makes the next writes.
    pub(crate) fn authored_by(&mut self, author: &str) {
        self.journal.authored_by(author);
    }

    /// Tells every write from now on.
    pub(crate) fn observe(&mut self, observer: WriteObserver) {
        self.journal.observe(observer);
    }

    /// The last revision.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision of the last compaction: what was before it is forgotten.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// The hash of everything that was ever written, in order.
    pub(crate) fn hash(&self) -> Option<u64> {
        self.journal.hash()
    }

    /// A receiver that is told of every write, except heartbeats.
    pub(crate) fn changes(&self) -> Waiter {
        self.journal.changes()
    }

    pub(crate) fn shelf(&self, resource: &str) -> Option<&Shelf> {
        self.shelves.get(resource)
    }

    pub(crate) fn shelves(&self) -> impl Iterator<Item = (&Arc<str>, &Shelf)> {
        self.shelves.iter()
    }

    /// A receiver that is told of every write of that kind.
    pub(crate) fn subscribe(&mut self, resource: &str) -> Waiter {
        shelf_of(&mut self.shelves, resource).wake.subscribe()
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<&Arc<Record>> {
        self.shelves.get(resource)?.live.get(key)
    }

    /// All objects of a kind in a namespace; with an empty namespace, all there are.
    pub(crate) fn within<'a>(
        &'a self,
        resource: &str,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Arc<Record>> + use<'a> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let all = self.shelf(resource).map(|shelf| shelf.live.from(&prefix));
        all.into_iter().flatten().take_while(move |record| record.key.starts_with(&prefix))
    }

    /// The pods of a node, found by the index.
    pub(crate) fn pods_of(&self, node: &str) -> Vec<Arc<Record>> {
        self.pods.on_node(node).cloned().collect()
    }

    /// The pods of an owner, found by the index.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.pods.owned_by(uid)
    }

    /// The pods of a namespace that no controller owns.
    pub(crate) fn loose_pods(&self, namespace: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.pods.loose(namespace)
    }

    /// The pods of a namespace that a selector selects, without looking at each.
    pub(crate) fn labeled_pods(&self, namespace: &str, such: &LabelSelector) -> Vec<Arc<Record>> {
        self.pods.labeled(namespace, such)
    }

    /// Writes an object under its key and gives it the next revision.
    pub(crate) fn put(&mut self, resource: &str, key: &str, object: Value, quiet: bool) -> Arc<Record> {
        self.revision += 1;
        let known = self.get(resource, key).map(|before| before.labels.clone());
        let record = self.record(key, object, known);
        let shelf = shelf_of(&mut self.shelves, resource);
        let before = shelf.live.insert(record.clone());
        if resource == PODS {
            self.pods.written(before.as_deref(), Some(&record));
        }
        let revision = record.revision;
        self.journal.log(shelf, Change { revision, before, record: record.clone(), deleted: false, quiet });
        record
    }

    /// Puts into `news` what was written since the last call, in order. `news` has to be empty: its memory is used for
    /// the writes from now on.
    pub(crate) fn news(&mut self, news: &mut Vec<(Arc<str>, Change)>) {
        self.journal.news(news);
    }

    /// Writes a heartbeat of an object. `None`, and nothing is written, if there is no such object or it has no
    /// heartbeats.
    pub(crate) fn beat(&mut self, resource: &str, key: &str, time: Timestamp) -> Option<()> {
        let revision = self.revision + 1;
        let shelf = self.shelves.get_mut(resource)?;
        let live = shelf.live.get_mut(key)?;
        let record = Arc::new(live.beat(revision, time)?);
        let before = std::mem::replace(live, record.clone());
        self.revision = revision;
        let change = Change { revision, before: Some(before), record, deleted: false, quiet: true };
        self.journal.log(shelf, change);
        Some(())
    }

    /// Takes an object away. Returns the object as it was, with the revision of its deletion.
    pub(crate) fn remove(&mut self, resource: &str, key: &str) -> Option<Arc<Record>> {
        let before = self.shelves.get_mut(resource)?.live.remove(key)?;
        if resource == PODS {
            self.pods.written(Some(&before), None);
        }
        self.revision += 1;
        let record = self.record(key, before.copy(), Some(before.labels.clone()));
        let change = Change {
            revision: record.revision,
            before: Some(before),
            record: record.clone(),
            deleted: true,
            quiet: false,
        };
        self.journal.log(shelf_of(&mut self.shelves, resource), change);
        Some(record)
    }

    /// The record of `object` at the present revision. `known` are the labels that the object had before; mostly it
    /// still has them.
    fn record(&mut self, key: &str, mut object: Value, known: Option<Arc<Labels>>) -> Arc<Record> {
        let revision = self.revision;
        let node = object["spec"]["nodeName"].as_str().map(|name| {
            if let Some(shared) = self.nodes.get(name) {
                return shared.clone();
            }
            let shared: Arc<str> = name.into();
            self.nodes.insert(name.into(), shared.clone());
            shared
        });
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = Value::String(revision.to_string());
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
        let same = |known: &Arc<Labels>| {
            let counts = known.len() == labels.clone().count();
            counts && labels.clone().all(|(key, value)| known.get(key).is_some_and(|is| is == value))
        };
        let labels = known.filter(same).unwrap_or_else(|| {
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            shared(&mut self.labels, labels)
        });
        self.scratch.clear();
        let written = serde_json::to_writer(&mut self.scratch, &object).is_ok();
        let text = std::str::from_utf8(&self.scratch).ok().filter(|_| written);
        // Writing JSON into memory does not fail; if it did, this makes the same text in another way.
        let text = text.map_or_else(|| object.to_string().into(), Arc::from);
        let object = Arc::new(object);
        let record = Record::new(key, revision, &object, text, labels, node);
        self.warm.push_back(object);
        if self.warm.len() > WARM {
            self.warm.pop_front();
        }
        Arc::new(record)
    }

    /// Forgets what was before a revision: nobody can list or watch from there any more.
    pub(crate) fn compact(&mut self, revision: u64) {
        let revision = revision.min(self.revision);
        if revision <= self.compacted {
            return;
        }
        self.compacted = revision;
        for shelf in self.shelves.values_mut() {
            while shelf.log.front().is_some_and(|change| change.revision <= revision) {
                shelf.log.pop_front();
            }
        }
        // What no object carries any more would grow for ever.
        if self.labels.len() > 4096 {
            self.labels.retain(|_, shared| Arc::strong_count(shared) > 1);
        }
        if self.nodes.len() > 16_384 {
            self.nodes.retain(|_, shared| Arc::strong_count(shared) > 1);
        }
    }

    /// The objects of a kind as they were at a revision that is not compacted, in the order of their keys.
    pub(crate) fn at(&self, resource: &str, revision: u64) -> Live {
        let Some(shelf) = self.shelves.get(resource) else { return Live::default() };
        let mut then = shelf.live.clone();
        for change in shelf.log.iter().rev().take_while(|change| change.revision > revision) {
            match &change.before {
                Some(before) => then.insert(before.clone()),
                None => then.remove(&change.record.key),
            };
        }
        then
    }
}

fn shelf_of<'a>(shelves: &'a mut BTreeMap<Arc<str>, Shelf>, resource: &str) -> &'a mut Shelf {
    // The map's own entry would need the name as it is kept, a new one at each write.
    let resource: Arc<str> =
        shelves.get(resource).map_or_else(|| resource.into(), |shelf| shelf.resource.clone());
    shelves.entry(resource).or_insert_with_key(|resource| Shelf::new(resource.clone()))
}

/// The one shared copy of these labels.
fn shared(all: &mut BTreeMap<Labels, Arc<Labels>>, labels: Labels) -> Arc<Labels> {
    if let Some(shared) = all.get(&labels) {
        return shared.clone();
    }
    let shared = Arc::new(labels.clone());
    all.insert(labels, shared.clone());
    shared
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_heartbeat_is_a_version_like_any_other() {
        let mut store = Store::new(false);
        let mut lease =
            json!({"metadata": {"name": "n"}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
        store.put("leases", "n", lease.clone(), false);
        let time = "2026-01-01T00:00:10Z".parse().unwrap();
        store.beat("leases", "n", time).unwrap();
        let revision = store.revision();
        lease["metadata"]["resourceVersion"] = revision.to_string().into();
        lease["spec"]["renewTime"] = "2026-01-01T00:00:10.000000Z".into();
        assert_eq!(*store.get("leases", "n").unwrap().value(), lease);
        let first = store.at("leases", revision - 1).remove("n").unwrap();
        assert_eq!(first.value()["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z", "the version before");
        assert!(store.shelf("leases").unwrap().log.back().unwrap().quiet);

        store.put("configmaps", "c", json!({"metadata": {"name": "c"}}), false);
        for (resource, key) in [("configmaps", "c"), ("leases", "another"), ("pods", "n")] {
            assert!(store.beat(resource, key, time).is_none());
        }
        assert_eq!(store.revision(), revision + 1, "of what has none nothing is written");
    }
}
