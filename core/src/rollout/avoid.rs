//! Nodes that are to be upgraded yet, which the scheduler is asked to avoid, so that a pod that leaves one of them does
//! not have to leave the next one as well.
//!
//! Here belongs which nodes carry [`OUTDATED_TAINT`](crate::cluster::OUTDATED_TAINT), and that the first nodes of all
//! are spare ones, where there are any; what a Node's taints are with and without it is in `taints.rs`. The taint only
//! asks (`PreferNoSchedule`): a pod that fits nowhere else still runs there. The invariant: a node that was upgraded,
//! that runs a newer minor, that a person holds or that takes part no more does not keep the taint, and an upgrade that
//! is over leaves none behind.

use std::sync::Arc;

use jiff::SignedDuration;

use super::action::Action;
use super::leftovers::holds;
use super::not_opened::NotOpened;
use super::round::{Round, Selected, after};
use super::taints::Taints;
use crate::cluster::{Cluster, Node};
use crate::plan::{Stage, is_empty, is_spare};

/// So many nodes at most get or lose the taint in one decision.
const AT_ONCE: usize = 20;

fn write(node: &Node, taints: Taints) -> Action {
    Action::Taint { node: node.reference(), taints }
}

/// Whether `of` takes part, is behind and is to move. One of a newer minor than the target is not at it either, and stays
/// where it is.
fn is_outdated(round: &Round<'_>, of: &Selected<'_>) -> bool {
    let node = of.member.node;
    let newer = node.kubelet.minor() > Some(round.upgrade.version.minor());
    of.member.at_target == Some(false) && !newer && !node.held && !round.excepted.contains_key(&node.name)
}

/// Whether `node` may be taken up as far as there is a place for what leaves it. Before any node is upgraded, whatever
/// leaves one has to leave the next as well. So while a spare node is on its way, all others wait for it, but for those
/// that nothing has to leave, and for at most `expected`, which is how long a node takes.
pub(super) fn has_a_place(round: &Round<'_>, node: &Node, expected: SignedDuration) -> Result<(), NotOpened> {
    let cluster = round.world.cluster;
    let takes = |of: &Selected<'_>| {
        let node = of.member.node;
        of.member.at_target == Some(true) && node.ready && !node.unschedulable && !cluster.goes_alone(node)
    };
    if is_empty(cluster, node) || round.selected.iter().any(takes) {
        return Ok(());
    }
    let is_seed = |node: &Node| node.ready && is_spare(cluster, node);
    let on_its_way = |of: &Selected<'_>| {
        let claim = of.claim.filter(|claim| claim.state.in_flight() && is_seed(of.member.node))?;
        let until = after(claim.created?, expected);
        (round.world.now < until).then(|| (until, of.member.node.name.clone()))
    };
    // Or it is opened by this very decision.
    let opened = round.opened.iter().filter_map(|subject| cluster.node(&subject.node));
    let opened = opened.filter(|seed| is_seed(seed));
    let opened = opened.map(|seed| (after(round.world.now, expected), seed.name.clone()));
    match round.selected.iter().filter_map(on_its_way).chain(opened).max() {
        Some((until, seed)) => Err(NotOpened::Seed { seed, until }),
        None => Ok(()),
    }
}

/// Takes the taint off nodes that are not to be avoided any more, and, from when the first node moves, puts it on those that
/// are.
pub(super) fn follow(round: &mut Round<'_>) {
    let uid = &round.upgrade.uid;
    let over = round.progress.ending || round.progress.completed.is_some();
    let selected = &round.selected;
    let outdated = |node: &Node| {
        let found = selected.binary_search_by(|of| of.member.node.name.cmp(&node.name));
        found.ok().and_then(|at| selected.get(at)).is_some_and(|of| is_outdated(round, of))
    };
    let marked = |node: &&Arc<Node>| node.outdated_for.as_ref().is_some_and(|by| by == uid);
    // From a node that a claim of ours holds it goes together with the cordon. The drain of a person may last for days.
    let ours = |node: &Node| node.cordoned_by.is_some() && round.mine.iter().any(|claim| holds(claim, node));
    let freed = |node: &&Arc<Node>| !ours(node) && (over || !outdated(node));
    let nodes = round.world.cluster.nodes().iter().filter(marked).filter(freed);
    let mut writes: Vec<Action> =
        nodes.filter_map(|node| Some(write(node, Taints::without_ours(node)?))).take(AT_ONCE).collect();
    // Until the first node moves, no other has to be avoided. One that is given back is outdated still.
    let begun = round.stage == Some(Stage::Kubelets) && selected.iter().any(|of| of.claim.is_some());
    if begun && !over && round.may_disrupt && round.halted.is_none() {
        let free = |of: &&Selected<'_>| {
            let node = of.member.node;
            node.outdated_for.is_none() && !node.unschedulable && !of.in_flight()
        };
        let ours = |of: &Selected<'_>| {
            let node = of.member.node;
            Some(write(node, Taints::with_ours(node, uid)?))
        };
        let room = AT_ONCE.saturating_sub(writes.len());
        writes.extend(
            selected.iter().filter(|of| is_outdated(round, of)).filter(free).filter_map(ours).take(room),
        );
    }
    round.actions.extend(writes);
}

/// Whether a node carries the taint of the upgrade of that UID.
pub(super) fn any(cluster: &Cluster, upgrade: &str) -> bool {
    cluster.nodes().iter().any(|node| node.outdated_for.as_deref() == Some(upgrade))
}

/// Takes the taint of upgrades that do not exist off the nodes. The caller makes sure that `upgrades`, their UIDs, are
/// complete.
pub fn unavoided(cluster: &Cluster, upgrades: &[impl AsRef<str>]) -> Vec<Action> {
    let alone = |node: &&Arc<Node>| {
        let known = |uid: &Arc<str>| upgrades.iter().any(|upgrade| *upgrade.as_ref() == **uid);
        node.outdated_for.as_ref().is_some_and(|uid| !known(uid))
    };
    let nodes = cluster.nodes().iter().filter(alone);
    nodes.filter_map(|node| Some(write(node, Taints::without_ours(node)?))).take(AT_ONCE).collect()
}
