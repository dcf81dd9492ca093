//! The version that an API server plays. Servers of one cluster may play several.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};

use serde_json::{Value, json};

use super::{ApiState, Shared};

/// A version, as `/version` says it.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) said: Value,
    /// The minor, for what minors do differently.
    pub(crate) minor: u32,
}

impl Release {
    /// Of a version such as `v1.37.1`.
    pub(crate) fn new(version: &str) -> Self {
        let mut parts = version.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let number: Option<u32> = minor.parse().ok();
        let before = number.map_or_else(|| minor.to_owned(), |minor| minor.saturating_sub(1).to_string());
        let said = json!({
            "major": major, "minor": minor, "gitVersion": version, "gitCommit": "", "gitTreeState": "clean",
            "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major,
            "minCompatibilityMinor": before, "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26",
            "compiler": "gc", "platform": "linux/amd64",
        });
        Self { said, minor: number.unwrap_or(37) }
    }
}

/// The state as a server of one version sees it, for as long as it is locked.
pub(crate) struct Entered<'a> {
    state: MutexGuard<'a, ApiState>,
    before: Arc<Release>,
}

impl Shared {
    /// Locks the state for a server that plays this version.
    pub(crate) fn enter(&self, release: &Arc<Release>) -> Entered<'_> {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.release, release.clone());
        Entered { state, before }
    }
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
