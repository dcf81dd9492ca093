//! A cluster without a cluster: what any kube-rs program can do in its tests.
//!
//! A deployment of three runs on three nodes. One node dies. Five minutes later, of the cluster's time, its pods run
//! elsewhere; of ours, less than a second has passed. Then the API is made to fail, and the client sees it.
//!
//! `cargo run -p evenkeel-sim --example watch_it_heal`

use std::time::Duration;

use evenkeel_sim::faults::Fault;
use evenkeel_sim::{Cluster, NodeGroup};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result {
    // The clock stands still until everybody waits, and then jumps.
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(run())
}

async fn run() -> Result {
    let cluster = Cluster::builder().seed(7).version("v1.37.1").start();
    cluster.add_nodes(&NodeGroup::new("worker", 3).zones(["a", "b", "c"]));
    let client = cluster.client();
    tokio::time::sleep(Duration::from_secs(30)).await;

    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let shop: Deployment = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "shop"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "shop"}},
            "template": {
                "metadata": {"labels": {"app": "shop"}},
                "spec": {"containers": [{"name": "web", "image": "registry.example/shop:1"}]},
            },
        },
    }))?;
    deployments.create(&PostParams::default(), &shop).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    show(&cluster, "running", &pods).await?;

    cluster.kubelets().stop("worker-2");
    tokio::time::sleep(Duration::from_mins(2)).await;
    show(&cluster, "a node has been silent for two minutes", &pods).await?;
    tokio::time::sleep(Duration::from_mins(8)).await;
    show(&cluster, "and for ten", &pods).await?;

    cluster.faults().when(|call| call.resource == "pods", Fault::Refuse(403), 1);
    println!(
        "with a fault: {:?}",
        pods.list(&ListParams::default()).await.err().map(|error| error.to_string())
    );
    println!("and without:  {} pods", pods.list(&ListParams::default()).await?.items.len());
    Ok(())
}

async fn show(cluster: &Cluster, what: &str, pods: &Api<Pod>) -> Result {
    println!("{} {what}", cluster.now());
    for pod in pods.list(&ListParams::default()).await? {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("nowhere");
        let leaving = if pod.metadata.deletion_timestamp.is_some() { ", on its way out" } else { "" };
        println!("    {} on {node}{leaving}", pod.metadata.name.as_deref().unwrap_or_default());
    }
    Ok(())
}
