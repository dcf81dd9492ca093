//! Nodes under way: cordoned, drained, upgraded, observed and given back.
//!
//! Which nodes are taken up is decided in `next_nodes`. The invariant: only a Node of the claim's UID is touched, and
//! only a cordon that carries the claim's mark is taken off.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::action::{Action, Drained};
use super::blockers::{SHOWN_BLOCKERS, blockers, say_blocked};
use super::claim::{Before, Blocker, Claim, ClaimState};
use super::control_plane_whole::{others_are_whole, statics_return};
use super::controllers::{counts_from, idle};
use super::executor::{Effect, ExecutorState, asked, deadline, drive, works_still};
use super::gate::{may_still_begin, takes_back};
use super::group::has_place;
use super::kubelet::{heartbeat, kubelet_lacks};
use super::leftovers::{at_target, goes_with, holds, node_of, settle};
use super::round::{Round, after, gives_up, record, release};
use super::static_pods::{is_static, static_pods, statics_lack};
use super::taints::Taints;
use super::waiting::{WaitReason, Waiting};
use crate::cluster::{Cluster, Node, Pod};
use crate::drain::{
    DrainAsks, DrainStep, DrainView, GivenUp, NodeDrain, OnTimeout, PodLeft, SETTLE, first_wait,
};

/// A parked node is not tried again sooner, even when nothing seems to block it.
pub(super) const PARKED_AT_LEAST: SignedDuration = SignedDuration::from_secs(10);
/// However often its drain did not end, a node is tried again after this long, or its drain timeout if that is longer.
const PARKED_AT_MOST: SignedDuration = SignedDuration::from_hours(6);
/// A node whose volumes stay attached has them read by a request of their own, so often.
const ATTACHMENTS_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// What a claim says of a node that is given to its executor.
const DRAINED: &str = "drained; the executor may work";
/// What is said of a node that drains while part of the control plane is away.
const NOBODY_IS_ASKED: &str = "no pod is asked to leave until the whole control plane answers at the target";
/// What a claim says of a node whose pods stay.
const ONLY_CORDONED: &str = "cordoned; its pods stay, because only its patch changes";
/// A claim remembers at most so many `DaemonSets` that were not ready before.
const MAX_NOT_READY: usize = 20;

/// Makes `node` schedulable again, if it is ours; says whether there was anything to do.
fn give_back(round: &mut Round<'_>, node: &Node, claim: &Claim) -> bool {
    let ours = holds(claim, node);
    if ours {
        // A node that is only parked is outdated still.
        let taints = at_target(node, claim).then(|| Taints::without_ours(node)).flatten();
        round.actions.push(Action::Uncordon { node: node.reference(), mark: claim.mark(), taints });
    }
    ours
}

/// Takes a node's claim one step further.
pub(super) fn advance(round: &mut Round<'_>, claim: &Claim) {
    let now = round.world.now;
    let Some(node) = node_of(round.world.cluster, claim) else {
        // Gone, or another node under the same name: nothing of the claim holds for it.
        round.actions.push(release(claim));
        return;
    };
    let ours = holds(claim, node);
    let stale = claim.subject.to != round.upgrade.version;
    match &claim.state {
        ClaimState::Claimed | ClaimState::Draining { .. }
            if !round.wants(claim) || !round.selects(claim) || (node.held && !ours) =>
        {
            if !give_back(round, node, claim) {
                gives_up(round, claim);
            }
        }
        ClaimState::Claimed if at_target(node, claim) => {
            if give_back(round, node, claim) {
            } else if node.ready {
                round.record(claim, ClaimState::Upgraded { at: now }, "was at the target already");
            } else {
                round.actions.push(release(claim));
            }
        }
        ClaimState::Claimed if ours && node.unschedulable => {
            round.wake(after(now, SETTLE));
            let message = if round.empties(claim) { "its pods are leaving" } else { ONLY_CORDONED };
            round.record(claim, ClaimState::Draining { since: now, stalled: None }, message);
        }
        ClaimState::Claimed if node.unschedulable => {
            // A person was faster. The node is theirs until they uncordon it.
            round.actions.push(release(claim));
        }
        ClaimState::Claimed => {
            if let Some(why) = round.world.refused.of_cordon(&node.name) {
                return park(round, claim, format!("the server refuses to cordon it: {why}"), Vec::new());
            }
            if round.plan_is_blocked() {
                return gives_up(round, claim);
            }
            if let Err(wait) = may_still_begin(round, claim, Some(node)) {
                return takes_back(round, claim, wait);
            }
            // Whatever is away since it was claimed; what it waits for is told when it is its turn again.
            if !has_place(round, node) || others_lack(round, node).is_some() || control_plane_is_away(round) {
                return gives_up(round, claim);
            }
            round.actions.push(Action::Cordon { node: node.reference(), mark: claim.mark() });
        }
        ClaimState::Draining { since, .. } if waited_too_long(round, node, *since) => {
            if !give_back(round, node, claim) {
                gives_up(round, claim);
            }
        }
        ClaimState::Draining { since, stalled } => draining(round, claim, node, *since, *stalled),
        ClaimState::Upgrading { since, before, .. } => upgrading(round, claim, node, *since, before),
        ClaimState::Upgraded { .. } => {
            if !give_back(round, node, claim) && (claim.ending || stale) {
                goes_with(round, claim, release(claim));
            }
        }
        ClaimState::Parked { .. } => {
            if give_back(round, node, claim) {
            } else if claim.ending || stale || !round.selects(claim) {
                round.actions.push(release(claim));
            } else if at_target(node, claim) && node.ready {
                round.record(claim, ClaimState::Upgraded { at: now }, "reached the target while parked");
            }
        }
        ClaimState::Failed { before, .. } => failed(round, claim, node, before),
    }
}

/// Looks after a node whose executor failed: it may be observed after all, or a person deletes its claim.
fn failed(round: &mut Round<'_>, claim: &Claim, node: &Node, before: &Before) {
    let observed = at_target(node, claim) && node.ready;
    let waits = || waits_for(round.world.cluster, node, before).or_else(|| works_still(round, claim));
    let waits = observed.then(waits).flatten();
    let misses = round.missing.iter().any(|place| place.name == node.name);
    if observed && waits.is_none() && !misses {
        if !give_back(round, node, claim) {
            let at = round.world.now;
            round.record(claim, ClaimState::Upgraded { at }, "observed at the target after all");
        }
    } else if claim.ending {
        goes_with(round, claim, settle(round.world.cluster, claim));
    }
    let Node { name, kubelet, .. } = node;
    let line = if let Some(waits) = waits {
        format!("{name}: observed at {kubelet} after all, but {waits}")
    } else {
        // What was to be done when the claim failed may be done by now.
        let todo = [true, false].map(|cordoned| to_mend(claim, cordoned));
        let why = todo.iter().find_map(|todo| claim.message.strip_suffix(&**todo));
        let todo = to_mend(claim, stays_cordoned(claim, node));
        format!("{name}: {}{todo}", why.unwrap_or(&claim.message))
    };
    round.blocks(WaitReason::NODE_FAILED, line);
}

/// Whether `node`, which nothing more is done about, stays cordoned by `claim`. A person may have uncordoned it.
fn stays_cordoned(claim: &Claim, node: &Node) -> bool {
    node.unschedulable && holds(claim, node)
}

/// What a person has to do about the node of `claim`, which failed, in words that follow why it did.
fn to_mend(claim: &Claim, cordoned: bool) -> String {
    let delete = format!("delete NodeUpgrade {}", claim.name);
    if cordoned {
        format!("; the node stays cordoned: mend it, {delete} and uncordon it")
    } else {
        format!("; mend the node, then {delete}")
    }
}

/// Whether part of the control plane is away, so that pods that leave may not be replaced, and none is asked to leave. The
/// static pods of a control-plane node go once more after its kubelet is seen at the target.
fn control_plane_is_away(round: &mut Round<'_>) -> bool {
    if let Some(back) = round.static_pods_until {
        round.wake(back);
    }
    round.static_pods_until.is_some() || !round.control_plane_is_done()
}

/// What the rest of the control plane lacks, while `node` is part of it and must not be given to its executor for that.
fn others_lack(round: &Round<'_>, node: &Node) -> Option<String> {
    // A worker is none of it, and most nodes are workers: what the others lack is looked at last.
    if !round.world.cluster.goes_alone(node) {
        return None;
    }
    others_are_whole(round, &node.name).err().map(|lack| lack.line)
}

/// Whether a node that drains `since` then has no more time, and what it waits for is the control plane, or that its
/// controllers work. Nothing blocked its drain, so that it is not parked: it is taken up anew when pods may be asked again.
fn waited_too_long(round: &mut Round<'_>, node: &Node, since: Timestamp) -> bool {
    let deadline = after(since, round.upgrade.drain.timeout);
    if round.world.now < deadline {
        round.wake(deadline);
        return false;
    }
    control_plane_is_away(round) || idle(round).is_some() || others_lack(round, node).is_some()
}

fn draining(round: &mut Round<'_>, claim: &Claim, node: &Node, since: Timestamp, stalled: Option<Timestamp>) {
    let (world, name) = (round.world, &node.name);
    // It was given back at an earlier look, for a reason that is gone: whoever else uncordons a node leaves our mark on it.
    if !node.unschedulable && node.cordoned_by.is_none() {
        return gives_up(round, claim);
    }
    if !holds(claim, node) || !node.unschedulable {
        let message = "was uncordoned by someone else while it drained";
        park(round, claim, message.to_owned(), Vec::new());
        round.blocks(WaitReason::NODE_PARKED, format!("{name}: {message}"));
        return;
    }
    let away = control_plane_is_away(round);
    let stopped = if away {
        Some((WaitReason::ComponentAway, NOBODY_IS_ASKED.to_owned()))
    } else {
        idle(round).map(|line| (WaitReason::ControllersIdle, line))
    };
    let seen = DrainView {
        cluster: world.cluster,
        memory: world.memory,
        policy: round.policy,
        stopped: stopped.is_some(),
        reread: world.freshness.reread.get(name).copied(),
        now: world.now,
    };
    let drain = NodeDrain { cordoned: since, begun: counts_from(round, since), stalled };
    let empties = round.empties(claim);
    let (step, again) =
        if empties { drain.step(node, seen, &round.budgets) } else { drain.keep(round.policy, world.now) };
    if let Some(at) = again {
        round.wake(at);
    }
    match step {
        DrainStep::Doubtful { why, .. } => reads_again(round, name, &why.to_string()),
        DrainStep::GivenUp { why, left } => given_up(round, claim, name, why, &left),
        DrainStep::Leaving => {
            let asked = drain.ask(node, seen, &mut round.budgets);
            leaving(round, claim, node, asked, stopped);
        }
        DrainStep::Detaching(volumes) => {
            detaching(round, name, since, &volumes);
            say_blocked(round, claim, &drain, Vec::new(), format!("empty; {volumes}"));
        }
        DrainStep::Settling if !empties => {
            round.works(WaitReason::Settling, format!("{name}: makes sure that no pod still arrives"));
        }
        DrainStep::Settling => {
            round.works(WaitReason::Settling, format!("{name}: empty; makes sure that no pod still arrives"));
        }
        DrainStep::Empty if away => {
            let line = format!("{name}: drained; waits until the whole control plane answers at the target");
            let until = Some(after(since, round.upgrade.drain.timeout)).filter(|until| world.now < *until);
            round.blocked.push(Waiting::new(WaitReason::ComponentAway, line).until(until));
        }
        DrainStep::Empty if let Some(line) = others_lack(round, node) => {
            let until = Some(after(since, round.upgrade.drain.timeout)).filter(|until| world.now < *until);
            let line = format!("{name}: drained; {line}");
            round.blocked.push(Waiting::new(WaitReason::ComponentAway, line).until(until));
        }
        DrainStep::Empty if !round.heard_afresh() => {
            let line = format!("{name}: drained; asks every kube-apiserver afresh");
            round.works(WaitReason::ReadingAgain, line);
        }
        DrainStep::Empty => hand_over(round, claim, node, empties),
    }
}

/// Sends what is `asked` of a node that pods have yet to leave, and tells what it waits for: why nobody is asked, where
/// the drain is `stopped`, or else its pods.
fn leaving(
    round: &mut Round<'_>,
    claim: &Claim,
    node: &Node,
    asked: DrainAsks<'_>,
    stopped: Option<(WaitReason, String)>,
) {
    let DrainAsks { drain, permits, forced, reread, left, again_at } = asked;
    if let Some(at) = again_at {
        round.wake(at);
    }
    round.actions.extend(permits.into_iter().map(Action::Evict));
    if reread {
        return reads_again(round, &node.name, &first_wait(&left));
    }
    round.actions.extend(forced.into_iter().map(Action::Delete));
    let ends = after(drain.begun, round.upgrade.drain.timeout);
    let until = Some(ends).filter(|until| round.world.now < *until);
    // Nobody counts budgets meanwhile: what they say of a pod may be long past.
    if let Some((reason, line)) = stopped {
        round.blocked.push(Waiting::new(reason, format!("{}: {line}", node.name)).until(until));
        return;
    }
    let blockers = blockers(&left);
    let line = format!("{}: {}", node.name, first_wait(&left));
    let told = |reason| Waiting::new(reason, line).until(until);
    if blockers.is_empty() {
        round.working.push(told(WaitReason::PodsLeaving));
    } else {
        round.blocked.push(told(WaitReason::PodsHeldBack));
    }
    say_blocked(round, claim, &drain, blockers, first_wait(&left));
}

/// Gives an empty node to its executor, or one whose pods stay.
fn hand_over(round: &mut Round<'_>, claim: &Claim, node: &Node, empties: bool) {
    let world = round.world;
    let before = Before {
        incarnation: heartbeat(node),
        not_ready: not_ready(world.cluster, node),
        static_pods: if world.cluster.goes_alone(node) {
            static_pods(world.cluster, &node.name)
        } else {
            Vec::new()
        },
        asked: Some(asked(round, claim)),
        ..Before::default()
    };
    round.actions.push(Action::Record {
        claim: claim.name.clone(),
        resource_version: claim.resource_version.clone(),
        state: ClaimState::Upgrading { since: world.now, before, observed: None },
        attempt: claim.attempt,
        message: if empties { DRAINED } else { ONLY_CORDONED }.to_owned(),
        blockers: Vec::new(),
        job: None,
        drained: Some(Box::new(Drained {
            node: node.reference(),
            mark: claim.mark(),
            rules: empties.then(|| round.policy.rules.clone()),
        })),
    });
}

/// Has the pods of a node read by a request of their own, before something is done because of `why`.
fn reads_again(round: &mut Round<'_>, name: &Arc<str>, why: &str) {
    round.actions.push(Action::Reread { node: name.clone(), job: None });
    round.works(WaitReason::ReadingAgain, format!("{name}: {why}; its pods are read once more"));
}

/// Gives the drain of a node up because of what is `left` on it.
fn given_up(round: &mut Round<'_>, claim: &Claim, name: &Arc<str>, why: GivenUp, left: &[PodLeft<'_>]) {
    let message = why.to_string();
    round.blocks(WaitReason::NODE_PARKED, format!("{name}: {message}"));
    let mut blockers = blockers(left);
    if let GivenUp::NotDeleted { pod, why, lasting } = why {
        // Its budget is not what it waits for, so a change of that does not help.
        blockers = vec![Blocker { pod, budget: None, reason: why, lasting }];
    }
    park(round, claim, message, blockers);
}

/// Waits for the volumes of a node that drains `since` then, and has them read once a minute.
fn detaching(round: &mut Round<'_>, name: &str, since: Timestamp, volumes: &str) {
    round.works(WaitReason::VolumesDetaching, format!("{name}: empty; {volumes}"));
    let read_at = after(round.world.freshness.attachments.max(since), ATTACHMENTS_EVERY);
    if round.world.now < read_at {
        round.wake(read_at);
    } else if !round.actions.contains(&Action::ReadAttachments) {
        round.actions.push(Action::ReadAttachments);
    }
}

fn park(round: &mut Round<'_>, claim: &Claim, message: String, mut blockers: Vec<Blocker>) {
    let for_a_person =
        round.policy.on_timeout == OnTimeout::Halt || blockers.iter().any(|blocker| blocker.lasting);
    blockers.truncate(SHOWN_BLOCKERS);
    let now = round.world.now;
    let retry_at = after(now, retried_after(round.upgrade.drain.timeout, claim.attempt));
    round.actions.push(Action::Record {
        claim: claim.name.clone(),
        resource_version: claim.resource_version.clone(),
        state: ClaimState::Parked { since: now, retry_at, for_a_person },
        attempt: claim.attempt,
        message,
        blockers,
        job: None,
        drained: None,
    });
}

/// How long a node is left alone whose `attempt`th drain did not end: each time twice as long.
pub(super) fn retried_after(drain_timeout: SignedDuration, attempt: u32) -> SignedDuration {
    let doubled = 1_i32.checked_shl(attempt.saturating_sub(1).min(20)).unwrap_or(i32::MAX);
    drain_timeout.max(PARKED_AT_LEAST).saturating_mul(doubled).min(PARKED_AT_MOST.max(drain_timeout))
}

fn upgrading(round: &mut Round<'_>, claim: &Claim, node: &Node, since: Timestamp, before: &Before) {
    let now = round.world.now;
    let lacks = kubelet_lacks(node, claim, before);
    let observed = lacks.is_none();
    let waits = || waits_for(round.world.cluster, node, before).or_else(|| works_still(round, claim));
    let waits = observed.then(waits).flatten();
    if observed && statics_return(round, claim, node) {
        return;
    }
    if observed && waits.is_none() {
        if !give_back(round, node, claim) {
            let message = format!("observed at {}", node.kubelet);
            round.record(claim, ClaimState::Upgraded { at: now }, message);
        }
        return;
    }
    let lacks = lacks.map(|lacks| format!("{}: kubelet {lacks}", node.name));
    let seen = waits.map_or(Effect::Part(lacks), Effect::But);
    match drive(round, claim, since, seen) {
        ExecutorState::Working(line) => {
            let until = deadline(round, claim, since);
            round.working.push(Waiting::new(WaitReason::ExecutorWorking, line).until(until));
        }
        ExecutorState::Refused(line, until) => {
            if claim.message != line {
                round.actions.push(record(claim, claim.state.clone(), line.clone()));
            }
            let line = format!("{}: {line}", node.name);
            round.blocked.push(Waiting::new(WaitReason::JobRefused, line).until(until));
        }
        ExecutorState::Failed(why) => {
            let state = ClaimState::Failed { since: now, before: before.clone() };
            let why = format!("{why}{}", to_mend(claim, stays_cordoned(claim, node)));
            round.blocks(WaitReason::NODE_FAILED, format!("{}: {why}", node.name));
            round.record(claim, state, why);
        }
    }
}

/// The `DaemonSet` of `pod` as `namespace/name`, if one made it.
fn daemon_set(pod: &Pod) -> Option<String> {
    let owner = pod.owner.as_ref().filter(|owner| *owner.kind == *"DaemonSet")?;
    Some(format!("{}/{}", pod.namespace, owner.name))
}

/// The `DaemonSets` whose pod on `node` is not ready, in order.
pub(super) fn not_ready(cluster: &Cluster, node: &Node) -> Vec<std::sync::Arc<str>> {
    let pods = cluster.pods_on(&node.name);
    let unready = pods.filter(|pod| !pod.ready && pod.deleting().is_none());
    let mut sets: Vec<std::sync::Arc<str>> =
        unready.filter_map(|pod| Some(daemon_set(pod)?.into())).collect();
    sets.sort();
    sets.dedup();
    sets.truncate(MAX_NOT_READY);
    sets
}

/// What has to be ready on an observed node before it is given back, in words that follow "but".
pub(super) fn waits_for(cluster: &Cluster, node: &Node, before: &Before) -> Option<String> {
    let awaited = |pod: &&Pod| {
        let set = daemon_set(pod);
        let of_set = set.as_ref().is_some_and(|set| !before.not_ready.iter().any(|known| **known == **set));
        // The static pods of a control-plane node are started again by its new kubelet.
        !pod.ready && pod.deleting().is_none() && (of_set || is_static(pod))
    };
    let Some(pod) = cluster.pods_on(&node.name).find(awaited) else {
        return statics_lack(cluster, &node.name, before);
    };
    let kind = if pod.mirror { "static pod" } else { "DaemonSet pod" };
    Some(format!("{kind} {} is not ready", pod.full_name()))
}
