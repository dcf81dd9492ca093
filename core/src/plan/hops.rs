//! A plan as a value: its hops, the steps of each, and which kubelets move in it.
//!
//! Here belongs what a plan says, and nothing of how it is made, judged or carried out. The invariant: it says rules
//! for kubelets that move, not names of nodes, so that a node that joins later belongs to it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::finding::{PlanFinding, Weight};
use super::order::Stage;
use crate::cluster::Component;
use crate::upgrade::Unit;
use crate::version::{KubeVersion, Minor};

/// How many minors one upgrade may go over. It is more than anybody needs, and bounds every list with an entry for each minor.
pub const MAX_MINORS: u16 = 16;

/// What an upgrade will do from where the cluster is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The oldest kube-apiserver's version; `None` where none is known.
    pub from: Option<KubeVersion>,
    /// The target, which the last hop leads to.
    pub to: KubeVersion,
    /// What moves in one step of the control plane.
    pub unit: Unit,
    /// What is done, in order; nothing when everything is at the target, or when the plan is blocked from the start.
    pub hops: Vec<Hop>,
    /// The nodes whose machines have long been silent. Nobody can upgrade them, so that no wave has them.
    pub silent: BTreeSet<Arc<str>>,
    /// What stands in the way or should be known, the gravest first.
    pub findings: Vec<PlanFinding>,
}

impl Plan {
    /// The findings for which nothing may begin.
    pub fn blockers(&self) -> impl Iterator<Item = &PlanFinding> {
        self.findings.iter().filter(|finding| finding.weight == Weight::Blocks)
    }
}

/// The way of the whole cluster to one minor, or to another patch of its minor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// What the control plane runs when the hop is done.
    pub version: KubeVersion,
    /// Where that version comes from; a person approves it with the plan.
    pub picked: Picked,
    /// What others have to have moved before the first step.
    pub needs: Vec<Need>,
    /// The steps of the control plane, one after the other.
    pub steps: Vec<Step>,
    /// Which kubelets move after them.
    pub kubelets: Pass,
}

/// Who picked the version of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picked {
    /// Nobody had to pick: it is the upgrade's target.
    Target,
    /// A person named it for this minor, or an earlier look recorded it.
    Person,
    /// kube-apiservers run it already.
    Cluster,
    /// It is the newest release of its minor that the release data know.
    Catalogue,
    /// Whoever moves the control plane picks a release of that minor: any will do.
    Anyone,
}

/// One step of the control plane: what is moved together, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What moves together, in this order; never empty.
    pub components: Vec<Component>,
    /// Their Node, or the component's own name where no Node is visible.
    pub place: Arc<str>,
    /// What the first of them runs when the step begins.
    pub from: KubeVersion,
}

impl Step {
    /// The stage that the step belongs to: that of its first component.
    pub fn stage(&self) -> Stage {
        self.components.first().and_then(|component| Stage::of(*component)).unwrap_or(Stage::Controllers)
    }
}

/// Which of the kubelets that take part move in a hop. Nodes that join later are meant too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Those before this minor, because the next hop would leave them outside the policy.
    Before(Minor),
    /// All that are not at the version.
    All,
}

impl Pass {
    /// Whether a kubelet at `kubelet` moves, in a hop to `version`.
    pub fn moves(self, kubelet: &KubeVersion, version: &KubeVersion) -> bool {
        match self {
            Self::Before(minor) => kubelet.minor() < minor,
            Self::All => !kubelet.satisfies(version) && kubelet.minor() <= version.minor(),
        }
    }
}

/// Something that somebody else moves, which has to be at a minor before a hop begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// kube-proxy, or kubelets that take no part.
    pub component: Component,
    /// The oldest minor that it may be.
    pub least: Minor,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} or newer", self.component, self.least)
    }
}
