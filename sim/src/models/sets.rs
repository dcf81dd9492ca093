//! `StatefulSets`: pods with fixed names, made one after the other unless the spec says `Parallel`.
//!
//! Here belong the order of the pods and the revisions of the template; the pods run on their kubelets.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::claim;
use super::model::{Model, ModelStep};
use super::objects::{leaving, owned_by};
use super::pods::{self, Pod, hash};
use crate::api::ApiState;
use crate::record::Record;
use crate::store::Change;

/// The StatefulSet controller.
pub(super) struct StatefulSets;

const SETS: &str = "statefulsets.apps";
const REVISIONS: &str = "controllerrevisions.apps";
const REVISION: &str = "controller-revision-hash";

impl Model for StatefulSets {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            SETS if !change.deleted => vec![change.record.key.to_string()],
            "pods" => claim::keys(change, "StatefulSet", SETS, state),
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(set) = world.get(SETS, key) else { return };
        let namespace = key.split('/').next().unwrap_or_default();
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        // A set adopts only a pod that has the name of one of its own.
        let member = |pod: &Record| pod.name().rsplit_once('-').is_some_and(|(of, _)| of == name);
        claim::claim(world, "pods", &set, member);
        let all = pods::of(world, namespace, set["metadata"]["uid"].as_str().unwrap_or_default());
        let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
        let hash = hash(&set["spec"]["template"]);
        let revision = format!("{name}-{hash}");
        if !leaving(&set) {
            remember(world, &set, namespace, &revision, &hash);
            act(world, &set, namespace, name, &all, wanted, &revision);
        }
        status(world, key, &set, &all, &revision, wanted);
    }
}

/// Keeps the template in a `ControllerRevision`: pods below the partition are made from it after the template has
/// changed.
fn remember(world: &mut ModelStep<'_>, set: &Value, namespace: &str, revision: &str, hash: &str) {
    if world.record(REVISIONS, &format!("{namespace}/{revision}")).is_some() {
        return;
    }
    let mut labels = set["spec"]["template"]["metadata"]["labels"].clone();
    labels["controller.kubernetes.io/hash"] = hash.into();
    let uid = set["metadata"]["uid"].as_str().unwrap_or_default();
    let ours = |record: &&Arc<Record>| record.controller.as_ref().is_some_and(|owner| &*owner.uid == uid);
    let last = world
        .each(REVISIONS, namespace)
        .filter(ours)
        .filter_map(|record| record.value()["revision"].as_i64());
    let next = last.max().unwrap_or(0) + 1;
    let kept = json!({"metadata": {"name": revision, "labels": labels, "ownerReferences": owned_by(set)},
        "data": {"spec": {"template": set["spec"]["template"]}}, "revision": next});
    // It does not matter if there is one already.
    let _ = world.create(REVISIONS, Some(namespace), kept);
}

/// The template and revision of the pod with this ordinal; below the partition those from before the update.
fn version<'a>(
    world: &ModelStep<'_>,
    set: &'a Value,
    namespace: &str,
    at: u64,
    revision: &'a str,
) -> (Value, &'a str) {
    let partition = set["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_u64().unwrap_or(0);
    let current = set["status"]["currentRevision"].as_str().filter(|_| at < partition);
    let kept =
        current.and_then(|name| Some((world.record(REVISIONS, &format!("{namespace}/{name}"))?, name)));
    match kept {
        Some((kept, name)) => (kept.value()["data"]["spec"]["template"].clone(), name),
        None => (set["spec"]["template"].clone(), revision),
    }
}

fn ordinal(pod: &Pod) -> u64 {
    pod.name().rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

fn act(
    world: &mut ModelStep<'_>,
    set: &Value,
    namespace: &str,
    name: &str,
    all: &[Pod],
    wanted: u64,
    revision: &str,
) {
    let ordered = set["spec"]["podManagementPolicy"] != "Parallel";
    let find = |at: u64| all.iter().find(|pod| ordinal(pod) == at);
    for at in 0..wanted {
        match find(at) {
            None => {
                let (template, revision) = version(world, set, namespace, at, revision);
                let mut pod = pods::from_template(set, &template);
                let metadata = &mut pod["metadata"];
                drop(metadata.as_object_mut().map(|metadata| metadata.remove("generateName")));
                metadata["name"] = format!("{name}-{at}").into();
                metadata["labels"][REVISION] = revision.into();
                metadata["labels"]["statefulset.kubernetes.io/pod-name"] = format!("{name}-{at}").into();
                metadata["labels"]["apps.kubernetes.io/pod-index"] = at.to_string().into();
                pod["spec"]["hostname"] = format!("{name}-{at}").into();
                if let Some(service) = set["spec"]["serviceName"].as_str() {
                    pod["spec"]["subdomain"] = service.into();
                }
                if world.create("pods", Some(namespace), pod).is_err() {
                    world.after(Duration::from_secs(1), format!("{namespace}/{name}"));
                }
                if ordered {
                    return;
                }
            }
            // A finished pod is deleted and made anew.
            Some(pod) if pod.finished() && !pod.leaving() => {
                pods::delete(world, pod);
                return;
            }
            Some(pod) if ordered && (pod.leaving() || !pod.ready()) => return,
            Some(_) => {}
        }
    }
    let mut beyond: Vec<&Pod> = all.iter().filter(|pod| ordinal(pod) >= wanted).collect();
    beyond.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
    for pod in beyond {
        if !pod.leaving() {
            pods::delete(world, pod);
        }
        if ordered {
            return;
        }
    }
    if set["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return;
    }
    // An update goes from the last pod to the first, one at a time, and only while the pods after it are ready.
    let partition = set["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_u64().unwrap_or(0);
    for at in (partition..wanted).rev() {
        let Some(pod) = find(at) else { return };
        if pod.label(REVISION) != revision {
            if !pod.leaving() {
                pods::delete(world, pod);
            }
            return;
        }
        if !pod.ready() || pod.leaving() {
            return;
        }
    }
}

fn status(world: &mut ModelStep<'_>, key: &str, set: &Value, all: &[Pod], revision: &str, wanted: u64) {
    let seconds = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    let now = world.state.clock.now();
    let well = all.iter().filter(|pod| pod.ready() && !pod.leaving());
    let (ready, available) = (well.clone().count(), well.filter(|pod| pod.available(seconds, now)).count());
    let new = all.iter().filter(|pod| pod.label(REVISION) == revision && !pod.leaving()).count();
    let _ = world.change(SETS, key, true, |set| {
        let old = set["status"]["currentRevision"].as_str().unwrap_or(revision).to_owned();
        let done = new as u64 == wanted && ready as u64 == wanted;
        let current = if done { revision.to_owned() } else { old };
        let mut status = json!({
            "replicas": all.len(), "availableReplicas": available, "collisionCount": 0, "currentRevision": current,
            "updateRevision": revision, "observedGeneration": set["metadata"]["generation"],
        });
        let same = all.iter().filter(|pod| pod.label(REVISION) == current && !pod.leaving()).count();
        for (name, count) in [("readyReplicas", ready), ("updatedReplicas", new), ("currentReplicas", same)] {
            if count > 0 {
                status[name] = count.into();
            }
        }
        set["status"] = status;
    });
}
