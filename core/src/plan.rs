//! What an upgrade will do and what stands in its way before it starts.
//!
//! Here belong what a person wants ([`Upgrade`]), the order of an upgrade, the check of its target and the hash by which a person approves it. Carrying
//! it out is [`crate::rollout`]. The invariant: [`Stage`] is ordered, and work of a stage exists only when every
//! earlier stage is done, so a kubelet step before an apiserver step cannot be written down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use crate::cluster::{Cluster, Component, Node, Selector};
use crate::skew::{blockers_of_minor, policy::Policy};
use crate::version::KubeVersion;

/// When work may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Never: the plan is shown.
    PlanOnly,
    /// When `approval.planHash` is the plan's hash.
    RequireApproval,
    /// At once.
    Automatic,
}

/// How many nodes of a group may be unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Count(usize),
    /// So many percent of the group, rounded down, at least one.
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
pub struct Group {
    /// Its name.
    pub name: Arc<str>,
    /// Which nodes; a node belongs to the first group that selects it.
    pub selector: Selector,
    /// How many at once, nodes that are unhealthy for any reason counted.
    pub max_unavailable: Amount,
    /// Who changes the version.
    pub executor: Arc<str>,
}

/// Who changes a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executor {
    /// A Job on the node, from the upgrade's pod template.
    Job,
    /// Somebody else; waited for until `deadline` has passed.
    External {
        /// How long it may take.
        deadline: SignedDuration,
    },
}

/// What a person wants: a validated `ClusterUpgrade`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Its name.
    pub name: Arc<str>,
    /// Where to.
    pub version: KubeVersion,
    /// When.
    pub mode: Mode,
    /// The plan a person approved.
    pub approved_hash: Option<Arc<str>>,
    /// No new disruption.
    pub suspended: bool,
    /// The upgrade that is under way and has to be complete first.
    pub queued_behind: Option<Arc<str>>,
    /// Who moves control-plane components.
    pub control_plane_executor: Arc<str>,
    /// Which nodes, in order of precedence.
    pub groups: Vec<Group>,
    /// How long a node's drain may take before it is parked.
    pub drain_timeout: SignedDuration,
    /// The executors by name. Every name used above is a key.
    pub executors: BTreeMap<Arc<str>, Executor>,
    /// Where it comes from, once that was recorded: later the apiservers say something else.
    pub from: Option<KubeVersion>,
    /// When the first work was started.
    pub started: Option<Timestamp>,
    /// When it was complete; with this plan it is then history and is not taken up again.
    pub completed: Option<Timestamp>,
}

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

    /// The stage that moves `component`; `None` for kube-proxy, which its `DaemonSet` moves.
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
    /// Which.
    pub stage: Stage,
    /// How many there are to move in all.
    pub total: usize,
    /// How many run the target.
    pub upgraded: usize,
}

impl StageProgress {
    /// Nothing left to move.
    pub fn done(&self) -> bool {
        self.upgraded == self.total
    }
}

/// The group a node belongs to: the first that selects it.
pub fn group_of<'a>(groups: &'a [Group], node: &Node) -> Option<&'a Group> {
    groups.iter().find(|group| group.selector.matches(&node.labels))
}

/// How far each stage is, in order.
pub fn progress(cluster: &Cluster, upgrade: &Upgrade) -> [StageProgress; 3] {
    let at_target = |version: Option<&KubeVersion>| version.is_some_and(|v| v.satisfies(&upgrade.version));
    Stage::ALL.map(|stage| {
        let done: Vec<bool> = if stage == Stage::Kubelets {
            let selected = cluster.nodes().iter().filter(|n| group_of(&upgrade.groups, n).is_some());
            // A node that we hold is not done: it is given back only when it was observed Ready at the target.
            selected.map(|n| at_target(n.kubelet.known()) && n.cordoned_by.is_none()).collect()
        } else {
            let moved = cluster.instances().iter().filter(|i| Stage::of(i.component) == Some(stage));
            moved.map(|i| at_target(i.version.known()) && i.ready).collect()
        };
        StageProgress { stage, total: done.len(), upgraded: done.iter().filter(|d| **d).count() }
    })
}

/// The first stage that is not done; `None` when all are.
pub fn current_stage(progress: &[StageProgress]) -> Option<Stage> {
    progress.iter().find(|p| !p.done() || p.stage == Stage::Apiservers && p.total == 0).map(|p| p.stage)
}

/// Why this upgrade must not be started on this cluster, one line each; empty when it may.
///
/// Refused outright: a target older than what an apiserver runs, a target that skips a minor, and a cluster in which
/// some component would leave the skew policy while the apiservers go over.
pub fn preflight(cluster: &Cluster, upgrade: &Upgrade) -> Vec<String> {
    let target = &upgrade.version;
    let versions: Vec<_> =
        cluster.of(Component::KubeApiserver).filter_map(|i| Some((&i.name, i.version.known()?))).collect();
    if versions.is_empty() {
        return vec!["no kube-apiserver's version is known".to_owned()];
    }
    let newer = versions.iter().find(|(_, v)| v.release() > target.release());
    if let Some((name, version)) = newer {
        return vec![format!("{target} would be a downgrade: kube-apiserver {name} runs {version}")];
    }
    let mut lines = blockers_of_minor(cluster, &Policy::default(), target.minor());
    lines.extend(
        cluster
            .of(Component::KubeApiserver)
            .filter(|i| i.version.known().is_none())
            .map(|i| format!("kube-apiserver {} does not say its version", i.name)),
    );
    lines
}

/// The oldest apiserver version: where the upgrade comes from.
pub fn from_version(cluster: &Cluster) -> Option<KubeVersion> {
    let known = cluster.of(Component::KubeApiserver).filter_map(|i| i.version.known());
    known.min_by_key(|v| v.release()).cloned()
}

/// The plan's hash, 12 hex digits: what an approval is bound to.
///
/// It covers where the upgrade comes from and goes, who moves what, which nodes take part and how many at once. It
/// does not cover the nodes that exist at the moment, or an autoscaler would void every approval.
pub fn hash(upgrade: &Upgrade, from: &KubeVersion) -> String {
    let mut digest = Sha256::new();
    let mut add = |part: &str| {
        digest.update(part.len().to_be_bytes());
        digest.update(part.as_bytes());
    };
    add(&from.to_string());
    add(&upgrade.version.to_string());
    add(&upgrade.control_plane_executor);
    add(&upgrade.drain_timeout.as_secs().to_string());
    for group in &upgrade.groups {
        let Group { name, selector, max_unavailable, executor } = group;
        add(name);
        add(executor);
        add(&format!("{max_unavailable:?} {selector:?}"));
    }
    for (name, executor) in &upgrade.executors {
        add(name);
        add(&format!("{executor:?}"));
    }
    hex(&digest.finalize(), 6)
}

/// The first `bytes` of a digest in hex.
pub(crate) fn hex(digest: &[u8], bytes: usize) -> String {
    digest.iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
