//! Who changes versions on a virtual cluster: it stands in for a cloud, or for what a Job does on its node.
//!
//! Here belongs how long that takes and what it looks like from outside. The invariant: it does only what a NodeUpgrade
//! at state `Upgrading` is about, and once.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_sim::Cluster;
use serde_json::Value;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;

/// How long the executor takes.
#[derive(Clone, Copy, Debug)]
pub struct Takes {
    /// From the beginning until a kubelet is stopped.
    pub work: Duration,
    /// From there until the kubelet runs again.
    pub silent: Duration,
    /// How long a component of the control plane is away.
    pub away: Duration,
}

/// What one NodeUpgrade is about.
struct ExecutorOrder {
    components: Vec<String>,
    node: String,
    version: String,
}

/// Carries out every NodeUpgrade of `cluster` whose executor may work, for as long as the tokio runtime lives.
pub fn run(cluster: &Cluster, takes: Takes) {
    let (orders, mut given) = unbounded_channel();
    cluster.on_write(move |write| {
        let claim = write.after().filter(|_| write.resource() == "nodeupgrades.evenkeel.dev");
        if let Some(claim) = claim.filter(|claim| claim["status"]["state"] == "Upgrading") {
            let attempt = claim["status"]["attempt"].as_u64();
            // Without a receiver nobody wants it any more.
            let _ = orders.send(((write.uid().to_owned(), attempt), ExecutorOrder::of(&claim)));
        }
    });
    let cluster = cluster.clone();
    tokio::spawn(async move {
        let mut begun = BTreeSet::new();
        while let Some((attempt, order)) = given.recv().await {
            if begun.insert(attempt) {
                let cluster = cluster.clone();
                tokio::spawn(async move { order.carry_out(&cluster, takes).await });
            }
        }
    });
}

impl ExecutorOrder {
    fn of(claim: &Value) -> Self {
        let spec = &claim["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let together: Vec<String> = spec["components"].as_array().into_iter().flatten().map(text).collect();
        Self {
            components: if together.is_empty() { vec![text(&spec["component"])] } else { together },
            node: text(&spec["nodeName"]),
            version: text(&spec["toVersion"]),
        }
    }

    async fn carry_out(&self, cluster: &Cluster, takes: Takes) {
        for component in &self.components {
            if component == "kubelet" {
                sleep(takes.work).await;
                cluster.kubelets().stop(&self.node);
                sleep(takes.silent).await;
                cluster.start_kubelet(&self.node, &self.version);
                continue;
            }
            let node = self.place(cluster);
            cluster.take_component(&node, component);
            sleep(takes.away).await;
            cluster.replace_component(&node, component, &self.version);
        }
    }

    /// The control-plane node; a kube-apiserver that is no Pod is named by its address.
    fn place(&self, cluster: &Cluster) -> String {
        let plane = cluster.control_plane();
        let plain = |address: &str| address.replace(':', "-");
        let at = plane.addresses().iter().position(|address| plain(address) == plain(&self.node));
        at.and_then(|at| plane.nodes().into_iter().nth(at)).unwrap_or_else(|| self.node.clone())
    }
}
