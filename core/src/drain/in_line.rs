//! A cordoned node of a drain that waits for its turn, and how long it may.
//!
//! Here belongs what has to be remembered of such a node. The invariants: the time that it may wait counts only while
//! a budget alone keeps it from beginning, and no node that is being drained takes from that budget; and a budget is called
//! used up for good only where this drain has finished with a node that took the rest of it, or may have taken it before
//! this program looked for the first time.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::policy::STALLED;
use crate::disruption::BudgetName;

/// What is remembered of a node that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InLine {
    /// When it was seen cordoned; it waits for the others at most [`TOGETHER`](super::TOGETHER).
    pub since: Timestamp,
    /// Since when a budget refuses it from which no node that is being drained takes.
    pub refused: Option<Timestamp>,
    /// The budgets that its pinned pods need, each with a node whose pinned pods took from it while this one waited.
    pub behind: BTreeSet<(BudgetName, Arc<str>)>,
}

impl InLine {
    /// A node that is seen cordoned at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self { since: now, refused: None, behind: BTreeSet::new() }
    }

    /// The nodes whose pinned pods took from `budget`.
    pub(super) fn ahead(&self, budget: &BudgetName) -> impl Iterator<Item = &Arc<str>> {
        self.behind.iter().filter(move |(of, _)| of == budget).map(|(_, node)| node)
    }

    /// Until when it waits for what refuses it: for its `timeout`, and not for long where what it waits for is `gone`,
    /// which no drain brings back. `None`: as long as that takes.
    pub(super) fn until(&self, timeout: Option<SignedDuration>, gone: bool) -> Option<Timestamp> {
        let refused = self.refused?;
        let wait = timeout.into_iter().chain(gone.then_some(STALLED)).min()?;
        Some(refused.saturating_add(wait).unwrap_or(Timestamp::MAX))
    }
}
