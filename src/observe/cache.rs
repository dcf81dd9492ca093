//! One watch of one kind, kept as a set of objects that others read.
//!
//! Here belongs who is told what; the requests are made in `follow`, and what an event means is decided in
//! [`super::fold`]. The invariants: the operator has one watch per kind; and every change, and every change of
//! [`SyncState`], wakes whoever subscribed to [`Changes`].

mod contents;
mod follow;
mod outage;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use kube::api::Api;
use tokio::time::Instant;

use self::contents::{Inner, KindNames};
use self::follow::Follow;
use super::fold::{Fold, News, SyncState, Watched};

pub use self::contents::{Changed, Changes, RetryPace, Select, Shared};

/// The objects of one kind. A clone is another handle on the same cache.
#[derive(Debug)]
pub struct Cache<K: Watched>(Arc<Inner<K>>);

impl<K: Watched> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Watched> Cache<K> {
    /// Starts watching what `api` names, on the current tokio runtime, until `shared.stop`.
    ///
    /// `dyntype` is `&()` for a typed kind and the `ApiResource` for a `DynamicObject`.
    pub fn spawn(
        api: Api<K>,
        dyntype: &K::DynamicType,
        select: Select,
        pace: RetryPace,
        shared: &Shared,
    ) -> Self {
        let names = KindNames {
            kind: K::kind(dyntype).into_owned(),
            resource: K::plural(dyntype).into_owned(),
            group: K::group(dyntype).into_owned(),
        };
        let held = RwLock::new((Fold::new(select.detail), None));
        let inner = Arc::new(Inner { held, shared: shared.clone(), names });
        let mut task = Follow {
            api,
            select,
            pace,
            wait: pace.first,
            streaming: K::PAGE.is_none(),
            anew: false,
            inner: Arc::clone(&inner),
        };
        let stop = shared.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(task.run()).await });
        Self(inner)
    }

    /// How far what is held can be relied on.
    pub fn state(&self) -> SyncState {
        self.read(Fold::state)
    }

    /// Calls `reader` with what is held. The watch waits meanwhile, so the reader does not wait for anything.
    pub fn read<T>(&self, reader: impl FnOnce(&Fold<K>) -> T) -> T {
        reader(&self.0.held.read().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Calls `reader` with what is held and with what changed since this was last called. The news is forgotten
    /// then, so only one of all handles on this cache may call this.
    pub fn news<T>(&self, reader: impl FnOnce(&Fold<K>, News) -> T) -> T {
        let mut held = self.0.held.write().unwrap_or_else(PoisonError::into_inner);
        let news = held.0.news();
        reader(&held.0, news)
    }

    /// The object of that namespace (empty for a cluster-scoped one) and name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<K::Kept> {
        self.read(|fold| fold.get(namespace, name).cloned())
    }

    /// Every object, by namespace and name.
    pub fn list(&self) -> Vec<K::Kept> {
        self.read(|fold| fold.values().cloned().collect())
    }

    /// When the server last sent anything of this kind, a bookmark included; `None` before the first answer.
    pub fn confirmed(&self) -> Option<Instant> {
        self.0.held.read().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Folds in what a write of ours returned, so that the next decision sees it before the watch does.
    pub fn apply_own(&self, object: K) {
        self.0.change(|fold| fold.apply(object));
    }

    /// Folds in all objects for which `like` is true, as a separate request read them at resourceVersion `version`.
    /// A held object for which `like` is true and that `objects` lacks is gone, unless it was written after
    /// `version`.
    pub fn reread(&self, objects: Vec<K>, version: &str, like: impl Fn(&K::Kept) -> bool) {
        self.0.change(|fold| {
            let named = |object: &K| {
                let meta = object.meta();
                (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
            };
            let found: BTreeSet<_> = objects.iter().map(named).collect();
            let unnamed = fold
                .pairs()
                .filter(|(key, kept)| like(kept) && !found.contains(&(key.0.to_string(), key.1.to_string())));
            let unnamed: Vec<_> = unnamed.map(|(key, _)| key.clone()).collect();
            let gone = unnamed.iter().filter(|key| fold.not_found(key, version)).count();
            let news = objects.into_iter().map(|object| fold.apply(object)).filter(|wakes| *wakes).count();
            gone + news > 0
        });
    }

    /// Folds in that the server did not know the name of the object with `uid`.
    pub fn absent(&self, namespace: &str, name: &str, uid: &str) {
        self.0.change(|fold| fold.absent(namespace, name, uid));
    }

    /// Folds in that we deleted the object with `uid` and that it was gone at once.
    pub fn deleted_own(&self, namespace: &str, name: &str, uid: &str) {
        self.0.change(|fold| fold.deleted_own(namespace, name, uid));
    }
}

#[cfg(test)]
mod tests;
