//! The same requests to the virtual cluster and to a real one: everything that comes back must be equal.
//!
//! A case is text (see `cases/` and `case.rs`): requests, watches and waits, one step a line. What differs from run to
//! run by nature is replaced before comparing: UIDs, times, generated names, and resourceVersions by their order.
//! `CASE=<part of a name>` runs some cases; `SHOW=1` prints what came back.

#![allow(clippy::assigning_clones, reason = "speed is no concern here")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod case;
mod plain;
mod run;

use std::fmt::Write as _;

use evenkeel_devcluster::{
    Cluster as Real, Failure, NodeGroup, Release, TestResult, V1_36, V1_37, in_namespace,
};
use evenkeel_sim::{Cluster as Virtual, NodeGroup as VirtualNodes};

/// Cases that are known to differ: `docs/virtual-cluster.md` says why each is harmless.
const KNOWN: &[&str] = &["a budget of a custom controller with scale"];

/// How many cases run at once on the real cluster: most of a case is waiting for controllers.
const AT_ONCE: usize = 10;

#[test]
fn virtual_is_as_real_1_37() -> TestResult {
    in_namespace("virtual_is_as_real_1_37", async || compare(V1_37).await)
}

#[test]
fn virtual_is_as_real_1_36() -> TestResult {
    in_namespace("virtual_is_as_real_1_36", async || compare(V1_36).await)
}

async fn compare(release: Release) -> TestResult {
    let nodes = NodeGroup::workers(3).zones(["a", "b", "c"]).kubelet(release.version());
    let real = Real::builder().apiservers(&[release]).controllers(release).nodes(nodes).start().await?;
    let only = std::env::var("CASE").unwrap_or_default();
    let cases: Vec<case::Case> = case::all().into_iter().filter(|case| case.name.contains(&only)).collect();
    let wanted = run::all(&cases, &real.client(), "real", AT_ONCE).await;
    let version = release.version().to_owned();
    let got = std::thread::spawn({
        let cases = cases.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let cluster = Virtual::builder().version(version).start();
                cluster.add_nodes(&VirtualNodes::new("worker", 3).zones(["a", "b", "c"]));
                tokio::time::sleep(std::time::Duration::from_secs(30)).await;
                run::all(&cases, &cluster.client_of("conformance"), "virtual", 1).await
            })
        }
    })
    .join()
    .map_err(|_| Failure::new("the virtual cluster panicked"))?;
    let mut failed = Vec::new();
    let mut known = 0;
    for ((case, wanted), got) in cases.iter().zip(&wanted).zip(&got) {
        if wanted == got {
            continue;
        }
        if KNOWN.contains(&case.name.as_str()) {
            known += 1;
            continue;
        }
        println!("=== {} ({})", case.name, case.file);
        print!("{}", difference(wanted, got));
        failed.push(case.name.clone());
    }
    println!(
        "{}: {} cases, {} equal, {known} known to differ, {} not equal",
        release.version(),
        cases.len(),
        cases.len() - known - failed.len(),
        failed.len()
    );
    if failed.is_empty() { Ok(()) } else { Err(Failure::new(format!("not equal: {}", failed.join(", ")))) }
}

/// The lines that differ.
fn difference(wanted: &str, got: &str) -> String {
    let mut text = String::new();
    let (wanted, got): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), got.lines().collect());
    for at in 0..wanted.len().max(got.len()) {
        let (wanted, got) = (wanted.get(at).unwrap_or(&""), got.get(at).unwrap_or(&""));
        if wanted != got {
            // Each line is shown from a little before the place where they differ.
            let same = wanted.char_indices().zip(got.chars()).take_while(|((_, a), b)| a == b).count();
            let from = |text: &str| text.chars().skip(same.saturating_sub(60)).take(400).collect::<String>();
            let _ = writeln!(text, "  line {at}\n    real    {}\n    virtual {}", from(wanted), from(got));
        }
    }
    text
}
