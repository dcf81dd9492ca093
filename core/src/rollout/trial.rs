//! Whether the server would take the Jobs of an upgrade's executors.
//!
//! Here belongs which of them the server is asked about, and when it is asked again. What becomes of a Job that is made
//! never belongs here. The invariant: nothing begins while the server would refuse one of them.

use std::sync::Arc;

use super::action::Action;
use super::claim::Subject;
use super::group::kubelet_subject;
use super::jobs::{Jobs, Trial, trial};
use super::not_opened::{EVERY, NotOpened};
use super::refused_writes::TOLD_FROM;
use super::round::{Round, after};
use crate::plan::{FindingCode, PlanFinding, Weight};
use crate::upgrade::{Executor, Upgrade};
use crate::version::KubeVersion;

/// The template of the Job of `executor`.
fn template(executor: &Executor) -> Option<&Arc<str>> {
    match executor {
        Executor::Job { template, .. } => Some(template),
        Executor::External { .. } => None,
    }
}

/// Whether the server would take the Jobs of all executors that the upgrade will use, of its last group too: whoever
/// approves a plan knows then what will be refused. A Job that was not tried yet is tried now. `next` is what comes next of
/// the control plane. The error has one wait for each refusal, and none while a Job is only being tried.
pub(super) fn tried(round: &mut Round<'_>, next: Option<&Subject>) -> Result<(), Vec<NotOpened>> {
    let (upgrade, jobs) = (round.upgrade, round.world.jobs);
    if upgrade.suspended || !round.world.absent_executors.is_empty() {
        return Err(Vec::new());
    }
    let (mut refused, mut due, mut unknown) = (Vec::new(), Vec::new(), false);
    for (name, executor) in &upgrade.executors {
        let Some(template) = template(executor) else { continue };
        let known = trial(jobs, name, template);
        if let Some((trial, why)) = known.and_then(|trial| Some((trial, trial.refused.clone()?))) {
            refused.push(NotOpened::Job { executor: name.clone(), why, lasting: trial.times >= TOLD_FROM });
        }
        if known.is_none_or(|trial| is_due(round, trial)) {
            due.push((name, template, known.is_none()));
        }
    }
    let used = if due.is_empty() { Vec::new() } else { used(round, next) };
    for (name, template, new) in due {
        // An executor that nothing will use is not asked about.
        let Some(subject) = used.iter().find(|subject| subject.executor == *name).cloned() else { continue };
        unknown |= new;
        let action = Action::TryJob { executor: name.clone(), template: template.clone(), subject };
        round.actions.push(action);
    }
    if refused.is_empty() && !unknown { Ok(()) } else { Err(refused) }
}

/// Whether a Job that was refused is asked about again; if not yet, this asks for another decision at its time.
fn is_due(round: &mut Round<'_>, trial: &Trial) -> bool {
    let again = after(trial.at, EVERY);
    let due = trial.refused.is_some() && round.world.now >= again;
    if trial.refused.is_some() && !due {
        round.wake(again);
    }
    due
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
        Some(kubelet_subject(round, group, nodes.find(|node| node.kubelet.known().is_none_or(old))?))
    };
    of_plane.chain(round.upgrade.groups.iter().enumerate().filter_map(of_group)).collect()
}

/// The Jobs of the executors of `upgrade` that the server would refuse, as findings of its plan.
pub fn refused_jobs(upgrade: &Upgrade, jobs: &Jobs) -> Vec<PlanFinding> {
    let refused = upgrade.executors.iter().filter_map(|(name, executor)| {
        let why = trial(jobs, name, template(executor)?)?.refused.as_ref()?;
        let what = format!("executor {name}: the server would refuse its Job: {why}");
        Some(PlanFinding::new(FindingCode::JobRefused.of(name), Weight::Blocks, what))
    });
    refused.collect()
}
