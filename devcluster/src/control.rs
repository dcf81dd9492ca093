//! Orders to a cluster that runs in the background, over a Unix socket.
//!
//! Belongs here: the few things that a person wants to do to a running cluster from another terminal. Never
//! here: starting or ending it (see `session`). Invariant: one line of JSON is one order, and it is answered by
//! one line when it has been carried out.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::real::RealCluster;
use crate::release::Release;

/// What a running cluster can be told to do.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Replace a component's binary, as [`crate::Handle::swap`] does.
    Swap {
        /// The static pod's name, for instance `kube-apiserver-cp-1`.
        component: String,
        /// The release, in any form that [`Release::parse`] reads.
        release: String,
    },
    /// Restart a node's kubelet with another version, as [`Cluster::restart_kubelet`] does.
    Kubelet {
        /// `metadata.name` of its Node.
        node: String,
        /// What its kubelet reports from then on.
        version: String,
    },
    /// Kill a real node and start it again, as [`RealCluster::power_cycle`] does.
    PowerCycle {
        /// `metadata.name` of its Node.
        node: String,
        /// For so many seconds it is away.
        away: u64,
    },
}

/// A cluster that carries out orders.
pub trait Obeys {
    /// Returns when what the order did can be seen; an error is told to whoever gave it.
    fn carry_out(&self, order: &Order) -> impl Future<Output = Result<()>>;
}

#[derive(Serialize, Deserialize)]
struct OrderAnswer {
    /// Why the order could not be carried out.
    error: Option<String>,
}

/// Sends an order and waits until it has been carried out.
pub fn send(socket: &Path, order: &Order) -> Result<()> {
    let lost = || Error::io("talking to the cluster through", socket);
    let mut stream = UnixStream::connect(socket).map_err(lost())?;
    stream.set_read_timeout(Some(Duration::from_mins(3))).map_err(lost())?;
    let line = serde_json::to_string(order).unwrap_or_default();
    writeln!(stream, "{line}").map_err(lost())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(lost())?;
    match serde_json::from_str(&answer) {
        Ok(OrderAnswer { error: None }) => Ok(()),
        Ok(OrderAnswer { error: Some(error) }) => Err(Error::Usage(error)),
        Err(_) => Err(Error::Usage("the cluster ended before it answered".to_owned())),
    }
}

/// Where orders come in. To be called on an async runtime, before anyone is told that the cluster is ready.
pub fn listen(socket: &Path) -> Result<UnixListener> {
    UnixListener::bind(socket).map_err(Error::io("listening on", socket))
}

/// Carries out orders, one after the other, for as long as the cluster lives.
pub async fn serve(cluster: &impl Obeys, orders: &UnixListener) -> Result<()> {
    loop {
        let (stream, _) = orders.accept().await.map_err(Error::io("listening for", "orders"))?;
        let (reader, mut writer) = stream.into_split();
        let mut line = String::new();
        if tokio::io::BufReader::new(reader).read_line(&mut line).await.is_err() {
            continue;
        }
        let done = match serde_json::from_str(&line) {
            Ok(order) => cluster.carry_out(&order).await.map_err(|e| e.to_string()),
            Err(error) => Err(format!("this is not an order: {error}")),
        };
        let answer = serde_json::to_string(&OrderAnswer { error: done.err() }).unwrap_or_default();
        // Who asked may have gone away meanwhile; the order was carried out all the same.
        let _told = writer.write_all(format!("{answer}\n").as_bytes()).await;
    }
}

impl Obeys for Cluster {
    async fn carry_out(&self, order: &Order) -> Result<()> {
        match order {
            Order::Swap { component, release } => {
                let parsed = Release::parse(release).ok_or_else(|| unknown_release(release))?;
                let handle = self.components().find(|c| c.name() == *component).ok_or_else(|| {
                    let names: Vec<_> = self.components().map(|c| c.name()).collect();
                    Error::Usage(format!("there is no {component}; there are {}", names.join(", ")))
                })?;
                handle.swap(parsed).await
            }
            Order::Kubelet { node, version } => self.restart_kubelet(node, version).await,
            Order::PowerCycle { .. } => Err(Error::Usage(
                "this cluster has no real nodes; start one with `devcluster up --real`".to_owned(),
            )),
        }
    }
}

impl Obeys for RealCluster {
    async fn carry_out(&self, order: &Order) -> Result<()> {
        match order {
            Order::PowerCycle { node, away } => self.power_cycle(node, Duration::from_secs(*away)).await,
            Order::Swap { .. } | Order::Kubelet { .. } => Err(Error::Usage(
                "this cluster has real nodes; what is done to one is done on it, with `devcluster shell --node`"
                    .to_owned(),
            )),
        }
    }
}

fn unknown_release(text: &str) -> Error {
    let known: Vec<_> = Release::ALL.iter().map(|r| r.minor()).collect();
    Error::Usage(format!("{text} is no release that can be run here; use one of {}", known.join(", ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_the_wire() {
        let order = Order::Kubelet { node: "worker-1".into(), version: "v1.36.4".into() };
        let line = serde_json::to_string(&order).unwrap();
        assert_eq!(line, r#"{"kubelet":{"node":"worker-1","version":"v1.36.4"}}"#);
        assert_eq!(serde_json::from_str::<Order>(&line).unwrap(), order);
    }
}
