//! Everything that a request can touch, and the lock around it.
//!
//! What a request does never belongs here. The invariant: whoever holds the state holds all of it, and plays one
//! version for as long.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::kinds::Kinds;
use super::release::Release;
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

    /// Locks the state for a server that plays this version.
    pub(crate) fn enter(&self, release: &Arc<Release>) -> Entered<'_> {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.release, release.clone());
        Entered { state, before }
    }

    /// The same, for whoever writes.
    pub(crate) fn enter_as(&self, release: &Arc<Release>, author: &str) -> Entered<'_> {
        let mut state = self.enter(release);
        state.store.authored_by(author);
        state
    }
}

/// The state as a server of one version sees it, for as long as it is locked.
pub(crate) struct Entered<'a> {
    state: MutexGuard<'a, ApiState>,
    before: Arc<Release>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.state.release = self.before.clone();
    }
}

impl Deref for Entered<'_> {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.state
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut ApiState {
        &mut self.state
    }
}
