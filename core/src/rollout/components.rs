//! Control-plane components: one at a time, in stage order, each observed before the next.

use super::executor::{Standing, drive, tried};
use super::round::{Round, claim_name, record, release};
use super::seen::name_of;
use super::{Action, Before, Claim, ClaimState, Subject};
use crate::cluster::{Cluster, Component, Evidence, Instance};
use crate::plan::Stage;

fn instance_of<'a>(cluster: &'a Cluster, claim: &Claim) -> Option<&'a Instance> {
    cluster.of(claim.subject.component).find(|instance| *name_of(instance) == claim.subject.node)
}

/// Whether what a claim is about is gone for good: its Node is another one, or others have taken its place.
fn is_void(round: &Round<'_>, claim: &Claim) -> bool {
    let subject = &claim.subject;
    let node = round.world.cluster.node(&subject.node);
    if !subject.node_uid.is_empty() && node.is_none_or(|node| node.uid != subject.node_uid) {
        return true;
    }
    let here = instance_of(round.world.cluster, claim).is_some();
    let missed =
        |place: &crate::upgrade::Place| place.component == subject.component && place.name == subject.node;
    !here && !round.missing.iter().any(missed)
}

/// Whether `instance` runs what `claim` wants, in another process than before.
fn was_replaced(instance: &Instance, claim: &Claim, before: &Before) -> bool {
    // A server that answers with another version at its own address is another process.
    let answers =
        instance.evidence == Evidence::Endpoint && instance.version.to_string() != claim.subject.from;
    instance.replaced_since(&before.incarnation) || answers
}

/// Takes a control-plane claim one step further.
pub(super) fn advance(round: &mut Round<'_>, claim: &Claim) {
    let now = round.world.now;
    if is_void(round, claim) {
        round.actions.push(release(claim));
        return;
    }
    let instance = instance_of(round.world.cluster, claim);
    let at_target =
        instance.filter(|i| i.ready && i.version.known().is_some_and(|v| v.satisfies(&claim.subject.to)));
    let upgraded = ClaimState::Upgraded { at: now };
    match &claim.state {
        ClaimState::Claimed => {
            if !round.wants(claim) {
                round.actions.push(release(claim));
            } else if at_target.is_some() {
                round.record(claim, upgraded, "was at the target already");
            } else if let Some(line) = not_now(round, claim) {
                let place = &claim.subject.node;
                round.blocked.push(format!("{place}: {line}"));
            } else if !round.heard_afresh() {
                let place = &claim.subject.node;
                round.working.push(format!("{place}: asks every kube-apiserver afresh"));
            } else {
                let incarnation = instance.map_or_else(|| "".into(), |i| i.incarnation.clone());
                let before = Before { incarnation, ..Before::default() };
                round.record(claim, ClaimState::Upgrading { since: now, before }, "the executor may work");
            }
        }
        ClaimState::Upgrading { since, before } => {
            if at_target.is_some_and(|instance| was_replaced(instance, claim, before)) {
                let message = format!("observed at {}", claim.subject.to);
                round.record(claim, upgraded, message);
                return;
            }
            match drive(round, claim, *since, None) {
                Standing::Working(line) => round.working.push(line),
                Standing::Refused(line) => {
                    if claim.message != line {
                        round.actions.push(record(claim, claim.state.clone(), line.clone()));
                    }
                    round.blocked.push(line);
                }
                Standing::Failed(why) => {
                    round.record(claim, ClaimState::Failed { since: now }, why.clone());
                    round.blocked.push(why);
                }
            }
        }
        ClaimState::Failed { .. } => {
            if at_target.is_some() {
                round.record(claim, upgraded, format!("observed at {} after all", claim.subject.to));
            } else if claim.ending {
                round.actions.push(release(claim));
            }
            let subject = &claim.subject;
            round.blocked.push(format!("{} on {}: {}", subject.component, subject.node, claim.message));
        }
        ClaimState::Upgraded { .. } if claim.ending || claim.subject.to != round.upgrade.version => {
            round.actions.push(release(claim));
        }
        ClaimState::Upgraded { .. } => {
            if let Some(instance) = instance.filter(|i| i.ready && at_target.is_none()) {
                let Subject { component, node, .. } = &claim.subject;
                let (version, name) = (&instance.version, &claim.name);
                round.went_back = true;
                round.needs_a_person.push(format!(
                    "{component} on {node} went back to {version} after it was upgraded; delete NodeUpgrade {name} to \
                     have it moved again"
                ));
            }
        }
        ClaimState::Draining { .. } | ClaimState::Parked { .. } => round.actions.push(release(claim)),
    }
}

/// Why taking the claim's component away now could leave the cluster without one, in one line.
fn not_now(round: &Round<'_>, claim: &Claim) -> Option<String> {
    let cluster = round.world.cluster;
    if let Some(place) = round.missing.first() {
        return Some(format!("waits until {} on {} is seen again", place.component, place.name));
    }
    let mut others = cluster
        .of(Component::KubeApiserver)
        .filter(|i| claim.subject.component != Component::KubeApiserver || *name_of(i) != claim.subject.node);
    let silent = others.find(|i| !i.ready)?;
    Some(format!("waits until kube-apiserver {} answers", silent.name))
}

/// Claims the next component of `stage`, when none is under way.
pub(super) fn open(round: &mut Round<'_>, stage: Stage) {
    let of_control_plane = |claim: &&&Claim| !claim.is_of_kubelet();
    if round.mine.iter().filter(of_control_plane).any(|claim| claim.state.unfinished()) {
        return;
    }
    if round.went_back {
        return;
    }
    if let Some(place) = round.missing.first() {
        let line = format!("waits until {} on {} is seen again", place.component, place.name);
        round.blocked.push(line);
        return;
    }
    let cluster = round.world.cluster;
    let planned = round.hop.next_of(|component| Stage::of(component) == Some(stage)).and_then(|step| {
        let here = |i: &&Instance| Some(&i.component) == step.components.first() && *name_of(i) == step.place;
        cluster.instances().iter().find(here)
    });
    let of_stage = || cluster.instances().iter().filter(|i| Stage::of(i.component) == Some(stage));
    // Whatever is not ready comes back before anything else goes.
    let Some(next) = of_stage().find(|i| !i.ready).or(planned) else { return };
    if !next.ready {
        let line = format!("waits until {} {} is ready", next.component, next.name);
        let node = next.node.as_ref().and_then(|name| round.world.cluster.node(name));
        match node.filter(|node| round.is_gone(node)) {
            Some(node) => {
                round.needs_a_person.push(format!("{line}, and node {} has long been silent", node.name));
            }
            None => round.blocked.push(line),
        }
        return;
    }
    if next.version.known().is_none() {
        round.blocked.push(format!("the version of {} {} is not known", next.component, next.name));
        return;
    }
    let subject = subject(round, next);
    let of_control_plane = |name: &str| (*subject.executor == *name).then(|| subject.clone());
    if let Err(lines) = tried(round, of_control_plane) {
        round.blocked.extend(lines);
        return;
    }
    let name = claim_name(&round.upgrade.name, &subject);
    if let Some(unreadable) = round.world.unreadable.iter().find(|unreadable| *unreadable.name == *name) {
        round.blocked.push(unreadable.why.clone());
    } else if round.world.claims.iter().all(|claim| *claim.name != *name) {
        round.actions.push(Action::Claim { name, subject });
    }
}

/// What a claim of `instance` is about.
pub(super) fn subject(round: &Round<'_>, instance: &Instance) -> Subject {
    let node = name_of(instance).clone();
    let node_uid = round.world.cluster.node(&node).map_or_else(|| "".into(), |n| n.uid.clone());
    Subject {
        component: instance.component,
        node_uid,
        from: instance.version.to_string(),
        to: round.upgrade.version.clone(),
        executor: round.upgrade.control_plane.executor.clone(),
        node,
    }
}
