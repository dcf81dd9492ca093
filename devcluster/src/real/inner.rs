//! A cluster of real nodes, from within: for a program that `shell` started beside it.
//!
//! Belongs here: what such a program can reach and the API alone does not tell. Never here: the cluster's own life (see
//! `cluster`). Invariant: nothing in here changes the cluster.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::audit::{self, AuditEntry};
use crate::error::{Error, Result};
use crate::real::etc::{AUDIT_FOLDER, AUDIT_LOG};
use crate::{clients, net};

/// The cluster that this process is in.
pub struct Inner {
    kubeconfig: PathBuf,
    admin: Client,
    control_planes: Vec<String>,
}

impl Inner {
    /// The one that the environment names, as `shell` has set it.
    pub async fn from_env() -> Result<Self> {
        let kubeconfig = std::env::var_os("KUBECONFIG").map(PathBuf::from);
        let kubeconfig =
            kubeconfig.filter(|path| path.with_file_name("nodes").is_dir()).ok_or_else(|| {
                Error::Usage(
                    "this program is not in a cluster of real nodes; start it with `devcluster shell`"
                        .to_owned(),
                )
            })?;
        let admin = clients::from_kubeconfig(&kubeconfig).await?;
        let label = ListParams::default().labels("node-role.kubernetes.io/control-plane");
        let nodes = Api::<Node>::all(admin.clone()).list(&label).await;
        let nodes = nodes.map_err(Error::kube("listing the nodes of the control plane"))?;
        let mut control_planes: Vec<_> = nodes.iter().map(ResourceExt::name_any).collect();
        control_planes.sort_unstable();
        Ok(Self { kubeconfig, admin, control_planes })
    }

    /// A client that may do everything. It never retries, so a 429 is seen as one.
    pub fn client(&self) -> Client {
        self.admin.clone()
    }

    /// The names of the nodes of the control plane.
    pub fn control_planes(&self) -> &[String] {
        &self.control_planes
    }

    /// What the kube-apiserver of control-plane node `index`, from 0, says that it runs, such as `v1.37.1`; asked at its
    /// own address. An error is one line.
    pub async fn apiserver_version(&self, index: usize) -> std::result::Result<String, String> {
        let url = format!("https://{}:{}", net::control_plane(index), net::APISERVER_PORT);
        let client = clients::probe(&self.kubeconfig, &url).await.map_err(|e| e.to_string())?;
        let answer = clients::get(&client, "/version").await?;
        let version: serde_json::Value = serde_json::from_str(&answer).map_err(|e| e.to_string())?;
        version["gitVersion"].as_str().map(str::to_owned).ok_or_else(|| "no gitVersion".to_owned())
    }

    /// What all kube-apiservers were asked so far, in the order of the requests.
    pub fn audit_log(&self) -> Result<Vec<AuditEntry>> {
        let mut entries = Vec::new();
        for (index, name) in self.control_planes.iter().enumerate() {
            // A node's own `/var` is a folder outside of it.
            let log = Path::new(AUDIT_FOLDER.trim_start_matches('/')).join(AUDIT_LOG);
            let path = self.kubeconfig.with_file_name("nodes").join(name).join(log);
            entries.extend(audit::read(&path, index).map_err(Error::io("reading", &path))?);
        }
        entries.sort_by_key(|entry| entry.received);
        Ok(entries)
    }

    /// Process 1 of a node, as this process knows it.
    pub fn process(&self, node: &str) -> Result<u32> {
        let path = self.kubeconfig.with_file_name("nodes").join(node).join("pid");
        let text = std::fs::read_to_string(&path).map_err(Error::io("reading", &path))?;
        text.trim().parse().map_err(|_| Error::Usage(format!("{} holds no number", path.display())))
    }
}
