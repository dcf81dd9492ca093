//! The same nodes as a person moves them without Evenkeel: one after the other, `kubectl drain`, the new kubelet, `kubectl
//! uncordon`.
//!
//! It asks as `kubectl drain` does (`k8s.io/kubectl/pkg/drain`): for every pod of the node at once, again five seconds
//! after a refusal, and then every second whether the pod is gone.

use std::time::Duration;

use evenkeel::demo::executor::Takes;
use evenkeel_sim::Cluster;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, EvictParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;

/// The name of its requests in the cluster's record.
pub const AGENT: &str = "by-hand";
const AGAIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_secs(1);

/// Moves every kubelet of `cluster` to `version`. Returns how many evictions were refused.
pub async fn upgrade(cluster: &Cluster, takes: Takes, version: &str) -> usize {
    let mut refused = 0;
    let client = cluster.client_of(AGENT);
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let name = node.name_any();
        mark(&nodes, &name, true).await;
        refused += drain(&client, &name).await;
        sleep(takes.work).await;
        cluster.kubelets().stop(&name);
        sleep(takes.silent).await;
        cluster.start_kubelet(&name, version);
        while !is_ready(&nodes.get(&name).await.unwrap(), version) {
            sleep(POLL).await;
        }
        mark(&nodes, &name, false).await;
    }
    refused
}

async fn mark(nodes: &Api<Node>, name: &str, cordoned: bool) {
    let value = if cordoned { Value::Bool(true) } else { Value::Null };
    let patch = Patch::Merge(json!({"spec": {"unschedulable": value}}));
    nodes.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Returns how many evictions were refused.
async fn drain(client: &Client, node: &str) -> usize {
    let all: Api<Pod> = Api::all(client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let is_of_set = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet");
    let leave = all
        .list(&here)
        .await
        .unwrap()
        .items
        .into_iter()
        .filter(|pod| !is_of_set(pod) && !pod.annotations().contains_key("kubernetes.io/config.mirror"));
    join_all(leave.map(|pod| go(client, pod))).await.into_iter().sum()
}

/// Asks until the pod may leave, and looks until it has. Returns how often that was refused.
async fn go(client: &Client, pod: Pod) -> usize {
    let mut refused = 0;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
    let name = pod.name_any();
    while let Err(error) = pods.evict(&name, &EvictParams::default()).await {
        if matches!(error, kube::Error::Api(status) if status.code == 404) {
            return refused;
        }
        refused += 1;
        sleep(AGAIN).await;
    }
    while pods.get_opt(&name).await.unwrap().is_some_and(|there| there.uid() == pod.uid()) {
        sleep(POLL).await;
    }
    refused
}

fn is_ready(node: &Node, version: &str) -> bool {
    let status = node.status.as_ref();
    let runs = status
        .and_then(|status| status.node_info.as_ref())
        .is_some_and(|info| info.kubelet_version == version);
    let conditions = status.and_then(|status| status.conditions.as_ref());
    runs && conditions.into_iter().flatten().any(|of| of.type_ == "Ready" && of.status == "True")
}
