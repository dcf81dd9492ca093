//! The schema of `ClusterUpgrade`: what a person writes, its columns and the rules that the server checks.
//!
//! The comments on these fields are what `kubectl explain` prints. No rule of an upgrade is here.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::drain::Drain;
use super::selector::LabelSelector;
use super::status_schema::{ClusterUpgradeStatus, is_zero};
use crate::api::checks;
use crate::api::conditions::ConditionStatus;

/// Takes a cluster to a Kubernetes version, in order: every kube-apiserver, then kube-controller-manager,
/// kube-scheduler and cloud-controller-manager, then kubelets, each node drained through the Eviction API.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "ClusterUpgrade",
    plural = "clusterupgrades",
    shortname = "cup",
    category = "upgrades",
    doc = "Takes a cluster to a Kubernetes version, in order: every kube-apiserver, then kube-controller-manager, kube-scheduler and cloud-controller-manager, then kubelets, each node drained through the Eviction API.",
    status = "ClusterUpgradeStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must be at most 63 characters long, because it is part of other names; choose a shorter one"),
    printcolumn(name = "From", type_ = "string", json_path = ".status.plan.from"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress.summary", description = "Upgraded nodes of all selected nodes"),
    printcolumn(name = "Blocked", type_ = "integer", json_path = ".status.progress.blocked", description = "Nodes parked because their drain is blocked"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.progress.failed"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "ETA", type_ = "string", json_path = ".status.progress.eta", description = "About how long the rest takes, closed windows, freezes and soaks included"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "In Flight", type_ = "integer", json_path = ".status.progress.inFlight", priority = 1),
    printcolumn(name = "Plan", type_ = "string", json_path = ".status.plan.hash", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeSpec {
    /// The version that the control plane goes to, and in the end every selected kubelet; for example `v1.37.1`. It
    /// must not be a downgrade. A target that is several minors away is reached one minor after the other. Without a
    /// patch, such as `v1.37`, it is any release of that minor, as a cloud picks them; executors of the kind `job` need a
    /// whole version.
    #[schemars(schema_with = "checks::version")]
    pub version: String,
    /// The versions of the minors on the way to a target that is several minors away, one of each minor, such as
    /// `v1.36.4`. For a minor that is not named here, the plan takes the newest release that this program knows, or any
    /// release where somebody else runs the control plane; `status.plan.via` says which. Name the builds of a
    /// distribution, such as `v1.36.4+rke2r1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "checks::versions")]
    pub via: Vec<String>,
    /// When work begins: `PlanOnly` never, `RequireApproval` when `approval.planHash` equals `status.plan.hash`,
    /// `Automatic` at once.
    #[serde(default)]
    pub mode: ApprovalMode,
    /// The approval that `mode: RequireApproval` waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// True stops all new disruption at once: nodes that are draining are made schedulable again, and what an executor
    /// is upgrading already is finished.
    #[serde(default)]
    pub suspend: bool,
    /// How the control plane is upgraded.
    pub control_plane: ControlPlane,
    /// Which nodes take part, and how many of them may be unavailable at once. A node belongs to the first group that
    /// selects it; nodes that no group selects are left alone.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub node_groups: Vec<NodeGroup>,
    /// How nodes are drained.
    #[serde(default)]
    pub drain: Drain,
    /// When something new may begin: in these times alone. Without any, always. What has begun is finished, and nothing
    /// is begun that is not expected to be done before the window closes: a node, or a step of the control plane, is
    /// expected to take as long as nine of ten took in this upgrade before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub windows: Vec<Window>,
    /// When nothing new begins, whatever windows are open. What has begun is finished, and nothing is begun that is not
    /// expected to be done before a freeze begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub freezes: Vec<Freeze>,
    /// Objects of the cluster that must have a condition before anything new is begun. What has begun is finished. An
    /// object that is not there or may not be read keeps its gate closed; `config/gates/reader.yaml` shows how to
    /// let Evenkeel read one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub gates: Vec<Gate>,
    /// How many nodes may be out of the rollout before nothing new is begun. Without it, as many as there are: each is
    /// named, and the others go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// Findings of the plan that you take upon you, each with an end and a reason. What would break the version skew
    /// policy cannot be accepted. A node that cannot be drained because of the budget or the pod that one is about may stay
    /// behind until that end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["finding"]))]
    pub accepted_risks: Vec<AcceptedRisk>,
}

/// A finding that a person takes upon them.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedRisk {
    /// The finding's id, as `evenkeel plan` and `status.plan.findings` show it.
    #[schemars(length(min = 1, max = 512))]
    pub finding: String,
    /// The last day on which it is accepted, in UTC, such as `2026-12-01`; or a time, such as `2026-12-01T18:00:00Z`.
    #[schemars(schema_with = "checks::day_or_time")]
    pub until: String,
    /// Why, for those who read the plan.
    #[schemars(length(min = 1, max = 512))]
    pub reason: String,
}

/// When work begins.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Never: the plan is shown and nothing is done.
    PlanOnly,
    /// When the plan's hash is approved.
    #[default]
    RequireApproval,
    /// At once.
    Automatic,
}

/// A person's approval of one plan.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The hash of the plan that may be carried out: `status.plan.hash`.
    #[schemars(schema_with = "checks::hash")]
    pub plan_hash: String,
}

/// How the control plane is upgraded.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.firstExecutor) || self.unit == 'Node'").message("`firstExecutor` needs `unit: Node`; set that, or leave `firstExecutor` out"))]
pub struct ControlPlane {
    /// What changes together. `Component`: each binary on its own; first every kube-apiserver, then the others. `Node`:
    /// everything that runs on one control-plane node, in one step, as kubeadm, k3s, RKE2 and Talos do it; one node at a
    /// time, and only while every other control-plane node is Ready, not cordoned and whole. The node is not drained: its
    /// other pods go on. Where one process runs the control plane and the kubelet (k3s, RKE2), the kubelet is part of the
    /// step, and a node group has to select the node. What has no kube-apiserver on its node moves on its own, after that.
    #[serde(default)]
    pub unit: Unit,
    /// The UpgradeExecutor that changes control-plane components.
    #[schemars(length(min = 1, max = 63))]
    pub executor: String,
    /// The UpgradeExecutor that changes the first node of each hop, where that is another one: `kubeadm upgrade apply` on the
    /// first node, `kubeadm upgrade node` (`executor`) on the others. It is asked until a node of the hop is upgraded.
    /// Only with `unit: Node`. Default: `executor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub first_executor: Option<String>,
    /// What is done when a controller leads and nothing shows its version, as on a managed control plane. `Refuse`: no
    /// kubelet is upgraded, and no kube-apiserver by a second minor. `Accept`: they are, because you know that the
    /// controller goes to each minor together with the kube-apiservers.
    #[serde(default)]
    pub hidden: Hidden,
    /// How long kubelets wait, in seconds, once every component of the control plane runs a hop's version. It counts from
    /// when that is first seen, and anew when a component is not there or not at the version in that time. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "checks::soak_seconds")]
    pub soak_seconds: i32,
}

/// A time that comes again every week, in which something may begin.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The window's name; no other window has it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The time zone of `days` and `start`, such as `Europe/Berlin`. Default `UTC`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// The days on which the window starts, whichever day it ends on. Default every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7), extend("x-kubernetes-list-type" = "set"))]
    pub days: Vec<Day>,
    /// When the window starts, such as `22:00`. On a day on which clocks leave that time out, it starts as much later as
    /// they are set; on one on which they show it twice, it starts at the first.
    #[schemars(schema_with = "checks::time_of_day")]
    pub start: String,
    /// How long the window is open, in seconds of real time, whatever clocks do meanwhile.
    #[schemars(schema_with = "checks::window_seconds")]
    pub duration_seconds: i32,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A day of the week.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// A time in which nothing new begins.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
// Two texts of one form are in the order of their times: two days; or two times without a zone, or two in UTC, with as many
// digits. Of others `validate` says it.
#[x_kube(validation = Rule::new("self.from.size() != self.until.size() || (self.from.size() == 10 ? self.from <= self.until : !self.from.matches('^[0-9-]{10}T[0-9:.]+Z?$') || !self.until.matches('^[0-9-]{10}T[0-9:.]+Z?$') || self.from.endsWith('Z') != self.until.endsWith('Z') || self.from < self.until)").message("`until` must be after `from`, where a last day counts to its end; choose a later `until` or an earlier `from`"))]
pub struct Freeze {
    /// The freeze's name; no other freeze has it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The first day, such as `2026-12-18`; or a time, such as `2026-12-18T18:00` or `2026-12-18T18:00:00Z`.
    #[schemars(schema_with = "checks::day_or_time")]
    pub from: String,
    /// The last day, which counts to its end; or the time at which the freeze is over.
    #[schemars(schema_with = "checks::day_or_time")]
    pub until: String,
    /// The time zone of `from` and `until`, such as `Europe/Berlin`. Default `UTC`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

/// Something that has to be so before anything new is begun.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The gate's name; no other gate has it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The object that says so.
    pub object: GateObject,
    /// The condition in its `status.conditions`.
    pub condition: GateCondition,
}

/// An object of the cluster, of any kind.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GateObject {
    /// Such as `example.com/v1`, or `v1`.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Such as `ServiceLevel`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The namespace; none for a kind whose objects are in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A condition and the status that it must have.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GateCondition {
    /// Such as `Healthy`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// `True`, `False` or `Unknown`. Default `True`.
    #[serde(default = "yes")]
    #[schemars(extend("enum" = ConditionStatus::ALL.map(ConditionStatus::name)))]
    pub status: String,
}

fn yes() -> String {
    ConditionStatus::True.name().to_owned()
}

/// How many nodes may be out of the rollout before nothing new is begun. Both count all selected nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// From so many failed nodes on, nothing new is begun and the upgrade is stalled: a number, or a percentage of the
    /// selected nodes (rounded down, at least one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "checks::amount")]
    pub max_failed: Option<IntOrString>,
    /// From so many nodes on whose drain did not end in time, nothing new is begun, no parked node is tried again, and
    /// the upgrade is stalled: a number, or a percentage of the selected nodes (rounded down, at least one). Nodes that
    /// were not begun because they could not be drained anyway do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "checks::amount")]
    pub max_parked: Option<IntOrString>,
}

/// What is done about controllers whose version nothing shows.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// No kubelet moves, and no kube-apiserver moves by a second minor.
    #[default]
    Refuse,
    /// Both move: a person knows that these controllers run the target.
    Accept,
}

/// What changes together.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Each binary on its own.
    #[default]
    Component,
    /// Everything that runs on one control-plane node.
    Node,
}

/// Nodes that are upgraded alike.
// That `dependsOn` names groups of this upgrade would cost a server more than it lets one rule cost; `validate` says it.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.dependsOn) || !(self.name in self.dependsOn)").message("`dependsOn` must name other groups; take the name of the group itself out"))]
pub struct NodeGroup {
    /// The group's name; no other group has it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Which nodes; `{}` selects all.
    pub selector: LabelSelector,
    /// The UpgradeExecutor that changes the kubelets of this group.
    #[schemars(length(min = 1, max = 63))]
    pub executor: String,
    /// How many nodes of the group may be unavailable at once: a number, or a percentage of the group (rounded down,
    /// at least one). Nodes that are unavailable for any other reason count. Default 1.
    #[serde(default = "one")]
    #[schemars(schema_with = "checks::amount")]
    pub max_unavailable: IntOrString,
    /// The groups that have to be done, and their upgraded nodes ready, before a node of this group is taken up. Nodes that a
    /// person holds keep nobody waiting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub depends_on: Vec<String>,
    /// Whether nodes of this group may be away in several zones at once (label `topology.kubernetes.io/zone`).
    /// `OneAtATime`: a zone begins when every node of the last one is done, but for those that are parked or held. Default `Any`.
    #[serde(default)]
    pub zones: Zones,
    /// How many nodes of the group go first; the others wait until these run the version, and while one of them is not ready.
    /// Default 0.
    #[serde(default)]
    #[schemars(schema_with = "checks::canaries")]
    pub canary: i32,
    /// How long others wait, in seconds: the groups that depend on this one once it is done, and its other nodes once
    /// its canaries run the version. It counts from when that is first seen, and anew when a node of those goes back in
    /// that time. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "checks::soak_seconds")]
    pub soak_seconds: i32,
}

/// Whether nodes of several zones may be away at once.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zones {
    /// They may.
    #[default]
    Any,
    /// Zones go one after the other.
    OneAtATime,
}

fn one() -> IntOrString {
    IntOrString::Int(1)
}
