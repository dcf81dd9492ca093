//! How fast virtual time goes: a big cluster at rest, one drain a minute, and fifty drains at once.
//!
//! `MIMALLOC_PURGE_DELAY=-1 cargo run --profile dist -p evenkeel-sim --example speed` (an argument says how many nodes; 5,000 if there is none).

#![allow(clippy::unwrap_used, reason = "a measurement that fails says so")]

use std::time::{Duration, Instant};

use evenkeel_sim::{Cluster, NodeGroup};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

/// On each node.
const PODS: usize = 30;
/// In each namespace, of ten pods each.
const SETS: usize = 50;

/// The C library's own takes three times as long and twice the memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let nodes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5000);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(measure(nodes));
}

async fn measure(nodes: usize) {
    let cluster = Cluster::builder().seed(1).start();
    let client = cluster.client();
    let began = Instant::now();
    cluster.add_nodes(&NodeGroup::new("worker", nodes).zones(["a", "b", "c"]));
    let loaded = cluster.load(snapshot(nodes));
    tokio::time::sleep(Duration::from_mins(1)).await;
    println!(
        "{nodes} nodes and {loaded} other objects: {:.1} s, {} MiB",
        began.elapsed().as_secs_f64(),
        memory()
    );

    pace("an hour at rest", Duration::from_hours(1), async || {
        tokio::time::sleep(Duration::from_hours(1)).await;
    })
    .await;
    pace("a drain a minute for ten minutes", Duration::from_mins(10), async || {
        for at in 1..=10 {
            drain(&client, &format!("worker-{at}")).await;
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
    })
    .await;
    pace("fifty drains at once, and ten minutes", Duration::from_mins(10), async || {
        let drains: Vec<_> = (11..=60)
            .map(|at| {
                let client = client.clone();
                tokio::spawn(async move { drain(&client, &format!("worker-{at}")).await })
            })
            .collect();
        for drain in drains {
            drain.await.unwrap();
        }
        tokio::time::sleep(Duration::from_mins(10)).await;
    })
    .await;
    println!("at the end: {} MiB, revision {}", memory(), cluster.revision());
}

async fn pace(what: &str, least: Duration, work: impl AsyncFnOnce()) {
    let (real, virtual_time) = (Instant::now(), tokio::time::Instant::now());
    work().await;
    let (real, passed) = (real.elapsed(), virtual_time.elapsed().max(least));
    println!(
        "{what}: {:.1} s for {} s, {:.0} times real time",
        real.as_secs_f64(),
        passed.as_secs(),
        passed.as_secs_f64() / real.as_secs_f64()
    );
}

/// Cordons a node and evicts what runs there.
async fn drain(client: &kube::Client, node: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.cordon(node).await.unwrap();
    let all: Api<Pod> = Api::all(client.clone());
    let fields = format!("spec.nodeName={node}");
    for pod in all.list(&ListParams::default().fields(&fields)).await.unwrap() {
        let pods: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap());
        let name = pod.metadata.name.unwrap();
        let eviction: Eviction = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        loop {
            let sent: kube::Result<Value> =
                pods.create_subresource("eviction", &name, &PostParams::default(), &eviction).await;
            match sent {
                Err(kube::Error::Api(status)) if status.code == 429 => {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
                _ => break,
            }
        }
    }
    nodes.uncordon(node).await.unwrap();
}

/// One `ReplicaSet` for every ten pods, spread over all nodes, with a budget for each; one after the other, because all of
/// them at once need more memory than the cluster.
fn snapshot(nodes: usize) -> impl Iterator<Item = Value> {
    let sets = nodes * PODS / 10;
    let namespaces = (0..sets.div_ceil(SETS)).map(|at| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{at}")},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    });
    namespaces.chain((0..sets).flat_map(move |set| group(set, nodes)))
}

/// A `ReplicaSet`, its budget and its pods.
fn group(set: usize, nodes: usize) -> Vec<Value> {
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
            "generation": 1}, "spec": {"replicas": 10, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
            "status": {"replicas": 10, "readyReplicas": 10, "availableReplicas": 10, "fullyLabeledReplicas": 10, "observedGeneration": 1, "terminatingReplicas": 0}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": namespace,
            "generation": 1}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}}),
    ];
    for at in 0..10 {
        let mut spec = spec.clone();
        spec["nodeName"] = format!("worker-{}", (set * 10 + at * 7) % nodes + 1).into();
        objects.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{name}-{at}"), "namespace": namespace, "labels": labels,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": true}]},
            "spec": spec, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}));
    }
    objects
}

/// Resident memory in MiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}
