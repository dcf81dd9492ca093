//! The Kubernetes clients of the program, and how their errors are told.
//!
//! Here belongs every choice of retries, timeouts and addresses; nothing here knows what is asked. The invariant: a
//! client for which every single answer counts (an eviction's 429, a probe's silence) never retries by itself.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::text::harmless;
use http::header::USER_AGENT;
use http::uri::InvalidUri;
use http::{HeaderValue, Uri};
use kube::config::AuthInfo;
use kube::{Client, Config};

/// Longest wait for the answer to one write. The kube-apiserver's own limit on a request is 60 s, but a proof of
/// leadership lives only 10 s, and a write without an answer in that time is decided again anyway.
pub const EFFECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for the answer of one kube-apiserver endpoint.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest error text that is shown or kept, in characters.
const MAX_TEXT: usize = 1000;

/// Why no client could be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration (certificates, credentials) is unusable.
    #[error("cannot build a client: {0}")]
    Build(#[from] kube::Error),
    /// The endpoint's address is no `host:port`.
    #[error("{address} is no address: {source}")]
    Address {
        /// The text that was to be `host:port`.
        address: String,
        /// Why it is none.
        source: InvalidUri,
    },
}

/// Makes the client for the kube-apiserver endpoint of that address: [`probe_client`] outside of tests.
pub type Connect = Arc<dyn Fn(&str) -> Result<Client, ClientError> + Send + Sync>;

/// The clients of one process.
#[derive(Clone)]
pub struct Clients {
    /// For lists and watches.
    pub read: Client,
    /// For everything that is written.
    pub effects: Client,
    /// For the leader election: writes that hang must not keep the Lease from being renewed.
    pub election: Client,
    /// For each kube-apiserver by itself.
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

/// `config` for `command`, which the server's audit log then names: `evenkeel/0.1.0 (linux/amd64) drain`.
#[must_use]
pub fn named(mut config: Config, command: &str) -> Config {
    // As Go names machines, so that this reads as kubectl's does.
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let (version, system) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    if let Ok(agent) = HeaderValue::from_str(&format!("evenkeel/{version} ({system}/{machine}) {command}")) {
        config.headers.retain(|(name, _)| name != USER_AGENT);
        config.headers.push((USER_AGENT, agent));
    }
    config
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

/// The client for everything that writes: no retries. Requests are sent by an `Authority` alone (`crate::act`).
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
    // The time that a connection was idle is not the server's.
    config.reset_reader_on_write = true;
    Ok(Client::try_from(config)?)
}

/// The client for one kube-apiserver endpoint `address` (`192.0.2.1:6443`): it dials that address and checks the
/// certificate against the name all kube-apiservers share.
///
/// Whoever may write an `EndpointSlice` chooses the address. So the probe sends credentials only to a server whose
/// certificate the cluster's CA has signed. Without TLS, or where certificates are not verified, it sends none,
/// which is enough for `/version` on most clusters.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the configuration cannot be used or `address` is no `host:port`.
pub fn probe_client(config: &Config, address: &str) -> Result<Client, ClientError> {
    Ok(Client::try_from(probed(config, address)?)?)
}

/// `config` changed for the endpoint at `address`: its address, timeouts without retries, and no credentials where the
/// server's certificate is not verified.
fn probed(config: &Config, address: &str) -> Result<Config, ClientError> {
    let uri = |source| ClientError::Address { address: address.to_owned(), source };
    let shared_name = config.cluster_url.host().unwrap_or("kubernetes.default.svc");
    // A certificate names an IPv6 address without the brackets that it has in a URL.
    let shared_name = shared_name.trim_start_matches('[').trim_end_matches(']').to_owned();
    let scheme = config.cluster_url.scheme_str().unwrap_or("https").to_owned();
    let mut config = config.clone();
    config.tls_server_name = config.tls_server_name.or(Some(shared_name));
    config.cluster_url = format!("{scheme}://{address}").parse::<Uri>().map_err(uri)?;
    if scheme != "https" || config.accept_invalid_certs {
        config.auth_info = AuthInfo::default();
    }
    config.read_timeout = Some(PROBE_TIMEOUT);
    config.reset_reader_on_write = true;
    config.connect_timeout = Some(PROBE_TIMEOUT);
    config.default_retry = false;
    Ok(config)
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
                // The server says only `Unauthorized`, which has several causes.
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
    // Line breaks become blanks; `harmless` replaces what else would act on a terminal.
    let one: String = line.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).take(MAX_TEXT).collect();
    harmless(&one)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn what_a_webhook_says_moves_no_cursor() {
        let said = "admission webhook \"x\" denied the request: \u{1b}[2J\u{202e}drawkcab\u{2069}\nok";
        let status = kube::core::Status::failure(said, "Forbidden").with_code(403);
        let line = "admission webhook \"x\" denied the request: ?[2J?drawkcab? ok (HTTP 403)";
        assert_eq!(one_line(&kube::Error::Api(status.boxed())), line);
    }

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

    /// A server that refuses everything as a spent budget does: its URL, and what it was asked.
    async fn server() -> (Config, Arc<Mutex<Vec<String>>>) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let length = connection.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
                heard.lock().unwrap().push(request);
                let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests"}"#;
                let head =
                    "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close";
                let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        (Config::new(url.parse().unwrap()), asked)
    }

    #[tokio::test]
    async fn a_refused_write_is_sent_once() {
        let (config, asked) = server().await;
        let client = effects_client(&config).unwrap();
        let answer = within(EFFECT_TIMEOUT, client.apiserver_version()).await;
        assert!(matches!(answer, Err(kube::Error::Api(status)) if status.code == 429));
        assert_eq!(asked.lock().unwrap().len(), 1, "the client must not retry behind our back");
    }

    #[tokio::test]
    async fn the_server_is_told_which_command_asks() {
        let (config, asked) = server().await;
        let config = named(named(config, "report"), "drain");
        for client in [effects_client(&config).unwrap(), probe_client(&config, &address(&config)).unwrap()] {
            _ = client.apiserver_version().await;
        }
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 2);
        for request in asked {
            let agent = request.lines().find_map(|line| line.strip_prefix("user-agent: "));
            let machine = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
            let version = env!("CARGO_PKG_VERSION");
            assert_eq!(
                agent,
                Some(format!("evenkeel/{version} (linux/{machine}) drain").as_str()),
                "{request}"
            );
        }
    }

    fn address(config: &Config) -> String {
        config.cluster_url.authority().unwrap().to_string()
    }

    /// Whoever may write an EndpointSlice chooses who is asked for its version. Without a certificate that proves
    /// that it is a kube-apiserver of this cluster, it is asked without a word of who asks.
    #[tokio::test]
    async fn an_endpoint_that_proves_nothing_is_told_no_secret() {
        let (mut config, asked) = server().await;
        config.auth_info.token = Some("secret-token".to_owned().into());
        config.auth_info.impersonate = Some("admin".to_owned());
        _ = probe_client(&config, &address(&config)).unwrap().apiserver_version().await;
        let request = asked.lock().unwrap().pop().unwrap();
        assert!(!request.contains("secret-token") && !request.contains("impersonate"), "{request}");

        let secure = |accept_invalid_certs| {
            let mut config = config.clone();
            config.cluster_url = "https://shared.example:6443".parse().unwrap();
            config.accept_invalid_certs = accept_invalid_certs;
            config
        };
        let token = |config: Config| probed(&config, "192.0.2.1:6443").unwrap().auth_info.token.is_some();
        assert!(token(secure(false)), "its certificate is verified before anything is sent");
        assert!(!token(secure(true)), "--insecure-skip-tls-verify");
    }

    #[tokio::test]
    async fn a_probe_dials_the_address_it_is_given() {
        let config = Config::new("http://shared.example:6443".parse().unwrap());
        assert!(probe_client(&config, "[2001:db8::1]:6443").is_ok());
        assert!(matches!(probe_client(&config, "not an address"), Err(ClientError::Address { .. })));
    }

    /// Inside of an IPv6 cluster, the address that the certificate has to name is in brackets in the URL alone.
    #[tokio::test]
    async fn a_probe_checks_the_certificate_against_an_ipv6_address_too() {
        let config = Config::new("https://[fd00:10:96::1]:443".parse().unwrap());
        let built = probe_client(&config, "[fd00::a]:6443").map(|_| ());
        assert!(built.is_ok(), "{built:?}");
    }
}
