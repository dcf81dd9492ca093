//! Whether anything new may be opened now: a step of the control plane, a node, or a parked node once more.
//!
//! Here belongs everything that only delays: failures, freezes and windows, soaks, zones, gates. Which node is next,
//! and whether it can be emptied, is decided before. The invariants: nothing here stops what is in flight, and nothing
//! is begun because of an old answer: a claim that had to wait is asked for once more before it begins.

use jiff::SignedDuration;

use super::action::Action;
use super::claim::{Claim, ClaimState};
use super::forecast::took;
use super::gate_object::{GateFound, GateRead};
use super::hold_reason::OutOf;
use super::not_opened::{EVERY, NotOpened};
use super::round::{Round, gives_up};
use super::since::again_at;
use super::soak::{CONTROLLERS_SETTLE, soaks};
use super::{avoid, replaced, zones};
use crate::cluster::{Component, Node};
use crate::plan::Durations;
use crate::text::harmless;
use crate::upgrade::{Gate, GateObject, NodeGroup, Soaked};

/// What is to be opened.
#[derive(Clone, Copy)]
pub(super) enum ToOpen<'a> {
    /// A step of the control plane that moves these.
    Step(&'a [Component]),
    /// A node of a group.
    Node(&'a Node, &'a NodeGroup),
}

/// Whether `opening`, which nothing else keeps from being opened, may be opened now. The error is what it waits for.
pub(super) fn may_open(round: &mut Round<'_>, opening: ToOpen<'_>) -> Result<(), NotOpened> {
    failures(round)?;
    let moves = match opening {
        ToOpen::Step(components) => components,
        ToOpen::Node(..) => &[Component::Kubelet],
    };
    let needs = in_time(round, moves)?;
    match opening {
        ToOpen::Step(_) => zones::allow_anything(round)?,
        ToOpen::Node(node, group) => {
            of_node(round, node, group)?;
            avoid::has_a_place(round, node, needs)?;
        }
    }
    if let Some(wait) = &round.untried {
        return Err(wait.clone());
    }
    gates(round)
}

/// Whether `claim`, for which nothing was done yet, may still be begun. It may have waited for hours since it was made: for a
/// part of the control plane that was away, or for an operator. `node` is the one that a claim of a kubelet is about.
pub(super) fn may_still_begin(
    round: &mut Round<'_>,
    claim: &Claim,
    node: Option<&Node>,
) -> Result<(), NotOpened> {
    failures(round)?;
    in_time(round, claim.subject.moves())?;
    match node {
        Some(node) => {
            soaks(round, &Soaked::Controllers, CONTROLLERS_SETTLE)?;
            zones::allow(round, node)?;
        }
        None => zones::allow_anything(round)?,
    }
    gates(round)
}

/// Gives `claim` up, which [`may_still_begin`] keeps from being begun because of `wait`. Where only a gate is read again, it
/// waits for the answer.
pub(super) fn takes_back(round: &mut Round<'_>, claim: &Claim, wait: NotOpened) {
    if !matches!(wait, NotOpened::GateRead { .. }) {
        gives_up(round, claim);
    }
    round.hold_back(wait);
}

/// Whether the calendar allows what `moves` now. Returns how long that is expected to take.
fn in_time(round: &Round<'_>, moves: &[Component]) -> Result<SignedDuration, NotOpened> {
    let needs = expected(round, moves);
    let calendar = round.upgrade.calendar.may_begin(round.world.now, needs);
    calendar.map_err(|(shut, opens)| NotOpened::Shut { shut, what: called(moves), needs, opens })?;
    Ok(needs)
}

/// Whether a node of `group` may be opened as far as others soak and its zone goes.
fn of_node(round: &Round<'_>, node: &Node, group: &NodeGroup) -> Result<(), NotOpened> {
    soaks(round, &Soaked::Controllers, CONTROLLERS_SETTLE)?;
    soaks(round, &Soaked::ControlPlane, round.upgrade.control_plane.soak)?;
    for other in round.upgrade.groups_before(group) {
        soaks(round, &Soaked::Group(other.name.clone()), other.soak)?;
    }
    soaks(round, &Soaked::Canaries(group.name.clone()), group.soak)?;
    zones::allow(round, node)?;
    replaced::allow(round, node)
}

/// Whether every gate is open, as was read lately; what is not known lately enough is read now. All of them have to open, so
/// that one that only a person opens is told before one that opens by itself.
fn gates(round: &mut Round<'_>) -> Result<(), NotOpened> {
    let (world, gates) = (round.world, &round.upgrade.gates);
    let mut told: Option<NotOpened> = None;
    for gate in gates {
        let seen = world.gates.0.get(&gate.object);
        let read_at = seen.map_or(world.now, |read| again_at(read.at, EVERY, world.now));
        let old = read_at <= world.now;
        let asked = Action::ReadGate { object: gate.object.clone() };
        if old && !round.actions.contains(&asked) {
            round.actions.push(asked);
        }
        let name = gate.name.clone();
        let wait = match seen.map(|read| closed(gate, read)) {
            Some(Some((why, lasting))) => {
                NotOpened::Gate { gate: name, why, lasting, read_at: read_at.max(world.now) }
            }
            Some(None) if !old => continue,
            _ => NotOpened::GateRead { gate: name },
        };
        if told.as_ref().is_none_or(|told| weight(&wait) > weight(told)) {
            told = Some(wait);
        }
    }
    told.map_or(Ok(()), Err)
}

/// How much `wait` for a gate says: that one is read says least.
const fn weight(wait: &NotOpened) -> u8 {
    match wait {
        NotOpened::GateRead { .. } => 0,
        NotOpened::Gate { lasting: true, .. } => 2,
        _ => 1,
    }
}

/// Why `gate` is closed, if it is, and whether only a person can open it, who is told how then.
fn closed(gate: &Gate, read: &GateRead) -> Option<(String, bool)> {
    let GateObject { api_version, kind, namespace, name } = &gate.object;
    let name = if namespace.is_empty() { name.to_string() } else { format!("{namespace}/{name}") };
    let (condition, wanted) = (&gate.condition, &gate.status);
    let lasting = read.needs_a_person();
    // The server's words come last, because a line that is too long is cut.
    let told = |what: String, remedy: &str, said: Option<&String>| {
        let remedy =
            if lasting { format!("; {remedy}, or take the gate out of spec.gates") } else { String::new() };
        format!("{what}{remedy}{}", said.map(|said| format!(": {said}")).unwrap_or_default())
    };
    let why = match &read.found {
        GateFound::NoKind => {
            let what = format!("the cluster does not serve kind {kind} of {api_version}");
            told(what, "install the kind or correct its name", None)
        }
        GateFound::NoObject => format!("there is no {kind} {name}"),
        GateFound::Forbidden(said) => {
            let what = format!("{kind} {name} may not be read");
            told(what, "allow it as config/gates/reader.yaml does", Some(said))
        }
        GateFound::Refused(said) => {
            told(format!("{kind} {name} cannot be read"), "correct spec.gates", Some(said))
        }
        GateFound::Failed(said) => format!("{kind} {name} cannot be read: {said}"),
        GateFound::Conditions(all) => match all.iter().find(|(type_, _)| type_ == condition) {
            Some((_, status)) if status == wanted => return None,
            Some((_, status)) => {
                format!("condition {condition} of {kind} {name} is {status}, and must be {wanted}")
            }
            None => format!("{kind} {name} has no condition {condition}"),
        },
    };
    // What the server says and what a condition holds were written by others.
    Some((harmless(&why), lasting))
}

/// Whether fewer nodes failed, and fewer are parked, than may.
pub(super) fn failures(round: &Round<'_>) -> Result<(), NotOpened> {
    let policy = round.upgrade.failures;
    let selected = round.selected.len();
    let way = |state: &ClaimState| match state {
        ClaimState::Failed { .. } => Some(OutOf::Failed),
        ClaimState::Parked { .. } if !state.was_given_back() => Some(OutOf::Parked),
        _ => None,
    };
    for (state, limit) in [(OutOf::Failed, policy.max_failed), (OutOf::Parked, policy.max_parked)] {
        let Some(limit) = limit.map(|limit| limit.of(selected)) else { continue };
        // What this decision records counts as well.
        let recorded = |name: &str| {
            round.actions.iter().find_map(|action| match action {
                Action::Record { claim, state, .. } if **claim == *name => Some(way(state)),
                _ => None,
            })
        };
        let mut those = round.mine.iter().filter(|claim| {
            let counts = claim.is_of_kubelet() && !round.excepted.contains_key(&claim.subject.node);
            counts && recorded(&claim.name).unwrap_or_else(|| way(&claim.state)) == Some(state)
        });
        let Some(first) = those.next().map(|claim| claim.subject.node.clone()) else { continue };
        let count = 1 + those.count();
        if count >= limit {
            return Err(NotOpened::Failures { state, count, selected, limit, first });
        }
    }
    Ok(())
}

const fn called(moves: &[Component]) -> &'static str {
    match moves {
        [Component::Kubelet] => "a node",
        [Component::KubeApiserver] => "a kube-apiserver",
        [_] => "a controller",
        _ => "a control-plane node",
    }
}

/// How long it takes until all that `moves` is observed at its version: as nine of ten took in this upgrade, where there
/// are enough, and else a guess.
fn expected(round: &Round<'_>, moves: &[Component]) -> SignedDuration {
    if let Some(took) = took(round.mine, |claim| claim.subject.moves() == moves) {
        return took.p90;
    }
    let guessed = Durations::default();
    moves.iter().map(|component| guessed.at_most(*component)).max().unwrap_or_default()
}
