//! What a pod says of the nodes that it may run on: tolerations, node affinity, volumes that are bound to a place.
//!
//! What else is on a node never belongs here, nor does which of those that fit is best. The sources are the filter
//! plugins of `pkg/scheduler`.

use serde_json::{Value, json};

use super::node::Node;
use crate::labels::{LabelSelector, Labels};
use crate::models::model::ModelStep;

/// Whether a pod tolerates that the node is cordoned, and each taint of the node that keeps pods away.
pub(super) fn tolerated(spec: &Value, node: &Node) -> bool {
    let cordon = || json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    (!node.unschedulable || tolerates(spec, &cordon()))
        && node
            .taints
            .as_array()
            .into_iter()
            .flatten()
            .filter(|taint| taint["effect"] != "PreferNoSchedule")
            .all(|taint| tolerates(spec, taint))
}

/// Whether one of a pod's tolerations matches this taint.
pub(in crate::models) fn tolerates(spec: &Value, taint: &Value) -> bool {
    spec["tolerations"].as_array().into_iter().flatten().any(|toleration| toleration_fits(toleration, taint))
}

/// Whether a toleration matches this taint.
pub(in crate::models) fn toleration_fits(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
    (effect.is_empty() || taint["effect"] == effect.as_str())
        && (key.is_empty() && toleration["operator"] == "Exists" || taint["key"] == key.as_str())
        && (toleration["operator"] == "Exists" || text(&toleration["value"]) == text(&taint["value"]))
}

/// Whether required node affinity allows a node: one of its terms matches, or there are no terms.
pub(in crate::models) fn affine(required: &Value, labels: &Labels, name: &str) -> bool {
    required["nodeSelectorTerms"]
        .as_array()
        .is_none_or(|all| all.iter().any(|term| terms(term, labels, name)))
}

pub(super) fn terms(term: &Value, labels: &Labels, name: &str) -> bool {
    let empty = term["matchExpressions"].as_array().is_none_or(Vec::is_empty)
        && term["matchFields"].as_array().is_none_or(Vec::is_empty);
    let selector =
        |tests: &Value| LabelSelector::object(Some(&json!({"matchExpressions": tests}))).unwrap_or_default();
    let mut fields = Labels::new();
    fields.insert("metadata.name".into(), name.to_owned());
    !empty
        && selector(&term["matchExpressions"]).matches(labels)
        && selector(&term["matchFields"]).matches(&fields)
}

/// Whether the node affinity of the pod's volumes allows the node. A claim that does not exist allows no node.
pub(super) fn bound(world: &ModelStep<'_>, pod: &Value, node: &Node) -> bool {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    pod["spec"]["volumes"].as_array().into_iter().flatten().all(|volume| {
        let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() else { return true };
        let Some(claim) = world.get("persistentvolumeclaims", &format!("{namespace}/{claim}")) else {
            return false;
        };
        let Some(volume) =
            claim["spec"]["volumeName"].as_str().and_then(|name| world.get("persistentvolumes", name))
        else {
            return true;
        };
        affine(&volume["spec"]["nodeAffinity"]["required"], &node.labels, &node.name)
    })
}
