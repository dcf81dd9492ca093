//! What the parts of one decision share: the world, what was decided so far, and the writes they have in common.

use jiff::Timestamp;

use super::{Action, Claim, JobState, State, Subject, World};
use crate::disruption::Budgets;
use crate::plan::{Executor, Stage, Upgrade, hex};
use sha2::{Digest, Sha256};

/// What the parts of a decision share.
pub(super) struct Round<'a> {
    pub(super) upgrade: &'a Upgrade,
    pub(super) world: World<'a>,
    /// Every server answers and runs the target: kubelet work may begin.
    pub(super) stage: Option<Stage>,
    /// Disruption that was begun may go on.
    pub(super) may_disrupt: bool,
    pub(super) budgets: Budgets<'a>,
    pub(super) actions: Vec<Action>,
    pub(super) again_at: Option<Timestamp>,
    /// A node that does not move now may move later without a person.
    pub(super) hope: bool,
    /// What something other than time stands in the way of, one line each.
    pub(super) blocked: Vec<String>,
    /// What is under way and takes its time, one line each.
    pub(super) working: Vec<String>,
}

impl Round<'_> {
    /// Decide again at `at`, or earlier.
    pub(super) fn wake(&mut self, at: Timestamp) {
        self.again_at = Some(self.again_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Record `state` for `claim`.
    pub(super) fn record(&mut self, claim: &Claim, state: State, message: impl Into<String>) {
        self.actions.push(record(claim, state, message));
    }
}

/// The write that takes `claim` to `state`.
pub(super) fn record(claim: &Claim, state: State, message: impl Into<String>) -> Action {
    Action::Record {
        claim: claim.name.clone(),
        resource_version: claim.resource_version.clone(),
        state,
        attempt: claim.attempt,
        message: message.into(),
        blockers: Vec::new(),
        drained: None,
    }
}

/// Delete a claim.
pub(super) fn release(claim: &Claim) -> Action {
    Action::Release {
        claim: claim.name.clone(),
        uid: claim.uid.clone(),
        resource_version: claim.resource_version.clone(),
    }
}

/// Whether an executor that had its go since `since` is over its deadline, and what to say while it works.
pub(super) enum ExecutorState {
    /// At work; one line says what is waited for.
    Working(String),
    /// It failed, for this reason.
    Failed(String),
}

/// Drives and reads the executor of a claim that is at [`State::Upgrading`].
pub(super) fn executor(round: &mut Round<'_>, claim: &Claim, since: Timestamp) -> ExecutorState {
    let subject = &claim.subject;
    let what = format!("{} on {} from {} to {}", subject.component, subject.node, subject.from, subject.to);
    match round.upgrade.executors.get(&subject.executor) {
        None => ExecutorState::Failed(format!("executor {} is not in the ClusterUpgrade", subject.executor)),
        Some(Executor::External { deadline }) => {
            let until = since.saturating_add(*deadline).unwrap_or(Timestamp::MAX);
            if round.world.now >= until {
                let after = deadline.as_secs();
                return ExecutorState::Failed(format!("{what} was not observed within {after} s"));
            }
            round.wake(until);
            ExecutorState::Working(format!("waits for executor {} to take {what}", subject.executor))
        }
        Some(Executor::Job) => match round.world.jobs.get(&(claim.uid.clone(), claim.attempt)) {
            None => {
                round.actions.push(Action::StartJob {
                    claim: claim.name.clone(),
                    uid: claim.uid.clone(),
                    attempt: claim.attempt,
                    subject: subject.clone(),
                });
                ExecutorState::Working(format!("starts the Job that takes {what}"))
            }
            Some(JobState::Running) => ExecutorState::Working(format!("waits for the Job that takes {what}")),
            Some(JobState::Complete) => {
                ExecutorState::Working(format!("its Job is complete; waits to observe {what}"))
            }
            Some(JobState::Failed(message)) => ExecutorState::Failed(format!("its Job failed: {message}")),
        },
    }
}

/// The name of the claim of `subject`: one claim per upgrade, component and node.
pub(super) fn claim_name(upgrade: &str, subject: &Subject) -> String {
    let full = format!("{upgrade}.{}.{}", subject.component, subject.node.replace([':', '[', ']'], "-"));
    if full.len() <= 253 {
        return full;
    }
    let digest = hex(&Sha256::digest(&full), 8);
    let cut: String = full.chars().take(230).collect();
    format!("{}-{digest}", cut.trim_end_matches(['.', '-']))
}
