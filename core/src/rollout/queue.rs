//! Which upgrade has its turn: one is under way at a time.
//!
//! Here belongs the order of upgrades; what the one does whose turn it is belongs to [`decide()`](super::decide()). The
//! invariant: an upgrade that has begun keeps all others waiting until it is complete, because its nodes are half done.
//! It does so even where its object became invalid or cannot be read.

use std::sync::Arc;

use jiff::Timestamp;

use super::status::UpgradeStatus;
use super::upgrade_phase::UpgradePhase;
use crate::upgrade::{Progress, Upgrade};

/// The upgrades that are under way or wait.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    first: Option<Arc<str>>,
}

impl Queue {
    /// The queue of upgrades that `begun` names, each with the time at which it began; none of them is complete. The one
    /// that began first has its turn, of two the one whose name comes first.
    pub fn new(begun: impl IntoIterator<Item = (Timestamp, Arc<str>)>) -> Self {
        Self { first: begun.into_iter().min().map(|(_, name)| name) }
    }

    /// Which upgrade `upgrade` waits for.
    pub fn ahead_of(&self, upgrade: &Upgrade, progress: &Progress) -> Option<Arc<str>> {
        self.first.clone().filter(|first| progress.completed.is_none() && *first != upgrade.name)
    }

    /// `upgrade` was decided about, and stands like this: if it begins and nothing else is under way, it has its turn. One that
    /// somebody deleted begins nothing, and has its turn from before where something of it is left.
    pub fn decided(&mut self, upgrade: &Upgrade, status: &UpgradeStatus) {
        let is_under_way = status.started.is_some() && status.completed.is_none();
        if self.first.is_none() && is_under_way && status.phase != UpgradePhase::Deleting {
            self.first = Some(upgrade.name.clone());
        }
    }
}
