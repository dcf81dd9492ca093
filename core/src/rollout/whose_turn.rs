//! Whose turn it is: groups that depend on others, canaries, and zones that go one after the other.
//!
//! Here belongs what [`Wave`](crate::plan::Wave)s mean while they are carried out. The invariant: whatever order nodes
//! come and go in, no node of a later wave is taken up while one of an earlier wave is under way.

use super::group::{Members, held_by};
use super::round::{Round, Selected};
use crate::plan::zone;
use crate::upgrade::Zones;
use crate::version::KubeVersion;

/// The nodes of `members` that the groups wait for which depend on it.
pub(super) fn nodes_left<'a>(
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
pub(super) fn proven(members: &Members<'_>, version: &KubeVersion) -> usize {
    let runs_it = |node: &&Selected<'_>| {
        let runs = node.member.node.kubelet.known().is_some_and(|runs| runs.satisfies(version));
        runs && !node.in_flight() && !node.has_failed()
    };
    members.nodes.iter().filter(runs_it).count()
}

/// Why no node of `members` may be taken up yet, in one line: a group that it depends on is not done. Nodes that somebody
/// holds, or that may stay behind, keep nobody waiting.
pub(super) fn waits_for(round: &Round<'_>, all: &[Members<'_>], members: &Members<'_>) -> Option<String> {
    let of = |name: &str| all.iter().find(|other| *other.group.name == *name);
    let first = members.group.depends_on.iter().filter_map(|name| of(name)).find_map(|other| {
        let left: Vec<&Selected<'_>> = nodes_left(round, other).collect();
        let node = left.first()?;
        Some((other.group.name.clone(), left.len(), node.member.node.name.clone()))
    });
    let (group, count, node) = first?;
    let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    Some(format!("group {} waits until group {group} is done ({node}{more})", members.group.name))
}

/// Those of a group whose turn it is.
pub(super) struct InTurn<'a> {
    /// In order.
    pub(super) candidates: Vec<Selected<'a>>,
    /// So many of them may be begun: until the canaries of the group run the version of the hop, as many as canaries are
    /// still to be begun. One that cannot be begun takes nobody's place.
    pub(super) at_most: usize,
}

/// Those of `candidates` whose turn it is in their group. The error is what all of them wait for, in one line.
pub(super) fn in_turn<'a>(
    round: &Round<'_>,
    members: &Members<'a>,
    mut candidates: Vec<Selected<'a>>,
) -> Result<InTurn<'a>, String> {
    let (group, version) = (members.group, &round.upgrade.version);
    let in_flight = || members.nodes.iter().filter(|node| node.in_flight());
    // One that failed keeps its place: what it shows is that the others must not follow.
    let failed = || members.nodes.iter().filter(|node| node.has_failed());
    if candidates.is_empty() {
        return Ok(InTurn { candidates, at_most: 0 });
    }
    if group.zones == Zones::OneAtATime {
        candidates.sort_by(|a, b| zone(a.member.node).cmp(zone(b.member.node)));
        let excepted = |node: &&Selected<'_>| round.excepted.contains_key(&node.member.node.name);
        let out = failed().find(|node| !excepted(node));
        if let Some(first) = in_flight().next().or(out) {
            let (name, now) = (&first.member.node.name, zone(first.member.node));
            candidates.retain(|candidate| zone(candidate.member.node) == now);
            if candidates.is_empty() {
                return Err(format!(
                    "group {}: the other zones wait until zone {now} is done ({name})",
                    group.name
                ));
            }
        }
    }
    let proven = proven(members, version);
    let mut at_most = usize::MAX;
    if proven < group.canary {
        at_most = (group.canary - proven).saturating_sub(in_flight().count() + failed().count());
    }
    if at_most == 0 {
        return Err(format!("group {}: the others wait until its canaries run {version}", group.name));
    }
    Ok(InTurn { candidates, at_most })
}
