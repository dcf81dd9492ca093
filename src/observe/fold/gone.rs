//! Which objects were deleted last.
//!
//! An answer to a request of ours may be older than the deletion that a watch has told meanwhile. Taken in, the object
//! would be held for good where nothing is listed anew: nobody tells of its end twice. What an object says that is newer than
//! its deletion is believed, and that is for the fold to see: one that leaves the selection of a watch is told as deleted, and
//! may come back. The invariants: an object is known by its UID, because another of the same name may exist; and however many
//! are deleted, only the last ones are remembered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How many are remembered: half a megabyte at most. An answer waits for seconds at most, in which a large cluster deletes a
/// few hundred pods.
pub(super) const MOST: usize = 4096;

/// One that was deleted.
#[derive(Debug)]
pub(super) struct Deleted<V> {
    /// The list that was the last one when it was deleted.
    pub(super) round: u32,
    /// The version of the deletion, where a watch told of it.
    pub(super) version: Option<V>,
}

/// The UIDs of the objects that were deleted last.
#[derive(Debug)]
pub(super) struct Gone<V> {
    deleted: BTreeMap<Arc<str>, Deleted<V>>,
    /// In the order in which they were deleted.
    order: VecDeque<Arc<str>>,
}

impl<V> Default for Gone<V> {
    fn default() -> Self {
        Self { deleted: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<V> Gone<V> {
    /// Remembers that the object of that UID was deleted, when the last list was that of `round`, and as of `version`, where a
    /// watch told of it.
    pub(super) fn remember(&mut self, uid: &str, round: u32, version: Option<V>) {
        let uid: Arc<str> = uid.into();
        if self.deleted.insert(Arc::clone(&uid), Deleted { round, version }).is_some() {
            return;
        }
        self.order.push_back(uid);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.deleted.remove(&oldest);
        }
    }

    /// The deletion of the object of that UID, if it was deleted.
    pub(super) fn of(&self, uid: Option<&str>) -> Option<&Deleted<V>> {
        self.deleted.get(uid?)
    }

    /// Forgets it: the server has it again.
    pub(super) fn forget(&mut self, uid: Option<&str>) {
        let Some(uid) = uid.filter(|uid| self.deleted.remove(*uid).is_some()) else { return };
        self.order.retain(|known| **known != *uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_ones_are_remembered() {
        let mut gone = Gone::default();
        let uids: Vec<String> = (0..MOST + 10).map(|number| format!("uid-{number}")).collect();
        for uid in &uids {
            gone.remember(uid, 1, None);
            gone.remember(uid, 2, Some(7));
        }
        let told = |gone: &Gone<u8>, uid: &str| gone.of(Some(uid)).map(|of| (of.round, of.version));
        assert_eq!((gone.order.len(), gone.deleted.len()), (MOST, MOST));
        assert_eq!((told(&gone, &uids[9]), told(&gone, &uids[10])), (None, Some((2, Some(7)))));
        assert!(gone.of(None).is_none(), "what has no UID cannot be known again");
        gone.forget(Some(&uids[10]));
        gone.forget(Some(&uids[10]));
        assert_eq!(told(&gone, &uids[10]), None);
        assert_eq!((gone.order.len(), gone.deleted.len()), (MOST - 1, MOST - 1));
    }
}
