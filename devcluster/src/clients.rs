//! Clients of the API: for tests, for the harness itself, and for one component at its own address.
//!
//! Belongs here: making `kube::Client`s. Never here: what is asked with them. Invariant: no client here retries
//! by itself, so that a test sees each answer that the API gave, a 429 above all.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::error::{Error, Result, chain};

/// A client with the credentials of a kubeconfig file.
pub(crate) async fn from_kubeconfig(path: &Path) -> Result<Client> {
    client(config(path, None).await?)
}

/// A client that goes straight to `url`.
pub(crate) async fn direct(path: &Path, url: &str) -> Result<Client> {
    client(config(path, Some(url)).await?)
}

/// A client that goes straight to `url`, and gives up on an answer soon.
pub(crate) async fn probe(path: &Path, url: &str) -> Result<Client> {
    let mut config = config(path, Some(url)).await?;
    config.connect_timeout = Some(Duration::from_secs(1));
    config.read_timeout = Some(Duration::from_secs(2));
    client(config)
}

/// The body of a GET, or in one line why there is none.
pub(crate) async fn get(client: &Client, path: &str) -> std::result::Result<String, String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    client.request_text(request).await.map_err(|e| chain(&e))
}

async fn config(path: &Path, server: Option<&str>) -> Result<Config> {
    let unreadable = |e: kube::config::KubeconfigError| {
        Error::Usage(format!("reading kubeconfig {}: {}", path.display(), chain(&e)))
    };
    let mut kubeconfig = Kubeconfig::read_from(path).map_err(unreadable)?;
    if let Some(server) = server {
        for cluster in kubeconfig.clusters.iter_mut().filter_map(|c| c.cluster.as_mut()) {
            cluster.server = Some(server.to_owned());
        }
    }
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(unreadable)?;
    config.default_retry = false;
    Ok(config)
}

fn client(config: Config) -> Result<Client> {
    Client::try_from(config).map_err(Error::kube("making a client"))
}
