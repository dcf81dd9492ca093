//! The schema of `ClusterSkewReport`, its columns and bounds.
//!
//! The comments on these fields are what `kubectl explain` prints. Nothing is judged here.

use evenkeel_core::skew::policy::Policy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::checks;

/// The report's only name.
pub const NAME: &str = "cluster";

/// How often a report that says the same is written again, in seconds, where nothing else is asked for.
pub const REFRESH_SECONDS: u32 = 120;

/// The ClusterSkewReport says where the cluster stands by the Kubernetes version skew policy. There is one, named
/// `cluster`; the operator makes it and writes its status.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "ClusterSkewReport",
    plural = "clusterskewreports",
    shortname = "skew",
    category = "upgrades",
    doc = "The ClusterSkewReport says where the cluster stands by the Kubernetes version skew policy. There is one, named `cluster`; the operator makes it and writes its status.",
    status = "ClusterSkewReportStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'").message("there is one report, and it must be named `cluster`"),
    printcolumn(name = "Server", type_ = "string", json_path = ".status.server", description = "Oldest kube-apiserver, or oldest..newest where they differ"),
    printcolumn(name = "Kubelets", type_ = "string", json_path = ".status.kubelets", description = "Oldest..newest kubelet"),
    printcolumn(name = "Behind", type_ = "integer", json_path = ".status.minorsBehind", description = "Minors the oldest kubelet is behind the newest kube-apiserver"),
    printcolumn(name = "Limit", type_ = "integer", json_path = ".status.minorsBehindLimit", description = "Minors the oldest kubelet may be behind"),
    printcolumn(name = "Supported", type_ = "string", json_path = ".status.supported", description = "Whether every component is inside the version skew policy"),
    printcolumn(name = "Violations", type_ = "integer", json_path = ".status.violations", description = "Components outside the policy"),
    printcolumn(name = "Next Minor", type_ = "string", json_path = ".status.nextMinor.allowed", description = "Whether every kube-apiserver may go to the next minor now"),
    printcolumn(name = "Updated", type_ = "date", json_path = ".status.lastObservedTime", description = "When the cluster was last looked at"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes", priority = 1, description = "Nodes"),
    printcolumn(name = "Pools", type_ = "integer", json_path = ".status.pools", priority = 1, description = "Node pools"),
    printcolumn(name = "Components", type_ = "integer", json_path = ".status.instances", priority = 1, description = "Running components that were seen, kubelets included"),
    printcolumn(name = "Unknown", type_ = "integer", json_path = ".status.unknown", priority = 1, description = "Components whose version is not known"),
    printcolumn(name = "Emulated", type_ = "string", json_path = ".status.emulated", priority = 1, description = "Minor that the kube-apiservers emulate, where it is not their own"),
    printcolumn(name = "Policy", type_ = "string", json_path = ".status.policy", priority = 1, description = "The rules that the cluster is judged by"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1, description = "Why the cluster is supported or not")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSkewReportSpec {
    /// While this is true, the report keeps what was last seen, and its conditions say that it is suspended. The metrics of
    /// the operator still tell of the cluster as it is. By default false.
    #[serde(default)]
    pub suspend: bool,
    /// How often the report is written when nothing changes, in seconds, to prove that it is fresh; 30 to 3600. What
    /// changes is written within a second or two in any case. By default 120.
    #[serde(default = "refresh_seconds")]
    #[schemars(schema_with = "checks::refresh_seconds")]
    pub refresh_period_seconds: u32,
    /// The rules to judge by. `Kubernetes` is the version skew policy of kubernetes.io. `KubernetesStrict` also takes
    /// the prerequisites of that page by the letter: the kube-apiservers may go to the next minor only when every
    /// kubelet is at most two minors older than it. By default `Kubernetes`.
    #[serde(default)]
    pub policy: PolicyName,
    /// Keys of Node labels whose value names the pool, for example `example.com/pool`; the first label that a Node has
    /// decides. A Node with none of them gets its pool from the well-known labels of EKS, GKE, AKS, Karpenter and
    /// others; without those the pool is `control-plane`, `virtual-kubelet`, a role on OpenShift, or `default`.
    #[serde(default)]
    #[schemars(length(max = 8), inner(length(min = 1, max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub pool_label_keys: Vec<String>,
}

impl Default for ClusterSkewReportSpec {
    fn default() -> Self {
        Self {
            suspend: false,
            refresh_period_seconds: REFRESH_SECONDS,
            policy: PolicyName::default(),
            pool_label_keys: Vec::new(),
        }
    }
}

const fn refresh_seconds() -> u32 {
    REFRESH_SECONDS
}

/// The rules to judge by.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyName {
    /// The version skew policy of kubernetes.io.
    #[default]
    Kubernetes,
    /// The same policy, with the prerequisites of an upgrade taken by the letter.
    KubernetesStrict,
}

impl PolicyName {
    /// The rules.
    pub fn policy(self) -> Policy {
        match self {
            Self::Kubernetes => Policy::default(),
            Self::KubernetesStrict => Policy::strict(),
        }
    }
}

/// What was observed, and how the policy judges it.
// The default stands until the first status is written. kstatus takes an object without a status for done.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = { "observedGeneration": -1 }))]
pub struct ClusterSkewReportStatus {
    /// The generation of the spec that this status is about; -1 until the first one is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the cluster was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observed_time: Option<Time>,
    /// The version of the kube-apiservers, `oldest..newest` where they differ, or `unknown`.
    #[serde(default)]
    pub server: String,
    /// The version of the kubelets, `oldest..newest` where they differ, or `unknown`.
    #[serde(default)]
    pub kubelets: String,
    /// How many minors the oldest kubelet is behind the newest kube-apiserver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minors_behind: Option<i32>,
    /// How many minors the oldest kubelet may be behind the newest kube-apiserver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minors_behind_limit: Option<i32>,
    /// Whether every component is inside the policy: `True`, `False`, or `Unknown` where something that decides
    /// it was not seen.
    #[serde(default)]
    pub supported: String,
    /// Why `supported` says so, in one line.
    #[serde(default)]
    pub reason: String,
    /// How many components are outside the policy.
    #[serde(default)]
    pub violations: i32,
    /// How many components run an unknown version.
    #[serde(default)]
    pub unknown: i32,
    /// How many Nodes were seen.
    #[serde(default)]
    pub nodes: i32,
    /// The platform that the cluster was recognised as: `kubeadm`, `k3s`, `RKE2`, `k0s`, `Talos`, `EKS`, `GKE`, `AKS` or
    /// `OpenShift`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// Components of which nothing is seen, and why, one line each. They are not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub hidden: Vec<String>,
    /// How many node pools there are.
    #[serde(default)]
    pub pools: i32,
    /// How many running components were seen, kubelets included.
    #[serde(default)]
    pub instances: i32,
    /// The minor that the kube-apiservers behave as (`--emulated-version`), where it is not their own; the oldest one
    /// where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// The rules that the cluster was judged by, as `spec.policy` names them.
    #[serde(default)]
    pub policy: String,
    /// Each kube-apiserver; those that do not answer come first.
    #[serde(default)]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub apiservers: Vec<Apiserver>,
    /// Whether the cluster may go to the next minor, and what stands in the way.
    #[serde(default)]
    pub next_minor: NextMinor,
    /// Everything that runs, grouped by component, pool and version; the worst first within a component.
    #[serde(default)]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub components: Vec<Row>,
    /// Everything that is wrong or soon will be, and what to do about it; the worst first.
    #[serde(default)]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub findings: Vec<SkewFinding>,
    /// How many entries the bounded lists leave out.
    #[serde(default)]
    pub omitted: Omitted,
    /// The conditions of the report: `Ready` (the report is fresh), `SkewSupported`, `NextMinorAllowed`, `InventoryComplete`,
    /// `Reconciling` and `Stalled`.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Whether the cluster may go to the next minor.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NextMinor {
    /// The next minor, such as `1.38`.
    #[serde(default)]
    pub version: String,
    /// Whether every kube-apiserver may go to the next minor now: `True`, `False` or `Unknown`.
    #[serde(default)]
    pub allowed: String,
    /// What stands in the way of the next minor, one line each.
    #[serde(default)]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub blockers: Vec<String>,
    /// PodDisruptionBudgets that would keep nodes from being drained: first those that never allow an eviction, then
    /// those that have allowed none for ten minutes or longer.
    #[serde(default)]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub budgets: Vec<BlockingBudget>,
    /// How many PodDisruptionBudgets never allow an eviction. Absent where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budgets_never: Option<i32>,
    /// How many PodDisruptionBudgets have allowed no eviction for ten minutes or longer. Absent where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budgets_not_now: Option<i32>,
}

/// A PodDisruptionBudget that allows no eviction.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BlockingBudget {
    /// The PodDisruptionBudget's `metadata.namespace`.
    pub namespace: String,
    /// The PodDisruptionBudget's `metadata.name`.
    pub name: String,
    /// Whether this lasts: `Never` (the budget allows no eviction until somebody changes something) or `NotNow` (this may end
    /// by itself).
    #[serde(default)]
    pub outlook: String,
    /// Why the budget allows no eviction, with its numbers.
    #[serde(default)]
    pub message: String,
    /// What to change so that the budget allows evictions.
    #[serde(default)]
    pub remedy: String,
}

/// One kube-apiserver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Apiserver {
    /// The address of the kube-apiserver, such as `192.0.2.1:6443`; the name of its pod or lease while the cluster lists no
    /// address for it.
    pub name: String,
    /// The Node that the kube-apiserver runs on, where that is visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The version that the kube-apiserver answers to `/version`, or `unknown`.
    pub version: String,
    /// The minor that the kube-apiserver emulates, where that is not its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Whether the kube-apiserver answered when it was last asked for its version.
    pub reachable: bool,
    /// Since when `reachable` has been as it is, as far as this report goes back.
    pub since: Time,
    /// Why the kube-apiserver is not reachable, or not ready by its `/readyz`.
    #[serde(default)]
    pub message: String,
}

/// The instances of one component that are in one pool and run one version.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The name of the component, such as `kubelet`.
    pub component: String,
    /// The node pool of the instances, or `control-plane`.
    pub pool: String,
    /// The version that the instances run, or `unknown`.
    pub version: String,
    /// Where the version was read: `/version`, `/version (one for all)`, `image`, `nodeInfo`, `nodeInfo (same
    /// process)`, `LeaseCandidate`, `ClusterOperator` or `given`; for a version that is not known, why it is not.
    #[serde(default)]
    pub source: String,
    /// How many instances of the component run this version in this pool.
    pub count: i32,
    /// How many minors the instances are behind the newest kube-apiserver; negative for a newer minor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minors_behind: Option<i32>,
    /// How many more minors the kube-apiservers may go before these instances must be upgraded; at 0 they block the next
    /// minor. Absent for kube-apiservers and where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<i32>,
    /// How the instances stand by the policy: `Supported`, `Transitional` (controllers that are one minor behind, or
    /// instances that are newer than the kube-apiserver of another node, as during an upgrade), `AtLimit` (they block the
    /// next minor), `Unknown` (their version, or what decides, is not known) or `Unsupported` (they are outside the policy).
    pub state: String,
    /// The names of the first few instances.
    #[serde(default)]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub samples: Vec<String>,
}

/// One thing to know, and what to do about it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SkewFinding {
    /// The id of the finding: its rule and what it is about, such as component, pool and version. The same finding has the
    /// same id in every report.
    pub id: String,
    /// How grave the finding is: `Unsupported` (outside the policy), `AtLimit` (it blocks the next minor) or `Warning`.
    #[serde(default)]
    pub severity: String,
    /// Where the rule of the finding is written down.
    pub source: String,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do about the finding.
    pub remedy: String,
    /// How many components the finding is about.
    pub count: i32,
    /// The names of the first few components.
    #[serde(default)]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub samples: Vec<String>,
}

/// How many entries were left out of each bounded list.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Omitted {
    /// How many entries are left out of `components`.
    #[serde(default)]
    pub components: i32,
    /// How many entries are left out of `findings`.
    #[serde(default)]
    pub findings: i32,
    /// How many entries are left out of `nextMinor.blockers`.
    #[serde(default)]
    pub blockers: i32,
    /// How many entries are left out of `nextMinor.budgets`.
    #[serde(default)]
    pub budgets: i32,
    /// How many entries are left out of `apiservers`.
    #[serde(default)]
    pub apiservers: i32,
}
