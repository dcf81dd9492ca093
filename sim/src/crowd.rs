//! What runs on a large cluster: thirty pods on each node, in sets of one size with a budget each.
//!
//! Only measurements use it. The invariant: the same numbers give the same objects.

use serde_json::{Value, json};

/// On each node.
const PODS: usize = 30;
/// In each namespace.
const SETS: usize = 50;

/// Objects for [`Cluster::load`](crate::Cluster::load): one `ReplicaSet` for every `replicas` pods, spread over the nodes
/// `worker-1` to `worker-<nodes>`, thirty on each, with a budget that lets one of them leave at a time. They come one after
/// the other, because all of them at once need more memory than the cluster.
pub fn crowd(nodes: usize, replicas: usize) -> impl Iterator<Item = Value> {
    let sets = nodes * PODS / replicas;
    let namespaces = (0..sets.div_ceil(SETS)).map(|at| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{at}")},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    });
    namespaces.chain((0..sets).flat_map(move |set| group(set, nodes, replicas)))
}

/// A `ReplicaSet`, its budget and its pods.
fn group(set: usize, nodes: usize, replicas: usize) -> Vec<Value> {
    let (namespace, name, uid) = (
        format!("team-{}", set / SETS),
        format!("set-{set}"),
        format!("{set:08}-0000-4000-8000-000000000000"),
    );
    let labels = json!({"app": name});
    let spec = json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler", "securityContext": {}, "containers": [{"name": "c", "image": "registry.example/app:1",
        "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]});
    let mut objects = vec![
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": namespace, "uid": uid,
            "generation": 1}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
            "status": {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas, "fullyLabeledReplicas": replicas, "observedGeneration": 1, "terminatingReplicas": 0}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": namespace,
            "generation": 1}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}}),
    ];
    for at in 0..replicas {
        let mut spec = spec.clone();
        spec["nodeName"] = format!("worker-{}", (set * replicas + at * 7) % nodes + 1).into();
        objects.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{name}-{at}"), "namespace": namespace, "labels": labels,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": true}]},
            "spec": spec, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}));
    }
    objects
}
