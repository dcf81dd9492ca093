//! What is stored, as the core's values: upgrades, claims and executors.
//!
//! Nothing is decided here. The invariant: what cannot be read is told as that, and is never left out.

use std::sync::Arc;

use evenkeel_core::rollout::{Claim, Queue, UnreadableClaim};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;

use super::super::decoded::Decoded;
use super::read_upgrade::{DecidableUpgrade, ReadUpgrade, begun_since, begun_unread, is_settled, read};
use super::retries::RetriedRequest;
use super::{Driver, UpgradesKept};
use crate::act::FIELD_MANAGER;
use crate::act::status::write;
use crate::api::{ClusterUpgrade, Executors, NodeUpgrade, claim_of, decode_parts, unreadable_claim, upgrade};
use crate::observe::fold::Unseen;

impl Driver<'_> {
    /// Whether every object of a person's and of ours is seen.
    pub(super) fn synced(&self) -> Result<(), Unseen> {
        self.caches.unseen().into_iter().next().map_or(Ok(()), Err)
    }

    /// The upgrades about which something can be decided, oldest first, and whose turn it is; what is wrong with the others
    /// is told in their status. One that became invalid or unreadable after it began is in the queue still, and what an
    /// invalid one has in flight settles.
    pub(super) async fn upgrades(
        &self,
        kept: &mut UpgradesKept,
        claims: &[Claim],
        now: Timestamp,
    ) -> (Vec<DecidableUpgrade>, Queue) {
        let mut upgrades = Vec::new();
        let mut unreadable = Vec::new();
        let mut begun: Vec<(Timestamp, Arc<str>)> = Vec::new();
        self.executors(kept);
        let executors = &kept.executors;
        let stored = self.caches.upgrades.list();
        for (stored, said) in stored.iter().zip(kept.upgrades.of(&stored, |stored| read(stored, executors))) {
            match said {
                Ok(read) => {
                    let since = begun_since(read.object()).filter(|_| !is_settled(&stored.metadata, claims));
                    begun.extend(since.map(|since| (since, read.object().name_any().into())));
                    match read {
                        ReadUpgrade::Decidable(of) => upgrades.push(*of),
                        ReadUpgrade::Invalid(object, invalid) => {
                            let status = upgrade::status_of_invalid(&object, &invalid, None, now);
                            self.tell(kept, &object, status).await;
                        }
                    }
                }
                Err(line) => {
                    let since = begun_unread(stored).filter(|_| !is_settled(&stored.metadata, claims));
                    begun.extend(since.map(|since| (since, stored.name_any().into())));
                    self.tell_unreadable(kept, stored, &line, now).await;
                    unreadable.push(line);
                }
            }
        }
        for line in unreadable.iter().filter(|line| !kept.unread_upgrades.contains(line)) {
            tracing::warn!(problem = line, "a ClusterUpgrade cannot be read and is left alone");
        }
        kept.unread_upgrades = unreadable;
        let created = |object: &ClusterUpgrade| object.creation_timestamp().map(|time| time.0);
        upgrades.sort_by_key(|of| (created(&of.object), of.object.name_any()));
        (upgrades, Queue::new(begun))
    }

    /// Says in the status of `stored`, an upgrade that cannot be read, why nothing is done for it: `why`.
    async fn tell_unreadable(
        &self,
        kept: &mut UpgradesKept,
        stored: &DynamicObject,
        why: &str,
        now: Timestamp,
    ) {
        let (said, status) = upgrade::status_of_unreadable(stored, why, now);
        kept.announced.stands(&stored.name_any(), &said);
        let Some(status) = status else { return };
        let retried = RetriedRequest::Status(stored.name_any());
        if kept.has_to_wait(&retried) {
            return;
        }
        let of = &stored.metadata;
        match write::<ClusterUpgrade>(&self.effects, &self.authority, FIELD_MANAGER, of, &status).await {
            Ok(written) => {
                kept.retries.over(&retried);
                // A line is written only where it is another one, so that it is news whatever was said before.
                kept.announced.announce(&self.hands, None, &written, &said);
                self.caches.upgrades.apply_own(written);
            }
            Err(error) => self.not_written(kept, retried, error),
        }
    }

    /// The claims (`NodeUpgrades`) that can be read; and those that only hold their nodes: they cannot be read, nothing is left
    /// to be done about them and others keep them, or they are of an earlier upgrade of the same name.
    pub(super) fn claims(&self, kept: &mut UpgradesKept) -> (Vec<Claim>, Vec<UnreadableClaim>) {
        let (mut claims, mut unreadable) = (Vec::new(), Vec::new());
        let stored = self.caches.claims.list();
        let read = |stored: &DynamicObject| {
            decode_parts::<NodeUpgrade>(stored, &["spec", "status"])
                .and_then(|claim| claim_of(&claim).map_err(|bad| bad.to_string()))
        };
        let is_stored = |uid: &String| stored.iter().any(|stored| stored.metadata.uid.as_ref() == Some(uid));
        kept.released.retain(is_stored);
        let upgrades = self.caches.upgrades.list();
        let lives =
            |claim: &Claim| upgrades.iter().any(|of| of.uid().is_some_and(|uid| *uid == *claim.upgrade_uid));
        let is_followed = |claim: &Claim| upgrades.iter().any(|of| of.name_any() == *claim.upgrade);
        for (stored, said) in stored.iter().zip(kept.claims.of(&stored, read)) {
            match said {
                _ if stored.metadata.uid.as_ref().is_some_and(|uid| kept.released.contains(uid)) => {
                    unreadable.push(released_claim(stored));
                }
                Ok(claim) if !lives(&claim) && is_followed(&claim) => {
                    unreadable.push(left_behind(stored, &claim));
                    // Whoever deletes it has it settled.
                    claims.extend(Some(claim).filter(|claim| claim.ending));
                }
                Ok(claim) => claims.push(claim),
                Err(why) => unreadable.push(unreadable_claim(stored, why)),
            }
        }
        (claims, unreadable)
    }

    /// The executors that there are. When one came, went or changed, every upgrade is read anew.
    pub(super) fn executors(&self, kept: &mut UpgradesKept) {
        let mut executors = Executors::default();
        for stored in self.caches.executors.list() {
            executors.add(&stored);
        }
        if kept.executors != executors {
            kept.executors = executors;
            kept.upgrades = Decoded::default();
        }
    }
}

/// A claim that is deleted and settled. Until others let it go, no other one of its name can be made.
fn released_claim(stored: &DynamicObject) -> UnreadableClaim {
    let finalizers = stored.finalizers().join(", ");
    let name = stored.name_any();
    let why = format!("NodeUpgrade {name} is deleted and stays until finalizer {finalizers} is taken off");
    // Nothing more is to be done about it.
    UnreadableClaim { ending: false, place: None, ..unreadable_claim(stored, why) }
}

/// A claim of an earlier upgrade of the same name. Until it goes, no other one of its name can be made, and the node that it
/// holds is left alone.
fn left_behind(stored: &DynamicObject, claim: &Claim) -> UnreadableClaim {
    let name = stored.name_any();
    let todo = if claim.ending {
        "is deleted, and goes when it has settled"
    } else {
        "waits for somebody to delete it; what it has in flight then settles"
    };
    let why = format!("NodeUpgrade {name} is of an earlier ClusterUpgrade of the same name: it {todo}");
    let place = claim.state.unfinished().then(|| Arc::clone(&claim.subject.node));
    UnreadableClaim { ending: false, place, goes: claim.ending, ..unreadable_claim(stored, why) }
}

impl UpgradesKept {
    /// Logs each claim that only holds its node: once, not at every look.
    pub(super) fn complain(&mut self, unreadable: &[UnreadableClaim]) {
        for bad in unreadable.iter().filter(|bad| !self.unread_claims.contains(&bad.why)) {
            tracing::warn!(problem = bad.why, "a NodeUpgrade holds its node, which is left alone");
        }
        self.unread_claims = unreadable.iter().map(|bad| bad.why.clone()).collect();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_claim_of_an_earlier_upgrade_holds_the_node_that_it_may_have_left_half_done() {
        let deleted = json!("2026-01-01T00:00:00Z");
        for (state, deleted, holds) in [
            ("Upgrading", Value::Null, true),
            ("Upgrading", deleted.clone(), true),
            ("Failed", Value::Null, true),
            ("Parked", Value::Null, false),
            ("Upgraded", deleted, false),
        ] {
            let stored = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade",
                "metadata": {"name": "up.kubelet.n-1", "uid": "1", "deletionTimestamp": deleted},
                "spec": {"upgradeName": "up", "upgradeUID": "earlier", "component": "kubelet", "nodeName": "n-1",
                    "nodeUID": "2", "fromVersion": "v1.36.4", "toVersion": "v1.37.1", "executor": "machines"},
                "status": {"state": state, "since": "2026-01-01T00:00:00Z"}});
            let claim = claim_of(&serde_json::from_value(stored.clone()).unwrap()).unwrap();
            let left = left_behind(&serde_json::from_value(stored).unwrap(), &claim);
            assert_eq!((left.place.is_some(), left.goes), (holds, claim.ending), "{state}: {}", left.why);
            assert!(!left.ending && *left.upgrade == *"up", "what becomes of it is decided by itself");
        }
    }
}
