//! What the demonstration's cluster is made of: its nodes, versions and workloads, for each scenario.
//!
//! Here belongs how the cluster begins; what happens to it later belongs to the parent module.

use std::time::Duration;

use clap::ValueEnum;
use evenkeel_sim::{Cluster, NodeGroup};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::api::definitions;
use crate::clients::one_line;

/// When a person first sees the cluster: 2026-11-02 09:00 UTC.
pub(super) const BEGAN: Timestamp = Timestamp::constant(1_793_610_000, 0);
/// The newest version of any component of the cluster.
pub(super) const NEWEST: &str = "v1.37.1";
const BEFORE: &str = "v1.36.4";
const ZONES: [&str; 3] = ["a", "b", "c"];
const WORKLOADS: &str = include_str!("workloads.yaml");
/// A ClusterUpgrade, as a person writes it.
pub(super) const MANIFEST: &str = include_str!("upgrade.yaml");

/// In which state the cluster begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Every component runs one version, and the next minor is out: a ClusterUpgrade goes there, and meets a budget that
    /// can never let a pod go.
    Upgrade,
    /// In the middle of an upgrade: one kube-apiserver behind, four minors of kubelets, some of them too old.
    Lagging,
    /// Every component runs one version, and nothing is wrong.
    Even,
    /// As `lagging`, and one kube-apiserver is dead.
    Broken,
}

/// `group` with the Cluster API label that puts its nodes into the pool `name`.
pub(super) fn pool(group: NodeGroup, name: &str) -> NodeGroup {
    group.label("node.cluster.x-k8s.io/pool", name)
}

/// Puts the nodes, our definitions and the workloads of `scenario` into the empty cluster.
pub(super) async fn furnish(cluster: &Cluster, client: &Client, scenario: Scenario) -> Result<(), String> {
    let even = scenario == Scenario::Even;
    let old = if even { NEWEST } else { BEFORE };
    let control_plane = NodeGroup::new("cp", 3).kubelet(old).zones(ZONES).capacity("4", "16Gi", 110);
    cluster.add_control_plane(&control_plane, old);
    if scenario == Scenario::Upgrade {
        let workers = NodeGroup::new("general", 12).kubelet(old).zones(ZONES).label("disk", "ssd");
        cluster.add_nodes(&pool(workers, "general"));
    } else {
        of_all_ages(cluster, even);
    }
    for (_, definition) in definitions() {
        let definition = serde_json::to_value(definition).map_err(|error| error.to_string())?;
        create(client, &definition).await?;
    }
    // The server serves a kind a moment after it was defined.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for document in WORKLOADS.split("\n---\n") {
        let mut object: Value = serde_saphyr::from_str(document).map_err(|error| error.to_string())?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let impossible = matches!(name, "ledger" | "search");
        if even && object["kind"] == "PodDisruptionBudget" && impossible {
            continue;
        }
        // Nothing but the budget that can never let a pod go is in the upgrade's way.
        if scenario == Scenario::Upgrade && matches!(name, "search" | "pod-policy") {
            continue;
        }
        if even && object["kind"] == "DaemonSet" {
            object["spec"]["template"]["spec"]["containers"][0]["image"] =
                format!("registry.k8s.io/kube-proxy:{NEWEST}").into();
        }
        create(client, &object).await?;
    }
    if scenario == Scenario::Broken {
        cluster.run_component("cp-2", "kube-apiserver", false);
    }
    Ok(())
}

/// Adds nodes of many versions, and upgrades two of three kube-apiservers; of one version, where all are to be `even`.
fn of_all_ages(cluster: &Cluster, even: bool) {
    let old = if even { NEWEST } else { BEFORE };
    if !even {
        for node in ["cp-1", "cp-2"] {
            cluster.replace_component(node, "kube-apiserver", NEWEST);
        }
    }
    // Own machines, a cloud provider's, small machines in shops, and nodes that everybody forgot.
    for (name, count, version, disk) in [
        ("general", 16, BEFORE, "ssd"),
        ("burst", 9, "v1.35.9-eks-3025e55", "ssd"),
        ("edge", 7, "v1.34.10+k3s1", "none"),
        ("legacy", 3, "v1.33.12", "none"),
    ] {
        let version = if even { NEWEST } else { version };
        let group = NodeGroup::new(name, count).kubelet(version).zones(ZONES).label("disk", disk);
        let group = if name == "burst" { group.label("eks.amazonaws.com/nodegroup", name) } else { group };
        cluster.add_nodes(&pool(group, name));
    }
    // Nodes with fast disks are in two of the three zones.
    for zone in ["a", "b"] {
        let group =
            NodeGroup::new(format!("nvme-{zone}"), 1).kubelet(old).zones([zone]).label("disk", "nvme");
        cluster.add_nodes(&pool(group, "nvme"));
    }
}

/// Creates an object as `kubectl create` does.
pub(super) async fn create(client: &Client, object: &Value) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (name, namespace) = (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
    let group = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    // The plural of every kind here is the kind with an `s`.
    let path = format!("{group}{within}/{}s", kind.to_lowercase());
    let failed = |error: String| format!("cannot create {kind} {name}: {error}");
    let request = Request::post(path)
        .header("Content-Type", "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| failed(error.to_string()))?;
    client.request::<Value>(request).await.map(drop).map_err(|error| failed(one_line(&error)))
}
