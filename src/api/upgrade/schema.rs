//! The schema of `ClusterUpgrade`, its columns and rules.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    validation = Rule::new("self.metadata.name.size() <= 63").message("the name must be at most 63 characters, because it is part of other names"),
    printcolumn(name = "From", type_ = "string", json_path = ".status.plan.from"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress.summary", description = "Upgraded nodes of all selected nodes"),
    printcolumn(name = "Blocked", type_ = "integer", json_path = ".status.progress.blocked", description = "Nodes parked because their drain is blocked"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.progress.failed"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "In Flight", type_ = "integer", json_path = ".status.progress.inFlight", priority = 1),
    printcolumn(name = "Plan", type_ = "string", json_path = ".status.plan.hash", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.controlPlane.executor in self.executors.map(e, e.name)").message("`controlPlane.executor` must name one of `executors`"))]
#[x_kube(validation = Rule::new("self.nodeGroups.all(g, g.executor in self.executors.map(e, e.name))").message("`nodeGroups[].executor` must name one of `executors`"))]
pub struct ClusterUpgradeSpec {
    /// Where the control plane goes, and in the end every selected kubelet: such as `v1.37.1`. Never a downgrade. A
    /// target that is several minors away is reached one minor after the other.
    #[schemars(length(max = 64), regex(pattern = r"^v1\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$"))]
    pub version: String,
    /// The versions of the minors on the way to a target that is several minors away, one of each minor, such as
    /// `v1.36.4`. For a minor that is not named here, the plan takes the newest release that this program knows;
    /// `status.plan.via` says which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64), regex(pattern = r"^v1\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$")), extend("x-kubernetes-list-type" = "set"))]
    pub via: Vec<String>,
    /// When work begins: `PlanOnly` never, `RequireApproval` when `approval.planHash` equals `status.plan.hash`,
    /// `Automatic` at once.
    #[serde(default)]
    pub mode: Mode,
    /// The approval that `mode: RequireApproval` waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// True stops all new disruption at once: nodes that are draining are given back, nodes whose kubelet is being
    /// upgraded are finished.
    #[serde(default)]
    pub suspend: bool,
    /// How the control plane is upgraded.
    pub control_plane: ControlPlane,
    /// Which nodes take part, and how many at once. A node belongs to the first group that selects it; nodes that no
    /// group selects are left alone.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub node_groups: Vec<NodeGroup>,
    /// How nodes are drained.
    #[serde(default)]
    pub drain: Drain,
    /// Findings of the plan that you take upon you, each with an end and a reason. What would break the version skew
    /// policy cannot be accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["finding"]))]
    pub accepted_risks: Vec<AcceptedRisk>,
    /// Who changes versions; Evenkeel only decides when.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub executors: Vec<ExecutorSpec>,
}

/// A finding that a person takes upon them.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedRisk {
    /// The finding's id, as `evenkeel plan` and `status.plan.findings` show it.
    #[schemars(length(min = 1, max = 512))]
    pub finding: String,
    /// The last day on which it is accepted, in UTC, such as `2026-12-01`; or a time, such as `2026-12-01T18:00:00Z`.
    #[schemars(length(max = 40), regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?$"))]
    pub until: String,
    /// Why, for those who read the plan.
    #[schemars(length(min = 1, max = 512))]
    pub reason: String,
}

/// When work begins.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The plan is shown and nothing is done.
    PlanOnly,
    /// Work begins when the plan's hash is approved.
    #[default]
    RequireApproval,
    /// Work begins at once.
    Automatic,
}

/// An approval.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The hash of the plan that may be carried out: `status.plan.hash`.
    #[schemars(regex(pattern = "^[0-9a-f]{12}$"))]
    pub plan_hash: String,
}

/// How the control plane is upgraded.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    /// What changes together. `Component`: each binary on its own.
    #[serde(default)]
    pub unit: Unit,
    /// Which of `executors` changes control-plane components.
    #[schemars(length(max = 63))]
    pub executor: String,
    /// What is done about a controller that leads where nothing shows its version, as on a managed control plane.
    /// `Refuse`: no kubelet moves. `Accept`: you know that it runs the target.
    #[serde(default)]
    pub hidden: Hidden,
}

/// What is done about controllers whose version nothing shows.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// No kubelet moves.
    #[default]
    Refuse,
    /// A person answers for them.
    Accept,
}

/// What changes together.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Each binary on its own.
    #[default]
    Component,
}

/// Nodes that are upgraded alike.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// The group's name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Which nodes; `{}` selects all.
    pub selector: LabelSelector,
    /// Which of `executors` changes the kubelets of this group.
    #[schemars(length(max = 63))]
    pub executor: String,
    /// How many nodes of the group may be unavailable at once: a number, or a percentage of the group (rounded down,
    /// at least one). Nodes that are unavailable for any other reason count. Default 1.
    #[serde(default = "one")]
    #[schemars(schema_with = "amount_schema")]
    pub max_unavailable: IntOrString,
}

fn one() -> IntOrString {
    IntOrString::Int(1)
}

fn amount_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        // For the cost estimate of the rule; no longer text is allowed by it either.
        "maxLength": 4,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? int(self) >= 1 && int(self) <= 5000 : string(self).matches('^([1-9][0-9]?|100)%$')",
            "message": "must be a number of at least 1, or a percentage such as `10%`"
        }]
    })
}

/// A label selector, as everywhere in Kubernetes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must be equal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelExpression>,
}

/// One term of a selector.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LabelExpression {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: LabelOperator,
    /// The values of `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// Its value is one of `values`.
    In,
    /// It is absent or its value is none of `values`.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// How nodes are drained.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// How long the drain of one node may take, in seconds. Default 1800.
    #[serde(default = "half_an_hour")]
    #[schemars(range(min = 10, max = 604_800))]
    pub timeout_seconds: i32,
    /// What happens then. `Park`: the node is uncordoned and named with what blocks it, the others go on, and it is
    /// tried again.
    #[serde(default)]
    pub on_timeout: OnTimeout,
}

fn half_an_hour() -> i32 {
    1800
}

impl Default for Drain {
    fn default() -> Self {
        Self { timeout_seconds: half_an_hour(), on_timeout: OnTimeout::default() }
    }
}

/// What happens when a drain does not end in time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// The node is given back and tried again.
    #[default]
    Park,
}

/// Who changes versions. Exactly one of `job` and `external`.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.job) != has(self.external)").message("exactly one of `job` and `external` must be set"))]
pub struct ExecutorSpec {
    /// The name by which it is referred to.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// A Job on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobExecutor>,
    /// Somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalExecutor>,
}

/// A Job that runs on the node after it was drained.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct JobExecutor {
    /// The pod to run, as in `batch/v1` Job `spec.template`. Evenkeel binds it to the node, tolerates every taint,
    /// and sets the environment variables `EVENKEEL_NODE`, `EVENKEEL_COMPONENT`, `EVENKEEL_FROM` and `EVENKEEL_TO`.
    #[schemars(schema_with = "any_object")]
    pub template: Value,
    /// How long it may take, in seconds, from when the Job is made until the new version is observed. Default 3600.
    #[serde(default = "an_hour")]
    #[schemars(range(min = 1, max = 86_400))]
    pub deadline_seconds: i32,
}

fn an_hour() -> i32 {
    3600
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A cloud, Ansible, Terraform or a person changes the version when the `NodeUpgrade` is at state `Upgrading`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExternalExecutor {
    /// How long it may take, in seconds, until the new version is observed. Default 7200.
    #[serde(default = "two_hours")]
    #[schemars(range(min = 1, max = 604_800))]
    pub deadline_seconds: i32,
}

fn two_hours() -> i32 {
    7200
}

/// How far the upgrade is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What will be or is being done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// How far it is.
    #[serde(default)]
    pub progress: Progress,
    /// The control-plane components that were seen. Kubelets wait while one of them is missing, until its Node is gone or
    /// another has taken its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub control_plane: Vec<SeenComponent>,
    /// What it waits for now, the most telling first.
    #[serde(default)]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub waiting_for: Vec<String>,
    /// Nodes that are out of the rollout for now, with the reason.
    #[serde(default)]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub parked: Vec<ParkedNode>,
    /// How many such nodes are not listed.
    #[serde(default)]
    pub parked_omitted: i32,
    /// When the first work was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When everything selected was at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// `Ready`, `Reconciling`, `Stalled` (kstatus), `AwaitingApproval`, `Paused`, `DrainBlocked`, `PreflightPassed`.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What will be or is being done.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What an approval is bound to: 12 hex digits over the versions, groups, executors and drain options.
    pub hash: String,
    /// The oldest kube-apiserver's version when the plan was made.
    pub from: String,
    /// The target.
    pub to: String,
    /// The versions of the minors on the way, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub via: Vec<String>,
    /// The version that the cluster goes to now: one of `via`, or `to`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hop: String,
    /// What is left to do, in order: the control plane one minor at a time, and kubelets where they must move.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub hops: Vec<PlanHop>,
    /// What stands in the way or should be known, the gravest first. `evenkeel plan` shows all, and what would keep
    /// nodes from being drained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub findings: Vec<PlanFinding>,
    /// How many findings are not listed.
    #[serde(default)]
    pub findings_omitted: i32,
    /// The stages, in order.
    #[serde(default)]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub stages: Vec<PlanStage>,
    /// Why it must not be begun on this cluster, one line each.
    #[serde(default)]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub blockers: Vec<String>,
}

/// One hop.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlanHop {
    /// What the control plane runs when it is done.
    pub version: String,
    /// Steps of the control plane that are left.
    pub steps: i32,
    /// Nodes that are left to move.
    pub nodes: i32,
    /// What others have to have moved before it begins, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "atomic"))]
    pub needs: Vec<String>,
}

/// One thing that stands in the way or should be known.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlanFinding {
    /// The rule and what it is about. An accepted risk names it.
    pub id: String,
    /// `blocks`: nothing may begin. `stops`: it begins, and stops there or leaves nodes behind. `warns`: it costs
    /// something, or is only to be known.
    pub weight: String,
    /// What is so, and what to do.
    pub message: String,
    /// Why a person took it upon them, if one did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub accepted: String,
}

/// One stage.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlanStage {
    /// `UpgradingApiservers`, `UpgradingControllers` or `UpgradingNodes`.
    pub name: String,
    /// How many there are to move in all.
    pub total: i32,
    /// How many run the target.
    pub upgraded: i32,
}

/// How far the nodes are.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// `upgraded/selected`.
    #[serde(default)]
    pub summary: String,
    /// Nodes at the target.
    #[serde(default)]
    pub upgraded: i32,
    /// Nodes that take part.
    #[serde(default)]
    pub selected: i32,
    /// Claimed, draining or being upgraded.
    #[serde(default)]
    pub in_flight: i32,
    /// Parked because their drain is blocked.
    #[serde(default)]
    pub blocked: i32,
    /// Whose executor failed.
    #[serde(default)]
    pub failed: i32,
}

/// A control-plane component that was seen.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SeenComponent {
    /// Which: `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or `cloud-controller-manager`.
    pub component: String,
    /// Its Node, or its own name where no Node is visible.
    pub name: String,
    /// UID of that Node.
    #[serde(default, rename = "nodeUID", skip_serializing_if = "String::is_empty")]
    pub node_uid: String,
}

/// A node that is out of the rollout for now.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ParkedNode {
    /// The node.
    pub node: String,
    /// `Parked`, `Failed` or `Held`.
    pub state: String,
    /// Since when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why, in one line.
    pub reason: String,
}
