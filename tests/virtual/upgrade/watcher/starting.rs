//! 13: no node is taken up while the pods that left the last ones are not ready elsewhere.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Claim, Pod, Watcher};

/// A pod that is not ready so long after it was made is waited for no longer.
const START: Duration = Duration::from_mins(10);
/// What starts so long after the last node was emptied has another cause.
const RECENT: Duration = Duration::from_mins(10);
/// Times are stored in whole seconds.
const ROUNDED: Duration = Duration::from_secs(1);

impl Watcher {
    /// A pod that is not ready yet, of a workload that a pod of the claim's node serves.
    pub(super) fn starts_still(&self, claim: &Claim) -> Option<String> {
        let emptied = self.claims.values().any(|of| {
            of.of_kubelet()
                && of.upgrade == claim.upgrade
                && of.uid != claim.uid
                && matches!(of.state.as_str(), "Upgrading" | "Upgraded" | "Parked")
                && of.state_since.elapsed() + ROUNDED < RECENT
        });
        if !emptied || self.late.is_some() || self.clocks_jump {
            return None;
        }
        let serves = |pod: &Pod| pod.node == claim.node && pod.healthy && !pod.leaving && !pod.finished;
        let servers: BTreeSet<&String> =
            self.pods.values().filter(|pod| serves(pod)).filter_map(|pod| pod.server.as_ref()).collect();
        let starts = |key: &str, pod: &Pod| {
            let since = pod.made.filter(|made| self.is_old(*made) && made.elapsed() + ROUNDED < START)?;
            let waited_for = !pod.was_ready && !pod.leaving && !pod.finished && pod.node != claim.node;
            let known = !self.is_blind("pods", key, since);
            (waited_for && known && pod.server.as_ref().is_some_and(|of| servers.contains(of))).then_some(())
        };
        let first = self.pods.iter().find(|(key, pod)| starts(key, pod).is_some());
        first.map(|(key, _)| format!("{key}, made in the place of one that left, is not ready"))
    }
}
