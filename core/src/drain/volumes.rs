//! Volumes that a drained node still holds.
//!
//! A machine that is rebooted or replaced while a volume is attached to it keeps that volume from its pod's next node;
//! a restart of the kubelet does not. Here belongs whose volume it is; the policy says whether it is waited for.

use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::{Attachment, Cluster, NamespacedName, Node};
use crate::disruption::{Rules, may_stay};

/// The volumes that are attached to `node` for pods that left, in one line. Volumes of pods that may stay do not count.
/// `None` if there are none, or attachments were not read.
pub(super) fn attached(cluster: &Cluster, node: &Node, rules: &Rules, now: Timestamp) -> Option<String> {
    attached_at(cluster, &node.name, rules, now)
}

/// The same of the node called `name`, whose Node may be deleted.
pub(super) fn attached_at(
    cluster: &Cluster,
    name: &Arc<str>,
    rules: &Rules,
    now: Timestamp,
) -> Option<String> {
    let surroundings = cluster.surroundings();
    let stays = |claim: &NamespacedName| {
        cluster.pods_on(name).any(|pod| {
            *pod.namespace == *claim.0
                && pod.traits().mounted().any(|mounted| *mounted == claim.1)
                && may_stay(pod, rules, surroundings, now)
        })
    };
    let first = Attachment { node: name.clone(), volume: "".into() };
    let here = surroundings.attached.as_ref()?.range(first..);
    let volumes: Vec<String> = here
        .take_while(|attachment| attachment.node == *name)
        .filter_map(|Attachment { volume, .. }| {
            match surroundings.claims.as_ref().and_then(|all| all.get(volume)) {
                Some(claim) if stays(claim) => None,
                Some((namespace, claim)) => Some(format!("{volume} ({namespace}/{claim})")),
                None if volume.is_empty() => Some("one without a name".to_owned()),
                None => Some(volume.to_string()),
            }
        })
        .collect();
    let (first, more) = volumes.split_first()?;
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    Some(format!("volume {first}{more} still attached to it"))
}
