//! What happens between the start of a node's first process and the moment it becomes systemd.
//!
//! Belongs here: entering cgroups and namespaces, and mounting the node's file systems, in the process that becomes the
//! node. Never here: starting that process (see `node`). Invariants: after the new root is in place nothing of the
//! machine's is left to see but what was mounted on purpose; sysctls of the whole machine are read-only.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::mount::{mount, mount_bind, mount_change, mount_remount, unmount};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::real::cgroups::Cgroups;

/// A node as its first process is told about it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) name: String,
    /// The node's own folder: `etc`, `var`, and what overlays need.
    pub(crate) dir: PathBuf,
    /// What lies over the machine's `/usr`, the first on top.
    pub(crate) usr: Vec<PathBuf>,
    /// Folders of the kit that a node sees, and where.
    pub(crate) shown: Vec<(PathBuf, String)>,
    pub(crate) cgroups: Cgroups,
}

/// The sysctls of the whole machine that a kubelet sets, as it wants them: files that only the node sees.
const SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

const DEVICES: [&str; 8] = ["null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse"];

fn read(spec: &Path) -> Result<Spec> {
    let bytes = fs::read(spec).map_err(Error::io("reading", spec))?;
    serde_json::from_slice(&bytes).map_err(|e| Error::Usage(format!("{} is no node: {e}", spec.display())))
}

/// Moves this process into the node's cgroups, then becomes `unshare`, which runs [`init`] in new namespaces. The
/// cgroup namespace begins where the process is when it is made, so the order matters.
pub fn enter(spec: &Path) -> Result<Infallible> {
    let node = read(spec)?;
    node.cgroups.enter(&node.name)?;
    let program = std::env::current_exe().map_err(Error::io("finding", "the current executable"))?;
    let error = Command::new("unshare")
        .args(["--mount", "--net", "--uts", "--ipc", "--cgroup", "--pid", "--fork", "--kill-child", "--"])
        .arg(program)
        .arg("node-init")
        .arg(spec)
        .exec();
    Err(Error::io("starting (is util-linux installed?)", "unshare")(error))
}

/// Builds the node's file systems, waits for its network, and becomes systemd.
pub fn init(spec: &Path) -> Result<Infallible> {
    let node = read(spec)?;
    let done = |what: &'static str| Error::io(what, &node.dir);
    rustix::system::sethostname(node.name.as_bytes())
        .map_err(io::Error::from)
        .map_err(done("naming node"))?;
    // `/proc` is still the cluster's, but its `sys/net` shows the network of whoever looks.
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").map_err(done("turning on forwarding for node"))?;
    let root = node.dir.join("rootfs");
    file_systems(&node, &root).map_err(done("mounting the file systems of node"))?;
    cgroup_mounts(&node.cgroups, &root.join("sys/fs/cgroup"))
        .map_err(done("mounting the cgroups of node"))?;
    devices(&root.join("dev")).map_err(done("mounting the devices of node"))?;
    sysctls(&root).map_err(done("hiding the machine's sysctls from node"))?;
    await_network()?;
    pivot(&root).map_err(done("changing the root of node"))?;
    let error = Command::new("/usr/lib/systemd/systemd")
        .arg("--show-status=0")
        .env_clear()
        .env("container", "docker")
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LANG", "C.UTF-8")
        .exec();
    Err(Error::io("starting", "systemd")(error))
}

fn file_systems(node: &Spec, root: &Path) -> io::Result<()> {
    fs::create_dir_all(root)?;
    tmpfs(root, "mode=755,size=64m")?;
    for dir in ["usr", "etc", "var", "root", "run", "tmp", "proc", "sys", "dev", "mnt", "home", "srv"] {
        fs::create_dir(root.join(dir))?;
    }
    for dir in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{dir}"), root.join(dir))?;
    }
    let (upper, work) = (node.dir.join("usr-upper"), node.dir.join("usr-work"));
    for dir in [&upper, &work] {
        fs::create_dir_all(dir)?;
    }
    let lower: Vec<_> = node.usr.iter().map(|dir| dir.display().to_string()).collect();
    let options =
        format!("lowerdir={}:/usr,upperdir={},workdir={}", lower.join(":"), upper.display(), work.display());
    with_options("overlay", &root.join("usr"), "overlay", MountFlags::empty(), &options)?;
    for dir in ["etc", "var"] {
        mount_bind(node.dir.join(dir), root.join(dir))?;
    }
    for (from, to) in &node.shown {
        let to = root.join(to.trim_start_matches('/'));
        fs::create_dir_all(&to)?;
        mount_bind(from, &to)?;
        mount_remount(&to, MountFlags::BIND | MountFlags::RDONLY, "")?;
    }
    tmpfs(&root.join("run"), "mode=755,size=256m")?;
    tmpfs(&root.join("tmp"), "mode=1777,size=256m")?;
    with_options("proc", &root.join("proc"), "proc", MountFlags::empty(), "")?;
    with_options("sysfs", &root.join("sys"), "sysfs", MountFlags::empty(), "")
}

fn cgroup_mounts(cgroups: &Cgroups, at: &Path) -> io::Result<()> {
    tmpfs(at, "mode=755")?;
    // systemd mounts the unified one by itself.
    for hierarchy in cgroups.hierarchies.iter().filter(|h| !h.is_unified()) {
        let to = at.join(hierarchy.folder());
        fs::create_dir(&to)?;
        let named = hierarchy.controllers.starts_with("name=");
        let options =
            if named { format!("none,{}", hierarchy.controllers) } else { hierarchy.controllers.clone() };
        with_options("cgroup", &to, "cgroup", MountFlags::empty(), &options)?;
    }
    Ok(())
}

fn devices(at: &Path) -> io::Result<()> {
    tmpfs(at, "mode=755,size=1m")?;
    for device in DEVICES {
        let (from, to) = (Path::new("/dev").join(device), at.join(device));
        if from.exists() {
            fs::write(&to, "")?;
            mount_bind(&from, &to)?;
        }
    }
    for dir in ["pts", "shm", "mqueue"] {
        fs::create_dir(at.join(dir))?;
    }
    let terminals = "newinstance,ptmxmode=0666,mode=620,gid=5";
    with_options("devpts", &at.join("pts"), "devpts", MountFlags::empty(), terminals)?;
    symlink("pts/ptmx", at.join("ptmx"))?;
    tmpfs(&at.join("shm"), "mode=1777")?;
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(format!("/proc/self/{target}"), at.join(name))?;
    }
    Ok(())
}

/// `/proc/sys` is read-only but for the network, which is the node's own; what a kubelet insists on is shown to it.
fn sysctls(root: &Path) -> io::Result<()> {
    let sys = root.join("proc/sys");
    mount_bind(&sys, &sys)?;
    mount_bind(sys.join("net"), sys.join("net"))?;
    mount_remount(&sys, MountFlags::BIND | MountFlags::RDONLY, "")?;
    let files = root.join("run/sysctl");
    fs::create_dir(&files)?;
    // Without a boot id of its own, a node that comes back would not count as started anew.
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    for (name, value) in SYSCTLS.into_iter().chain([("kernel/random/boot_id", boot_id.trim())]) {
        let file = files.join(name.replace('/', "_"));
        fs::write(&file, format!("{value}\n"))?;
        if sys.join(name).exists() {
            mount_bind(&file, sys.join(name))?;
        }
    }
    Ok(())
}

/// A kubelet that starts before its node has an address fails and tries again only after a while.
fn await_network() -> Result<()> {
    let started = Instant::now();
    loop {
        let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
        if routes.lines().any(|line| line.split_whitespace().nth(1) == Some("00000000")) {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(30) {
            return Err(Error::Usage(
                "the node got no default route within 30 s; see the cluster's log".to_owned(),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pivot(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    fs::create_dir(".old")?;
    rustix::process::pivot_root(".", ".old")?;
    std::env::set_current_dir("/")?;
    mount_change("/.old", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    unmount("/.old", UnmountFlags::DETACH)?;
    fs::remove_dir("/.old")?;
    // Volumes that a kubelet mounts have to be seen in containers.
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)?;
    Ok(())
}

fn tmpfs(at: &Path, options: &str) -> io::Result<()> {
    with_options("tmpfs", at, "tmpfs", MountFlags::empty(), options)
}

fn with_options(source: &str, at: &Path, kind: &str, flags: MountFlags, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    mount(source, at, kind, flags, options.as_c_str())
        .map_err(|error| io::Error::other(format!("{kind} at {}: {}", at.display(), io::Error::from(error))))
}
