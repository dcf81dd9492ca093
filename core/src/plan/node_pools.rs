//! Node pools and whatever else makes and replaces nodes, known by the labels of those nodes.
//!
//! Here belongs only the warning that new nodes will come at the old version; such nodes are upgraded like any other.
//! The invariant: there is one finding for each pool, however many of its nodes move.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::finding::{PlanFinding, Weight};
use super::finding_id::FindingCode;
use super::waves::Wave;
use crate::cluster::Cluster;

/// Labels by which a node tells who makes and replaces it.
const MAKERS: [(&str, &str); 5] = [
    ("karpenter.sh/nodepool", "Karpenter's node pool"),
    ("eks.amazonaws.com/nodegroup", "the EKS node group"),
    ("cloud.google.com/gke-nodepool", "the GKE node pool"),
    ("kubernetes.azure.com/agentpool", "the AKS node pool"),
    ("cluster.x-k8s.io/cluster-name", "Cluster API's cluster"),
];

/// Who makes the nodes of `waves`, and will make new ones at the old version: one finding for each pool.
pub(super) fn made_by_others(waves: &[Vec<Wave>], cluster: &Cluster) -> Vec<PlanFinding> {
    let mut made: BTreeMap<(&str, &str), Vec<Arc<str>>> = BTreeMap::new();
    for name in waves.iter().flatten().flat_map(|wave| &wave.nodes) {
        let Some(node) = cluster.node(name) else { continue };
        let maker = MAKERS.iter().find_map(|(label, maker)| Some((*maker, node.labels.get(*label)?)));
        if let Some((maker, pool)) = maker {
            made.entry((maker, pool)).or_default().push(name.clone());
        }
    }
    let finding = |((maker, pool), names): ((&str, &str), Vec<Arc<str>>)| {
        let what =
            format!("{maker} {pool} makes these nodes, and makes new ones at the version of its template");
        let remedy = "move its template to the target too, or new nodes will come at the old version";
        PlanFinding::new(FindingCode::NodesMadeByOthers.of(pool), Weight::Warns, what)
            .remedy(remedy)
            .about(&names)
    };
    made.into_iter().map(finding).collect()
}
