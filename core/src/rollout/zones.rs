//! Zones of which so many nodes are not ready that something else is wrong there.
//!
//! Here belongs the throttle of Kubernetes' own node controller
//! (`pkg/controller/nodelifecycle/node_lifecycle_controller.go`, `ComputeZoneState`): a zone is partially disrupted
//! when more than two of its nodes, and at least 55 % of them, are not ready, and fully when none is; no node of either
//! is taken up. Of nodes that were lost a moment ago a fifth is enough here, because then something goes on that an
//! upgrade would only make worse; machines that have been silent for long tell nothing of the kind. Where every zone is
//! fully disrupted nothing is begun, not even on the control plane. The invariant: nodes that we hold open ourselves
//! are never held against their zone.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};

use super::claim::{Claim, ClaimState};
use super::not_opened::NotOpened;
use super::round::Round;
use crate::cluster::{Component, Node};
use crate::plan::zone;

const REGION: &str = "topology.kubernetes.io/region";
/// A node with this label counts for no zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// Up to so many nodes that are not ready are not called a disruption.
const FEW: usize = 2;
/// From so many of a hundred on, a zone is disrupted.
const SHARE: usize = 55;
/// From so many of a hundred on that were lost lately, it is as well.
const LATELY: usize = 20;

/// The region and the zone of `node`.
pub(super) fn place(node: &Node) -> (&str, &str) {
    (node.labels.get(REGION).map_or("", String::as_str), zone(node))
}

#[derive(Default)]
struct ZoneCount {
    nodes: usize,
    ready: usize,
    not_ready: usize,
    /// Those of them that have not been ready for long.
    gone: usize,
}

impl ZoneCount {
    /// Counts `node`, where the nodes of the UIDs in `held` are held open by us.
    fn add(&mut self, round: &Round<'_>, held: &HashSet<&str>, node: &Node) {
        let away = !node.ready && !held.contains(&*node.uid);
        self.nodes += 1;
        self.ready += usize::from(node.ready);
        self.not_ready += usize::from(away);
        self.gone += usize::from(away && round.is_gone(node));
    }

    const fn is_disrupted(&self, not_ready: usize, share: usize) -> bool {
        not_ready > FEW && not_ready * 100 >= self.nodes * share
    }

    const fn is_full(&self) -> bool {
        self.ready == 0 && self.not_ready > 0
    }
}

/// Whether the zones allow that anything is begun: not where no node of any is ready, because then it is rather the control
/// plane that does not hear of them, and what is done to it now may be what keeps it from hearing.
pub(super) fn allow_anything(round: &Round<'_>) -> Result<(), NotOpened> {
    let nodes = round.world.cluster.nodes();
    // The zone of a node that is ready is not fully disrupted. There is one nearly always, and it is soon found.
    if nodes.iter().any(|one| one.ready && counts(one)) {
        return Ok(());
    }
    let held = held_open(round);
    let mut zones: BTreeMap<(&str, &str), ZoneCount> = BTreeMap::new();
    for one in nodes.iter().filter(|one| counts(one)) {
        zones.entry(place(one)).or_default().add(round, &held, one);
    }
    let not_ready = || zones.values().map(|zone| zone.not_ready).sum();
    if !zones.is_empty() && zones.values().all(ZoneCount::is_full) {
        let lasting = zones.values().all(|zone| zone.gone == zone.not_ready);
        return Err(NotOpened::AllZones { not_ready: not_ready(), lasting });
    }
    Ok(())
}

/// Whether the zones allow that `node` is taken away.
pub(super) fn allow(round: &Round<'_>, node: &Node) -> Result<(), NotOpened> {
    allow_anything(round)?;
    let (nodes, here) = (round.world.cluster.nodes(), place(node));
    let held = LazyCell::new(|| held_open(round));
    let is_here = |one: &Node| counts(one) && place(one) == here;
    // Every node that is taken up asks this, and it takes long to look at the labels of all nodes. So what a few nodes show
    // comes first. A zone that has a node that is ready, and more nodes than `most`, is not disrupted by those that are away.
    let is_away = |one: &Node| !one.ready && is_here(one) && !held.contains(&*one.uid);
    let away = nodes.iter().filter(|one| is_away(one)).count();
    let most = away * 100 / LATELY;
    let has_more = || nodes.iter().filter(|one| is_here(one)).nth(most).is_some();
    let has_ready = || nodes.iter().any(|one| one.ready && is_here(one));
    if away == 0 || has_ready() && (away <= FEW || has_more()) {
        return Ok(());
    }
    let mut count = ZoneCount::default();
    for one in nodes.iter().filter(|one| is_here(one)) {
        count.add(round, &held, one);
    }
    let closed = count.is_full()
        || count.is_disrupted(count.not_ready, SHARE)
        || count.is_disrupted(count.not_ready - count.gone, LATELY);
    if !closed {
        return Ok(());
    }
    Err(NotOpened::Zone {
        zone: zone(node).into(),
        not_ready: count.not_ready,
        nodes: count.nodes,
        lasting: count.is_disrupted(count.gone, SHARE) || count.is_full() && count.gone == count.not_ready,
    })
}

/// Whether `node` counts for its zone.
fn counts(node: &Node) -> bool {
    !node.labels.contains_key(EXCLUDED)
}

/// The UIDs of the nodes that we hold open. Nothing was done yet to one that is only claimed.
fn held_open<'a>(round: &Round<'a>) -> HashSet<&'a str> {
    let holds = |claim: &&&Claim| {
        claim.state.in_flight()
            && !matches!(claim.state, ClaimState::Claimed)
            && claim.subject.moves().contains(&Component::Kubelet)
    };
    round.mine.iter().filter(holds).map(|claim| &*claim.subject.node_uid).collect()
}
