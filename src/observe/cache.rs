//! One watch of one kind, kept as a set of objects that others read.
//!
//! Here belongs who is told what; the requests are made in `follow`, and what an event means is decided in
//! [`super::fold`]. The invariants: one watch per kind in the whole program; and every change, and every change of
//! [`SyncState`], wakes whoever subscribed to [`Changes`].

mod follow;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kube::api::Api;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::follow::Follow;
use super::fold::{Detail, Fold, News, SyncState, Watched};
use crate::clients::one_line;

/// Wakes the controllers: a counter that every cache and probe shares.
#[derive(Clone, Debug)]
pub struct Changes(watch::Sender<u64>);

impl Default for Changes {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Changes {
    /// Something changed.
    pub fn bump(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// A receiver whose `changed()` resolves once for any number of changes since it was last asked.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Which objects of the kind are watched.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// A label selector in the API's syntax.
    pub labels: Option<String>,
    /// A field selector in the API's syntax.
    pub fields: Option<String>,
    /// How much of each is kept.
    pub detail: Detail,
}

/// How patient the request loop is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The wait after the first failure; it doubles with each further one.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), longest: Duration::from_secs(30) }
    }
}

/// A server that has just started refuses until it has read who may do what: who was told something this lately has not
/// lost the permission.
const STARTING: Duration = Duration::from_mins(1);
/// The objects of one kind. A clone is another handle on the same cache.
#[derive(Debug)]
pub struct Cache<K: Watched>(Arc<Inner<K>>);

impl<K: Watched> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<K: Watched> {
    held: RwLock<(Fold<K>, Option<Instant>)>,
    changes: Changes,
    what: What,
}

/// What an error message calls the kind.
#[derive(Debug)]
struct What {
    kind: String,
    resource: String,
    group: String,
}

impl<K: Watched> Cache<K> {
    /// Starts watching what `api` names, on the current tokio runtime, until `stop`.
    ///
    /// `dyntype` is `&()` for a typed kind and the `ApiResource` for a `DynamicObject`.
    pub fn spawn(
        api: Api<K>,
        dyntype: &K::DynamicType,
        select: Select,
        changes: Changes,
        pace: Pace,
        stop: CancellationToken,
    ) -> Self {
        let what = What {
            kind: K::kind(dyntype).into_owned(),
            resource: K::plural(dyntype).into_owned(),
            group: K::group(dyntype).into_owned(),
        };
        let held = RwLock::new((Fold::new(select.detail), None));
        let inner = Arc::new(Inner { held, changes, what });
        let mut task = Follow {
            api,
            select,
            pace,
            wait: pace.first,
            streaming: K::PAGE.is_none(),
            inner: Arc::clone(&inner),
        };
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

    /// Calls `reader` with what is held and with what changed since this was last called, which is forgotten then: of all
    /// handles on this cache one may ask.
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

    /// When the server last told anything, a bookmark included.
    pub fn confirmed(&self) -> Option<Instant> {
        self.0.held.read().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Folds in what a write of ours returned, so that the next decision sees it before the watch does.
    pub fn apply_own(&self, object: K) {
        self.0.change(|fold| fold.apply(object));
    }

    /// Folds in that we deleted the object with `uid` and that it is gone at once.
    pub fn deleted_own(&self, namespace: &str, name: &str, uid: &str) {
        self.0.change(|fold| fold.deleted_own(namespace, name, uid));
    }
}

impl<K: Watched> Inner<K> {
    /// Changes what is held, and wakes the subscribers when `change` says so or the state became another.
    fn change(&self, change: impl FnOnce(&mut Fold<K>) -> bool) {
        self.change_at(None, change);
    }

    /// The same for what the server told just now.
    fn told(&self, change: impl FnOnce(&mut Fold<K>) -> bool) {
        self.change_at(Some(Instant::now()), change);
    }

    fn change_at(&self, confirmed: Option<Instant>, change: impl FnOnce(&mut Fold<K>) -> bool) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.1 = confirmed.or(held.1);
        let before = held.0.state();
        let changed = change(&mut held.0);
        let after = held.0.state();
        drop(held);
        // Half a list is nothing to decide on; the end of the list wakes.
        if before != after || (changed && after != SyncState::Syncing) {
            self.changes.bump();
        }
    }

    fn read_state(&self) -> SyncState {
        self.held.read().unwrap_or_else(PoisonError::into_inner).0.state()
    }

    fn tainted(&self) -> bool {
        matches!(self.read_state(), SyncState::Tainted(_))
    }

    fn undecodable(&self, error: &kube::Error) {
        let What { kind, .. } = &self.what;
        // kube replaces the decoder's message of a watch event by an empty Status; nothing better is known then.
        let detail = match error {
            kube::Error::SerdeError(cause) => format!(": {cause}"),
            _ => String::new(),
        };
        let text = format!("{kind}: an object could not be decoded, so the set is incomplete{detail}");
        tracing::warn!(%text);
        self.change(|fold| {
            fold.undecodable(&text);
            false
        });
    }

    fn failing(&self, error: &kube::Error) {
        let told = self.held.read().unwrap_or_else(PoisonError::into_inner).1;
        let starting = told.is_some_and(|at| at.elapsed() < STARTING);
        let refused = !starting && matches!(error, kube::Error::Api(status) if status.code == 403);
        let text = self.what.explain(error, refused);
        // The same trouble is told once, not at every try.
        if self.read_state().fault().is_none_or(|told| told.as_ref() != text) {
            tracing::warn!(%text);
        }
        self.change(|fold| {
            if refused {
                fold.refused(&text);
            } else {
                fold.failing(&text);
            }
            false
        });
    }
}

impl What {
    /// One line that names the kind and what to do.
    fn explain(&self, error: &kube::Error, refused: bool) -> String {
        let Self { kind, resource, group } = self;
        let full = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
        let cause = one_line(error);
        // By code: a missing kind answers with plain text, and kube's `is_not_found` looks at the reason alone.
        match error {
            _ if refused => {
                format!("{kind}: grant the verbs list and watch on {full} to the service account: {cause}")
            }
            kube::Error::Api(status) if status.code == 404 => {
                format!(
                    "{kind}: the server does not serve {full}; is its CustomResourceDefinition installed? {cause}"
                )
            }
            _ => format!("{kind}: cannot watch {full}: {cause}"),
        }
    }
}

#[cfg(test)]
mod tests;
