//! What the controllers of pods have in common: finding their pods, judging each, making and deleting them.
//!
//! Here belongs what is the same for every owner; how many pods an owner wants is its own file's.

use std::sync::Arc;

use serde_json::{Value, json};

use super::model::ModelStep;
use super::objects::{find_condition, owned_by};
use crate::api::Deletion;
use crate::record::{Phase, Record};

/// A pod that a controller looks at.
#[derive(Clone, Debug)]
pub(super) struct Pod(pub(super) Arc<Record>);

impl Pod {
    /// Whether the pod has ended for good.
    pub(super) fn finished(&self) -> bool {
        self.0.phase.finished()
    }

    /// Whether the pod is being deleted.
    pub(super) fn leaving(&self) -> bool {
        self.0.leaving
    }

    /// Whether the pod is neither finished nor being deleted.
    pub(super) fn active(&self) -> bool {
        !self.finished() && !self.leaving()
    }

    pub(super) fn ready(&self) -> bool {
        self.0.ready
    }

    pub(super) fn name(&self) -> &str {
        self.0.name()
    }

    pub(super) fn label(&self, name: &str) -> &str {
        self.0.labels.get(name).map_or("", String::as_str)
    }

    /// Whether the pod has been ready for this many seconds.
    pub(super) fn available(&self, seconds: i64, now: jiff::Timestamp) -> bool {
        self.ready()
            && (seconds == 0
                || find_condition(&self.0.value(), "Ready")
                    .and_then(|ready| crate::clock::read(ready["lastTransitionTime"].as_str()?))
                    .is_some_and(|since| now.duration_since(since).as_secs() >= seconds))
    }
}

/// The pods of an owner.
pub(super) fn of(world: &ModelStep<'_>, namespace: &str, uid: &str) -> Vec<Pod> {
    let here = |pod: &&Arc<Record>| pod.namespace() == namespace;
    world.state.store.owned_by(uid).filter(here).cloned().map(Pod).collect()
}

/// A pod as a template has it, owned by `owner`.
pub(super) fn from_template(owner: &Value, template: &Value) -> Value {
    let mut metadata = json!({"ownerReferences": owned_by(owner)});
    for name in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(name) {
            metadata[name] = value.clone();
        }
    }
    metadata["generateName"] = format!("{}-", owner["metadata"]["name"].as_str().unwrap_or_default()).into();
    json!({"metadata": metadata, "spec": template["spec"]})
}

/// Puts first the pod that goes first when there are too many: one without a node, then a pending one, then one that is
/// not ready, then the youngest.
pub(super) fn sort_for_deletion(pods: &mut [Pod]) {
    pods.sort_by_cached_key(|pod| {
        let placed = pod.0.node.is_some();
        let phase = match pod.0.phase {
            Phase::Pending => 0,
            Phase::Running => 2,
            _ => 1,
        };
        (
            placed,
            phase,
            pod.ready(),
            std::cmp::Reverse(pod.0.value()["metadata"]["creationTimestamp"].to_string()),
            pod.0.key.clone(),
        )
    });
}

/// Deletes a pod as a controller does.
pub(super) fn delete(world: &mut ModelStep<'_>, pod: &Pod) {
    let how = Deletion { uid: Some(pod.0.uid.to_string()), ..Deletion::default() };
    // It does not matter if the pod is gone already.
    let _ = world.delete("pods", &pod.0.key, &how);
}

/// A hash of a template, written so that it can be part of a name.
pub(super) fn hash(template: &Value) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in template.to_string().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    crate::random::Random::new(hash).suffix(10)
}

/// A number or a percentage of `total`, rounded up or down.
pub(super) fn scaled(value: &Value, total: i64, up: bool) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            if up { (percent * total + 99).div_euclid(100) } else { (percent * total).div_euclid(100) }
        }
        _ => 0,
    }
}
