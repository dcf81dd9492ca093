//! When a kubelet that was replaced counts as observed.
//!
//! Here belongs only what the Node itself tells. The invariant: a kubelet that was not seen to restart is never observed.

use std::sync::Arc;

use super::claim::{Before, Claim};
use super::leftovers::at_target;
use crate::cluster::Node;

/// What the kubelet of `node` lacks, in words that follow its name; `None` where it is observed as `claim` wants it, in
/// another process than `before`.
pub(super) fn kubelet_lacks(node: &Node, claim: &Claim, before: &Before) -> Option<String> {
    if !node.ready {
        Some("is not Ready".to_owned())
    } else if !at_target(node, claim) {
        let still = if node.kubelet.to_string() == claim.subject.from { " still" } else { "" };
        Some(format!("is at {}{still}", node.kubelet))
    } else if heartbeat(node) == before.incarnation {
        Some("was not seen to restart".to_owned())
    } else {
        None
    }
}

/// What changes when the kubelet of `node` reports again.
pub(super) fn heartbeat(node: &Node) -> Arc<str> {
    node.heartbeat.map_or_else(|| "".into(), |at| at.to_string().into())
}
