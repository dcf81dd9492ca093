//! The `/etc` of a node, and what apt and dpkg need in its `/var`.
//!
//! Belongs here: files that a node finds when it starts. Never here: what happens on it. Invariant: nothing of the
//! machine's own configuration that could hold a secret is copied, only what names users, libraries and services.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::audit;
use crate::debian::run;
use crate::digest::digest;
use crate::error::{Error, Result};
use crate::real::{kit::Kit, repository};
use crate::release::Release;

const CONTAINERD_UNIT: &str = include_str!("../../real/containerd.service");
const CONTAINERD_CONFIG: &str = include_str!("../../real/containerd.toml");
const NETWORK: &str = include_str!("../../real/cni.conflist");
/// Where a kube-apiserver finds what it is to record, and the folder in which it does.
pub(crate) const AUDIT_POLICY: &str = "/etc/kubernetes/audit-policy.json";
pub(crate) const AUDIT_FOLDER: &str = "/var/log/kubernetes";
pub(crate) const AUDIT_LOG: &str = "audit.log";
/// Units that make no sense in a namespace, or would reach for what is the machine's.
const MASKED: &str = include_str!("../../real/masked-units.txt");

/// From the machine: who is who, where libraries are, which program an alternative stands for.
const COPIED: [&str; 8] = [
    "passwd",
    "group",
    "nsswitch.conf",
    "ld.so.conf",
    "protocols",
    "services",
    "ld.so.conf.d",
    "alternatives",
];

/// Folders below `/var` that dpkg, apt and systemd expect.
const VAR: [&str; 10] = [
    "lib/dpkg/info",
    "lib/dpkg/updates",
    "lib/dpkg/triggers",
    "lib/dpkg/alternatives",
    "lib/dpkg/parts",
    "lib/apt/lists/partial",
    "cache/apt/archives/partial",
    "log/apt",
    "tmp",
    "lib/kubelet",
];

/// What tells one node from another.
pub(crate) struct Identity<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: &'a str,
    /// The range of its pods' addresses.
    pub(crate) pods: &'a str,
    /// Where names are asked for that the cluster does not know: nobody answers there, at once.
    pub(crate) resolver: &'a str,
    pub(crate) release: Release,
}

/// Writes `/etc` and `/var` of a node into folders that are empty.
pub(crate) fn write(etc: &Path, var: &Path, node: &Identity<'_>, kit: &Kit) -> Result<()> {
    fs::create_dir_all(etc).map_err(Error::io("creating", etc))?;
    for name in COPIED {
        let from = Path::new("/etc").join(name);
        if from.exists() {
            run(Command::new("cp").arg("-a").arg(from).arg(etc), "is there memory left?")?;
        }
    }
    link(etc, "os-release", "../usr/lib/os-release")?;
    let hosts = format!("127.0.0.1 localhost\n{} {}\n", node.address, node.name);
    put(etc, "hostname", &format!("{}\n", node.name))?;
    put(etc, "hosts", &hosts)?;
    put(etc, "resolv.conf", &format!("nameserver {}\n", node.resolver))?;
    put(etc, "machine-id", &format!("{}\n", digest(&[node.name], 16)))?;
    put(etc, "fstab", "")?;
    systemd(etc)?;
    put(etc, "containerd/config.toml", &CONTAINERD_CONFIG.replace("@PAUSE@", &kit.pause_image()?))?;
    put(etc, "cni/net.d/10-devcluster.conflist", &NETWORK.replace("@PODS@", node.pods))?;
    folder(etc, "kubernetes/manifests")?;
    put(etc, AUDIT_POLICY.trim_start_matches("/etc/"), audit::POLICY)?;
    packages(etc, var, node.release)
}

fn systemd(etc: &Path) -> Result<()> {
    for unit in MASKED.lines() {
        link(etc, &format!("systemd/system/{unit}"), "/dev/null")?;
    }
    link(etc, "systemd/system/default.target", "/lib/systemd/system/multi-user.target")?;
    put(etc, "systemd/system/containerd.service", CONTAINERD_UNIT)?;
    link(etc, "systemd/system/multi-user.target.wants/containerd.service", "../containerd.service")?;
    let journal = "[Journal]\nStorage=volatile\nRuntimeMaxUse=32M\nReadKMsg=no\nForwardToConsole=no\n\
                   RateLimitIntervalSec=0\n";
    put(etc, "systemd/journald.conf.d/devcluster.conf", journal)?;
    put(etc, "systemd/system.conf.d/devcluster.conf", "[Manager]\nDefaultTimeoutStopSec=10s\n")
}

fn packages(etc: &Path, var: &Path, release: Release) -> Result<()> {
    for dir in ["apt/apt.conf.d", "apt/preferences.d", "apt/trusted.gpg.d", "dpkg", "default"] {
        folder(etc, dir)?;
    }
    put(etc, "apt/sources.list.d/kubernetes.list", &repository::source(release))?;
    // The repository is a folder that only root may see.
    put(etc, "apt/apt.conf.d/devcluster", "APT::Sandbox::User \"root\";\n")?;
    for dir in VAR {
        folder(var, dir)?;
    }
    put(var, "lib/dpkg/status", "")?;
    put(var, "lib/dpkg/available", "")?;
    link(var, "run", "/run")?;
    link(var, "lock", "/run/lock")
}

fn folder(root: &Path, path: &str) -> Result<()> {
    let path = root.join(path);
    fs::create_dir_all(&path).map_err(Error::io("creating", &path))
}

fn parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), |dir| fs::create_dir_all(dir).map_err(Error::io("creating", dir)))
}

fn put(root: &Path, path: &str, content: &str) -> Result<()> {
    let path = root.join(path);
    parent(&path)?;
    fs::write(&path, content).map_err(Error::io("writing", &path))
}

fn link(root: &Path, path: &str, target: &str) -> Result<()> {
    let path = root.join(path);
    parent(&path)?;
    symlink(target, &path).map_err(Error::io("linking", &path))
}
