//! `/binding`: a scheduler's word that a pod runs on a node.
//!
//! Here belongs what happens to the pod; which node is chosen is the scheduler model's. The invariant: a pod is bound
//! once, by a request and by the model in the same way.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::Kind;
use super::reply::Reply;
use super::request::{Request, RequestTarget};
use super::state::ApiState;
use super::status::{self, Failure, Outcome};

impl ApiState {
    /// Carries out a binding.
    pub(super) fn bind(&mut self, request: &Request, subject: &RequestTarget, name: &str) -> Outcome<Reply> {
        let body = request.object()?;
        let node = body["target"]["name"].as_str().unwrap_or_default().to_owned();
        if node.is_empty() {
            let cause = status::StatusCause::required("target.name", "");
            let named = status::Named { group: "", kind: "Binding", name: "" };
            return Err(Failure::invalid(named, &[cause]));
        }
        let key = subject.kind.key(subject.namespace.as_deref(), name);
        self.assign(&subject.kind, &key, &node)?;
        let done =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Reply::Value(201, done.into(), Vec::new()))
    }

    /// Copies the region and zone labels of a pod's node to the pod.
    pub(super) fn say_where(&self, pod: &mut Value) {
        let Some(node) = pod["spec"]["nodeName"].as_str().and_then(|name| self.store.get("nodes", name))
        else {
            return;
        };
        for label in ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"] {
            if let Some(place) = node.labels.get(label) {
                pod["metadata"]["labels"][label] = place.as_str().into();
            }
        }
    }

    /// Binds a pod to a node.
    pub(crate) fn assign(&mut self, kind: &Arc<Kind>, key: &str, node: &str) -> Outcome<()> {
        let before = self.store.get(&kind.resource, key).cloned();
        let name = key.rsplit('/').next().unwrap_or(key).to_owned();
        let before = before.ok_or_else(|| Failure::not_found(kind.named(&name)))?;
        let mut pod = before.copy();
        let binding = status::Named { group: "", kind: "pods/binding", name: &name };
        if pod["metadata"].get("deletionTimestamp").is_some() {
            return Err(Failure::conflict(
                binding,
                format!("pod {name} is being deleted, cannot be assigned to a host"),
            ));
        }
        if let Some(taken) = pod["spec"]["nodeName"].as_str() {
            return Err(Failure::conflict(
                binding,
                format!("pod {name} is already assigned to node {taken:?}"),
            ));
        }
        pod["spec"]["nodeName"] = node.into();
        self.say_where(&mut pod);
        let now = self.now();
        let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
        crate::models::condition(&mut pod["status"], &condition, &now);
        self.put(kind, key, pod);
        Ok(())
    }
}
