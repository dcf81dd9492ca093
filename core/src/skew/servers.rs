//! The kube-apiservers that a component meets.
//!
//! Here belongs what is read off a cluster about its kube-apiservers: which versions they are and behave as, and
//! which of them a component talks to. What they allow it is decided by [`super::policy`]. The invariant: where a
//! component's own kube-apiservers cannot be told, it meets all of them, which allows least.

use super::policy::Servers;
use crate::cluster::{Cluster, Component, Instance, Reach};
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

/// The kube-apiservers that `instance` talks to. Where its own cannot be told, all of them: that allows least.
pub(super) fn servers_own(cluster: &Cluster, instance: &Instance) -> Met {
    let node = match instance.reach {
        Reach::Local => instance.node.as_ref(),
        Reach::Any => None,
    };
    let Some(node) = node else { return Met::All };
    let own: Vec<&Instance> =
        cluster.of(Component::KubeApiserver).filter(|server| server.node.as_ref() == Some(node)).collect();
    if own.is_empty() {
        return Met::All;
    }
    let met = Servers::of(own.into_iter().filter_map(effective));
    let all = servers_of(cluster);
    // While its own does not say its version, it is judged by the others, if that finds nothing wrong: its own is not
    // known to be another than they are.
    let suits = |all: Servers| {
        instance.version.minor().is_some_and(|minor| minor <= all.emulated && minor.next() >= all.newest)
    };
    if met == all || met.is_none() && all.is_some_and(suits) { Met::All } else { Met::Own(met) }
}
