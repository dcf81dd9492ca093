//! Apiservers and controllers: one at a time, in stage order, each observed before the next.

use std::sync::Arc;

use super::round::{ExecutorState, Round, claim_name, executor, release};
use super::{Action, Claim, State, Subject};
use crate::cluster::{Cluster, Component, Instance};
use crate::plan::Stage;

/// What a claim calls an instance: its node, or its own name where no node is visible.
fn place(instance: &Instance) -> Arc<str> {
    instance.node.clone().unwrap_or_else(|| instance.name.clone())
}

fn instance_of<'a>(cluster: &'a Cluster, claim: &Claim) -> Option<&'a Instance> {
    cluster.of(claim.subject.component).find(|instance| place(instance) == claim.subject.node)
}

/// Takes a control-plane claim one step further.
pub(super) fn advance(round: &mut Round<'_>, claim: &Claim) {
    let now = round.world.now;
    let instance = instance_of(round.world.cluster, claim);
    let at_target =
        instance.filter(|i| i.ready && i.version.known().is_some_and(|v| v.satisfies(&claim.subject.to)));
    let upgraded = State::Upgraded { at: now };
    match &claim.state {
        State::Claimed => {
            if !round.may_disrupt || claim.subject.to != round.upgrade.version {
                round.actions.push(release(claim));
            } else if at_target.is_some() {
                round.record(claim, upgraded, "was at the target already");
            } else if let Some(other) = unready_apiserver(round.world.cluster, claim) {
                let place = &claim.subject.node;
                round.blocked.push(format!("{place}: waits until kube-apiserver {other} answers"));
            } else {
                let before = instance.map_or_else(|| "".into(), |i| i.incarnation.clone());
                round.record(claim, State::Upgrading { since: now, before }, "the executor may work");
            }
        }
        State::Upgrading { since, before } => {
            if at_target.is_some_and(|i| i.incarnation != *before) {
                let message = format!("observed at {}", claim.subject.to);
                round.record(claim, upgraded, message);
                return;
            }
            match executor(round, claim, *since) {
                ExecutorState::Working(line) => round.working.push(line),
                ExecutorState::Failed(why) => {
                    round.record(claim, State::Failed { since: now }, why.clone());
                    round.blocked.push(why);
                }
            }
        }
        State::Failed { .. } => {
            if at_target.is_some() {
                round.record(claim, upgraded, format!("observed at {} after all", claim.subject.to));
            }
            let subject = &claim.subject;
            round.blocked.push(format!("{} on {}: {}", subject.component, subject.node, claim.message));
        }
        State::Upgraded { .. } => {
            // It was given back and is not at the target (any more): the claim is history, a new one may be made.
            if instance.is_some_and(|i| i.ready) && at_target.is_none() {
                round.actions.push(release(claim));
            }
        }
        State::Draining { .. } | State::Parked { .. } => round.actions.push(release(claim)),
    }
}

/// Another apiserver than the claim's that does not answer: taking one away now could leave none.
fn unready_apiserver(cluster: &Cluster, claim: &Claim) -> Option<Arc<str>> {
    let others = cluster.of(Component::KubeApiserver);
    let mut others = others
        .filter(|i| claim.subject.component != Component::KubeApiserver || place(i) != claim.subject.node);
    others.find(|i| !i.ready).map(|i| i.name.clone())
}

/// Claims the next component of `stage`, when none is under way.
pub(super) fn open(round: &mut Round<'_>, stage: Stage, mine: &[&Claim]) {
    let busy = |claim: &&Claim| {
        claim.subject.component != Component::Kubelet
            && (claim.state.in_flight() || matches!(claim.state, State::Failed { .. }))
    };
    if mine.iter().any(busy) {
        return;
    }
    let target = &round.upgrade.version;
    let mut of_stage =
        round.world.cluster.instances().iter().filter(|i| Stage::of(i.component) == Some(stage));
    let done = |i: &&Instance| i.ready && i.version.known().is_some_and(|v| v.satisfies(target));
    let Some(next) = of_stage.find(|i| !done(i)) else { return };
    if !next.ready {
        round.blocked.push(format!("waits until {} {} is ready", next.component, next.name));
        return;
    }
    if next.version.known().is_none() {
        round.blocked.push(format!("the version of {} {} is not known", next.component, next.name));
        return;
    }
    let node = place(next);
    let node_uid = round.world.cluster.node(&node).map_or_else(|| "".into(), |n| n.uid.clone());
    let subject = Subject {
        component: next.component,
        node_uid,
        from: next.version.to_string(),
        to: target.clone(),
        executor: round.upgrade.control_plane_executor.clone(),
        node,
    };
    let name = claim_name(&round.upgrade.name, &subject);
    if mine.iter().all(|claim| *claim.name != *name) {
        round.actions.push(Action::Claim { name, subject });
    }
}
