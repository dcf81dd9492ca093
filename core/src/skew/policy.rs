//! The version skew policy as data, and the one function that applies it to a pair.
//!
//! Source of every rule: kubernetes.io, "Version Skew Policy". Only minors count. Nothing here knows a cluster.

use crate::cluster::{Cluster, Component};
use crate::version::Minor;

/// How far a component's minor may be from the apiservers'.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Stable short name.
    pub id: &'static str,
    /// Minors it may be older than the newest apiserver.
    pub max_older: u16,
    /// Where the policy says so.
    pub source: &'static str,
}

const KUBELET: Rule =
    Rule { id: "R2", max_older: 3, source: "version skew policy, kubelet (n-3 since 1.28, KEP-3935)" };
const KUBELET_BEFORE_1_25: Rule =
    Rule { id: "R2b", max_older: 2, source: "version skew policy, kubelet older than 1.25" };
const KUBE_PROXY: Rule =
    Rule { id: "R3", max_older: 3, source: "version skew policy, kube-proxy (n-3 since 1.28, KEP-3935)" };
const KUBE_PROXY_BEFORE_1_25: Rule =
    Rule { id: "R3b", max_older: 2, source: "version skew policy, kube-proxy older than 1.25" };
const CONTROLLER_MANAGER: Rule =
    Rule { id: "R5", max_older: 1, source: "version skew policy, kube-controller-manager" };
const SCHEDULER: Rule = Rule { id: "R6", max_older: 1, source: "version skew policy, kube-scheduler" };
const CLOUD_CONTROLLER_MANAGER: Rule =
    Rule { id: "R7", max_older: 1, source: "version skew policy, cloud-controller-manager" };
const PROXY_AND_KUBELET: Rule =
    Rule { id: "R4", max_older: 3, source: "version skew policy, kube-proxy and the kubelet beside it" };
const PROXY_AND_KUBELET_BEFORE_1_25: Rule = Rule {
    id: "R4b",
    max_older: 2,
    source: "version skew policy, kube-proxy older than 1.25 and its kubelet",
};

/// The apiservers of an HA cluster among themselves.
pub static APISERVER_SPREAD: Rule =
    Rule { id: "R1", max_older: 1, source: "version skew policy, kube-apiserver in HA clusters" };

/// The node component's own version decides which limit holds for it, not the control plane's.
const N_MINUS_3_SINCE: Minor = Minor::new(1, 25);

/// The minors of the apiservers a component may meet: in an HA cluster behind one address, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The oldest: nothing that talks to it may be newer.
    pub oldest: Minor,
    /// The newest: it decides how old the others may be.
    pub newest: Minor,
}

impl Servers {
    /// Of the apiservers in `cluster` whose version is known; `None` when none is.
    ///
    /// One that is not known can only narrow what is allowed, so a violation found without it stays one.
    pub fn of(cluster: &Cluster) -> Option<Self> {
        let minors = || cluster.of(Component::KubeApiserver).filter_map(|server| server.version.minor());
        Some(Self { oldest: minors().min()?, newest: minors().max()? })
    }
}

/// Where a minor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Allowed.
    Within {
        /// Minors behind the newest apiserver.
        behind: i32,
        /// How many more minors the newest apiserver may go before this one must move.
        headroom: i32,
    },
    /// Older than this, the oldest that is allowed.
    TooOld {
        /// That minor.
        floor: Minor,
    },
    /// Newer than this, the newest that is allowed.
    TooNew {
        /// That minor.
        ceiling: Minor,
    },
}

/// The rule for `component` at `minor` against the apiservers; `None` for the apiserver itself.
pub fn rule(component: Component, minor: Minor) -> Option<&'static Rule> {
    let recent = minor >= N_MINUS_3_SINCE;
    Some(match component {
        Component::KubeApiserver => return None,
        Component::KubeControllerManager => &CONTROLLER_MANAGER,
        Component::KubeScheduler => &SCHEDULER,
        Component::CloudControllerManager => &CLOUD_CONTROLLER_MANAGER,
        Component::Kubelet if recent => &KUBELET,
        Component::Kubelet => &KUBELET_BEFORE_1_25,
        Component::KubeProxy if recent => &KUBE_PROXY,
        Component::KubeProxy => &KUBE_PROXY_BEFORE_1_25,
    })
}

/// Judges `component` at `minor` against the apiservers it may meet, and says by which rule.
///
/// The ceiling is the oldest apiserver, the floor is measured from the newest: both narrow while apiservers of two
/// minors serve. An apiserver is always within: apiservers among themselves are judged by [`APISERVER_SPREAD`].
pub fn judge(component: Component, minor: Minor, servers: Servers) -> (Option<&'static Rule>, Judgement) {
    let behind = minor.behind(servers.newest);
    let Some(rule) = rule(component, minor) else {
        return (None, Judgement::Within { behind, headroom: 0 });
    };
    let judgement = if minor > servers.oldest {
        Judgement::TooNew { ceiling: servers.oldest }
    } else if behind > i32::from(rule.max_older) {
        Judgement::TooOld { floor: servers.newest.back(rule.max_older) }
    } else {
        Judgement::Within { behind, headroom: i32::from(rule.max_older) - behind }
    };
    (Some(rule), judgement)
}

/// The rule that a kube-proxy and the kubelet on its node break together, if they do.
pub fn pair_rule(proxy: Minor, kubelet: Minor) -> Option<&'static Rule> {
    let rule = if proxy >= N_MINUS_3_SINCE { &PROXY_AND_KUBELET } else { &PROXY_AND_KUBELET_BEFORE_1_25 };
    (proxy.behind(kubelet).unsigned_abs() > u32::from(rule.max_older)).then_some(rule)
}
