//! Simulated nodes: what they look like through the API when they join.
//!
//! Belongs here: Node objects. Never here: what their kubelets do later (see `kubelets`) or pods on them (KWOK's
//! stages). Invariant: a node is created with its complete status, so nobody sees a half-made one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::digest::digest;
use crate::error::{Error, Result};
use crate::net;
use crate::release::Release;
use crate::static_pods::node_name;

/// Some alike worker nodes.
///
/// They are called after their pool: `general-1`, `general-2`, …; without a pool `worker-1`, `worker-2`, ….
#[derive(Debug, Clone)]
pub struct NodeGroup {
    count: usize,
    zones: Vec<String>,
    kubelet: String,
    pool: Option<String>,
    labels: BTreeMap<String, String>,
    taints: Vec<(String, String, String)>,
    cpu: String,
    memory: String,
    pods: u32,
}

impl NodeGroup {
    /// `count` workers with 16 CPUs, 64 GiB, room for 110 pods, and the newest kubelet.
    pub fn workers(count: usize) -> Self {
        Self {
            count,
            zones: Vec::new(),
            kubelet: Release::NEWEST.version().to_owned(),
            pool: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            cpu: "16".to_owned(),
            memory: "64Gi".to_owned(),
            pods: 110,
        }
    }

    /// Spreads the nodes over these zones, in turn.
    #[must_use]
    pub fn zones<S: Into<String>>(mut self, zones: impl IntoIterator<Item = S>) -> Self {
        self.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// What the kubelets report as their version: any string, for instance `v1.34.9-eks-1234567`.
    #[must_use]
    pub fn kubelet(mut self, version: impl Into<String>) -> Self {
        self.kubelet = version.into();
        self
    }

    /// Sets the label `pool`, and names the nodes after it.
    #[must_use]
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pool = Some(pool.into());
        self
    }

    /// One more label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// One more taint.
    #[must_use]
    pub fn taint(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        effect: impl Into<String>,
    ) -> Self {
        self.taints.push((key.into(), value.into(), effect.into()));
        self
    }

    /// What each node offers: CPUs and memory as Kubernetes quantities, and how many pods.
    #[must_use]
    pub fn capacity(mut self, cpu: impl Into<String>, memory: impl Into<String>, pods: u32) -> Self {
        self.cpu = cpu.into();
        self.memory = memory.into();
        self.pods = pods;
        self
    }

    pub(crate) fn prefix(&self) -> &str {
        self.pool.as_deref().unwrap_or("worker")
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Node number `number` (from 1) of this group's prefix; `nth` is its place among all workers.
    fn manifest(&self, number: usize, nth: usize) -> Value {
        let name = format!("{}-{number}", self.prefix());
        let mut labels = self.labels.clone();
        if let Some(pool) = &self.pool {
            labels.insert("pool".to_owned(), pool.clone());
        }
        if let Some(zone) = (number - 1).checked_rem(self.zones.len()).and_then(|i| self.zones.get(i)) {
            labels.insert("topology.kubernetes.io/zone".to_owned(), zone.clone());
        }
        let taints: Vec<_> = self
            .taints
            .iter()
            .map(|(key, value, effect)| json!({ "key": key, "value": value, "effect": effect }))
            .collect();
        // 62,500 addresses: more than a machine can simulate nodes.
        let address = format!("10.128.{}.{}", nth / 250, nth % 250 + 1);
        let capacity = json!({ "cpu": self.cpu, "memory": self.memory, "pods": self.pods.to_string() });
        node(&name, &address, &self.kubelet, &labels, &taints, &capacity)
    }

    pub(crate) fn manifests(&self, first: usize, nth: usize) -> Vec<Value> {
        (0..self.count).map(|i| self.manifest(first + i, nth + i)).collect()
    }
}

/// A control-plane node as kubeadm labels and taints it; its address is its apiserver's.
pub(crate) fn control_plane(index: usize, kubelet: &str) -> Value {
    let labels = BTreeMap::from([
        ("node-role.kubernetes.io/control-plane".to_owned(), String::new()),
        ("node.kubernetes.io/exclude-from-external-load-balancers".to_owned(), String::new()),
    ]);
    let taints = [json!({ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" })];
    let capacity = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
    node(&node_name(index), &net::control_plane(index).to_string(), kubelet, &labels, &taints, &capacity)
}

fn node(
    name: &str,
    address: &str,
    kubelet: &str,
    labels: &BTreeMap<String, String>,
    taints: &[Value],
    capacity: &Value,
) -> Value {
    let now = Timestamp::now().to_string();
    let mut labels = labels.clone();
    for (key, value) in
        [("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")]
    {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let id = |purpose: &str| digest(&[purpose, name, &now], 16);
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({ "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            // KWOK plays the kubelet of nodes with this annotation.
            "annotations": { "kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0" },
        },
        "spec": { "taints": taints, "providerID": format!("devcluster://{name}") },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": address },
                { "type": "Hostname", "address": name },
            ],
            "allocatable": capacity,
            "capacity": capacity,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "enough memory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "enough disk"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "enough processes"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": id("boot"),
                "containerRuntimeVersion": "containerd://2.2.0",
                "kernelVersion": "6.12.0",
                "kubeProxyVersion": "",
                "kubeletVersion": kubelet,
                "machineID": id("machine"),
                "operatingSystem": "linux",
                "osImage": "Simulated Linux",
                "systemUUID": id("system"),
            },
        },
    })
}

pub(crate) async fn create(client: &Client, manifests: Vec<Value>) -> Result<Vec<String>> {
    use futures::stream::{self, StreamExt as _, TryStreamExt as _};
    let api: Api<Node> = Api::all(client.clone());
    let create = |manifest: Value| {
        let api = api.clone();
        async move {
            let node: Node = serde_json::from_value(manifest)
                .map_err(|e| Error::Usage(format!("a node cannot be made like this: {e}")))?;
            let name = node.metadata.name.clone().unwrap_or_default();
            api.create(&PostParams::default(), &node)
                .await
                .map_err(Error::kube(format!("creating node {name}")))?;
            Ok(name)
        }
    };
    stream::iter(manifests).map(create).buffered(16).try_collect().await
}

pub(crate) async fn remove(client: &Client, name: &str) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    api.delete(name, &DeleteParams::default()).await.map_err(Error::kube(format!("deleting node {name}")))?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use kube::ResourceExt as _;

    use super::*;

    fn parsed(group: &NodeGroup, first: usize) -> Vec<Node> {
        group.manifests(first, 0).into_iter().map(|v| serde_json::from_value(v).unwrap()).collect()
    }

    #[test]
    fn a_group_names_labels_and_spreads_its_nodes() {
        let group = NodeGroup::workers(3).pool("gpu").zones(["a", "b"]).kubelet("v1.34.9-eks-1234567");
        let nodes = parsed(&group, 4);
        let names: Vec<_> = nodes.iter().map(kube::ResourceExt::name_any).collect();
        assert_eq!(names, ["gpu-4", "gpu-5", "gpu-6"]);
        let zones: Vec<_> =
            nodes.iter().map(|n| n.labels()["topology.kubernetes.io/zone"].as_str()).collect();
        assert_eq!(zones, ["b", "a", "b"]);
        let info = nodes[0].status.clone().unwrap().node_info.unwrap();
        assert_eq!(info.kubelet_version, "v1.34.9-eks-1234567");
        assert_eq!(nodes[0].labels()["kubernetes.io/hostname"], "gpu-4");
    }

    #[test]
    fn a_group_without_zones_has_no_zone_label() {
        let nodes = parsed(&NodeGroup::workers(1), 1);
        assert_eq!(nodes[0].name_any(), "worker-1");
        assert!(!nodes[0].labels().contains_key("topology.kubernetes.io/zone"));
    }

    #[test]
    fn a_control_plane_node_has_its_apiservers_address() {
        let node: Node = serde_json::from_value(control_plane(2, "v1.36.4")).unwrap();
        let addresses = node.status.unwrap().addresses.unwrap();
        assert_eq!(addresses[0].address, "192.0.2.3");
        assert_eq!(node.spec.unwrap().taints.unwrap()[0].effect, "NoSchedule");
    }
}
