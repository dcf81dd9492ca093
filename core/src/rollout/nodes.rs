//! Nodes: claimed within their group's budget, cordoned, drained, upgraded, observed and given back.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::drain::{self, Remaining};
use super::round::{ExecutorState, Round, claim_name, executor, record, release};
use super::{Action, Blocker, Claim, NodeRef, State, Subject};
use crate::cluster::{Cluster, Component, Node, Pod};
use crate::disruption::{Mark, Rules, admit};
use crate::plan::{Stage, Upgrade, group_of};
use crate::version::KubeVersion;

/// How long after the cordon pods may still arrive that were bound before it was seen by the scheduler.
const SETTLE: SignedDuration = SignedDuration::from_secs(5);
/// A parked node is not tried again sooner, even when nothing seems to block it.
const PARKED_AT_LEAST: SignedDuration = SignedDuration::from_secs(10);
/// A parked node that nobody has to do anything for may still come to nothing; after this it is called stalled.
const HOPE_FOR: SignedDuration = SignedDuration::from_hours(1);
/// What holds a drain back is written to its claim only when it lasts; numbers of a busy budget change all the time.
const SAY_BLOCKED_AFTER: SignedDuration = SignedDuration::from_secs(15);
/// How long a replaced controller may take to win its lease and fill its caches. An eviction that the disruption
/// controller does not see leaves the budget of a pod that returns under its old name short for two minutes
/// (`disruptedPods`, `pkg/controller/disruption`).
const CONTROLLERS_SETTLE: SignedDuration = SignedDuration::from_secs(15);
/// How many blockers a claim names.
const SHOWN_BLOCKERS: usize = 5;

fn node_ref(node: &Node) -> NodeRef {
    NodeRef {
        name: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
    }
}

fn at_target(node: &Node, claim: &Claim) -> bool {
    node.kubelet.known().is_some_and(|version| version.satisfies(&claim.subject.to))
}

fn heartbeat(node: &Node) -> Arc<str> {
    node.heartbeat.map_or_else(|| "".into(), |at| at.to_string().into())
}

fn after(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Makes `node` schedulable again, if it is ours; says whether there was anything to do.
fn give_back(round: &mut Round<'_>, node: &Node, claim: &Claim) -> bool {
    let mark = claim.mark();
    let ours = node.cordoned_by.as_deref() == Some(mark.as_str());
    if ours {
        round.actions.push(Action::Uncordon { node: node_ref(node), mark });
    }
    ours
}

/// Takes a node's claim one step further.
pub(super) fn advance(round: &mut Round<'_>, claim: &Claim) {
    let now = round.world.now;
    let Some(node) =
        round.world.cluster.node(&claim.subject.node).filter(|n| n.uid == claim.subject.node_uid)
    else {
        // Gone, or another node under the same name: nothing of the claim holds for it.
        round.actions.push(release(claim));
        return;
    };
    let ours = node.cordoned_by.as_deref() == Some(claim.mark().as_str());
    let wanted = round.may_disrupt && claim.subject.to == round.upgrade.version;
    match &claim.state {
        State::Claimed | State::Draining { .. } if !wanted || (node.held && !ours) => {
            if !give_back(round, node, claim) {
                round.actions.push(release(claim));
            }
        }
        State::Claimed if at_target(node, claim) => {
            if !give_back(round, node, claim) {
                round.record(claim, State::Upgraded { at: now }, "was at the target already");
            }
        }
        State::Claimed if ours && node.unschedulable => {
            round.wake(after(now, SETTLE));
            round.record(claim, State::Draining { since: now }, "its pods are leaving");
        }
        State::Claimed if node.unschedulable => {
            // A person was faster. The node is theirs until they uncordon it.
            round.actions.push(release(claim));
        }
        State::Claimed => {
            round.actions.push(Action::Cordon { node: node_ref(node), mark: claim.mark() });
        }
        State::Draining { since } => draining(round, claim, node, ours, *since),
        State::Upgrading { since, before } => upgrading(round, claim, node, *since, before),
        State::Upgraded { .. } => {
            if !give_back(round, node, claim) && !at_target(node, claim) && node.ready {
                round.actions.push(release(claim));
            }
        }
        State::Parked { .. } => {
            if !give_back(round, node, claim) && at_target(node, claim) {
                round.record(claim, State::Upgraded { at: now }, "reached the target while parked");
            }
        }
        State::Failed { .. } => {
            if at_target(node, claim) && node.ready {
                round.record(claim, State::Upgraded { at: now }, "observed at the target after all");
            }
            round.blocked.push(format!("{}: {}", node.name, claim.message));
        }
    }
}

fn draining(round: &mut Round<'_>, claim: &Claim, node: &Node, ours: bool, since: Timestamp) {
    let now = round.world.now;
    if !ours || !node.unschedulable {
        let message = "was uncordoned by someone else while it drained";
        park(round, claim, message.to_owned(), Vec::new());
        round.blocked.push(format!("{}: {message}", node.name));
        return;
    }
    let asked = round.actions.len();
    let left = drain::evict(round, node);
    let deadline = after(since, round.upgrade.drain_timeout);
    if left.pods > 0 && now >= deadline {
        // What was asked for in this round is not sent: the node is given back instead.
        round.actions.truncate(asked);
        let seconds = round.upgrade.drain_timeout.as_secs();
        let message = format!("not drained within {seconds} s: {}", first_blocker(&left));
        round.blocked.push(format!("{}: {message}", node.name));
        park(round, claim, message, left.blockers);
        return;
    }
    if left.pods > 0 {
        round.wake(deadline);
        let line = format!("{}: {}", node.name, first_blocker(&left));
        let lines = if left.blockers.is_empty() { &mut round.working } else { &mut round.blocked };
        lines.push(line);
        say_blocked(round, claim, &left, since);
        return;
    }
    let settled = after(since, SETTLE);
    if now < settled {
        round.wake(settled);
        round.working.push(format!("{}: empty; makes sure that no pod still arrives", node.name));
        return;
    }
    if round.stage.is_some_and(|stage| stage < Stage::Kubelets) {
        let line =
            format!("{}: drained; waits until the whole control plane answers at the target", node.name);
        round.blocked.push(line);
        return;
    }
    round.actions.push(Action::Record {
        claim: claim.name.clone(),
        resource_version: claim.resource_version.clone(),
        state: State::Upgrading { since: now, before: heartbeat(node) },
        attempt: claim.attempt,
        message: "drained; the executor may work".to_owned(),
        blockers: Vec::new(),
        drained: Some(node_ref(node)),
    });
}

fn first_blocker(left: &Remaining) -> String {
    match left.blockers.split_first() {
        None => format!("{} pods are leaving", left.pods),
        Some((first, [])) => format!("pod {}: {}", first.pod, first.reason),
        Some((first, more)) => format!("pod {}: {} (and {} more)", first.pod, first.reason, more.len()),
    }
}

fn say_blocked(round: &mut Round<'_>, claim: &Claim, left: &Remaining, since: Timestamp) {
    let from = after(since, SAY_BLOCKED_AFTER.min(round.upgrade.drain_timeout / 2));
    if left.blockers.is_empty() {
        return;
    }
    if round.world.now < from {
        round.wake(from);
        return;
    }
    let shown: Vec<Blocker> = left.blockers.iter().take(SHOWN_BLOCKERS).cloned().collect();
    let same = |a: &Blocker, b: &Blocker| a.pod == b.pod && a.budget == b.budget;
    if shown.len() == claim.blockers.len() && shown.iter().zip(&claim.blockers).all(|(a, b)| same(a, b)) {
        return;
    }
    round.actions.push(Action::Record {
        claim: claim.name.clone(),
        resource_version: claim.resource_version.clone(),
        state: claim.state.clone(),
        attempt: claim.attempt,
        message: first_blocker(left),
        blockers: shown,
        drained: None,
    });
}

fn park(round: &mut Round<'_>, claim: &Claim, message: String, mut blockers: Vec<Blocker>) {
    blockers.truncate(SHOWN_BLOCKERS);
    let now = round.world.now;
    let retry_at = after(now, round.upgrade.drain_timeout.max(PARKED_AT_LEAST));
    round.actions.push(Action::Record {
        claim: claim.name.clone(),
        resource_version: claim.resource_version.clone(),
        state: State::Parked { since: now, retry_at },
        attempt: claim.attempt,
        message,
        blockers,
        drained: None,
    });
}

fn upgrading(round: &mut Round<'_>, claim: &Claim, node: &Node, since: Timestamp, before: &Arc<str>) {
    let now = round.world.now;
    if at_target(node, claim) && node.ready && heartbeat(node) != *before {
        if let Some(pod) = unready_daemon(round.world.cluster, node) {
            round.working.push(format!("{}: waits until DaemonSet pod {pod} is ready", node.name));
        } else if !give_back(round, node, claim) {
            let message = format!("observed at {}", node.kubelet);
            round.record(claim, State::Upgraded { at: now }, message);
        }
        return;
    }
    match executor(round, claim, since) {
        ExecutorState::Working(line) => round.working.push(line),
        ExecutorState::Failed(why) => {
            round.record(claim, State::Failed { since: now }, format!("{why}; the node stays cordoned"));
            round.blocked.push(format!("{}: {why}", node.name));
        }
    }
}

fn unready_daemon(cluster: &Cluster, node: &Node) -> Option<String> {
    let of_daemon_set = |pod: &&Pod| pod.owner.as_ref().is_some_and(|owner| *owner.kind == *"DaemonSet");
    let mut daemons = cluster.pods_on(&node.name).filter(of_daemon_set);
    daemons
        .find(|pod| !pod.ready && pod.deleting.is_none())
        .map(|pod| format!("{}/{}", pod.namespace, pod.name))
}

/// Why a node that is not at the target is left alone for now; `None` when it may be taken up.
fn hold(node: &Node, mine: &[&Claim]) -> Option<&'static str> {
    let ours = mine.iter().any(|claim| node.cordoned_by.as_deref() == Some(claim.mark().as_str()));
    if ours {
        None
    } else if node.held {
        Some("held by annotation evenkeel.dev/hold")
    } else if node.unschedulable {
        Some("cordoned by someone else; uncordon it to let it take part")
    } else if node.kubelet.known().is_none() {
        Some("its kubelet's version is not known")
    } else {
        None
    }
}

/// Selected nodes that are not at the target and are left alone, with the reason.
pub(super) fn held(round: &Round<'_>, mine: &[&Claim]) -> Vec<(Arc<str>, &'static str)> {
    let target = &round.upgrade.version;
    let behind = round.world.cluster.nodes().iter().filter(|node| {
        group_of(&round.upgrade.groups, node).is_some()
            && !node.kubelet.known().is_some_and(|version| version.satisfies(target))
    });
    behind.filter_map(|node| Some((node.name.clone(), hold(node, mine)?))).collect()
}

/// Takes up as many further nodes as the groups' budgets allow.
pub(super) fn open(round: &mut Round<'_>, mine: &[&Claim]) {
    let replaced = mine.iter().filter(|claim| claim.subject.component.is_controller());
    let last = replaced.filter_map(|claim| match claim.state {
        State::Upgraded { at } => Some(after(at, CONTROLLERS_SETTLE)),
        _ => None,
    });
    if let Some(settled) = last.max().filter(|settled| round.world.now < *settled) {
        round.wake(settled);
        round.working.push("gives the replaced controllers time to take up their work".to_owned());
        return;
    }
    for group in &round.upgrade.groups {
        let upgrade: &Upgrade = round.upgrade;
        let members: Vec<&Node> = round
            .world
            .cluster
            .nodes()
            .iter()
            .map(AsRef::as_ref)
            .filter(|node| group_of(&upgrade.groups, node).is_some_and(|g| g.name == group.name))
            .collect();
        let claim_of = |node: &Node| {
            let kubelet = mine.iter().filter(|c| c.subject.component == Component::Kubelet);
            kubelet.copied().find(|c| c.subject.node == node.name && c.subject.node_uid == node.uid)
        };
        let limit = group.max_unavailable.of(members.len());
        let working = |node: &&&Node| claim_of(node).is_some_and(|claim| claim.state.in_flight());
        let mut in_flight = members.iter().filter(working).count();
        let mut unavailable = members.iter().filter(|n| !n.ready || n.unschedulable || working(n)).count();
        let mut candidates: Vec<(&Node, Option<&Claim>)> = members
            .iter()
            .filter(|n| n.kubelet.known().is_some_and(|v| !v.satisfies(&upgrade.version)))
            .filter(|n| hold(n, mine).is_none())
            .map(|n| (*n, claim_of(n)))
            .filter(|(_, claim)| claim.is_none_or(|c| matches!(c.state, State::Parked { .. })))
            .collect();
        // Unhealthy ones first: they are unavailable already and must not be able to hold up the rest.
        candidates.sort_by_key(|(n, claim)| {
            (n.ready, claim.is_some(), n.kubelet.known().map(KubeVersion::release), n.name.clone())
        });
        for (node, claim) in candidates {
            if in_flight >= limit {
                break;
            }
            if node.ready && unavailable >= limit {
                if in_flight == 0 {
                    let all = members.len();
                    let name = &group.name;
                    round.blocked.push(format!(
                        "group {name}: {unavailable} of {all} nodes are unavailable, {limit} may be"
                    ));
                    // Nodes that failed under us stay as they are; others may recover by themselves.
                    let failed =
                        |n: &&&Node| claim_of(n).is_some_and(|c| matches!(c.state, State::Failed { .. }));
                    round.hope |= members.iter().filter(failed).count() < limit;
                }
                break;
            }
            if let Err(line) = fits(round, node, &members, &claim_of) {
                round.blocked.push(line);
                continue;
            }
            match claim {
                None => {
                    let subject = Subject {
                        component: Component::Kubelet,
                        node: node.name.clone(),
                        node_uid: node.uid.clone(),
                        from: node.kubelet.to_string(),
                        to: upgrade.version.clone(),
                        executor: group.executor.clone(),
                    };
                    round.actions.push(Action::Claim { name: claim_name(&upgrade.name, &subject), subject });
                }
                Some(parked) => match retry(round, parked, node) {
                    Ok(action) => round.actions.push(action),
                    Err(line) => {
                        round.blocked.push(line);
                        continue;
                    }
                },
            }
            in_flight += 1;
            unavailable += usize::from(node.ready);
        }
    }
}

/// Whether what the pods that are tied to `node` take from their budgets is there beside that of the open nodes.
fn fits<'c>(
    round: &Round<'_>,
    node: &Node,
    members: &[&Node],
    claim_of: &impl Fn(&Node) -> Option<&'c Claim>,
) -> Result<(), String> {
    let in_flight = |other: &&&Node| claim_of(other).is_some_and(|claim| claim.state.in_flight());
    let open: Vec<&str> = members.iter().filter(in_flight).map(|other| &*other.name).collect();
    let world = round.world;
    let rules = Rules::of_upgrade(world.executors);
    admit(world.cluster, &node.name, &open, &rules, world.now)
        .map_err(|refused| format!("{} waits: {}", node.name, refused.reason))
}

/// Takes a parked node up again when nothing that can be seen would block it: at its time, or as soon as what blocked
/// it is gone. While a budget visibly allows nothing, trying would only disturb the node's other pods for nothing.
fn retry(round: &mut Round<'_>, claim: &Claim, node: &Node) -> Result<Action, String> {
    let State::Parked { since, retry_at } = claim.state else {
        return Err(format!("{} is not parked", node.name));
    };
    // A trial: what it would ask for is taken back.
    let sent = round.actions.len();
    let blocked = drain::evict(round, node).blockers;
    round.actions.truncate(sent);
    let hope_until = after(since, HOPE_FOR);
    if blocked.iter().all(|blocker| !blocker.lasting) && round.world.now < hope_until {
        round.hope = true;
        round.wake(hope_until);
    }
    if let Some(first) = blocked.first() {
        return Err(format!("{} is parked: pod {}: {}", node.name, first.pod, first.reason));
    }
    let here = |blocker: &Blocker| {
        let pods = round.world.cluster.pods_on(&node.name);
        pods.map(|pod| format!("{}/{}", pod.namespace, pod.name)).any(|pod| pod == blocker.pod)
    };
    let lifted = |blocker: &Blocker| blocker.budget.is_some() || !here(blocker);
    let due = if !claim.blockers.is_empty() && claim.blockers.iter().all(lifted) {
        after(since, PARKED_AT_LEAST)
    } else {
        retry_at
    };
    if round.world.now < due {
        round.wake(due);
        return Err(format!("{} is parked: {}", node.name, claim.message));
    }
    let mut action = record(claim, State::Claimed, format!("tried again after: {}", claim.message));
    if let Action::Record { attempt, .. } = &mut action {
        *attempt = claim.attempt + 1;
    }
    Ok(action)
}

/// Nodes that carry a cordon of ours whose claim no longer exists: an upgrade or claim was deleted under way.
///
/// The caller makes sure that the claims are complete; the uncordon itself looks the claim up once more.
pub fn orphans(cluster: &Cluster, claims: &[Claim]) -> Vec<Action> {
    let marked = cluster.nodes().iter().filter_map(|node| Some((node, node.cordoned_by.clone()?)));
    marked
        // A drain that a person began is theirs to end.
        .filter(|(_, mark)| !Mark::is_drain(mark) && claims.iter().all(|claim| claim.mark() != **mark))
        .map(|(node, mark)| Action::ReleaseOrphan { node: node_ref(node), mark: mark.to_string() })
        .collect()
}
