//! Which nodes are taken up next.
//!
//! Here belong the limits of groups, the order of nodes inside a group, and what must be true of the whole cluster
//! before one more node is taken away. The invariants: nodes unavailable for whatever reason count; control-plane nodes
//! go one at a time, whichever groups they are in; and a node that could not be emptied anyway, or whose machine has
//! long been silent, is not disturbed.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::action::Action;
use super::blockers::{lasting_blockers, what_blocks};
use super::claim::{Blocker, Claim, ClaimState};
use super::control_plane_whole::{opened, others_are_whole};
use super::controllers::idle;
use super::gate::{ToOpen, failures, may_open};
use super::group::{Members, await_leftovers, held_by, kubelet_subject, members};
use super::hold_reason::{Exception, NodeOut, OutOf};
use super::leftovers::is_cordoned_by_others;
use super::nodes::PARKED_AT_LEAST;
use super::not_opened::NotOpened;
use super::round::{Round, Selected, after, gone_at, record};
use super::soak::CONTROLLERS_SETTLE;
use super::waiting::{EndedBy, WaitReason, Waiting};
use super::whose_turn::{InTurn, in_turn, unavailable, waits_for};
use super::zone_count::place;
use crate::cluster::{Component, Node};
use crate::drain::{OnTimeout, STALLED};
use crate::plan::{is_empty, is_spare, rank, zone};
use crate::upgrade::{Lasting, Zones};
use crate::version::KubeVersion;

/// A parked node whose blockers may end by themselves is expected to go on for this long, and so is one that waits for a
/// budget from which nothing of ours takes. After that it counts as stalled.
const HOPE_FOR: SignedDuration = SignedDuration::from_hours(1);
/// So often a parked node is tried again as soon as what blocked it seems gone, and is expected to go on then; after that it is
/// tried at its time, and a person is called meanwhile.
const LIFTED_ATTEMPTS: u32 = 3;
/// So many nodes of a group at most are looked at in one decision of which each waits for something of its own.
const WAITING_AT_MOST: usize = 50;

/// Takes up as many further nodes as the groups' limits allow.
pub(super) fn open(round: &mut Round<'_>) {
    if let Some(until) = controllers_settle(round).filter(|until| round.world.now < *until) {
        round.wake(until);
        round.hope = true;
        let line = "gives the replaced controllers time to take up their work";
        round.working.push(Waiting::new(WaitReason::Settling, line).until(until));
        return;
    }
    if let Some(until) = round.static_pods_until {
        round.wake(until);
        round.hope = true;
        return;
    }
    if let Some(line) = idle(round) {
        // A person who is called for it reads why there.
        if round.needs_a_person.is_empty() {
            round.blocks(WaitReason::ControllersIdle, line);
        }
        return;
    }
    await_leftovers(round);
    let groups = members(round);
    // Whatever else the nodes that are left wait for, only a person lets one of them begin.
    if let Err(wait) = failures(round) {
        round.hold_back(wait);
        return;
    }
    for members in &groups {
        if round.halted.is_some() || !round.undrainable.is_empty() {
            return;
        }
        match waits_for(round, &groups, members) {
            Some(wait) if members.nodes.iter().any(|node| node.member.at_target == Some(false)) => {
                round.blocked.push(wait);
            }
            Some(_) => {}
            None => open_group(round, members),
        }
    }
}

/// Halts the upgrade at a node that is next and cannot be drained, where it has to, before any other is taken up.
pub(super) fn halt(round: &mut Round<'_>) {
    if round.policy.on_timeout != OnTimeout::Halt || round.halted.is_some() {
        return;
    }
    let groups = members(round);
    for members in &groups {
        if waits_for(round, &groups, members).is_some() {
            continue;
        }
        let working = members.nodes.iter().filter(|selected| selected.in_flight()).count();
        let candidates = candidates(round, members);
        let Ok(InTurn { candidates, at_most }) = in_turn(round, members, candidates) else { continue };
        let excepted = |of: &Selected<'_>| round.excepted.contains_key(&of.member.node.name);
        let next = candidates.iter().filter(|of| !excepted(of));
        for Selected { member, claim } in next.take(at_most.min(members.limit.saturating_sub(working))) {
            let node = member.node;
            if claim.is_some() || !round.will_empty(node) {
                continue;
            }
            if let Some(first) = lasting_blockers(round, node).into_iter().next() {
                let Blocker { pod, reason, .. } = first;
                let reason = if pod.is_empty() { reason } else { format!("pod {pod}: {reason}") };
                let waiting = not_begun(round, node, None, reason);
                return round.blocked.push(waiting);
            }
        }
    }
}

/// Until when the controllers that were replaced last take up their work.
fn controllers_settle(round: &Round<'_>) -> Option<Timestamp> {
    let settle = |claim: &&Claim| match claim.state {
        ClaimState::Upgraded { at } if claim.subject.moves().iter().any(|of| of.is_controller()) => {
            Some(after(at, CONTROLLERS_SETTLE))
        }
        _ => None,
    };
    round.mine.iter().filter_map(settle).max()
}

/// The nodes of a group that may be opened as far as they themselves go, in the order in which they are: unhealthy ones
/// first, which are unavailable already and must not be able to hold up the rest; then spare ones, in the order of the
/// plan's waves.
fn candidates<'a>(round: &Round<'a>, members: &Members<'a>) -> Vec<Selected<'a>> {
    let free = |claim: Option<&Claim>| claim.is_none_or(|c| matches!(c.state, ClaimState::Parked { .. }));
    let opens = |of: &Selected<'_>| {
        of.member.at_target == Some(false) && free(of.claim) && held_by(round, of).is_none()
    };
    let mut candidates: Vec<(usize, &Selected<'a>)> =
        members.nodes.iter().enumerate().filter(|(_, of)| opens(of)).collect();
    let cluster = round.world.cluster;
    candidates.sort_by_cached_key(|(at, Selected { member, claim })| {
        let node = member.node;
        let version = node.kubelet.known().map(KubeVersion::release);
        (node.ready, claim.is_some(), !is_spare(cluster, node), version, rank(cluster, *at))
    });
    candidates.into_iter().map(|(_, of)| *of).collect()
}

fn open_group(round: &mut Round<'_>, members: &Members<'_>) {
    let Members { group, nodes, limit } = members;
    let mut working = nodes.iter().filter(|selected| selected.in_flight()).count();
    if working >= *limit {
        return;
    }
    let mut unavailable = unavailable(members);
    let candidates = candidates(round, members);
    let cluster = round.world.cluster;
    let InTurn { candidates, at_most } = match in_turn(round, members, candidates) {
        Ok(in_turn) => in_turn,
        Err(_) if working > 0 => return,
        Err(wait) => return round.blocked.push(wait),
    };
    let most = working.saturating_add(at_most).min(*limit);
    // The zone whose turn it is, where zones go one after the other.
    let mut zone_now = None;
    // Zones of which nothing more is opened.
    let mut shut = Vec::new();
    let (mut wait_for_seed, mut waiting) = (false, 0);
    for Selected { member, claim } in candidates {
        let node = member.node;
        // Once a node of a zone is opened, or waits for what comes without a person, the others wait for that zone.
        if group.zones == Zones::OneAtATime && zone_now.is_some_and(|now| now != zone(node)) {
            break;
        }
        if working >= most {
            break;
        }
        if node.ready && unavailable >= *limit {
            if working == 0 {
                full(round, members, unavailable);
            }
            break;
        }
        if shut.contains(&place(node)) || (wait_for_seed && !is_empty(cluster, node)) {
            continue;
        }
        let again = match may_begin(round, node, claim) {
            Ok(again) => again,
            Err(_) if round.halted.is_some() => return,
            Err(waiting) if !round.undrainable.is_empty() => return round.blocked.push(waiting),
            Err(waiting) => {
                let comes = claim.is_none() && waiting.reason.ended_by() != EndedBy::Person;
                zone_now = zone_now.or(comes.then(|| zone(node)));
                round.blocked.push(waiting);
                continue;
            }
        };
        if let Err(wait) = may_open(round, ToOpen::Node(node, group)) {
            zone_now = zone_now.or(claim.is_none().then(|| zone(node)));
            match &wait {
                NotOpened::Zone { .. } => shut.push(place(node)),
                NotOpened::Seed { .. } => wait_for_seed = true,
                NotOpened::Replacements { .. } if waiting < WAITING_AT_MOST => waiting += 1,
                _ => {
                    round.hold_back(wait);
                    break;
                }
            }
            round.hold_back(wait);
            continue;
        }
        match again {
            Some(again) => round.actions.push(again),
            None => round.claims(kubelet_subject(round, group, node)),
        }
        if round.will_empty(node) {
            round.batch.open(&node.name);
        }
        zone_now = Some(zone(node));
        working += 1;
        unavailable += usize::from(node.ready);
    }
}

/// Says which nodes fill the limit of a group in which nothing of ours is under way.
fn full(round: &mut Round<'_>, members: &Members<'_>, unavailable: usize) {
    let Members { group, nodes, limit } = members;
    let why = |of: &Selected<'_>| {
        let node = of.member.node;
        let why = match (node.ready, node.unschedulable) {
            _ if of.has_failed() => "failed",
            (false, _) => "not ready",
            (true, true) => "cordoned",
            (true, false) => return None,
        };
        Some(format!("{} ({why})", node.name))
    };
    let named: Vec<String> = nodes.iter().filter_map(why).take(3).collect();
    let more = unavailable.saturating_sub(named.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let line = format!(
        "group {}: {unavailable} of {} nodes are unavailable, {limit} may be: {}{more}",
        group.name,
        nodes.len(),
        named.join(", "),
    );
    // Nodes that failed under us stay as they are, those that somebody cordoned too, and those that have been away for
    // long; others may recover by themselves.
    let cordoned =
        |of: &Selected<'_>| of.member.node.ready && is_cordoned_by_others(round.mine, of.member.node);
    let gone = |of: &Selected<'_>| round.is_gone(of.member.node);
    let lost = |of: &&Selected<'_>| of.has_failed() || cordoned(of) || gone(of);
    let hope = nodes.iter().filter(lost).count() < *limit;
    let recovering = nodes.iter().filter(|of| hope && !lost(of));
    let next_gone = recovering.filter_map(|of| gone_at(of.member.node)).min();
    let held = !hope && nodes.iter().any(|of| cordoned(of) || gone(of));
    let (reason, todo) = if held {
        (WaitReason::NODES_HELD, "; mend or uncordon them, or raise maxUnavailable")
    } else {
        (WaitReason::GroupFull, "")
    };
    let line = format!("{line}{todo}");
    round.blocked.push(Waiting { of_group: true, ..Waiting::new(reason, line) });
    round.hope |= hope;
    if let Some(at) = next_gone {
        round.wake(at);
    }
}

/// Whether `node` may be taken up now. Returns the write that takes its parked claim up again, if it has one. The error
/// is what it waits for.
fn may_begin(round: &mut Round<'_>, node: &Node, claim: Option<&Claim>) -> Result<Option<Action>, Waiting> {
    if round.world.cluster.goes_alone(node)
        && let Err(not_whole) = others_are_whole(round, &node.name)
    {
        // Others come back by themselves, unless they have been away for long.
        round.hope |= !not_whole.lasting;
        not_whole.lasts_from.into_iter().for_each(|from| round.wake(from));
        let reason = if not_whole.lasting { WaitReason::NODES_HELD } else { WaitReason::NodesInOrder };
        return Err(Waiting::new(reason, format!("{} {}", node.name, not_whole.line)));
    }
    if !round.will_empty(node) {
        return claim.map(|parked| retry(round, parked, node, &[])).transpose();
    }
    admitted(round, node, claim)?;
    let blocked = what_blocks(round, node);
    match claim {
        Some(parked) => retry(round, parked, node, &blocked).map(Some),
        None => match blocked.iter().find(|blocker| blocker.lasting) {
            Some(first) => Err(not_begun(round, node, claim, format!("pod {}: {}", first.pod, first.reason))),
            None => Ok(None),
        },
    }
}

/// Whether the pods of `node` that can run there only may leave it beside those of the nodes that are open. The error is what
/// it waits for.
fn admitted(round: &mut Round<'_>, node: &Node, claim: Option<&Claim>) -> Result<(), Waiting> {
    let Err(refused) = round.batch.admit(&node.name) else { return Ok(()) };
    let forces = round.policy.on_timeout == OnTimeout::Force;
    let line = format!("{} waits: {}", node.name, refused.reason);
    let waits = Waiting::new(WaitReason::NodesInOrder, line);
    let flies = |claim: &&Claim| claim.is_of_kubelet() && claim.state.in_flight();
    let beside = round.mine.iter().any(flies) || opened(round).any(|of| of.component == Component::Kubelet);
    // Who forces both at once takes from a budget that lets one of them go after the other.
    if beside && (!refused.lasting || forces && refused.passes) {
        return Err(waits);
    }
    if !refused.lasting {
        // Nothing of ours takes what it waits for. A pod that is away for another reason may come back.
        match refused.closed_since.map(|since| after(since, HOPE_FOR)) {
            // Nobody can say for how long that has been so: it is tried, and parks.
            None => return Ok(()),
            Some(until) if round.world.now < until => {
                round.hope = true;
                round.wake(until);
                return Err(waits);
            }
            Some(_) => {}
        }
    }
    // At its deadline such a node goes past its budgets.
    if forces {
        return Ok(());
    }
    Err(not_begun(round, node, claim, refused.reason))
}

/// Leaves `node` out for `reason`, which only a person takes away: draining it would only move its other pods for
/// nothing. Returns what it waits for. A parked node has a claim that says so already. Where the upgrade has to halt at it, it
/// does so once that has lasted for [`STALLED`]: a budget whose pods are just replaced counts fewer of them for a moment, and
/// looks as if it could never allow anything. Until then nothing begins.
fn not_begun(round: &mut Round<'_>, node: &Node, claim: Option<&Claim>, reason: String) -> Waiting {
    let excepted = round.excepted.get(&node.name).cloned();
    if claim.is_some() {
        return parked(excepted.as_ref(), format!("{} is parked: {reason}", node.name));
    }
    let line = format!("{} is not begun: {reason}", node.name);
    if excepted.is_none() && round.policy.on_timeout == OnTimeout::Halt {
        round.undrainable.push(Arc::clone(&node.uid));
        let (now, seen) = (round.world.now, &round.world.freshness.undrainable);
        let until = after(seen.of(&node.uid, now).unwrap_or(now), STALLED);
        if !round.lasts(Lasting::Undrainable(Arc::clone(&node.name)), until) {
            round.hope = true;
            round.wake(until);
            return Waiting::new(WaitReason::PodsHeldBack, line).until(Some(until));
        }
        round.halted = Some(format!(
            "halted: {line}; remove what blocks it, hold the node with annotation evenkeel.dev/hold, or set \
             spec.drain.onTimeout to Park"
        ));
    }
    let waiting = parked(excepted.as_ref(), line);
    round.out.push(NodeOut { node: node.name.clone(), state: OutOf::Parked, since: None, reason, excepted });
    waiting
}

/// What a node waits for that cannot be drained, as `line` says.
fn parked(excepted: Option<&Exception>, line: String) -> Waiting {
    match excepted {
        Some(by) => Waiting::new(WaitReason::NodeExcepted, format!("{line} ({by})")).until(by.until),
        None => Waiting::new(WaitReason::NODE_PARKED, line),
    }
}

/// Takes a parked node up again when nothing that can be seen would block it: at its time, or as soon as what blocked
/// it is gone. While a budget visibly allows nothing, trying would only disturb the node's other pods for nothing.
fn retry(round: &mut Round<'_>, claim: &Claim, node: &Node, blocked: &[Blocker]) -> Result<Action, Waiting> {
    let ClaimState::Parked { since, retry_at, for_a_person } = claim.state else {
        return Err(Waiting::new(WaitReason::NODE_PARKED, format!("{} is not parked", node.name)));
    };
    let here =
        |blocker: &Blocker| round.world.cluster.pods_on(&node.name).any(|pod| pod.full_name() == blocker.pod);
    let lifted = claim.blockers.iter().all(|blocker| blocker.budget.is_some() || !here(blocker));
    // Where pods may be deleted past their budgets, what kept them is a refusal, which nobody sees before the next try.
    let refused = for_a_person && !lifted && round.policy.on_timeout == OnTimeout::Force;
    // Nothing that anybody sees keeps it any more, and it has not been tried often: its next try may do.
    let tried_soon = blocked.is_empty() && !for_a_person && claim.attempt <= LIFTED_ATTEMPTS;
    let hope_until = after(since, HOPE_FOR).max(if tried_soon { retry_at } else { since });
    let hope = !refused && blocked.iter().all(|blocker| !blocker.lasting) && round.world.now < hope_until;
    let excepted = round.excepted.get(&node.name).cloned();
    if excepted.is_none() && hope {
        round.hope = true;
        round.wake(hope_until);
    }
    if let Some(first) = blocked.first() {
        let hopeless = first.lasting || round.world.now >= hope_until;
        let line = format!("{} is parked: pod {}: {}", node.name, first.pod, first.reason);
        return Err(match excepted {
            None if !hopeless => Waiting::new(WaitReason::PodsHeldBack, line),
            excepted => parked(excepted.as_ref(), line),
        });
    }
    // A pod that comes back to its node each time looks lifted each time.
    let soon = claim.attempt <= LIFTED_ATTEMPTS && !claim.blockers.is_empty();
    let due = if soon && lifted { after(since, PARKED_AT_LEAST) } else { retry_at };
    if round.world.now < due {
        round.wake(due);
        let line = format!("{} is parked: {}", node.name, claim.message);
        let waits = match excepted {
            None if hope => Waiting::new(WaitReason::PodsHeldBack, line),
            excepted => parked(excepted.as_ref(), line),
        };
        return Err(waits.until(due));
    }
    // What was given back says already why it was parked.
    let parked = !claim.state.was_given_back();
    let message =
        if parked { format!("was parked before: {}", claim.message) } else { claim.message.clone() };
    let mut action = record(claim, ClaimState::Claimed, message);
    if let Action::Record { attempt, blockers, .. } = &mut action {
        *attempt = claim.attempt + 1;
        // What kept it is known until its next drain tells anew.
        blockers.clone_from(&claim.blockers);
    }
    Ok(action)
}
