//! `ReplicaSets`, and `ReplicationControllers`, their older form: as many pods as are wanted.
//!
//! Here belongs the number of pods; the rollout from one template to another is in `deployments`.

use std::time::Duration;

use serde_json::{Value, json};

use super::claim;
use super::model::{Model, ModelStep};
use super::objects::leaving;
use super::pods::{self, Pod};
use crate::api::ApiState;
use crate::store::Change;

/// The controller of either kind.
pub(super) struct Replicas {
    kind: &'static str,
    sets: &'static str,
}

impl Replicas {
    pub(super) fn sets() -> Self {
        Self { kind: "ReplicaSet", sets: "replicasets.apps" }
    }

    pub(super) fn controllers() -> Self {
        Self { kind: "ReplicationController", sets: "replicationcontrollers" }
    }
}

impl Model for Replicas {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            _ if resource == self.sets && !change.deleted => vec![change.record.key.to_string()],
            "pods" => claim::keys(change, self.kind, self.sets, state),
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(set) = world.get(self.sets, key) else { return };
        let namespace = key.split('/').next().unwrap_or_default();
        let uid = set["metadata"]["uid"].as_str().unwrap_or_default();
        claim::claim(world, "pods", &set, |pod| !pod.phase.finished());
        let all = pods::of(world, namespace, uid);
        let mut active: Vec<Pod> = all.iter().filter(|pod| pod.active()).cloned().collect();
        let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
        if !leaving(&set) {
            for _ in active.len()..wanted {
                let pod = pods::from_template(&set, &set["spec"]["template"]);
                if world.create("pods", Some(namespace), pod).is_err() {
                    world.after(Duration::from_secs(1), key);
                    break;
                }
            }
            if active.len() > wanted {
                pods::sort_for_deletion(&mut active);
                for pod in active.iter().take(active.len() - wanted) {
                    pods::delete(world, pod);
                }
            }
        }
        let seconds = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
        let now = world.state.clock.now();
        let ready = active.iter().filter(|pod| pod.ready()).count();
        let available = active.iter().filter(|pod| pod.available(seconds, now)).count();
        if available < ready {
            world.after(Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1)), key);
        }
        let labels = crate::labels::LabelSelector::map(&set["spec"]["template"]["metadata"]["labels"]);
        let labeled = active.iter().filter(|pod| labels.matches(&pod.0.labels)).count();
        let terminating = all.iter().filter(|pod| pod.leaving()).count();
        let generation = set["metadata"]["generation"].clone();
        let mut status = json!({"replicas": active.len(), "observedGeneration": generation});
        if self.kind == "ReplicaSet" {
            status["terminatingReplicas"] = terminating.into();
        }
        for (name, count) in
            [("fullyLabeledReplicas", labeled), ("readyReplicas", ready), ("availableReplicas", available)]
        {
            if count > 0 {
                status[name] = count.into();
            }
        }
        if let Some(conditions) = set["status"].get("conditions").filter(|found| !Value::is_null(found)) {
            status["conditions"] = conditions.clone();
        }
        // Mostly the status stays the same. A conflict means that the set changed, and that change brings this model
        // here again.
        if status != set["status"] {
            let _ = world.change(self.sets, key, true, |set| set["status"] = status);
        }
    }
}
