//! Why watches fail at the moment, so that a kube-apiserver that is away is logged once and not for each kind.
//!
//! Here belongs what the log has of it already; what a failure means for a decision is in [`super::super::fold`]. The
//! invariant: a cause is news when no watch fails for it yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The watches of one program that fail: each kind with its cause. A clone is another handle on the same.
#[derive(Clone, Debug, Default)]
pub struct Outage(Arc<Mutex<BTreeMap<String, String>>>);

impl Outage {
    /// The watch of `kind` fails for `cause`. Returns whether no watch failed for it before.
    pub(super) fn begins(&self, kind: &str, cause: String) -> bool {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = !failing.values().any(|known| *known == cause);
        failing.insert(kind.to_owned(), cause);
        is_news
    }

    /// The watch of `kind` works again.
    pub(super) fn ends(&self, kind: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_news_once_until_no_watch_fails_for_it() {
        let outage = Outage::default();
        let fails = |kind: &str, cause: &str| outage.begins(kind, cause.to_owned());
        for _ in 0..2 {
            assert!(fails("Node", "refused"));
            assert!(!fails("Pod", "refused"));
            assert!(fails("Pod", "no answer in time"));
            assert!(!fails("Node", "refused"));
            outage.ends("Node");
            assert!(fails("Lease", "refused"), "nobody failed for it any more");
            outage.ends("Lease");
            outage.ends("Pod");
        }
    }
}
