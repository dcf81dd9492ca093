//! The nodes of each node group, and what keeps one of them out.
//!
//! Here belongs who is in a group and how many of them may be unavailable; which of them is next is in `next_nodes`.
//! The invariant: a node counts in one group only, that of its [`Member`](crate::upgrade::Member).

use std::collections::HashSet;
use std::sync::Arc;

use super::action::Action;
use super::claim::{Subject, UnreadableClaim};
use super::hold_reason::{Hold, why_held};
use super::round::{Round, Selected};
use super::waiting::WaitReason;
use crate::cluster::{Component, Node};
use crate::upgrade::NodeGroup;

/// The nodes of one group.
pub(super) struct Members<'a> {
    pub(super) group: &'a NodeGroup,
    pub(super) nodes: Vec<Selected<'a>>,
    /// How many of them may be unavailable.
    pub(super) limit: usize,
}

/// The nodes that take part, by group.
pub(super) fn members<'a>(round: &Round<'a>) -> Vec<Members<'a>> {
    let of_group = |group: &'a NodeGroup| Members { group, limit: 0, nodes: Vec::new() };
    let mut all: Vec<Members<'a>> = round.upgrade.groups.iter().map(of_group).collect();
    for selected in &round.selected {
        if let Some(members) = all.get_mut(selected.member.group) {
            members.nodes.push(*selected);
        }
    }
    for members in &mut all {
        members.limit = members.group.max_unavailable.of(members.nodes.len());
    }
    all
}

/// Whether `node`, which was claimed and is not cordoned yet, still has a place in its group: no more nodes are unavailable
/// than may be, itself counted. One that is not ready takes none.
pub(super) fn has_place(round: &Round<'_>, node: &Node) -> bool {
    let at = round.selected.binary_search_by(|of| of.member.node.name.cmp(&node.name));
    let its = at.ok().and_then(|at| round.selected.get(at));
    let Some(group) = its.map(|of| of.member.group).filter(|_| node.ready) else { return true };
    let Some(limit) = round.upgrade.groups.get(group).map(|group| group.max_unavailable) else { return true };
    let nodes = || round.selected.iter().filter(|of| of.member.group == group);
    let limit = limit.of(nodes().count());
    let is_there = |of: &Selected<'_>| of.member.node.ready && !of.member.node.unschedulable;
    let away = nodes().filter(|of| !is_there(of) || of.in_flight()).count();
    // Every claimed node asks this. Which claims this round lets go matters only where there are too many.
    if away <= limit {
        return true;
    }
    let released = round.actions.iter().filter_map(|action| match action {
        Action::Release { uid, .. } => Some(&**uid),
        _ => None,
    });
    let released: HashSet<&str> = released.collect();
    let goes = |of: &&Selected<'_>| of.claim.is_some_and(|claim| released.contains(&*claim.uid));
    let back = nodes().filter(|of| is_there(of) && of.in_flight()).filter(goes).count();
    away - back <= limit
}

/// The selected nodes that are not at the target and are left alone, with the reason.
pub(super) fn held(round: &Round<'_>) -> Vec<(Arc<str>, Hold)> {
    let behind = round.selected.iter().filter(|selected| selected.member.at_target != Some(true));
    behind
        .filter_map(|selected| Some((selected.member.node.name.clone(), held_by(round, selected)?)))
        .collect()
}

/// Why `selected` is left alone for now.
pub(super) fn held_by(round: &Round<'_>, selected: &Selected<'_>) -> Option<Hold> {
    let node = selected.member.node;
    let unreadable = unreadable_of(round, selected);
    why_held(node, selected.claim, unreadable, &round.upgrade.version, round.is_silent(node))
}

fn unreadable_of<'a>(round: &Round<'a>, selected: &Selected<'_>) -> Option<&'a UnreadableClaim> {
    if round.world.unreadable.is_empty() {
        return None;
    }
    let group = round.upgrade.groups.get(selected.member.group)?;
    round.in_the_way(&kubelet_subject(round, group, selected.member.node))
}

/// Says which nodes that are not at the target wait for a claim that goes by itself.
pub(super) fn await_leftovers(round: &mut Round<'_>) {
    let behind = round.selected.iter().filter(|selected| selected.member.at_target != Some(true));
    let goes = behind.filter_map(|selected| unreadable_of(round, selected).filter(|claim| claim.goes));
    let lines: Vec<String> = goes.map(|claim| claim.why.clone()).collect();
    round.hope |= !lines.is_empty();
    for line in lines {
        round.works(WaitReason::ExecutorWorking, line);
    }
}

/// What a claim of the kubelet of `node` is about.
pub(super) fn kubelet_subject(round: &Round<'_>, group: &NodeGroup, node: &Node) -> Subject {
    Subject {
        component: Component::Kubelet,
        components: Vec::new(),
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        from: node.kubelet.to_string(),
        to: round.upgrade.version.clone(),
        executor: group.executor.clone(),
    }
}
