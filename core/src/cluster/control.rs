//! What is seen of a control plane besides the versions that it runs: etcd's members, and who leads.
//!
//! Plain values; nothing here judges them. An upgrade reads from them whether it may take one more control-plane node
//! away, and whether the controllers still work afterwards.

use std::sync::Arc;

use jiff::Timestamp;

use super::Component;

/// A member of the cluster's etcd, as far as it is seen: where it is a static pod, by the pod's copy in the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EtcdMember {
    /// The Node it runs on.
    pub node: Arc<str>,
    /// Its pod's name.
    pub name: Arc<str>,
    /// Its pod is Ready and not on its way out. The kubelet asks etcd itself for that, every few seconds.
    pub ready: bool,
}

/// Who leads one of the controllers, by its lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leader {
    /// Which controller.
    pub component: Component,
    /// Who holds the lease, in its own words: `<host name>_<random>`, another one for each run.
    pub holder: Arc<str>,
    /// The Node of that host name, if there is one.
    pub node: Option<Arc<str>>,
    /// When its present holder acquired the lease.
    pub acquired: Option<Timestamp>,
    /// When its holder last renewed it, by the holder's clock: the process worked at that time. A process that has
    /// ended renews nothing, so its last renewal stays here.
    pub renewed: Timestamp,
}

/// Etcd's members and the controllers' leaders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlPlane {
    /// Etcd's members; empty where they cannot be seen: processes of the host, a managed control plane, k3s.
    pub etcd: Vec<EtcdMember>,
    /// One for each controller whose lease somebody holds.
    pub leaders: Vec<Leader>,
}

impl ControlPlane {
    /// The same, each list in a fixed order.
    #[must_use]
    pub(super) fn sorted(mut self) -> Self {
        self.etcd.sort();
        self.leaders.sort();
        self
    }
}
