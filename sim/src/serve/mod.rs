//! A cluster for programs outside of this process, such as kubectl: TLS on the loopback interface, in real time.
//!
//! Here belong sockets, certificates and the kubeconfig. What a request means never belongs here, because it is the
//! same as for a client inside. The invariant: nobody connects without the certificate in the kubeconfig.

mod endpoint;
mod kubeconfig;
mod pki;

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::Cluster;
use crate::api::{Release, Server};
pub use endpoint::Endpoint;
use pki::Pki;

/// A handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A cluster that is served, until this is dropped.
#[derive(Debug)]
pub struct Served {
    endpoints: Vec<Endpoint>,
    kubeconfig: String,
    tasks: Vec<AbortHandle>,
}

impl Drop for Served {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Cluster {
    /// Serves this cluster over TLS on 127.0.0.1, by one API server for each version, each on a free port of its own.
    ///
    /// All of them have the same store, as those of one cluster have. The certificates are made anew each time and trusted
    /// by nobody but the kubeconfig. It has to be called inside a tokio runtime whose clock is *not* paused: a paused clock
    /// runs ahead whenever nobody but the outside has something to do.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
    /// let cluster = evenkeel_sim::Cluster::builder().start();
    /// let served = cluster.serve(&["v1.37.1", "v1.36.4"]).await?;
    /// let config = kube::config::Kubeconfig::from_yaml(served.kubeconfig()).unwrap();
    /// let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    /// let version = kube::Client::try_from(config).unwrap().apiserver_version().await.unwrap();
    /// assert_eq!(version.git_version, "v1.37.1");
    /// # Ok::<_, std::io::Error>(())
    /// # })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If no certificate can be made or no port is to be had, and if `versions` is empty.
    pub async fn serve(&self, versions: &[&str]) -> io::Result<Served> {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let servers = versions
            .iter()
            .map(|version| ((*version).to_owned(), local, self.server("", Arc::new(Release::new(version)))));
        serve(servers.collect()).await
    }

    /// Serves this cluster by the apiservers of its control-plane nodes, each at the node's own address: what is replaced,
    /// ended and started there is so for kubectl too, and a program that asks each apiserver by itself finds them.
    ///
    /// The addresses have to be this machine's: see [`Builder::network`](crate::Builder::network); on Linux all of
    /// 127.0.0.0/8 is. Nodes that join later are not served. The runtime's clock may be paused if something holds it,
    /// else as for [`Cluster::serve`].
    ///
    /// # Errors
    ///
    /// If no certificate can be made or an address is not to be had, and if there is no control plane.
    pub async fn serve_control_plane(&self) -> io::Result<Served> {
        let mut servers = Vec::new();
        for address in self.control_plane().addresses() {
            let version = self.control_plane().version_at(&address).unwrap_or_default();
            let at = address.parse().map_err(io::Error::other)?;
            servers.push((version, at, self.server_at(&address)));
        }
        serve(servers).await
    }
}

/// Listens at each address, for a server that has this version now.
async fn serve(servers: Vec<(String, SocketAddr, Server)>) -> io::Result<Served> {
    if servers.is_empty() {
        return Err(io::Error::other("a cluster needs at least one API server: name a version"));
    }
    let pki = Pki::create(servers.iter().map(|(_, address, _)| address.ip())).map_err(io::Error::other)?;
    let acceptor = TlsAcceptor::from(Arc::new(pki.server()?));
    let mut served = Served { endpoints: Vec::new(), kubeconfig: String::new(), tasks: Vec::new() };
    for (version, address, server) in servers {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
        served.endpoints.push(Endpoint { version, address: listener.local_addr()? });
        served.tasks.push(tokio::spawn(accept(listener, acceptor.clone(), server)).abort_handle());
    }
    served.kubeconfig = kubeconfig::text(&served.endpoints, &pki);
    Ok(served)
}

impl Served {
    /// The API servers: in the order of the versions in the call, or of the control-plane nodes' names.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// A kubeconfig with a context for each API server: `virtual` is the first, then `virtual-2` and so on.
    ///
    /// It holds a private key: whoever has it may do everything in this cluster.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Writes the kubeconfig to a file that only its owner can read.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)?.write_all(self.kubeconfig.as_bytes())
    }
}

/// Takes connections until it is aborted; its connections end with it.
async fn accept(listener: TcpListener, acceptor: TlsAcceptor, server: Server) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, _)) => drop(connections.spawn(talk(stream, acceptor.clone(), server.afresh()))),
                // There may be too many open files, for example; after a while some are closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. Only its client is told of an error.
async fn talk(stream: TcpStream, acceptor: TlsAcceptor, server: Server) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let service = hyper::service::service_fn(move |request| server.clone().serve(request));
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
