//! Who changes versions in the tests: it stands in for a cloud and for what an upgrade Job does on its node.
//!
//! It looks at `NodeUpgrade`s and Jobs as anybody could, really replaces the control plane's binaries, and lets kubelets
//! restart with another version. It shares no code with the operator.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, Release, Role, TestResult};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, ResourceExt as _};

/// Less than the five minutes that the tests' executors have.
const LIMIT: Duration = Duration::from_mins(4);

pub fn node_upgrades(client: Client) -> Api<DynamicObject> {
    all_of(client, "NodeUpgrade")
}

pub fn cluster_upgrades(client: Client) -> Api<DynamicObject> {
    all_of(client, "ClusterUpgrade")
}

fn all_of(client: Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("evenkeel.dev", "v1alpha1", kind);
    Api::all_with(client, &ApiResource::from_gvk(&kind))
}

/// Works until the future is dropped.
pub async fn work(cluster: &Cluster) -> TestResult {
    let claims = node_upgrades(cluster.client());
    let jobs: Api<Job> = Api::namespaced(cluster.client(), "evenkeel-executors");
    let mut begun = BTreeSet::new();
    let mut works = FuturesUnordered::new();
    loop {
        let all = ListParams::default();
        // Apiservers come and go; what cannot be read now is read in a moment.
        if let (Ok(claims), Ok(jobs)) = (claims.list(&all).await, jobs.list(&all).await) {
            for claim in &claims.items {
                let given = claim.data["status"]["state"] == "Upgrading" && executed(claim, &jobs.items);
                let attempt = claim.data["status"]["attempt"].as_i64().unwrap_or_default();
                if given && begun.insert((claim.uid(), attempt)) {
                    works.push(upgrade(cluster, claim.clone()));
                }
            }
        }
        tokio::select! {
            Some(done) = works.next() => done?,
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }
}

/// An external executor begins when the gate opens; a Job's work shows when the Job is complete.
fn executed(claim: &DynamicObject, jobs: &[Job]) -> bool {
    if claim.data["spec"]["executor"] == "machines" {
        return true;
    }
    let of_claim = |job: &&Job| job.labels().get("evenkeel.dev/node-upgrade") == claim.uid().as_ref();
    let complete = |job: &Job| {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|c| c.type_ == "Complete" && c.status == "True")
    };
    jobs.iter().filter(of_claim).any(complete)
}

/// Tries until it is done, as an installer does while kube-apiservers come and go, and not longer than executors may take.
async fn upgrade(cluster: &Cluster, claim: DynamicObject) -> TestResult {
    let began = Instant::now();
    loop {
        match upgraded(cluster, &claim).await {
            Err(_) if began.elapsed() < LIMIT => tokio::time::sleep(Duration::from_secs(1)).await,
            done => return done,
        }
    }
}

async fn upgraded(cluster: &Cluster, claim: &DynamicObject) -> TestResult {
    let spec = &claim.data["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let (component, node, to) = (text("component"), text("nodeName"), text("toVersion"));
    let release = Release::parse(to).ok_or_else(|| Failure::new(format!("there is no binary of {to}")))?;
    let role = match component {
        "kubelet" => return Ok(cluster.restart_kubelet(node, to).await?),
        "kube-apiserver" => Role::Apiserver,
        "kube-controller-manager" => Role::ControllerManager,
        "kube-scheduler" => Role::Scheduler,
        other => return Err(Failure::new(format!("asked to upgrade {other}"))),
    };
    let found = cluster.components().find(|handle| handle.role() == role && handle.node() == node);
    match found {
        Some(handle) => Ok(handle.swap(release).await?),
        None => Err(Failure::new(format!("there is no {component} on {node}"))),
    }
}
