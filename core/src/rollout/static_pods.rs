//! The static pods of a node: which of them have to run, and which are not back.
//!
//! Here belongs only what their copies in the API tell; who waits for them is in `control_plane_whole`, `components`
//! and `nodes`. The invariant: one that has finished, and one that is on its way out, is not waited for.

use std::sync::Arc;

use super::claim::Before;
use crate::cluster::{Cluster, Node, Phase, Pod};

/// A claim remembers at most so many static pods. kubeadm makes four.
const MAX_STATIC_PODS: usize = 20;

/// Whether `pod` is a static pod that has to run. One that has finished has nothing left to do.
pub(super) fn is_static(pod: &Pod) -> bool {
    pod.mirror && pod.phase != Phase::Finished && pod.deleting().is_none()
}

/// The static pods on `node` that are not ready.
pub(super) fn unready_statics<'c>(cluster: &'c Cluster, node: &Node) -> impl Iterator<Item = &'c Pod> {
    cluster.pods_on(&node.name).filter(|pod| is_static(pod) && !pod.ready)
}

/// The static pods on `node`, as `namespace/name`, in order.
pub(super) fn static_pods(cluster: &Cluster, node: &str) -> Vec<Arc<str>> {
    let pods = cluster.pods_on(node).filter(|pod| is_static(pod));
    let mut names: Vec<Arc<str>> = pods.map(|pod| pod.full_name().into()).collect();
    names.sort();
    names.truncate(MAX_STATIC_PODS);
    names
}

/// What `node` lacks of the static pods that were on it `before`, in words that follow "but". While a static pod is
/// replaced its copy in the API is gone, and so it is not among the pods that are not ready.
pub(super) fn statics_lack(cluster: &Cluster, node: &str, before: &Before) -> Option<String> {
    let is_back = |name: &&Arc<str>| {
        let mut pods = cluster.pods_on(node).filter(|pod| pod.mirror && pod.full_name() == ***name);
        pods.any(|pod| pod.deleting().is_none() && (pod.ready || pod.phase == Phase::Finished))
    };
    let away = before.static_pods.iter().find(|name| !is_back(name))?;
    Some(format!("static pod {away} is not back"))
}
