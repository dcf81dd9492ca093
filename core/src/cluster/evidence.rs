//! Where a version was read.
//!
//! Here belong the places and their names; how far each is believed is not known here.

/// Where a version was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// `/version` of the kube-apiserver at its own address.
    Endpoint,
    /// `/version` of whichever kube-apiserver answered at an address that stands for all of them.
    FrontDoor,
    /// The tag of the image that the component's container runs.
    #[default]
    Image,
    /// `status.nodeInfo.kubeletVersion`: what the kubelet says of itself.
    Kubelet,
    /// The kubelet's version, on a platform where the component is part of the same process.
    SameProcess,
    /// The `LeaseCandidate` of the leader.
    Candidate,
    /// What the component's `ClusterOperator` says it rolled out.
    Operator,
    /// A person's word.
    Person,
}

impl Evidence {
    /// A few words for it, as they stand in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "/version",
            Self::FrontDoor => "/version (one for all)",
            Self::Image => "image",
            Self::Kubelet => "nodeInfo",
            Self::SameProcess => "nodeInfo (same process)",
            Self::Candidate => "LeaseCandidate",
            Self::Operator => "ClusterOperator",
            Self::Person => "given",
        }
    }
}
