//! One child process: started with a log file, signalled, and never left behind.
//!
//! Belongs here: starting, stopping, killing, pausing. Never here: what the process is or when it counts as
//! ready. Invariant: dropping a `Process` kills it and waits until the kernel has let go of it, so its port and
//! its files are free again.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};
use crate::wait::tail;

/// What to start.
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// A host name of its own, which needs a UTS namespace of its own.
    pub(crate) hostname: Option<String>,
    pub(crate) log: PathBuf,
}

/// A running child.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a process; its output is appended to its log.
    pub(crate) fn start(invocation: &Invocation) -> Result<Self> {
        let Invocation { program, args, hostname, log } = invocation;
        let log_file =
            OpenOptions::new().create(true).append(true).open(log).map_err(Error::io("opening", log))?;
        let mut command = match hostname {
            None => Command::new(program),
            Some(hostname) => {
                // Both unshare and the shell replace themselves, so the child's PID is the component's.
                let mut command = Command::new("unshare");
                command.args(["--uts", "sh", "-c", r#"hostname "$0" && exec "$@""#, hostname]).arg(program);
                command
            }
        };
        let child = command
            .args(args)
            .stdin(Stdio::null())
            .stdout(log_file.try_clone().map_err(Error::io("opening", log))?)
            .stderr(log_file)
            .spawn()
            .map_err(Error::io("starting", program))?;
        Ok(Self { child, log: log.clone() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log, 12)
    }

    /// SIGSTOP: the process keeps its connections and answers nothing.
    pub(crate) fn pause(&mut self) -> Result<()> {
        self.signal(Signal::STOP, "pausing")
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self) -> Result<()> {
        self.signal(Signal::CONT, "resuming")
    }

    /// SIGTERM, and SIGKILL if that does not help within `grace`.
    pub(crate) async fn stop(mut self, grace: Duration) -> Result<()> {
        self.signal(Signal::TERM, "stopping")?;
        // A paused process would not see SIGTERM.
        self.signal(Signal::CONT, "stopping")?;
        let started = Instant::now();
        while self.ended().is_none() && started.elapsed() < grace {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Dropping kills what is still there.
        Ok(())
    }

    fn signal(&mut self, signal: Signal, doing: &'static str) -> Result<()> {
        if self.ended().is_some() {
            return Ok(());
        }
        let id = self.child.id();
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(()) };
        // The child has not been waited for, so the PID is still its own.
        kill_process(pid, signal).map_err(|e| Error::io(doing, format!("process {id}"))(e.into()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Collects `--name=value` arguments.
#[derive(Default)]
pub(crate) struct Flags(Vec<OsString>);

impl Flags {
    pub(crate) fn set(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(value);
        self.0.push(flag);
        self
    }

    pub(crate) fn path(self, name: &str, value: impl AsRef<Path>) -> Self {
        self.set(name, value.as_ref())
    }

    pub(crate) fn extend<'a>(mut self, raw: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.extend(raw.into_iter().map(OsString::from));
        self
    }

    pub(crate) fn into_args(self) -> Vec<OsString> {
        self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    fn sleeper(dir: &Path, script: &str) -> Process {
        let args = vec!["-c".into(), script.into()];
        let log = dir.join("log");
        Process::start(&Invocation { program: "sh".into(), args, hostname: None, log }).unwrap()
    }

    #[tokio::test]
    async fn a_process_that_ignores_sigterm_is_killed_after_its_grace() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(dir.path(), "trap '' TERM; echo up; while :; do sleep 0.1; done");
        while !process.log_tail().contains("up") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let id = process.id();
        process.stop(Duration::from_millis(200)).await.unwrap();
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }

    #[tokio::test]
    async fn a_paused_process_can_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = sleeper(dir.path(), "sleep 60");
        process.pause().unwrap();
        let started = Instant::now();
        process.stop(Duration::from_secs(10)).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn output_is_kept_for_the_error_message() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = sleeper(dir.path(), "echo one; echo two >&2; exit 3");
        while process.ended().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(process.ended().unwrap().code(), Some(3));
        assert_eq!(process.log_tail(), "one\ntwo");
    }
}
