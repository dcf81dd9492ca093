//! What is said to be done, held against what is: upgraded, given back, completed.
//!
//! Every answer comes from the component, the Node or the Job itself. Where the API is away for a moment it is asked again.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_devcluster::{Release, Role};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher::Event;
use kube::{Api, ResourceExt as _};

use super::{MARK, Observer, kubelet, node_ready};
use crate::scenario::TO;
use crate::watched::Watched;

/// Asks until there is an answer, for as long as an apiserver takes to come back.
async fn answered<T, E>(ask: impl AsyncFn() -> Result<T, E>) -> Option<T> {
    for _ in 0..100 {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    None
}

impl Observer {
    /// "Upgraded" is said of a kubelet only when its node reports the target, is Ready and schedulable again, and of a part
    /// of the control plane only when it runs the target and its node is whole.
    pub(super) async fn claim(&self, cluster: &impl Watched, event: Event<DynamicObject>) {
        let live = matches!(event, Event::Apply(_));
        let (Event::Apply(claim) | Event::InitApply(claim)) = event else { return };
        let upgraded = claim.data["status"]["state"] == "Upgraded";
        // What is listed again was said a while ago: by now the next step may be under way.
        let new = {
            let Ok(mut seen) = self.seen.lock() else { return };
            seen.events += 1;
            upgraded && seen.upgraded.insert(claim.uid().unwrap_or_default()) && live
        };
        if !new {
            return;
        }
        let text = |field: &str| claim.data["spec"][field].as_str().unwrap_or_default();
        let (component, node, to) = (text("component"), text("nodeName"), text("toVersion"));
        if component == "kubelet" {
            self.kubelet_is_upgraded(cluster, node).await;
        } else {
            self.component_is_upgraded(cluster, component, node, to).await;
        }
        if let Some(what) = cluster.lacks(node).await {
            self.note(format!("{component} on {node} is called upgraded: {what}"));
        }
    }

    async fn kubelet_is_upgraded(&self, cluster: &impl Watched, name: &str) {
        let nodes: Api<Node> = Api::all(cluster.client());
        let Some(node) = answered(async || nodes.get(name).await).await else {
            return self.note(format!("{name} is called upgraded and cannot be read"));
        };
        if kubelet(&node) != TO || !node_ready(&node) || node.annotations().contains_key(MARK) {
            let ready = node_ready(&node);
            self.note(format!("{name} is called upgraded: {}, ready {ready}", kubelet(&node)));
        }
    }

    /// The component of its node runs the target by now, and no kube-apiserver is more than one minor from another.
    async fn component_is_upgraded(&self, cluster: &impl Watched, component: &str, node: &str, to: &str) {
        let name = format!("{component}-{node}");
        let all = answered(async || {
            let all = cluster.components().await;
            let found = all.iter().find(|found| found.name == name);
            let runs = found.map(|found| found.release.clone());
            runs.ok_or("it is not there".to_owned())?.map(|runs| (runs, all))
        });
        let Some((runs, all)) = all.await else {
            return self.note(format!("{name} is called upgraded and says nothing"));
        };
        if Release::parse(to).is_none_or(|to| runs < to) {
            self.note(format!("{name} is called upgraded to {to}: {}", runs.version()));
        }
        let servers = all.iter().filter(|component| component.role == Role::Apiserver);
        let minors = servers.filter_map(|server| Some(server.release.as_ref().ok()?.minor()));
        let minors: BTreeSet<u32> =
            minors.filter_map(|minor| minor.rsplit('.').next()?.parse().ok()).collect();
        if let (Some(least), Some(most)) = (minors.first(), minors.last())
            && most - least > 1
        {
            self.note(format!("kube-apiservers of 1.{least} and 1.{most} run side by side"));
        }
    }

    /// A node is given back only when the Job of the claim in `mark` has ended.
    pub(super) async fn executor_has_ended(&self, cluster: &impl Watched, node: &str, mark: &str) {
        let Some((claim, uid)) = mark.split_once('/') else { return };
        let jobs: Api<Job> = Api::namespaced(cluster.client(), "evenkeel-executors");
        let of_claim = ListParams::default().labels(&format!("evenkeel.dev/node-upgrade={uid}"));
        let Some(jobs) = answered(async || jobs.list(&of_claim).await).await else {
            return self.note(format!("{node} was given back by {claim}, and its Job cannot be read"));
        };
        for job in jobs.items {
            let active = job.status.as_ref().and_then(|status| status.active).unwrap_or_default();
            if active > 0 {
                self.note(format!("{node} was given back by {claim} while Job {} ran", job.name_any()));
            }
        }
    }

    /// "Completed" is said only when every node is whole, etcd included.
    pub(super) async fn upgrade(&self, cluster: &impl Watched, event: Event<DynamicObject>) {
        let (Event::Apply(upgrade) | Event::InitApply(upgrade)) = event else { return };
        let conditions = upgrade.data["status"]["conditions"].as_array();
        let completed = conditions.is_some_and(|all| {
            all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True" && c["reason"] == "Completed")
        });
        if !completed {
            return;
        }
        let nodes: Api<Node> = Api::all(cluster.client());
        let Some(nodes) = answered(async || nodes.list(&ListParams::default()).await).await else {
            return self.note("the upgrade is called complete, and no node can be read".to_owned());
        };
        for node in nodes.items.iter().map(Node::name_any) {
            if let Some(what) = cluster.lacks(&node).await {
                self.note(format!("the upgrade is called complete: {what}"));
            }
        }
    }
}
