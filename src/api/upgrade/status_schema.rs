//! The schema of a `ClusterUpgrade`'s status: what the operator says of it, and what it has to remember.
//!
//! The comments on these fields are what `kubectl explain` prints. The invariant: every list has a bound, so that the
//! object stays small however large the cluster is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::waits::{self, WaitingFor};

/// Whether a number is what an absent field means.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// How far the upgrade is.
// The default stands until the first status is written. kstatus takes an object without a status for done.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = { "observedGeneration": -1 }))]
pub struct ClusterUpgradeStatus {
    /// The generation of the spec that this status is about; -1 until the first one is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What this upgrade does, and in which order. An approval names the hash of this plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// How many of the nodes are upgraded.
    #[serde(default)]
    pub progress: NodeProgress,
    /// The control-plane components that were seen. No further kubelet is upgraded while one of them is missing, until
    /// its Node is gone or another instance has taken its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub control_plane: Vec<SeenComponent>,
    /// Since when something is done that others wait for: for `soakSeconds`, and for 15 s for `Controllers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 160), extend("x-kubernetes-list-type" = "atomic"))]
    pub soaks: Vec<Soak>,
    /// What the upgrade waits for: first what needs a person, then what is blocked, then what is under way.
    #[serde(default, deserialize_with = "waits::read")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub waiting_for: Vec<WaitingFor>,
    /// How many more there are than `waitingFor` lists.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_for_omitted: i32,
    /// Nodes that are out of the rollout for now, with the reason.
    #[serde(default)]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub parked: Vec<ParkedNode>,
    /// How many more nodes are out of the rollout than `parked` lists.
    #[serde(default)]
    pub parked_omitted: i32,
    /// When the upgrade began its first work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When every selected component ran the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The last ten upgrades that this object was complete for; the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<PastUpgrade>,
    /// `Ready`, `Reconciling`, `Stalled` (kstatus), `AwaitingApproval`, `Paused`, `DrainBlocked`, `PreflightPassed`.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Something that is done, and that others wait for.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Soak {
    /// What: `ControlPlane`, `Controllers`, `Group`, or `Canaries` (of a group).
    pub kind: String,
    /// The name of the node group, where it is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version that it reached.
    pub version: String,
    /// Since when.
    pub done_time: Time,
}

/// What an upgrade does, and in which order.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What an approval names: 32 hex digits computed from everything in `spec` that changes what is done or when, from the
    /// version that the upgrade began at, from the versions on the way, and from the executors. Names of
    /// windows, freezes and gates, reasons, `mode` and `suspend` are no part of it.
    pub hash: String,
    /// The oldest kube-apiserver's version when the plan was made.
    pub from: String,
    /// The version that the upgrade goes to.
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
    /// How many hops are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hops_omitted: i32,
    /// The waves of nodes that are left, in order; those of one group go one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub waves: Vec<PlanWave>,
    /// How many waves are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waves_omitted: i32,
    /// About how long the rest takes when nothing is in its way: by what this upgrade's own components and nodes took,
    /// where three of a kind are done, else a guess. Windows, freezes, soaks, gates and parked nodes are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<PlanEstimate>,
    /// What stands in the way or should be known, the gravest first, with what will keep nodes from being drained.
    /// `evenkeel plan` shows all.
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
    /// Why this plan must not begin on this cluster, one line each.
    #[serde(default)]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub blockers: Vec<String>,
    /// How many more lines there are than `blockers` lists.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blockers_omitted: i32,
}

/// The way of the whole cluster to one minor, or to another patch of its minor.
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
    /// About how long the rest of it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<PlanEstimate>,
}

/// Nodes of one group that may be under way at the same time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlanWave {
    /// The minor that they go to, such as `1.37`.
    pub hop: String,
    /// Their node group.
    pub group: String,
    /// They go first, before the others of their group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub canary: bool,
    /// Their zone, where zones go one after the other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// How many nodes are left to move.
    pub nodes: i32,
    /// How many of the group may be unavailable at once.
    pub at_once: i32,
    /// The wave takes longer in half of all cases, in seconds.
    pub p50_seconds: i64,
    /// The wave takes longer in one of ten cases, in seconds.
    pub p90_seconds: i64,
}

/// About how long something takes, in seconds, rounded up to a minute.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlanEstimate {
    /// At least so long: `evenkeel plan` says what sets it.
    pub least_seconds: i64,
    /// It takes longer in half of all cases.
    pub p50_seconds: i64,
    /// It takes longer in one of ten cases.
    pub p90_seconds: i64,
}

/// An upgrade that this object was complete for.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PastUpgrade {
    /// The oldest kube-apiserver's version before.
    pub from: String,
    /// The version that it went to.
    pub to: String,
    /// The hash of the plan that was carried out.
    pub plan_hash: String,
    /// When the upgrade began its first work.
    pub start_time: Time,
    /// When every selected component ran the target.
    pub completion_time: Time,
    /// How many of the selected nodes ran the target then.
    pub nodes: i32,
}

/// Something that stands in the way of a plan, or that should be known of it.
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

/// One stage of a plan: components of one kind, or nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlanStage {
    /// `UpgradingApiservers`, `UpgradingControllers` or `UpgradingNodes`.
    pub name: String,
    /// How many components or nodes belong to the stage.
    pub total: i32,
    /// How many of them are done: a component runs the target and is ready; a node runs the target and is not cordoned
    /// by an upgrade.
    pub upgraded: i32,
}

/// How far the nodes are.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeProgress {
    /// How many of the selected nodes are upgraded, such as `412/5000`.
    #[serde(default)]
    pub summary: String,
    /// How many of the selected nodes run the target and are not cordoned by an upgrade.
    #[serde(default)]
    pub upgraded: i32,
    /// How many nodes the node groups select.
    #[serde(default)]
    pub selected: i32,
    /// How many nodes are claimed, draining or being upgraded.
    #[serde(default)]
    pub in_flight: i32,
    /// How many nodes are parked because their drain is blocked.
    #[serde(default)]
    pub blocked: i32,
    /// How many nodes failed: their executor failed, or was not done in time.
    #[serde(default)]
    pub failed: i32,
    /// About how long the rest takes, closed windows, freezes and soaks included, such as `3h5m` or `2d4h`; empty where nothing
    /// moves by itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub eta: String,
}

/// A control-plane component that was seen.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SeenComponent {
    /// Which component it is: `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or
    /// `cloud-controller-manager`.
    pub component: String,
    /// The name of its Node, or its own name where no Node is visible.
    pub name: String,
    /// UID of that Node.
    #[serde(default, rename = "nodeUID", skip_serializing_if = "String::is_empty")]
    pub node_uid: String,
}

/// A node that is out of the rollout for now.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ParkedNode {
    /// The name of the node.
    pub node: String,
    /// `Parked` (its drain is blocked), `Failed` (its executor failed) or `Held` (somebody or something else holds it).
    pub state: String,
    /// Since when the node is out, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why the node is out, in one line.
    pub reason: String,
}
