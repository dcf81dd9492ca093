//! One seed, one history; another seed, another.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_sim::{Cluster, NodeGroup};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

/// A small life: a deployment, a budget, evictions, a node that dies.
fn history(seed: u64) -> (u64, u64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::builder().seed(seed).hashed().start();
        cluster.add_nodes(&NodeGroup::new("worker", 3).zones(["a", "b"]));
        let client = cluster.client();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": {"replicas": 4,
            "selector": {"matchLabels": {"app": "shop"}}, "template": {"metadata": {"labels": {"app": "shop"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        deployments.create(&PostParams::default(), &typed(deployment)).await.unwrap();
        let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
        let budget = json!({"metadata": {"name": "shop"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "shop"}}}});
        budgets.create(&PostParams::default(), &typed(budget)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        let pods: Api<Pod> = Api::default_namespaced(client);
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        assert_eq!(all.len(), 4);
        let mut went = 0;
        for pod in &all {
            let name = pod.metadata.name.clone().unwrap();
            let eviction: Eviction = typed(json!({"metadata": {"name": name}}));
            let sent: kube::Result<Value> = pods.create_subresource("eviction", &name, &PostParams::default(), &eviction).await;
            went += u64::from(sent.is_ok());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!((1..4).contains(&went), "the budget let {went} go");
        cluster.kubelets().stop("worker-2");
        tokio::time::sleep(Duration::from_mins(8)).await;
        let running = pods.list(&ListParams::default()).await.unwrap().items;
        let elsewhere = running.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() != Some("worker-2")).count();
        assert_eq!(elsewhere, 4, "what was on the dead node runs elsewhere");
        (cluster.revision(), cluster.history().unwrap())
    })
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn one_seed_is_one_history() {
    let seeds: Vec<u64> = (0..100).collect();
    let all: std::collections::BTreeSet<u64> = std::thread::scope(|scope| {
        let parts: Vec<_> = seeds
            .chunks(50)
            .map(|seeds| {
                scope.spawn(move || {
                    let run = |seed| {
                        let first = history(seed);
                        assert_eq!(first, history(seed), "seed {seed}");
                        first.1
                    };
                    seeds.iter().copied().map(run).collect::<Vec<u64>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    assert_eq!(all.len(), seeds.len(), "another seed is another history");
}
