//! The nodes whose kubelet and kube-apiserver are one service of the host, as on the servers of k3s and RKE2.
//!
//! Here belongs how such a node is told by what runs on it, and what of it goes along with its kubelet. All of it talks to
//! the kube-apiserver of its own node and to no other: `pkg/cli/server/server.go` of k3s, which RKE2 runs too, gives a
//! server's kubelet and kube-proxy the loopback address, and no load balancer unless the server is without a
//! kube-apiserver. The load balancer of an agent knows every server. The invariant: a node on which no kube-apiserver is
//! seen is none of these.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::{Cluster, Component, Evidence, Instance};
use crate::version::KubeVersion;

/// The nodes whose kubelet and kube-apiserver are one service.
#[derive(Debug, Default)]
pub(crate) struct OneService<'a>(BTreeSet<&'a Arc<str>>);

impl<'a> OneService<'a> {
    /// Those of `cluster`. Any part of a node's control plane tells it, because the kube-apiserver tells no version while it is
    /// replaced.
    pub(crate) fn of(cluster: &'a Cluster) -> Self {
        let serving: BTreeSet<&Arc<str>> =
            cluster.of(Component::KubeApiserver).filter_map(|server| server.node.as_ref()).collect();
        let tells = |part: &&Instance| {
            let plane = part.component == Component::KubeApiserver || part.component.is_controller();
            plane && (part.evidence == Evidence::SameProcess || is_built_as(part, &["k3s", "rke2"]))
        };
        let told = cluster.instances().iter().filter(tells).filter_map(|part| part.node.as_ref());
        Self(told.filter(|node| serving.contains(node)).collect())
    }

    /// Whether `node` is one of them.
    pub(crate) fn has(&self, node: &Arc<str>) -> bool {
        self.0.contains(node)
    }
}

/// Whether `instance` is a kube-proxy that goes along with the kubelet of its node: it is part of the same process, or
/// RKE2 runs it as a static pod of the service that is the kubelet.
pub(crate) fn comes_with_kubelet(instance: &Instance) -> bool {
    instance.component == Component::KubeProxy
        && (instance.evidence == Evidence::SameProcess || is_built_as(instance, &["rke2"]))
}

fn is_built_as(instance: &Instance, builds: &[&str]) -> bool {
    let distribution = instance.version.known().and_then(KubeVersion::distribution);
    distribution.is_some_and(|(name, _)| builds.contains(&name))
}
