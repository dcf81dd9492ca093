//! What a forecast of an upgrade is made from: a plan, the cluster that it starts from, and what goes with them.
//!
//! Here belongs what has to be known to foretell an upgrade; the forecast itself is made in `timing` and `drains`. The
//! invariant: a node that several hops drain counts for the first of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::hops::Plan;
use super::waves::Wave;
use crate::cluster::Cluster;
use crate::disruption::Rules;
use crate::upgrade::Upgrade;
use crate::version::Minor;

/// A plan of which somebody wants to know how long it takes and what is in its way.
#[derive(Clone, Copy, Debug)]
pub struct ForecastInput<'a> {
    /// The plan, from where `cluster` is.
    pub plan: &'a Plan,
    /// Its waves, which are those of [`waves()`](super::waves()).
    pub waves: &'a [Vec<Wave>],
    /// What a person wants.
    pub upgrade: &'a Upgrade,
    /// The cluster as it is.
    pub cluster: &'a Cluster,
    /// Those of the upgrade's drains.
    pub rules: &'a Rules,
    /// The time.
    pub now: Timestamp,
}

impl<'a> ForecastInput<'a> {
    /// The nodes that are drained, and the first hop in which they are.
    pub(super) fn emptied(&self) -> BTreeMap<&'a Arc<str>, Minor> {
        let mut emptied: BTreeMap<&Arc<str>, Minor> = BTreeMap::new();
        for (hop, waves) in self.plan.hops.iter().zip(self.waves) {
            let minor = hop.version.minor();
            for name in waves.iter().flat_map(|wave| &wave.nodes) {
                let from = self.cluster.node(name).and_then(|node| node.kubelet.minor());
                if self.upgrade.drain.empties(from, minor) {
                    emptied.entry(name).or_insert(minor);
                }
            }
        }
        emptied
    }
}
