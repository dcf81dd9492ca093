//! How fast virtual time goes: a big cluster at rest, one drain a minute, and fifty drains at once.
//!
//! `MIMALLOC_PURGE_DELAY=-1 cargo run --profile dist -p evenkeel-sim --example speed` (an argument says how many nodes; 5,000 if there is none).

#![allow(clippy::unwrap_used, reason = "a measurement that fails says so")]

use std::time::{Duration, Instant};

use evenkeel_sim::{Cluster, NodeGroup, crowd};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

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
    let loaded = cluster.load(crowd(nodes, 10));
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

/// Resident memory in MiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}
