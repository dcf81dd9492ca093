//! The nodes of the benchmark, as large as real ones are.
//!
//! Here belongs what a Node holds and when the control plane is done with all of them; what is measured is in `main`.

use std::time::{Duration, Instant};

use evenkeel_devcluster::TestResult;
use evenkeel_testkit::scenario::until;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

pub const POOLS: usize = 20;
/// What the kubelets run at first; the changes go to the next one.
const VERSIONS: [&str; 3] = ["v1.36.4", "v1.36.3", "v1.35.9"];

/// The name of the `n`th node.
pub fn node_name(n: usize) -> String {
    format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", n / 65536, n / 256 % 256, n % 256)
}

/// A Node with what makes real ones large: images, labels, annotations, conditions.
pub fn node(n: usize) -> Value {
    let now = Timestamp::now().to_string();
    let name = node_name(n);
    let images: Vec<_> = (0..50)
        .map(|i| {
            let digest = format!("{:064x}", n * 1000 + i);
            json!({"names": [format!("registry.example.com/team-{i}/service-{i}@sha256:{digest}")], "sizeBytes": 120_000_000 + i})
        })
        .collect();
    let mut labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "eks.amazonaws.com/nodegroup": format!("pool-{}", n % POOLS),
        "topology.kubernetes.io/zone": format!("eu-central-1{}", ["a", "b", "c"][n % 3]),
        "node.kubernetes.io/instance-type": "m7i.4xlarge",
    });
    for i in 0..12 {
        labels[format!("example.com/label-{i}")] = json!(format!("value-{i}"));
    }
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "KubeletHasSufficientResources", "message": "kubelet has sufficient resources available",
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let capacity = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {
            "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-{n:017x}\"}}"),
            "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {"providerID": format!("aws:///eu-central-1a/i-{n:017x}")},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("10.{}.{}.{}", n / 65536, n / 256 % 256, n % 256)},
                          {"type": "Hostname", "address": name}],
            "allocatable": capacity, "capacity": capacity,
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                           condition("PIDPressure", "False"), condition("Ready", "True")],
            "images": images,
            "nodeInfo": {"architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "containerd://2.2.0",
                         "kernelVersion": "6.12.0", "kubeProxyVersion": "", "machineID": "m", "operatingSystem": "linux",
                         "osImage": "Bottlerocket OS", "systemUUID": "s", "kubeletVersion": VERSIONS[n % 3]},
        },
    })
}

/// Waits until the controllers are done with the new nodes.
pub async fn quiet(nodes: &Api<Node>) -> TestResult {
    let mut last = String::new();
    let mut since = Instant::now();
    until("nobody writes to the nodes any more", Duration::from_mins(3), async || {
        let list = nodes.list_metadata(&ListParams::default()).await?;
        let newest = list.items.iter().filter_map(|node| node.metadata.resource_version.clone());
        let newest = newest.max_by_key(|version| (version.len(), version.clone())).unwrap_or_default();
        if newest != last {
            (last, since) = (newest, Instant::now());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(since.elapsed() > Duration::from_secs(5))
    })
    .await
}
