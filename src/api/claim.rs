//! `NodeUpgrade`: the claim, written before the Node is touched.
//!
//! Here belong its schema and the way between a stored claim and the core's value; the core decides what
//! becomes of a claim. The invariant: a stored claim whose state or target version cannot be read is an error, never a
//! guess.

use std::sync::Arc;

use evenkeel_core::cluster::Component;
use evenkeel_core::plan::Stage;
use evenkeel_core::rollout::{
    AskedExecutor, Before, Blocker, Claim, ClaimState, JobState, Subject, UnreadableClaim,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use kube::{CustomResource, KubeSchema, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds::{MAX_LINE, short};
use super::conditions::{ConditionType, Kstatus, conditions};
use super::upgrade::FINALIZER;

/// The words for what an executor was.
const JOB: &str = "Job";
const EXTERNAL: &str = "External";

/// A NodeUpgrade is the claim on one component of one node, or on the control plane of one node as a whole, that the
/// operator records before it touches the node. The operator keeps it while the component is on its way to a version,
/// parked or failed, and for a while after. Deleting it has the component tried again. Before the NodeUpgrade goes, a node
/// that is draining is made schedulable, and what is being upgraded is finished; a node that failed stays cordoned until a
/// person uncordons it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "NodeUpgrade",
    plural = "nodeupgrades",
    shortname = "nup",
    category = "upgrades",
    doc = "A NodeUpgrade is the claim on one component of one node, or on the control plane of one node as a whole, that the operator records before it touches the node. The operator makes it; deleting it has the component tried again. Before the NodeUpgrade goes, a node that is draining is made schedulable, and what is being upgraded is finished; a node that failed stays cordoned until a person uncordons it.",
    status = "NodeUpgradeStatus",
    derive = "PartialEq",
    selectable = ".spec.nodeName",
    selectable = ".spec.upgradeName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Component", type_ = "string", json_path = ".spec.component"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "From", type_ = "string", json_path = ".spec.fromVersion"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.toVersion"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Attempt", type_ = "integer", json_path = ".status.attempt", priority = 1),
    printcolumn(name = "Components", type_ = "string", json_path = ".spec.components", priority = 1),
    printcolumn(name = "Executor", type_ = "string", json_path = ".spec.executor", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("a claim must not be changed; delete it to give the node back"))]
pub struct NodeUpgradeSpec {
    /// The name of the ClusterUpgrade that the claim belongs to.
    pub upgrade_name: String,
    /// The UID of the ClusterUpgrade that the claim belongs to. Another object of the same name is another upgrade.
    #[serde(default, rename = "upgradeUID")]
    pub upgrade_uid: String,
    /// Which component moves: `kubelet`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or
    /// `cloud-controller-manager`. Where several move together, this is the first of them.
    #[schemars(schema_with = "component_schema")]
    pub component: Component,
    /// The components that move together, in this order, as one step of the node's control plane (`controlPlane.unit:
    /// Node`). Empty where `component` moves alone. The step is done when each of them is observed at `toVersion`, ready and
    /// restarted, and the executor's Job, if there is one, is complete. The node is not cordoned, even where the kubelet
    /// is one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "components_schema")]
    pub components: Vec<Component>,
    /// The name of the node, or of the instance itself where the node of a control-plane component is not visible.
    pub node_name: String,
    /// The UID that the Node had when it was claimed. A Node re-created under the same name is another node.
    #[serde(default, rename = "nodeUID")]
    pub node_uid: String,
    /// The version that the component ran when it was claimed. Where several components move together, it is that of the
    /// first.
    pub from_version: String,
    /// The version that the component goes to.
    pub to_version: String,
    /// The name of the UpgradeExecutor that changes the version.
    pub executor: String,
}

fn moved() -> Vec<&'static str> {
    let moved = Component::ALL.into_iter().filter(|component| Stage::of(*component).is_some());
    moved.map(Component::name).collect()
}

fn component_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": moved() })
}

fn components_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let item = schemars::json_schema!({ "type": "string", "enum": moved() });
    schemars::json_schema!({
        "type": "array", "items": item, "maxItems": moved().len(), "x-kubernetes-list-type": "atomic",
    })
}

/// How far the claim is.
// The default stands until the first status is written. kstatus takes an object without a status for done.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = { "observedGeneration": -1 }))]
pub struct NodeUpgradeStatus {
    /// The generation of the claim that this status is about; -1 until the first one is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state of the claim: `Claimed`, `Draining`, `Upgrading` (the executor may work), `Upgraded`, `Parked` or `Failed`.
    #[serde(default)]
    pub state: String,
    /// Since when the claim has been in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// What the claim waits for, or why it is in this state, in one line.
    #[serde(default)]
    pub message: String,
    /// How many times the upgrade of this component was tried, the present try included.
    #[serde(default)]
    pub attempt: i32,
    /// When a parked node is tried again, if nothing visible blocks its drain then. In its first three attempts it is
    /// tried earlier, as soon as what blocked it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_time: Option<Time>,
    /// The marks of the process that ran before the upgrade, by which its restart is seen: the kubelet's last heartbeat; or the
    /// build, container, lease holder and pod of a control-plane component, as far as they are visible. Empty where several
    /// components move together.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation_before: String,
    /// The components that move together, where several do, each with the marks of its process before the upgrade, by which
    /// its restart is seen. A component that was at the target version already is left out, because it need not restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["component"]))]
    pub components_before: Vec<ComponentBefore>,
    /// `DaemonSets` whose pod on the node was not ready before the executor began, as `namespace/name`. After the
    /// upgrade the operator does not wait for those pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub not_ready_before: Vec<String>,
    /// The static pods of the control-plane node before the executor began, as `namespace/name`. Afterwards each has to be
    /// back and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub static_pods_before: Vec<String>,
    /// What the UpgradeExecutor was when it was asked: `Job` or `External`. A later change of the UpgradeExecutor does not
    /// change this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub executor_kind: String,
    /// Until when the new version has to be observed, by the deadline that the UpgradeExecutor had when it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_time: Option<Time>,
    /// Since when the kubelet of a control-plane node is observed at the target version. The kubelet restarts the node's
    /// static pods some time after that; the node is upgraded when they are back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_time: Option<Time>,
    /// Since when no pod can leave the draining node without a person's help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled_time: Option<Time>,
    /// The first few pods that keep the node from being drained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub blocked_by: Vec<BlockedBy>,
    /// How the executor's Job of this attempt stood when the claim was done or failed. This is kept when the Job is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobResult>,
    /// The conditions of the claim: `Ready` (the component is upgraded), `Reconciling` (the claim goes on by itself) and
    /// `Stalled` (only a person can let it go on). Their reason is the state.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// How an executor's Job ended.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// The name of the Job, which is in the namespace of executors.
    pub name: String,
    /// How the Job ended: `Complete` or `Failed`, as its condition said, or `Running` where its time was over before it had
    /// either condition.
    pub result: String,
    /// The message of the Job's condition `Failed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One component, as it was before its executor began.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentBefore {
    /// The name of the component, such as `kube-scheduler`.
    #[schemars(schema_with = "component_schema")]
    pub component: Component,
    /// The marks of the component's process before the upgrade, by which its restart is seen.
    #[serde(default)]
    pub incarnation: String,
}

/// One pod that does not leave.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BlockedBy {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// The PodDisruptionBudget that keeps the pod, as `namespace/name`, where one does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_disruption_budget: String,
    /// Why the pod does not leave, in one line.
    pub reason: String,
}

/// What is wrong with a stored claim that nobody but us should have written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("NodeUpgrade {name} {why}")]
pub struct BadClaim {
    name: String,
    /// What is wrong, and what a person can do.
    why: String,
}

/// What a person can do about a claim that cannot be read.
const DELETE_IT: &str = "delete the NodeUpgrade to have it made anew: a node that it cordoned stays cordoned";

/// Those of `finalizers` that are not ours.
fn finalizers_of_others(finalizers: &[String]) -> Vec<Arc<str>> {
    finalizers.iter().filter(|name| *name != FINALIZER).map(|name| name.as_str().into()).collect()
}

/// The core's value of a stored claim that cannot be read, for the reason `why`.
pub fn unreadable_claim(object: &DynamicObject, why: String) -> UnreadableClaim {
    let stated = |field: &str| object.data["spec"][field].as_str().map(Arc::from);
    UnreadableClaim {
        name: object.name_any().into(),
        uid: object.uid().unwrap_or_default().into(),
        resource_version: object.resource_version().unwrap_or_default().into(),
        ending: object.metadata.deletion_timestamp.is_some(),
        finalizers: finalizers_of_others(object.finalizers()),
        upgrade: stated("upgradeName").unwrap_or_default(),
        place: stated("nodeName"),
        goes: false,
        why,
    }
}

/// What was there before the executor began, as it is stored.
fn before_of(status: &NodeUpgradeStatus) -> Before {
    let names = |stored: &[String]| stored.iter().map(|name| name.as_str().into()).collect();
    let part = |part: &ComponentBefore| (part.component, part.incarnation.as_str().into());
    let asked = |until: &Time| AskedExecutor { job: status.executor_kind == JOB, until: until.0 };
    Before {
        incarnation: status.incarnation_before.as_str().into(),
        parts: status.components_before.iter().map(part).collect(),
        not_ready: names(&status.not_ready_before),
        static_pods: names(&status.static_pods_before),
        asked: status.deadline_time.as_ref().map(asked),
    }
}

/// `told`, which also stores what was there `before` the executor began.
fn with_before(told: NodeUpgradeStatus, before: &Before) -> NodeUpgradeStatus {
    let names = |all: &[Arc<str>]| all.iter().map(ToString::to_string).collect();
    let part = |(component, incarnation): &(Component, Arc<str>)| ComponentBefore {
        component: *component,
        incarnation: incarnation.to_string(),
    };
    let kind = before.asked.as_ref().map_or("", |of| if of.job { JOB } else { EXTERNAL });
    NodeUpgradeStatus {
        incarnation_before: before.incarnation.to_string(),
        components_before: before.parts.iter().map(part).collect(),
        not_ready_before: names(&before.not_ready),
        static_pods_before: names(&before.static_pods),
        executor_kind: kind.to_owned(),
        deadline_time: before.asked.as_ref().map(|asked| Time(asked.until)),
        ..told
    }
}

/// The core's value of a stored claim.
///
/// # Errors
/// [`BadClaim`] when its versions or state cannot be read.
pub fn claim_of(object: &NodeUpgrade) -> Result<Claim, BadClaim> {
    let broken = |why: String| BadClaim { name: object.name_any(), why };
    let bad = |why: String| broken(format!("{why}; {DELETE_IT}"));
    let spec = &object.spec;
    let status = object.status.clone().unwrap_or_default();
    let since = status.since.as_ref().map(|time| time.0);
    let timed = || since.ok_or_else(|| bad(format!("is {} without a time", status.state)));
    let state = match status.state.as_str() {
        "" | "Claimed" => ClaimState::Claimed,
        "Draining" => {
            ClaimState::Draining { since: timed()?, stalled: status.stalled_time.as_ref().map(|time| time.0) }
        }
        "Upgrading" => {
            let observed = status.observed_time.as_ref().map(|time| time.0);
            ClaimState::Upgrading { since: timed()?, before: before_of(&status), observed }
        }
        "Upgraded" => ClaimState::Upgraded { at: timed()? },
        "Parked" => {
            let since = timed()?;
            let retry_at = status.retry_time.as_ref().map_or(since, |time| time.0);
            let for_a_person = ConditionType::Stalled.holds(&status.conditions);
            ClaimState::Parked { since, retry_at, for_a_person }
        }
        "Failed" => ClaimState::Failed { since: timed()?, before: before_of(&status) },
        other => {
            let run = "run the version of evenkeel that wrote it";
            let why =
                format!("has the state {other}, which this version does not know; {run}, or {DELETE_IT}");
            return Err(broken(why));
        }
    };
    let budget = |text: &str| text.split_once('/').map(|(namespace, name)| (namespace.into(), name.into()));
    Ok(Claim {
        name: object.name_any().into(),
        uid: object.uid().unwrap_or_default().into(),
        resource_version: object.resource_version().unwrap_or_default().into(),
        created: object.creation_timestamp().map(|time| time.0),
        upgrade: spec.upgrade_name.as_str().into(),
        upgrade_uid: spec.upgrade_uid.as_str().into(),
        ending: object.metadata.deletion_timestamp.is_some(),
        finalizers: finalizers_of_others(object.finalizers()),
        subject: Subject {
            component: spec.component,
            components: spec.components.clone(),
            node: spec.node_name.as_str().into(),
            node_uid: spec.node_uid.as_str().into(),
            from: spec.from_version.clone(),
            to: spec.to_version.parse().map_err(|error| bad(format!("toVersion {error}")))?,
            executor: spec.executor.as_str().into(),
        },
        state,
        attempt: u32::try_from(status.attempt).unwrap_or(0).max(1),
        message: status.message.clone(),
        blockers: status
            .blocked_by
            .iter()
            .map(|b| Blocker {
                pod: b.pod.clone(),
                budget: budget(&b.pod_disruption_budget),
                reason: b.reason.clone(),
                lasting: false,
            })
            .collect(),
    })
}

/// The conditions of a claim at `state`, which `message` is about.
fn conditions_of(before: &NodeUpgrade, state: &ClaimState, message: &str, now: Timestamp) -> Vec<Condition> {
    let stands = match state {
        _ if state.ready() => Kstatus::Current,
        _ if state.stalled() => Kstatus::Failed,
        _ => Kstatus::InProgress,
    };
    let told = before.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let message = short(message, MAX_LINE);
    conditions(&stands.conditions(state.name(), &message), told, before.metadata.generation, now)
}

/// The status that stores `state`, in the place of that of `before`.
pub fn status_of(
    before: &NodeUpgrade,
    state: &ClaimState,
    attempt: u32,
    message: &str,
    blockers: &[Blocker],
    now: Timestamp,
) -> NodeUpgradeStatus {
    let told = NodeUpgradeStatus {
        observed_generation: before.metadata.generation,
        conditions: conditions_of(before, state, message, now),
        state: state.name().to_owned(),
        message: message.to_owned(),
        attempt: i32::try_from(attempt).unwrap_or(i32::MAX),
        blocked_by: blockers
            .iter()
            .map(|b| BlockedBy {
                pod: b.pod.clone(),
                pod_disruption_budget: b
                    .budget
                    .as_ref()
                    .map(|(ns, name)| format!("{ns}/{name}"))
                    .unwrap_or_default(),
                reason: b.reason.clone(),
            })
            .collect(),
        ..NodeUpgradeStatus::default()
    };
    let since = |at: Timestamp| Some(Time(at));
    match state {
        ClaimState::Claimed => NodeUpgradeStatus { since: since(now), ..told },
        ClaimState::Draining { since: at, stalled } => {
            NodeUpgradeStatus { since: since(*at), stalled_time: stalled.map(Time), ..told }
        }
        ClaimState::Upgraded { at } => NodeUpgradeStatus { since: since(*at), ..told },
        ClaimState::Failed { since: at, before } => {
            with_before(NodeUpgradeStatus { since: since(*at), ..told }, before)
        }
        ClaimState::Upgrading { since: at, before, observed } => {
            let told = NodeUpgradeStatus { since: since(*at), observed_time: observed.map(Time), ..told };
            with_before(told, before)
        }
        ClaimState::Parked { since: at, retry_at, .. } => {
            NodeUpgradeStatus { since: since(*at), retry_time: Some(Time(*retry_at)), ..told }
        }
    }
}

/// The name of the Job of a claim (its UID) and attempt. It is always the same, so the server refuses a second Job.
pub fn job_name(uid: &str, attempt: u32) -> String {
    format!("evenkeel-{uid}-{attempt}")
}

/// What the status of `claim` keeps of the Job of `attempt`: how it stands `now`, or else what was kept of it before.
pub fn job_result(claim: &NodeUpgrade, attempt: u32, now: Option<&JobState>) -> Option<JobResult> {
    let name = job_name(&claim.uid().unwrap_or_default(), attempt);
    let Some(state) = now else {
        let kept = claim.status.as_ref()?.job.clone();
        return kept.filter(|kept| kept.name == name);
    };
    let (result, message) = match state {
        JobState::Running => ("Running", String::new()),
        JobState::Complete => ("Complete", String::new()),
        JobState::Failed(message) => ("Failed", short(message, MAX_LINE)),
    };
    Some(JobResult { name, result: result.to_owned(), message })
}

/// The spec that stores `subject` of the upgrade of that name and UID.
pub fn spec_of(upgrade: &str, upgrade_uid: &str, subject: &Subject) -> NodeUpgradeSpec {
    NodeUpgradeSpec {
        upgrade_name: upgrade.to_owned(),
        upgrade_uid: upgrade_uid.to_owned(),
        component: subject.component,
        components: subject.components.clone(),
        node_name: subject.node.to_string(),
        node_uid: subject.node_uid.to_string(),
        from_version: subject.from.clone(),
        to_version: subject.to.to_string(),
        executor: subject.executor.to_string(),
    }
}

#[cfg(test)]
mod tests;
