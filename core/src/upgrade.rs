//! What a person wants of an upgrade, and how far it is.
//!
//! [`Upgrade`] is a validated `ClusterUpgrade.spec`; nothing that was observed of the cluster is part of it but the
//! executors that it names. [`Progress`] is what its status has to remember, because the cluster does not show it any
//! more. What is done about them is [`crate::rollout`]. The invariants: the executors of an [`Upgrade`] are among those
//! that it names; those of them that are not there are an observation ([`AbsentExecutor`]), and no part of it; and
//! every group that a group depends on is one of its groups, without a circle.

pub mod calendar;
mod lasting;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use self::calendar::Calendar;
use crate::cluster::{Cluster, Component, Node, Selector};
use crate::drain::DrainOptions;
use crate::version::KubeVersion;

pub use self::lasting::Lasting;

/// When work may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Never: the plan is shown.
    PlanOnly,
    /// When `approval.planHash` is the plan's hash.
    RequireApproval,
    /// At once.
    Automatic,
}

impl ApprovalMode {
    /// The word for it in a spec.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlanOnly => "PlanOnly",
            Self::RequireApproval => "RequireApproval",
            Self::Automatic => "Automatic",
        }
    }
}

/// How many nodes of a group may be unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This number of nodes.
    Count(usize),
    /// This percentage of the group's nodes, rounded down, but at least one node.
    Percent(usize),
}

impl Amount {
    /// The number of nodes in a group of `size`.
    pub fn of(self, size: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (size * percent / 100).max(1),
        }
    }
}

/// Nodes that are upgraded alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    /// `spec.nodeGroups[].name`; no two groups have the same.
    pub name: Arc<str>,
    /// Which nodes; a node belongs to the first group that selects it.
    pub selector: Selector,
    /// How many nodes may be unavailable at once; nodes that are unhealthy for any reason count.
    pub max_unavailable: Amount,
    /// The name of the executor that changes the version.
    pub executor: Arc<str>,
    /// The groups whose nodes come first, as a person wrote them; see [`Upgrade::groups_before`].
    pub depends_on: Vec<Arc<str>>,
    /// Whether its zones go one after the other.
    pub zones: Zones,
    /// So many of its nodes go first, before the others.
    pub canary: usize,
    /// How long whoever comes after it waits: the groups that depend on it once it is done, and its other nodes once its
    /// canaries are.
    pub soak: SignedDuration,
}

/// Whether the nodes of several zones may be away at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zones {
    /// They may.
    #[default]
    Any,
    /// A zone begins when the one before it is done.
    OneAtATime,
}

/// A node that takes part in an upgrade.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// As it is seen now.
    pub node: &'a Node,
    /// The index of its group in [`Upgrade::groups`].
    pub group: usize,
    /// Whether its kubelet runs the target, as far as its version is known.
    pub at_target: Option<bool>,
}

/// Who changes a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executor {
    /// A Job on the node.
    Job {
        /// Its pod template, as canonical JSON.
        template: Arc<str>,
        /// How long it may take until the new version is observed.
        deadline: SignedDuration,
    },
    /// Somebody else: the operator starts nothing, and waits for the new version.
    External {
        /// How long it may take until the new version is observed.
        deadline: SignedDuration,
    },
}

impl Executor {
    /// How long somebody may take of whom nothing is known.
    pub const UNKNOWN_DEADLINE: SignedDuration = SignedDuration::from_hours(2);

    /// How long it may take until the new version is observed.
    pub const fn deadline(&self) -> SignedDuration {
        match self {
            Self::Job { deadline, .. } | Self::External { deadline } => *deadline,
        }
    }
}

/// An executor that an upgrade names, and that nobody can read now. Nothing begins before somebody can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentExecutor {
    /// As the upgrade names it.
    pub name: Arc<str>,
    /// What is so, in one line.
    pub what: Arc<str>,
    /// What to do, in one line.
    pub remedy: Arc<str>,
}

impl fmt::Display for AbsentExecutor {
    /// What is so, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// What is done about a controller that leads, as its lease shows, and whose version nothing can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// No kubelet moves, and no kube-apiserver moves by a second minor.
    #[default]
    Refuse,
    /// Both move: a person vouches for the version of those controllers.
    Accept,
}

/// What moves in one step of the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Each binary on its own: static pod manifests, systemd units, a person.
    #[default]
    Component,
    /// What runs on one control-plane node: kubeadm, k3s, RKE2, Talos.
    Node,
}

impl Unit {
    /// The word for it in a spec.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Component => "Component",
            Self::Node => "Node",
        }
    }
}

/// A finding that a person takes upon them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRisk {
    /// The finding's id.
    pub finding: Arc<str>,
    /// It is accepted before this time.
    pub until: Timestamp,
    /// Why, in the person's words.
    pub reason: Arc<str>,
}

/// How the control plane is upgraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// What moves in one step.
    pub unit: Unit,
    /// The name of the executor that moves its components.
    pub executor: Arc<str>,
    /// The name of the executor that moves the first node of each hop, where that is another one. Only with
    /// [`Unit::Node`].
    pub first_executor: Option<Arc<str>>,
    /// What is done about hidden controllers.
    pub hidden: Hidden,
    /// How long kubelets wait once the control plane of a hop is done.
    pub soak: SignedDuration,
}

/// How many nodes may be out of the rollout before nothing more is begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailurePolicy {
    /// Nothing is begun while so many of the selected nodes have failed.
    pub max_failed: Option<Amount>,
    /// Nothing is begun while the drains of so many of the selected nodes did not end in time.
    pub max_parked: Option<Amount>,
}

/// An object of the cluster that a gate looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GateObject {
    /// Such as `example.com/v1`.
    pub api_version: Arc<str>,
    /// Such as `ServiceLevel`.
    pub kind: Arc<str>,
    /// `metadata.namespace`; empty for an object that is in none.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// Something that has to be so before anything new is begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// `spec.gates[].name`, by which people are told of it.
    pub name: Arc<str>,
    /// The object that says so.
    pub object: GateObject,
    /// The type of the condition.
    pub condition: Arc<str>,
    /// The status that the condition must have.
    pub status: Arc<str>,
}

/// What a person wants: a validated `ClusterUpgrade.spec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Its UID: another object of the same name is another upgrade.
    pub uid: Arc<str>,
    /// The version to reach.
    pub version: KubeVersion,
    /// The versions of minors on the way, where the target is more than one minor away; at most one of each minor.
    pub via: Vec<KubeVersion>,
    /// When work may be started.
    pub mode: ApprovalMode,
    /// The hash of the plan that a person approved: `approval.planHash`.
    pub approved_hash: Option<Arc<str>>,
    /// `spec.suspend`: no new disruption begins.
    pub suspended: bool,
    /// How the control plane is upgraded.
    pub control_plane: ControlPlane,
    /// The groups of nodes, in order of precedence.
    pub groups: Vec<NodeGroup>,
    /// How nodes are drained.
    pub drain: DrainOptions,
    /// When something may begin.
    pub calendar: Calendar,
    /// What has to be so before anything new is begun.
    pub gates: Vec<Gate>,
    /// How many nodes may be out of the rollout.
    pub failures: FailurePolicy,
    /// The findings that a person takes upon them.
    pub accepted: Vec<AcceptedRisk>,
    /// What the executors named above are, by name. One that nobody can read is left out, and nothing else is added.
    pub executors: BTreeMap<Arc<str>, Executor>,
}

impl NodeGroup {
    /// The nodes that `selector` selects, one at a time, changed by `executor`.
    pub fn new(name: &str, selector: Selector, executor: &str) -> Self {
        Self {
            name: name.into(),
            selector,
            max_unavailable: Amount::Count(1),
            executor: executor.into(),
            depends_on: Vec::new(),
            zones: Zones::Any,
            canary: 0,
            soak: SignedDuration::ZERO,
        }
    }
}

impl Upgrade {
    /// What a person means who says no more than a version: the whole cluster, one node at a time, and somebody else
    /// changes the versions.
    pub fn to(version: KubeVersion) -> Self {
        let executor: Arc<str> = "external".into();
        let external = Executor::External { deadline: SignedDuration::from_hours(2) };
        Self {
            name: "upgrade".into(),
            uid: "".into(),
            version,
            via: Vec::new(),
            mode: ApprovalMode::PlanOnly,
            approved_hash: None,
            suspended: false,
            control_plane: ControlPlane {
                unit: Unit::Component,
                executor: executor.clone(),
                first_executor: None,
                hidden: Hidden::Refuse,
                soak: SignedDuration::ZERO,
            },
            groups: vec![NodeGroup::new("all", Selector::default(), &executor)],
            drain: DrainOptions::new(SignedDuration::from_mins(30)),
            calendar: Calendar::default(),
            gates: Vec::new(),
            failures: FailurePolicy::default(),
            accepted: Vec::new(),
            executors: [(executor, external)].into(),
        }
    }

    /// The names of the executors that it uses, whether they are there or not, as often as it uses them.
    pub fn executor_names(&self) -> impl Iterator<Item = &Arc<str>> {
        let plane = &self.control_plane;
        let of_plane = std::iter::once(&plane.executor).chain(&plane.first_executor);
        of_plane.chain(self.groups.iter().map(|group| &group.executor))
    }

    /// The groups that come before `group`: those that it depends on, and what these depend on in turn, whatever is left to do
    /// in them. The nearest are first.
    pub fn groups_before<'a>(&'a self, group: &'a NodeGroup) -> Vec<&'a NodeGroup> {
        let direct = |group: &'a NodeGroup| {
            group.depends_on.iter().filter_map(|name| self.groups.iter().find(|other| other.name == *name))
        };
        let mut before: Vec<&NodeGroup> = Vec::new();
        let mut next: Vec<&NodeGroup> = direct(group).collect();
        while !next.is_empty() {
            next.retain(|group| !before.contains(group));
            before.extend(&next);
            next = next.into_iter().flat_map(direct).collect();
        }
        before
    }

    /// The nodes that take part, by name. A node belongs to the first group that selects it.
    pub fn members<'a>(&self, cluster: &'a Cluster) -> Vec<Member<'a>> {
        let member = |node: &'a Arc<Node>| {
            let group = self.groups.iter().position(|group| group.selector.matches(&node.labels))?;
            let at_target = node.kubelet.known().map(|version| version.satisfies(&self.version));
            Some(Member { node, group, at_target })
        };
        cluster.nodes().iter().filter_map(member).collect()
    }
}

/// The first version of `via` that is not on the way to `target`: it is of its minor, or of a later one. What the cluster has
/// passed already was on the way.
pub fn not_on_the_way<'v>(via: &'v [KubeVersion], target: &KubeVersion) -> Option<&'v KubeVersion> {
    via.iter().find(|version| version.minor() >= target.minor())
}

/// A control-plane component that was seen: what it is, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComponentPlace {
    /// Which component.
    pub component: Component,
    /// Its Node, or its own name where no Node is visible.
    pub name: Arc<str>,
    /// UID of that Node; empty where there is none.
    pub node_uid: Arc<str>,
}

/// What others wait for after it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Soaked {
    /// The control plane of a hop, for which kubelets wait.
    ControlPlane,
    /// A group, for which the groups wait that depend on it.
    Group(Arc<str>),
    /// The canaries of a group, for which its other nodes wait.
    Canaries(Arc<str>),
    /// The controllers, where a claim is missing that says since when one of them runs: another program moved it, or somebody
    /// deleted the claim. Kubelets wait until the controllers have taken up their work.
    Controllers,
}

/// Since when something is done that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Soak {
    /// What was done.
    pub what: Soaked,
    /// The version that it reached.
    pub version: KubeVersion,
    /// Since when.
    pub done: Timestamp,
}

/// How far an upgrade is, as far as the cluster does not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The version that the upgrade comes from, once it is recorded: later the apiservers report another one.
    pub from: Option<KubeVersion>,
    /// The versions of the minors on the way, once they are recorded: they were part of what a person approved.
    pub via: Vec<KubeVersion>,
    /// The version of the hop that was carried out last.
    pub hop: Option<KubeVersion>,
    /// When the first work was started.
    pub started: Option<Timestamp>,
    /// When it was complete. It is then history, and is not taken up again until its plan changes.
    pub completed: Option<Timestamp>,
    /// What soaks or has soaked.
    pub soaks: Vec<Soak>,
    /// The control-plane components that were seen, in order. One that is gone for a moment is missing, not done.
    pub seen: Vec<ComponentPlace>,
    /// The controllers that led out of sight and were not seen since: when one falls silent nothing shows its version still.
    pub hidden: Vec<Component>,
    /// The upgrade that is under way and has to be complete first.
    pub queued_behind: Option<Arc<str>>,
    /// Our finalizer is on the object: it cannot vanish while something of it is in flight.
    pub protected: bool,
    /// Somebody deleted the object. What is in flight settles, then it goes.
    pub ending: bool,
    /// The finalizers of others on the object, with which it stays after we have let it go.
    pub finalizers: Vec<Arc<str>>,
    /// What had lasted so long at the last look that a person was called.
    pub lasting: Vec<Lasting>,
}
