//! Zones of which so many nodes are not ready that something else is wrong there.
//!
//! Here belongs the throttle of Kubernetes' own node controller
//! (`pkg/controller/nodelifecycle/node_lifecycle_controller.go`, `ComputeZoneState`): a zone is partially disrupted
//! when more than two of its nodes, and at least 55 % of them, are not ready, and fully when none is; no node of either
//! is taken up. Of nodes that were lost a moment ago a fifth is enough here, because then something goes on that an
//! upgrade would only make worse; machines that have been silent for long tell nothing of the kind. Where every zone is
//! fully disrupted nothing is begun, not even on the control plane. The invariant: nodes that we hold open ourselves
//! are never held against their zone.

use std::collections::HashSet;

use super::claim::{Claim, ClaimState};
use super::not_opened::NotOpened;
use super::round::Round;
use super::zone_count::{ZoneCount, ZoneCounts};
use crate::cluster::{Component, Node};
use crate::plan::zone;

/// Whether the zones allow that anything is begun: not where no node of any is ready, because then it is rather the control
/// plane that does not hear of them, and what is done to it now may be what keeps it from hearing.
pub(super) fn allow_anything(round: &Round<'_>) -> Result<(), NotOpened> {
    let zones = zones(round);
    if zones.all().next().is_none() || !zones.all().all(ZoneCount::is_full) {
        return Ok(());
    }
    let not_ready = zones.all().map(|zone| zone.not_ready).sum();
    let lasting = zones.all().all(|zone| zone.gone == zone.not_ready);
    Err(NotOpened::AllZones { not_ready, lasting })
}

/// Whether the zones allow that `node` is taken away.
pub(super) fn allow(round: &Round<'_>, node: &Node) -> Result<(), NotOpened> {
    allow_anything(round)?;
    let count = zones(round).of_node(node).filter(|count| count.is_closed());
    count.map_or(Ok(()), |count| {
        Err(NotOpened::Zone {
            zone: zone(node).into(),
            not_ready: count.not_ready,
            nodes: count.nodes,
            lasting: count.is_closed_for_long(),
        })
    })
}

/// Every zone. Each node that is taken up asks for them, and they are the same in all of a decision.
fn zones<'r>(round: &'r Round<'_>) -> &'r ZoneCounts {
    round.zones.get_or_init(|| {
        let held = held_open(round);
        let is_held = |node: &Node| held.contains(&*node.uid);
        ZoneCounts::of(round.world.cluster, is_held, |node| round.is_gone(node))
    })
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
