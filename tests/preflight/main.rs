//! What would keep the nodes of a file from being drained, as people read it: kept in files.
//!
//! `UPDATE_EXPECT=1 cargo test --test preflight` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::path::Path;
use std::process::Command;

use evenkeel_devcluster::TestResult;
use evenkeel_testkit::golden;

fn told(args: &[&str], cluster: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(args).args(["-f", &format!("tests/preflight/{cluster}.yaml")]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr),
    )
}

#[test]
fn people_read_what_is_in_the_way() -> TestResult {
    for (name, cluster, args, code) in [
        ("preflight", "cluster", vec!["preflight"], 2),
        ("of-a-node", "cluster", vec!["preflight", "-l", "topology.kubernetes.io/zone=b"], 0),
        ("explain-node", "cluster", vec!["explain", "node/n-1"], 2),
        ("explain-pod", "cluster", vec!["explain", "pod/shop/db-0"], 2),
        ("explain-budget", "cluster", vec!["explain", "pdb/shop/cart"], 2),
        ("places", "places", vec!["preflight"], 2),
        ("explain-router", "places", vec!["explain", "pod/shop/router-1"], 2),
        ("explain-unready", "places", vec!["explain", "pod/shop/cart-1"], 0),
    ] {
        let (found, text) = told(&args, cluster);
        assert_eq!(found, Some(code), "{name}: {text}");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preflight").join(format!("{name}.txt"));
        golden::compare(&file, &text)?;
    }
    Ok(())
}
