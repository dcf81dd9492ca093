//! What a drain of one node costs in a cluster with many pods: it reads the node's own, so it should cost the same. Not
//! a test: it measures.
//!
//! `EVENKEEL_BINARY=$(scripts/static-binary) cargo test --test drain many -- --ignored --nocapture`

use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, Role, TestResult, in_namespace};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::process::Child;

use super::{Scene, evictions, here, with_drainer};

/// Pods on other nodes than those that are drained.
const OTHERS: [usize; 3] = [0, 10_000, 50_000];
const PODS_OF_A_NODE: usize = 100;
const DRAINS: usize = 5;

fn object<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|error| Failure::new(error.to_string()))
}

/// Pods number `from` to `to`, and their nodes, which nobody plays.
async fn fill(cluster: &Cluster, from: usize, to: usize) -> TestResult {
    let (nodes, pods) =
        (Api::<Node>::all(cluster.client()), Api::<Pod>::namespaced(cluster.client(), "many"));
    let params = PostParams::default();
    for number in (from..to).step_by(PODS_OF_A_NODE) {
        let name = format!("other-{}", number / PODS_OF_A_NODE);
        let node = json!({"metadata": {"name": name}, "spec": {"unschedulable": true}});
        nodes.create(&params, &object(node)?).await?;
    }
    let made = stream::iter(from..to).map(|number| {
        let (pods, params) = (&pods, &params);
        async move {
            let env: Vec<_> = (0..10).map(|n| json!({"name": format!("SETTING_{n}"), "value": "a value"})).collect();
            let pod = json!({
                "metadata": {"name": format!("pod-{number}"), "labels": {"app": format!("app-{}", number % 500)}},
                "spec": {
                    "nodeName": format!("other-{}", number / PODS_OF_A_NODE),
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "c", "image": "example.com/c:1", "env": env}],
                },
            });
            pods.create(params, &object(pod)?).await.map_err(Failure::from)
        }
    });
    made.buffer_unordered(16).try_collect::<Vec<_>>().await?;
    Ok(())
}

/// The most memory that `child` used until it ended, in MiB.
async fn peak(child: &mut Child) -> Result<f64, Failure> {
    let id = child.id().unwrap_or_default();
    let mut most = 0.0_f64;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
        most = most.max(kib.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default() / 1024.0);
        let ended = tokio::time::timeout(Duration::from_millis(20), child.wait()).await;
        if let Ok(ended) = ended {
            let ended = ended.map_err(|error| Failure::new(error.to_string()))?;
            assert!(ended.success(), "{ended}");
            return Ok(most);
        }
    }
}

fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or_default();
    format!("{:.1} ({:.1}..{:.1})", at(values.len() / 2), at(0), at(values.len() - 1))
}

#[test]
#[ignore = "measures; takes minutes"]
fn many() -> TestResult {
    in_namespace("many::many", async || {
        // Nobody renews the other nodes: they are not to be called dead meanwhile.
        let alive = "--node-monitor-grace-period=24h";
        let group = NodeGroup::workers(4).pool("w").label("hard", "no");
        let cluster =
            Cluster::builder().nodes(group).extra_arg(Role::ControllerManager, alive).start().await?;
        with_drainer(&cluster).await?;
        cluster.apply(here("workloads.yaml")).await?;
        let kubeconfig = cluster.service_account_kubeconfig("ops", "drainer").await?;
        let scene = Scene { cluster, kubeconfig };
        scene.kubectl(&["create", "namespace", "many"]).await?;
        println!(
            "{:>12}{:>10}{:>24}{:>24}{:>10}{:>8}",
            "other pods", "made in", "first eviction, ms", "peak memory, MiB", "writes", "reads"
        );
        let mut before = 0;
        for others in OTHERS {
            let begun = Instant::now();
            fill(&scene.cluster, before, others).await?;
            before = others;
            let made = begun.elapsed().as_secs_f64();
            let (mut starts, mut peaks, mut writes, mut reads) = (Vec::new(), Vec::new(), 0, 0);
            for _ in 0..DRAINS {
                scene.settled("shop", 15 + 5).await?;
                let mut node = (0, String::new());
                for name in ["w-1", "w-2", "w-3", "w-4"] {
                    node = node.max((scene.on_node("shop", name).await?.len(), name.to_owned()));
                }
                let node = node.1;
                let asked = scene.requests()?.len();
                let begun = Timestamp::now();
                let mut child = scene.start(&["drain", &node])?;
                peaks.push(peak(&mut child).await?);
                let requests = scene.requests()?.split_off(asked);
                let first = evictions(&requests, true).first().map(|entry| entry.received);
                let first = first.ok_or_else(|| Failure::new(format!("nothing was evicted of {node}")))?;
                starts.push(first.duration_since(begun).as_secs_f64() * 1e3);
                writes = requests.iter().filter(|entry| entry.is_write()).count();
                reads = requests.iter().filter(|e| e.verb == "get" || e.verb == "list").count();
                scene.run(&["uncordon", &node]).await?;
            }
            println!(
                "{others:>12}{made:>9.0}s{:>24}{:>24}{writes:>10}{reads:>8}",
                spread(starts),
                spread(peaks)
            );
        }
        Ok(())
    })
}
