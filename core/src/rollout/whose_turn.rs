//! Whose turn it is: groups that depend on others, canaries, and zones that go one after the other.
//!
//! Here belongs what [`Wave`](crate::plan::Wave)s mean while they are carried out. The invariant: whatever order nodes
//! come and go in, no node of a later wave is taken up while one of an earlier wave is under way.

use super::group::{Members, held_by};
use super::round::{Round, Selected, gone_at};
use super::waiting::{WaitReason, Waiting};
use crate::cluster::Node;
use crate::plan::zone;
use crate::upgrade::{NodeGroup, Zones};
use crate::version::KubeVersion;

/// The nodes of `members` that are not done.
pub(super) fn nodes_behind<'a>(
    round: &Round<'_>,
    members: &'a Members<'a>,
) -> impl Iterator<Item = &'a Selected<'a>> {
    members.nodes.iter().filter(|node| {
        let behind = node.member.at_target != Some(true) || node.has_failed();
        let excepted = round.excepted.contains_key(&node.member.node.name);
        node.in_flight() || behind && !excepted && held_by(round, node).is_none()
    })
}

/// How many nodes of `members` run `version`, and were given back. One that failed was not, whatever it runs.
pub(super) fn given_back(members: &Members<'_>, version: &KubeVersion) -> usize {
    members.nodes.iter().filter(|node| has_come(node, version)).count()
}

fn has_come(of: &Selected<'_>, version: &KubeVersion) -> bool {
    let runs = of.member.node.kubelet.known().is_some_and(|runs| runs.satisfies(version));
    runs && !of.in_flight() && !of.has_failed()
}

/// Whether the node of `of` runs `version` and is not ready, as far as the upgrade may be to blame: nobody follows it until
/// it is ready again, or a person holds it. Deleting the claim of a failed node does not make it healthy.
fn is_unwell(round: &Round<'_>, of: &Selected<'_>, version: &KubeVersion) -> bool {
    let node = of.member.node;
    let earlier =
        node.not_ready_since.zip(round.progress.started).is_some_and(|(since, began)| since < began);
    !node.ready && !node.held && !earlier && has_come(of, version)
}

/// A wait with `line` for nodes of which `unwell` are not ready.
fn until_ready<'a>(round: &mut Round<'_>, line: String, unwell: impl Iterator<Item = &'a Node>) -> Waiting {
    let nodes: Vec<&Node> = unwell.collect();
    let Some(first) = nodes.first() else { return Waiting::new(WaitReason::GroupsInOrder, line) };
    let line = format!("{line}; {} is not ready", first.name);
    if nodes.iter().any(|node| round.is_gone(node)) {
        let line =
            format!("{line}: bring it back, delete its Node, or hold it with annotation evenkeel.dev/hold");
        return Waiting { of_group: true, ..Waiting::new(WaitReason::NODES_HELD, line) };
    }
    round.hope = true;
    nodes.iter().filter_map(|node| gone_at(node)).for_each(|at| round.wake(at));
    Waiting::new(WaitReason::GroupsInOrder, line)
}

/// What the nodes of `members` wait for because a group that comes before theirs is not done. Nodes that somebody holds, or that
/// may stay behind, keep nobody waiting.
pub(super) fn waits_for(
    round: &mut Round<'_>,
    all: &[Members<'_>],
    members: &Members<'_>,
) -> Option<Waiting> {
    let of = |group: &NodeGroup| all.iter().find(|other| other.group.name == group.name);
    let version = &round.upgrade.version;
    let before = round.upgrade.groups_before(members.group);
    let first = before.into_iter().filter_map(of).find_map(|other| {
        let mut left: Vec<&Selected<'_>> = nodes_behind(round, other).collect();
        let unwell: Vec<&Selected<'_>> =
            other.nodes.iter().filter(|node| is_unwell(round, node, version)).collect();
        let unwell = if left.is_empty() { unwell } else { Vec::new() };
        left.extend(&unwell);
        let node = left.first()?;
        Some((other.group.name.clone(), left.len(), node.member.node.name.clone(), unwell))
    });
    let (group, count, node, unwell) = first?;
    let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    let line = format!("group {} waits until group {group} is done ({node}{more})", members.group.name);
    Some(until_ready(round, line, unwell.iter().map(|of| of.member.node)))
}

/// How many nodes of `members` are unavailable, for whatever reason.
pub(super) fn unavailable(members: &Members<'_>) -> usize {
    let away = |of: &&Selected<'_>| {
        let node = of.member.node;
        !node.ready || node.unschedulable || of.in_flight()
    };
    members.nodes.iter().filter(away).count()
}

/// Those of a group whose turn it is.
pub(super) struct InTurn<'a> {
    /// In order.
    pub(super) candidates: Vec<Selected<'a>>,
    /// So many of them may be begun: until the canaries of the group run the version of the hop, as many as canaries are
    /// still to be begun. One that cannot be begun takes nobody's place.
    pub(super) at_most: usize,
}

/// Those of `candidates` whose turn it is in their group. The error is what all of them wait for.
pub(super) fn in_turn<'a>(
    round: &mut Round<'_>,
    members: &Members<'a>,
    mut candidates: Vec<Selected<'a>>,
) -> Result<InTurn<'a>, Waiting> {
    let (group, version) = (members.group, &round.upgrade.version);
    let in_flight = || members.nodes.iter().filter(|node| node.in_flight());
    // One that failed keeps its place: what it shows is that the others must not follow.
    let failed = || members.nodes.iter().filter(|node| node.has_failed());
    let unwell: Vec<&Selected<'_>> =
        members.nodes.iter().filter(|node| is_unwell(round, node, version)).collect();
    if candidates.is_empty() {
        return Ok(InTurn { candidates, at_most: 0 });
    }
    if group.zones == Zones::OneAtATime {
        // Where nodes that are away already fill the group, nothing moves before one of them does, whatever its zone.
        let full = unavailable(members) >= members.limit;
        candidates.sort_by_key(|of| (full && of.member.node.ready, zone(of.member.node)));
        let excepted = |node: &&Selected<'_>| round.excepted.contains_key(&node.member.node.name);
        let out = failed().find(|node| !excepted(node));
        if let Some(first) = in_flight().next().or(out).or_else(|| unwell.first().copied()) {
            let (name, now) = (&first.member.node.name, zone(first.member.node));
            candidates.retain(|candidate| zone(candidate.member.node) == now);
            if candidates.is_empty() {
                let line =
                    format!("group {}: the other zones wait until zone {now} is done ({name})", group.name);
                let unwell = unwell.iter().filter(|of| of.member.node.name == *name);
                return Err(until_ready(round, line, unwell.map(|of| of.member.node)));
            }
        }
    }
    let well = |of: &&Selected<'_>| of.member.node.ready && has_come(of, version);
    let proven = members.nodes.iter().filter(well).count();
    let mut at_most = usize::MAX;
    if proven < group.canary {
        let taken = in_flight().count() + failed().count() + unwell.len();
        at_most = (group.canary - proven).saturating_sub(taken);
    }
    if at_most == 0 {
        let line = format!("group {}: the others wait until its canaries run {version}", group.name);
        return Err(until_ready(round, line, unwell.iter().map(|of| of.member.node)));
    }
    Ok(InTurn { candidates, at_most })
}
