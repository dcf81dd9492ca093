//! A pod that is asked to leave its node, as it is remembered.
//!
//! Here belongs who it is and who is beside it; what was asked and answered is in `memory`. The invariant: it names its
//! pod by its UID, which no later pod has.

use std::sync::Arc;

use crate::cluster::Pod;

/// A pod that was asked to leave, and which pods were beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedPod {
    /// UID of the pod.
    pub uid: Arc<str>,
    /// The node that it is to leave.
    pub node: Arc<str>,
    /// UID of its controller, if it has one.
    pub owner: Option<Arc<str>>,
    /// UIDs of the controller's pods on that node, itself included.
    pub siblings: Vec<Arc<str>>,
}

impl AskedPod {
    /// `pod`, where `beside` are the pods of its node.
    pub fn of<'p>(pod: &Pod, beside: impl Iterator<Item = &'p Pod>) -> Self {
        let owner = pod.owner.as_ref().map(|owner| Arc::clone(&owner.uid));
        let of_owner =
            |other: &&Pod| owner.is_some() && other.owner.as_ref().map(|of| &of.uid) == owner.as_ref();
        let siblings = beside.filter(of_owner).map(|other| Arc::clone(&other.uid)).collect();
        Self { uid: Arc::clone(&pod.uid), node: Arc::clone(&pod.node), owner, siblings }
    }
}
