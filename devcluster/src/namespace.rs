//! Private namespaces: a network, process and mount namespace of one's own for every test or program.
//!
//! Belongs here: entering a namespace by running the current executable again inside it, and setting it up.
//! Never here: anything about Kubernetes. Invariant: whatever is started inside is dead as soon as the process
//! outside is, however that ended. The inner process is process 1 of its PID namespace, so the kernel kills
//! everything with it; and the kernel kills it with `unshare`, and `unshare` with the process that started it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};

use crate::error::{Error, Failure, Result, TestResult};
use crate::net;

/// Set in the process that runs inside the namespace.
const INSIDE: &str = "EVENKEEL_DEVCLUSTER_INSIDE";

/// A fresh, private memory file system: everything a cluster writes goes here and vanishes with the namespace,
/// even when nobody is left to remove a folder.
pub(crate) const SCRATCH: &str = "/dev/shm";

/// Is this process already in a namespace of its own?
pub(crate) fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs a test body in namespaces of its own.
///
/// `test` is the full name of the calling test as `cargo test -- --list` prints it. The outer process runs the
/// same test binary again inside the namespaces, with only this test, and repeats its output; the inner one
/// runs `body` on a multi-threaded runtime. Plain `cargo test` is all it needs, as root or as any user who may
/// create user namespaces.
pub fn in_namespace<F, Fut>(test: &str, body: F) -> TestResult
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = TestResult>,
{
    if inside() {
        set_up()?;
        return runtime()?.block_on(body());
    }
    let args = [test, "--exact", "--nocapture", "--include-ignored"].map(OsString::from);
    let (reader, writer) = std::io::pipe().map_err(Error::io("opening a pipe for", test))?;
    let mut command = unshared(&args)?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(Error::io("opening a pipe for", test))?)
        .stderr(writer);
    let mut child = command.spawn().map_err(Error::io("starting (is util-linux installed?)", "setpriv"))?;
    // The command holds the writing end of the pipe; while it lives, reading would never end.
    drop(command);
    let mut ran = false;
    for line in BufReader::new(reader).lines().map_while(std::io::Result::ok) {
        ran |= line == "running 1 test";
        // Through the test harness' own capture, so that a test that passes stays quiet.
        println!("{line}");
    }
    let status = child.wait().map_err(Error::io("waiting for", "the process in the namespace"))?;
    if !ran {
        return Err(Failure::from(Error::Namespace(format!(
            "nothing ran inside the namespace ({status}): either unshare was refused (see above; as a user, \
             unprivileged user namespaces must be allowed) or no test is called {test:?}"
        ))));
    }
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("{test} failed inside its namespace ({status})")))
    }
}

/// Runs `body` in namespaces of its own: for programs, such as a demonstration.
///
/// In the outer process this runs the same program with the same arguments again inside the namespaces and
/// returns its exit code; in the inner one it runs `body`.
pub fn enter<F, Fut>(body: F) -> Result<ExitCode>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ExitCode>,
{
    enter_with(set_up, body)
}

/// As [`enter`], with another preparation of the namespaces.
pub(crate) fn enter_with<F, Fut>(prepare: fn() -> Result<()>, body: F) -> Result<ExitCode>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ExitCode>,
{
    if inside() {
        prepare()?;
        return Ok(runtime()?.block_on(body()));
    }
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let status =
        unshared(&args)?.status().map_err(Error::io("starting (is util-linux installed?)", "setpriv"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The current executable with `args`, in new namespaces that end with this process.
pub(crate) fn unshared(args: &[OsString]) -> Result<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    again(command, args)
}

/// The current executable with `args`, in new namespaces that outlive this process and its terminal.
pub(crate) fn detached(args: &[OsString]) -> Result<Command> {
    again(Command::new("setsid"), args)
}

fn again(mut command: Command, args: &[OsString]) -> Result<Command> {
    let exe = std::env::current_exe().map_err(Error::io("finding", "the current executable"))?;
    command.args(["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if is_rootless() {
        command.arg("--map-root-user");
    }
    command.arg("--").arg(exe).args(args).env(INSIDE, "1");
    Ok(command)
}

/// Without root, the namespaces belong to a user namespace.
pub(crate) fn is_rootless() -> bool {
    !rustix::process::geteuid().is_root()
}

/// Prepares the namespaces this process is in: addresses on the loopback device, and scratch space in memory.
pub(crate) fn set_up() -> Result<()> {
    run("ip", &["link", "set", "lo", "up"])?;
    for address in net::all() {
        run("ip", &["addr", "add", &format!("{address}/32"), "dev", "lo"])?;
    }
    scratch()
}

/// The scratch space in memory.
pub(crate) fn scratch() -> Result<()> {
    run("mount", &["-t", "tmpfs", "-o", "mode=1777", "devcluster", SCRATCH])
}

pub(crate) fn run(program: &str, args: &[&str]) -> Result<()> {
    let failed = |reason: String| Error::Tool {
        command: format!("{program} {}", args.join(" ")),
        reason,
        hint: "iproute2 and util-linux must be installed, and namespaces be allowed for this user".to_owned(),
    };
    // On some distributions these live in sbin, which is not on every user's PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program)
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin"))
        .output()
        .map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Error::io("starting", "the async runtime"))
}
