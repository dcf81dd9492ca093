//! Clusters that outlive the command that started them: `up`, `shell`, `status`, `down`.
//!
//! Belongs here: what is known on disk about a running cluster, and finding its processes. Never here: the
//! cluster itself, or what is asked of it while it runs (see `control`). Invariants: what runs is on record
//! from the moment it is started, so `down` always finds it; a record whose process is gone counts as nothing.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::namespace;
use crate::proc::{self, Stat};
use crate::real::cgroups::Cgroups;
use crate::wait::tail;

/// Set in the background process: the folder of the records, as the command that started it knows it.
const RECORDS: &str = "EVENKEEL_DEVCLUSTER_RECORDS";

/// Runs its further arguments on a real node; the first two say where its process is written down, and its name.
const NODE_SHELL: &str = r#"test -r "$0" || { echo "there is no real node $1 in this cluster" >&2; exit 1; }
pid="$(cat "$0")"; shift
exec nsenter --target "$pid" --mount --net --uts --ipc --pid --cgroup -- env -i TERM="$TERM" HOME=/root LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@""#;

/// The record of cgroups.
const CGROUPS: &str = "cgroups.json";

/// A cluster that was started in the background, by its name.
pub struct Session {
    name: String,
    dir: PathBuf,
}

/// What `down` and `shell` need to know.
#[derive(Serialize, Deserialize)]
struct Record {
    /// The process outside the namespace.
    outer: Identity,
    /// Process 1 of the namespace, by its number outside.
    inner: Identity,
}

/// A process, told from a later one with the same number by its start time.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq)]
struct Identity {
    pid: u32,
    started: u64,
}

/// What a cluster that is ready says about itself.
#[derive(Serialize, Deserialize)]
pub struct Ready {
    /// The admin's kubeconfig, inside the namespace.
    pub kubeconfig: PathBuf,
    /// The folder of the matching kubectl.
    pub kubectl_dir: PathBuf,
    /// What it consists of, for people.
    pub summary: String,
    /// How long the start took.
    pub seconds: f64,
}

impl Session {
    /// The session called `name`; nothing happens yet.
    pub fn named(name: &str) -> Result<Self> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if name.is_empty() || name.len() > 40 || !name.bytes().all(plain) {
            return Err(Error::Usage(format!(
                "{name:?} is no name for a cluster: use up to 40 letters, digits, `-` and `_`"
            )));
        }
        Ok(Self { name: name.to_owned(), dir: base_dir().join(name) })
    }

    /// The names of all clusters on record.
    pub fn all() -> Vec<String> {
        let entries = fs::read_dir(base_dir()).into_iter().flatten();
        let mut names: Vec<_> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The socket through which a running cluster takes orders.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Starts this program again in the background with `args`, in namespaces of its own, and waits until that
    /// has called [`Self::announce`].
    pub fn up(&self, args: &[OsString]) -> Result<Ready> {
        self.start(namespace::detached(args)?, 1, Duration::from_mins(3))
    }

    /// As [`Self::up`], for real nodes: a process outside keeps the namespaces, and what happens is told on stdout.
    pub fn up_kept(&self, args: &[OsString]) -> Result<Ready> {
        let program = std::env::current_exe().map_err(Error::io("finding", "the current executable"))?;
        let mut command = Command::new("setsid");
        command.arg(program).args(["keep", "--name", &self.name, "--"]).args(args);
        self.start(command, 2, Duration::from_mins(15))
    }

    /// Starts `command`, whose descendant of generation `depth` is process 1 of the namespaces.
    fn start(&self, mut command: Command, depth: usize, limit: Duration) -> Result<Ready> {
        if self.is_running() {
            return Err(Error::Usage(format!(
                "cluster {0} is already up; `devcluster down --name {0}` ends it",
                self.name
            )));
        }
        // What one left that was killed.
        self.down()?;
        fs::create_dir_all(&self.dir).map_err(Error::io("creating", &self.dir))?;
        let log_path = self.dir.join("log");
        let log = File::create(&log_path).map_err(Error::io("creating", &log_path))?;
        let mut child = command
            // Inside, a user may be another one, with other folders.
            .env(RECORDS, base_dir())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(Error::io("opening", &log_path))?)
            .stderr(log)
            .spawn()
            .map_err(Error::io("starting (is util-linux installed?)", "setsid"))?;
        let started = Instant::now();
        let mut recorded = false;
        let mut told = 0;
        loop {
            if depth > 1 {
                told = tell(&log_path, told);
            }
            if let Ok(Some(status)) = child.try_wait() {
                let tail = tail(&log_path, 12);
                self.down()?;
                return Err(Error::Component {
                    name: format!("cluster {}", self.name),
                    what: format!("ended ({status}) before it was ready"),
                    tail,
                });
            }
            if !recorded {
                recorded = self.record(child.id(), depth)?;
            }
            if let Some(ready) = self.ready() {
                return Ok(ready);
            }
            if started.elapsed() > limit {
                let tail = tail(&log_path, 12);
                self.down()?;
                return Err(Error::Component {
                    name: format!("cluster {}", self.name),
                    what: format!("was not ready after {} minutes and was ended", limit.as_secs() / 60),
                    tail,
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Called inside, by the program that `up` started, when its cluster is ready.
    pub fn announce(&self, ready: &Ready) -> Result<()> {
        self.write("ready.json", ready)
    }

    /// What the running cluster said about itself; nothing if it does not run.
    pub fn status(&self) -> Option<Ready> {
        if self.is_running() { self.ready() } else { None }
    }

    /// Writes down which cgroups have to be removed when the cluster is dead.
    pub(crate) fn note_cgroups(&self, cgroups: &Cgroups) -> Result<()> {
        self.write(CGROUPS, cgroups)
    }

    /// Is there a process on record, and does it still run?
    pub fn is_running(&self) -> bool {
        self.read::<Record>("processes.json").is_some_and(|r| r.inner.is_alive() || r.outer.is_alive())
    }

    /// Replaces this process by a command inside the cluster's namespaces, or on one of its real nodes; without one, by
    /// a shell.
    pub fn shell(&self, node: Option<&str>, command: &[OsString]) -> Result<std::convert::Infallible> {
        let not_up = || {
            Error::Usage(format!("no cluster {0} is up; start it with `devcluster up --name {0}`", self.name))
        };
        let record =
            self.read::<Record>("processes.json").filter(|r| r.inner.is_alive()).ok_or_else(not_up)?;
        let ready = self.ready().ok_or_else(not_up)?;
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &record.inner.pid.to_string(), "--net", "--pid", "--mount"]);
        if namespace::is_rootless() {
            nsenter.args(["--user", "--preserve-credentials"]);
        }
        // Entering a mount namespace changes the working directory; go back to where the person is.
        nsenter.args(["--", "sh", "-c", r#"cd "$0" && exec "$@""#]);
        nsenter.arg(std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")));
        if let Some(node) = node {
            let pid = ready.kubeconfig.with_file_name("nodes").join(node).join("pid");
            // The number is the cluster's, so it is read there.
            nsenter.args(["sh", "-c", NODE_SHELL]).arg(pid).arg(node);
        }
        if command.is_empty() && node.is_some() {
            nsenter.arg("bash");
        } else if command.is_empty() {
            nsenter.arg(std::env::var_os("SHELL").unwrap_or_else(|| "sh".into()));
        } else {
            nsenter.args(command);
        }
        let mut path = ready.kubectl_dir.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        nsenter.env("PATH", path);
        // kubectl keeps what it learned about an API; that must not meet another cluster's.
        nsenter.env("KUBECACHEDIR", ready.kubeconfig.with_file_name("kubectl-cache"));
        nsenter.env("KUBECONFIG", ready.kubeconfig);
        let error = nsenter.exec();
        Err(Error::io("starting (is util-linux installed?)", "nsenter")(error))
    }

    /// Ends the cluster and forgets it; says whether there was one.
    pub fn down(&self) -> Result<bool> {
        let record = self.read::<Record>("processes.json");
        let running = record.as_ref().is_some_and(|r| r.inner.is_alive() || r.outer.is_alive());
        if let Some(record) = record {
            // With process 1 of the namespace the kernel kills every other one in it. The outer process ends by
            // itself when all of them are dead, and not before, so it is what is waited for.
            record.inner.kill();
            let started = Instant::now();
            while record.inner.is_alive() || record.outer.is_alive() {
                if started.elapsed() > Duration::from_secs(10) {
                    return Err(Error::Usage(format!(
                        "process {} of cluster {} does not die; look at it with `ps`",
                        record.inner.pid, self.name
                    )));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // Whoever keeps a cluster of real nodes has removed them, unless it was killed.
        if let Some(cgroups) = self.read::<Cgroups>(CGROUPS) {
            cgroups.remove()?;
        }
        self.forget()?;
        Ok(running)
    }

    /// Writes down the processes as soon as both are known; says whether they are.
    fn record(&self, outer: u32, depth: usize) -> Result<bool> {
        let child = (0..depth).try_fold(outer, |parent, _| proc::children(parent).first().copied());
        let (Some(inner), Some(outer)) = (child.and_then(Identity::of), Identity::of(outer)) else {
            return Ok(false);
        };
        self.write("processes.json", &Record { outer, inner })?;
        Ok(true)
    }

    fn ready(&self) -> Option<Ready> {
        self.read("ready.json")
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.dir.join(name)).ok()?).ok()
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        let path = self.dir.join(name);
        let unfinished = self.dir.join(format!("{name}.unfinished"));
        let text = serde_json::to_vec(value).unwrap_or_default();
        fs::write(&unfinished, text).map_err(Error::io("writing", &unfinished))?;
        // A reader sees all of it or nothing.
        fs::rename(&unfinished, &path).map_err(Error::io("renaming", &unfinished))
    }

    /// Removes every file of this session, and the folder of all sessions if this was the last.
    fn forget(&self) -> Result<()> {
        match fs::remove_dir_all(&self.dir) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("removing", &self.dir)(e)),
        }
        // Refused as long as another cluster is on record, which is right.
        let _last = fs::remove_dir(base_dir());
        Ok(())
    }
}

impl Identity {
    fn of(pid: u32) -> Option<Self> {
        Stat::read(pid).filter(|stat| stat.state != "Z").map(|stat| Self { pid, started: stat.started })
    }

    fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    fn kill(self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_alive()) {
            // It may have died this instant; then that is what was wanted.
            let _killed = kill_process(pid, Signal::KILL);
        }
    }
}

/// Prints the whole lines of a log from byte `told` on; returns how far it got.
fn tell(log: &Path, told: usize) -> usize {
    let bytes = fs::read(log).unwrap_or_default();
    let new = bytes.get(told..).unwrap_or_default();
    let whole = new.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    print!("{}", String::from_utf8_lossy(new.get(..whole).unwrap_or_default()));
    told + whole
}

/// Where the records are: gone after a reboot, as the clusters are.
fn base_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os(RECORDS) {
        return PathBuf::from(dir);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_dir());
    if let Some(dir) = runtime {
        return PathBuf::from(dir).join("evenkeel-devcluster");
    }
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("evenkeel-devcluster-{user}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let own = Identity::of(std::process::id()).unwrap();
        assert!(own.is_alive());
        assert!(!Identity { started: own.started + 1, ..own }.is_alive());
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        for name in ["", "..", "a/b", "a b", &"x".repeat(41)] {
            assert!(Session::named(name).is_err(), "{name:?}");
        }
        assert!(Session::named("demo-1").is_ok());
    }
}
