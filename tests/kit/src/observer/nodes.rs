//! What the observer reads of a Node.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

pub(super) const MARK: &str = "evenkeel.dev/cordoned-by";

pub(super) fn is_control_plane(node: &Node) -> bool {
    node.labels().contains_key("node-role.kubernetes.io/control-plane")
}

pub(super) fn unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

pub(super) fn node_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

pub(super) fn kubelet(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.kubelet_version.clone()).unwrap_or_default()
}
