//! Components of one kind, pool and version, and how they stand.
//!
//! Here belongs the judgement of one group, from its census and the kube-apiservers that it meets; what a person is
//! told of it is in `findings.rs`. The invariant: a row without a known version is judged by no rule.

use std::cmp::Reverse;
use std::sync::Arc;

use super::census::GroupCount;
use super::policy::{Judgement, Policy, Rule, RuleSubject, Running, Servers};
use super::verdict::Standing;
use crate::cluster::{Component, Evidence};
use crate::version::{Minor, Observed, Unknown};

/// Components of one kind, pool and version, which was read in the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The component that all of them are.
    pub component: Component,
    /// The node pool; `control-plane` for control-plane components.
    pub pool: Arc<str>,
    /// The version they run.
    pub version: Observed,
    /// Where the version was read: the same for the whole row.
    pub evidence: Evidence,
    /// How many instances or nodes the row stands for.
    pub count: usize,
    /// Minors behind what the newest kube-apiserver behaves as (negative: ahead), where both are known.
    pub behind: Option<i32>,
    /// How many more minors the kube-apiservers may go before these must move, where that is known and there is a rule.
    pub headroom: Option<i32>,
    /// What the policy says of them.
    pub standing: Standing,
    /// The first few names, sorted.
    pub samples: Vec<Arc<str>>,
    pub(super) judged: Option<Judged>,
}

impl Row {
    /// The rule it was judged by, where there is one for it and its version is known.
    pub fn rule(&self) -> Option<&'static Rule> {
        self.judged.and_then(|judged| judged.rule)
    }

    /// Whether its version is numbered by its makers and says nothing of Kubernetes: no rule can be applied to it.
    pub fn has_own_numbers(&self) -> bool {
        matches!(self.version, Observed::Unknown(Unknown::OwnNumber(_)))
    }

    /// How much the kube-apiservers that it meets ask of it: the less, the more they ask.
    pub(super) fn leeway(&self) -> Option<(Option<Minor>, Option<Reverse<Minor>>)> {
        let Judged { servers, judgement, .. } = self.judged?;
        Some(match judgement {
            Judgement::TooNew { ceiling } | Judgement::Undecided { ceiling } => (Some(ceiling), None),
            Judgement::TooOld { floor } => (None, Some(Reverse(floor))),
            Judgement::Within { .. } => (None, Some(Reverse(servers.newest_emulated))),
        })
    }

    /// Minors ahead of the oldest kube-apiserver that it meets, where that is too far; 0 where the row is not too new, and
    /// `None` where that is not known or not decided.
    pub fn ahead(&self) -> Option<i32> {
        let Judged { running, servers, judgement, .. } = self.judged?;
        match judgement {
            Judgement::TooNew { .. } => {
                // The binary is compared with the binary, and what is emulated with what is emulated; either may be too new.
                let binary = servers.oldest.behind(running.binary);
                let emulated = servers.emulated.behind(running.emulation.unwrap_or(running.binary));
                Some(binary.max(emulated))
            }
            Judgement::Within { .. } | Judgement::TooOld { .. } => Some(0),
            Judgement::Undecided { .. } => None,
        }
    }
}

/// What a row was judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) running: Running,
    pub(super) servers: Servers,
    pub(super) rule: Option<&'static Rule>,
    pub(super) judgement: Judgement,
}

/// The row of `seen`, which meets `servers`, some of `all`.
pub(super) fn row(
    seen: &GroupCount<'_>,
    servers: Option<Servers>,
    all: Option<Servers>,
    policy: &Policy,
) -> Row {
    let component = seen.key.component;
    // kubeadm moves the controllers of a node with its kube-apiserver, while those of other nodes are behind; k3s and
    // RKE2 move its kubelet and kube-proxy, too.
    let ahead = all.zip(seen.version.minor()).is_some_and(|(all, minor)| minor > all.oldest);
    let judged = seen.version.minor().zip(servers).map(|(binary, servers)| {
        let running = Running { binary, emulation: seen.key.emulation };
        let (rule, judgement) = policy.judge(RuleSubject::Component(component), running, servers);
        Judged { running, servers, rule, judgement }
    });
    let standing = match judged.map(|judged| judged.judgement) {
        None | Some(Judgement::Undecided { .. }) => Standing::Unknown,
        Some(Judgement::TooOld { .. } | Judgement::TooNew { .. }) => Standing::Unsupported,
        Some(Judgement::Within { .. }) if component == Component::KubeApiserver => Standing::Supported,
        // Nobody's kubectl keeps a control plane from moving on.
        Some(Judgement::Within { .. }) if component == Component::Kubectl => Standing::Supported,
        Some(Judgement::Within { behind, .. }) if ahead || component.is_controller() && behind > 0 => {
            Standing::Transitional
        }
        Some(Judgement::Within { headroom: 0, .. }) if !component.is_controller() => Standing::AtLimit,
        Some(Judgement::Within { .. }) => Standing::Supported,
    };
    let headroom = match judged.map(|judged| judged.judgement) {
        Some(Judgement::Within { headroom, .. }) if component != Component::KubeApiserver => Some(headroom),
        _ => None,
    };
    Row {
        component,
        pool: Arc::clone(&seen.key.pool),
        version: seen.version.clone(),
        evidence: seen.key.evidence,
        count: seen.count,
        behind: judged.map(|judged| judged.running.binary.behind(judged.servers.newest_emulated)),
        headroom,
        standing,
        samples: seen.samples(),
        judged,
    }
}
