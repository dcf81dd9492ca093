//! Can this machine run real nodes?
//!
//! Belongs here: every check before anything is built or started. Never here: doing anything. Invariant: what is
//! missing is named in one line, all of it at once, with what to do.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::real::cgroups::Cgroups;

/// The capabilities that are used: their names and numbers.
const CAPABILITIES: [(&str, u32); 4] =
    [("CAP_NET_ADMIN", 12), ("CAP_SYS_CHROOT", 18), ("CAP_SYS_ADMIN", 21), ("CAP_MKNOD", 27)];

/// The machine's own programs that are used, on it or inside a node.
const PROGRAMS: [&str; 12] = [
    "apt-get",
    "apt-mark",
    "dpkg",
    "dpkg-deb",
    "ip",
    "mount",
    "nsenter",
    "setpriv",
    "setsid",
    "systemctl",
    "unshare",
    "umount",
];

const SYSTEMD: &str = "/usr/lib/systemd/systemd";

/// Fails with one line that says what this machine lacks.
pub(crate) fn check(cgroups: &Cgroups) -> Result<()> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("root".to_owned());
    }
    missing.extend(missing_capabilities(&status).iter().map(|name| (*name).to_owned()));
    let dirs = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let absent = PROGRAMS.iter().filter(|name| !dirs.iter().any(|dir| Path::new(dir).join(name).exists()));
    missing.extend(absent.map(|name| (*name).to_owned()));
    if !Path::new(SYSTEMD).exists() {
        missing.push(SYSTEMD.to_owned());
    }
    if !missing.is_empty() {
        return Err(Error::Usage(format!(
            "this machine cannot run real nodes: missing {}; run as root with these capabilities, on a Debian with \
             iproute2, util-linux and systemd, or leave `--real` out for simulated nodes",
            missing.join(", ")
        )));
    }
    cgroups.check()
}

/// Fails where the memory that is free is not enough for nodes whose files are in memory too.
pub(crate) fn check_memory(control_planes: usize, workers: usize) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let needed = 2_200 * control_planes + 900 * workers;
    match available(&text) {
        Some(megabytes) if megabytes < needed => Err(Error::Usage(format!(
            "{control_planes} control-plane nodes and {workers} workers take about {needed} MB of memory, files \
             included, and {megabytes} MB are available; ask for fewer"
        ))),
        _ => Ok(()),
    }
}

/// Fails where the nodes' programs would not get the inotify instances that they watch files with. The machine has one
/// number of them for all processes of a user, and a kubelet that gets none restarts for ever.
pub(crate) fn check_inotify(control_planes: usize, workers: usize) -> Result<()> {
    let text = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap_or_default();
    let Ok(limit) = text.trim().parse::<usize>() else { return Ok(()) };
    // A worker's kubelet has 7, systemd 3, containerd 2, kube-proxy 1; an apiserver has 6, a controller manager 2 to 7.
    let (needed, used) = (26 * control_planes + 13 * workers, inotify_instances());
    if used + needed <= limit {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{control_planes} control-plane nodes and {workers} workers take about {needed} inotify instances, and {used} of \
         this machine's {limit} are in use; ask for fewer, or run `sysctl fs.inotify.max_user_instances=1024`"
    )))
}

/// How many there are, in all processes.
fn inotify_instances() -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let files =
        processes.flat_map(|process| fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten());
    files
        .filter(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:inotify"))
        .count()
}

/// Megabytes of `MemAvailable`.
fn available(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<usize>().ok()? / 1024)
}

/// The capabilities that a process with this `/proc/self/status` lacks.
fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0);
    CAPABILITIES.iter().filter(|(_, bit)| mask >> bit & 1 == 0).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_is_named() {
        assert!(missing_capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n").is_empty());
        // Docker's default set.
        let docker = missing_capabilities("CapEff:\t00000000a80425fb\n");
        assert_eq!(docker, ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
        assert_eq!(missing_capabilities("").len(), CAPABILITIES.len());
    }

    #[test]
    fn memory_is_read_in_megabytes() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2097152 kB\n"), Some(2048));
        assert_eq!(available(""), None);
    }
}
