//! What a cache holds, whom its changes wake, and what it says when it cannot be filled.
//!
//! The invariant: every change, and every change of [`SyncState`], wakes whoever subscribed to [`Changes`].

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::fold::{Fold, SyncState, Watched};
use super::super::interner::Detail;
use super::outage::{Outage, WatchFailure};
use crate::clients::one_line;

/// Wakes the controllers: one that every cache and probe shares. Those that wait are woken in the order in which they began
/// to wait, so that runs on the virtual cluster are equal; tokio's `watch` draws lots.
#[derive(Clone, Debug)]
pub struct Changes(broadcast::Sender<()>);

impl Default for Changes {
    fn default() -> Self {
        // How often something changed interests nobody.
        Self(broadcast::Sender::new(1))
    }
}

impl Changes {
    /// Wakes every subscriber: something changed.
    pub fn bump(&self) {
        // It is no error that nobody waits.
        let _ = self.0.send(());
    }

    /// What waits for changes from now on.
    pub fn subscribe(&self) -> Changed {
        Changed(self.0.subscribe())
    }
}

/// What waits for [`Changes`].
#[derive(Debug)]
pub struct Changed(broadcast::Receiver<()>);

impl Changed {
    /// Resolves once for any number of changes since it last did, or since [`Self::mark_unchanged`]; `false` when there is
    /// nothing left that could change.
    pub async fn changed(&mut self) -> bool {
        let told = self.0.recv().await;
        self.mark_unchanged();
        !matches!(told, Err(RecvError::Closed))
    }

    /// Forgets what changed until now, because everything is looked at next.
    pub fn mark_unchanged(&mut self) {
        self.0 = self.0.resubscribe();
    }
}

/// What all watches of a program share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Whom they wake.
    pub changes: Changes,
    /// When they end.
    pub stop: CancellationToken,
    /// Why they fail.
    pub(super) outage: Outage,
}

impl Shared {
    /// For watches that last until `stop`.
    pub fn until(stop: CancellationToken) -> Self {
        Self { changes: Changes::default(), stop, outage: Outage::default() }
    }
}

/// Which objects of the kind are watched.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// A label selector in the API's syntax.
    pub labels: Option<String>,
    /// A field selector in the API's syntax.
    pub fields: Option<String>,
    /// How much of each object is kept.
    pub detail: Detail,
}

/// How patient the request loop is.
#[derive(Clone, Copy, Debug)]
pub struct RetryPace {
    /// The wait after the first failure; it doubles with each further one.
    pub first: Duration,
    /// The wait stops doubling here.
    pub longest: Duration,
}

impl Default for RetryPace {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), longest: Duration::from_secs(30) }
    }
}

/// A kube-apiserver that has just started answers 403 until it has read the RBAC objects. So a 403 this soon after
/// the last answer, or after it was away, is a failure that passes, and not a refusal.
pub(super) const STARTING: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Inner<K: Watched> {
    pub(super) held: RwLock<(Fold<K>, Option<Instant>)>,
    pub(super) shared: Shared,
    pub(super) names: KindNames,
}

/// What an error message calls the kind.
#[derive(Debug)]
pub(super) struct KindNames {
    pub(super) kind: String,
    pub(super) resource: String,
    pub(super) group: String,
}

impl<K: Watched> Inner<K> {
    /// Changes what is held, and wakes the subscribers when `change` says so or the state became another.
    pub(super) fn change(&self, change: impl FnOnce(&mut Fold<K>) -> bool) {
        self.change_at(None, change);
    }

    /// The same for what the server told just now.
    pub(super) fn told(&self, change: impl FnOnce(&mut Fold<K>) -> bool) {
        self.change_at(Some(Instant::now()), change);
    }

    pub(super) fn change_at(&self, confirmed: Option<Instant>, change: impl FnOnce(&mut Fold<K>) -> bool) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.1 = confirmed.or(held.1);
        let before = held.0.state();
        let changed = change(&mut held.0);
        let after = held.0.state();
        drop(held);
        if before.fails() && !after.fails() {
            self.shared.outage.ends(&self.names.kind);
        }
        // Half a list is nothing to decide on; the end of the list wakes the subscribers.
        if before != after || (changed && after != SyncState::Syncing) {
            self.shared.changes.bump();
        }
    }

    pub(super) fn read_state(&self) -> SyncState {
        self.held.read().unwrap_or_else(PoisonError::into_inner).0.state()
    }

    pub(super) fn tainted(&self) -> bool {
        matches!(self.read_state(), SyncState::Tainted(_))
    }

    pub(super) fn undecodable(&self, error: &kube::Error) {
        let KindNames { kind, .. } = &self.names;
        // kube replaces the decoder's message of a watch event by an empty Status; nothing better is known then.
        let detail = match error {
            kube::Error::SerdeError(cause) => format!(": {cause}"),
            _ => String::new(),
        };
        let text = format!("{kind}: an object could not be decoded, so the set is incomplete{detail}");
        tracing::warn!(problem = text, "a watch is not whole");
        self.change(|fold| {
            fold.undecodable(&text);
            false
        });
    }

    pub(super) fn failing(&self, error: &kube::Error) {
        let outage = &self.shared.outage;
        let code = match error {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        };
        if code.is_none_or(|code| code >= 500) {
            outage.goes_away();
        }
        let told = self.held.read().unwrap_or_else(PoisonError::into_inner).1.map(|at| at.elapsed());
        let starting = [told, outage.was_away()].into_iter().flatten().any(|ago| ago < STARTING);
        let refused = !starting && code == Some(403);
        let text = self.names.explain(error, refused);
        if outage.begins(&self.names.kind, cause(error, &text, refused)) {
            tracing::warn!(
                problem = text,
                "a watch fails; others that fail for the same cause are not listed"
            );
        }
        self.change(|fold| {
            if refused {
                fold.refused(&text);
            } else {
                fold.failing(&text, code);
            }
            false
        });
    }
}

/// What other kinds can have in common with a failure, which `text` explains: all of it where the server answered about this
/// kind. One that starts is not `refused` yet, and answers 403 about every kind.
pub(super) fn cause(error: &kube::Error, text: &str, refused: bool) -> WatchFailure {
    match error {
        kube::Error::Api(status) if status.code == 403 && !refused => {
            WatchFailure { text: "the server starts".to_owned(), away: true }
        }
        kube::Error::Api(status) if status.code < 500 => WatchFailure { text: text.to_owned(), away: false },
        _ => WatchFailure { text: one_line(error), away: true },
    }
}

impl KindNames {
    /// One line that names the kind and what to do.
    pub(super) fn explain(&self, error: &kube::Error, refused: bool) -> String {
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
