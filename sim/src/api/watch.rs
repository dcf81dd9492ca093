//! Watches: what changes, line by line, until the client goes or the watch's time is over.
//!
//! Here belongs what one watch has sent; which changes there are is the store's. The invariant: but for faults, every
//! change that matches is told once, in the order of revisions, or the watch ends with 410.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use super::kinds::Kind;
use super::read::{self, Filter, check_match};
use super::request::{Request, RequestTarget};
use super::shown_as::{self, ShownForm};
use super::state::{ApiState, Shared};
use super::status::{Failure, Outcome};
use super::table::{self, Style};

use crate::by_key::Live;
use crate::clock::Clock;
use crate::faults::stream::{Ending, Stream as Faults};
use crate::record::Record;
use crate::signal::Waiter;
use crate::store::Change;

/// How often a bookmark says how far the watch has come.
const BOOKMARKS: Duration = Duration::from_mins(1);
/// A watch that asks for no timeout gets one of at least this many seconds and at most twice as many.
const SHORTEST: u64 = 1800;

/// An open watch.
struct Watch {
    shared: Shared,
    kind: Arc<Kind>,
    filter: Filter,
    form: ShownForm,
    style: Style,
    clock: Clock,
    /// The columns of a table are named with its first row.
    headers: bool,
    /// Everything up to here has been sent or is in `lines`.
    at: u64,
    lines: VecDeque<String>,
    wake: Waiter,
    bookmarks: Option<Pin<Box<Sleep>>>,
    end: Pin<Box<Sleep>>,
    until: Instant,
    over: bool,
    /// The connection breaks instead of ending.
    broken: bool,
    faults: Faults,
}

/// The revision after which a watch is asked to begin. If it is none, the answer differs from a list's.
fn start_revision(request: &Request) -> Outcome<Option<u64>> {
    read::revision(request).map_err(|mut failure| {
        failure.code = 500;
        failure.body["code"] = 500.into();
        if let Some(body) = failure.body.as_object_mut() {
            body.remove("reason");
        }
        let message =
            failure.body["message"].as_str().unwrap_or_default().replace("invalid resource version: ", "");
        failure.body["message"] = message.into();
        failure
    })
}

/// The body of a watch.
pub(crate) fn start(
    shared: &Shared,
    request: &Request,
    subject: &RequestTarget,
    faults: Faults,
    stale: u64,
) -> Outcome<Pin<Box<dyn Stream<Item = Result<Bytes, std::io::Error>> + Send>>> {
    let filter = Filter::of(request, subject)?;
    check_match(request, true)?;
    let from = start_revision(request)?;
    let form = ShownForm::of(request);
    let mut state = shared.lock();
    let wanted =
        request.param("timeoutSeconds").and_then(|text| text.parse::<u64>().ok()).filter(|time| *time > 0);
    let seconds = wanted.unwrap_or_else(|| state.random.between(SHORTEST, 2 * SHORTEST));
    let bookmarks = request.flag("allowWatchBookmarks");
    let initial = request.param("sendInitialEvents") == Some("true");
    let current = state.store.revision();
    if initial && from.is_some_and(|from| from > current) {
        return Err(Failure::too_large_revision(from.unwrap_or(0), current));
    }
    let mut watch = Watch {
        wake: state.store.subscribe(&subject.kind.resource),
        shared: shared.clone(),
        kind: subject.kind.clone(),
        filter,
        form,
        style: Style::of(request)?,
        clock: state.clock.clone(),
        headers: true,
        at: current,
        lines: VecDeque::new(),
        // The last bookmark comes just before the end, so that the next watch can go on from there.
        bookmarks: bookmarks.then(|| {
            let last = Duration::from_secs(seconds.saturating_sub(2));
            Box::pin(tokio::time::sleep(BOOKMARKS.min(last)))
        }),
        until: Instant::now() + Duration::from_secs(seconds),
        end: Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
        over: false,
        broken: false,
        faults,
    };
    let every =
        initial || matches!(from, None | Some(0)) && request.param("sendInitialEvents") != Some("false");
    if every {
        watch.begin_with_all(&state, stale);
        if initial && bookmarks {
            let line = watch.bookmark(watch.at, true);
            watch.lines.push_back(line);
        }
        if !watch.faults.speaks() {
            watch.lines.clear();
        }
    } else if let Some(from) = from.filter(|from| *from > 0) {
        watch.begin_after(from, &state);
    }
    drop(state);
    Ok(Box::pin(stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((line, watch))
    })))
}

impl Watch {
    /// Begins with all objects, as they are or as they were `stale` revisions ago.
    fn begin_with_all(&mut self, state: &ApiState, stale: u64) {
        let then = (stale > 0).then(|| {
            self.at = state.store.revision().saturating_sub(stale).max(state.store.compacted()).max(1);
            state.store.at(&self.kind.resource, self.at)
        });
        let live = then.as_ref().or_else(|| state.store.shelf(&self.kind.resource).map(|shelf| &shelf.live));
        for record in live.into_iter().flat_map(Live::values) {
            if self.filter.within(record) && self.filter.matches(record) {
                let line = self.event("ADDED", record);
                self.lines.push_back(line);
            }
        }
    }

    /// Begins with what comes after a revision, unless that is forgotten.
    fn begin_after(&mut self, revision: u64, state: &ApiState) {
        if revision < state.store.compacted() {
            self.expire(revision, state);
        }
        self.at = revision;
    }

    /// Ends the watch with a 410: what came after the revision is forgotten.
    fn expire(&mut self, revision: u64, state: &ApiState) {
        let expired =
            Failure::expired(format!("too old resource version: {revision} ({})", state.store.compacted()));
        self.lines.push_back(json!({"type": "ERROR", "object": expired.body}).to_string());
        self.over = true;
    }

    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            self.faults.awake().await;
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(Bytes::from(line + "\n")));
            }
            if std::mem::take(&mut self.broken) {
                return Some(Err(super::reply::broken()));
            }
            if self.over {
                return None;
            }
            self.wake.look();
            self.collect();
            if !self.lines.is_empty() || self.over {
                continue;
            }
            let speaks = self.faults.speaks();
            let bookmark = async {
                match &mut self.bookmarks {
                    Some(bookmark) => bookmark.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                lives = self.wake.changed() => self.over = !lives,
                () = self.end.as_mut(), if speaks => self.over = true,
                () = self.faults.wait() => if self.faults.is_cut() {
                    (self.over, self.broken) = (true, true);
                },
                () = bookmark, if speaks => {
                    let line = self.bookmark(self.at, false);
                    self.faults.push(line, &mut self.lines);
                    if let Some(bookmark) = &mut self.bookmarks {
                        let (next, last) = (Instant::now() + BOOKMARKS, self.until - Duration::from_secs(2));
                        bookmark.as_mut().reset(if last > Instant::now() { next.min(last) } else { next });
                    }
                }
            }
        }
    }

    /// Turns what was written since into lines.
    fn collect(&mut self) {
        let shared = self.shared.clone();
        let state = shared.lock();
        if self.at < state.store.compacted() {
            // The watch fell behind what the server remembers.
            self.expire(self.at, &state);
            return;
        }
        let Some(shelf) = state.store.shelf(&self.kind.resource) else { return };
        // The log is in order, so what is new is found from its beginning by halving.
        let first = shelf.log.partition_point(|change| change.revision <= self.at);
        for change in shelf.log.range(first..) {
            if let Some(line) = self.change(change)
                && let Some(ending) = self.faults.deliver(line, &mut self.lines)
            {
                (self.over, self.broken) = (true, ending == Ending::Broken);
                break;
            }
        }
        let late = self.faults.due();
        self.lines.extend(late);
        self.at = self.at.max(state.store.revision());
    }

    /// A change as this watch sees it: an object that no longer matches is deleted for it.
    fn change(&mut self, change: &Change) -> Option<String> {
        if !self.filter.within(&change.record) {
            return None;
        }
        let was = change.before.as_ref().is_some_and(|before| self.filter.matches(before));
        let is = !change.deleted && self.filter.matches(&change.record);
        match (was, is) {
            (false, true) => Some(self.event("ADDED", &change.record)),
            (true, true) => Some(self.event("MODIFIED", &change.record)),
            (true, false) if change.deleted => Some(self.event("DELETED", &change.record)),
            (true, false) => {
                let mut object = change.before.as_ref()?.copy();
                object["metadata"]["resourceVersion"] = change.revision.to_string().into();
                Some(self.line("DELETED", &object))
            }
            (false, false) => None,
        }
    }

    fn event(&mut self, what: &str, record: &Record) -> String {
        if self.form == ShownForm::Whole {
            return format!("{{\"type\":{what:?},\"object\":{}}}", shown_as::shown(&self.kind, record));
        }
        self.line(what, &self.kind.seen(record))
    }

    fn line(&mut self, what: &str, object: &Value) -> String {
        let object = match self.form {
            ShownForm::Whole => object.clone(),
            ShownForm::Metadata => shown_as::metadata(object),
            ShownForm::Table => self.table(object),
        };
        json!({"type": what, "object": object}).to_string()
    }

    fn table(&mut self, object: &Value) -> Value {
        let headers = std::mem::take(&mut self.headers);
        let revision = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
        table::of(&self.kind, [object], self.style, self.clock.now(), &revision, headers)
    }

    fn bookmark(&mut self, revision: u64, initial: bool) -> String {
        let mut object = match self.form {
            ShownForm::Metadata => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}),
            _ => json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version()}),
        };
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        if initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if self.form == ShownForm::Table {
            object = self.table(&object);
        }
        json!({"type": "BOOKMARK", "object": object}).to_string()
    }
}
