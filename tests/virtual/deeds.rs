//! What people, other programs and pods do to a cluster while it is drained.

use std::time::Duration;

use evenkeel_sim::{Cluster, NodeGroup};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::kube_api::{BUDGETS, Kube, PODS};

/// The node on which special pods are.
const NODE: &str = "worker-1";
const MISSING: &str = "registry.example/missing:1";

/// Kinds of pods that a drain has its own way with.
pub const SPECIAL: [&str; 11] = [
    "finalizer",
    "grace",
    "returning",
    "fixed",
    "bare",
    "job",
    "empty-dir",
    "mirror",
    "orphan",
    "pending",
    "terminating-namespace",
];

/// Does `deed`.
pub async fn happens(cluster: &Cluster, kube: &Kube, deed: &str) {
    let words: Vec<&str> = deed.split(' ').collect();
    let node = |name: &str| format!("/api/v1/nodes/{name}");
    match words.as_slice() {
        ["cordon", name] => _ = kube.merge(&node(name), &json!({"spec": {"unschedulable": true}})).await,
        ["uncordon", name] => _ = kube.merge(&node(name), &json!({"spec": {"unschedulable": null}})).await,
        ["budget", name, kind, value] => {
            let value: Value = value.parse().unwrap_or_else(|_| json!(value));
            let mut spec = json!({"minAvailable": null, "maxUnavailable": null});
            spec[kind] = value;
            _ = kube.merge(&format!("{BUDGETS}/{name}"), &json!({"spec": spec})).await;
        }
        ["unbudget", name] => _ = kube.delete(&format!("{BUDGETS}/{name}")).await,
        ["second-budget", name] => {
            let selector = json!({"matchLabels": {"app": name}});
            let second =
                json!({"metadata": {"name": "second"}, "spec": {"maxUnavailable": 1, "selector": selector}});
            kube.create(BUDGETS, &second).await;
        }
        ["leave", name] => {
            cluster.kubelets().stop(name);
            _ = kube.delete(&node(name)).await;
        }
        ["join", prefix] => _ = cluster.add_nodes(&NodeGroup::new(*prefix, 2).kubelet("v1.36.4")),
        ["spare", pool] => {
            let spare = NodeGroup::new(format!("spare-{pool}"), 1).kubelet("v1.36.4").zones(["a"]);
            cluster.add_nodes(&spare.label("pool", *pool));
        }
        ["silent", name] => cluster.kubelets().stop(name),
        ["again", name] => _ = cluster.start_kubelet(name, "v1.36.4"),
        ["scale", name, replicas] => {
            let replicas: u32 = replicas.parse().unwrap();
            let path = format!("/apis/apps/v1/namespaces/shop/deployments/{name}");
            _ = kube.merge(&path, &json!({"spec": {"replicas": replicas}})).await;
        }
        ["delete-pod", at] => {
            let pods = kube.list(PODS).await;
            let pod = pods.get(at.parse::<usize>().unwrap() % pods.len().max(1));
            let name = pod.and_then(|pod| pod["metadata"]["name"].as_str()).unwrap_or_default();
            _ = kube.delete(&format!("{PODS}/{name}")).await;
        }
        ["blackout", seconds] => {
            _ = cluster.faults().blackout(Duration::from_secs(seconds.parse().unwrap()));
        }
        ["compact"] => cluster.compact(),
        ["late-pod", name] => late_pod(kube, name).await,
        ["pods", kind] => special(cluster, kube, kind).await,
        ["jump", seconds] => cluster.jump(SignedDuration::from_secs(seconds.parse().unwrap())),
        _ => panic!("nothing is called {deed}"),
    }
}

/// Somebody puts a pod on the node of that name, whatever its cordon says. Nothing makes it again.
async fn late_pod(kube: &Kube, name: &str) {
    let maps = "/api/v1/namespaces/shop/configmaps";
    let owner = kube.create(maps, &json!({"metadata": {"name": "late"}})).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "late", "controller": true,
        "uid": owner["metadata"]["uid"]}]);
    let meta = json!({"name": "late", "labels": {"app": "late"}, "ownerReferences": owner});
    let containers = json!([{"name": "c", "image": "registry.example/c:1"}]);
    kube.create(PODS, &json!({"metadata": meta, "spec": {"nodeName": name, "containers": containers}})).await;
}

/// Pods of `kind` are on the node.
async fn special(cluster: &Cluster, kube: &Kube, kind: &str) {
    let here = json!({"kubernetes.io/hostname": NODE});
    let of = |more: Value| json!({"spec": {"template": {"spec": more}}});
    let bare = json!({"metadata": {"name": kind, "labels": {"app": kind}}, "spec": {
        "nodeName": NODE, "containers": [{"name": "c", "image": "registry.example/c:1"}]}});
    match kind {
        "finalizer" => {
            let mut more = of(json!({"nodeSelector": here}));
            more["spec"]["template"]["metadata"]["finalizers"] = json!(["example.com/keep"]);
            kube.workload("deployments", kind, 1, &more).await;
        }
        "grace" => {
            let more = of(json!({"nodeSelector": here, "terminationGracePeriodSeconds": 2_147_483_647}));
            kube.workload("deployments", kind, 1, &more).await;
        }
        "returning" => {
            let tolerates = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
            kube.workload(
                "deployments",
                kind,
                1,
                &of(json!({"nodeSelector": here, "tolerations": tolerates})),
            )
            .await;
        }
        "fixed" => kube.workload("deployments", kind, 1, &of(json!({"nodeName": NODE}))).await,
        "bare" => _ = kube.create(PODS, &bare).await,
        "job" => {
            let job = json!({"metadata": {"name": kind}, "spec": {"backoffLimit": 6, "template": {
                "metadata": {"labels": {"app": kind}}, "spec": {"restartPolicy": "Never", "nodeSelector": here,
                "containers": [{"name": "c", "image": "registry.example/long:1"}]}}}});
            kube.create("/apis/batch/v1/namespaces/shop/jobs", &job).await;
        }
        "empty-dir" => {
            let more = json!({"nodeSelector": here, "volumes": [{"name": "cache", "emptyDir": {}}]});
            kube.workload("deployments", kind, 1, &of(more)).await;
        }
        "mirror" => {
            let mut mirror = bare;
            mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "0"});
            kube.create(PODS, &mirror).await;
        }
        "orphan" => {
            kube.workload("daemonsets", kind, 0, &json!({"spec": {"replicas": null}})).await;
            sleep(Duration::from_secs(10)).await;
            let path = format!("/apis/apps/v1/namespaces/shop/daemonsets/{kind}?propagationPolicy=Orphan");
            kube.delete(&path).await.unwrap();
        }
        "pending" => {
            cluster.kubelets().set_missing(MISSING, true);
            let more = json!({"nodeSelector": here, "containers": [{"name": "c", "image": MISSING}]});
            kube.workload("deployments", kind, 1, &of(more)).await;
            kube.budget(kind, Some(json!({"minAvailable": 1}))).await;
        }
        "terminating-namespace" => {
            kube.namespace("ending").await;
            sleep(Duration::from_secs(2)).await;
            let mut pod = bare;
            pod["metadata"]["finalizers"] = json!(["example.com/keep"]);
            kube.create("/api/v1/namespaces/ending/pods", &pod).await;
            sleep(Duration::from_secs(5)).await;
            kube.delete("/api/v1/namespaces/ending").await.unwrap();
        }
        _ => panic!("no pods are called {kind}"),
    }
    sleep(Duration::from_secs(10)).await;
}
