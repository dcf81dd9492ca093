//! Which distribution a cluster is, by its nodes and static pods.
//!
//! This module does no I/O and reads no clock. Here belongs how many of them have to agree; what one Node tells is the
//! platform's own knowledge. The invariant: a few foreign nodes do not change the answer.

use std::collections::BTreeMap;

use super::lean::{NodeSeen, PodSeen};
use super::platform::Platform;

/// The platform of a cluster: what most of its control-plane nodes tell; else kubeadm, if a static pod has kubeadm's
/// annotation; else what more than half of all nodes tell. So a few foreign nodes do not change the answer.
pub(super) fn platform(nodes: &[&NodeSeen], pods: &[&PodSeen]) -> Option<Platform> {
    let most = |nodes: &mut dyn Iterator<Item = &&NodeSeen>| {
        let mut told: BTreeMap<Platform, usize> = BTreeMap::new();
        for platform in nodes.filter_map(|node| node.platform) {
            *told.entry(platform).or_default() += 1;
        }
        told.into_iter().rev().max_by_key(|(_, count)| *count)
    };
    let servers = most(&mut nodes.iter().filter(|node| node.node.control_plane));
    let marked = || pods.iter().filter_map(|pod| pod.runs.as_deref()).any(|runs| runs.kubeadm);
    let all = || most(&mut nodes.iter()).filter(|(_, count)| count * 2 > nodes.len());
    servers
        .map(|(platform, _)| platform)
        .or_else(|| marked().then_some(Platform::Kubeadm))
        .or_else(|| all().map(|(platform, _)| platform))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::fold::Watched as _;
    use super::super::interner::Interner;
    use super::super::lean;
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "so that tables read well")]
    fn node(name: &str, metadata: Value, info: Value) -> Arc<NodeSeen> {
        let mut object = json!({"metadata": metadata, "status": {"nodeInfo": info}});
        object["metadata"]["name"] = name.into();
        serde_json::from_value::<lean::Node>(object).unwrap().keep(&mut Interner::default())
    }

    fn of(metadata: Value, info: Value) -> Option<&'static str> {
        platform(&[&node("n", metadata, info)], &[]).map(Platform::name)
    }

    #[test]
    fn each_platform_is_known_by_what_only_it_has() {
        let version = |version: &str| json!({"kubeletVersion": version});
        let label = |label: &str| json!({"labels": {label: "x"}});
        let none = || json!({});
        for (metadata, info, expected) in [
            (none(), version("v1.36.4+k3s1"), Some("k3s")),
            (none(), version("v1.33.8+rke2r1"), Some("RKE2")),
            (none(), version("v1.31.2+k0s"), Some("k0s")),
            (none(), version("v1.32.8-eks-99d6cc0"), Some("EKS")),
            (none(), version("v1.33.2-gke.1240000"), Some("GKE")),
            (label("kubernetes.azure.com/agentpool"), version("v1.35.0"), Some("AKS")),
            (label("node.openshift.io/os_id"), version("v1.29.5+29c95f3"), Some("OpenShift")),
            (none(), json!({"kubeletVersion": "v1.36.1", "osImage": "Talos (v1.12.0)"}), Some("Talos")),
            (
                json!({"annotations": {"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/x"}}),
                version("v1.36.4"),
                Some("kubeadm"),
            ),
            // Karpenter's nodes on EKS carry no nodegroup, but their kubelet tells.
            (label("karpenter.sh/nodepool"), version("v1.33.5-eks-113cf36"), Some("EKS")),
            // What every cluster has tells nothing.
            (label("node-role.kubernetes.io/control-plane"), version("v1.36.4"), None),
            (none(), version("kwok-v0.8.0"), None),
            (none(), version("v0.0.0-master+$Format:%H$"), None),
        ] {
            let told = format!("{metadata} {info}");
            assert_eq!(of(metadata, info), expected, "{told}");
        }
    }

    #[test]
    fn control_plane_nodes_decide_and_then_the_most() {
        let info = |version: &str| json!({"kubeletVersion": version});
        let nodes = [
            node("a", json!({}), info("v1.33.5+k3s1")),
            node("b", json!({}), info("v1.33.5-eks-1")),
            node("c", json!({}), info("v1.33.5-eks-1")),
        ];
        let nodes: Vec<_> = nodes.iter().map(AsRef::as_ref).collect();
        assert_eq!(platform(&nodes, &[]), Some(Platform::Eks));
        assert_eq!(platform(&nodes[..2], &[]), None, "as many of the one as of the other");
        let labels = json!({"labels": {"node-role.kubernetes.io/control-plane": ""}});
        let server = node("s", labels, info("v1.33.5+rke2r1"));
        let nodes: Vec<_> = nodes.into_iter().chain([server.as_ref()]).collect();
        assert_eq!(platform(&nodes, &[]), Some(Platform::Rke2));
        assert_eq!(platform(&[], &[]), None);
    }
}
