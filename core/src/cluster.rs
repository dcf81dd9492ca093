//! The model of a cluster that everything is decided from.
//!
//! Plain values in a fixed order, pruned to what some decision reads. Where they come from (watches, a file, the
//! virtual cluster) is not known here, and nothing here judges them. The invariant, kept by [`Parts::seal`] and by
//! every change of a [`Cluster`]: two models of the same cluster are equal whatever order the objects arrived in, so a
//! decision never depends on that order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::version::{Effective, Observed};

mod capacity;
mod control;
mod guards;
mod incarnation;
mod placement;
mod reference;
mod sealed;
mod select;
mod surroundings;

pub use capacity::{Amounts, Capacity, Lack};
pub use control::{ControlPlane, EtcdMember, Leader, Renewals};
pub use incarnation::{RunMark, incarnation};
pub use placement::{Apart, Namespaces, NodeTerm, Placement};
pub use reference::NodeRef;
pub use sealed::{Cluster, Parts};
pub use surroundings::{
    Attachment, Autoscaler, Demand, Disrupted, FullQuota, Name, PodWebhook, Quantity, Scale, Surroundings,
    Traits, Workload, Workloads,
};

/// Annotation that marks a Node which Evenkeel cordoned: `<NodeUpgrade name>/<NodeUpgrade UID>` for an upgrade,
/// `drain:<since>/<by>` for a person's drain ([`CordonMark`](crate::disruption::CordonMark)).
///
/// One read of the Node tells whose cordon it is. A kubelet may write the annotation too, so the most it ever permits
/// is an uncordon.
pub const CORDON_ANNOTATION: &str = "evenkeel.dev/cordoned-by";

/// Annotation by which a person delays one Node: it is reported as held, and never as done.
pub const HOLD_ANNOTATION: &str = "evenkeel.dev/hold";

/// Key of the taint, with effect `PreferNoSchedule`, of a node whose kubelet is to be upgraded yet: pods that leave other
/// nodes go elsewhere where they can, and move only once. Its value is the UID of the `ClusterUpgrade`.
pub const OUTDATED_TAINT: &str = "evenkeel.dev/outdated";

/// The components the skew policy speaks of, in the order in which an upgrade moves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// kube-apiserver: always first.
    KubeApiserver,
    /// kube-controller-manager: after every apiserver it can reach.
    KubeControllerManager,
    /// kube-scheduler: after every apiserver it can reach.
    KubeScheduler,
    /// cloud-controller-manager: after every apiserver it can reach.
    CloudControllerManager,
    /// kubelet: after the whole control plane.
    Kubelet,
    /// kube-proxy: judged, and moved by whatever manages its `DaemonSet`.
    KubeProxy,
    /// kubectl: judged where a person says its version, never observed, and never in the way of an upgrade.
    Kubectl,
}

impl Component {
    /// Every component, in upgrade order.
    pub const ALL: [Self; 7] = [
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::CloudControllerManager,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Kubectl,
    ];

    /// The component's own name: `kube-apiserver`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::CloudControllerManager => "cloud-controller-manager",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Kubectl => "kubectl",
        }
    }

    /// The component of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|component| component.name() == name)
    }

    /// Whether it is one of the controllers, which move after every apiserver and before any kubelet.
    pub const fn is_controller(self) -> bool {
        matches!(self, Self::KubeControllerManager | Self::KubeScheduler | Self::CloudControllerManager)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which apiservers a component talks to. The policy compares it with exactly those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Any of them, through a load balancer or a virtual address. Also used where the reach is not known, because it
    /// allows least.
    #[default]
    Any,
    /// The one on its own node and no other.
    Local,
}

/// Where a version was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// `/version` of the apiserver at its own address.
    Endpoint,
    /// `/version` of whichever apiserver answered at an address that stands for all of them.
    FrontDoor,
    /// The tag of the image that the component's container runs.
    #[default]
    Image,
    /// `status.nodeInfo.kubeletVersion`: what the kubelet says of itself.
    Kubelet,
    /// The kubelet's version, on a platform where the component is part of the same process.
    SameProcess,
    /// The `LeaseCandidate` of the leader.
    Candidate,
    /// What the component's `ClusterOperator` says it rolled out.
    Operator,
    /// A person's word.
    Person,
}

impl Evidence {
    /// A few words for it, as they stand in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "/version",
            Self::FrontDoor => "/version (one for all)",
            Self::Image => "image",
            Self::Kubelet => "nodeInfo",
            Self::SameProcess => "nodeInfo (same process)",
            Self::Candidate => "LeaseCandidate",
            Self::Operator => "ClusterOperator",
            Self::Person => "given",
        }
    }
}

/// An admission webhook, as far as it may stand in the way of a new minor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Webhook {
    /// The `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
    pub configuration: Arc<str>,
    /// The webhook's name in that configuration.
    pub name: Arc<str>,
    /// `matchPolicy: Exact`: it sees only the API versions that its rules list.
    pub exact: bool,
    /// Some rule of it lists API versions instead of `*`.
    pub lists_versions: bool,
    /// `failurePolicy: Fail`: what it cannot answer is refused.
    pub fails_closed: bool,
}

/// One running component other than a kubelet: an apiserver endpoint, a static pod, a kube-proxy pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Which component.
    pub component: Component,
    /// What it is called in the cluster: `192.0.2.1:6443` for an apiserver endpoint, else the pod's name.
    pub name: Arc<str>,
    /// The Node it runs on, when that is visible.
    pub node: Option<Arc<str>>,
    /// The version it runs, as far as seen.
    pub version: Observed,
    /// Where that was read.
    pub evidence: Evidence,
    /// What it says it emulates (KEP-4330), where it says so: an apiserver of 1.33 or later does in `/version`.
    pub effective: Option<Effective>,
    /// Which apiservers it talks to.
    pub reach: Reach,
    /// What is seen of this run of the process: each [`RunMark`] with its value. Compare two of them with
    /// [`Instance::replaced_since`], never for equality: a mark that is not visible at the moment is left out.
    ///
    /// It promises: where `replaced_since` is true, another process runs. After an upgrade it is true, even if neither
    /// Node nor static pod is visible: an apiserver at its own address names its build, a container has an ID, a lease
    /// has a holder. It does not promise to notice a process that was only restarted, in the same version, where
    /// neither a container nor a lease of its own is visible. It promises nothing for an address that stands for
    /// several processes (a load balancer); on a self-managed control plane such an address is never
    /// [`Evidence::Endpoint`].
    pub incarnation: Arc<str>,
    /// Whether it answered `/readyz` with 200 when it was last asked (apiserver), or its pod is Ready (others).
    pub ready: bool,
    /// When an apiserver last answered that question at its own address, with whatever code. It is asked twice a minute
    /// while it is ready, so `ready` may be that old. `None` where nobody asks.
    pub probed: Option<Timestamp>,
}

/// A Node and its kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the Node, read on its own")]
pub struct Node {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`. A Node re-created under the same name is another node.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`: the precondition of any write to it.
    pub resource_version: Arc<str>,
    /// The pool shown for it, from well-known pool labels.
    pub pool: Arc<str>,
    /// `metadata.labels`, for node groups' selectors.
    pub labels: Arc<BTreeMap<String, String>>,
    /// `status.nodeInfo.kubeletVersion`: the node's own claim.
    pub kubelet: Observed,
    /// Where that was read: [`Evidence::Kubelet`], or a person's word.
    pub evidence: Evidence,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// When the kubelet last posted that condition.
    pub heartbeat: Option<Timestamp>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// The value of [`CORDON_ANNOTATION`], if it is about the cordon that the Node has now
    /// ([`CordonMark::is_current`](crate::disruption::CordonMark::is_current)).
    pub cordoned_by: Option<Arc<str>>,
    /// [`HOLD_ANNOTATION`] is present.
    pub held: bool,
    /// Labelled as a control-plane node.
    pub control_plane: bool,
    /// `spec.taints` as JSON; empty where there are none. A write of one taint has to repeat the others.
    pub taints: Arc<str>,
    /// The value of its [`OUTDATED_TAINT`].
    pub outdated_for: Option<Arc<str>>,
}

/// The controller of a pod (its owner reference with `controller: true`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// API group and version: `apps/v1`.
    pub api_version: Arc<str>,
    /// Kind: `ReplicaSet`.
    pub kind: Arc<str>,
    /// Name in the pod's namespace.
    pub name: Arc<str>,
    /// Its UID: another object of the same name is another controller.
    pub uid: Arc<str>,
}

/// `status.phase` as far as a drain cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started; the eviction handler asks no budget for it.
    Pending,
    /// Running, or a phase that is not known here.
    Running,
    /// `Succeeded` or `Failed`: it never blocks.
    Finished,
}

/// A pod that is bound to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`: the precondition of its eviction.
    pub uid: Arc<str>,
    /// `spec.nodeName`.
    pub node: Arc<str>,
    /// `metadata.labels`, for budgets' selectors.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Its controller, if it has one; the pods of one workload share it.
    pub owner: Option<Arc<Owner>>,
    /// `status.phase`.
    pub phase: Phase,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// It carries `kubernetes.io/config.mirror`: it is a static pod's copy in the API.
    pub mirror: bool,
    /// It has a volume of type `emptyDir`, whose data an eviction destroys.
    pub empty_dir: bool,
    /// The seconds from when its kubelet took it up until it was ready; `None` while it is not ready, or when a
    /// container has started again since.
    pub ready_after: Option<u16>,
    /// What few pods have; see [`Pod::traits`].
    pub special: Option<Arc<Traits>>,
}

impl Pod {
    /// What few pods have.
    pub fn traits(&self) -> &Traits {
        self.special.as_deref().unwrap_or(Traits::NONE)
    }

    /// `metadata.deletionTimestamp`, which already contains the grace period.
    pub fn deleting(&self) -> Option<Timestamp> {
        self.traits().deleting
    }

    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A label selector. An empty one matches everything; a null one matches nothing and is no value of this type.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels that must be equal.
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must hold.
    pub match_expressions: Vec<Expression>,
}

/// One `matchExpressions` term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Expression {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`; any other makes the selector invalid, and it matches nothing.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    #[serde(default)]
    pub values: Vec<String>,
}

impl Selector {
    /// Whether `labels` are selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|term| term.holds(labels.get(&term.key).map(String::as_str)))
    }
}

impl Expression {
    /// Whether it holds where its key has that value.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let named = |value: &str| self.values.iter().any(|named| named == value);
        match self.operator.as_str() {
            "In" => value.is_some_and(named),
            "NotIn" => !value.is_some_and(named),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// `spec.unhealthyPodEvictionPolicy` of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UnhealthyPolicy {
    /// Unset or `IfHealthyBudget`.
    #[default]
    IfHealthyBudget,
    /// Unready pods go without asking.
    AlwaysAllow,
    /// A value this version does not know: the API asks clients to refuse for unready pods.
    Unrecognised,
}

/// A `PodDisruptionBudget` with the numbers the disruption controller last wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.resourceVersion`; changes with every status the controller or an eviction writes.
    pub resource_version: Arc<str>,
    /// `spec.selector`; `None` selects no pod.
    pub selector: Option<Selector>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`; behind `generation` the numbers below are stale.
    pub observed_generation: i64,
    /// `status.disruptionsAllowed`; absent counts as 0, so that what cannot be read permits nothing.
    pub disruptions_allowed: i32,
    /// `status.currentHealthy`.
    pub current_healthy: i32,
    /// `status.desiredHealthy`.
    pub desired_healthy: i32,
    /// `status.expectedPods`.
    pub expected_pods: i32,
    /// The message of `DisruptionAllowed=False` with reason `SyncFailed`: the other numbers are then stale.
    pub sync_failed: Option<Arc<str>>,
    /// Since when `DisruptionAllowed` has been `False`, if it is.
    pub closed_since: Option<Timestamp>,
    /// `spec.unhealthyPodEvictionPolicy`.
    pub unhealthy_policy: UnhealthyPolicy,
    /// `spec.minAvailable` or `spec.maxUnavailable`.
    pub demand: Demand,
    /// `status.disruptedPods`: pods that were evicted and that the controller has not yet seen deleted.
    pub disrupted: Disrupted,
    /// The controller that made the budget and may change it: `CephCluster rook-ceph`.
    pub made_by: Option<Arc<str>>,
}

impl Budget {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it selects `pod`. A null selector selects nothing, an empty one every pod of the namespace.
    pub fn selects(&self, pod: &Pod) -> bool {
        self.namespace == pod.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn term(key: &str, operator: &str, values: &[&str]) -> Expression {
        Expression {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        }
    }

    #[test]
    fn selectors_match_as_the_api_server_does() {
        let have = labels(&[("app", "cart"), ("tier", "web")]);
        let expressions = |terms: &[Expression]| Selector {
            match_labels: BTreeMap::new(),
            match_expressions: terms.to_vec(),
        };
        assert!(Selector::default().matches(&have), "an empty selector matches every pod of the namespace");
        assert!(Selector { match_labels: labels(&[("app", "cart")]), ..Default::default() }.matches(&have));
        assert!(!Selector { match_labels: labels(&[("app", "db")]), ..Default::default() }.matches(&have));
        assert!(expressions(&[term("app", "In", &["cart", "db"])]).matches(&have));
        assert!(expressions(&[term("zone", "NotIn", &["a"])]).matches(&have), "an absent label is not in");
        assert!(
            expressions(&[term("tier", "Exists", &[]), term("zone", "DoesNotExist", &[])]).matches(&have)
        );
        assert!(
            !expressions(&[term("tier", "Gt", &["1"])]).matches(&have),
            "an invalid selector matches nothing"
        );
    }
}
