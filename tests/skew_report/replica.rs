//! The reporter as its own service account runs it: one or two replicas, stopped, killed, frozen.

use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure, TestResult};
use tokio::process::{Child, Command};

use crate::binary;

pub const NAMESPACE: &str = "evenkeel-system";
pub const SERVICE_ACCOUNT: &str = "evenkeel-reporter";
/// The audit log's name of it.
pub const USER: &str = "system:serviceaccount:evenkeel-system:evenkeel-reporter";

pub struct Replica {
    name: &'static str,
    port: u16,
    kubeconfig: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Failure {
    let what = what.to_owned();
    move |error| Failure::new(format!("{what}: {error}"))
}

impl Replica {
    /// Not started yet. `port` is that of its metrics.
    pub async fn new(cluster: &Cluster, name: &'static str, port: u16) -> Result<Self, Failure> {
        let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
        Ok(Self { name, port, kubeconfig, log: cluster.logs().join(format!("{name}.log")), child: None })
    }

    pub fn start(&mut self) -> TestResult {
        let log = File::options().create(true).append(true).open(&self.log).map_err(failed("the log"))?;
        let mut command = Command::new(binary());
        command
            .args(["operator", "--identity", self.name, "--lease-duration", "6"])
            .args(["--listen", &format!("127.0.0.1:{}", self.port), "--kubeconfig"])
            .arg(&self.kubeconfig)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        self.child = Some(command.spawn().map_err(failed("starting a replica"))?);
        Ok(())
    }

    /// SIGKILL.
    pub async fn kill(&mut self) -> TestResult {
        let mut child = self.child.take().ok_or_else(|| Failure::new("it does not run"))?;
        child.kill().await.map_err(failed("SIGKILL"))
    }

    /// `TERM`, `STOP` or `CONT`.
    pub async fn signal(&self, signal: &str) -> TestResult {
        let id = self.child.as_ref().and_then(Child::id).ok_or_else(|| Failure::new("it does not run"))?;
        let told = Command::new("kill").args([&format!("-{signal}"), &id.to_string()]).status().await;
        told.map(|_| ()).map_err(failed("kill"))
    }

    /// Waits for its end.
    pub async fn ends(&mut self, limit: Duration) -> Result<ExitStatus, Failure> {
        let child = self.child.as_mut().ok_or_else(|| Failure::new("it does not run"))?;
        match tokio::time::timeout(limit, child.wait()).await {
            Ok(ended) => ended.map_err(failed("waiting")),
            Err(_) => Err(Failure::new(format!("{} still runs after {} s", self.name, limit.as_secs()))),
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// GET of one of its pages: the status line and the body.
    pub async fn page(&self, path: &str) -> Result<String, Failure> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let address = format!("127.0.0.1:{}", self.port);
        let mut connection = tokio::net::TcpStream::connect(address).await.map_err(failed(path))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: evenkeel\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.map_err(failed(path))?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.map_err(failed(path))?;
        Ok(answer)
    }
}

/// A test that fails shows what it had to say.
impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}
