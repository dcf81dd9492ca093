//! What becomes of the requests of upgrades: each answer is folded in, so that the next decision sees it.
//!
//! Here belongs what an outcome changes in the caches and in what is kept between two looks. The invariant: whatever was
//! not done is counted as a failure, and decided anew.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::disruption::answer::Answer;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use tokio::time::Instant;

use super::super::metrics::{self, Reason};
use super::figures::label;
use super::retries::{AFTER_FAILURE, RetriedRequest};
use super::{Driver, UpgradesKept};
use crate::act::{JobNow, Outcome, ReadNow};

/// How long to wait after the server refused a Job: until then a person may have removed the reason, such as a full
/// quota.
const AFTER_REFUSAL: Duration = Duration::from_secs(15);

impl UpgradesKept {
    /// Looks again at this time even if nothing changes, or earlier where that was to be so already.
    pub(super) fn looks_by(&mut self, at: Instant) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }

    /// Whether `retried` is not sent yet because it did not come through; then there is another look when it may be.
    pub(super) fn has_to_wait(&mut self, retried: &RetriedRequest) -> bool {
        let until = self.retries.waits_until(retried);
        if let Some(until) = until {
            self.looks_by(until);
        }
        until.is_some()
    }

    /// Hears the answer about one pod. If it is no yes, as when the server is busy, it may hold for others, too.
    fn hears(&mut self, answer: &Answer) {
        if !matches!(answer, Answer::Accepted(_)) {
            self.evictions.forget();
        }
    }

    /// Hears whether the server answered, where `retried` asked it about a Job.
    fn hears_of_trial(&mut self, retried: Option<&RetriedRequest>, outcome: &Outcome, now: Timestamp) {
        let Some(RetriedRequest::Trial(executor)) = retried else { return };
        if let Outcome::Failed(line) | Outcome::Lost(line) = outcome {
            self.jobs.was_not_answered(Arc::clone(executor), line.clone(), now);
        }
    }
}

/// Whether a request with this `outcome` need not wait before it is sent again: it was taken, or what becomes of it is decided
/// elsewhere.
const fn comes_through(outcome: &Outcome) -> bool {
    !matches!(
        outcome,
        Outcome::NodeGone { .. }
            | Outcome::NotDrained { .. }
            | Outcome::Lost(_)
            | Outcome::Refused { .. }
            | Outcome::Failed(_)
            | Outcome::NotLeading
    )
}

impl Driver<'_> {
    /// Folds in what a request returned, so that the next decision sees it. `retried` is what was asked for.
    pub(super) fn take(&self, kept: &mut UpgradesKept, retried: Option<RetriedRequest>, outcome: Outcome) {
        kept.complaints.hear(&outcome);
        if let Some(retried) = retried.as_ref().filter(|_| comes_through(&outcome)) {
            kept.retries.over(retried);
        }
        kept.hears_of_trial(retried.as_ref(), &outcome, self.clock.now());
        match outcome {
            Outcome::Claim(claim) => {
                let state = claim.data["status"]["state"].as_str().unwrap_or("Claimed");
                let message = claim.data["status"]["message"].as_str().unwrap_or_default();
                tracing::info!(claim = claim.name_any(), state, message, "claim");
                self.caches.claims.apply_own(*claim);
            }
            Outcome::ClaimGone { name, uid } => {
                tracing::info!(claim = &*name, "claim deleted");
                self.caches.claims.deleted_own("", &name, &uid);
            }
            Outcome::ClaimKept(claim) => {
                tracing::info!(claim = claim.name_any(), "claim deleted, and kept by others");
                kept.released.extend(claim.uid());
                self.caches.claims.apply_own(*claim);
                kept.looks_by(Instant::now());
            }
            Outcome::Node(node) => self.observer.nodes.apply_own(*node),
            Outcome::NodeGone { name, uid } => {
                self.observer.nodes.absent("", &name, &uid);
                self.lost(kept, retried, &format!("node {name} is gone"));
            }
            Outcome::Read(read) => {
                self.was_read(kept, read);
                kept.looks_by(Instant::now());
            }
            Outcome::NotDrained { line, read } => {
                self.was_read(kept, read);
                self.lost(kept, retried, &line);
            }
            Outcome::Upgrade(object) => self.upgrade_written(*object),
            Outcome::Job(job) => self.caches.jobs.apply_own(*job),
            Outcome::JobRefused { claim, why } => {
                tracing::warn!(why, "the server refuses an executor's Job");
                self.fails(kept, Reason::Api);
                kept.jobs.was_refused(claim, why, self.clock.now());
                kept.looks_by(Instant::now() + AFTER_REFUSAL);
            }
            Outcome::JobTried { executor, template, refused } => {
                if let Some(why) = &refused {
                    tracing::warn!(executor = &*executor, why, "the server would refuse an executor's Job");
                }
                kept.jobs.was_tried(executor, template, refused, self.clock.now());
                kept.looks_by(Instant::now());
            }
            Outcome::Eviction { uid, charge, answer } => {
                self.metrics.evicted(label(&answer));
                kept.hears(&answer);
                kept.sent.answered(uid, charge, &answer, self.clock.now());
            }
            Outcome::Deletion { uid, answer } => {
                self.metrics.evicted(match answer {
                    Answer::Accepted(_) => metrics::Eviction::Forced,
                    _ => label(&answer),
                });
                kept.hears(&answer);
                kept.sent.deleted(uid, &answer, self.clock.now());
            }
            Outcome::Lost(line) => self.lost(kept, retried, &line),
            Outcome::Refused { write, why } => {
                tracing::warn!(%write, why, "the server refuses a write");
                kept.refused.refused(write, why, self.clock.now());
                self.failed(kept, retried);
            }
            Outcome::Failed(line) => {
                kept.complaints.failed(&line, "a write failed");
                self.failed(kept, retried);
            }
            Outcome::NotLeading => self.fails(kept, Reason::LeadershipLost),
        }
    }

    /// Takes in an upgrade whose finalizers we wrote: without any, one that is deleted is gone.
    fn upgrade_written(&self, object: DynamicObject) {
        if object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty() {
            let uid = object.uid().unwrap_or_default();
            self.caches.upgrades.deleted_own("", &object.name_any(), &uid);
        } else {
            self.caches.upgrades.apply_own(object);
        }
    }

    /// Takes note that a request lost a race, and looks again soon: what it lost to may wake nobody, as a heartbeat does not.
    /// `retried` is what was asked for, and is not sent before that look.
    pub(super) fn lost(&self, kept: &mut UpgradesKept, retried: Option<RetriedRequest>, line: &str) {
        tracing::info!(line, "the world had moved on");
        self.fails(kept, Reason::Conflict);
        let again =
            retried.map_or_else(|| Instant::now() + AFTER_FAILURE, |retried| kept.retries.lost(retried));
        kept.looks_by(again);
    }

    /// Takes note that a request was refused or failed, and looks again when `retried`, which was asked for, may be sent.
    pub(super) fn failed(&self, kept: &mut UpgradesKept, retried: Option<RetriedRequest>) {
        self.fails(kept, Reason::Api);
        let again =
            retried.map_or_else(|| Instant::now() + AFTER_FAILURE, |retried| kept.retries.failed(retried));
        kept.looks_by(again);
    }

    /// Takes in what was read.
    fn was_read(&self, kept: &mut UpgradesKept, read: ReadNow) {
        match read {
            ReadNow::Node { name, node, pods, version, job } => {
                self.observer.reread(&name, node.map(|node| *node), pods, &version);
                kept.freshness.reread.insert(name, self.clock.now());
                if let Some(JobNow { claim, name, found, version }) = job {
                    self.caches.jobs.reread(found, &version, |seen| *seen.name == name);
                    kept.freshness.reread_jobs.insert(claim, self.clock.now());
                }
            }
            ReadNow::Attachments { all, version } => {
                self.observer.reread_attachments(all, &version);
                kept.freshness.attachments = self.clock.now();
            }
            ReadNow::Leases { asked, leaders } => kept.freshness.renewals.were_read(&leaders, asked),
            ReadNow::Gate { object, found } => kept.gates.was_read(object, found, self.clock.now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_later_look_takes_the_place_of_no_earlier_one() {
        let (mut kept, now) = (UpgradesKept::default(), Instant::now());
        for (asked, next) in
            [(AFTER_REFUSAL, AFTER_REFUSAL), (AFTER_FAILURE, AFTER_FAILURE), (AFTER_REFUSAL, AFTER_FAILURE)]
        {
            kept.looks_by(now + asked);
            assert_eq!(kept.again, Some(now + next));
        }
    }
}
