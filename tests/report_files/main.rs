//! What `evenkeel report`, `check` and `status` say about files, as a person would see it.
//!
//! Each folder of `cases/` holds input files and a `transcript`: lines that begin with `$` are run in that folder, and
//! what follows is what they print and the exit code. `UPDATE_EXPECT=1 cargo test --test report_files` rewrites what follows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod generated;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use evenkeel_devcluster::TestResult;
use evenkeel_testkit::transcript;

/// The program that is tested.
fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

/// The binary in `folder`, far from any cluster and terminal.
fn evenkeel(folder: &Path, args: &[&str], input: Stdio) -> Output {
    transcript::run(&binary(), folder, args, input).unwrap()
}

#[test]
fn every_transcript_is_what_happens() -> TestResult {
    transcript::compare_all(
        &binary(),
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report_files/cases"),
    )
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
