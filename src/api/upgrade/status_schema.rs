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
    /// The plan: what this upgrade does, and in which order. An approval names its hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// How many of the nodes are upgraded.
    #[serde(default)]
    pub progress: NodeProgress,
    /// The control-plane components that were seen. No further kubelet is upgraded while one of them is missing. A component
    /// stops being missing when it is seen again, when its Node is gone, or when another instance has taken its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub control_plane: Vec<SeenComponent>,
    /// The controllers that lead, or led, where nothing shows their version, and that were not seen since. Unless
    /// `controlPlane.hidden` is `Accept`, no kubelet is upgraded while one is listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub hidden_controllers: Vec<String>,
    /// Parts of the upgrade that are done, each with the time since when. What comes after such a part waits for the
    /// `soakSeconds` that the spec sets for it, and after `Controllers` for 15 seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 160), extend("x-kubernetes-list-type" = "atomic"))]
    pub soaks: Vec<Soak>,
    /// What has lasted for so long that a person is called. Whoever leads next goes by it, for as long as it is still so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub lasting: Vec<LastingTrouble>,
    /// What the upgrade waits for: first what condition `Ready` says, then what is blocked, then what is under way.
    #[serde(default, deserialize_with = "waits::read")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub waiting_for: Vec<WaitingFor>,
    /// How many further waits were found that `waitingFor` does not list. Nodes that were not looked at, because others wait
    /// before them, are not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_for_omitted: i32,
    /// The nodes that are out of the rollout for now, each with the reason. Where there are too many, failed nodes are kept
    /// first, then parked ones, then held ones.
    #[serde(default)]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub parked: Vec<ParkedNode>,
    /// How many more nodes are out of the rollout than `parked` lists.
    #[serde(default)]
    pub parked_omitted: i32,
    /// When the upgrade began its first work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When every selected component was first seen at the target version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The generation of the spec that was last found complete. Another one is complete only if its plan is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_generation: Option<i64>,
    /// The last ten upgrades that this object completed; the newest comes last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<PastUpgrade>,
    /// The conditions of the upgrade: `Ready`, `Reconciling` and `Stalled`, which kstatus reads, and `AwaitingApproval`,
    /// `Paused`, `DrainBlocked` and `PreflightPassed`.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A part of the upgrade that is done, and after which others wait.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Soak {
    /// What was done: `ControlPlane` (all of it), `Controllers` (where no NodeUpgrade says since when one of them runs),
    /// `Group` (every node of a node group) or `Canaries` (those of a node group).
    pub kind: String,
    /// The name of the node group, where `kind` is `Group` or `Canaries`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version that was reached.
    pub version: String,
    /// Since when it has been done.
    pub done_time: Time,
}

/// Something that may end by itself, and has lasted for so long that a person is called.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LastingTrouble {
    /// What it is: `PlanBlocked`, `Undrainable`, `ControllerIdle`, `ComponentAway` or `StaticPodAway`.
    pub reason: String,
    /// What it is about: a node, a controller, a component and its node, or a pod and its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// What an upgrade does, and in which order.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The hash of the plan, which an approval names. It is 32 hex digits, computed from everything in `spec` that changes
    /// what is done or when, from the version that the upgrade began at, from the versions on the way, and from the
    /// executors. Names of windows, freezes and gates, reasons, `mode` and `suspend` are no part of it.
    pub hash: String,
    /// The version of the oldest kube-apiserver when the plan was made.
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
    /// The hops that are left, in order. Each takes the control plane one minor further, or to another patch of its minor, and
    /// moves the kubelets that have to move then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub hops: Vec<PlanHop>,
    /// How many more hops are left than `hops` lists.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hops_omitted: i32,
    /// The nodes that are left, in waves, in order. A wave is of nodes of one group that may be under way at the same time; the
    /// waves of one group go one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub waves: Vec<PlanWave>,
    /// How many more waves are left than `waves` lists.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waves_omitted: i32,
    /// About how long the rest of the upgrade takes when nothing is in its way. It is reckoned from what this upgrade's own
    /// components and nodes took, where three of a kind are done, and else from guesses. Windows, freezes, soaks, gates and
    /// parked nodes are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<PlanEstimate>,
    /// What stands in the way of the plan or should be known of it, the gravest first, with what will keep nodes from being
    /// drained. `evenkeel plan` shows all findings but `E2`, for which only the operator asks the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub findings: Vec<PlanFinding>,
    /// How many more findings there are than `findings` lists.
    #[serde(default)]
    pub findings_omitted: i32,
    /// The stages of the current hop, in order.
    #[serde(default)]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub stages: Vec<PlanStage>,
    /// Why this plan must not be carried out on the cluster as it is now, one line each.
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
    /// The version that the control plane runs when the hop is done.
    pub version: String,
    /// How many steps of the control plane are left in the hop.
    pub steps: i32,
    /// How many nodes are left to move in the hop.
    pub nodes: i32,
    /// What somebody else has to have moved before the hop begins, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "atomic"))]
    pub needs: Vec<String>,
    /// About how long the rest of the hop takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<PlanEstimate>,
}

/// Nodes of one group that may be under way at the same time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlanWave {
    /// The minor that the nodes of the wave go to, such as `1.37`.
    pub hop: String,
    /// The name of the node group that the nodes of the wave belong to.
    pub group: String,
    /// Whether the nodes of the wave go first, before the others of their group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub canary: bool,
    /// The zone of the nodes of the wave, where zones go one after the other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// How many nodes of the wave are left to move.
    pub nodes: i32,
    /// How many nodes of the group may be unavailable at once.
    pub at_once: i32,
    /// The median of the expected time of the wave, in seconds.
    pub p50_seconds: i64,
    /// The time within which the wave is done in nine of ten cases, in seconds.
    pub p90_seconds: i64,
}

/// About how long something takes, in seconds, rounded up to a minute.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlanEstimate {
    /// The shortest time that is possible, in seconds. `evenkeel plan` says what sets it.
    pub least_seconds: i64,
    /// The median of the expected time, in seconds.
    pub p50_seconds: i64,
    /// The time that is enough in nine of ten cases, in seconds.
    pub p90_seconds: i64,
}

/// An upgrade that this object completed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PastUpgrade {
    /// The version of the oldest kube-apiserver before the upgrade.
    pub from: String,
    /// The version that the upgrade went to.
    pub to: String,
    /// The hash of the plan that was carried out.
    pub plan_hash: String,
    /// When the upgrade began its first work.
    pub start_time: Time,
    /// When every selected component was first seen at the target version.
    pub completion_time: Time,
    /// How many of the selected nodes ran the target version at that time.
    pub nodes: i32,
}

/// Something that stands in the way of a plan, or that should be known of it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlanFinding {
    /// The id of the finding: a code, and the object that it is about. `spec.acceptedRisks` names findings by it.
    pub id: String,
    /// What the finding does to the plan. `blocks`: nothing may begin. `stops`: the upgrade begins, and stops there or leaves
    /// nodes behind. `warns`: the finding costs something, or should only be known.
    pub weight: String,
    /// The problem in one line, and how to solve it.
    pub message: String,
    /// The reason of the person who accepted the finding, where somebody did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub accepted: String,
}

/// One stage of a plan: components of one kind, or nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlanStage {
    /// The name of the stage: `UpgradingApiservers`, `UpgradingControllers` or `UpgradingNodes`.
    pub name: String,
    /// How many components or nodes belong to the stage.
    pub total: i32,
    /// How many components or nodes of the stage are done. A component is done when it runs the target version and is ready; a
    /// node is done when it runs the target version and is not cordoned by an upgrade.
    pub upgraded: i32,
}

/// How far the nodes are.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeProgress {
    /// How many of the selected nodes are upgraded, such as `412/5000`.
    #[serde(default)]
    pub summary: String,
    /// How many of the selected nodes run the target version and are not cordoned by an upgrade.
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
    /// About how long the rest of the upgrade takes, closed windows, freezes and soaks included, such as `3h5m` or `2d4h`. Empty
    /// where nothing moves by itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub eta: String,
}

/// A control-plane component that was seen.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SeenComponent {
    /// The name of the component: `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or
    /// `cloud-controller-manager`.
    pub component: String,
    /// The name of the component's Node, or of the component itself where no Node is visible.
    pub name: String,
    /// The UID of the component's Node, where one is visible.
    #[serde(default, rename = "nodeUID", skip_serializing_if = "String::is_empty")]
    pub node_uid: String,
}

/// A node that is out of the rollout for now.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ParkedNode {
    /// The name of the node.
    pub node: String,
    /// In which way the node is out: `Parked` (it cannot be drained, or its drain did not end), `Failed` (its executor failed
    /// or took too long) or `Held` (somebody or something else holds it).
    pub state: String,
    /// Since when the node is out, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why the node is out, in one line.
    pub reason: String,
}
