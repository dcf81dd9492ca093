//! A drain that cannot see its cluster, because a watch fails or is refused.
//!
//! Here belongs how long it hopes. What passes is ridden out, so the invariant: without a timeout, only a server that
//! refuses ends a drain, and a node whose time is over while nobody could look gets a moment in which somebody may again.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::request::{DrainRequest, NodeState};
use crate::time::after;

/// How long a refusal is hoped to end: a role that is bound anew, or credentials that are replaced.
const REFUSED_LASTS: SignedDuration = SignedDuration::from_mins(2);

/// A drain whose time is over goes on for so long while it cannot see, because another look may find it done.
const UNSEEN_LASTS: SignedDuration = SignedDuration::from_secs(30);

/// Since when a drain cannot see its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainUnseen {
    since: Timestamp,
    /// Since when the server refuses to show it.
    refused: Option<Timestamp>,
}

impl DrainUnseen {
    /// It goes on at `now`, or begins where there was none `before`; the server may have `refused`.
    pub fn goes_on(before: Option<Self>, refused: bool, now: Timestamp) -> Self {
        let since_refused = before.and_then(|before| before.refused).unwrap_or(now);
        Self { since: before.map_or(now, |before| before.since), refused: refused.then_some(since_refused) }
    }

    /// Why the drain ends now, in one line, if it does. `why` says what is not seen.
    pub fn ends(
        self,
        request: &DrainRequest,
        states: &BTreeMap<Arc<str>, NodeState>,
        why: &str,
        now: Timestamp,
    ) -> Option<String> {
        if let Some(since) = self.refused.filter(|since| now >= after(*since, REFUSED_LASTS)) {
            let seconds = now.duration_since(since).as_secs();
            return Some(format!(
                "the API server has refused for {seconds} s to show what the drain needs: {why}; run the drain again when \
                 it allows that"
            ));
        }
        let timeout = request.policy.timeout?;
        let begun = states.values().filter_map(|state| match state {
            NodeState::Draining(drain) => Some(drain.begun),
            _ => None,
        });
        let late = after(begun.max().unwrap_or(self.since), timeout);
        if now < late.max(after(self.since, UNSEEN_LASTS)) {
            return None;
        }
        let (allowed, seconds) = (timeout.as_secs(), now.duration_since(self.since).as_secs());
        Some(format!(
            "the timeout of {allowed} s is over, and the cluster was not seen for the last {seconds} s: {why}; run the \
             drain again when it is seen"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disruption::Rules;
    use crate::drain::{DrainPolicy, InLine, NodeDrain, OnTimeout, SETTLE};
    use crate::fixture::at;

    fn request(timeout: Option<i64>) -> DrainRequest {
        DrainRequest {
            nodes: vec!["n-1".into(), "n-2".into(), "n-3".into()],
            concurrency: 2,
            policy: DrainPolicy {
                rules: Rules::default(),
                timeout: timeout.map(SignedDuration::from_secs),
                on_timeout: OnTimeout::Park,
                settle: SETTLE,
                await_volumes: false,
            },
            give_back: false,
            mark: String::new(),
            stopped: None,
        }
    }

    /// When the drain ends that began on two nodes at second 0 and 10, if nothing is seen from `since` on and the server
    /// refuses from `refused` on; and the reason.
    fn ends(timeout: Option<i64>, since: i64, refused: Option<i64>) -> Option<(i64, String)> {
        let draining = |second| NodeState::Draining(NodeDrain::new(at(0), at(second)));
        let states = [
            ("n-1".into(), draining(0)),
            ("n-2".into(), draining(10)),
            ("n-3".into(), NodeState::Cordoned(InLine::new(at(0)))),
        ];
        let (request, states) = (request(timeout), states.into());
        let mut unseen = None;
        (since..2000).find_map(|second| {
            let refused = refused.is_some_and(|refused| second >= refused);
            let since = DrainUnseen::goes_on(unseen, refused, at(second));
            unseen = Some(since);
            since.ends(&request, &states, "no pods", at(second)).map(|why| (second, why))
        })
    }

    #[test]
    fn an_outage_ends_a_drain_when_the_time_of_all_open_nodes_is_over() {
        let (second, why) = ends(Some(600), 100, None).unwrap();
        let over = "the timeout of 600 s is over, and the cluster was not seen for the last 510 s: no pods; ";
        assert!(second == 610 && why.starts_with(over), "{second}: {why}");
        assert_eq!(ends(Some(600), 600, None).unwrap().0, 630, "it may pass in a moment");
        assert_eq!(ends(None, 0, None), None, "who set no limit waits");
    }

    #[test]
    fn a_refusal_ends_a_drain_when_it_lasts() {
        let (second, why) = ends(None, 100, Some(150)).unwrap();
        let refused = "the API server has refused for 120 s to show what the drain needs: no pods; run";
        assert!(second == 270 && why.starts_with(refused), "{second}: {why}");
        let refused = DrainUnseen::goes_on(None, true, at(0));
        let passed = DrainUnseen::goes_on(Some(refused), false, at(60));
        let again = DrainUnseen::goes_on(Some(passed), true, at(119));
        assert_eq!(again.ends(&request(None), &BTreeMap::new(), "", at(200)), None, "it passed between");
    }

    #[test]
    fn a_drain_that_has_no_open_node_counts_from_when_it_saw_last() {
        let unseen = DrainUnseen::goes_on(None, false, at(50));
        let ends = |second| unseen.ends(&request(Some(60)), &BTreeMap::new(), "", at(second)).is_some();
        assert_eq!([109, 110].map(ends), [false, true]);
    }
}
