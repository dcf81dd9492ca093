//! What `evenkeel plan` says of made-up clusters that look like real ones, as a person would see it.
//!
//! Each folder of `clusters/` holds input files and a `transcript`: lines that begin with `$` are run in that folder, and
//! what follows is what they print and the exit code. `UPDATE_EXPECT=1 cargo test --test plan` rewrites what follows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use evenkeel_devcluster::TestResult;
use evenkeel_testkit::transcript;

fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

/// The program in `folder`, far from any cluster and terminal.
fn evenkeel(folder: &Path, args: &[&str], input: Stdio) -> Output {
    transcript::run(&binary(), folder, args, input).unwrap()
}

fn clusters() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan/clusters")
}

#[test]
fn every_transcript_is_what_happens() -> TestResult {
    transcript::compare_all(&binary(), &clusters())
}

/// A document that this release wrote has no difference from itself, in JSON and in YAML.
#[test]
fn nothing_changes_between_a_plan_and_itself() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["kubeadm", "far-behind", "left-alone", "unknown"] {
        let cluster = clusters().join(name);
        for form in ["json", "yaml"] {
            let plan = ["plan", "--to", "v1.37.1", "-f", "cluster.yaml", "-o", form];
            let written = evenkeel(&cluster, &plan, Stdio::null());
            let old = folder.path().join(format!("{name}.{form}"));
            fs::write(&old, &written.stdout).unwrap();
            let again = [&plan[..6], &["json", "--diff", old.to_str().unwrap()]].concat();
            let again = evenkeel(&cluster, &again, Stdio::null());
            assert_eq!(again.status.code(), written.status.code());
            let found: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
            assert_eq!(found["changes"], serde_json::json!([]), "{name} {form}");
        }
    }
}

/// A later release may write more than this one knows, and an earlier one wrote less.
#[test]
fn an_older_document_may_have_other_fields() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old.json");
    let text = r#"{"apiVersion": "cli.evenkeel.dev/v1beta3", "kind": "UpgradePlan", "to": "v1.37.1", "moon": {"phase": 3},
        "hops": [{"version": "v1.37.1", "steps": [{"place": "cp-1", "dance": true}]}]}"#;
    fs::write(&old, text).unwrap();
    let cluster = clusters().join("single");
    let args = ["plan", "--to", "v1.37.1", "-f", "cluster.yaml", "--diff", old.to_str().unwrap()];
    let output = evenkeel(&cluster, &args, Stdio::null());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Standard input is read twice, by way of a file that nobody finds afterwards.
#[test]
fn a_pipe_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = clusters().join("single");
    let input = Stdio::from(fs::File::open(cluster.join("cluster.yaml")).unwrap());
    let mut command = Command::new(binary());
    command.args(["plan", "--to", "v1.37.1", "-f", "-"]).env("TMPDIR", folder.path()).stdin(input);
    assert!(command.output().unwrap().status.success());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
