//! `DaemonSets`: one pod on every node that suits.
//!
//! Here belongs on which nodes a pod is made and stays; the node's kubelet runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::claim;
use super::model::{Model, ModelStep};
use super::objects::leaving;
use super::pods::{self, Pod, hash};
use super::scheduler::{affine, tolerates};
use crate::api::ApiState;
use crate::labels::LabelSelector;
use crate::record::Record;
use crate::store::Change;

/// The DaemonSet controller.
pub(super) struct DaemonSets;

const SETS: &str = "daemonsets.apps";
const REVISION: &str = "controller-revision-hash";

impl Model for DaemonSets {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            SETS if !change.deleted => vec![change.record.key.to_string()],
            "pods" => claim::keys(change, "DaemonSet", SETS, state),
            "nodes" => {
                let suits = |record: &Record| (record.labels.clone(), record.value()["spec"].clone());
                if !change.deleted
                    && change.before.as_ref().is_some_and(|before| suits(before) == suits(&change.record))
                {
                    return Vec::new();
                }
                state
                    .store
                    .shelf(SETS)
                    .into_iter()
                    .flat_map(|shelf| shelf.live.values())
                    .map(|set| set.key.to_string())
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(set) = world.get(SETS, key) else { return };
        let namespace = key.split('/').next().unwrap_or_default();
        claim::claim(world, "pods", &set, |_| true);
        let all = pods::of(world, namespace, set["metadata"]["uid"].as_str().unwrap_or_default());
        let revision = hash(&set["spec"]["template"]);
        let template = template(&set);
        let nodes = world.list("nodes", "");
        let (mut wanted, mut wrong) = (BTreeSet::new(), 0);
        let mut placed: BTreeMap<Arc<str>, Vec<&Pod>> = BTreeMap::new();
        for pod in &all {
            placed.entry(target(pod)).or_default().push(pod);
        }
        for node in &nodes {
            let here = placed.get(&node.key).map(Vec::as_slice).unwrap_or_default();
            let (start, stay) = suits(&template["spec"], node);
            if start {
                wanted.insert(node.name().to_owned());
            }
            if leaving(&set) {
                continue;
            }
            if start && here.is_empty() {
                let mut pod = pods::from_template(&set, &template);
                pod["metadata"]["labels"][REVISION] = revision.as_str().into();
                pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
                    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name()]}]}]});
                let _ = world.create("pods", Some(namespace), pod);
            } else if !stay {
                for pod in here {
                    wrong += 1;
                    if !pod.leaving() {
                        pods::delete(world, pod);
                    }
                }
            } else if let Some(pod) = here.iter().find(|pod| pod.finished() && !pod.leaving()) {
                pods::delete(world, pod);
            }
        }
        if !leaving(&set) && set["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
            let most = pods::scaled(
                &set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
                i64::try_from(wanted.len()).unwrap_or(0),
                true,
            );
            let down = all.iter().filter(|pod| !pod.ready() || pod.leaving()).count();
            let room = usize::try_from(most).unwrap_or(0).saturating_sub(down);
            for pod in all.iter().filter(|pod| pod.label(REVISION) != revision && !pod.leaving()).take(room) {
                pods::delete(world, pod);
            }
        }
        status(world, key, &all, &wanted, wrong, &revision);
    }
}

/// The node for which a pod was made; empty if it was made for none.
fn target(pod: &Pod) -> Arc<str> {
    pod.0.node.clone().unwrap_or_else(|| {
        let pod = pod.0.value();
        let first = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
        pod.pointer(first).and_then(Value::as_str).unwrap_or_default().into()
    })
}

/// The set's template, with the tolerations that the controller adds: daemons stay on nodes that other pods have to
/// leave.
fn template(set: &Value) -> Value {
    let mut template = set["spec"]["template"].clone();
    let mut tolerations = template["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ] {
        tolerations.push(
            json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect}),
        );
    }
    template["spec"]["tolerations"] = tolerations.into();
    template
}

/// Whether a daemon starts on this node, and whether one that is there stays.
fn suits(spec: &Value, node: &Record) -> (bool, bool) {
    let object = node.value();
    let chosen = LabelSelector::map(&spec["nodeSelector"]).matches(&node.labels)
        && affine(
            &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"],
            &node.labels,
            node.name(),
        );
    let taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let fits = |effect: &str| {
        taints.iter().filter(|taint| taint["effect"] == effect).all(|taint| tolerates(spec, taint))
    };
    // A new node is not ready yet; daemons such as its network plugin make it so.
    let starts = taints
        .iter()
        .filter(|taint| taint["effect"] == "NoSchedule" && taint["key"] != "node.kubernetes.io/not-ready")
        .all(|taint| tolerates(spec, taint));
    (chosen && starts && fits("NoExecute"), chosen && fits("NoExecute"))
}

fn status(
    world: &mut ModelStep<'_>,
    key: &str,
    all: &[Pod],
    wanted: &BTreeSet<String>,
    wrong: usize,
    revision: &str,
) {
    let right: Vec<&Pod> =
        all.iter().filter(|pod| !pod.leaving() && wanted.contains(&*target(pod))).collect();
    let ready = right.iter().filter(|pod| pod.ready()).count();
    let updated = right.iter().filter(|pod| pod.label(REVISION) == revision).count();
    let _ = world.change(SETS, key, true, |set| {
        let mut status = json!({
            "currentNumberScheduled": right.len(), "desiredNumberScheduled": wanted.len(), "numberMisscheduled": wrong,
            "numberReady": ready, "observedGeneration": set["metadata"]["generation"],
        });
        for (name, count) in [
            ("updatedNumberScheduled", updated),
            ("numberAvailable", ready),
            ("numberUnavailable", wanted.len().saturating_sub(ready)),
        ] {
            if count > 0 {
                status[name] = count.into();
            }
        }
        set["status"] = status;
    });
}
