//! The cgroups of real nodes: one folder for each node in each hierarchy of the machine.
//!
//! Belongs here: finding hierarchies, making folders and removing them. Never here: what is limited in them, which is
//! the node's own affair. Invariants: every folder lies below the one of the process that started the cluster, so its
//! limits hold; cgroups do not vanish with a namespace, so what was made here is removed here.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The controllers that a kubelet does not start without.
const NEEDED: [&str; 5] = ["cpu", "cpuset", "memory", "pids", "devices"];

/// One tree of cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hierarchy {
    /// What it is mounted with: controllers, or a name; empty for the unified one.
    pub(crate) controllers: String,
    /// Where it is mounted.
    mount: PathBuf,
    /// The folder of the process that started the cluster.
    base: PathBuf,
}

/// The folders of one cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cgroups {
    pub(crate) hierarchies: Vec<Hierarchy>,
    /// The cluster's own folder in each.
    folder: String,
}

impl Cgroups {
    /// Those of the cluster called `name`, below this process's own. Nothing is made yet.
    pub(crate) fn of(name: &str) -> Result<Self> {
        let text = |path: &str| fs::read_to_string(path).map_err(Error::io("reading", path));
        let hierarchies = parse(&text("/proc/self/cgroup")?, &text("/proc/self/mountinfo")?);
        let found: Vec<_> = hierarchies.iter().flat_map(|h| h.controllers.split(',')).collect();
        let missing: Vec<_> = NEEDED.iter().copied().filter(|c| !found.contains(c)).collect();
        if !missing.is_empty() {
            return Err(Error::Usage(format!(
                "real nodes need cgroup v1 hierarchies, and this machine has none for {}; start it with \
                 `systemd.unified_cgroup_hierarchy=0` on the kernel's command line",
                missing.join(", ")
            )));
        }
        Ok(Self { hierarchies, folder: format!("evenkeel-devcluster-{name}") })
    }

    /// Can folders be made? Says which hierarchy refuses.
    pub(crate) fn check(&self) -> Result<()> {
        for hierarchy in &self.hierarchies {
            let probe = hierarchy.base.join(format!("{}-probe", self.folder));
            let made = fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe));
            if let Err(error) = made {
                return Err(Error::Usage(format!(
                    "real nodes need to make cgroups, and {} is not writable ({error}); mount it writable, or run \
                     where it is (a privileged container, for instance)",
                    hierarchy.base.display()
                )));
            }
        }
        Ok(())
    }

    /// Makes the folders of a node anew and moves this process into them.
    pub(crate) fn enter(&self, node: &str) -> Result<()> {
        for hierarchy in &self.hierarchies {
            // What a machine whose power failed had in them is gone: kubelet would look at each for seconds.
            remove(&hierarchy.base.join(&self.folder).join(node))?;
            let folders = [hierarchy.base.join(&self.folder), hierarchy.base.join(&self.folder).join(node)];
            let mut above = hierarchy.base.as_path();
            for folder in &folders {
                match fs::create_dir(folder) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                        return Err(Error::io("creating", folder)(error));
                    }
                    _ => {}
                }
                if hierarchy.controllers.split(',').any(|c| c == "cpuset") {
                    inherit(above, folder)?;
                }
                above = folder;
            }
            // Zero is the process that writes.
            write(&above.join("cgroup.procs"), "0")?;
        }
        Ok(())
    }

    /// Removes every folder of the cluster whose processes are dead.
    pub(crate) fn remove(&self) -> Result<()> {
        self.hierarchies.iter().try_for_each(|h| remove(&h.base.join(&self.folder)))
    }
}

/// A new folder has no CPUs and no memory until it is told which.
fn inherit(from: &Path, to: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let path = from.join(file);
        let value = fs::read_to_string(&path).map_err(Error::io("reading", &path))?;
        write(&to.join(file), &value)?;
    }
    write(&to.join("cgroup.clone_children"), "1")
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).map_err(Error::io("writing", path))
}

/// Removes a folder of cgroups and all below it; the kernel needs a moment to let go of dead processes.
fn remove(folder: &Path) -> Result<()> {
    let started = Instant::now();
    loop {
        match remove_once(folder) {
            Ok(()) => return Ok(()),
            Err(error) if started.elapsed() > Duration::from_secs(10) => {
                return Err(Error::io("removing cgroup", folder)(error));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn remove_once(folder: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_once(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// The hierarchies that a process is in, from its `/proc/self/cgroup`, and where they are mounted.
fn parse(cgroup: &str, mountinfo: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let first = controllers.split(',').next().unwrap_or_default();
        let mount = mountinfo.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let (kind, options) = (after.next()?, after.nth(1)?);
            let matches = match first {
                "" => kind == "cgroup2",
                first => kind == "cgroup" && options.split(',').any(|o| o == first),
            };
            matches.then(|| before.split(' ').nth(4)).flatten()
        });
        if let Some(mount) = mount {
            let path = path.trim_start_matches('/');
            // Joining nothing would end the path with a slash.
            let base = if path.is_empty() { PathBuf::from(mount) } else { Path::new(mount).join(path) };
            found.push(Hierarchy { controllers: controllers.to_owned(), mount: mount.into(), base });
        }
    }
    found
}

impl Hierarchy {
    /// The last part of the path that it is mounted at, which is the same on a node.
    pub(crate) fn folder(&self) -> &Path {
        self.mount.file_name().map_or(Path::new("unified"), Path::new)
    }

    pub(crate) fn is_unified(&self) -> bool {
        self.controllers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "30 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime shared:9 - cgroup cgroup rw,xattr,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn hierarchies_are_found_where_they_are_mounted() {
        let found = parse("9:name=systemd:/\n1:cpu,cpuacct:/a/b\n0::/c\n7:blkio:/\n", MOUNTS);
        let bases: Vec<_> = found.iter().map(|h| h.base.display().to_string()).collect();
        assert_eq!(
            bases,
            ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/cpu,cpuacct/a/b", "/sys/fs/cgroup/unified/c"]
        );
        assert!(found[2].is_unified());
        assert_eq!(found[1].folder(), Path::new("cpu,cpuacct"));
    }
}
