//! Control-plane components: one at a time, or those of one node together, in the plan's order, each observed before
//! the next.
//!
//! The invariant: what a claim moves together is done when each part of it is, and not before its executor is, so that
//! no second node is taken away while the first one is still worked on.

use jiff::Timestamp;

use super::claim::{Before, Claim, ClaimState, Subject};
use super::control_plane_whole::{others_are_whole, statics_return};
use super::executor::{Effect, ExecutorState, asked, deadline, drive, has_ended, works_still};
use super::gate::{ToOpen, may_open, may_still_begin, takes_back};
use super::kubelet::heartbeat;
use super::leftovers::{at_target, goes_with, node_of};
use super::nodes::{not_ready, waits_for};
use super::presence::name_of;
use super::round::{Round, claim_name, record, release};
use super::static_pods::{static_pods, statics_lack};
use super::upgrade_phase::UpgradePhase;
use super::waiting::{EndedBy, WaitReason, Waiting};
use crate::cluster::{Cluster, Component, Evidence, Instance};
use crate::plan::{Stage, Step, is_there};
use crate::upgrade::{ComponentPlace, Unit};
use crate::version::KubeVersion;

fn instance_of<'a>(cluster: &'a Cluster, claim: &Claim, component: Component) -> Option<&'a Instance> {
    cluster.of(component).find(|instance| *name_of(instance) == claim.subject.node)
}

/// Whether a kube-apiserver runs on the Node `place`.
fn has_server(cluster: &Cluster, place: &str) -> bool {
    cluster.of(Component::KubeApiserver).any(|server| server.node.as_deref() == Some(place))
}

/// Whether what a claim is about is gone for good: its Node is another one, or others have taken its place.
fn is_void(round: &Round<'_>, claim: &Claim) -> bool {
    let subject = &claim.subject;
    let cluster = round.world.cluster;
    if !subject.node_uid.is_empty() {
        if node_of(cluster, claim).is_none() {
            return true;
        }
        // Its components come and go while they are replaced; the Node stays.
        if subject.is_of_plane() {
            return false;
        }
    }
    let here = |component: &Component| instance_of(cluster, claim, *component).is_some();
    let missed =
        |place: &ComponentPlace| subject.moves().contains(&place.component) && place.name == subject.node;
    !subject.moves().iter().any(here) && !round.missing.iter().any(missed)
}

/// Whether `instance` runs what `claim` wants, in another process than `before`.
fn was_replaced(instance: &Instance, claim: &Claim, before: &str) -> bool {
    // A server that answers with another version at its own address is another process.
    let answers =
        instance.evidence == Evidence::Endpoint && instance.version.to_string() != claim.subject.from;
    instance.replaced_since(before) || answers
}

/// What `component` of `claim` lacks, in words that follow its name; `None` when it is done. `before` is what there was
/// when its executor began, if a restart has to be seen.
fn lacks(cluster: &Cluster, claim: &Claim, component: Component, before: Option<&Before>) -> Option<String> {
    if component == Component::Kubelet {
        return kubelet_lacks(cluster, claim, before);
    }
    let Some(instance) = instance_of(cluster, claim, component) else {
        return Some("is not seen".to_owned());
    };
    let runs_it = |instance: &Instance| {
        instance.version.known().is_some_and(|version| is_there(component, version, &claim.subject.to))
    };
    let restarted = before
        .and_then(|before| before.of(component))
        .is_none_or(|before| was_replaced(instance, claim, before));
    match instance {
        instance if !instance.ready => Some("is not ready yet".to_owned()),
        instance if !runs_it(instance) => Some(format!("is at {}", instance.version)),
        _ if !restarted => Some("was not seen to restart".to_owned()),
        _ => None,
    }
}

/// The same of the kubelet, where one process runs it and the control plane of its node.
fn kubelet_lacks(cluster: &Cluster, claim: &Claim, before: Option<&Before>) -> Option<String> {
    let Some(node) = node_of(cluster, claim) else { return Some("is not seen".to_owned()) };
    let silent = before.and_then(|before| before.of(Component::Kubelet)) == Some(&*heartbeat(node));
    if !node.ready {
        Some("is not ready yet".to_owned())
    } else if !at_target(node, claim) {
        Some(format!("is at {}", node.kubelet))
    } else if silent {
        Some("was not seen to restart".to_owned())
    } else {
        let waits = before.and_then(|before| waits_for(cluster, node, before));
        waits.map(|waits| format!("is observed, but {waits}"))
    }
}

/// The first component of `claim` that is not done, and what it lacks.
fn left(round: &Round<'_>, claim: &Claim, before: Option<&Before>) -> Option<(Component, String)> {
    let cluster = round.world.cluster;
    let lacks = |of: &Component| Some((*of, lacks(cluster, claim, *of, before)?));
    claim.subject.moves().iter().find_map(lacks)
}

/// What is there before the executor of `claim` begins.
fn before(round: &Round<'_>, claim: &Claim) -> Before {
    let cluster = round.world.cluster;
    let run = |component: Component| match component {
        Component::Kubelet => node_of(cluster, claim).map(heartbeat),
        _ => instance_of(cluster, claim, component).map(|instance| instance.incarnation.clone()),
    };
    let run = |component: Component| run(component).unwrap_or_else(|| "".into());
    let subject = &claim.subject;
    if !subject.is_of_plane() {
        return Before { incarnation: run(subject.component), ..Before::default() };
    }
    let static_pods = static_pods(cluster, &subject.node);
    let moves = subject.components.iter().filter(|of| lacks(cluster, claim, **of, None).is_some());
    let parts = moves.map(|of| (*of, run(*of))).collect();
    let kubelet = subject.components.contains(&Component::Kubelet);
    let unready = node_of(cluster, claim).filter(|_| kubelet).map(|node| not_ready(cluster, node));
    Before { parts, not_ready: unready.unwrap_or_default(), static_pods, ..Before::default() }
}

/// Whether `claim` moves together what the upgrade wants to be moved together: a person may have changed that since.
fn fits(round: &Round<'_>, claim: &Claim) -> bool {
    let together = claim.subject.is_of_plane();
    match round.upgrade.control_plane.unit {
        Unit::Component => !together,
        Unit::Node => together || !has_server(round.world.cluster, &claim.subject.node),
    }
}

/// Takes a control-plane claim one step further.
pub(super) fn advance(round: &mut Round<'_>, claim: &Claim) {
    let now = round.world.now;
    if is_void(round, claim) {
        round.actions.push(release(claim));
        return;
    }
    let place = &claim.subject.node;
    match &claim.state {
        ClaimState::Claimed => {
            if !round.wants(claim) || !fits(round, claim) || !is_next(round, claim) {
                round.actions.push(release(claim));
            } else if left(round, claim, None).is_none() {
                round.record(claim, ClaimState::Upgraded { at: now }, "was at the target already");
            } else if let Some((reason, line)) = not_now(round, claim) {
                let line = format!("{place}: {line}");
                if reason.ended_by() == EndedBy::Person {
                    round.needs_a_person.push(line);
                } else {
                    round.blocks(reason, line);
                }
            } else if round.plan_is_blocked() {
                round.actions.push(release(claim));
            } else if let Err(wait) = may_still_begin(round, claim, None) {
                takes_back(round, claim, wait);
            } else if !round.heard_afresh() {
                round.works(WaitReason::ReadingAgain, format!("{place}: asks every kube-apiserver afresh"));
            } else {
                let before = Before { asked: Some(asked(round, claim)), ..before(round, claim) };
                let state = ClaimState::Upgrading { since: now, before, observed: None };
                round.record(claim, state, "the executor may work");
            }
        }
        ClaimState::Upgrading { since, before, .. } => upgrading(round, claim, *since, before),
        ClaimState::Failed { .. } => failed(round, claim),
        ClaimState::Upgraded { .. } if claim.ending || claim.subject.to != round.upgrade.version => {
            goes_with(round, claim, release(claim));
        }
        ClaimState::Upgraded { .. } => upgraded(round, claim),
        ClaimState::Draining { .. } | ClaimState::Parked { .. } => round.actions.push(release(claim)),
    }
}

fn upgrading(round: &mut Round<'_>, claim: &Claim, since: Timestamp, before: &Before) {
    let now = round.world.now;
    let left = left(round, claim, Some(before));
    let together = claim.subject.is_of_plane();
    let statics = statics_lack(round.world.cluster, &claim.subject.node, before).filter(|_| left.is_none());
    let place = &claim.subject.node;
    let observed = left.is_none() && statics.is_none();
    let works = works_still(round, claim).filter(|_| observed && !together);
    // kubeadm goes on after its versions can be seen: it writes its configuration last.
    if observed && has_ended(round, claim) {
        let kubelet = claim.subject.moves().contains(&Component::Kubelet);
        if kubelet
            && node_of(round.world.cluster, claim).is_some_and(|node| statics_return(round, claim, node))
        {
            return;
        }
        let message = format!("observed at {}", claim.subject.to);
        round.record(claim, ClaimState::Upgraded { at: now }, message);
        return;
    }
    let seen = match left {
        _ if !together => works.map_or(Effect::Part(None), Effect::But),
        Some((component, lacks)) => Effect::Part(Some(format!("{place}: {component} {lacks}"))),
        None => statics.map_or(Effect::All, Effect::But),
    };
    match drive(round, claim, since, seen) {
        ExecutorState::Working(line) => {
            let until = deadline(round, claim, since);
            round.working.push(Waiting::new(WaitReason::ExecutorWorking, line).until(until));
        }
        ExecutorState::Refused(line, until) => {
            if claim.message != line {
                round.actions.push(record(claim, claim.state.clone(), line.clone()));
            }
            let line = format!("{}: {line}", claim.subject.what());
            round.blocked.push(Waiting::new(WaitReason::JobRefused, line).until(until));
        }
        ExecutorState::Failed(why) => {
            let line = format!("{}: {why}; {}", claim.subject.what(), to_mend(claim));
            round.record(claim, ClaimState::Failed { since: now, before: before.clone() }, why);
            round.blocks(WaitReason::STEP_FAILED, line);
        }
    }
}

fn failed(round: &mut Round<'_>, claim: &Claim) {
    let Subject { to, .. } = &claim.subject;
    let line = format!("{}: {}", claim.subject.what(), claim.message);
    let done = left(round, claim, None).is_none();
    if done && has_ended(round, claim) {
        let upgraded = ClaimState::Upgraded { at: round.world.now };
        round.record(claim, upgraded, format!("observed at {to} after all"));
        round.blocks(WaitReason::STEP_FAILED, line);
        return;
    }
    if claim.ending {
        goes_with(round, claim, release(claim));
    }
    let todo = if done && claim.subject.is_of_plane() {
        format!("delete NodeUpgrade {} when nothing is left to do there", claim.name)
    } else {
        to_mend(claim)
    };
    round.blocks(WaitReason::STEP_FAILED, format!("{line}; {todo}"));
}

/// What a person has to do about the step of `claim`, which failed.
fn to_mend(claim: &Claim) -> String {
    format!("mend it, then delete NodeUpgrade {}", claim.name)
}

/// The first component of a claim that is done and is known not to be at the target any more, and what it runs.
fn went_back(cluster: &Cluster, claim: &Claim) -> Option<(Component, KubeVersion)> {
    let went_back = |component: &Component| {
        let version = match component {
            Component::Kubelet => &node_of(cluster, claim).filter(|node| node.ready)?.kubelet,
            _ => &instance_of(cluster, claim, *component).filter(|instance| instance.ready)?.version,
        };
        let version = version.known().filter(|version| !is_there(*component, version, &claim.subject.to))?;
        Some((*component, version.clone()))
    };
    claim.subject.moves().iter().find_map(went_back)
}

/// Whether a component that this upgrade moved is not at the target any more.
pub(super) fn any_went_back(round: &Round<'_>) -> bool {
    let is_done = |claim: &&&Claim| {
        let upgraded = matches!(claim.state, ClaimState::Upgraded { .. }) && !claim.ending;
        upgraded && !claim.is_of_kubelet() && claim.subject.to == round.upgrade.version
    };
    let mut done = round.mine.iter().filter(is_done).filter(|claim| !is_void(round, claim));
    done.any(|claim| went_back(round.world.cluster, claim).is_some())
}

/// Looks after a claim that is done: what went back is for a person, and a component that it did not move makes room for
/// a new claim.
fn upgraded(round: &mut Round<'_>, claim: &Claim) {
    if let Some((component, version)) = went_back(round.world.cluster, claim) {
        let Subject { node, to, .. } = &claim.subject;
        round.needs_a_person.push(if version.minor() > to.minor() {
            format!(
                "{component} on {node} runs {version}, a newer minor than {to}, and nothing is ever taken back: choose a \
                 target of its minor"
            )
        } else {
            format!(
                "{component} on {node} went back to {version} after it was upgraded; delete NodeUpgrade {} to have it moved \
                 again",
                claim.name
            )
        });
        return;
    }
    let another = |step: &Step| {
        step.place == claim.subject.node
            && step.components.iter().any(|of| !claim.subject.components.contains(of))
    };
    if claim.subject.is_of_plane() && round.missing.is_empty() && round.hop.steps.iter().any(another) {
        round.actions.push(release(claim));
    }
}

/// Whether `claim`, whose executor has not begun, waits for the rest of the control plane.
pub(super) fn waits(round: &Round<'_>, claim: &Claim) -> bool {
    not_now(round, claim).is_some()
}

/// Why taking away now what `claim` is about could leave the cluster without it, in one line.
fn not_now(round: &Round<'_>, claim: &Claim) -> Option<(WaitReason, String)> {
    let cluster = round.world.cluster;
    if let Some(place) = round.missing.first() {
        return Some((WaitReason::ComponentAway, is_missed(place)));
    }
    let subject = &claim.subject;
    if let Some(other) = kubelet_in_the_way(round, subject) {
        let line = format!("waits until NodeUpgrade {} has ended", other.name);
        return Some((WaitReason::NodesInOrder, line));
    }
    if subject.is_of_plane()
        && let Err(not_whole) = others_are_whole(round, &subject.node)
    {
        let held = WaitReason::Upgrade(UpgradePhase::ControlPlaneHeld);
        return Some((if not_whole.lasting { held } else { WaitReason::NodesInOrder }, not_whole.line));
    }
    let mut others = cluster
        .of(Component::KubeApiserver)
        .filter(|i| subject.component != Component::KubeApiserver || *name_of(i) != subject.node);
    let silent = others.find(|i| !i.ready)?;
    Some((WaitReason::ComponentAway, format!("waits until kube-apiserver {} answers", silent.name)))
}

/// The claim of a kubelet that has to end before `subject` is taken away: no two executors work on one node, and no two
/// control-plane nodes are away. A component that moves alone waits only for an executor that works: a node that drains waits
/// for the control plane itself.
fn kubelet_in_the_way<'a>(round: &Round<'a>, subject: &Subject) -> Option<&'a Claim> {
    let cluster = round.world.cluster;
    let of_plane = |node: &str| cluster.node(node).is_some_and(|node| cluster.goes_alone(node));
    let in_the_way = |other: &&Claim| {
        let its_own = other.subject.node == subject.node;
        if subject.is_of_plane() {
            its_own && other.state.in_flight()
        } else {
            let works = matches!(other.state, ClaimState::Upgrading { .. });
            works && (its_own || of_plane(&other.subject.node))
        }
    };
    round.mine.iter().copied().filter(|other| other.is_of_kubelet()).find(in_the_way)
}

/// Whether the turn of what `claim` moves has come still: nothing before it went back since the claim was made.
fn is_next(round: &Round<'_>, claim: &Claim) -> bool {
    let done = |other: &&&Claim| {
        let upgraded = matches!(other.state, ClaimState::Upgraded { .. });
        upgraded && !other.is_of_kubelet() && other.subject.to == claim.subject.to
    };
    let back = |other: &&Claim| went_back(round.world.cluster, other).is_some();
    let earlier = |component| Stage::of(component).is_some_and(|stage| stage < claim.subject.stage());
    let together = claim.subject.is_of_plane();
    !round.mine.iter().filter(done).any(back) && (together || round.hop.next_of(earlier).is_none())
}

fn is_missed(place: &ComponentPlace) -> String {
    format!("waits until {} on {} is seen again", place.component, place.name)
}

/// Claims the next step of the plan, when none is under way: where components move on their own, the next one of `stage`.
pub(super) fn open(round: &mut Round<'_>, stage: Stage) {
    let of_control_plane = |claim: &&&Claim| !claim.is_of_kubelet();
    if round.mine.iter().filter(of_control_plane).any(|claim| claim.state.unfinished()) {
        return;
    }
    if round.went_back {
        return;
    }
    if let Some(place) = round.missing.first() {
        round.blocks(WaitReason::ComponentAway, is_missed(place));
        return;
    }
    let cluster = round.world.cluster;
    let together = round.upgrade.control_plane.unit == Unit::Node;
    // What is left of a node that was begun comes first, whichever stage it is of.
    let step = round.hop.next_of(|component| together || Stage::of(component) == Some(stage)).cloned();
    let planned = step.as_ref().and_then(|step| first_of(cluster, step));
    let of_stage = |i: &&Instance| match Stage::of(i.component) {
        Some(of) if together && has_server(cluster, name_of(i)) => of < Stage::Kubelets,
        of => of == Some(stage),
    };
    // Whatever is not ready comes back before anything else goes.
    let Some(next) = cluster.instances().iter().filter(of_stage).find(|i| !i.ready).or(planned) else {
        return;
    };
    if !next.ready {
        is_not_ready(round, next);
        return;
    }
    if next.version.known().is_none() {
        let line = format!("the version of {} {} is not known", next.component, next.name);
        round.blocks(WaitReason::VersionUnknown, line);
        return;
    }
    if let Some(until) = round.static_pods_until.filter(|_| together) {
        round.wake(until);
        return;
    }
    let subject = component_subject(round, next, step.filter(|_| together));
    let name = claim_name(&round.upgrade.name, &subject);
    if let Some(unreadable) = round.in_the_way(&subject) {
        if unreadable.goes {
            round.works(WaitReason::ExecutorWorking, unreadable.why.clone());
        } else {
            round.needs_a_person.push(unreadable.why.clone());
        }
    } else if round.mine.iter().all(|claim| *claim.name != *name) {
        match may_open(round, ToOpen::Step(subject.moves())) {
            Ok(()) => round.claims(subject),
            Err(wait) => round.hold_back(wait),
        }
    }
}

/// The first of what `step` moves.
fn first_of<'a>(cluster: &'a Cluster, step: &Step) -> Option<&'a Instance> {
    let here = |i: &&Instance| Some(&i.component) == step.components.first() && *name_of(i) == step.place;
    cluster.instances().iter().find(here)
}

/// What the next claim will be about, as far as the plan says; `None` where no step of it is left.
pub(super) fn next_subject(round: &Round<'_>) -> Option<Subject> {
    let step = round.hop.next_of(|_| true)?;
    let together = round.upgrade.control_plane.unit == Unit::Node;
    let first = first_of(round.world.cluster, step)?;
    Some(component_subject(round, first, together.then(|| step.clone())))
}

/// Says that `instance`, which is not ready, keeps everything else waiting.
fn is_not_ready(round: &mut Round<'_>, instance: &Instance) {
    let line = format!("waits until {} {} is ready", instance.component, instance.name);
    let node = instance.node.as_ref().and_then(|name| round.world.cluster.node(name));
    match node.filter(|node| round.is_silent(node)) {
        Some(node) => {
            round.needs_a_person.push(format!("{line}, and node {} has long been silent", node.name));
        }
        None => round.blocks(WaitReason::ComponentAway, line),
    }
}

/// What a claim of `instance` is about; `together` is the step of its node, where that moves as a whole.
fn component_subject(round: &Round<'_>, instance: &Instance, together: Option<Step>) -> Subject {
    let cluster = round.world.cluster;
    let node = name_of(instance).clone();
    let node_uid = cluster.node(&node).map_or_else(|| "".into(), |n| n.uid.clone());
    let components = together.filter(|step| has_server(cluster, &step.place)).map(|step| step.components);
    let components = components.unwrap_or_default();
    let plane = &round.upgrade.control_plane;
    let begun = |claim: &&&Claim| {
        claim.subject.is_of_plane()
            && claim.subject.to == round.upgrade.version
            && matches!(claim.state, ClaimState::Upgraded { .. })
    };
    // Until one node of the hop is upgraded, whoever does the first one is asked, a second time too: it may have failed
    // after its versions could be seen, and before it was done.
    let first = !components.is_empty() && !round.mine.iter().any(|claim| begun(&claim));
    let executor = plane.first_executor.as_ref().filter(|_| first).unwrap_or(&plane.executor).clone();
    Subject {
        component: instance.component,
        components,
        node_uid,
        from: instance.version.to_string(),
        to: round.upgrade.version.clone(),
        executor,
        node,
    }
}
