//! A background cluster of one test, driven through the program `devcluster` as a person drives it.
//!
//! Belongs here: running its commands, and ending the cluster whatever happens. Never here: what a test asks of the
//! cluster. Invariant: a test that failed leaves no cluster behind, and one that was interrupted no cluster of real nodes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::error::Failure;
use crate::real::OWNER;

/// A cluster with a name of its own and records that nobody else sees.
pub struct Lab {
    program: PathBuf,
    name: String,
    records: TempDir,
}

impl Lab {
    /// One that is not up yet. `program` is `devcluster`; `name` begins the name of the cluster.
    pub fn new(program: impl Into<PathBuf>, name: &str) -> Result<Self, Failure> {
        let name = format!("{name}-{}", std::process::id());
        Ok(Self { program: program.into(), name, records: tempfile::tempdir()? })
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A folder that is gone with the test; the program keeps its records there.
    pub fn records(&self) -> &Path {
        self.records.path()
    }

    /// A subcommand of the program about this cluster, to be started.
    pub fn command<S: AsRef<OsStr>>(&self, subcommand: &str, args: &[S]) -> Command {
        let mut command = Command::new(&self.program);
        command.args([subcommand, "--name", &self.name]).args(args).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.records.path());
        command.env(OWNER, std::process::id().to_string());
        command
    }

    /// Runs a subcommand; its standard output, or what it said when it failed.
    pub fn run(&self, subcommand: &str, args: &[&str]) -> Result<String, Failure> {
        let output = self.command(subcommand, args).output()?;
        said(&output, &format!("devcluster {subcommand} {}", args.join(" ")))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A test that failed must not leave a cluster behind; one that passed has none.
        let _down = self.run("down", &[]);
    }
}

/// The standard output of a command that succeeded; of one that failed, an error with all that it said.
pub fn said(output: &Output, what: &str) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("`{what}` failed ({}): {} {text}", output.status, error.trim())))
}
