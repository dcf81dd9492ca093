//! What is stored besides the upgrades, as the core's values: claims and executors.
//!
//! Nothing is decided here. The invariant: what cannot be read is told as that, and is never left out.

use evenkeel_core::rollout::{Claim, Unreadable};
use kube::ResourceExt as _;
use kube::core::DynamicObject;

use super::super::decoded::Decoded;
use super::{Driver, Kept, Unseen};
use crate::api::{Executors, NodeUpgrade, claim_of, decode};
use crate::observe::fold::SyncState;

impl Driver<'_> {
    /// Whether every object of a person's and of ours is seen.
    pub(super) fn synced(&self) -> Result<(), Unseen> {
        for (what, state) in [
            ("ClusterUpgrades", self.upgrades.state()),
            ("NodeUpgrades", self.claims.state()),
            ("UpgradeExecutors", self.executors.state()),
            ("Jobs", self.jobs.state()),
        ] {
            match state {
                SyncState::Synced => {}
                SyncState::Syncing => {
                    let line = format!("{what}: the first list is not complete yet");
                    return Err(Unseen { line, refused: false });
                }
                SyncState::Refused(why) => return Err(Unseen { line: why.to_string(), refused: true }),
                SyncState::Tainted(why) | SyncState::Failing(why) => {
                    return Err(Unseen { line: why.to_string(), refused: false });
                }
            }
        }
        Ok(())
    }

    /// The claims (`NodeUpgrades`) that can be read, and those that cannot.
    pub(super) fn claims(&self, kept: &mut Kept) -> (Vec<Claim>, Vec<Unreadable>) {
        let (mut claims, mut unreadable) = (Vec::new(), Vec::new());
        let stored = self.claims.list();
        let read = |stored: &DynamicObject| {
            decode::<NodeUpgrade>(stored).and_then(|claim| claim_of(&claim).map_err(|bad| bad.to_string()))
        };
        for (stored, said) in stored.iter().zip(kept.claims.of(&stored, read)) {
            match said {
                Ok(claim) => claims.push(claim),
                Err(why) => unreadable.push(Unreadable { name: stored.name_any().into(), why }),
            }
        }
        (claims, unreadable)
    }

    /// The executors that there are. When one came, went or changed, every upgrade is read anew.
    pub(super) fn executors(&self, kept: &mut Kept) {
        let mut executors = Executors::default();
        for stored in self.executors.list() {
            executors.add(&stored);
        }
        if kept.executors != executors {
            kept.executors = executors;
            kept.upgrades = Decoded::default();
        }
    }
}

impl Kept {
    /// Logs each claim that cannot be read: once, not at every look.
    pub(super) fn complain(&mut self, unreadable: &[Unreadable]) {
        for bad in unreadable.iter().filter(|bad| !self.unread_claims.contains(&bad.why)) {
            tracing::warn!(problem = bad.why, "a NodeUpgrade cannot be read; its node is left alone");
        }
        self.unread_claims = unreadable.iter().map(|bad| bad.why.clone()).collect();
    }
}
