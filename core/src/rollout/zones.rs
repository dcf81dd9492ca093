//! Zones of which so many nodes are not ready that something else is wrong there.
//!
//! Here belongs the throttle of Kubernetes' own node controller
//! (`pkg/controller/nodelifecycle/node_lifecycle_controller.go`, `ComputeZoneState`): a zone is partially disrupted
//! when more than two of its nodes, and at least 55 % of them, are not ready, and fully when none is; no node of either
//! is taken up. Of nodes that were lost a moment ago a fifth is enough here, because then something goes on that an
//! upgrade would only make worse; machines that have been silent for long tell nothing of the kind. Where every zone is
//! fully disrupted nothing is begun, not even on the control plane. The invariant: nodes that we hold open ourselves
//! are never held against their zone.

use std::collections::BTreeMap;

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
    counted(round).map(drop)
}

/// Whether the zones allow that `node` is taken away.
pub(super) fn allow(round: &Round<'_>, node: &Node) -> Result<(), NotOpened> {
    match counted(round)?.get(&place(node)) {
        Some(count)
            if count.is_full()
                || count.is_disrupted(count.not_ready, SHARE)
                || count.is_disrupted(count.not_ready - count.gone, LATELY) =>
        {
            Err(NotOpened::Zone {
                zone: zone(node).into(),
                not_ready: count.not_ready,
                nodes: count.nodes,
                lasting: count.is_disrupted(count.gone, SHARE)
                    || count.is_full() && count.gone == count.not_ready,
            })
        }
        _ => Ok(()),
    }
}

/// Every zone; the error is that no node of any is ready.
fn counted<'c>(round: &Round<'c>) -> Result<BTreeMap<(&'c str, &'c str), ZoneCount>, NotOpened> {
    let cluster = round.world.cluster;
    let held = |node: &Node| {
        let of_it = |claim: &&&Claim| {
            claim.subject.moves().contains(&Component::Kubelet) && claim.subject.node_uid == node.uid
        };
        // Nothing was done yet to one that is only claimed.
        let holds = |claim: &Claim| claim.state.in_flight() && !matches!(claim.state, ClaimState::Claimed);
        round.mine.iter().filter(of_it).any(|claim| holds(claim))
    };
    let mut zones: BTreeMap<(&str, &str), ZoneCount> = BTreeMap::new();
    for one in cluster.nodes().iter().filter(|one| !one.labels.contains_key(EXCLUDED)) {
        let count = zones.entry(place(one)).or_default();
        count.nodes += 1;
        count.ready += usize::from(one.ready);
        let away = !one.ready && !held(one);
        count.not_ready += usize::from(away);
        count.gone += usize::from(away && round.is_gone(one));
    }
    let not_ready = || zones.values().map(|zone| zone.not_ready).sum();
    if !zones.is_empty() && zones.values().all(ZoneCount::is_full) {
        let lasting = zones.values().all(|zone| zone.gone == zone.not_ready);
        return Err(NotOpened::AllZones { not_ready: not_ready(), lasting });
    }
    Ok(zones)
}
