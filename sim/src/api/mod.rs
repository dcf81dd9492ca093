//! The API server: requests in, answers out, one store behind.
//!
//! Every request runs to its end under the store's lock, so requests are linearisable; only an eviction takes the lock
//! anew for each of its steps, as a real one is several requests to etcd. Models use `ApiState` directly and meet the same
//! rules.

mod admission;
mod answer;
mod bind;
mod custom;
mod defaults;
mod discovery;
mod eviction;
mod kinds;
mod openapi;
mod patch;
mod patching;
mod read;
mod release;
mod request;
mod request_body;
mod route;
mod scale;
mod selector;
mod server;
mod services;
mod shown_as;
mod status;
mod table;
mod validate;
mod verbs;
mod versions;
mod watch;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use answer::Body;
pub(crate) use kinds::{Kind, Kinds};
pub(crate) use release::Release;
pub(crate) use server::Server;
pub(crate) use status::Outcome;
pub(crate) use write::{Deletion, Options};

use crate::clock::Clock;
use crate::random::Random;
use crate::store::Store;

/// How often a server compacts its history. Each compaction forgets what was past already at the one before, so that
/// the last five minutes are always remembered.
pub(crate) const COMPACTION: Duration = Duration::from_mins(5);

/// Everything that a request can touch.
#[derive(Debug)]
pub(crate) struct ApiState {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) random: Random,
    pub(crate) clock: Clock,
    /// The version that is played: that of the cluster, and while a server works, that of the server.
    pub(crate) release: Arc<Release>,
}

/// The state, shared by all clients and models.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<ApiState>>);

impl Shared {
    pub(crate) fn new(state: ApiState) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state, for whoever writes to it.
    pub(crate) fn lock_as(&self, author: &str) -> MutexGuard<'_, ApiState> {
        let mut state = self.lock();
        state.store.authored_by(author);
        state
    }

    /// The state. A lock that a panic poisoned is taken all the same: every write is one insertion, so none is half
    /// done.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ApiState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request is about.
#[derive(Clone, Debug)]
pub(crate) struct RequestTarget {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}
