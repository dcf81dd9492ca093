//! The same drains by kubectl and by us, each on a cluster of its own, as a table. Not a test: it measures.
//!
//! `cargo test --test drain compare -- --ignored --nocapture`

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Failure, TestResult, in_namespace};
use tokio::process::Command;

use super::watcher::Watcher;
use super::{BINARY, Scene};

/// What is drained.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    workers: usize,
    drained: usize,
    manifest: &'static str,
    namespace: &'static str,
    /// Pods that must be ready first, without those of `DaemonSets`.
    pods: usize,
    more: &'static [&'static str],
    ours: &'static [&'static str],
}

const CASES: [Case; 3] = [
    Case {
        name: "1 node of 4",
        workers: 4,
        drained: 1,
        manifest: "workloads.yaml",
        namespace: "shop",
        pods: 15 + 5,
        more: &[],
        ours: &[],
    },
    Case {
        name: "20 nodes of 26",
        workers: 26,
        drained: 20,
        manifest: "compare.yaml",
        namespace: "shop",
        pods: 220,
        more: &[],
        ours: &["--concurrency", "10"],
    },
    Case {
        name: "never, two PDBs, denied (25 s)",
        workers: 2,
        drained: 1,
        manifest: "hard.yaml",
        namespace: "hard",
        pods: 4,
        more: &["--timeout=25s"],
        ours: &[],
    },
];

struct Row {
    seconds: f64,
    verbs: BTreeMap<String, usize>,
    refused: usize,
    fallen: usize,
    code: Option<i32>,
    last: String,
}

async fn measure(case: Case, ours: bool) -> Result<Row, Failure> {
    let scene = Scene::begin(case.workers, case.manifest).await?;
    if case.namespace == "hard" {
        scene.kubectl(&["label", "node", "w-1", "hard=yes", "--overwrite"]).await?;
        scene.until("the pods run", 60, async || Ok(scene.on_node("hard", "w-1").await?.len() == 4)).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        scene.kubectl(&["label", "node", "w-2", "hard=yes", "--overwrite"]).await?;
    } else {
        scene.settled(case.namespace, case.pods).await?;
    }
    let nodes: Vec<String> = (1..=case.drained).map(|number| format!("w-{number}")).collect();
    let mut command = Command::new(if ours { BINARY.into() } else { scene.cluster.kubectl_path()? });
    command.arg("drain").args(&nodes).args(case.more).arg("--kubeconfig").arg(&scene.kubeconfig);
    if ours {
        command.args(case.ours);
    } else {
        command.args(["--ignore-daemonsets", "--delete-emptydir-data"]);
        command.env("KUBECACHEDIR", scene.cluster.logs().join("kubectl-cache"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let watcher = Watcher::default();
    let begun = Instant::now();
    let output = tokio::select! {
        output = tokio::time::timeout(Duration::from_mins(10), command.output()) => output,
        ended = watcher.watch(scene.cluster.client()) => { ended?; return Err(Failure::new("the watcher ended")) }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let output = output.map_err(|_| Failure::new("not within 10 minutes"))?;
    let output = output.map_err(|error| Failure::new(error.to_string()))?;
    let requests = scene.requests()?;
    let mut verbs: BTreeMap<String, usize> = BTreeMap::new();
    for entry in &requests {
        let verb = if entry.subresource == "eviction" { "evict".to_owned() } else { entry.verb.clone() };
        *verbs.entry(verb).or_default() += 1;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    Ok(Row {
        seconds,
        verbs,
        refused: requests.iter().filter(|entry| entry.code == 429).count(),
        fallen: watcher.seen().fallen.len(),
        code: output.status.code(),
        last: all
            .lines()
            .rfind(|line| line.contains("not drained") || line.contains("error"))
            .unwrap_or("")
            .to_owned(),
    })
}

#[test]
#[ignore = "measures; takes minutes"]
fn compare() -> TestResult {
    in_namespace("compare::compare", async || {
        println!(
            "{:<32}{:<10}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>6}{:>8}{:>6}",
            "", "", "wall s", "total", "get", "list", "watch", "patch", "evict", "429", "PDB fell", "exit"
        );
        for case in CASES {
            for ours in [false, true] {
                let row = measure(case, ours).await?;
                let of = |verb: &str| row.verbs.get(verb).copied().unwrap_or_default();
                let total: usize = row.verbs.values().sum();
                println!(
                    "{:<32}{:<10}{:>7.1}{total:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>6}{:>8}{:>6}",
                    case.name,
                    if ours { "evenkeel" } else { "kubectl" },
                    row.seconds,
                    of("get"),
                    of("list"),
                    of("watch"),
                    of("patch"),
                    of("evict"),
                    row.refused,
                    row.fallen,
                    row.code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
                );
                if !row.last.is_empty() {
                    println!("    {}", row.last.chars().take(200).collect::<String>());
                }
            }
        }
        Ok(())
    })
}
