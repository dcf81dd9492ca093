//! What would keep the nodes of a file from being drained, as people read it: kept in files.
//!
//! `UPDATE_EXPECT=1 cargo test --test preflight` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::path::Path;
use std::process::Command;

use evenkeel_devcluster::TestResult;
use evenkeel_testkit::golden;

fn told(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(args).args(["-f", "tests/preflight/cluster.yaml"]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr),
    )
}

#[test]
fn people_read_what_is_in_the_way() -> TestResult {
    for (name, args, code) in [
        ("preflight", vec!["preflight"], 2),
        ("of-a-node", vec!["preflight", "-l", "topology.kubernetes.io/zone=b"], 0),
        ("explain-node", vec!["explain", "node/n-1"], 2),
        ("explain-pod", vec!["explain", "pod/shop/db-0"], 2),
        ("explain-budget", vec!["explain", "pdb/shop/cart"], 2),
    ] {
        let (found, text) = told(&args);
        assert_eq!(found, Some(code), "{name}: {text}");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preflight").join(format!("{name}.txt"));
        golden::compare(&file, &text)?;
    }
    Ok(())
}
