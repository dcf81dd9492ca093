//! Cordon and uncordon: the only two things that are ever written to a Node.

use evenkeel_core::cluster::CORDON_ANNOTATION;
use evenkeel_core::rollout::NodeRef;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{FIELD_MANAGER, Hands, Outcome, Stop, stop};
use crate::clients::{EFFECT_TIMEOUT, within};

impl Hands {
    /// Marks `node` unschedulable and ours, in one patch that fails if the Node has changed.
    pub(super) async fn cordon(&self, node: &NodeRef, mark: &str) -> Result<Outcome, Stop> {
        self.patch_node(node, json!({ CORDON_ANNOTATION: mark }), json!(true)).await
    }

    /// Takes our cordon and its mark away, in one patch that fails if the Node has changed.
    pub(super) async fn uncordon(&self, node: &NodeRef) -> Result<Outcome, Stop> {
        self.patch_node(node, json!({ CORDON_ANNOTATION: null }), Value::Null).await
    }

    /// The same for a cordon whose claim is not known, after looking the claim up once more.
    pub(super) async fn uncordon_orphan(&self, node: &NodeRef, mark: &str) -> Result<Outcome, Stop> {
        let (name, uid) = mark.split_once('/').unwrap_or((mark, ""));
        let claims = self.claims();
        let found = within(EFFECT_TIMEOUT, claims.get_opt(name)).await;
        let found = found.map_err(|error| stop(&format!("look up NodeUpgrade {name}"), &error))?;
        if found.is_some_and(|claim| claim.metadata.uid.as_deref() == Some(uid)) {
            return Err(Stop::Lost(format!("node {}: its claim {name} exists", node.name)));
        }
        self.uncordon(node).await
    }

    async fn patch_node(
        &self,
        node: &NodeRef,
        annotations: Value,
        unschedulable: Value,
    ) -> Result<Outcome, Stop> {
        let patch = json!({
            "metadata": {
                "uid": &*node.uid,
                "resourceVersion": &*node.resource_version,
                "annotations": annotations,
            },
            "spec": { "unschedulable": unschedulable },
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        self.leading()?;
        let nodes = self.nodes();
        let sent = within(EFFECT_TIMEOUT, nodes.patch(&node.name, &params, &Patch::Merge(&patch))).await;
        let node = sent.map_err(|error| stop(&format!("patch node {}", node.name), &error))?;
        Ok(Outcome::Node(Box::new(node)))
    }
}
