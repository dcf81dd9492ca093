//! The stable address in front of the apiservers, as every highly available cluster has one.
//!
//! Belongs here: a small TCP load balancer. Never here: TLS or HTTP, which pass through untouched. Invariants:
//! a new connection goes to a backend that was seen healthy, if there is one; a connection ends when its
//! backend's does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::error::{Error, Result};

/// One apiserver as the balancer sees it.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    /// Kept up to date by whoever probes the backend.
    pub(crate) healthy: Arc<AtomicBool>,
}

/// What becomes of the connections to a backend that is no longer healthy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unhealthy {
    /// They stay, as behind most balancers: a backend that hangs keeps whoever talks to it.
    Keeps,
    /// They end, as with `on-marked-down shutdown-sessions` of `HAProxy`.
    Ends,
}

/// Listens until it is dropped.
pub(crate) struct Balancer(JoinHandle<()>);

impl Balancer {
    pub(crate) async fn start(
        address: SocketAddr,
        backends: Vec<Backend>,
        unhealthy: Unhealthy,
    ) -> Result<Self> {
        let listener =
            TcpListener::bind(address).await.map_err(Error::io("listening on", address.to_string()))?;
        let backends: Arc<[Backend]> = backends.into();
        let next = Arc::new(AtomicUsize::new(0));
        Ok(Self(tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    // Out of file descriptors, most likely: wait for some connections to end.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let turn = next.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(forward(client, Arc::clone(&backends), turn, unhealthy));
            }
        })))
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn forward(mut client: TcpStream, backends: Arc<[Backend]>, turn: usize, unhealthy: Unhealthy) {
    for backend in order(&backends, turn) {
        let connecting = TcpStream::connect(backend.address);
        if let Ok(Ok(mut server)) = tokio::time::timeout(Duration::from_secs(1), connecting).await {
            // Small requests and answers: waiting to fill packets would only add latency.
            let _delays = (client.set_nodelay(true), server.set_nodelay(true));
            // Either side may end it at any time; there is nobody to tell.
            let copying = tokio::io::copy_bidirectional(&mut client, &mut server);
            // One that was unhealthy from the start was the last resort.
            if unhealthy == Unhealthy::Ends && backend.healthy.load(Ordering::Relaxed) {
                tokio::select! { _ended = copying => {}, () = marked_down(backend) => {} }
            } else {
                let _ended = copying.await;
            }
            return;
        }
    }
}

/// Returns when the backend is no longer healthy.
async fn marked_down(backend: &Backend) {
    while backend.healthy.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The backends to try for the connection number `turn`: the healthy ones in turn, then the others.
fn order(backends: &[Backend], turn: usize) -> Vec<&Backend> {
    let mut order: Vec<_> = backends.iter().collect();
    if !order.is_empty() {
        let by = turn % order.len();
        order.rotate_left(by);
    }
    // Stable: the turn decides among the healthy ones.
    order.sort_by_key(|b| !b.healthy.load(Ordering::Relaxed));
    order
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn backend(address: SocketAddr, healthy: bool) -> Backend {
        Backend { address, healthy: Arc::new(AtomicBool::new(healthy)) }
    }

    #[test]
    fn healthy_backends_take_turns_and_the_others_come_last() {
        let address = |n: u8| SocketAddr::from(([192, 0, 2, n], 1));
        let backends = [backend(address(1), true), backend(address(2), false), backend(address(3), true)];
        let addresses = |turn| order(&backends, turn).iter().map(|b| b.address).collect::<Vec<_>>();
        assert_eq!(addresses(0), [address(1), address(3), address(2)]);
        assert_eq!(addresses(1), [address(3), address(1), address(2)]);
        assert_eq!(addresses(3), addresses(0));
        assert!(order(&[], 7).is_empty());
    }

    #[tokio::test]
    async fn a_dead_backend_is_passed_over_even_when_it_was_thought_healthy() {
        let alive = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let backends = vec![backend(dead, true), backend(alive.local_addr().unwrap(), true)];
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = alive.accept().await {
                stream.write_all(b"hello").await.unwrap();
            }
        });
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let _balancer = Balancer::start(front, backends, Unhealthy::Keeps).await.unwrap();
        for _ in 0..4 {
            let mut text = String::new();
            TcpStream::connect(front).await.unwrap().read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "hello");
        }
    }

    #[tokio::test]
    async fn a_backend_that_is_marked_down_loses_its_connections_where_it_shall() {
        for unhealthy in [Unhealthy::Keeps, Unhealthy::Ends] {
            let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let marked = backend(silent.local_addr().unwrap(), true);
            let front = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
            let _balancer = Balancer::start(front, vec![marked.clone()], unhealthy).await.unwrap();
            let mut client = TcpStream::connect(front).await.unwrap();
            let (mut held, _) = silent.accept().await.unwrap();
            // Now it is forwarded, and not only connected.
            client.write_all(b"x").await.unwrap();
            held.read_exact(&mut [0]).await.unwrap();
            marked.healthy.store(false, Ordering::Relaxed);
            let mut nothing = String::new();
            let read =
                tokio::time::timeout(Duration::from_secs(2), client.read_to_string(&mut nothing)).await;
            assert_eq!(read.is_ok(), unhealthy == Unhealthy::Ends);
        }
    }
}
