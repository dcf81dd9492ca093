//! One watch of one kind, kept as a set of objects that others read.
//!
//! Here belong the request loop and its pace; what an event means is decided in [`super::fold`]. The invariants: one
//! watch per kind in the whole program; every change, and every change of [`State`], wakes whoever subscribed to
//! [`Changes`]; and a server that refuses is asked ever more rarely. The loop is written on `Api::list` and
//! `Api::watch`, because kube's `watcher` hides bookmarks, never backs off a failing list, and cannot be told to
//! list again after an object that it could not decode.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::fold::{Detail, Fold, State, Watched};
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

/// How long the server keeps one watch open, in seconds.
const WATCH_SECONDS: u32 = 290;
/// A watch that is silent for so long is a dead connection: a server sends a bookmark each minute
/// (`bookmarkFrequency` in `staging/src/k8s.io/apiserver/pkg/storage/cacher`). Where one does not, opening anew costs a
/// request.
const SILENCE: Duration = Duration::from_secs(130);
/// A server that has just started refuses until it has read who may do what: who was told something this lately has not
/// lost the permission.
const STARTING: Duration = Duration::from_mins(1);
/// Longest wait for the begin of an answer. The read client retries throttled requests by itself for hours.
const ANSWER: Duration = Duration::from_secs(30);
const PAGE: u32 = 500;

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

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
    pub fn state(&self) -> State {
        self.read(Fold::state)
    }

    /// Calls `reader` with what is held. The watch waits meanwhile, so the reader does not wait for anything.
    pub fn read<T>(&self, reader: impl FnOnce(&Fold<K>) -> T) -> T {
        reader(&self.0.held.read().unwrap_or_else(PoisonError::into_inner).0)
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
        if before != after || (changed && after != State::Syncing) {
            self.changes.bump();
        }
    }

    fn read_state(&self) -> State {
        self.held.read().unwrap_or_else(PoisonError::into_inner).0.state()
    }

    fn tainted(&self) -> bool {
        matches!(self.read_state(), State::Tainted(_))
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

/// The task that keeps a cache.
struct Follow<K: Watched> {
    api: Api<K>,
    select: Select,
    pace: Pace,
    /// The wait after the next failure.
    wait: Duration,
    /// The server has not refused streaming lists.
    streaming: bool,
    inner: Arc<Inner<K>>,
}

/// Why a list or watch came to an end.
enum Ended {
    /// The stream ended without an error.
    Quietly,
    /// The server or the connection failed.
    Failed(kube::Error),
    /// The history after our version is gone, or the set is tainted: only a new list helps.
    ListAgain,
}

impl From<kube::Error> for Ended {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 410 => Self::ListAgain,
            _ => Self::Failed(error),
        }
    }
}

impl<K: Watched> Follow<K> {
    async fn run(&mut self) {
        loop {
            let listed = if self.streaming { self.stream_all().await } else { self.list_all().await };
            let ended = match listed {
                Ok((version, rest)) => self.follow(version, rest).await,
                Err(ended) => ended,
            };
            match ended {
                Ended::Failed(error) if self.streaming && refuses_streaming(&error) => {
                    tracing::info!(
                        kind = self.inner.what.kind,
                        "the server has no streaming lists; paging instead"
                    );
                    self.streaming = false;
                    continue;
                }
                Ended::Failed(error) if is_decode(&error) => self.inner.undecodable(&error),
                Ended::Failed(error) => self.inner.failing(&error),
                Ended::Quietly | Ended::ListAgain => {}
            }
            self.pause().await;
        }
    }

    /// Waits longer each time, until something was heard in between.
    async fn pause(&mut self) {
        sleep(self.wait).await;
        self.wait = (self.wait * 2).min(self.pace.longest);
    }

    fn watch_params(&self, initial: bool) -> WatchParams {
        WatchParams {
            label_selector: self.select.labels.clone(),
            field_selector: self.select.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: initial,
        }
    }

    async fn open(&self, initial: bool, version: &str) -> Result<Events<K>, Ended> {
        match timeout(ANSWER, self.api.watch(&self.watch_params(initial), version)).await {
            Ok(answer) => Ok(answer?.boxed()),
            Err(elapsed) => Err(Ended::Failed(kube::Error::Service(Box::new(elapsed)))),
        }
    }

    /// Lists by a watch that begins with every object; what follows on it are the changes since. The list is a
    /// consistent one (no resourceVersion), so that a new leader never begins from an apiserver's stale cache.
    async fn stream_all(&mut self) -> Result<(String, Option<Events<K>>), Ended> {
        let mut events = self.open(true, "").await?;
        self.inner.told(|fold| {
            fold.list_begins();
            false
        });
        loop {
            match timeout(SILENCE, events.next()).await {
                Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                    self.inner.told(|fold| fold.listed(object));
                }
                Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => {
                    let version = mark.metadata.resource_version;
                    if mark.metadata.annotations.contains_key("k8s.io/initial-events-end") {
                        self.list_ends(&version);
                        return Ok((version, Some(events)));
                    }
                }
                // Not sent before the mark.
                Ok(Some(Ok(WatchEvent::Deleted(_)))) => {}
                Ok(Some(Ok(WatchEvent::Error(status)))) => return Err(kube::Error::Api(status).into()),
                Ok(Some(Err(error))) if is_decode(&error) => self.inner.undecodable(&error),
                Ok(Some(Err(error))) => return Err(error.into()),
                Ok(None) | Err(_) => {
                    let cut = "the server ended the list before it was complete";
                    return Err(Ended::Failed(kube::Error::Service(cut.into())));
                }
            }
        }
    }

    async fn list_all(&mut self) -> Result<(String, Option<Events<K>>), Ended> {
        let mut params = ListParams {
            label_selector: self.select.labels.clone(),
            field_selector: self.select.fields.clone(),
            limit: Some(K::PAGE.unwrap_or(PAGE)),
            ..ListParams::default()
        };
        let mut begun = false;
        loop {
            let page = match timeout(ANSWER, self.api.list(&params)).await {
                Ok(page) => page?,
                Err(elapsed) => return Err(Ended::Failed(kube::Error::Service(Box::new(elapsed)))),
            };
            self.inner.told(|fold| {
                if !begun {
                    fold.list_begins();
                }
                for object in page.items {
                    fold.listed(object);
                }
                // The end of the list wakes.
                false
            });
            begun = true;
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let version = page.metadata.resource_version.unwrap_or_default();
                self.list_ends(&version);
                return Ok((version, None));
            }
        }
    }

    fn list_ends(&self, version: &str) {
        self.inner.told(|fold| {
            fold.list_ends(version);
            true
        });
    }

    /// Follows the changes since `version`, over as many streams as it takes, until only a new list helps.
    async fn follow(&mut self, mut version: String, mut open: Option<Events<K>>) -> Ended {
        loop {
            let begun = Instant::now();
            let opened = match open.take() {
                Some(events) => Ok(events),
                None => self.open(false, &version).await,
            };
            let ended = match opened {
                Ok(events) => {
                    self.inner.change(Fold::following);
                    self.drain(&mut version, events).await
                }
                Err(ended) => ended,
            };
            match ended {
                Ended::ListAgain => return Ended::ListAgain,
                Ended::Failed(error) => {
                    self.inner.failing(&error);
                    self.pause().await;
                }
                // A watch that the server ends after its time is no failure; one that ends at once is.
                Ended::Quietly if begun.elapsed() < self.pace.first => self.pause().await,
                Ended::Quietly => {}
            }
        }
    }

    /// Folds in what `events` tells until it ends, moving `version` along.
    async fn drain(&mut self, version: &mut String, mut events: Events<K>) -> Ended {
        // The only cure for a taint is a new list, at the pace of any other failure.
        let mut list_again = self.inner.tainted().then(|| Instant::now() + self.wait);
        loop {
            let silence = Instant::now() + SILENCE;
            let event = tokio::select! {
                event = events.next() => event,
                () = sleep_until(list_again.unwrap_or(silence)) => {
                    return if list_again.is_some() { Ended::ListAgain } else { Ended::Quietly };
                }
            };
            match event {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    moved(version, object.meta().resource_version.as_deref());
                    self.inner.told(|fold| fold.apply(object));
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    moved(version, object.meta().resource_version.as_deref());
                    self.inner.told(|fold| fold.delete(&object));
                }
                Some(Ok(WatchEvent::Bookmark(mark))) => {
                    moved(version, Some(&mark.metadata.resource_version));
                    self.inner.told(|_| false);
                }
                Some(Ok(WatchEvent::Error(status))) => return kube::Error::Api(status).into(),
                Some(Err(error)) if is_decode(&error) => {
                    self.inner.undecodable(&error);
                    list_again.get_or_insert(Instant::now() + self.wait);
                }
                Some(Err(error)) => return error.into(),
                None => return Ended::Quietly,
            }
            if list_again.is_none() {
                self.wait = self.pace.first;
            }
        }
    }
}

fn moved(version: &mut String, to: Option<&str>) {
    if let Some(to) = to.filter(|to| !to.is_empty()) {
        to.clone_into(version);
    }
}

/// kube tells a watch event that it cannot decode as an all-default `Status`.
fn is_decode(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0 && status.message.is_empty() && status.reason.is_empty(),
        _ => false,
    }
}

/// Kubernetes without the `WatchList` gate answers 422 to `sendInitialEvents`.
fn refuses_streaming(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422 && status.message.contains("sendInitialEvents"))
}

#[cfg(test)]
mod tests;
