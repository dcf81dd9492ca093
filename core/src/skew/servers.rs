//! The kube-apiservers that a component meets.
//!
//! Here belongs what is read off a cluster about its kube-apiservers: which versions they are and behave as, and
//! which of them a component talks to. What they allow it is decided by [`super::policy`]. The invariant: where a
//! component's own kube-apiservers cannot be told, it meets all of them, which allows least.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::one_service::{OneService, comes_with_kubelet};
use super::policy::Servers;
use crate::cluster::{Cluster, Component, Instance, Node, Reach};
use crate::version::{Effective, Minor};

/// Which kube-apiservers the members talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Met {
    /// Any kube-apiserver of the cluster.
    All,
    /// Those on their own node, as far as their versions are known.
    Own(Option<Servers>),
}

/// The newest minor that a kubelet may run, whichever kube-apiserver it meets: the oldest minor that one of them
/// behaves as, which is what it emulates, where it emulates (KEP-4330, "Skew"). `None` while some kube-apiserver's
/// version is not known, because that one may be older, and where there is no kube-apiserver.
pub fn kubelets_ceiling(cluster: &Cluster) -> Option<Minor> {
    let known = |server: &Instance| effective(server).map(Effective::emulation);
    let all: Option<Vec<Minor>> = cluster.of(Component::KubeApiserver).map(known).collect();
    all?.into_iter().min()
}

/// The kube-apiservers whose version is known.
pub(super) fn servers_of(cluster: &Cluster) -> Option<Servers> {
    Servers::of(cluster.of(Component::KubeApiserver).filter_map(effective))
}

/// What a kube-apiserver is and behaves as; what it says of a binary that it does not run is passed over.
pub(crate) fn effective(server: &Instance) -> Option<Effective> {
    let binary = server.version.minor()?;
    let said = server.effective.filter(|effective| effective.binary() == binary);
    Some(said.unwrap_or(Effective::plain(binary)))
}

/// The first minor of kubeadm that has every kubelet of a control plane talk to the kube-apiserver of its own node
/// (`ControlPlaneKubeletLocalMode`, locked).
const KUBEADM_LOCAL_SINCE: Minor = Minor::new(1, 35);

/// The kube-apiservers of one node.
#[derive(Clone, Copy, Debug)]
struct NodesOwn {
    /// Those whose version is known.
    known: Option<Servers>,
    /// The node's kubelet is one service with them.
    one_service: bool,
    /// kubeadm has made them: the node's controllers talk to them and to no others, and are no service with the kubelet.
    kubeadm: bool,
}

impl NodesOwn {
    /// Whether the node's kubelet talks to them and to no others.
    fn serve_kubelet(&self) -> bool {
        let is_local = |known: Servers| known.oldest >= KUBEADM_LOCAL_SINCE;
        self.one_service || self.kubeadm && self.known.is_some_and(is_local)
    }
}

/// Who meets which kube-apiservers.
#[derive(Clone, Debug)]
pub(super) struct Meetings {
    all: Option<Servers>,
    /// By the node that they are on.
    own: BTreeMap<Arc<str>, NodesOwn>,
}

impl Meetings {
    /// Those of `cluster`.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let one_service = OneService::of(cluster);
        let mut on: BTreeMap<&Arc<str>, Vec<&Instance>> = BTreeMap::new();
        for server in cluster.of(Component::KubeApiserver) {
            if let Some(node) = &server.node {
                on.entry(node).or_default().push(server);
            }
        }
        let controllers = [Component::KubeControllerManager, Component::KubeScheduler];
        let local = controllers.into_iter().flat_map(|component| cluster.of(component));
        let local = local.filter(|instance| instance.reach == Reach::Local);
        let local: BTreeSet<&Arc<str>> = local.filter_map(|instance| instance.node.as_ref()).collect();
        let own = on.into_iter().map(|(node, servers)| {
            let known = Servers::of(servers.into_iter().filter_map(effective));
            let one_service = one_service.has(node);
            let kubeadm = !one_service && local.contains(node);
            (Arc::clone(node), NodesOwn { known, one_service, kubeadm })
        });
        Self { all: servers_of(cluster), own: own.collect() }
    }

    /// The kube-apiservers that `instance` talks to. Where its own cannot be told, all of them: that allows least.
    pub(super) fn of_instance(&self, instance: &Instance) -> Met {
        // kube-apiservers are compared with one another.
        if instance.component == Component::KubeApiserver {
            return Met::All;
        }
        let along = comes_with_kubelet(instance);
        if instance.reach == Reach::Any && !along {
            return Met::All;
        }
        let own = instance.node.as_ref().and_then(|node| self.own.get(node));
        let own = own.filter(|own| instance.reach == Reach::Local || along && own.one_service);
        self.met(own, instance.version.minor())
    }

    /// The kube-apiservers that the kubelet of `node` talks to: its own where both are one service or of kubeadm, else
    /// any. That is what is so now; how far a kubelet may be upgraded is told by [`kubelets_ceiling`] alone.
    pub(super) fn of_kubelet(&self, node: &Node) -> Met {
        let own = self.own.get(&node.name).filter(|own| own.serve_kubelet());
        self.met(own, node.kubelet.minor())
    }

    fn met(&self, own: Option<&NodesOwn>, minor: Option<Minor>) -> Met {
        let Some(NodesOwn { known, .. }) = own.copied() else { return Met::All };
        // While its own does not say its version, it is judged by the others, if that finds nothing wrong: its own is not
        // known to be another than they are.
        let suits =
            |all: Servers| minor.is_some_and(|minor| minor <= all.emulated && minor.next() >= all.newest);
        if known == self.all || known.is_none() && self.all.is_some_and(suits) {
            Met::All
        } else {
            Met::Own(known)
        }
    }
}
