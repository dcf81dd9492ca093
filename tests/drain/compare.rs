//! The same drains by kubectl and by us, each on a cluster of its own, as a table. Not a test: it measures.
//!
//! `cargo test --test drain compare -- --ignored --nocapture`; `CASE=<part of a name>` takes some.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Failure, TestResult, in_namespace};
use tokio::process::Command;

use super::watcher::Watcher;
use super::{Scene, cases};
use crate::binary;

/// What happens beside a drain.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    /// Somebody does this with kubectl, so many seconds after its begin.
    Kubectl(&'static [(u64, &'static [&'static str])]),
    /// A namespace is deleted while no controller manager runs, which comes back after 12 s.
    Deleted(&'static str),
}

/// What is drained.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    workers: usize,
    drained: &'static [usize],
    manifest: &'static str,
    /// Pods of `shop` that must be ready first, without those of `DaemonSets`.
    pods: usize,
    more: &'static [&'static str],
    ours: &'static [&'static str],
    beside: Beside,
}

const TWENTY: [usize; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
const USUAL: Case = Case {
    name: "1 node of 4",
    workers: 4,
    drained: &[1],
    manifest: "workloads.yaml",
    pods: 15 + 5,
    more: &[],
    ours: &[],
    beside: Beside::Nothing,
};
/// One of those in `cases`, on node number `node`.
const fn hard(name: &'static str, drained: &'static [usize]) -> Case {
    Case {
        name,
        workers: cases::NODES,
        drained,
        manifest: "cases.yaml",
        pods: 0,
        more: &["--timeout=25s"],
        ours: &[],
        beside: Beside::Nothing,
    }
}
const MOVED: &[(u64, &[&str])] = &[
    (6, &["delete", "pod", "-n", "names", "db-0"]),
    (10, &["patch", "pdb", "-n", "names", "db", "--type=merge", "-p", r#"{"spec":{"maxUnavailable":1}}"#]),
];
const CASES: [Case; 12] = [
    USUAL,
    Case { name: "1 node of 4, ours --settle 0", ours: &["--settle", "0"], ..USUAL },
    Case { name: "1 node of 4, pods end in 10 s", manifest: "slow.yaml", ..USUAL },
    Case {
        name: "20 nodes of 26",
        workers: 26,
        drained: &TWENTY,
        manifest: "compare.yaml",
        pods: 220,
        ours: &["--concurrency", "10"],
        ..USUAL
    },
    Case {
        name: "10 nodes of 15, 300 pods, 20 %",
        workers: 15,
        drained: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        manifest: "ten.yaml",
        pods: 450,
        ours: &["--concurrency", "10"],
        ..USUAL
    },
    Case { workers: 2, manifest: "hard.yaml", pods: 0, ..hard("never, two PDBs, denied (25 s)", &[1]) },
    hard("a finalizer that stays (25 s)", &[11]),
    Case { beside: Beside::Kubectl(MOVED), ..hard("back under its name elsewhere", &[13]) },
    Case { more: &["--timeout=60s"], ..hard("pinned pods, two budgets (60 s)", &[3, 4]) },
    hard("CrashLoop, budget short (25 s)", &[7]),
    Case { beside: Beside::Deleted("ending"), ..hard("a namespace is being deleted", &[12]) },
    hard("a webhook that is down (25 s)", &[8]),
];

struct Row {
    seconds: f64,
    verbs: BTreeMap<String, usize>,
    refused: usize,
    fallen: usize,
    code: Option<i32>,
    last: String,
}

/// Does what happens beside the drain.
async fn beside(scene: &Scene, beside: Beside) -> TestResult {
    let wait = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
    match beside {
        Beside::Nothing => {}
        Beside::Kubectl(deeds) => {
            let mut now = 0;
            for (at, args) in deeds {
                wait(at.saturating_sub(now)).await;
                now = *at;
                scene.kubectl(args).await?;
            }
        }
        Beside::Deleted(_) => {
            wait(12).await;
            scene.cluster.controller_manager(0).start().await?;
        }
    }
    std::future::pending().await
}

async fn measure(case: Case, ours: bool) -> Result<Row, Failure> {
    let scene = Scene::begin(case.workers, case.manifest).await?;
    match case.manifest {
        "hard.yaml" => {
            scene.kubectl(&["label", "node", "w-1", "hard=yes", "--overwrite"]).await?;
            scene
                .until("the pods run", 60, async || Ok(scene.on_node("hard", "w-1").await?.len() == 4))
                .await?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            scene.kubectl(&["label", "node", "w-2", "hard=yes", "--overwrite"]).await?;
        }
        "cases.yaml" => cases::begin(&scene).await?,
        _ => scene.settled("shop", case.pods).await?,
    }
    if let Beside::Deleted(namespace) = case.beside {
        scene.cluster.controller_manager(0).stop().await?;
        scene.kubectl(&["delete", "namespace", namespace, "--wait=false"]).await?;
    }
    let nodes: Vec<String> = case.drained.iter().map(|number| format!("w-{number}")).collect();
    let mut command = Command::new(if ours { binary() } else { scene.cluster.kubectl_path()? });
    command.arg("drain").args(&nodes).args(case.more).arg("--kubeconfig").arg(&scene.kubeconfig);
    if ours {
        command.args(case.ours);
    } else {
        // It asks for each DaemonSet of a pod, which our role does not allow.
        let role = ["create", "clusterrole", "asks-daemonsets", "--verb=get", "--resource=daemonsets.apps"];
        scene.kubectl(&role).await?;
        let whom = ["--clusterrole=asks-daemonsets", "--serviceaccount=ops:drainer"];
        scene.kubectl(&[&["create", "clusterrolebinding", "asks-daemonsets"][..], &whom].concat()).await?;
        command.args(["--ignore-daemonsets", "--delete-emptydir-data"]);
        command.env("KUBECACHEDIR", scene.cluster.logs().join("kubectl-cache"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let watcher = Watcher::default();
    let begun = Instant::now();
    let output = tokio::select! {
        output = tokio::time::timeout(Duration::from_mins(10), command.output()) => output,
        ended = watcher.watch(scene.cluster.client()) => { ended?; return Err(Failure::new("the watcher ended")) }
        ended = beside(&scene, case.beside) => { ended?; return Err(Failure::new("what happens beside it ended")) }
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
    if case.more.is_empty() && !output.status.success() {
        return Err(Failure::new(format!("{}: not drained: {all}", case.name)));
    }
    Ok(Row {
        seconds,
        verbs,
        refused: requests.iter().filter(|entry| entry.code == 429).count(),
        fallen: watcher.seen().fallen.len(),
        code: output.status.code(),
        last: all
            .lines()
            .rfind(|line| line.contains(": not drained") || line.contains("error"))
            .unwrap_or("")
            .to_owned(),
    })
}

#[test]
#[ignore = "measures; takes minutes"]
fn compare() -> TestResult {
    in_namespace("compare::compare", async || {
        println!(
            "{:<32}{:<10}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>6}{:>10}{:>6}",
            "", "", "wall s", "total", "get", "list", "watch", "patch", "evict", "429", "PDB fell", "exit"
        );
        let wanted = std::env::var("CASE").unwrap_or_default();
        for case in CASES.into_iter().filter(|case| case.name.contains(&wanted)) {
            for ours in [false, true] {
                let row = measure(case, ours).await?;
                let of = |verb: &str| row.verbs.get(verb).copied().unwrap_or_default();
                let total: usize = row.verbs.values().sum();
                println!(
                    "{:<32}{:<10}{:>7.1}{total:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>6}{:>10}{:>6}",
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
