//! The Kubernetes clients of the program, and how their errors are told.
//!
//! Here belongs every choice of retries, timeouts and addresses; nothing here knows what is asked. The invariant: no
//! client whose answer means something (an eviction's 429, a probe's silence) ever retries behind our back.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::InvalidUri;
use kube::client::ClientBuilder;
use kube::{Client, Config};
use tower::limit::ConcurrencyLimitLayer;

/// How many requests of ours may be in flight at once on the effects client.
const EFFECTS_IN_FLIGHT: usize = 8;

/// Longest wait for the answer to one effect. The apiserver's own limit on a request is 60 s, but a proof of
/// leadership lives only 10 s, and a write that was not answered in that time is decided again anyway.
pub const EFFECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for the answer of one apiserver endpoint.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest error text that is shown or kept, in characters.
const MAX_TEXT: usize = 1000;

/// No client could be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration (certificates, credentials) is unusable.
    #[error("cannot build a client: {0}")]
    Build(#[from] kube::Error),
    /// The endpoint's address is no `host:port`.
    #[error("{address} is no address: {source}")]
    Address {
        /// What was given.
        address: String,
        /// Why it is none.
        source: InvalidUri,
    },
}

/// Makes the client for the apiserver endpoint of that address: [`probe_client`] outside of tests.
pub type Connect = Arc<dyn Fn(&str) -> Result<Client, ClientError> + Send + Sync>;

/// The clients of one process.
#[derive(Clone)]
pub struct Clients {
    /// For lists and watches.
    pub read: Client,
    /// For everything that is written.
    pub effects: Client,
    /// For the leader election: effects that hang must not keep the lease from being renewed.
    pub election: Client,
    /// For each apiserver by itself.
    pub connect: Connect,
}

impl Clients {
    /// The clients that `config` describes. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn of(config: &Config) -> Result<Self, ClientError> {
        let probed = config.clone();
        Ok(Self {
            read: read_client(config)?,
            effects: effects_client(config)?,
            election: effects_client(config)?,
            connect: Arc::new(move |address: &str| probe_client(&probed, address)),
        })
    }
}

/// The client for lists and watches: it retries throttled requests, and a watch may be silent for minutes.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the configuration cannot be used.
pub fn read_client(config: &Config) -> Result<Client, ClientError> {
    let mut config = config.clone();
    config.default_retry = true;
    config.read_timeout = None;
    // Watches are never compressed, and compressing a list costs the server more than the network saves.
    config.disable_compression = true;
    Ok(Client::try_from(config)?)
}

/// The client for everything that writes: no retries, few requests in flight. Wrap each request in [`within`].
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the configuration cannot be used.
pub fn effects_client(config: &Config) -> Result<Client, ClientError> {
    let mut config = config.clone();
    config.default_retry = false;
    config.read_timeout = Some(EFFECT_TIMEOUT);
    config.write_timeout = Some(EFFECT_TIMEOUT);
    config.connect_timeout = Some(EFFECT_TIMEOUT);
    let limit = ConcurrencyLimitLayer::new(EFFECTS_IN_FLIGHT);
    Ok(ClientBuilder::try_from(config)?.with_layer(&limit).build())
}

/// The client for one apiserver endpoint `address` (`192.0.2.1:6443`): it dials that address and checks the
/// certificate against the name all apiservers share.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the configuration cannot be used or `address` is no `host:port`.
pub fn probe_client(config: &Config, address: &str) -> Result<Client, ClientError> {
    let uri = |source| ClientError::Address { address: address.to_owned(), source };
    let shared_name = config.cluster_url.host().unwrap_or("kubernetes.default.svc").to_owned();
    let scheme = config.cluster_url.scheme_str().unwrap_or("https");
    let mut config = config.clone();
    config.tls_server_name = config.tls_server_name.or(Some(shared_name));
    config.cluster_url = format!("{scheme}://{address}").parse::<Uri>().map_err(uri)?;
    config.read_timeout = Some(PROBE_TIMEOUT);
    config.connect_timeout = Some(PROBE_TIMEOUT);
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// `request`, given up after `limit`.
///
/// # Errors
/// The request's own error, or [`kube::Error::Service`] around tokio's `Elapsed`. After that error the request may
/// still have been carried out.
pub async fn within<T>(limit: Duration, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

/// The whole chain of `error`'s causes in one line, bounded.
///
/// kube's own text stops above the cause (`client error (Connect)`), and repeats a `Status` in debug form.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        let text = match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => {
                next = None;
                // The server's own word is one, and it means more than one thing.
                let hint = match status.code {
                    401 => ": the credentials are not accepted; has the token or the certificate expired?",
                    _ => "",
                };
                format!("{} (HTTP {}){hint}", status.message, status.code)
            }
            Some(kube::Error::SerdeError(cause)) => {
                next = None;
                format!(
                    "what came is no answer of a Kubernetes API, or only a part of one (is there a proxy in between?): {cause}"
                )
            }
            None if error.is::<tokio::time::error::Elapsed>() => "no answer in time".to_owned(),
            // These only announce the cause that follows.
            Some(kube::Error::Service(_) | kube::Error::HyperError(_)) => continue,
            _ => error.to_string(),
        };
        if !line.contains(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
    }
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_told() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection\nrefused");
        assert_eq!(one_line(&kube::Error::Service(Box::new(refused))), "connection refused");
        let status = kube::core::Status::failure("Unauthorized", "Unauthorized").with_code(401);
        let hint = "Unauthorized (HTTP 401): the credentials are not accepted; has the token or the certificate expired?";
        assert_eq!(one_line(&kube::Error::Api(status.boxed())), hint);
        let status = kube::core::Status::failure("nodes is forbidden", "Forbidden").with_code(403);
        assert_eq!(one_line(&kube::Error::Api(status.boxed())), "nodes is forbidden (HTTP 403)");
    }

    /// A server that refuses everything as a spent budget does, and counts how often it is asked.
    #[tokio::test]
    async fn a_refused_write_is_sent_once() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = connection.read(&mut request).await;
                counter.fetch_add(1, Ordering::SeqCst);
                let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests"}"#;
                let head =
                    "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close";
                let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        let client = effects_client(&Config::new(url.parse().unwrap())).unwrap();
        let answer = within(EFFECT_TIMEOUT, client.apiserver_version()).await;
        assert!(matches!(answer, Err(kube::Error::Api(status)) if status.code == 429));
        assert_eq!(asked.load(Ordering::SeqCst), 1, "the client must not retry behind our back");
    }

    #[tokio::test]
    async fn a_probe_dials_the_address_it_is_given() {
        let config = Config::new("http://shared.example:6443".parse().unwrap());
        assert!(probe_client(&config, "[2001:db8::1]:6443").is_ok());
        assert!(matches!(probe_client(&config, "not an address"), Err(ClientError::Address { .. })));
    }
}
