//! The operator as a process: started with its own service account's token, stopped, killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure, TestResult};
use tokio::process::{Child, Command};

use crate::scenario::{NAMESPACE, SERVICE_ACCOUNT};

pub struct Operator {
    binary: PathBuf,
    kubeconfig: PathBuf,
    log: PathBuf,
    /// Its name in the leader election, and that of the pod as which it asks.
    pub identity: &'static str,
    port: u16,
    extra: Vec<String>,
    child: Option<Child>,
    pub starts: usize,
}

impl Operator {
    /// Not started yet; it will run `binary` as the service account that `config/upgrade` makes for it.
    pub async fn new(cluster: &Cluster, binary: impl AsRef<Path>, extra: &[&str]) -> Result<Self, Failure> {
        let identity = "operator";
        Ok(Self {
            binary: binary.as_ref().to_owned(),
            kubeconfig: cluster.pod_kubeconfig(NAMESPACE, SERVICE_ACCOUNT, identity).await?,
            log: cluster.logs().join("evenkeel.log"),
            identity,
            port: 8080,
            extra: extra.iter().map(|arg| (*arg).to_owned()).collect(),
            child: None,
            starts: 0,
        })
    }

    /// A second replica, beside the one that is not called so. The audit log tells them apart as two pods.
    pub async fn beside(mut self, cluster: &Cluster, identity: &'static str) -> Result<Self, Failure> {
        self.kubeconfig = cluster.pod_kubeconfig(NAMESPACE, SERVICE_ACCOUNT, identity).await?;
        self.log.set_file_name(format!("evenkeel-{identity}.log"));
        self.identity = identity;
        self.port += 1;
        Ok(self)
    }

    pub fn start(&mut self) -> TestResult {
        self.starts += 1;
        let failed =
            |error: std::io::Error| Failure::new(format!("starting {}: {error}", self.binary.display()));
        let log = File::options().create(true).append(true).open(&self.log).map_err(failed)?;
        let mut command = Command::new(&self.binary);
        command
            .arg("operator")
            .args(["--upgrades", "--identity", self.identity, "--listen"])
            .arg(format!("127.0.0.1:{}", self.port))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(&self.extra)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        self.child = Some(command.spawn().map_err(failed)?);
        Ok(())
    }

    /// It was started, and not killed or stopped since.
    pub fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// Does `work`, which fails when the operator ends by itself: also while the only kube-apiserver is replaced it stays
    /// alive.
    pub async fn during<T>(&mut self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let Some(child) = &mut self.child else { return Err(Failure::new("the operator does not run")) };
        tokio::select! {
            done = work => done,
            ended = child.wait() => Err(Failure::new(format!("the operator ended by itself: {ended:?}"))),
        }
    }

    /// SIGKILL: it gets no chance to say anything.
    pub async fn kill(&mut self) -> TestResult {
        match self.child.take() {
            Some(mut child) => {
                child.kill().await.map_err(|error| Failure::new(format!("killing the operator: {error}")))
            }
            None => Err(Failure::new("the operator does not run")),
        }
    }

    /// SIGTERM, and how it ended.
    pub async fn stop(&mut self) -> Result<std::process::ExitStatus, Failure> {
        self.signal("-TERM").await?;
        let Some(mut child) = self.child.take() else {
            return Err(Failure::new("the operator does not run"));
        };
        match tokio::time::timeout(Duration::from_secs(20), child.wait()).await {
            Ok(ended) => ended.map_err(|error| Failure::new(format!("waiting for the operator: {error}"))),
            Err(_) => Err(Failure::new("the operator did not end within 20 s of SIGTERM")),
        }
    }

    /// SIGSTOP: it hangs, and does not know that it does.
    pub async fn pause(&self) -> TestResult {
        self.signal("-STOP").await
    }

    /// SIGCONT: it goes on where it was.
    pub async fn resume(&self) -> TestResult {
        self.signal("-CONT").await
    }

    async fn signal(&self, signal: &str) -> TestResult {
        let id = self.child.as_ref().and_then(Child::id);
        let id = id.ok_or_else(|| Failure::new("the operator does not run"))?.to_string();
        let told = Command::new("kill").args([signal, &id]).status().await;
        let told = told.map_err(|error| Failure::new(format!("kill {signal}: {error}")))?;
        if told.success() { Ok(()) } else { Err(Failure::new(format!("kill {signal} {id}: {told}"))) }
    }

    /// Everything it has logged, over all starts.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// A test that fails shows what the operator had to say.
impl Drop for Operator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// GET of one of the operator's own pages.
pub async fn page(path: &str) -> Result<String, Failure> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let failed = |error: std::io::Error| Failure::new(format!("GET {path}: {error}"));
    let mut connection = tokio::net::TcpStream::connect("127.0.0.1:8080").await.map_err(failed)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: evenkeel\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.map_err(failed)?;
    Ok(answer)
}
