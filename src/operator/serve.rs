//! The operator's HTTP endpoints: `/metrics`, `/healthz`, `/readyz`.
//!
//! Nothing here changes anything, and nothing it shows is secret. The invariant: `/healthz` depends on nothing but
//! this process, so that a failing kube-apiserver never gets the operator restarted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

/// Whether the operator can do its work; the error is shown to whoever asks, in one line.
///
/// A replica that does not lead is ready: it reads and waits.
pub type Ready = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Every address of the host, and the port that is used where nobody says another: a kubelet probes the first address of a pod,
/// which may be of IPv4 or of IPv6.
pub const EVERY_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 8080);

/// Listens on `address`; port 0 takes a free one. `[::]` is every address of the host, those of IPv4 too, and only those
/// where the host has no IPv6.
///
/// # Errors
/// When the address cannot be bound; the error names it.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = match TcpListener::bind(address).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse && address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    listener.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
}

/// Answers on `listener` until `stop`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    ready: Ready,
    stop: CancellationToken,
) -> io::Result<()> {
    axum::serve(listener, router(metrics, ready)).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn router(metrics: Arc<Metrics>, ready: Ready) -> Router {
    let text = async move || {
        let text = metrics.text().map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok::<_, (StatusCode, String)>(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
    };
    let readiness = async move || match ready() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    };
    Router::new()
        .route("/metrics", get(text))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readiness))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::metrics::Build;
    use super::*;
    use crate::observe::PodScope;

    #[tokio::test]
    async fn answers_what_is_asked() {
        let build = Build { version: "0.1.0", revision: "abc", rust_version: "1.95" };
        let metrics = Arc::new(Metrics::new(&build, PodScope::KubeSystem).unwrap());
        let is_ready = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_ready);
        let ready: Ready = Arc::new(move || {
            if asked.load(Ordering::SeqCst) { Ok(()) } else { Err("not ready: nodes: forbidden".to_owned()) }
        });
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, metrics, ready, stop.clone()));
        let get = async |path: &str| {
            let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: evenkeel\r\nConnection: close\r\n\r\n");
            connection.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await.unwrap();
            answer
        };
        assert!(get("/healthz").await.starts_with("HTTP/1.1 200"));
        let answer = get("/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("nodes: forbidden"), "{answer}");
        is_ready.store(true, Ordering::SeqCst);
        assert!(get("/readyz").await.starts_with("HTTP/1.1 200"));
        let answer = get("/metrics").await;
        assert!(
            answer.contains("text/plain; version=0.0.4") && answer.contains("evenkeel_build_info{"),
            "{answer}"
        );
        stop.cancel();
        server.await.unwrap().unwrap();
    }

    /// Not every host has both.
    #[tokio::test]
    async fn every_address_is_one_of_either_kind() {
        let listener = bind(SocketAddr::new(EVERY_ADDRESS.ip(), 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            tokio::net::TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
        }
    }
}
