//! Transcripts: what a person types in a folder, and what they are told.
//!
//! A folder holds input files and a file `transcript`. A line of it that begins with `$` is run in the folder; what
//! follows is what the program prints, and its exit code where that is not 0.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use evenkeel_devcluster::{Failure, TestResult};

use crate::golden;

/// `program` in `folder`, far from any cluster and terminal.
///
/// # Errors
/// When it cannot be started.
pub fn run(program: &Path, folder: &Path, args: &[&str], input: Stdio) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdin(input).env_clear().env("HOME", "/nonexistent");
    command.output()
}

/// The folders in `folder`, in order.
///
/// # Errors
/// When it cannot be read.
pub fn folders(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        folders.push(entry?.path());
    }
    folders.retain(|path| path.is_dir());
    folders.sort();
    Ok(folders)
}

/// Holds the transcript of every folder in `folder` against what `program` says now, or writes it anew
/// ([`golden::compare`]).
///
/// # Errors
/// The first that is not what happens.
pub fn compare_all(program: &Path, folder: &Path) -> TestResult {
    for folder in folders(folder)? {
        let path = folder.join("transcript");
        let expected = fs::read_to_string(&path)?;
        let mut blocks = Vec::new();
        for command in expected.lines().filter_map(|line| line.strip_prefix("$ ")) {
            blocks.push(format!("$ {command}\n{}", told(program, &folder, command)?));
        }
        golden::compare(&path, &blocks.join("\n"))?;
    }
    Ok(())
}

/// What `[cat FILE |] evenkeel ARGS` prints, and its exit code.
fn told(program: &Path, folder: &Path, command: &str) -> Result<String, Failure> {
    let unreadable = || Failure::new(format!("a transcript has no command `{command}`"));
    let (input, command) = match command.strip_prefix("cat ") {
        Some(piped) => {
            let (file, command) = piped.split_once(" | ").ok_or_else(unreadable)?;
            (Stdio::from(File::open(folder.join(file))?), command)
        }
        None => (Stdio::null(), command),
    };
    let args: Vec<&str> = command.strip_prefix("evenkeel ").ok_or_else(unreadable)?.split(' ').collect();
    let output = run(program, folder, &args, input)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).map_err(|error| Failure::new(error.to_string()))?;
    Ok(match output.status.code() {
        Some(0) => said,
        Some(code) => format!("{said}exit code {code}\n"),
        None => format!("{said}killed\n"),
    })
}
