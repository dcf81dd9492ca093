//! What `evenkeel report` and `evenkeel check` say about files, as a person would see it.
//!
//! Each folder of `cases/` holds input files and a `transcript`: lines that begin with `$` are run in that folder, and
//! what follows is what they print and the exit code. `UPDATE_EXPECT=1 cargo test --test report_files` rewrites what follows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod generated;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program that is tested.
fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

/// The binary in `folder`, far from any cluster and terminal.
fn evenkeel(folder: &Path, args: &[&str], input: Stdio) -> Output {
    Command::new(binary())
        .args(args)
        .current_dir(folder)
        .stdin(input)
        .env_clear()
        .env("HOME", "/nonexistent")
        .output()
        .unwrap()
}

/// Runs `$ [cat FILE |] evenkeel ARGS`.
fn run(folder: &Path, command: &str) -> String {
    let (input, command) = match command.strip_prefix("cat ") {
        Some(piped) => {
            let (file, command) = piped.split_once(" | ").unwrap();
            (Stdio::from(fs::File::open(folder.join(file)).unwrap()), command)
        }
        None => (Stdio::null(), command),
    };
    let args: Vec<_> = command.strip_prefix("evenkeel ").unwrap().split(' ').collect();
    let output = evenkeel(folder, &args, input);
    let mut said = String::from_utf8(output.stdout).unwrap();
    said.push_str(&String::from_utf8(output.stderr).unwrap());
    match output.status.code().unwrap() {
        0 => said,
        code => format!("{said}exit code {code}\n"),
    }
}

#[test]
fn every_transcript_is_what_happens() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report_files/cases");
    let mut folders: Vec<PathBuf> = fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders {
        let path = folder.join("transcript");
        let expected = fs::read_to_string(&path).unwrap();
        let commands = expected.lines().filter_map(|line| line.strip_prefix("$ "));
        let blocks: Vec<_> =
            commands.map(|command| format!("$ {command}\n{}", run(&folder, command))).collect();
        let found = blocks.join("\n");
        if evenkeel_testkit::golden::is_written_anew() {
            fs::write(&path, found).unwrap();
        } else {
            assert!(found == expected, "{} is not what happens now:\n{found}", path.display());
        }
    }
}

#[test]
fn there_is_a_completion_for_each_shell_and_a_manual() {
    let folder = std::env::temp_dir();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = evenkeel(&folder, &["completion", shell], Stdio::null());
        assert!(
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains("fail-on"),
            "{shell}"
        );
    }
    let output = evenkeel(&folder, &["man"], Stdio::null());
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains(".TH evenkeel"));
}
