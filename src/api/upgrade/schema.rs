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

/// A ClusterUpgrade takes a cluster to a Kubernetes version, in order: every kube-apiserver, then
/// kube-controller-manager, kube-scheduler and cloud-controller-manager, then kubelets. Each node is drained through the
/// Eviction API before its kubelet is upgraded, unless `spec.drain.mode` says otherwise.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "ClusterUpgrade",
    plural = "clusterupgrades",
    shortname = "cup",
    category = "upgrades",
    doc = "A ClusterUpgrade takes a cluster to a Kubernetes version, in order: every kube-apiserver, then kube-controller-manager, kube-scheduler and cloud-controller-manager, then kubelets. Each node is drained through the Eviction API before its kubelet is upgraded, unless `spec.drain.mode` says otherwise.",
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
    /// must not be a downgrade. A target that is several minors away, at most 16, is reached one minor after the other.
    /// Without a patch, such as `v1.37`, it is any release of that minor, as a cloud picks them; executors of the kind
    /// `job` need a whole version.
    #[schemars(schema_with = "checks::version")]
    pub version: String,
    /// The versions of the minors on the way to a target that is several minors away, one of each minor, such as
    /// `v1.36.4`. For a minor that is not named here, the plan takes the newest release that this program knows, or any
    /// release where somebody else runs the control plane; `status.plan.via` says which. Name the builds of a
    /// distribution, such as `v1.36.4+rke2r1`. Nothing begins while a version is named here that is of the minor of the target
    /// or of a later one.
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
    /// The times in which something new may begin. Without windows it may begin at any time. What has begun is finished.
    /// Nothing is begun that is not expected to be done before the window closes: a node, or a step of the control plane,
    /// is expected to take as long as nine of ten of its kind took in this upgrade so far. Until three of its kind are
    /// done, a guess counts: 9 minutes for a node, 4 minutes for a kube-apiserver, 2 minutes for a controller, and of
    /// components that move together the longest. Where no window is that long, the upgrade stands still with the reason
    /// `NoWindowFits`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub windows: Vec<Window>,
    /// The times in which nothing new begins, even while a window is open. What has begun is finished. Nothing is begun that
    /// is not expected to be done before a freeze begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub freezes: Vec<Freeze>,
    /// Objects of the cluster that must have a condition before anything new is begun. What has begun is finished. An
    /// object that is not there or may not be read keeps its gate closed; `config/gates/reader.yaml` shows how to
    /// let Evenkeel read one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub gates: Vec<Gate>,
    /// The number of failed nodes, and of parked ones, at which nothing new is begun. Without it there is no limit: the status
    /// names each such node, and the others go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// Findings of the plan that you take upon you, each with an end and a reason. What would break the version skew
    /// policy cannot be accepted. A node that cannot be drained because of the budget or pod that an accepted finding names
    /// may stay behind until that end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["finding"]))]
    pub accepted_risks: Vec<AcceptedRisk>,
}

/// A finding that a person accepts for a time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedRisk {
    /// The finding's id, as `evenkeel plan` and `status.plan.findings` show it.
    #[schemars(length(min = 1, max = 512))]
    pub finding: String,
    /// The last day on which the finding is accepted, in UTC, such as `2026-12-01`; or the time until which it is, such as
    /// `2026-12-01T18:00:00Z`.
    #[schemars(schema_with = "checks::day_or_time")]
    pub until: String,
    /// Why the finding is accepted, for those who read the plan.
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
    /// What changes together. `Component`: each binary changes on its own; first every kube-apiserver, then the others.
    /// `Node`: everything that runs on one control-plane node changes in one step, as kubeadm, k3s, RKE2 and Talos do it; one
    /// node at a time, and only while every other control-plane node is Ready and not cordoned, and its kube-apiserver and
    /// static pods are ready. The node is not drained: its other pods go on. Where one process runs the control plane and
    /// the kubelet (k3s, RKE2), the kubelet is part of the step, and a node group has to select the node. A component that
    /// has no kube-apiserver on its node moves on its own, after that.
    #[serde(default)]
    pub unit: Unit,
    /// The name of the UpgradeExecutor that changes control-plane components.
    #[schemars(length(min = 1, max = 63))]
    pub executor: String,
    /// The name of the UpgradeExecutor that changes the first node of each hop (each minor on the way), where that is another
    /// one: `kubeadm upgrade apply` on the first node, `kubeadm upgrade node` (`executor`) on the others. It is asked until a
    /// node of the hop is upgraded. It can be set only with `unit: Node`. Default: `executor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub first_executor: Option<String>,
    /// What is done when a controller leads and nothing shows its version, as on a managed control plane. `Refuse`: no
    /// kubelet is upgraded, and no kube-apiserver by a second minor. `Accept`: they are, because you know that the
    /// controller goes to each minor together with the kube-apiservers.
    #[serde(default)]
    pub hidden: Hidden,
    /// How long kubelets wait, in seconds, once every component of the control plane runs the version of the hop (the minor on
    /// the way, or the target). The time counts from when that is first seen, and begins anew when a component is not there
    /// or not at the version meanwhile. The control plane itself does not wait: where no kubelet has to move in a hop, the steps
    /// of the next hop begin at once, and only its end is waited for. Default 0.
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
    /// The time of the day at which the window starts, such as `22:00`. On a day on which clocks are set forward past that
    /// time, the window starts as much later; on a day on which clocks show that time twice, it starts at the first.
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
    /// The first day of the freeze, such as `2026-12-18`; or the time at which it begins, such as `2026-12-18T18:00` or
    /// `2026-12-18T18:00:00Z`.
    #[schemars(schema_with = "checks::day_or_time")]
    pub from: String,
    /// The last day of the freeze, which counts to its end; or the time at which the freeze is over.
    #[schemars(schema_with = "checks::day_or_time")]
    pub until: String,
    /// The time zone of `from` and `until`, such as `Europe/Berlin`. Default `UTC`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

/// An object, and the condition that it must have before anything new is begun.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The gate's name; no other gate has it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The object whose condition is read.
    pub object: GateObject,
    /// The condition that the object must have in its `status.conditions`.
    pub condition: GateCondition,
}

/// An object of the cluster, of any kind.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GateObject {
    /// The `apiVersion` of the object, such as `example.com/v1` or `v1`.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// The kind of the object, such as `ServiceLevel`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The namespace of the object. It is left out where objects of the kind are in no namespace.
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
    /// The type of the condition, such as `Healthy`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// The status that the condition must have: `True`, `False` or `Unknown`. Default `True`.
    #[serde(default = "yes")]
    #[schemars(extend("enum" = ConditionStatus::ALL.map(ConditionStatus::name)))]
    pub status: String,
}

fn yes() -> String {
    ConditionStatus::True.name().to_owned()
}

/// At how many failed or parked nodes nothing new is begun. Both count all selected nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// When this many nodes have failed, nothing new is begun, and the upgrade is stalled. The value is a number, or a
    /// percentage of the selected nodes (rounded down, at least one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "checks::amount")]
    pub max_failed: Option<IntOrString>,
    /// When this many nodes are parked because their drain did not end, nothing new is begun, no parked node is tried
    /// again, and the upgrade is stalled. The value is a number, or a percentage of the selected nodes (rounded down, at
    /// least one). Nodes do not count that were not begun, because they could not be drained anyway, or that may stay behind
    /// by `acceptedRisks`.
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

/// A group of nodes that are upgraded alike.
// That `dependsOn` names groups of this upgrade would cost a server more than it lets one rule cost; `validate` says it.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.dependsOn) || !(self.name in self.dependsOn)").message("`dependsOn` must name other groups; take the name of the group itself out"))]
pub struct NodeGroup {
    /// The group's name; no other group has it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The labels of the nodes that the group selects; `{}` selects all nodes.
    pub selector: LabelSelector,
    /// The name of the UpgradeExecutor that changes the kubelets of this group.
    #[schemars(length(min = 1, max = 63))]
    pub executor: String,
    /// How many nodes of the group may be unavailable at once: a number, or a percentage of the group (rounded down,
    /// at least one). Nodes that are unavailable for any other reason count as well. Default 1.
    #[serde(default = "one")]
    #[schemars(schema_with = "checks::amount")]
    pub max_unavailable: IntOrString,
    /// The groups that have to be done, and their upgraded nodes ready, before a node of this group is taken up, and with them
    /// the groups that these depend on. Nodes that a person holds keep nobody waiting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub depends_on: Vec<String>,
    /// Whether nodes of this group may be away in several zones at once (label `topology.kubernetes.io/zone`).
    /// `OneAtATime`: a zone begins when every node of the zone before is done, but for those that are parked or held. Default
    /// `Any`.
    #[serde(default)]
    pub zones: Zones,
    /// How many nodes of the group go first. The others wait while fewer nodes of the group than that run the version and are
    /// ready. Default 0.
    #[serde(default)]
    #[schemars(schema_with = "checks::canaries")]
    pub canary: i32,
    /// How long others wait, in seconds: the groups that depend on this one once it is done, and its other nodes once
    /// its canaries run the version. The time counts from when that is first seen, and begins anew when one of those nodes
    /// goes back to another version meanwhile. Default 0.
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
