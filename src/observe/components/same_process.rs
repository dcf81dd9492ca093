//! What the kubelet of a k3s server tells of the control plane that is in the same process.
//!
//! This module does no I/O and reads no clock. Here belongs the one distribution where a version may be taken from
//! another component's. The invariant: it is taken only where both are one process, and only for a component that is
//! seen nowhere in the cluster by itself.

use std::sync::Arc;

use evenkeel_core::cluster::{Component, Evidence, Instance, Node, Reach, RunMark, incarnation};

use super::super::lean::NodeSeen;

/// Whether `node` is a server of k3s: its control plane and its kubelet are one process.
pub(in super::super) fn is_server(node: &Node) -> bool {
    node.control_plane && node.kubelet.known().is_some_and(|version| version.suffix().contains("+k3s"))
}

/// An instance of each component that is not in `found`, on every server of k3s among `nodes`, with the version of the
/// server's kubelet. Its controllers talk to its own kube-apiserver.
pub(super) fn unseen(found: &[Instance], nodes: &[&NodeSeen]) -> Vec<Instance> {
    const IN_IT: [Component; 3] =
        [Component::KubeApiserver, Component::KubeControllerManager, Component::KubeScheduler];
    let is_unseen = |of: &Component| found.iter().all(|instance| instance.component != *of);
    let unseen: Vec<_> = IN_IT.into_iter().filter(is_unseen).collect();
    // Return early: the nodes may be thousands.
    if unseen.is_empty() {
        return Vec::new();
    }
    // The marks of the node's kube-apiserver are those of the process. Where none is seen, the kubelet's build
    // stands in.
    let run_of = |node: &Node| {
        let own = found.iter().find(|instance| {
            instance.component == Component::KubeApiserver && instance.node.as_ref() == Some(&node.name)
        });
        let own = own.map(|server| Arc::clone(&server.incarnation)).filter(|marks| !marks.is_empty());
        own.unwrap_or_else(|| incarnation([(RunMark::Build, node.kubelet.to_string().as_str())]))
    };
    let servers = nodes.iter().map(|seen| &*seen.node).filter(|node| is_server(node));
    let of_server = |node: &Node| {
        let instance = |component: &Component| Instance {
            component: *component,
            name: Arc::clone(&node.name),
            node: Some(Arc::clone(&node.name)),
            version: node.kubelet.clone(),
            evidence: Evidence::SameProcess,
            effective: None,
            reach: Reach::Local,
            incarnation: run_of(node),
            ready: node.ready,
            probed: None,
        };
        unseen.iter().map(instance).collect::<Vec<_>>()
    };
    servers.flat_map(of_server).collect()
}
