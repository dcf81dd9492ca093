//! Programs and libraries from Debian packages, unpacked into the cache and never installed.
//!
//! Belongs here: which packages real nodes need that a machine may lack, fetching and unpacking them. Never here: what
//! a node does with them. Invariants: nothing outside the cache is written, no package's script is run, and a folder
//! under its final name is complete.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::digest::digest;
use crate::error::{Error, Result};

/// What containers, service proxies and the kubelet call on a node.
const ON_NODES: [&str; 15] = [
    "busybox-static",
    "conntrack",
    "ethtool",
    "iptables",
    "kmod",
    "libip4tc2",
    "libip6tc2",
    "libjansson4",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftables1",
    "libnftnl11",
    "libxtables12",
    "nftables",
];

/// What runc is compiled with.
const FOR_BUILDING: [&str; 1] = ["libseccomp-dev"];

/// Where unpacked packages are.
#[derive(Debug, Clone)]
pub(crate) struct Packages(PathBuf);

impl Packages {
    /// The packages of this machine's Debian release, in `cache`, unpacked or not.
    pub(crate) fn of(cache: &Path) -> Self {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let value = |key: &str| release.lines().find_map(|l| l.strip_prefix(key)).unwrap_or("unknown");
        let (id, version) = (value("ID="), value("VERSION_ID=").trim_matches('"'));
        let names = [ON_NODES.join(" "), FOR_BUILDING.join(" ")];
        let digest = digest(&[&names[0], &names[1]], 6);
        Self(cache.join(format!("packages-{id}-{version}-{digest}")))
    }

    /// The `/usr` that is added to a node's.
    pub(crate) fn usr(&self) -> PathBuf {
        self.0.join("nodes/usr")
    }

    /// The root of the libraries that programs are compiled with.
    pub(crate) fn development(&self) -> PathBuf {
        self.0.join("building")
    }

    pub(crate) fn are_there(&self) -> bool {
        self.0.is_dir()
    }

    /// Fetches and unpacks them.
    pub(crate) fn unpack(&self) -> Result<()> {
        let unfinished = self.0.with_extension("unfinished");
        // What an interrupted attempt left is of no use.
        let _gone = fs::remove_dir_all(&unfinished);
        for (folder, names) in [("nodes", &ON_NODES[..]), ("building", &FOR_BUILDING[..])] {
            let (archives, root) = (unfinished.join("archives").join(folder), unfinished.join(folder));
            for dir in [&archives, &root] {
                fs::create_dir_all(dir).map_err(Error::io("creating", dir))?;
            }
            let mut download = Command::new("apt-get");
            download.args(["-o", "APT::Sandbox::User=root", "download"]).args(names).current_dir(&archives);
            run(
                &mut download,
                "`apt-get update` may be needed first; real nodes are made on Debian and its kin",
            )?;
            for entry in fs::read_dir(&archives).map_err(Error::io("reading", &archives))?.flatten() {
                run(
                    Command::new("dpkg").arg("-x").arg(entry.path()).arg(&root),
                    "look at the package named",
                )?;
            }
        }
        let root = unfinished.join("nodes");
        merge_usr(&root)?;
        for family in ["iptables", "ip6tables"] {
            for suffix in ["", "-save", "-restore"] {
                let link = root.join("usr/sbin").join(format!("{family}{suffix}"));
                // A package may bring some of them.
                let _absent = fs::remove_file(&link);
                symlink("xtables-nft-multi", &link).map_err(Error::io("linking", &link))?;
            }
        }
        fs::remove_dir_all(unfinished.join("archives"))
            .map_err(Error::io("removing archives of", &unfinished))?;
        fs::rename(&unfinished, &self.0).map_err(Error::io("renaming", &unfinished))
    }
}

/// Moves `/bin`, `/sbin` and `/lib` of old packages to where a merged `/usr` has them.
fn merge_usr(root: &Path) -> Result<()> {
    for dir in ["bin", "sbin", "lib"] {
        let (from, to) = (root.join(dir), root.join("usr").join(dir));
        if !from.is_dir() {
            continue;
        }
        fs::create_dir_all(&to).map_err(Error::io("creating", &to))?;
        run(Command::new("cp").arg("-a").arg(from.join(".")).arg(&to), "is there space left on the device?")?;
        fs::remove_dir_all(&from).map_err(Error::io("removing", &from))?;
    }
    Ok(())
}

/// Runs a tool of the machine to its end; what it says is kept for the error.
pub(crate) fn run(command: &mut Command, hint: &str) -> Result<()> {
    let failed = |reason: String, command: &Command| Error::Tool {
        command: format!("{} {}", command.get_program().display(), words(command)),
        reason,
        hint: hint.to_owned(),
    };
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return Err(failed(error.to_string(), command)),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
    Err(failed(format!("{last} ({})", output.status), command))
}

fn words(command: &Command) -> String {
    let words: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    words.join(" ")
}
