//! The request loop of one watch: list, follow, list again.
//!
//! Everything that the server sends goes to [`Inner`]; what it means is decided in the fold. The invariants: a server
//! that refuses is asked ever more rarely, until it answers another watch; a watch goes on where it ended, unless that
//! was long ago or is forgotten: then nothing that is held is relied on before a new list; and a connection that died
//! without a word is noticed. This module uses `Api::list` and `Api::watch` because kube's
//! `watcher` hides bookmarks, never backs off a failing list, and cannot be told to list again after an object that it
//! could not decode.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::time::{Instant, sleep_until, timeout};

use super::super::fold::{Fold, Watched};
use super::contents::{Inner, RetryPace, Select};

/// How long the server keeps one watch open, in seconds.
const WATCH_SECONDS: u32 = 290;
/// A watch that is silent for so long is a dead connection: a server sends a bookmark each minute
/// (`bookmarkFrequency` in `staging/src/k8s.io/apiserver/pkg/storage/cacher`). If a server sends none, the watch is
/// opened again, which costs one request.
const SILENCE: Duration = Duration::from_secs(130);
/// Longest wait for the begin of an answer. The read client retries throttled requests by itself for hours.
const ANSWER: Duration = Duration::from_secs(30);
/// Kinds that are listed anew are so when a watch ends so long after the last list.
const LIST_LASTS: Duration = Duration::from_mins(4);
const PAGE: u32 = 500;
/// Once a watch works again, the server tells what it missed, but nothing says when the last of that has come: a bookmark of
/// a quiet kind comes after a minute. A watch may always be some seconds late. After a failure that lasted longer, the
/// objects are listed, because a list says when it is complete. A kube-apiserver that was started again forces such a list
/// anyway, as it has forgotten what was before.
const SHORT: Duration = Duration::from_secs(5);

type WatchEvents<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

/// The task that keeps a cache.
pub(super) struct Follow<K: Watched> {
    pub(super) api: Api<K>,
    pub(super) select: Select,
    pub(super) pace: RetryPace,
    /// The wait after the next failure.
    pub(super) wait: Duration,
    /// The server has not refused streaming lists.
    pub(super) streaming: bool,
    /// The next list is of a set that is complete.
    pub(super) anew: bool,
    pub(super) inner: Arc<Inner<K>>,
}

/// Why a list or watch came to an end.
enum Ended {
    /// The stream ended without an error.
    Quietly,
    /// The server or the connection failed.
    Failed(kube::Error),
    /// The history after our version is gone, or the set is tainted: only a new list helps.
    ListAgain,
    /// The watch works again after it failed for longer than [`SHORT`].
    BackAfterLong,
    /// Nothing is known to be wrong, and the last list is old.
    ListAnew,
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
    /// Lists and follows, again and again; never returns.
    pub(super) async fn run(&mut self) {
        loop {
            let listed = if self.streaming { self.stream_all().await } else { self.list_all().await };
            self.anew = false;
            let followed = listed.is_ok().then(Instant::now);
            let ended = match listed {
                Ok((version, rest)) => self.follow(version, rest).await,
                Err(ended) => ended,
            };
            match ended {
                Ended::BackAfterLong => continue,
                Ended::ListAgain => {
                    self.inner.change(|fold| {
                        fold.history_is_gone();
                        false
                    });
                    // Where each list is at once too old, it is made ever more rarely.
                    if followed.is_some_and(|since| since.elapsed() > self.pace.longest) {
                        continue;
                    }
                }
                Ended::ListAnew => {
                    self.anew = true;
                    continue;
                }
                Ended::Failed(error) if self.streaming && refuses_streaming(&error) => {
                    tracing::info!(
                        kind = self.inner.names.kind,
                        "the server has no streaming lists; paging instead"
                    );
                    self.streaming = false;
                    continue;
                }
                Ended::Failed(error) if is_decode(&error) => self.inner.undecodable(&error),
                Ended::Failed(error) => self.inner.failing(&error),
                Ended::Quietly => {}
            }
            self.pause().await;
        }
    }

    /// Waits, and doubles the next wait up to the longest. Events of a healthy watch set the wait back. It is over when another
    /// watch works again that failed for the same cause: a server that was away is back, and is asked often if it refuses once
    /// more, because then nobody else may be left to tell that it answers.
    async fn pause(&mut self) {
        let Inner { shared, names, .. } = self.inner.as_ref();
        let passes = timeout(self.wait, shared.outage.passes(&names.kind)).await;
        self.wait = if passes.is_ok() { self.pace.first } else { (self.wait * 2).min(self.pace.longest) };
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

    async fn open(&self, initial: bool, version: &str) -> Result<WatchEvents<K>, Ended> {
        match timeout(ANSWER, self.api.watch(&self.watch_params(initial), version)).await {
            Ok(answer) => Ok(answer?.boxed()),
            Err(elapsed) => Err(Ended::Failed(kube::Error::Service(Box::new(elapsed)))),
        }
    }

    /// Lists with a watch that first sends every object, then a mark, then the changes since. The list is a
    /// consistent one (no resourceVersion), so that a new leader never begins from a kube-apiserver's stale cache.
    async fn stream_all(&mut self) -> Result<(String, Option<WatchEvents<K>>), Ended> {
        let mut events = self.open(true, "").await?;
        self.list_begins();
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
                // A server sends no deletion before the mark.
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

    async fn list_all(&mut self) -> Result<(String, Option<WatchEvents<K>>), Ended> {
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
            if !begun {
                self.list_begins();
            }
            self.inner.told(|fold| {
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

    fn list_begins(&self) {
        let begins = if self.anew { Fold::list_begins_anew } else { Fold::list_begins };
        self.inner.told(|fold| {
            begins(fold);
            false
        });
    }

    fn list_ends(&self, version: &str) {
        self.inner.told(|fold| {
            fold.list_ends(version);
            true
        });
    }

    /// Follows the changes since `version`, over as many streams as it takes, until only a new list helps.
    async fn follow(&mut self, mut version: String, mut open: Option<WatchEvents<K>>) -> Ended {
        let listed = Instant::now();
        let mut fails: Option<Instant> = None;
        loop {
            let begun = Instant::now();
            let opened = match open.take() {
                Some(events) => Ok(events),
                None => self.open(false, &version).await,
            };
            let ended = match opened {
                Ok(_) if fails.is_some_and(|since| since.elapsed() > SHORT) => return Ended::BackAfterLong,
                Ok(events) => {
                    fails = None;
                    self.inner.change(Fold::following);
                    self.fold_in(&mut version, events).await
                }
                Err(ended) => ended,
            };
            match ended {
                Ended::ListAgain | Ended::BackAfterLong | Ended::ListAnew => return ended,
                Ended::Failed(error) => {
                    fails.get_or_insert_with(Instant::now);
                    self.inner.failing(&error);
                    self.pause().await;
                }
                // A watch that the server ends after its time is no failure; one that ends at once is.
                Ended::Quietly if begun.elapsed() < self.pace.first => self.pause().await,
                Ended::Quietly if K::LISTED_ANEW && listed.elapsed() >= LIST_LASTS => return Ended::ListAnew,
                Ended::Quietly => {}
            }
        }
    }

    /// Folds in what `events` tells until it ends, moving `version` along.
    async fn fold_in(&mut self, version: &mut String, mut events: WatchEvents<K>) -> Ended {
        // Only a new list ends a taint. It begins after the wait that any other failure has.
        let mut list_again = self.inner.tainted().then(|| Instant::now() + self.wait);
        loop {
            let silence = Instant::now() + SILENCE;
            let event = tokio::select! {
                biased;
                () = sleep_until(list_again.unwrap_or(silence)) => {
                    return if list_again.is_some() { Ended::ListAgain } else { Ended::Quietly };
                }
                event = events.next() => event,
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

/// Whether an object could not be decoded. For a watch event kube then returns a `Status` whose fields are all
/// empty.
fn is_decode(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0 && status.message.is_empty() && status.reason.is_empty(),
        _ => false,
    }
}

/// Kubernetes without the `WatchList` gate answers 422 to `sendInitialEvents`. With an etcd before 3.4.31 or 3.5.13 it
/// answers with an error event, because such an etcd cannot say how far a watch has come (`Cacher.Watch` in
/// `staging/src/k8s.io/apiserver/pkg/storage/cacher`).
fn refuses_streaming(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let says = |text: &str| status.message.contains(text);
    match status.code {
        422 => says("sendInitialEvents"),
        500 => says("required storage feature") && says("is disabled"),
        _ => false,
    }
}
