//! One real node: started, given a network, filled with images and packages, asked to run things, killed.
//!
//! Belongs here: what is done to a node from outside of it. Never here: how its file systems come about (see `inside`)
//! or what cluster it is part of (see `kubeadm`). Invariants: a node that `start` returned has a container runtime that
//! answers; its files are written through it while it runs, never from outside.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::error::{Error, Result};
use crate::proc;
use crate::real::cgroups::Cgroups;
use crate::real::etc::{self, Identity};
use crate::real::inside::Spec;
use crate::real::kit::Kit;
use crate::real::repository;
use crate::release::Release;
use crate::wait::{tail, wait_for};

/// The bridge that connects the nodes, and its address.
pub(crate) const BRIDGE: &str = "br0";

/// The programs' folders, in the order of every Debian.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A node. Dropping it does not end it: it ends with its cluster.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) control_plane: bool,
    dir: PathBuf,
    /// What `ip` does in it to connect it.
    wires: String,
    /// Its first process, by its number outside.
    pid: AtomicU32,
    process: Mutex<Child>,
}

/// What a node is to be.
pub(crate) struct Wanted<'a> {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) control_plane: bool,
    pub(crate) release: Release,
    /// The address of the bridge, which is every node's way out.
    pub(crate) gateway: Ipv4Addr,
    /// The other nodes: their addresses and the ranges of their pods.
    pub(crate) routes: &'a [(Ipv4Addr, String)],
    /// The range of its own pods.
    pub(crate) pods: String,
}

impl Node {
    /// Starts a node in `dir` and waits until its container runtime answers.
    pub(crate) async fn start(
        wanted: Wanted<'_>,
        dir: PathBuf,
        kit: &Kit,
        cgroups: &Cgroups,
    ) -> Result<Self> {
        let (address, gateway) = (wanted.address.to_string(), wanted.gateway.to_string());
        let identity = Identity {
            name: &wanted.name,
            address: &address,
            pods: &wanted.pods,
            resolver: &gateway,
            release: wanted.release,
        };
        etc::write(&dir.join("etc"), &dir.join("var"), &identity, kit)?;
        let spec = Spec {
            name: wanted.name.clone(),
            dir: dir.clone(),
            usr: kit.usr().to_vec(),
            shown: vec![
                (kit.plugins(), "/opt/cni/bin".to_owned()),
                (kit.repository(), repository::ON_NODE.to_owned()),
            ],
            cgroups: cgroups.clone(),
        };
        let path = dir.join("spec.json");
        fs::write(&path, serde_json::to_vec(&spec).unwrap_or_default())
            .map_err(Error::io("writing", &path))?;
        let (process, pid) = begin(&path, &dir.join("log")).await?;
        let node = Self {
            wires: wires(&wanted),
            name: wanted.name,
            address: wanted.address,
            control_plane: wanted.control_plane,
            dir,
            pid: pid.into(),
            process: process.into(),
        };
        node.await_containerd().await?;
        Ok(node)
    }

    /// Kills every process of it at once, as when its power fails, and starts it again after `away`; waits until its
    /// container runtime answers.
    pub(crate) async fn power_cycle(&self, away: Duration) -> Result<()> {
        let mut process = self.process.lock().await;
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::Usage(format!("{} has no process", self.name)))?;
        kill_process(pid, Signal::KILL).map_err(|e| Error::io("killing", &self.name)(e.into()))?;
        process.wait().await.map_err(Error::io("waiting for the end of", &self.name))?;
        tokio::time::sleep(away).await;
        let (again, pid) = begin(&self.dir.join("spec.json"), &self.dir.join("log")).await?;
        *process = again;
        self.pid.store(pid, Ordering::Relaxed);
        self.await_containerd().await
    }

    fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Connects a node whose first process waits for its network, and waits for its container runtime.
    async fn await_containerd(&self) -> Result<()> {
        let (pid, outside) = (self.pid(), format!("to-{}", self.name));
        let link = format!(
            "link add {outside} type veth peer name eth0 netns {pid}\nlink set {outside} master {BRIDGE} up\n"
        );
        ip(None, &link).await?;
        ip(Some(pid), &self.wires).await?;
        // For whoever wants to look into it from outside.
        let path = self.dir.join("pid");
        fs::write(&path, pid.to_string()).map_err(Error::io("writing", &path))?;
        let what = format!("containerd on {} to answer", self.name);
        wait_for(&what, Duration::from_mins(1), async || match self.output(["ctr", "version"]).await {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(last_line(&output)),
            Err(error) => Err(error.to_string()),
        })
        .await
        .map_err(|error| self.failed(&error.to_string()))
    }

    /// Imports images, each from a file.
    pub(crate) async fn import(&self, images: &BTreeSet<PathBuf>) -> Result<()> {
        for image in images {
            let file = File::open(image).map_err(Error::io("opening", image))?;
            // What is unpacked is not kept packed as well: a node's files are in memory.
            let args = [
                "ctr",
                "--namespace",
                "k8s.io",
                "images",
                "import",
                "--local",
                "--discard-unpacked-layers",
                "-",
            ];
            let output = self.command(args).stdin(file).output().await;
            let output = output.map_err(Error::io("starting (is util-linux installed?)", "nsenter"))?;
            if !output.status.success() {
                return Err(self.failed(&format!("importing {}: {}", image.display(), last_line(&output))));
            }
        }
        Ok(())
    }

    /// Gives an image that is there a second name, by its digest, which some policies ask for; returns that name.
    pub(crate) async fn name_by_digest(&self, image: &str) -> Result<String> {
        let filter = format!("name=={image}");
        let output = self.output(["ctr", "--namespace", "k8s.io", "images", "list", &filter]).await?;
        let said = String::from_utf8_lossy(&output.stdout);
        let digest = said.split_whitespace().find(|word| word.starts_with("sha256:"));
        let digest = digest.ok_or_else(|| self.failed(&format!("has no image {image}")))?;
        let pinned = format!("{}@{digest}", image.rsplit_once(':').map_or(image, |(name, _)| name));
        let output = self.output(["ctr", "--namespace", "k8s.io", "images", "tag", image, &pinned]).await?;
        if output.status.success() {
            return Ok(pinned);
        }
        Err(self.failed(&format!("naming {pinned}: {}", last_line(&output))))
    }

    /// Installs kubelet and kubeadm of a release from the local repository, as the field does.
    pub(crate) async fn install(&self, release: Release) -> Result<()> {
        let version = repository::version(release);
        self.shell(&format!(
            "export DEBIAN_FRONTEND=noninteractive\n\
             apt-get update\n\
             apt-get install -y 'kubelet={version}-*' 'kubeadm={version}-*'\n\
             apt-mark hold kubelet kubeadm\n\
             systemctl enable kubelet"
        ))
        .await
    }

    /// Runs a script of the shell on the node; fails with the last thing it said.
    pub(crate) async fn shell(&self, script: &str) -> Result<()> {
        let output = self.output(["sh", "-euc", script]).await?;
        let log = self.dir.join("log");
        let mut text = output.stdout.clone();
        text.extend_from_slice(&output.stderr);
        append(&log, &text)?;
        if output.status.success() {
            return Ok(());
        }
        let script = script.lines().last().unwrap_or_default();
        Err(self.failed(&format!("`{script}` failed ({})", output.status)))
    }

    /// Writes a file on the node.
    pub(crate) async fn write(&self, path: &str, content: &str) -> Result<()> {
        use tokio::io::AsyncWriteExt as _;
        let starting = || Error::io("starting (is util-linux installed?)", "nsenter");
        let mut child = self
            .command(["sh", "-euc", r#"cat > "$0""#, path])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(starting())?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(content.as_bytes()).await.map_err(Error::io("writing on a node", path))?;
        }
        let status = child.wait().await.map_err(starting())?;
        if status.success() { Ok(()) } else { Err(self.failed(&format!("writing {path} failed ({status})"))) }
    }

    /// The content of a file on the node.
    pub(crate) async fn read(&self, path: &str) -> Result<String> {
        let output = self.output(["cat", path]).await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(self.failed(&format!("reading {path}: {}", last_line(&output))))
    }

    async fn output<const N: usize>(&self, args: [&str; N]) -> Result<Output> {
        self.command(args).output().await.map_err(Error::io("starting (is util-linux installed?)", "nsenter"))
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(enter_args(&self.pid().to_string())).args(args).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    fn failed(&self, what: &str) -> Error {
        Error::Component {
            name: self.name.clone(),
            what: what.to_owned(),
            tail: tail(&self.dir.join("log"), 12),
        }
    }
}

/// What `ip` does in a node: its address, and the way to everybody's pods.
fn wires(wanted: &Wanted<'_>) -> String {
    let others = wanted.routes.iter().filter(|(address, _)| *address != wanted.address);
    let routes: Vec<_> = others.map(|(address, pods)| format!("route add {pods} via {address}")).collect();
    // The default route comes last: the node waits for it.
    format!(
        "link set lo up\naddr add {}/24 dev eth0\nlink set eth0 up\n{}\nroute add default via {}\n",
        wanted.address,
        routes.join("\n"),
        wanted.gateway
    )
}

/// The arguments of `nsenter` before a command that runs on the node whose first process is `pid`.
pub(crate) fn enter_args(pid: &str) -> Vec<String> {
    let words = ["--target", pid, "--mount", "--net", "--uts", "--ipc", "--pid", "--cgroup", "--"];
    let clean = ["env", "-i", PATH, "HOME=/root", "LANG=C.UTF-8"];
    words.iter().chain(&clean).map(|word| (*word).to_owned()).collect()
}

/// Starts the processes of a node; returns the outermost and the number of the innermost, which is the node's first.
async fn begin(spec: &Path, log: &Path) -> Result<(Child, u32)> {
    let program = std::env::current_exe().map_err(Error::io("finding", "the current executable"))?;
    let file = File::create(log).map_err(Error::io("creating", log))?;
    let mut child = Command::new(program)
        .arg("node-enter")
        .arg(spec)
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(Error::io("opening", log))?)
        .stderr(file)
        .spawn()
        .map_err(Error::io("starting", "a node"))?;
    let outer = child.id().unwrap_or_default();
    let what = format!("the first process of the node in {}", spec.display());
    let pid = wait_for(&what, Duration::from_secs(20), async || {
        if let Ok(Some(status)) = child.try_wait() {
            return Ok(Err(status));
        }
        proc::children(outer).first().copied().map(Ok).ok_or_else(|| "nothing yet".to_owned())
    })
    .await?;
    match pid {
        Ok(pid) => Ok((child, pid)),
        Err(status) => Err(Error::Component {
            name: format!("the node in {}", spec.display()),
            what: format!("ended ({status}) before it started"),
            tail: tail(log, 12),
        }),
    }
}

/// Runs several commands of `ip`, in the network of process `pid` or in the cluster's.
pub(crate) async fn ip(pid: Option<u32>, commands: &str) -> Result<()> {
    use tokio::io::AsyncWriteExt as _;
    let mut command = match pid {
        None => Command::new("ip"),
        Some(pid) => {
            let mut command = Command::new("nsenter");
            command.args(["--target", &pid.to_string(), "--net", "--", "ip"]);
            command
        }
    };
    let failed = |reason: String| Error::Tool {
        command: format!("ip -batch - ({})", commands.trim().replace('\n', "; ")),
        reason,
        hint: "iproute2 must be installed, and the kernel know veth and bridge".to_owned(),
    };
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(commands.as_bytes()).await.map_err(|e| failed(e.to_string()))?;
    }
    let output = child.wait_with_output().await.map_err(|e| failed(e.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(failed(last_line(&output))) }
}

fn last_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.trim().lines().last().map_or_else(|| output.status.to_string(), str::to_owned)
}

fn append(log: &Path, text: &[u8]) -> Result<()> {
    use std::io::Write as _;
    let file = File::options().append(true).create(true).open(log);
    file.and_then(|mut file| file.write_all(text)).map_err(Error::io("writing", log))
}
