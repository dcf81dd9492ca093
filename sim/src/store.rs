//! What etcd is in a real cluster: every object as text under its key, one revision counter, and what changed since the
//! last compaction.
//!
//! Never here: what an object means. Invariants: every write takes the next revision; the log of a kind is in the order
//! of revisions and has no gap after the compacted one; a record that was handed out never changes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

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
    pub(crate) live: BTreeMap<Arc<str>, Arc<Record>>,
    pub(crate) log: VecDeque<Change>,
    wake: watch::Sender<u64>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { live: BTreeMap::new(), log: VecDeque::new(), wake: watch::Sender::new(0) }
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
    /// The pods of each node, by their keys.
    placed: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The pods of each owner, by its UID.
    owned: HashMap<Box<str>, BTreeSet<Arc<str>>>,
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
            placed: BTreeMap::new(),
            owned: HashMap::new(),
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
        if !self.shelves.contains_key(resource) {
            self.shelves.insert(resource.into(), Shelf::default());
        }
        self.shelves.entry(resource.into()).or_default()
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<&Arc<Record>> {
        self.shelves.get(resource)?.live.get(key)
    }

    fn displace(&mut self, node: Option<&Arc<str>>, key: &str) {
        let Some(keys) = node.and_then(|node| self.placed.get_mut(node)) else { return };
        keys.remove(key);
        if keys.is_empty()
            && let Some(node) = node
        {
            self.placed.remove(node);
        }
    }

    /// The pods of a node, without looking at those of any other.
    pub(crate) fn pods_of(&self, node: &str) -> Vec<Arc<Record>> {
        let keys = self.placed.get(node).into_iter().flatten();
        keys.filter_map(|key| self.get(PODS, key).cloned()).collect()
    }

    /// The pods of an owner, without looking at those of any other.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<Record>> {
        let keys = self.owned.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.get(PODS, key))
    }

    fn disown(&mut self, record: &Record) {
        for owner in &record.owners {
            if let Some(keys) = self.owned.get_mut(owner) {
                keys.remove(&record.key);
                if keys.is_empty() {
                    self.owned.remove(owner);
                }
            }
        }
    }

    /// Writes an object under its key and gives it the next revision, which `object` then carries.
    pub(crate) fn put(&mut self, resource: &str, key: &str, object: &mut Value, quiet: bool) -> Arc<Record> {
        self.revision += 1;
        let record = self.record(key, object);
        let shelf = self.shelf_mut(resource);
        let before = shelf.live.insert(record.key.clone(), record.clone());
        let old = before.as_ref().and_then(|before| before.node.clone());
        if resource == PODS && old != record.node {
            self.displace(old.as_ref(), key);
            if let Some(node) = &record.node {
                self.placed.entry(node.clone()).or_default().insert(record.key.clone());
            }
        }
        if resource == PODS && before.as_ref().is_none_or(|before| before.owners != record.owners) {
            if let Some(before) = &before {
                self.disown(before);
            }
            for owner in &record.owners {
                self.owned.entry(owner.clone()).or_default().insert(record.key.clone());
            }
        }
        self.log(
            resource,
            Change { revision: record.revision, before, record: record.clone(), deleted: false, quiet },
        );
        record
    }

    /// What was written since the last call, in order.
    pub(crate) fn news(&mut self) -> Vec<(Arc<str>, Change)> {
        std::mem::take(&mut self.news)
    }

    /// Renews a lease by its text alone: thousands of them a second are most of what happens in a big cluster at rest.
    ///
    /// A quote inside a JSON string is escaped, so a field's name with its quotes is found only where the field is.
    pub(crate) fn renew(&mut self, resource: &str, key: &str, time: &str) -> Option<()> {
        let before = self.get(resource, key)?.clone();
        let revision = self.revision + 1;
        let mut text = String::with_capacity(before.text.len() + 1);
        let mut rest: &str = &before.text;
        for (field, value) in
            [("\"resourceVersion\":\"", revision.to_string().as_str()), ("\"renewTime\":\"", time)]
        {
            let at = rest.find(field)? + field.len();
            let (head, tail) = rest.split_at(at);
            text.push_str(head);
            text.push_str(value);
            rest = tail.get(tail.find('"')?..)?;
        }
        text.push_str(rest);
        self.revision = revision;
        let record = Arc::new(before.renewed(revision, text));
        self.shelf_mut(resource).live.insert(record.key.clone(), record.clone());
        self.log(resource, Change { revision, before: Some(before), record, deleted: false, quiet: true });
        Some(())
    }

    /// Takes an object away; what it was, with the revision of its end.
    pub(crate) fn remove(&mut self, resource: &str, key: &str) -> Option<Arc<Record>> {
        let before = self.shelves.get_mut(resource)?.live.remove(key)?;
        if resource == PODS {
            self.displace(before.node.as_ref(), key);
            self.disown(&before);
        }
        self.revision += 1;
        let mut object = before.value();
        let record = self.record(key, &mut object);
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

    fn record(&mut self, key: &str, object: &mut Value) -> Arc<Record> {
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
        let labels: Labels = metadata["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let labels = if let Some(shared) = self.labels.get(&labels) {
            shared.clone()
        } else {
            let shared = Arc::new(labels.clone());
            self.labels.insert(labels, shared.clone());
            shared
        };
        Arc::new(Record::new(key, revision, object, labels, node))
    }

    fn log(&mut self, resource: &str, change: Change) {
        if let Some(hash) = &mut self.hash {
            for chunk in [resource.as_bytes(), change.record.key.as_bytes(), &[u8::from(change.deleted)]] {
                mix(hash, chunk);
            }
            mix(hash, change.record.text.as_bytes());
        }
        let revision = change.revision;
        let name =
            self.shelves.get_key_value(resource).map_or_else(|| resource.into(), |(name, _)| name.clone());
        for observer in &mut self.observers {
            (observer.0)(resource, &change, &self.author);
        }
        self.news.push((name, change.clone()));
        let shelf = self.shelf_mut(resource);
        shelf.log.push_back(change);
        shelf.wake.send_replace(revision);
        self.any.send_replace(revision);
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
    fn the_pods_of_an_owner_are_those_that_name_it_now() {
        let mut store = Store::new(false);
        let pod = |owner: &str| json!({"metadata": {"ownerReferences": [{"uid": owner}]}});
        let owned = |store: &Store, uid: &str| -> Vec<String> {
            store.owned_by(uid).map(|record| record.key.to_string()).collect()
        };
        for key in ["shop/b", "shop/a"] {
            store.put(PODS, key, &mut pod("one"), false);
        }
        store.put("replicasets.apps", "shop/r", &mut pod("one"), false);
        assert_eq!(owned(&store, "one"), ["shop/a", "shop/b"], "in order, and pods alone");
        store.put(PODS, "shop/a", &mut pod("two"), false);
        assert_eq!(
            (owned(&store, "one"), owned(&store, "two")),
            (vec!["shop/b".into()], vec!["shop/a".into()])
        );
        store.remove(PODS, "shop/b");
        store.remove(PODS, "shop/a");
        assert!(store.owned.is_empty(), "{:?}", store.owned);
    }
}
