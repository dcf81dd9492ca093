//! What the server says to the Jobs of executors, and which pods they have.
//!
//! Here belong its answers and how they are remembered; which Jobs it is asked about is decided in `trial.rs`, and what
//! follows for a claim in `executor.rs`. The invariants: an answer to one template says nothing of another; and the time for
//! which a Job has been refused, or without a pod, counts from when that was first seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::claim::{Claim, ClaimState};
use super::not_opened::EVERY;
use super::since::{Since, again_at, is_within};
use crate::cluster::{Cluster, Pod};

/// A refusal that was not repeated for so long is over: nobody asked meanwhile, or nobody answered.
const REFUSAL_LASTS: SignedDuration = SignedDuration::from_mins(1);

/// How an executor's Job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Not finished.
    Running,
    /// Condition `Complete`.
    Complete,
    /// Condition `Failed`, with its message.
    Failed(String),
}

/// What the server says to the Jobs of executors. Losing it is safe: it is asked again.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// Jobs that exist, by claim UID and attempt.
    pub made: BTreeMap<(Arc<str>, u32), JobState>,
    /// The Jobs that were refused when they were to be made, by claim UID.
    pub refused: BTreeMap<Arc<str>, RefusedJob>,
    /// What was said to Jobs that were only tried, by executor.
    pub tried: BTreeMap<Arc<str>, Trial>,
    /// The Jobs that were only tried and about which the server gave no answer, by executor.
    pub(super) unanswered: BTreeMap<Arc<str>, RefusedJob>,
    /// Since when Jobs that run have had no pod, by claim UID.
    podless: Since<Arc<str>>,
}

/// The refusal of a Job that was to be made, or of an answer about one that was only tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedJob {
    /// Why, in one line, as the server said last.
    pub why: String,
    /// When it was refused for the first time, without a gap until now.
    since: Timestamp,
    /// When it was refused last.
    at: Timestamp,
}

impl RefusedJob {
    /// What is remembered of a refusal at `at` for the reason `why`, with what was remembered `before`.
    fn after(before: Option<&Self>, why: String, at: Timestamp) -> Self {
        let goes_on = before.filter(|before| is_within(before.at, REFUSAL_LASTS, at));
        Self { why, since: goes_on.map_or(at, |before| before.since), at }
    }

    /// When it has been refused for `wait`, if it goes on.
    pub(super) fn lasts_until(&self, wait: SignedDuration) -> Timestamp {
        self.since.saturating_add(wait).unwrap_or(Timestamp::MAX)
    }

    /// When it may be sent again, as seen at `now`.
    pub(super) fn sent_at(&self, now: Timestamp) -> Timestamp {
        again_at(self.at, EVERY, now)
    }

    /// Whether it was refused again after `wait`.
    pub(super) fn has_lasted(&self, wait: SignedDuration) -> bool {
        self.at.duration_since(self.since) >= wait
    }
}

/// What the server said to the Job of an executor that was only tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The pod template, as canonical JSON; an executor with another one is tried again.
    pub template: Arc<str>,
    /// Why the server would refuse it, in one line.
    pub refused: Option<String>,
    /// How often in a row it was refused.
    pub times: u32,
    /// When the server last answered.
    pub at: Timestamp,
}

impl Trial {
    /// Why the server would refuse it, if it said so lately: whoever still wants the Job asks again and again.
    pub(super) fn refused_lately(&self, now: Timestamp) -> Option<&str> {
        self.refused.as_deref().filter(|_| is_within(self.at, REFUSAL_LASTS, now))
    }
}

impl Jobs {
    /// The Job of this attempt of `claim`, where there is one.
    pub(super) fn of(&self, claim: &Claim) -> Option<&JobState> {
        self.made.get(&(claim.uid.clone(), claim.attempt))
    }

    /// Remembers that the server refused at `at` to make the Job of the claim of that UID, for the reason `why`. What it said to
    /// Jobs that were only tried is old then: before anything else begins, it is asked again.
    pub fn was_refused(&mut self, claim: Arc<str>, why: String, at: Timestamp) {
        let refused = RefusedJob::after(self.refused.get(&claim), why, at);
        self.refused.insert(claim, refused);
        self.tried.retain(|_, trial| trial.refused.is_some());
    }

    /// Takes in which Jobs of `claims` that run have no pod in `cluster` at `now`. Their pods are in the namespace `executors`.
    pub fn see_pods(&mut self, cluster: &Cluster, claims: &[Claim], executors: &str, now: Timestamp) {
        let runs = |claim: &&Claim| {
            matches!(claim.state, ClaimState::Upgrading { .. }) && self.of(claim) == Some(&JobState::Running)
        };
        let podless = |claim: &&Claim| pods_of(cluster, executors, claim).next().is_none();
        let podless = claims.iter().filter(runs).filter(podless).map(|claim| claim.uid.clone());
        let podless: Vec<Arc<str>> = podless.collect();
        self.podless.see(podless, now);
    }

    /// Since when the Job of `claim` has had no pod, as seen at `now`, when it has none.
    pub(super) fn podless_since(&self, claim: &Claim, now: Timestamp) -> Timestamp {
        self.podless.of(&claim.uid, now).unwrap_or(now)
    }

    /// Remembers that the server did not answer at `at`, for the reason `why`, whether it would take the Job of `executor`.
    pub fn was_not_answered(&mut self, executor: Arc<str>, why: String, at: Timestamp) {
        let unanswered = RefusedJob::after(self.unanswered.get(&executor), why, at);
        self.unanswered.insert(executor, unanswered);
    }

    /// Remembers what the server said at `at` to the Job of `executor` by `template`: why it would refuse it, if it would.
    pub fn was_tried(
        &mut self,
        executor: Arc<str>,
        template: Arc<str>,
        refused: Option<String>,
        at: Timestamp,
    ) {
        let before = trial(self, &executor, &template).map_or(0, |trial| trial.times);
        let times = if refused.is_some() { before.saturating_add(1) } else { 0 };
        self.unanswered.remove(&executor);
        self.tried.insert(executor, Trial { template, refused, times, at });
    }
}

/// The pods of the Jobs of `claim`, which are in the namespace `executors`, as far as they are seen.
pub(super) fn pods_of<'c>(
    cluster: &'c Cluster,
    executors: &'c str,
    claim: &'c Claim,
) -> impl Iterator<Item = &'c Pod> {
    // Anybody may put the label on a pod of another namespace.
    let of_it = move |pod: &&Pod| {
        *pod.namespace == *executors && pod.traits().executor_of.as_ref() == Some(&claim.uid)
    };
    cluster.pods_on(&claim.subject.node).filter(of_it)
}

/// What was said to the Job of `template`, as it is now.
pub(super) fn trial<'a>(jobs: &'a Jobs, name: &str, template: &Arc<str>) -> Option<&'a Trial> {
    jobs.tried.get(name).filter(|trial| trial.template == *template)
}
