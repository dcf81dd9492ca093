//! How the events of one watch become the set of objects that exist.
//!
//! This module does no I/O, reads no clock and takes no lock. The invariants: an older version of an object never
//! replaces a newer one; an object that a complete list does not name is dropped, unless it was written after the list;
//! an object that was deleted comes back only by what is newer than its deletion, or by a later list; and a set that may lack
//! an object says so until a list without a fault.

mod gone;

use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use self::gone::Gone;
use super::interner::{Detail, Interner};

/// A kind that is watched: the type itself is its wire form, [`Watched::Kept`] is what stays in memory of it.
pub trait Watched: kube::Resource + DeserializeOwned + Clone + Debug + Send + 'static {
    /// What is kept of an object, pruned to what some decision reads.
    type Kept: Clone + Debug + Send + Sync + 'static;

    /// How many objects a page of a list has. `None` reads the list as a stream, if the server lets us. A server
    /// sends large objects in pages in half the time that a stream of them takes.
    const PAGE: Option<u32> = None;

    /// Whether all objects are listed anew from time to time, when a watch ends after its time. An event that was lost
    /// is made good by that where nothing else would tell, as of a budget that changes once a month. Kinds with very
    /// many large objects are not listed anew. Of them an upgrade reads what it needs by requests of its own: before
    /// an executor begins, before a drain is given up, before pods are deleted past their budgets, and before a claim
    /// fails by its deadline. The command `drain` does the same before a node counts as drained, and in the second and
    /// the third case.
    const LISTED_ANEW: bool = true;

    /// Prunes `self`, sharing texts that repeat among objects through `names`.
    fn keep(self, names: &mut Interner) -> Self::Kept;

    /// Whether the change from `before` to `after` can change a decision. A heartbeat must not wake anyone.
    fn wakes(_before: &Self::Kept, _after: &Self::Kept) -> bool {
        true
    }

    /// Replaces the name in the kept object by `name`, which is the same text, so that memory holds it once. Kinds
    /// that keep no name do nothing.
    fn named(_kept: &mut Self::Kept, _name: &Arc<str>) {}

    /// The object's UID. Only kinds whose objects we delete ourselves need to keep it.
    fn uid(_kept: &Self::Kept) -> Option<&str> {
        None
    }
}

/// Namespace (empty for a cluster-scoped object) and name.
pub type Key = (Arc<str>, Arc<str>);

/// Which objects came, went or changed since the news was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Anything may have changed: the news was never read before, or there was too much to remember.
    All,
    /// Only the objects of these keys changed.
    These(BTreeSet<Key>),
}

impl News {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::These(keys) if keys.is_empty())
    }
}

/// How many keys of news are remembered while few objects are held. Where many are held it is a quarter of them: to
/// look that many up by name takes as long as to read all.
const MUCH_NEWS: usize = 1024;

/// A resourceVersion: comparable where it is a number, which every built-in storage's is (promised since 1.35).
#[derive(Clone, Debug, PartialEq, Eq)]
enum ResourceVersion {
    Number(u64),
    Opaque(Box<str>),
}

impl ResourceVersion {
    fn read(text: Option<&str>) -> Self {
        let text = text.unwrap_or_default();
        text.parse().map_or_else(|_| Self::Opaque(text.into()), Self::Number)
    }

    /// Whether this was certainly written after `other`; false where the two cannot be compared.
    fn newer_than(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Number(a), Self::Number(b)) if a > b)
    }
}

#[derive(Clone, Debug)]
struct Entry<T> {
    version: ResourceVersion,
    /// The list that last named it; 0 if none did.
    round: u32,
    kept: T,
}

/// How far a cache can be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// No list since the start, or since the history was lost, is complete: objects may be missing or long gone.
    Syncing,
    /// Every object is held, and changes are being followed.
    Synced,
    /// An object could not be decoded, so what is held may lack it. Lasts until a list without such an object.
    Tainted(Arc<str>),
    /// The list or watch fails: what is held, if anything, is ageing.
    Failing {
        /// The reason, in one line.
        why: Arc<str>,
        /// The HTTP status of the server's answer; `None` if there was no answer.
        code: Option<u16>,
    },
    /// The server says that we may not read this kind, so nothing of it is known; only a person can change that.
    Refused(Arc<str>),
}

impl SyncState {
    /// Why this cannot be relied on, when something is wrong with it.
    pub fn fault(&self) -> Option<&Arc<str>> {
        match self {
            Self::Syncing | Self::Synced => None,
            Self::Tainted(why) | Self::Failing { why, .. } | Self::Refused(why) => Some(why),
        }
    }

    /// Whether it can be relied on. `syncing` says why not while the first list is on its way.
    ///
    /// # Errors
    /// [`Unseen`] when it cannot.
    pub fn seen(&self, syncing: impl FnOnce() -> String) -> Result<(), Unseen> {
        let code = match self {
            Self::Synced => return Ok(()),
            Self::Failing { code, .. } => *code,
            Self::Syncing | Self::Tainted(_) | Self::Refused(_) => None,
        };
        let line = self.fault().map_or_else(syncing, ToString::to_string);
        Err(Unseen { line, refused: matches!(self, Self::Refused(_)), code })
    }

    /// Whether the server does not answer, or refuses.
    pub fn fails(&self) -> bool {
        matches!(self, Self::Failing { .. } | Self::Refused(_))
    }
}

/// Why nothing is decided: something that is watched cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// What it is and why, in one line.
    pub line: String,
    /// Whether the server forbids us to read it, so that waiting does not help.
    pub refused: bool,
    /// The HTTP status of the server's answer, where a list or watch fails and the server answers.
    pub code: Option<u16>,
}

/// The objects of one kind, as the lists and events so far tell.
#[derive(Debug)]
pub struct Fold<K: Watched> {
    entries: BTreeMap<Key, Entry<K::Kept>>,
    /// Of these, older events and answers may still be on their way.
    gone: Gone<ResourceVersion>,
    names: Interner,
    /// The keys that changed; `None` where anything may have changed, as before the first [`Fold::news`].
    news: Option<BTreeSet<Key>>,
    round: u32,
    complete: bool,
    /// The fault of the list that is under way.
    fault: Option<Arc<str>>,
    taint: Option<Arc<str>>,
    failure: Option<SyncState>,
}

impl<K: Watched> Default for Fold<K> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            gone: Gone::default(),
            names: Interner::default(),
            news: None,
            round: 0,
            complete: false,
            fault: None,
            taint: None,
            failure: None,
        }
    }
}

impl<K: Watched> Fold<K> {
    /// An empty set that keeps as much of each object as `detail` says.
    pub fn new(detail: Detail) -> Self {
        Self { names: Interner::new(detail), ..Self::default() }
    }

    /// How far this can be relied on. Of several faults the gravest is returned: a failure or refusal before a
    /// taint.
    pub fn state(&self) -> SyncState {
        if let Some(failure) = &self.failure {
            failure.clone()
        } else if let Some(taint) = &self.taint {
            SyncState::Tainted(Arc::clone(taint))
        } else if self.complete {
            SyncState::Synced
        } else {
            SyncState::Syncing
        }
    }

    /// Every object that is held, ordered by namespace and name.
    pub fn values(&self) -> impl Iterator<Item = &K::Kept> {
        self.entries.values().map(|entry| &entry.kept)
    }

    /// How many objects are held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The object of that namespace (empty for a cluster-scoped one) and name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&K::Kept> {
        self.value(&(namespace.into(), name.into()))
    }

    /// The object of that key.
    pub fn value(&self, key: &Key) -> Option<&K::Kept> {
        self.entries.get(key).map(|entry| &entry.kept)
    }

    /// Every object that is held with its key, ordered by key.
    pub fn pairs(&self) -> impl Iterator<Item = (&Key, &K::Kept)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.kept))
    }

    /// What changed since this was last called. Of a new list, news are the objects that it names in another
    /// version, and those that it does not name any more.
    pub fn news(&mut self) -> News {
        self.news.replace(BTreeSet::new()).map_or(News::All, News::These)
    }

    fn changed(&mut self, key: Key) {
        let much = MUCH_NEWS.max(self.entries.len() / 4);
        self.news = self.news.take().filter(|news| news.len() < much);
        if let Some(news) = &mut self.news {
            news.insert(key);
        }
    }

    /// Whatever the list that begins now does not name is gone when it ends.
    pub fn list_begins(&mut self) {
        self.round = self.round.saturating_add(1);
        self.complete = false;
        self.fault = None;
    }

    /// A list begins of a set that is complete: until it ends, the set counts as complete still.
    pub fn list_begins_anew(&mut self) {
        let complete = self.complete;
        self.list_begins();
        self.complete = complete;
    }

    /// The list is complete as of `version`: what it did not name is gone, unless it was written after the list.
    pub fn list_ends(&mut self, version: &str) {
        let (round, listed) = (self.round, ResourceVersion::read(Some(version)));
        let mut gone = Vec::new();
        self.entries.retain(|key, entry| {
            let stays = entry.round == round || entry.version.newer_than(&listed);
            if !stays {
                gone.push(key.clone());
            }
            stays
        });
        for key in gone {
            self.changed(key);
        }
        self.names.sweep();
        // Keys that are inserted in order leave the nodes of a B-tree half empty. A tree built from all keys at once
        // has full nodes.
        self.entries = std::mem::take(&mut self.entries).into_iter().collect();
        self.complete = true;
        self.failure = None;
        self.taint = self.fault.take();
    }

    /// Takes in an object that the list names. Returns whether that can change a decision.
    pub fn listed(&mut self, object: K) -> bool {
        let round = self.round;
        self.put(object, round)
    }

    /// Takes in an object as a watch or a write of ours returned it. Returns whether that can change a decision.
    pub fn apply(&mut self, object: K) -> bool {
        self.put(object, 0)
    }

    /// `round` is that of the list which names it, or 0: an object that only we wrote while a list is under way may
    /// have been deleted before the list was made.
    fn put(&mut self, object: K, round: u32) -> bool {
        let meta = object.meta();
        let key = self.key(&object);
        let version = ResourceVersion::read(meta.resource_version.as_deref());
        let uid = meta.uid.as_deref();
        if let Some(deleted) = self.gone.of(uid) {
            // A list that began after the deletion knows better, and so does whatever is newer: an object that leaves the
            // selection of its watch is told as deleted, and may come back.
            let later_list = round > deleted.round;
            let is_newer = deleted.version.as_ref().is_some_and(|of| version.newer_than(of));
            if !later_list && !is_newer {
                return false;
            }
            self.gone.forget(uid);
        }
        let (wakes, key) = match self.entries.entry(key) {
            Occupied(mut entry) => {
                let key = entry.key().clone();
                let held = entry.get_mut();
                held.round = held.round.max(round);
                if held.version == version || held.version.newer_than(&version) {
                    return false;
                }
                let mut kept = object.keep(&mut self.names);
                K::named(&mut kept, &key.1);
                let wakes = K::wakes(&held.kept, &kept);
                (held.version, held.kept) = (version, kept);
                (wakes, key)
            }
            Vacant(free) => {
                let key = free.key().clone();
                let mut kept = object.keep(&mut self.names);
                K::named(&mut kept, &key.1);
                free.insert(Entry { version, round, kept });
                (true, key)
            }
        };
        self.changed(key);
        wakes
    }

    /// Drops `object`, which a watch says is gone. Returns whether it was held.
    pub fn delete(&mut self, object: &K) -> bool {
        let key = self.key(object);
        let meta = object.meta();
        let version = ResourceVersion::read(meta.resource_version.as_deref());
        if let Some(uid) = meta.uid.as_deref() {
            self.gone.remember(uid, self.round, Some(version.clone()));
        }
        // What is newer than the deletion is another object of the same name.
        let newer = self.entries.get(&key).is_some_and(|held| held.version.newer_than(&version));
        let gone = !newer && self.entries.remove(&key).is_some();
        if gone {
            self.changed(key);
        }
        gone
    }

    /// Drops the object of that key, which a separate read, as of `version`, did not find. An object that was
    /// written after the read stays. Returns whether the object was dropped.
    pub fn not_found(&mut self, key: &Key, version: &str) -> bool {
        let read = ResourceVersion::read(Some(version));
        let newer = self.entries.get(key).is_some_and(|held| held.version.newer_than(&read));
        let gone = !newer && self.entries.remove(key).is_some();
        if gone {
            self.changed(key.clone());
        }
        gone
    }

    /// Drops the object with `uid`, which we deleted and which is gone at once (no grace period, no finalizers).
    /// Returns whether it was held.
    pub fn deleted_own(&mut self, namespace: &str, name: &str, uid: &str) -> bool {
        let held = self.absent(namespace, name, uid);
        if held {
            self.gone.remember(uid, self.round, None);
        }
        held
    }

    /// Drops the object with `uid`, whose name the server did not know: its deletion was lost on the way to us. An event
    /// that tells of it later is believed, in case the answer was wrong. Returns whether it was held.
    pub fn absent(&mut self, namespace: &str, name: &str, uid: &str) -> bool {
        let key = (self.names.text(namespace), name.into());
        let held = self.entries.get(&key).is_some_and(|entry| K::uid(&entry.kept) == Some(uid));
        if held {
            self.entries.remove(&key);
            self.changed(key);
        }
        held
    }

    /// An event or a list could not be decoded. Whoever sent it is not away, so that an earlier failure is over.
    pub fn undecodable(&mut self, fault: &str) {
        let fault: Arc<str> = fault.into();
        self.fault = Some(Arc::clone(&fault));
        self.taint = Some(fault);
        self.failure = None;
    }

    /// The list or watch failed; the server answered with the HTTP status `code`, if it answered.
    pub fn failing(&mut self, failure: &str, code: Option<u16>) {
        self.failure = Some(SyncState::Failing { why: failure.into(), code });
    }

    /// The server does not let us list or watch.
    pub fn refused(&mut self, refusal: &str) {
        self.failure = Some(SyncState::Refused(refusal.into()));
    }

    /// The changes since what is held cannot be had any more: until the next list ends, anything may be missing.
    pub fn history_is_gone(&mut self) {
        self.complete = false;
    }

    /// The watch goes on from where it was: nothing was missed. Returns whether it had been failing.
    pub fn following(&mut self) -> bool {
        self.failure.take().is_some()
    }

    fn key(&mut self, object: &K) -> Key {
        let meta = object.meta();
        let namespace = self.names.text(meta.namespace.as_deref().unwrap_or_default());
        (namespace, meta.name.as_deref().unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests;
