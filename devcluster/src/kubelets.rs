//! What the kubelets of simulated nodes do: report, restart with another version, go silent and come back.
//!
//! Belongs here: writes that a kubelet would make on an occasion. Never here: what it does all the time, leases,
//! heartbeats and pods, which is KWOK's. Invariant: a kubelet's news comes in one patch, as a kubelet sends it.

use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::error::{Error, Result};

/// How long a kubelet is away while it is restarted, unless told otherwise.
pub(crate) const RESTART: Duration = Duration::from_secs(2);

/// What the kubelet says about itself in its next status.
pub(crate) enum News<'a> {
    NotReady,
    Ready,
    /// Ready, after a restart with another binary.
    Upgraded(&'a str),
}

/// One status patch, as the kubelet of `name` would send it.
pub(crate) async fn report(client: &Client, name: &str, news: &News<'_>) -> Result<()> {
    let now = Timestamp::now().to_string();
    let (status, reason, message) = match news {
        News::NotReady => {
            ("False", "KubeletNotReady", "container runtime status check may not have completed yet")
        }
        News::Ready | News::Upgraded(_) => ("True", "KubeletReady", "kubelet is posting ready status"),
    };
    let api: Api<Node> = Api::all(client.clone());
    let doing = || Error::kube(format!("writing the status of node {name}"));
    let node = api.get_status(name).await.map_err(doing())?;
    let was = node.status.unwrap_or_default().conditions.unwrap_or_default();
    let conditions: Vec<_> = was
        .iter()
        .map(|condition| {
            if condition.type_ != "Ready" {
                return json!({ "type": condition.type_, "lastHeartbeatTime": now });
            }
            let mut ready = json!({ "type": "Ready", "status": status, "reason": reason, "message": message,
                                    "lastHeartbeatTime": now });
            if condition.status != status {
                ready["lastTransitionTime"] = now.as_str().into();
            }
            ready
        })
        .collect();
    let mut body = json!({ "status": { "conditions": conditions } });
    if let News::Upgraded(version) = news {
        body["status"]["nodeInfo"] = json!({ "kubeletVersion": version });
    }
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&body)).await.map_err(doing())?;
    Ok(())
}

/// Makes the kubelet of `name` silent, or lets it go on. KWOK leaves a node alone while somebody else holds its
/// lease, so a holder that never renews it is a kubelet that is gone.
pub(crate) async fn set_running(client: &Client, name: &str, running: bool) -> Result<()> {
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let now = MicroTime(Timestamp::now());
    let (holder, seconds) = if running { (None, 40) } else { (Some("nobody"), 10 * 365 * 24 * 3600) };
    // Renewed a last time: from 1.37 on the node controller takes a lease that changed without being renewed for
    // a stale cache, and never calls such a node unknown.
    let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": now });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&json!({ "spec": spec })))
        .await
        .map_err(Error::kube(format!("changing the lease of node {name}")))?;
    Ok(())
}

/// The containers on `node` never stopped running: a kubelet that is back says so, where the node controller
/// had given their pods up.
pub(crate) async fn report_pods(client: &Client, node: &str) -> Result<()> {
    let all: Api<Pod> = Api::all(client.clone());
    let doing = || Error::kube(format!("reporting the pods of node {node}"));
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node},status.phase=Running"));
    let pods = all.list(&on_node).await.map_err(doing())?;
    let now = Timestamp::now().to_string();
    let patch = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "reason": null, "message": null, "lastTransitionTime": now },
        { "type": "ContainersReady", "status": "True", "reason": null, "message": null, "lastTransitionTime": now },
    ] } });
    let given_up = pods.into_iter().filter(|pod| {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "False")
            && pod.metadata.deletion_timestamp.is_none()
            // Static pods are reported by whoever runs their processes.
            && !pod.annotations().contains_key("kubernetes.io/config.mirror")
    });
    try_join_all(given_up.map(|pod| {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let (name, patch) = (pod.name_any(), &patch);
        async move { api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await }
    }))
    .await
    .map_err(doing())?;
    Ok(())
}
