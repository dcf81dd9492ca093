//! The stages of an upgrade, and how far each is.
//!
//! The invariant: [`Stage`] is ordered, so a kubelet step before a kube-apiserver step cannot be written down.

use crate::cluster::{Cluster, Component, Instance};
use crate::disruption::CordonMark;
use crate::upgrade::Member;
use crate::version::{KubeVersion, Observed, Unknown};

/// The steps of an upgrade, in the only order there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Every kube-apiserver, one at a time.
    Apiservers,
    /// kube-controller-manager, kube-scheduler and cloud-controller-manager, one at a time.
    Controllers,
    /// Kubelets, each node drained first.
    Kubelets,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 3] = [Self::Apiservers, Self::Controllers, Self::Kubelets];

    /// The stage that moves `component`; `None` for kube-proxy, which its `DaemonSet` moves, and for kubectl.
    pub const fn of(component: Component) -> Option<Self> {
        match component {
            Component::KubeApiserver => Some(Self::Apiservers),
            Component::Kubelet => Some(Self::Kubelets),
            Component::KubeProxy | Component::Kubectl => None,
            _ => Some(Self::Controllers),
        }
    }

    /// The word for it in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apiservers => "UpgradingApiservers",
            Self::Controllers => "UpgradingControllers",
            Self::Kubelets => "UpgradingNodes",
        }
    }
}

/// How much of a stage is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageProgress {
    /// What the numbers count: components, or in the last stage nodes.
    pub stage: Stage,
    /// How many components or nodes the stage moves in all.
    pub total: usize,
    /// How many of them are done: a component is ready and runs the target; a node runs the target and no upgrade holds
    /// its cordon.
    pub upgraded: usize,
    /// How many of them are seen at another version.
    pub behind: usize,
}

impl StageProgress {
    /// Whether nothing is left to move.
    pub fn done(&self) -> bool {
        self.upgraded == self.total
    }
}

/// How far each stage is, in order. `members` are those that take part, and `reached` says whether a control-plane
/// component that runs a version has nothing to do.
pub fn progress(
    cluster: &Cluster,
    members: &[Member<'_>],
    reached: impl Fn(&KubeVersion) -> bool,
) -> [StageProgress; 3] {
    // A node that an upgrade holds is not done: it is given back only when it was observed Ready at the target. A
    // person's drain is theirs to end, and changes nothing about the version.
    let held =
        |mark: Option<&str>| matches!(mark.and_then(CordonMark::read), Some(CordonMark::Upgrade { .. }));
    let node =
        |member: &Member<'_>| member.at_target == Some(true) && !held(member.node.cordoned_by.as_deref());
    let component = |instance: &Instance| instance.version.known().is_some_and(&reached) && instance.ready;
    Stage::ALL.map(|stage| {
        let of_stage = cluster.instances().iter().filter(|i| Stage::of(i.component) == Some(stage));
        // What has numbers of its own is nobody's to compare, and is left alone.
        let of_stage = of_stage.filter(|i| !matches!(i.version, Observed::Unknown(Unknown::OwnNumber(_))));
        if stage == Stage::Kubelets {
            let count = |is: &dyn Fn(&Member<'_>) -> bool| members.iter().filter(|member| is(member)).count();
            let behind = count(&|member| member.at_target == Some(false));
            return StageProgress { stage, total: members.len(), upgraded: count(&node), behind };
        }
        let count = |is: &dyn Fn(&Instance) -> bool| of_stage.clone().filter(|instance| is(instance)).count();
        let behind = count(&|instance| instance.version.known().is_some_and(|version| !reached(version)));
        StageProgress { stage, total: of_stage.clone().count(), upgraded: count(&component), behind }
    })
}
