//! Which objects were deleted last.
//!
//! An answer to a request of ours may be older than the deletion that a watch has told meanwhile. Taken in, the object
//! would be held for good where nothing is listed anew: nobody tells of its end twice. The invariants: an object is known
//! by its UID, because another of the same name may exist; and however many are deleted, only the last ones are remembered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How many are remembered: half a megabyte at most. An answer waits for seconds at most, in which a large cluster deletes a
/// few hundred pods.
pub(super) const MOST: usize = 4096;

/// The UIDs of the objects that were deleted last.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Each with the list that was the last one when it was deleted.
    rounds: BTreeMap<Arc<str>, u32>,
    /// In the order in which they were deleted.
    order: VecDeque<Arc<str>>,
}

impl Gone {
    /// Remembers that the object of that UID was deleted, when the last list was that of `round`.
    pub(super) fn remember(&mut self, uid: &str, round: u32) {
        let uid: Arc<str> = uid.into();
        if self.rounds.insert(Arc::clone(&uid), round).is_some() {
            return;
        }
        self.order.push_back(uid);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.rounds.remove(&oldest);
        }
    }

    /// Whether the object of that UID was deleted.
    pub(super) fn has(&self, uid: Option<&str>) -> bool {
        uid.is_some_and(|uid| self.rounds.contains_key(uid))
    }

    /// Whether it was deleted after the list of `round` had begun.
    pub(super) fn has_since(&self, uid: Option<&str>, round: u32) -> bool {
        uid.and_then(|uid| self.rounds.get(uid)).is_some_and(|deleted| *deleted >= round)
    }

    /// Forgets it: the server has it again, as after its storage was restored.
    pub(super) fn forget(&mut self, uid: Option<&str>) {
        let Some(uid) = uid.filter(|uid| self.rounds.remove(*uid).is_some()) else { return };
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
            gone.remember(uid, 1);
            gone.remember(uid, 2);
        }
        assert_eq!((gone.order.len(), gone.rounds.len()), (MOST, MOST));
        assert!(!gone.has(Some(&uids[9])) && gone.has(Some(&uids[10])));
        assert!(gone.has_since(Some(&uids[10]), 2) && !gone.has_since(Some(&uids[10]), 3));
        assert!(!gone.has(None), "what has no UID cannot be known again");
        gone.forget(Some(&uids[10]));
        gone.forget(Some(&uids[10]));
        assert!(!gone.has(Some(&uids[10])));
        assert_eq!((gone.order.len(), gone.rounds.len()), (MOST - 1, MOST - 1));
    }
}
