//! Whether the server would take the Jobs of an upgrade's executors.
//!
//! Here belongs which of them the server is asked about, and when it is asked again. Never here: what becomes of a Job that
//! is made. The invariant: nothing begins that needs a Job which the server would refuse.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::group::subject as of_node;
use super::round::{Round, after};
use super::{Action, Jobs, Subject};
use crate::plan::{Finding, Weight};
use crate::upgrade::{Executor, Upgrade};
use crate::version::KubeVersion;

/// A Job that the server would have refused is asked about again after so long: until then a person may have removed the
/// reason, such as a full quota.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(15);

/// What the server said to the Job of an executor that was only tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The template that was tried.
    pub template: Arc<str>,
    /// Why the server would refuse it, in one line.
    pub refused: Option<String>,
    /// When it was asked.
    pub at: Timestamp,
}

/// The template of the Job of `executor`.
fn template(executor: &Executor) -> Option<&Arc<str>> {
    match executor {
        Executor::Job { template, .. } => Some(template),
        Executor::External { .. } | Executor::Absent { .. } => None,
    }
}

/// What was said to the Job of `template`, as it is now.
fn trial<'a>(jobs: &'a Jobs, name: &str, template: &Arc<str>) -> Option<&'a Trial> {
    jobs.tried.get(name).filter(|trial| trial.template == *template)
}

/// Whether the server would take the Job of every executor that something will use: `subject` says what, and an executor
/// that nothing uses is not asked about. A Job that was not tried yet is tried now. The error has one line for each refusal,
/// and none while a Job is only being tried.
pub(super) fn tried(
    round: &mut Round<'_>,
    subject: impl Fn(&str) -> Option<Subject>,
) -> Result<(), Vec<String>> {
    let (upgrade, jobs) = (round.upgrade, round.world.jobs);
    let mut refused = Vec::new();
    let mut unknown = false;
    for (name, executor) in &upgrade.executors {
        let Some(template) = template(executor) else { continue };
        let known = trial(jobs, name, template);
        if let Some(why) = known.and_then(|trial| trial.refused.as_ref()) {
            refused.push(line(name, why));
        }
        let due = known.is_none_or(|trial| is_due(round, trial));
        let Some(subject) = subject(name).filter(|_| due) else { continue };
        unknown |= known.is_none();
        let action = Action::TryJob { executor: name.clone(), template: template.clone(), subject };
        round.actions.push(action);
    }
    if refused.is_empty() && !unknown { Ok(()) } else { Err(refused) }
}

/// Whether a Job that was refused is asked about again; if not yet, this asks for another decision at its time.
fn is_due(round: &mut Round<'_>, trial: &Trial) -> bool {
    let again = after(trial.at, TRIED_AGAIN);
    let due = trial.refused.is_some() && round.world.now >= again;
    if trial.refused.is_some() && !due {
        round.wake(again);
    }
    due
}

/// Asks about the Jobs of all executors that the upgrade will use, while nothing of it was begun or its plan is not approved:
/// whoever approves a plan knows then what the server will refuse. `next` is what comes next of the control plane.
pub(super) fn ahead(round: &mut Round<'_>, next: Option<&Subject>) {
    let open = round.mine.is_empty() || !round.approved();
    if !open || round.upgrade.suspended || round.upgrade.absent().is_some() {
        return;
    }
    let asked: Vec<Arc<str>> = round.actions.iter().filter_map(executor_of).cloned().collect();
    let mut subjects = used(round, next);
    subjects.retain(|subject| !asked.contains(&subject.executor));
    // What is refused is in the plan's findings; whatever needs the Job says so when its time has come.
    _ = tried(round, |name| subjects.iter().find(|subject| *subject.executor == *name).cloned());
}

/// The executor whose Job `action` asks about.
fn executor_of(action: &Action) -> Option<&Arc<str>> {
    match action {
        Action::TryJob { executor, .. } => Some(executor),
        _ => None,
    }
}

/// One thing to move for each executor that the upgrade of `round` uses.
fn used(round: &Round<'_>, next: Option<&Subject>) -> Vec<Subject> {
    let plane = &round.upgrade.control_plane;
    let executors = [Some(&plane.executor), plane.first_executor.as_ref()].into_iter().flatten();
    let of_plane = executors.filter_map(|name| Some(Subject { executor: name.clone(), ..next.cloned()? }));
    let old = |version: &KubeVersion| !version.satisfies(&round.upgrade.version);
    let of_group = |(at, group)| {
        let here = round.selected.iter().filter(|selected| selected.member.group == at);
        let mut nodes = here.map(|selected| selected.member.node);
        Some(of_node(round, group, nodes.find(|node| node.kubelet.known().is_none_or(old))?))
    };
    of_plane.chain(round.upgrade.groups.iter().enumerate().filter_map(of_group)).collect()
}

fn line(executor: &str, why: &str) -> String {
    format!("executor {executor}: the server would refuse its Job: {why}")
}

/// The Jobs of the executors of `upgrade` that the server would refuse, as findings of its plan.
pub fn refused_jobs(upgrade: &Upgrade, jobs: &Jobs) -> Vec<Finding> {
    let refused = upgrade.executors.iter().filter_map(|(name, executor)| {
        let why = trial(jobs, name, template(executor)?)?.refused.as_ref()?;
        Some(Finding::new(format!("E2/{name}"), Weight::Stops, line(name, why)))
    });
    refused.collect()
}
