//! What the server says to the Jobs of executors.
//!
//! Here belong its answers and how they are remembered; which Jobs it is asked about is decided in `trial.rs`, and what
//! follows for a claim in `executor.rs`. The invariant: an answer to one template says nothing of another.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::claim::Claim;

/// How an executor's Job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Not finished.
    Running,
    /// Condition `Complete`.
    Complete,
    /// Condition `Failed`, with its message.
    Failed(String),
}

/// What the server says to the Jobs of executors. Losing it is safe: it is asked again.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// Jobs that exist, by claim UID and attempt.
    pub made: BTreeMap<(Arc<str>, u32), JobState>,
    /// Why the Job of a claim was refused when it was to be made, in one line, by claim UID.
    pub refused: BTreeMap<Arc<str>, String>,
    /// What was said to Jobs that were only tried, by executor.
    pub tried: BTreeMap<Arc<str>, Trial>,
}

/// What the server said to the Job of an executor that was only tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The pod template, as canonical JSON; an executor with another one is tried again.
    pub template: Arc<str>,
    /// Why the server would refuse it, in one line.
    pub refused: Option<String>,
    /// How often in a row it was refused.
    pub times: u32,
    /// When the server last answered.
    pub at: Timestamp,
}

impl Jobs {
    /// The Job of this attempt of `claim`, where there is one.
    pub(super) fn of(&self, claim: &Claim) -> Option<&JobState> {
        self.made.get(&(claim.uid.clone(), claim.attempt))
    }

    /// Remembers what the server said at `at` to the Job of `executor` by `template`: why it would refuse it, if it would.
    pub fn was_tried(
        &mut self,
        executor: Arc<str>,
        template: Arc<str>,
        refused: Option<String>,
        at: Timestamp,
    ) {
        let before = trial(self, &executor, &template).map_or(0, |trial| trial.times);
        let times = if refused.is_some() { before.saturating_add(1) } else { 0 };
        self.tried.insert(executor, Trial { template, refused, times, at });
    }
}

/// What was said to the Job of `template`, as it is now.
pub(super) fn trial<'a>(jobs: &'a Jobs, name: &str, template: &Arc<str>) -> Option<&'a Trial> {
    jobs.tried.get(name).filter(|trial| trial.template == *template)
}

/// Whether the server would take every Job that the upgrade will make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// It would.
    All,
    /// It was not asked about one yet, or would refuse it.
    NotAll,
}
