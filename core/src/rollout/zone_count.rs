//! How many nodes of each zone there are, and how many of them are away.
//!
//! Here belong the numbers of a zone, and what is called a disruption of it by Kubernetes' own node controller; what follows
//! from that is in `zones`. The invariant: a node that is held open counts as one of its zone, and never as away.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Node};
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

/// The nodes of one zone.
#[derive(Default)]
pub(super) struct ZoneCount {
    pub(super) nodes: usize,
    ready: usize,
    /// Those that are not ready, and that nobody holds open.
    pub(super) not_ready: usize,
    /// Those of them that have not been ready for long.
    pub(super) gone: usize,
}

impl ZoneCount {
    const fn is_disrupted(&self, not_ready: usize, share: usize) -> bool {
        not_ready > FEW && not_ready * 100 >= self.nodes * share
    }

    /// Whether none of its nodes is ready.
    pub(super) const fn is_full(&self) -> bool {
        self.ready == 0 && self.not_ready > 0
    }

    /// Whether something is wrong in the zone itself.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_full()
            || self.is_disrupted(self.not_ready, SHARE)
            || self.is_disrupted(self.not_ready - self.gone, LATELY)
    }

    /// Whether only a person ends that, as far as anybody can say.
    pub(super) const fn is_closed_for_long(&self) -> bool {
        self.is_disrupted(self.gone, SHARE) || self.is_full() && self.gone == self.not_ready
    }
}

/// The zones of a cluster.
pub(super) struct ZoneCounts {
    /// By region and zone. They own their names, so that a decision can keep them beside what it borrows.
    by_region: BTreeMap<String, BTreeMap<String, ZoneCount>>,
}

impl ZoneCounts {
    /// Counts the nodes of each zone of `cluster`. `is_held` says which are held open, and `is_gone` which have been away for
    /// long.
    pub(super) fn of(
        cluster: &Cluster,
        is_held: impl Fn(&Node) -> bool,
        is_gone: impl Fn(&Node) -> bool,
    ) -> Self {
        let mut counts: BTreeMap<(&str, &str), ZoneCount> = BTreeMap::new();
        for one in cluster.nodes().iter().filter(|one| !one.labels.contains_key(EXCLUDED)) {
            let count = counts.entry(place(one)).or_default();
            let away = !one.ready && !is_held(one);
            count.nodes += 1;
            count.ready += usize::from(one.ready);
            count.not_ready += usize::from(away);
            count.gone += usize::from(away && is_gone(one));
        }
        let mut by_region: BTreeMap<String, BTreeMap<String, ZoneCount>> = BTreeMap::new();
        for ((region, zone), count) in counts {
            by_region.entry(region.to_owned()).or_default().insert(zone.to_owned(), count);
        }
        Self { by_region }
    }

    /// The zone of `node`, where a node of it counts.
    pub(super) fn of_node(&self, node: &Node) -> Option<&ZoneCount> {
        let (region, zone) = place(node);
        self.by_region.get(region)?.get(zone)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &ZoneCount> {
        self.by_region.values().flat_map(BTreeMap::values)
    }
}
