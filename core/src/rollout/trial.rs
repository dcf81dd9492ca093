//! Whether the server would take the Jobs of an upgrade's executors.
//!
//! Here belongs which of them the server is asked about, and when it is asked again. What becomes of a Job that is made
//! never belongs here. The invariant: nothing begins while the server would refuse one of them.

use std::sync::Arc;

use jiff::Timestamp;

use super::action::Action;
use super::claim::Subject;
use super::group::kubelet_subject;
use super::jobs::{Jobs, Trial, trial};
use super::not_opened::{EVERY, NotOpened};
use super::refused_writes::TOLD_FROM;
use super::round::{GONE, Round};
use super::since::again_at;
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

/// What the server would refuse of the Jobs of all executors that the upgrade will use, of its last group too: whoever
/// approves a plan knows then what will be refused. A Job that was not tried yet is tried now, and one that was refused is tried
/// again. `next` is what comes next of the control plane. `round` remembers whether anything may be opened.
pub(super) fn refused<'a>(round: &mut Round<'a>, next: Option<&Subject>) -> Vec<NotOpened> {
    let (upgrade, jobs) = (round.upgrade, round.world.jobs);
    round.untried = Some(NotOpened::Trial);
    if upgrade.suspended || !round.world.absent_executors.is_empty() {
        return Vec::new();
    }
    let known = |(name, executor): (&'a Arc<str>, &'a Executor)| {
        let template = template(executor)?;
        Some((name, template, trial(jobs, name, template)))
    };
    let open = |known: Option<&Trial>| known.is_none_or(|trial| trial.refused.is_some());
    let all = upgrade.executors.iter().filter_map(known);
    let open: Vec<(&Arc<str>, &Arc<str>, Option<&Trial>)> = all.filter(|(.., known)| open(*known)).collect();
    let used = if open.is_empty() { Vec::new() } else { used(round, next) };
    let (mut refused, mut unknown) = (Vec::new(), None);
    for (name, template, known) in open {
        // An executor that nothing will use is not asked about, and keeps nothing else from being begun.
        let Some(subject) = used.iter().find(|subject| subject.executor == *name).cloned() else { continue };
        match known.and_then(|trial| Some((trial, trial.refused.clone()?))) {
            Some((trial, why)) => {
                let lasting = trial.times >= TOLD_FROM;
                refused.push(NotOpened::Job { executor: name.clone(), why, lasting });
            }
            None => unknown = unknown.or_else(|| unanswered(round, name)).or(Some(NotOpened::Trial)),
        }
        if known.is_none_or(|trial| is_due(round, trial)) {
            let action = Action::TryJob { executor: name.clone(), template: template.clone(), subject };
            round.actions.push(action);
        }
    }
    round.untried = refused.first().cloned().or(unknown);
    refused
}

/// That the server gave no answer about the Job of `executor`, if it did not when it was asked last. A person is called when that
/// has lasted.
fn unanswered(round: &Round<'_>, executor: &Arc<str>) -> Option<NotOpened> {
    let unanswered = round.world.jobs.unanswered.get(executor)?;
    let (executor, why) = (executor.clone(), unanswered.why.clone());
    Some(NotOpened::Unanswered { executor, why, lasting: unanswered.has_lasted(GONE) })
}

/// Whether a Job that was refused is asked about again; if not yet, this asks for another decision at its time.
fn is_due(round: &mut Round<'_>, trial: &Trial) -> bool {
    let again = again_at(trial.at, EVERY, round.world.now);
    let due = round.world.now >= again;
    if !due {
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

/// The Jobs of the executors of `upgrade` that the server would refuse, as it said a short while before `now`, as findings of its
/// plan. Nothing uses an executor any more about whose Job nobody asks again.
pub fn refused_jobs(upgrade: &Upgrade, jobs: &Jobs, now: Timestamp) -> Vec<PlanFinding> {
    let refused = upgrade.executors.iter().filter_map(|(name, executor)| {
        let why = trial(jobs, name, template(executor)?)?.refused_lately(now)?;
        let what = format!("executor {name}: the server would refuse its Job: {why}");
        Some(PlanFinding::new(FindingCode::JobRefused.of(name), Weight::Blocks, what))
    });
    refused.collect()
}
