//! Driving a running cluster: clients, kubectl, components, nodes, and the record of what was asked of it.
//!
//! Belongs here: what a test or a person does to a cluster. Never here: how it is started (see `cluster`).
//! Invariant: each of these returns when what it did can be seen through the API.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};

use crate::audit::{self, AuditEntry};
use crate::binary::Binary;
use crate::cluster::Cluster;
use crate::component::Component;
use crate::error::{Error, Result};
use crate::kubelets::{self, News};
use crate::nodes::{self, NodeGroup};
use crate::release::Release;
use crate::role::Role;
use crate::static_pods::{node_name, pod_name};
use crate::{clients, wait};

impl Cluster {
    /// A client that may do everything. It never retries, so a 429 is seen as one.
    pub fn client(&self) -> Client {
        self.admin.clone()
    }

    /// The kubeconfig of that client. The path exists only inside the namespace.
    pub fn kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// A kubeconfig with the rights of a service account, by a token from the API.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let credentials = serde_json::json!({ "token": self.token(namespace, name, None).await? });
        self.shared.files.pki.kubeconfig(&format!("{namespace}.{name}"), name, &credentials)
    }

    /// The same for a process that stands in for this pod of the service account, whose name the audit log then shows. The
    /// pod is made; no scheduler takes it.
    pub async fn pod_kubeconfig(&self, namespace: &str, name: &str, pod: &str) -> Result<PathBuf> {
        let made = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": pod },
            "spec": {
                "serviceAccountName": name,
                "schedulerName": "none",
                "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
                "containers": [{
                    "name": "process",
                    "image": "example.test/process:1",
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
                    },
                }],
            },
        });
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), namespace);
        let made = api.patch(pod, &PatchParams::apply("devcluster"), &Patch::Apply(made)).await;
        let made = made.map_err(Error::kube(format!("making pod {namespace}/{pod}")))?;
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.to_owned()),
            uid: made.metadata.uid,
        };
        let credentials = serde_json::json!({ "token": self.token(namespace, name, Some(bound)).await? });
        self.shared.files.pki.kubeconfig(&format!("{namespace}.{name}.{pod}"), name, &credentials)
    }

    /// The same, with a token that ended an hour ago.
    pub async fn expired_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.shared.files.pki.expired(&self.token(namespace, name, None).await?)?;
        let credentials = serde_json::json!({ "token": token });
        self.shared.files.pki.kubeconfig(&format!("{namespace}.{name}.expired"), name, &credentials)
    }

    async fn token(
        &self,
        namespace: &str,
        name: &str,
        bound: Option<BoundObjectReference>,
    ) -> Result<String> {
        let api: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(24 * 3600),
                bound_object_ref: bound,
                ..Default::default()
            }),
            ..Default::default()
        };
        let answer = api
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(Error::kube(format!("asking for a token of service account {namespace}/{name}")))?;
        Ok(answer.status.and_then(|s| s.token).unwrap_or_default())
    }

    /// A client from any kubeconfig file, without retries as [`Self::client`].
    pub async fn client_from(&self, kubeconfig: &Path) -> Result<Client> {
        clients::from_kubeconfig(kubeconfig).await
    }

    /// The folder with the `kubectl` that belongs to this cluster.
    pub fn kubectl_path(&self) -> Result<PathBuf> {
        self.shared.assets.path(Binary::Kubectl)
    }

    /// Runs the real kubectl as admin; its output, whether it failed or not.
    pub async fn kubectl<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Output> {
        let path = self.kubectl_path()?;
        let mut command = tokio::process::Command::new(&path);
        command.args(args).env("KUBECONFIG", &self.admin_kubeconfig).kill_on_drop(true);
        // kubectl keeps what it learned about the API in the home folder; it must not meet another cluster's.
        command.env("KUBECACHEDIR", self.shared.files.dir.join("kubectl-cache"));
        command.stdin(std::process::Stdio::null()).output().await.map_err(Error::io("starting", &path))
    }

    /// Applies manifests with kubectl, server-side: a file, a folder of files, or a kustomization.
    pub async fn apply(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let kustomization = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
        let flag = if kustomization.iter().any(|name| path.join(name).is_file()) { "-k" } else { "-f" };
        let args: [&OsStr; 4] = ["apply".as_ref(), "--server-side".as_ref(), flag.as_ref(), path.as_ref()];
        let output = self.kubectl(&args).await?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Kubectl {
            args: format!("apply --server-side {flag} {}", path.display()),
            status: output.status.to_string(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// The apiserver on control-plane node `index`, from 0.
    pub fn apiserver(&self, index: usize) -> Handle<'_> {
        self.handle(Role::Apiserver, index)
    }

    /// The controller manager on control-plane node `index`, from 0.
    pub fn controller_manager(&self, index: usize) -> Handle<'_> {
        self.handle(Role::ControllerManager, index)
    }

    /// The scheduler on control-plane node `index`, from 0.
    pub fn scheduler(&self, index: usize) -> Handle<'_> {
        self.handle(Role::Scheduler, index)
    }

    fn handle(&self, role: Role, index: usize) -> Handle<'_> {
        let component = self.components.iter().find(|c| c.role == role && c.index == index);
        Handle { cluster: self, component, role, index }
    }

    /// Every control-plane component.
    pub fn components(&self) -> impl Iterator<Item = Handle<'_>> {
        self.components.iter().map(|c| self.handle(c.role, c.index))
    }

    /// Adds workers and waits until they can be scheduled to; returns their names.
    pub async fn add_nodes(&self, group: &NodeGroup) -> Result<Vec<String>> {
        let names = nodes::create(&self.shared.client, self.number(group)).await?;
        self.nodes_settled().await?;
        Ok(names)
    }

    /// Deletes a Node object; the garbage collector deletes the pods that were on it.
    pub async fn remove_node(&self, name: &str) -> Result<()> {
        nodes::remove(&self.shared.client, name).await
    }

    /// What a kubelet's restart with another binary looks like through the API: not ready for two seconds, then
    /// ready with the new version, in one patch.
    pub async fn restart_kubelet(&self, node: &str, version: &str) -> Result<()> {
        self.restart_kubelet_within(node, version, kubelets::RESTART).await
    }

    /// The same with another time in between.
    pub async fn restart_kubelet_within(&self, node: &str, version: &str, away: Duration) -> Result<()> {
        kubelets::report(&self.shared.client, node, &News::NotReady).await?;
        tokio::time::sleep(away).await;
        kubelets::report(&self.shared.client, node, &News::Upgraded(version)).await
    }

    /// The kubelet reports its node as ready, or not; heartbeats do not change that.
    pub async fn set_node_ready(&self, node: &str, ready: bool) -> Result<()> {
        let news = if ready { News::Ready } else { News::NotReady };
        kubelets::report(&self.shared.client, node, &news).await
    }

    /// The kubelet goes silent, as on a machine without power: its lease is no longer renewed, and pods on it
    /// neither start nor end. After 50 seconds the controller manager calls the node's condition unknown.
    pub async fn stop_kubelet(&self, node: &str) -> Result<()> {
        kubelets::set_running(&self.shared.client, node, false).await
    }

    /// The kubelet is back: it renews its lease and reports itself and the pods that run on it as ready.
    pub async fn start_kubelet(&self, node: &str) -> Result<()> {
        kubelets::set_running(&self.shared.client, node, true).await?;
        kubelets::report(&self.shared.client, node, &News::Ready).await?;
        kubelets::report_pods(&self.shared.client, node).await
    }

    /// Every request that the apiservers have answered so far, by the time it came in.
    pub fn audit_log(&self) -> Result<Vec<AuditEntry>> {
        let mut entries = Vec::new();
        for component in self.components.iter().filter(|c| c.role == Role::Apiserver) {
            let path = self.shared.files.audit_log(component.index);
            entries.extend(audit::read(&path, component.index).map_err(Error::io("reading", &path))?);
        }
        entries.sort_by_key(|e| e.received);
        Ok(entries)
    }

    /// The folder with the components' logs.
    pub fn logs(&self) -> &Path {
        &self.shared.files.logs
    }
}

/// One control-plane component of a running cluster.
#[derive(Clone, Copy)]
pub struct Handle<'a> {
    cluster: &'a Cluster,
    component: Option<&'a Arc<Component>>,
    role: Role,
    index: usize,
}

impl Handle<'_> {
    fn get(&self) -> Result<&Arc<Component>> {
        self.component.ok_or_else(|| {
            let count = self.cluster.components.iter().filter(|c| c.role == self.role).count();
            Error::Usage(format!("there is no {}: this cluster runs {count}, counted from 0", self.name()))
        })
    }

    /// The name of the static pod, for instance `kube-apiserver-cp-1`.
    pub fn name(&self) -> String {
        pod_name(self.role, self.index)
    }

    /// The control-plane node it runs on, for instance `cp-1`.
    pub fn node(&self) -> String {
        node_name(self.index)
    }

    /// What it is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Where it listens, itself and not the balancer.
    pub fn address(&self) -> SocketAddr {
        self.role.address(self.index)
    }

    /// Its release.
    pub async fn release(&self) -> Result<Release> {
        Ok(self.get()?.release().await)
    }

    /// The process, if there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.component.and_then(|c| c.process_id())
    }

    /// Did it answer its health check lately?
    pub fn is_healthy(&self) -> bool {
        self.component.is_some_and(|c| c.is_healthy())
    }

    /// An admin client that goes straight to this apiserver, past the balancer; without retries.
    pub async fn client(&self) -> Result<Client> {
        let url = format!("https://{}", self.get()?.address());
        clients::direct(&self.cluster.admin_kubeconfig, &url).await
    }

    /// Replaces the binary by another release's, as an upgrade of the static pod does: SIGTERM, a new mirror
    /// pod, a new process. Returns when that is ready and, for an apiserver, back in the `EndpointSlice`; for a
    /// controller, when a leader is at work again.
    pub async fn swap(&self, release: Release) -> Result<()> {
        let before = self.leader().await;
        self.get()?.swap(release).await?;
        self.at_work(before).await
    }

    /// Stops it gracefully; it stays stopped, and its mirror pod is not ready.
    pub async fn stop(&self) -> Result<()> {
        self.get()?.stop().await
    }

    /// Starts it after `stop` and returns when it is ready, as [`Self::swap`] does.
    pub async fn start(&self) -> Result<()> {
        let before = self.leader().await;
        self.get()?.start().await?;
        self.at_work(before).await
    }

    /// Kills it (SIGKILL). Within about a second it is started again, as a kubelet would.
    pub async fn kill(&self) -> Result<()> {
        self.get()?.kill().await;
        Ok(())
    }

    /// Makes it hang (SIGSTOP): connections stay open and nothing is answered.
    pub async fn pause(&self) -> Result<()> {
        self.get()?.set_paused(true).await
    }

    /// Lets it go on (SIGCONT).
    pub async fn resume(&self) -> Result<()> {
        self.get()?.set_paused(false).await
    }

    /// Who holds the lease of this role; an identity is `<host name>_<UUID of the process>`.
    async fn leader(&self) -> Option<String> {
        if self.role == Role::Apiserver {
            return None;
        }
        self.cluster.leader(self.role).await.ok()
    }

    /// Waits until the component does its work. `before` is who led before this process was started: if that
    /// was a process of this node, it is gone and does not count.
    async fn at_work(&self, before: Option<String>) -> Result<()> {
        if self.role == Role::Apiserver {
            return self.listed().await;
        }
        let gone = before.filter(|b| b.starts_with(&format!("{}_", self.node())));
        self.cluster.led(self.role, gone.as_deref()).await
    }

    async fn listed(&self) -> Result<()> {
        let address = self.address().ip().to_string();
        let what = format!("{} to be in EndpointSlice default/kubernetes", self.name());
        wait::wait_for(&what, Duration::from_secs(30), async || {
            let addresses = self.cluster.endpoints().await.map_err(|e| e.to_string())?;
            if addresses.contains(&address) { Ok(()) } else { Err(format!("{addresses:?}")) }
        })
        .await
    }
}
