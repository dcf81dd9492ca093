//! The one entry: what to do about an upgrade now.

use jiff::Timestamp;

use super::status::{Outlook, status};
use super::{Action, Claim, Decision, Mode, State, Upgrade, World, nodes, servers};
use crate::cluster::Component;
use crate::disruption::Budgets;
use crate::plan::{self, Stage};

/// How many finished claims are kept to look at; beyond, the oldest are deleted.
const KEPT_UPGRADED: usize = 100;

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

/// What to do about `upgrade` now, and how it stands. Total: any world has an answer.
pub fn decide(upgrade: &Upgrade, world: World<'_>) -> Decision {
    let cluster = world.cluster;
    let progress = plan::progress(cluster, upgrade);
    let from = upgrade.plan.as_ref().map(|(_, from)| from.clone()).or_else(|| plan::from_version(cluster));
    let hash = from.as_ref().map(|from| plan::hash(upgrade, from));
    let approved = match upgrade.mode {
        Mode::PlanOnly => false,
        Mode::Automatic => true,
        Mode::RequireApproval => hash.is_some() && upgrade.approved_hash.as_deref() == hash.as_deref(),
    };
    let mut round = Round {
        upgrade,
        world,
        stage: plan::current_stage(&progress),
        may_disrupt: approved && !upgrade.suspended && upgrade.queued_behind.is_none(),
        budgets: Budgets::new(&cluster.budgets, world.memory.budgets.clone()),
        actions: Vec::new(),
        again_at: None,
        hope: false,
        blocked: Vec::new(),
        working: Vec::new(),
    };
    let preflight = plan::preflight(cluster, upgrade);
    let mine: Vec<&Claim> = world.claims.iter().filter(|claim| claim.upgrade == upgrade.name).collect();
    let mut outlook = Outlook { from, hash, approved, preflight, ..Outlook::default() };

    if upgrade.completed.is_none() {
        let mut by_age = mine.clone();
        by_age.sort_by_key(|claim| match claim.state {
            State::Draining { since } => (since, claim.name.clone()),
            _ => (Timestamp::MAX, claim.name.clone()),
        });
        for claim in by_age {
            match claim.subject.component {
                Component::Kubelet => nodes::advance(&mut round, claim),
                _ => servers::advance(&mut round, claim),
            }
        }
        if round.may_disrupt && outlook.preflight.is_empty() {
            match round.stage {
                Some(Stage::Kubelets) => nodes::open(&mut round, &mine),
                Some(stage) => servers::open(&mut round, stage, &mine),
                None => {}
            }
        }
        forget_oldest(&mut round, &mine);
    }
    outlook.held = nodes::held(&round, &mine);
    let Round { actions, again_at, hope, blocked, working, .. } = round;
    outlook.hope = hope;
    outlook.waits = blocked.into_iter().chain(working).collect();
    let status = status(upgrade, world, &mine, &progress, outlook, &actions);
    Decision { actions, status, again_at }
}

fn forget_oldest(round: &mut Round<'_>, mine: &[&Claim]) {
    let mut finished: Vec<_> = mine
        .iter()
        .filter_map(|claim| match claim.state {
            State::Upgraded { at } => Some((at, *claim)),
            _ => None,
        })
        .collect();
    finished.sort_by(|(a, x), (b, y)| (a, &x.name).cmp(&(b, &y.name)));
    let surplus = finished.len().saturating_sub(KEPT_UPGRADED);
    for (_, claim) in finished.into_iter().take(surplus) {
        round.actions.push(release(claim));
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
    use super::{Executor, JobState};
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
