//! The stages of an upgrade, and how far each is.
//!
//! The invariant: [`Stage`] is ordered, so a kubelet step before a kube-apiserver step cannot be written down.

use crate::cluster::{Cluster, Component, Instance, Node, Reach};
use crate::disruption::CordonMark;
use crate::upgrade::{Member, Unit};
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

/// Whether an upgrade of `unit` moves `instance`, if its version is known. What moves a node as a whole (kubeadm, Talos)
/// moves no cloud-controller-manager: whoever deploys that one does. It is another matter where it is part of the node's
/// service, which points it at the kube-apiserver of its own node.
pub(super) fn is_moved(instance: &Instance, unit: Unit) -> bool {
    let deployed = instance.component == Component::CloudControllerManager && instance.reach == Reach::Any;
    Stage::of(instance.component).is_some_and(|stage| stage < Stage::Kubelets)
        && !(deployed && unit == Unit::Node)
}

/// Whether `component`, which runs `version`, has nothing to do to reach `target`. Those who make
/// cloud-controller-managers publish patches of their own, so that the minor says all there.
pub(crate) fn is_there(component: Component, version: &KubeVersion, target: &KubeVersion) -> bool {
    match component {
        Component::CloudControllerManager => version.minor() >= target.minor(),
        _ => version.satisfies(target),
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

/// How far each stage is, in order. `members` are those that take part, `unit` is what moves together, and `reached` says
/// whether a control-plane component that runs a version has nothing to do.
pub fn progress(
    cluster: &Cluster,
    members: &[Member<'_>],
    unit: Unit,
    reached: impl Fn(Component, &KubeVersion) -> bool,
) -> [StageProgress; 3] {
    // A node that an upgrade holds is not done: it is given back only when it was observed Ready at the target. A
    // person's drain is theirs to end, and changes nothing about the version.
    let held = |node: &Node| node.cordoned_by.as_deref().is_some_and(CordonMark::is_upgrade);
    let node = |member: &Member<'_>| member.at_target == Some(true) && !held(member.node);
    let is_at = |instance: &Instance, is: &dyn Fn(bool) -> bool| {
        instance.version.known().is_some_and(|version| is(reached(instance.component, version)))
    };
    let component = |instance: &Instance| is_at(instance, &|reached| reached) && instance.ready;
    Stage::ALL.map(|stage| {
        let of_stage = cluster.instances().iter().filter(|i| Stage::of(i.component) == Some(stage));
        // What has numbers of its own is nobody's to compare, and is left alone, as what others move is.
        let of_stage = of_stage.filter(|i| !matches!(i.version, Observed::Unknown(Unknown::OwnNumber(_))));
        let of_stage = of_stage.filter(|i| is_moved(i, unit));
        if stage == Stage::Kubelets {
            let count = |is: &dyn Fn(&Member<'_>) -> bool| members.iter().filter(|member| is(member)).count();
            let behind = count(&|member| member.at_target == Some(false));
            return StageProgress { stage, total: members.len(), upgraded: count(&node), behind };
        }
        let count = |is: &dyn Fn(&Instance) -> bool| of_stage.clone().filter(|instance| is(instance)).count();
        let behind = count(&|instance| is_at(instance, &|reached| !reached));
        StageProgress { stage, total: of_stage.clone().count(), upgraded: count(&component), behind }
    })
}
