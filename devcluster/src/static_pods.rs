//! Mirror pods: how static pods look through the API.
//!
//! Belongs here: the Pod objects that stand for control-plane processes. Never here: the processes. Invariant:
//! a mirror pod is replaced (new UID) whenever the kubelet would replace it, and its status tells the truth
//! about the process it stands for.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::digest::digest;
use crate::error::{Error, Result};
use crate::net;
use crate::release::Release;
use crate::role::Role;

/// Where static pods of a control plane live.
pub(crate) const NAMESPACE: &str = "kube-system";

/// What a mirror pod says; whenever this changes, the API is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) release: Release,
    pub(crate) ready: bool,
    pub(crate) restarts: u32,
    pub(crate) started: Timestamp,
}

pub(crate) fn pod_name(role: Role, index: usize) -> String {
    format!("{}-{}", role.name(), node_name(index))
}

pub(crate) fn node_name(index: usize) -> String {
    format!("cp-{}", index + 1)
}

/// Makes the API show `seen`, starting from what it showed before.
pub(crate) async fn publish(
    client: &Client,
    role: Role,
    index: usize,
    before: Option<&Seen>,
    seen: &Seen,
) -> Result<()> {
    let name = pod_name(role, index);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    if before.is_none_or(|b| b.release != seen.release) {
        replace(client, &pods, role, index, seen).await?;
    }
    let status = json!({ "status": status(role, index, seen) });
    let patch = Patch::Merge(&status);
    let mut patched = pods.patch_status(&name, &PatchParams::default(), &patch).await;
    if matches!(&patched, Err(kube::Error::Api(answer)) if answer.is_not_found()) {
        // Deleted since: a kubelet makes it again.
        replace(client, &pods, role, index, seen).await?;
        patched = pods.patch_status(&name, &PatchParams::default(), &patch).await;
    }
    patched.map_err(Error::kube(format!("writing the status of static pod {name}")))?;
    Ok(())
}

/// Did somebody delete the mirror pod, or ask for it? An API that does not answer is no proof of that.
pub(crate) async fn is_gone(client: &Client, role: Role, index: usize) -> bool {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    match pods.get_metadata_opt(&pod_name(role, index)).await {
        // A kubelet grants a mirror pod no grace: it is deleted at once and made again.
        Ok(pod) => pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()),
        Err(_) => false,
    }
}

async fn replace(client: &Client, pods: &Api<Pod>, role: Role, index: usize, seen: &Seen) -> Result<()> {
    let name = pod_name(role, index);
    // As a kubelet does: without grace, the container behind it is gone already.
    match pods.delete(&name, &DeleteParams::default().grace_period(0)).await {
        Ok(_) => {}
        Err(kube::Error::Api(answer)) if answer.is_not_found() => {}
        Err(error) => return Err(Error::kube(format!("deleting static pod {name}"))(error)),
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes
        .get(&node_name(index))
        .await
        .map_err(Error::kube(format!("reading node {} for its static pod", node_name(index))))?;
    let uid = node.uid().unwrap_or_default();
    let pod: Pod = serde_json::from_value(manifest(role, index, seen.release, &uid))
        .map_err(|e| Error::Usage(format!("static pod {name} is not a Pod: {e}")))?;
    pods.create(&PostParams::default(), &pod)
        .await
        .map_err(Error::kube(format!("creating static pod {name}")))?;
    Ok(())
}

fn image(role: Role, release: Release) -> String {
    format!("registry.k8s.io/{}:{release}", role.name())
}

fn manifest(role: Role, index: usize, release: Release, node_uid: &str) -> Value {
    let node = node_name(index);
    let hash = digest(&[role.name(), &node, release.version()], 16);
    let address = net::control_plane(index).to_string();
    let mut annotations = json!({
        "kubernetes.io/config.hash": hash,
        "kubernetes.io/config.mirror": hash,
        "kubernetes.io/config.seen": Timestamp::now().to_string(),
        "kubernetes.io/config.source": "file",
    });
    let mut command = vec![role.name().to_owned()];
    if role == Role::Apiserver {
        annotations["kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"] =
            role.address(index).to_string().into();
        command.push(format!("--advertise-address={address}"));
    } else {
        command.push("--leader-elect=true".to_owned());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(role, index),
            "namespace": NAMESPACE,
            "labels": { "component": role.name(), "tier": "control-plane" },
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true,
            }],
        },
        "spec": {
            "nodeName": node,
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "enableServiceLinks": true,
            "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
            "tolerations": [{ "effect": "NoExecute", "operator": "Exists" }],
            "containers": [{
                "name": role.name(),
                "image": image(role, release),
                "command": command,
                "resources": { "requests": { "cpu": "100m" } },
            }],
        },
    })
}

fn status(role: Role, index: usize, seen: &Seen) -> Value {
    let address = net::control_plane(index).to_string();
    let since = Timestamp::now().to_string();
    let ready = if seen.ready { "True" } else { "False" };
    let condition =
        |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": since });
    json!({
        "phase": "Running",
        "hostIP": address,
        "hostIPs": [{ "ip": address }],
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "startTime": seen.started.to_string(),
        "conditions": [
            condition("PodReadyToStartContainers", "True"),
            condition("Initialized", "True"),
            condition("Ready", ready),
            condition("ContainersReady", ready),
            condition("PodScheduled", "True"),
        ],
        "containerStatuses": [{
            "name": role.name(),
            "image": image(role, seen.release),
            "imageID": "",
            "ready": seen.ready,
            "started": true,
            "restartCount": seen.restarts,
            "state": { "running": { "startedAt": seen.started.to_string() } },
        }],
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_pod_is_one_by_every_sign_that_tools_look_for() {
        let value = manifest(Role::Apiserver, 1, Release::V1_36, "uid-1");
        let pod: Pod = serde_json::from_value(value).unwrap();
        assert_eq!(pod.name_any(), "kube-apiserver-cp-2");
        let mirror = &pod.annotations()["kubernetes.io/config.mirror"];
        assert_eq!(mirror, &pod.annotations()["kubernetes.io/config.hash"]);
        assert_eq!(pod.owner_references()[0].kind, "Node");
        let image = pod.spec.unwrap().containers[0].image.clone().unwrap();
        assert_eq!(image, format!("registry.k8s.io/kube-apiserver:{}", Release::V1_36));
    }

    #[test]
    fn another_release_is_another_hash() {
        let hash = |release| {
            manifest(Role::Scheduler, 0, release, "u")["metadata"]["annotations"]["kubernetes.io/config.hash"]
                .clone()
        };
        assert_ne!(hash(Release::V1_36), hash(Release::V1_37));
    }
}
