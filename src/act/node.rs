//! Writes to a Node: our cordon with its mark, our taint, and the conditions of a drain. Nothing else is ever written
//! to a Node.
//!
//! The invariant: every patch names the Node's UID, and one of the cordon or of the taint also the resourceVersion that
//! was read.

use evenkeel_core::cluster::{CORDON_ANNOTATION, NodeRef};
use evenkeel_core::rollout::Taints;
use jiff::{Timestamp, Unit};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::actions::{Hands, claims, nodes};
use super::authority::{Authority, Effects, NotDone};
use super::outcome::{FIELD_MANAGER, Outcome, Stop, gone, is_absent, stop};
use crate::api::ConditionStatus;
use crate::observe::lean;

impl Hands {
    /// Marks `node` unschedulable and ours, in one patch that fails if the Node has changed.
    pub(super) async fn cordon(&self, node: &NodeRef, mark: &str) -> Result<Outcome, Stop> {
        self.patch_node(node, json!({ CORDON_ANNOTATION: mark }), unschedulable()).await
    }

    /// Takes our cordon and its mark away, and our taint where `taints` are given, in one patch that fails if the Node
    /// has changed.
    pub(super) async fn uncordon(&self, node: &NodeRef, taints: Option<&Taints>) -> Result<Outcome, Stop> {
        let mut spec = json!({ "unschedulable": null });
        if let Some(taints) = taints {
            spec["taints"] = taints.json().clone();
        }
        self.patch_node(node, json!({ CORDON_ANNOTATION: null }), spec).await
    }

    /// Replaces the taints of `node` by `taints`, in one patch that fails if the Node has changed.
    pub(super) async fn taint(&self, node: &NodeRef, taints: &Taints) -> Result<Outcome, Stop> {
        self.patch_node(node, json!({}), json!({ "taints": taints.json() })).await
    }

    /// Takes our mark away and leaves the node cordoned, for a person to look at; fails if the Node has changed.
    pub(super) async fn hand_over(&self, node: &NodeRef) -> Result<Outcome, Stop> {
        self.patch_node(node, json!({ CORDON_ANNOTATION: null }), unschedulable()).await
    }

    /// Uncordons a node whose `mark` names a claim that is not known. It looks the claim up once more before that, and
    /// changes nothing if the claim exists.
    pub(super) async fn uncordon_orphan(&self, node: &NodeRef, mark: &str) -> Result<Outcome, Stop> {
        let (name, uid) = mark.split_once('/').unwrap_or((mark, ""));
        let found = self.send(async |client| claims(client).get_opt(name).await).await;
        let found = found.map_err(|error| stop(&format!("look up NodeUpgrade {name}"), &error))?;
        if found.is_some_and(|claim| claim.metadata.uid.as_deref() == Some(uid)) {
            return Err(Stop::Lost(format!("node {}: its claim {name} exists", node.name)));
        }
        self.uncordon(node, None).await
    }

    async fn patch_node(&self, node: &NodeRef, annotations: Value, spec: Value) -> Result<Outcome, Stop> {
        match patch(&self.effects, &self.authority, node, (&annotations, &spec), false).await {
            Ok(patched) => Ok(Outcome::Node(Box::new(patched))),
            Err(error) if is_absent(&error, &node.name) => Ok(gone(node)),
            Err(error) => Err(stop(&format!("patch node {}", node.name), &error)),
        }
    }
}

/// Marks `node` unschedulable and writes `mark`, the value of `CORDON_ANNOTATION`, in one patch that fails if the
/// Node has changed. With `dry_run` the server only says what it would do.
///
/// # Errors
/// [`NotDone`], with code 409 when the Node has changed.
pub async fn cordon(
    effects: &Effects,
    authority: &Authority,
    node: &NodeRef,
    mark: &str,
    dry_run: bool,
) -> Result<lean::Node, NotDone> {
    let marked = (&json!({ CORDON_ANNOTATION: mark }), &unschedulable());
    patch(effects, authority, node, marked, dry_run).await
}

/// Takes cordon and mark away, in one patch that fails if the Node has changed. With `dry_run` the server only says
/// what it would do.
///
/// # Errors
/// [`NotDone`], with code 409 when the Node has changed.
pub async fn uncordon(
    effects: &Effects,
    authority: &Authority,
    node: &NodeRef,
    dry_run: bool,
) -> Result<lean::Node, NotDone> {
    let free = (&json!({ CORDON_ANNOTATION: null }), &json!({ "unschedulable": null }));
    patch(effects, authority, node, free, dry_run).await
}

/// Writes conditions of KEP-5683 (`DrainInProgress`, `Drained`) into the status of `node`, each as a type and
/// whether it is true since `now`. The one patch fails if the Node of that name has another UID than `uid`. A server of any
/// version accepts these conditions.
///
/// # Errors
/// [`NotDone`]; the server refuses the patch when the UID is another one.
pub async fn conditions(
    effects: &Effects,
    authority: &Authority,
    node: &str,
    uid: &str,
    conditions: &[(&str, bool)],
    now: Timestamp,
) -> Result<(), NotDone> {
    let now = now.round(Unit::Second).unwrap_or_default().to_string();
    let condition = |(name, is): &(&str, bool)| {
        json!({
            "type": name,
            "status": ConditionStatus::from(*is).name(),
            "reason": "EvenkeelDrain",
            "message": "by evenkeel drain",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        })
    };
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    let patch = json!({ "metadata": { "uid": uid }, "status": { "conditions": conditions } });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
    let patch = Patch::Strategic(&patch);
    let request = async |client| nodes(client).patch_status(node, &params, &patch).await;
    authority.send(effects, request).await.map(drop)
}

/// The `spec` of a patch that cordons.
fn unschedulable() -> Value {
    json!({ "unschedulable": true })
}

async fn patch(
    effects: &Effects,
    authority: &Authority,
    node: &NodeRef,
    (annotations, spec): (&Value, &Value),
    dry_run: bool,
) -> Result<lean::Node, NotDone> {
    let patch = json!({
        "metadata": {
            "uid": &*node.uid,
            "resourceVersion": &*node.resource_version,
            "annotations": annotations,
        },
        "spec": spec,
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), dry_run, ..Default::default() };
    let patch = Patch::Merge(&patch);
    authority.send(effects, async |client| nodes(client).patch(&node.name, &params, &patch).await).await
}
