//! A cluster in one line: what it is made of, and how it starts and ends.
//!
//! Belongs here: the builder and the order in which things start. Never here: driving a running cluster (see
//! `drive`). Invariants: when `start` returns, everything asked for is ready; when a `Cluster` is dropped, its
//! processes are dead and its files are gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ListParams};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::assets::Assets;
use crate::balancer::{Backend, Balancer, Unhealthy};
use crate::binary::Binary;
use crate::component::{Component, Shared};
use crate::error::{Error, Result};
use crate::nodes::NodeGroup;
use crate::pki::{ADMINS, Pki};
use crate::process::Process;
use crate::release::Release;
use crate::role::{Files, Role};
use crate::wait::wait_for;
use crate::{audit, backstage, clients, namespace, net, nodes, static_pods};

/// A running cluster. Dropping it ends it.
pub struct Cluster {
    // The order is the order of the end: clients of the API before the API, etcd last, then the files.
    supervisors: Vec<JoinHandle<()>>,
    pub(crate) components: Vec<Arc<Component>>,
    kwok: Option<Process>,
    _balancer: Balancer,
    etcd: Option<Process>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) admin: Client,
    pub(crate) admin_kubeconfig: PathBuf,
    /// How many nodes of each name prefix, and of all, were ever made: names and addresses are never reused.
    pub(crate) numbering: Mutex<Numbering>,
    _dir: TempDir,
}

#[derive(Default)]
pub(crate) struct Numbering {
    by_prefix: BTreeMap<String, usize>,
    total: usize,
}

impl Numbering {
    /// The Node objects of a group, with names and addresses that were never used before.
    pub(crate) fn take(&mut self, group: &NodeGroup) -> Vec<serde_json::Value> {
        let used = self.by_prefix.entry(group.prefix().to_owned()).or_default();
        let manifests = group.manifests(*used + 1, self.total);
        *used += group.count();
        self.total += group.count();
        manifests
    }
}

/// What a cluster is to be made of.
#[derive(Debug, Clone)]
pub struct Builder {
    apiservers: Vec<Release>,
    controllers: Option<Release>,
    controller_replicas: usize,
    control_plane_kubelet: Option<String>,
    groups: Vec<NodeGroup>,
    manifests: Vec<PathBuf>,
    extra_args: Vec<(Role, String)>,
}

impl Cluster {
    /// One apiserver of the newest release, one controller manager, one scheduler, no workers.
    pub fn builder() -> Builder {
        Builder {
            apiservers: vec![Release::NEWEST],
            controllers: None,
            controller_replicas: 1,
            control_plane_kubelet: None,
            groups: Vec::new(),
            manifests: Vec::new(),
            extra_args: Vec::new(),
        }
    }
}

impl Builder {
    /// One control-plane node for each of these releases, one to three.
    #[must_use]
    pub fn apiservers(mut self, releases: &[Release]) -> Self {
        releases.clone_into(&mut self.apiservers);
        self
    }

    /// The release of controller manager and scheduler; the oldest apiserver's by default, as the skew policy
    /// wants it.
    #[must_use]
    pub fn controllers(mut self, release: Release) -> Self {
        self.controllers = Some(release);
        self
    }

    /// How many control-plane nodes run a controller manager and a scheduler (from the first on); 1 by default.
    /// kubeadm runs them on every one; each pair takes about 180 MB.
    #[must_use]
    pub fn controller_replicas(mut self, replicas: usize) -> Self {
        self.controller_replicas = replicas;
        self
    }

    /// What the kubelets of control-plane nodes report; the first apiserver's version by default.
    #[must_use]
    pub fn control_plane_kubelet(mut self, version: impl Into<String>) -> Self {
        self.control_plane_kubelet = Some(version.into());
        self
    }

    /// Adds workers.
    #[must_use]
    pub fn nodes(mut self, group: NodeGroup) -> Self {
        self.groups.push(group);
        self
    }

    /// Manifests (files, or folders; with a `kustomization.yaml` in it, built by kustomize) to apply at the
    /// start, in this order.
    #[must_use]
    pub fn manifests<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.manifests.extend(paths.into_iter().map(Into::into));
        self
    }

    /// One more argument, such as `--v=4`, for every component of a role.
    #[must_use]
    pub fn extra_arg(mut self, role: Role, arg: impl Into<String>) -> Self {
        self.extra_args.push((role, arg.into()));
        self
    }

    /// Starts the cluster and waits until it is ready: apiservers, leader-elected controllers, nodes, static
    /// pods, and the manifests applied.
    pub async fn start(self) -> Result<Cluster> {
        if !namespace::inside() {
            return Err(Error::NotInNamespace);
        }
        self.check()?;
        let assets = Assets::from_env()?;
        assets.require(&self.binaries())?;

        let dir = tempfile::Builder::new()
            .prefix("devcluster-")
            .tempdir_in(namespace::SCRATCH)
            .map_err(Error::io("creating a folder in", namespace::SCRATCH))?;
        let (files, admin_kubeconfig, kubeconfig, kwok_kubeconfig) = files(&dir)?;
        let mut etcd = backstage::start_etcd(&assets, &files)?;
        let shared = Arc::new(Shared {
            assets,
            client: clients::from_kubeconfig(&kubeconfig).await?,
            kubeconfig,
            files,
            extra_args: self.extra_args.clone(),
            closing: AtomicBool::new(false),
        });
        let components = self.components(&shared).await?;
        let admin = clients::from_kubeconfig(&admin_kubeconfig).await?;
        backstage::etcd_listens(&mut etcd).await?;
        let backends = components.iter().filter(|c| c.role == Role::Apiserver);
        let backends = backends.map(|c| Backend { address: c.address(), healthy: c.health() }).collect();
        let mut cluster = Cluster {
            supervisors: Vec::new(),
            components,
            kwok: None,
            _balancer: Balancer::start(net::balancer(), backends, Unhealthy::Keeps).await?,
            etcd: Some(etcd),
            shared,
            admin,
            admin_kubeconfig,
            numbering: Mutex::default(),
            _dir: dir,
        };
        cluster.bring_up(&self, &kwok_kubeconfig).await?;
        Ok(cluster)
    }

    fn check(&self) -> Result<()> {
        let servers = self.apiservers.len();
        if !(1..=net::MAX_CONTROL_PLANE).contains(&servers) {
            return Err(Error::Usage(format!(
                "a cluster has 1 to {} apiservers, not {servers}",
                net::MAX_CONTROL_PLANE
            )));
        }
        if !(1..=servers).contains(&self.controller_replicas) {
            return Err(Error::Usage(format!(
                "controllers run on 1 to {servers} control-plane nodes here, not {}",
                self.controller_replicas
            )));
        }
        Ok(())
    }

    fn controllers_release(&self) -> Release {
        self.controllers.or_else(|| self.apiservers.iter().min().copied()).unwrap_or(Release::NEWEST)
    }

    fn binaries(&self) -> Vec<Binary> {
        let mut all = vec![Binary::Etcd, Binary::Kwok, Binary::Kubectl];
        all.extend(self.apiservers.iter().map(|r| Binary::Apiserver(*r)));
        let release = self.controllers_release();
        all.extend([Binary::ControllerManager(release), Binary::Scheduler(release)]);
        all.sort_unstable();
        all.dedup();
        all
    }

    async fn components(&self, shared: &Arc<Shared>) -> Result<Vec<Arc<Component>>> {
        let apiservers = self.apiservers.iter().enumerate().map(|(i, r)| (Role::Apiserver, i, *r));
        let release = self.controllers_release();
        let controllers = (0..self.controller_replicas)
            .flat_map(|i| [(Role::ControllerManager, i, release), (Role::Scheduler, i, release)]);
        let mut components = Vec::new();
        for (role, index, release) in apiservers.chain(controllers) {
            components.push(Arc::new(Component::new(role, index, release, Arc::clone(shared)).await?));
        }
        Ok(components)
    }
}

/// Certificates, kubeconfigs and folders. Returns the kubeconfigs of the admin, of this harness and of KWOK too.
fn files(dir: &TempDir) -> Result<(Files, PathBuf, PathBuf, PathBuf)> {
    let dir = dir.path().to_owned();
    // Elsewhere, logs outlive the cluster: for finding out why a test failed. Each cluster has a folder of its own.
    let logs = match (std::env::var_os("EVENKEEL_DEVCLUSTER_LOGS"), dir.file_name()) {
        (Some(kept), Some(name)) => PathBuf::from(kept).join(name),
        _ => dir.join("logs"),
    };
    std::fs::create_dir_all(&logs).map_err(Error::io("creating", &logs))?;
    let audit_policy = dir.join("audit-policy.json");
    std::fs::write(&audit_policy, audit::POLICY).map_err(Error::io("writing", &audit_policy))?;
    let pki = Pki::create(&dir.join("pki"))?;
    let admin = pki.client("admin", "kubernetes-admin", Some(ADMINS))?;
    let harness = pki.client("devcluster", audit::HARNESS, Some(ADMINS))?;
    let kwok = pki.client("kwok", "devcluster:kwok", Some(ADMINS))?;
    let files = Files {
        controller_manager_kubeconfig: pki.client(
            "controller-manager",
            "system:kube-controller-manager",
            None,
        )?,
        scheduler_kubeconfig: pki.client("scheduler", "system:kube-scheduler", None)?,
        pki,
        dir,
        logs,
        audit_policy,
    };
    Ok((files, admin, harness, kwok))
}

impl Cluster {
    async fn bring_up(&mut self, plan: &Builder, kwok_kubeconfig: &std::path::Path) -> Result<()> {
        let (apiservers, controllers): (Vec<_>, Vec<_>) =
            self.components.iter().cloned().partition(|c| c.role == Role::Apiserver);
        try_join_all(apiservers.iter().map(|c| c.launch())).await?;
        try_join_all(apiservers.iter().map(|c| c.ready())).await?;
        try_join_all(controllers.iter().map(|c| c.launch())).await?;
        self.kwok = Some(backstage::start_kwok(&self.shared.assets, &self.shared.files, kwok_kubeconfig)?);

        let kubelet = plan.control_plane_kubelet.clone().unwrap_or_else(|| {
            plan.apiservers.first().copied().unwrap_or(Release::NEWEST).version().to_owned()
        });
        let mut manifests: Vec<_> =
            (0..plan.apiservers.len()).map(|i| nodes::control_plane(i, &kubelet)).collect();
        for group in &plan.groups {
            manifests.extend(self.number(group));
        }
        nodes::create(&self.shared.client, manifests).await?;
        try_join_all(controllers.iter().map(|c| c.ready())).await?;
        try_join_all(self.components.iter().map(|c| c.announce())).await?;
        for path in &plan.manifests {
            self.apply(path).await?;
        }
        self.settled(plan.apiservers.len()).await?;
        self.supervisors = self
            .components
            .iter()
            .cloned()
            .map(|component| tokio::spawn(async move { component.supervise().await }))
            .collect();
        Ok(())
    }

    pub(crate) fn number(&self, group: &NodeGroup) -> Vec<serde_json::Value> {
        self.numbering.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take(group)
    }

    /// Waits until the controllers have caught up: every node can be scheduled to, and every apiserver is in
    /// the EndpointSlice that clients find them by.
    async fn settled(&self, apiservers: usize) -> Result<()> {
        self.led(Role::ControllerManager, None).await?;
        self.led(Role::Scheduler, None).await?;
        self.nodes_settled().await?;
        wait_for("all apiservers in EndpointSlice default/kubernetes", Duration::from_mins(1), async || {
            let addresses = self.endpoints().await.map_err(|e| e.to_string())?;
            if addresses.len() == apiservers { Ok(()) } else { Err(format!("{addresses:?}")) }
        })
        .await
    }

    /// New nodes are tainted until the controller manager has seen them ready.
    pub(crate) async fn nodes_settled(&self) -> Result<()> {
        let api: Api<Node> = Api::all(self.shared.client.clone());
        wait_for("the nodes to lose their not-ready taint", Duration::from_mins(1), async || {
            let list = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
            let tainted: Vec<_> =
                list.items.into_iter().filter(is_new).filter_map(|n| n.metadata.name).collect();
            if tainted.is_empty() { Ok(()) } else { Err(format!("tainted: {}", tainted.join(", "))) }
        })
        .await
    }

    /// Who holds the lease of a role; empty while nobody does.
    pub(crate) async fn leader(&self, role: Role) -> kube::Result<String> {
        let api: Api<Lease> = Api::namespaced(self.shared.client.clone(), static_pods::NAMESPACE);
        let lease = api.get(role.name()).await?;
        Ok(lease.spec.and_then(|s| s.holder_identity).unwrap_or_default())
    }

    /// Waits until a process of this role leads; `gone` held the lease once and is dead.
    pub(crate) async fn led(&self, role: Role, gone: Option<&str>) -> Result<()> {
        wait_for(&format!("a {} to lead", role.name()), Duration::from_mins(1), async || {
            match self.leader(role).await {
                Ok(holder) if !holder.is_empty() && Some(holder.as_str()) != gone => Ok(()),
                Ok(holder) => Err(format!("the lease is held by {holder:?}")),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    /// The addresses of the apiservers that the cluster itself knows of.
    pub(crate) async fn endpoints(&self) -> kube::Result<Vec<String>> {
        let api: Api<EndpointSlice> = Api::namespaced(self.shared.client.clone(), "default");
        let slice = api.get("kubernetes").await?;
        Ok(slice.endpoints.into_iter().flatten().flat_map(|e| e.addresses).collect())
    }
}

/// Does the node still carry the taint it got when it was made, although it is ready?
fn is_new(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
        && taints.iter().any(|t| t.key == "node.kubernetes.io/not-ready")
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        for task in &self.supervisors {
            task.abort();
        }
        self.kwok = None;
        // SIGKILL: an apiserver that is asked nicely after etcd is gone would hang.
        for component in &self.components {
            component.destroy();
        }
        self.etcd = None;
    }
}
