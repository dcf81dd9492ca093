//! Requests about single pods that the server refuses again and again.
//!
//! Here belongs since when it refuses; what follows for the pod's node is decided in [`crate::drain`]. The invariant: a
//! refusal that is not repeated is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// A refusal that was not repeated for so long is over, though nobody has told of its end. One attempt of those that are
/// made every half minute may be lost.
const KEPT: SignedDuration = SignedDuration::from_mins(2);

/// A request that the server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why, in one line, as it was told last.
    pub why: String,
    /// When it was refused for the first time.
    pub since: Timestamp,
    /// When it was refused last.
    pub at: Timestamp,
}

impl Refused {
    /// From the first refusal to the last one.
    pub fn lasted(&self) -> SignedDuration {
        self.at.duration_since(self.since)
    }
}

/// The refused requests of one kind, by the UID of their pod.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusedRequests(BTreeMap<Arc<str>, Refused>);

impl RefusedRequests {
    /// The server refused the request about the pod of that UID at `now` for the reason `why`.
    pub(super) fn refused(&mut self, uid: &Arc<str>, why: String, now: Timestamp) -> Refused {
        let since = self.0.get(uid).map_or(now, |before| before.since);
        let refused = Refused { why, since, at: now };
        self.0.insert(Arc::clone(uid), refused.clone());
        refused
    }

    /// The server did not refuse it.
    pub(super) fn taken(&mut self, uid: &Arc<str>) {
        self.0.remove(uid);
    }

    /// Forgets what was not repeated until `now`, and the pods of which nobody `waits` for the end.
    pub(super) fn forget(&mut self, now: Timestamp, waits: impl Fn(&Arc<str>) -> bool) {
        self.0.retain(|uid, refused| forgotten(refused) > now && waits(uid));
    }

    /// Each of them.
    pub(super) fn all(&self) -> &BTreeMap<Arc<str>, Refused> {
        &self.0
    }

    /// Whether the request about the pod of that UID is refused.
    pub(super) fn contains(&self, uid: &Arc<str>) -> bool {
        self.0.contains_key(uid)
    }

    /// Moves every time as `shift` does.
    pub(super) fn shift(&mut self, shift: impl Fn(&mut Timestamp)) {
        for refused in self.0.values_mut() {
            shift(&mut refused.since);
            shift(&mut refused.at);
        }
    }

    /// When each of them is forgotten.
    pub(super) fn ends(&self) -> impl Iterator<Item = Timestamp> {
        self.0.values().map(forgotten)
    }
}

fn forgotten(refused: &Refused) -> Timestamp {
    refused.at.saturating_add(KEPT).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    #[test]
    fn a_refusal_lasts_as_long_as_it_is_repeated() {
        let uid: Arc<str> = "uid-web-1".into();
        let mut requests = RefusedRequests::default();
        // A refusal, or an answer that is none, and how long the server has refused by then.
        for (seconds, refused, lasted) in
            [(0, true, 0), (20, true, 20), (139, true, 139), (259, true, 0), (260, false, 0), (262, true, 0)]
        {
            requests.forget(at(seconds), |_| true);
            if refused {
                let refused = requests.refused(&uid, "no".to_owned(), at(seconds));
                assert_eq!(refused.lasted(), SignedDuration::from_secs(lasted), "{seconds}");
            } else {
                requests.taken(&uid);
            }
        }
        assert_eq!(requests.ends().collect::<Vec<_>>(), [at(382)]);
        requests.forget(at(263), |_| false);
        assert!(!requests.contains(&uid), "its pod is gone");
    }
}
