//! The components that the skew policy speaks of.
//!
//! Here belong their names and their order; what runs where is said by an `Instance` or a `Node`. The invariant: the
//! order is that in which an upgrade moves them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The components the skew policy speaks of, in the order in which an upgrade moves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// kube-apiserver: always first.
    KubeApiserver,
    /// kube-controller-manager: after every kube-apiserver it can reach.
    KubeControllerManager,
    /// kube-scheduler: after every kube-apiserver it can reach.
    KubeScheduler,
    /// cloud-controller-manager: after every kube-apiserver it can reach.
    CloudControllerManager,
    /// kubelet: after the whole control plane.
    Kubelet,
    /// kube-proxy: judged, and moved by whatever manages its `DaemonSet`.
    KubeProxy,
    /// kubectl: judged where a person says its version, never observed, and never in the way of an upgrade.
    Kubectl,
}

impl Component {
    /// Every component, in upgrade order.
    pub const ALL: [Self; 7] = [
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::CloudControllerManager,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Kubectl,
    ];

    /// The component's own name: `kube-apiserver`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::CloudControllerManager => "cloud-controller-manager",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Kubectl => "kubectl",
        }
    }

    /// The component of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|component| component.name() == name)
    }

    /// Whether it is one of the controllers, which move after every kube-apiserver and before any kubelet.
    pub const fn is_controller(self) -> bool {
        matches!(self, Self::KubeControllerManager | Self::KubeScheduler | Self::CloudControllerManager)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
