//! The whole way before your eyes: a cluster seen, upgraded and even again, on a real control plane.
//!
//! `make demo-upgrade` runs it. It starts three kube-apiservers and what belongs to them in a namespace of their own, runs the
//! operator under its own service account, and lets the tests' stand-in change the versions. What it says about
//! requests and budgets comes from the audit log and from the tests' observer, not from the operator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, TestResult};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams};

use evenkeel_testkit::observer::Observer;
use evenkeel_testkit::operator::Operator;
use evenkeel_testkit::scenario::{self, kubectl, root};
use evenkeel_testkit::standin;

fn main() -> ExitCode {
    let binary = std::env::args_os().nth(1).map_or_else(|| root("target/debug/evenkeel"), PathBuf::from);
    if !binary.is_file() {
        eprintln!(
            "error: {} is not there; run `make demo-upgrade`, or name the evenkeel binary",
            binary.display()
        );
        return ExitCode::FAILURE;
    }
    let entered = evenkeel_devcluster::enter(async || match show(&binary).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure:?}");
            ExitCode::FAILURE
        }
    });
    entered.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn title(text: &str) {
    println!("\n── {text}");
}

async fn show(binary: &std::path::Path) -> TestResult {
    let begun = Instant::now();
    title(
        "A real control plane: etcd, 3 kube-apiservers v1.36.4, controller-manager, scheduler, 12 workers in 3 zones",
    );
    let cluster = scenario::cluster().await?;
    println!("   ready after {:.1} s", begun.elapsed().as_secs_f64());
    scenario::install(&cluster).await?;
    println!("   Evenkeel installed with: kubectl apply -k config/upgrade");
    scenario::workloads(&cluster, scenario::WORKERS).await?;
    println!(
        "   {} pods are Ready, under budgets that are fine, tight and impossible:",
        scenario::MOVABLE + scenario::WORKERS
    );
    indent(&kubectl(&cluster, &["-n", "shop", "get", "pdb"]).await?);

    let observer = Observer::default();
    let mut operator = Operator::new(&cluster, binary, &[]).await?;
    operator.start()?;
    let shown = tokio::select! {
        done = upgrade(&cluster, binary) => done,
        failed = standin::work(&cluster) => failed,
        failed = observer.watch(&cluster) => failed,
    };
    if shown.is_err() {
        eprintln!("{}", operator.log());
    }
    shown?;
    operator.stop().await?;
    tell_cost(&cluster, &observer)?;
    println!("\n   All of it took {:.0} s. Nothing is left behind.", begun.elapsed().as_secs_f64());
    Ok(())
}

async fn upgrade(cluster: &Cluster, binary: &std::path::Path) -> TestResult {
    title("evenkeel report: where it stands");
    let report = tokio::process::Command::new(binary)
        .arg("report")
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .output()
        .await;
    let report = report.map_err(|error| Failure::new(format!("evenkeel report: {error}")))?;
    indent(&String::from_utf8_lossy(&report.stdout));

    title("kubectl apply: a ClusterUpgrade to v1.37.1, four workers at a time");
    cluster.apply(root("tests/upgrade/upgrade.yaml")).await?;
    let mut steps = Steps { started: Instant::now(), shown: BTreeMap::new() };
    steps.follow(cluster, "NodesParked").await?;
    title("Everything that can move has moved. One node cannot be drained, was left alone, and is named");
    indent(&kubectl(cluster, &["get", "clusterskewreport,clusterupgrade"]).await?);
    let message = "{.status.conditions[?(@.type=='Ready')].message}";
    println!(
        "   {}",
        kubectl(cluster, &["get", "cup", "to-137", "-o", &format!("jsonpath={message}")]).await?
    );

    title(
        "A person mends the budget: kubectl -n shop patch pdb ledger --type=merge -p '{\"spec\":{\"minAvailable\":0}}'",
    );
    let patch = r#"{"spec":{"minAvailable":0}}"#;
    kubectl(cluster, &["-n", "shop", "patch", "pdb", "ledger", "--type=merge", "-p", patch]).await?;
    steps.follow(cluster, "Completed").await?;
    title("Even");
    tokio::time::sleep(Duration::from_secs(2)).await;
    indent(&kubectl(cluster, &["get", "clusterskewreport,clusterupgrade"]).await?);
    Ok(())
}

/// The steps of the upgrade as they are seen from outside.
struct Steps {
    started: Instant,
    shown: BTreeMap<String, String>,
}

impl Steps {
    /// Prints each step of each claim until the upgrade is at `reason`.
    async fn follow(&mut self, cluster: &Cluster, reason: &str) -> TestResult {
        let claims = standin::node_upgrades(cluster.client());
        let ready = "jsonpath={.status.conditions[?(@.type=='Ready')].reason}";
        while self.started.elapsed() < Duration::from_mins(5) {
            // Apiservers come and go; what cannot be read now is read in a moment.
            if let Ok(list) = claims.list(&ListParams::default()).await {
                list.items.iter().for_each(|claim| self.step(claim));
            }
            if kubectl(cluster, &["get", "cup", "to-137", "-o", ready]).await.is_ok_and(|now| now == reason) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        Err(Failure::new(format!("after five minutes the upgrade is not {reason}")))
    }

    fn step(&mut self, claim: &DynamicObject) {
        let text = |part: &str, key: &str| claim.data[part][key].as_str().unwrap_or_default().to_owned();
        let (state, message) = (text("status", "state"), text("status", "message"));
        if state.is_empty() || self.shown.insert(claim.name_any(), state.clone()).as_ref() == Some(&state) {
            return;
        }
        let what = format!("{} {}", text("spec", "nodeName"), text("spec", "component"));
        println!("   {:5.1} s  {what:<28} {state:<10} {message}", self.started.elapsed().as_secs_f64());
    }
}

fn tell_cost(cluster: &Cluster, observer: &Observer) -> TestResult {
    title("What it cost, by the apiservers' audit log and an observer that shares no code with the operator");
    let requests = observer.audit(cluster)?;
    let seen = observer.seen();
    let nodes = scenario::WORKERS + 3;
    let claims =
        ["create nodeupgrades", "patch nodeupgrades/status", "patch nodes"].map(|kind| requests.of(kind));
    let reads = requests.of("get nodes") + requests.of("list pods");
    println!(
        "   evictions        {} accepted, {} refused by a budget, none by DELETE",
        requests.evictions, requests.refused
    );
    println!(
        "   requests         {:.1} writes and {:.1} reads a node besides evictions, with the control plane's and retries",
        each(claims.iter().sum(), nodes),
        each(reads, nodes)
    );
    println!(
        "                    {} Jobs, {} events, {} statuses of the upgrade",
        requests.of("create jobs"),
        requests.of("create events") + requests.of("patch events"),
        requests.of("update clusterupgrades/status")
    );
    println!(
        "   unavailable      at most {} of {} workers at once; {} were allowed",
        seen.most_unavailable,
        scenario::WORKERS,
        scenario::MAX_UNAVAILABLE
    );
    println!(
        "   budgets          {} events followed, {} violations seen",
        seen.events,
        seen.violations.len()
    );
    for violation in &seen.violations {
        println!("   VIOLATION        {violation}");
    }
    if seen.violations.is_empty() { Ok(()) } else { Err(Failure::new("an invariant was broken; see above")) }
}

#[allow(clippy::cast_precision_loss, reason = "small counts, for a person")]
fn each(count: usize, nodes: usize) -> f64 {
    count as f64 / nodes as f64
}

fn indent(text: &str) {
    for line in text.lines() {
        println!("   {line}");
    }
}
