//! Claims: what was going to be done to one component on one node, or to its control plane as a whole, and how far it
//! is.
//!
//! A claim is stored before its node is touched, so that whoever comes after a crash knows what to go on with. Here
//! belong their values; what is done about them is in `nodes` and `components`.

use std::slice;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::Component;
use crate::disruption::BudgetName;
use crate::plan::Stage;
use crate::version::KubeVersion;

/// What an executor was when it was asked. A later change of it changes nothing of what has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedExecutor {
    /// A Job does it, not somebody else.
    pub job: bool,
    /// Until when the new version has to be observed.
    pub until: Timestamp,
}

/// What was there before the executor began, and what it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// What changes when the process is replaced: the kubelet's last heartbeat, or a control-plane component's
    /// [`incarnation`](crate::cluster::Instance::incarnation). Empty where several move together.
    pub incarnation: Arc<str>,
    /// Where several move together: the same of each that was not at the target yet, in order.
    pub parts: Vec<(Component, Arc<str>)>,
    /// `DaemonSets` whose pod on the node was not ready, as `namespace/name`: nobody waits for those afterwards.
    pub not_ready: Vec<Arc<str>>,
    /// The static pods of the control-plane node, as `namespace/name`: each has to be back and Ready afterwards, the member
    /// of etcd among them.
    pub static_pods: Vec<Arc<str>>,
    /// What was asked; `None` where nobody recorded it.
    pub asked: Option<AskedExecutor>,
}

impl Before {
    /// What `component` was like; `None` where it was at the target already and need not change.
    pub fn of(&self, component: Component) -> Option<&str> {
        if self.parts.is_empty() {
            return Some(&self.incarnation);
        }
        self.parts.iter().find(|(of, _)| *of == component).map(|(_, incarnation)| &**incarnation)
    }
}

/// How far a claim is. Only `Parked` leads back, to `Claimed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// Recorded; nothing was touched yet.
    Claimed,
    /// Cordoned by us; its pods are leaving.
    Draining {
        /// When it was seen cordoned: the timeout of the drain runs from then.
        since: Timestamp,
        /// Since when nothing on the node can move without a person.
        stalled: Option<Timestamp>,
    },
    /// Drained; the executor may work.
    Upgrading {
        /// When the executor was allowed to begin.
        since: Timestamp,
        /// What the executor found; what is observed later is compared with it.
        before: Before,
        /// Since when the kubelet of a control-plane node is observed at the target: it restarts the node's static pods
        /// some time after.
        observed: Option<Timestamp>,
    },
    /// Observed at the target, and given back.
    Upgraded {
        /// When the claim was done; the oldest such claims are deleted first.
        at: Timestamp,
    },
    /// The node could not be drained: not in time, or not without a person; or the server refused the cordon, or somebody took it
    /// off. The node is uncordoned; it is tried again.
    Parked {
        /// When the drain was given up.
        since: Timestamp,
        /// Tried again then, or earlier when nothing blocks it any more; the same as `since` where the drain was given back
        /// while it still had time.
        retry_at: Timestamp,
        /// Only a person can let it go on, as far as was seen when it was parked: what blocked it stays, or the upgrade
        /// was told to halt.
        for_a_person: bool,
    },
    /// The executor failed or took too long. The node stays as it is, for a person to look at.
    Failed {
        /// When the executor was given up.
        since: Timestamp,
        /// What the executor found: what it was asked for may be observed after all, and is compared with it.
        before: Before,
    },
}

impl ClaimState {
    /// The word for it in a status.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claimed => "Claimed",
            Self::Draining { .. } => "Draining",
            Self::Upgrading { .. } => "Upgrading",
            Self::Upgraded { .. } => "Upgraded",
            Self::Parked { .. } => "Parked",
            Self::Failed { .. } => "Failed",
        }
    }

    /// kstatus: whether there is nothing that anybody has to do or to wait for.
    pub const fn ready(&self) -> bool {
        matches!(self, Self::Upgraded { .. })
    }

    /// kstatus: whether only a person can bring it further.
    pub const fn stalled(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Parked { for_a_person: true, .. })
    }

    /// Whether it is parked only because its drain was given back while it still had time, so that nothing of its node is known
    /// to have blocked it.
    pub fn was_given_back(&self) -> bool {
        matches!(self, Self::Parked { since, retry_at, .. } if retry_at <= since)
    }

    /// Whether it counts against its group's limit.
    pub const fn in_flight(&self) -> bool {
        matches!(self, Self::Claimed | Self::Draining { .. } | Self::Upgrading { .. })
    }

    /// Whether a stage has to wait for it: it is in flight, or a person has to look at it.
    pub const fn unfinished(&self) -> bool {
        self.in_flight() || matches!(self, Self::Failed { .. })
    }
}

/// What keeps a node from being drained, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// The budget, where one is to blame.
    pub budget: Option<BudgetName>,
    /// Why, in one line.
    pub reason: String,
    /// It stays until a person changes something, as far as can be seen. It is not stored: each decision sees it anew.
    pub lasting: bool,
}

/// What a claim is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Which component moves; where several move together, the first of them.
    pub component: Component,
    /// What moves together, in this order, as one step of the control plane of a node; empty where `component` moves
    /// alone.
    pub components: Vec<Component>,
    /// The node, or for a control-plane component without a visible node the instance's name.
    pub node: Arc<str>,
    /// UID of that Node; empty where there is none.
    pub node_uid: Arc<str>,
    /// The version before.
    pub from: String,
    /// The version of the hop, which every component that moves has to be observed at.
    pub to: KubeVersion,
    /// The name of the `UpgradeExecutor` that moves it.
    pub executor: Arc<str>,
}

impl Subject {
    /// Whether it is about the control plane of a node as a whole.
    pub fn is_of_plane(&self) -> bool {
        !self.components.is_empty()
    }

    /// Everything that moves, in order; never empty.
    pub fn moves(&self) -> &[Component] {
        if self.is_of_plane() { &self.components } else { slice::from_ref(&self.component) }
    }

    /// What moves and where, in words.
    pub fn what(&self) -> String {
        let Self { component, node, .. } = self;
        if self.is_of_plane() {
            format!("the control plane on {node}")
        } else {
            format!("{component} on {node}")
        }
    }

    /// The stage that this belongs to; of several components that of the first.
    pub fn stage(&self) -> Stage {
        Stage::of(self.component).unwrap_or(Stage::Kubelets)
    }
}

/// A stored claim: a `NodeUpgrade`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// The name of the upgrade it belongs to.
    pub upgrade: Arc<str>,
    /// UID of that upgrade: a claim of another one of the same name is not its own.
    pub upgrade_uid: Arc<str>,
    /// Somebody deleted it. It goes when what it is about has settled.
    pub ending: bool,
    /// The finalizers that are not ours; they stay when ours is taken off.
    pub finalizers: Vec<Arc<str>>,
    /// What moves, where to, and by which executor; fixed when the claim is created.
    pub subject: Subject,
    /// As last stored; a claim without a status is `Claimed`.
    pub state: ClaimState,
    /// How often it was tried, the present one included.
    pub attempt: u32,
    /// What its status last said in one line.
    pub message: String,
    /// What its status last named as blocking.
    pub blockers: Vec<Blocker>,
}

impl Claim {
    /// The value of the cordon annotation of this claim.
    pub fn mark(&self) -> String {
        format!("{}/{}", self.name, self.uid)
    }

    /// Whether `text` is the value of the cordon annotation of this claim.
    pub fn is_mark(&self, text: &str) -> bool {
        let uid = text.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix('/'));
        uid == Some(&*self.uid)
    }

    /// Whether it is about a kubelet, and so about a node that is drained.
    pub fn is_of_kubelet(&self) -> bool {
        self.subject.component == Component::Kubelet
    }
}

/// A stored claim that only holds its node. It cannot be read, though nobody but us should have written it; or nothing is left
/// to be done about it, and the finalizers of others keep it; or it is of an earlier upgrade of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableClaim {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// Somebody deleted it. It goes when no node has its mark any more.
    pub ending: bool,
    /// The finalizers that are not ours; they stay when ours is taken off.
    pub finalizers: Vec<Arc<str>>,
    /// The name of its upgrade, or of one that there was before; empty where nobody can read it.
    pub upgrade: Arc<str>,
    /// The node or the place that it may have left half done; `None` where it has ended, or where nobody can read it.
    pub place: Option<Arc<str>>,
    /// It goes by itself, so that nobody has to do anything.
    pub goes: bool,
    /// Why, in one line that says what to do.
    pub why: String,
}
