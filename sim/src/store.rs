//! What etcd is in a real cluster: every object as text under its key, one revision counter, and what changed since the
//! last compaction.
//!
//! Never here: what an object means. Invariants: every write takes the next revision; the log of a kind is in the order
//! of revisions and has no gap after the compacted one; a record that was handed out never changes.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use crate::index::PodIndex;
use crate::record::{Labels, Record};

const PODS: &str = "pods";

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// What the object was before; `None` when it was created.
    pub(crate) before: Option<Arc<Record>>,
    /// What it is now; of a deletion, what it was, with the deletion's revision.
    pub(crate) record: Arc<Record>,
    pub(crate) deleted: bool,
    /// A heartbeat: nothing that anybody decides by is different.
    pub(crate) quiet: bool,
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Shelf {
    resource: Arc<str>,
    pub(crate) live: BTreeMap<Arc<str>, Arc<Record>>,
    pub(crate) log: VecDeque<Change>,
    wake: watch::Sender<u64>,
}

impl Shelf {
    fn new(resource: Arc<str>) -> Self {
        Self { resource, live: BTreeMap::new(), log: VecDeque::new(), wake: watch::Sender::new(0) }
    }
}

/// Who is told of every write.
pub(crate) struct Observer(pub(crate) Box<dyn FnMut(&str, &Change, &str) + Send>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// Every object of the cluster.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    compacted: u64,
    shelves: BTreeMap<Arc<str>, Shelf>,
    labels: BTreeMap<Labels, Arc<Labels>>,
    nodes: BTreeMap<Box<str>, Arc<str>>,
    pods: PodIndex,
    hash: Option<u64>,
    /// What was written since the models were last told.
    news: Vec<(Arc<str>, Change)>,
    any: watch::Sender<u64>,
    /// Who writes now.
    author: Cow<'static, str>,
    observers: Vec<Observer>,
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
            hash: hashed.then_some(0x9e37_79b9_7f4a_7c15),
            news: Vec::new(),
            any: watch::Sender::new(1),
            author: Cow::Borrowed(""),
            observers: Vec::new(),
        }
    }

    /// What is written from now on is this program's work.
    pub(crate) fn authored_by(&mut self, author: &str) {
        if self.author != author {
            self.author = Cow::Owned(author.to_owned());
        }
    }

    /// Tells every write from now on.
    pub(crate) fn observe(&mut self, observer: Observer) {
        self.observers.push(observer);
    }

    /// The last revision.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Revisions before this one are forgotten.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// The hash of everything that was ever written, in order.
    pub(crate) fn hash(&self) -> Option<u64> {
        self.hash
    }

    /// Told whenever anything is written.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.any.subscribe()
    }

    pub(crate) fn shelf(&self, resource: &str) -> Option<&Shelf> {
        self.shelves.get(resource)
    }

    pub(crate) fn shelves(&self) -> impl Iterator<Item = (&Arc<str>, &Shelf)> {
        self.shelves.iter()
    }

    /// Told whenever something of that kind is written.
    pub(crate) fn subscribe(&mut self, resource: &str) -> watch::Receiver<u64> {
        self.shelf_mut(resource).wake.subscribe()
    }

    fn shelf_mut(&mut self, resource: &str) -> &mut Shelf {
        // The map's own entry would need the name as it is kept, a new one at each write.
        let resource: Arc<str> =
            self.shelves.get(resource).map_or_else(|| resource.into(), |shelf| shelf.resource.clone());
        self.shelves.entry(resource).or_insert_with_key(|resource| Shelf::new(resource.clone()))
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<&Arc<Record>> {
        self.shelves.get(resource)?.live.get(key)
    }

    /// All objects of a kind in a namespace; with an empty namespace, all there are.
    pub(crate) fn within(&self, resource: &str, namespace: &str) -> impl Iterator<Item = &Arc<Record>> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let from = (Bound::Included(prefix.clone()), Bound::Unbounded);
        let shelf = self.shelf(resource).into_iter();
        shelf
            .flat_map(move |shelf| {
                let from = (from.0.as_ref().map(String::as_str), from.1.as_ref().map(String::as_str));
                shelf.live.range::<str, _>(from)
            })
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(_, record)| record)
    }

    /// The pods of a node, without looking at those of any other.
    pub(crate) fn pods_of(&self, node: &str) -> Vec<Arc<Record>> {
        self.pods.on_node(node).cloned().collect()
    }

    /// The pods of an owner, without looking at those of any other.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.pods.owned_by(uid)
    }

    /// The pods of a namespace that nobody controls.
    pub(crate) fn loose_pods(&self, namespace: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.pods.loose(namespace)
    }

    /// The pods of a namespace whose labels are such, without looking at each.
    pub(crate) fn labeled_pods(&self, namespace: &str, such: impl Fn(&Labels) -> bool) -> Vec<Arc<Record>> {
        self.pods.labeled(namespace, such)
    }

    /// Writes an object under its key and gives it the next revision, which `object` then carries.
    pub(crate) fn put(&mut self, resource: &str, key: &str, object: &mut Value, quiet: bool) -> Arc<Record> {
        self.revision += 1;
        let known = self.get(resource, key).map(|before| before.labels.clone());
        let record = self.record(key, object, known);
        let shelf = self.shelf_mut(resource);
        let before = shelf.live.insert(record.key.clone(), record.clone());
        if resource == PODS {
            self.pods.written(before.as_deref(), Some(&record));
        }
        self.log(
            resource,
            Change { revision: record.revision, before, record: record.clone(), deleted: false, quiet },
        );
        record
    }

    /// What was written since the last call, in order; `news` is empty, and its room is used from now on.
    pub(crate) fn news(&mut self, news: &mut Vec<(Arc<str>, Change)>) {
        std::mem::swap(&mut self.news, news);
    }

    /// Writes a heartbeat of an object: thousands of them a second are most of what happens in a big cluster at rest. `None`,
    /// and nothing written, if there is no such object or it has none.
    pub(crate) fn beat(&mut self, resource: &str, key: &str, time: Timestamp) -> Option<()> {
        let revision = self.revision + 1;
        let live = self.shelves.get_mut(resource)?.live.get_mut(key)?;
        let record = Arc::new(live.beat(revision, time)?);
        let before = std::mem::replace(live, record.clone());
        self.revision = revision;
        self.log(resource, Change { revision, before: Some(before), record, deleted: false, quiet: true });
        Some(())
    }

    /// Takes an object away; what it was, with the revision of its end.
    pub(crate) fn remove(&mut self, resource: &str, key: &str) -> Option<Arc<Record>> {
        let before = self.shelves.get_mut(resource)?.live.remove(key)?;
        if resource == PODS {
            self.pods.written(Some(&before), None);
        }
        self.revision += 1;
        let mut object = before.value();
        let record = self.record(key, &mut object, Some(before.labels.clone()));
        let change = Change {
            revision: record.revision,
            before: Some(before),
            record: record.clone(),
            deleted: true,
            quiet: false,
        };
        self.log(resource, change);
        Some(record)
    }

    /// `known` are the labels that it had, which it mostly still has.
    fn record(&mut self, key: &str, object: &mut Value, known: Option<Arc<Labels>>) -> Arc<Record> {
        let revision = self.revision;
        let node = object.pointer("/spec/nodeName").and_then(Value::as_str).map(|name| {
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
        Arc::new(Record::new(key, revision, object, labels, node))
    }

    fn log(&mut self, resource: &str, change: Change) {
        if let Some(hash) = &mut self.hash {
            for chunk in [resource.as_bytes(), change.record.key.as_bytes(), &[u8::from(change.deleted)]] {
                mix(hash, chunk);
            }
            mix(hash, change.record.text().as_bytes());
        }
        let revision = change.revision;
        for observer in &mut self.observers {
            (observer.0)(resource, &change, &self.author);
        }
        let shelf = self.shelf_mut(resource);
        let name = shelf.resource.clone();
        shelf.log.push_back(change.clone());
        if shelf.wake.receiver_count() > 0 {
            shelf.wake.send_replace(revision);
        }
        let quiet = change.quiet;
        self.news.push((name, change));
        // Models alone write heartbeats, and whoever drives them looks for news after each step.
        if !quiet {
            self.any.send_replace(revision);
        }
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
    pub(crate) fn at(&self, resource: &str, revision: u64) -> BTreeMap<Arc<str>, Arc<Record>> {
        let Some(shelf) = self.shelves.get(resource) else { return BTreeMap::new() };
        let mut then = shelf.live.clone();
        for change in shelf.log.iter().rev().take_while(|change| change.revision > revision) {
            match &change.before {
                Some(before) => then.insert(before.key.clone(), before.clone()),
                None => then.remove(&change.record.key),
            };
        }
        then
    }
}

/// The one copy of such labels.
fn shared(all: &mut BTreeMap<Labels, Arc<Labels>>, labels: Labels) -> Arc<Labels> {
    if let Some(shared) = all.get(&labels) {
        return shared.clone();
    }
    let shared = Arc::new(labels.clone());
    all.insert(labels, shared.clone());
    shared
}

/// Eight bytes at a time, multiplied and rotated: made to notice a difference, not to resist an attacker.
fn mix(hash: &mut u64, bytes: &[u8]) {
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        *hash = (*hash ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    }
    *hash = hash.wrapping_add(bytes.len() as u64).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
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
        store.put("leases", "n", &mut lease, false);
        let time = "2026-01-01T00:00:10Z".parse().unwrap();
        store.beat("leases", "n", time).unwrap();
        let revision = store.revision();
        lease["metadata"]["resourceVersion"] = revision.to_string().into();
        lease["spec"]["renewTime"] = "2026-01-01T00:00:10.000000Z".into();
        assert_eq!(store.get("leases", "n").unwrap().value(), lease);
        let first = store.at("leases", revision - 1).remove("n").unwrap();
        assert_eq!(first.value()["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z", "the version before");
        assert!(store.shelf("leases").unwrap().log.back().unwrap().quiet);

        store.put("configmaps", "c", &mut json!({"metadata": {"name": "c"}}), false);
        for (resource, key) in [("configmaps", "c"), ("leases", "another"), ("pods", "n")] {
            assert!(store.beat(resource, key, time).is_none());
        }
        assert_eq!(store.revision(), revision + 1, "of what has none nothing is written");
    }
}
