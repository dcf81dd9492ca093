//! The same upgrade by a person's hand, as kubeadm's documentation tells it: what it takes beside Evenkeel's.
//!
//! Here belongs the run of the script and its figures. A person is judged by the same observer.

use std::process::Stdio;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{AuditEntry, Failure, TestResult};
use evenkeel_testkit::observer;
use evenkeel_testkit::scenario::{TO, root, until};
use evenkeel_testkit::watched::Watched as _;
use k8s_openapi::jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::Beside;
use crate::cluster::Real;
use crate::table::{self, Figures, left_workers};

/// Twice what it takes on three control planes.
const LIMIT: Duration = Duration::from_mins(25);

pub async fn upgrades_by_hand(real: &Real) -> TestResult {
    real.workloads().await?;
    // Whoever watches wants to see that nothing of Evenkeel is there.
    real.apply("config/crd").await?;
    let size = real.size().await?;
    let of = |kind: &str, count: usize| (1..=count).map(move |n| format!("{kind}-{n}")).collect::<Vec<_>>();
    let nodes = [of("cp", size.control_planes), of("worker", size.workers)].concat();
    let beside = Beside::new();
    let (from, began) = (Timestamp::now(), Instant::now());
    beside.during(real, async || by_hand(&nodes, began).await).await?;
    let seconds = began.elapsed().as_secs_f64();
    until("every pod is ready again", Duration::from_mins(2), async || real.pods_are_ready().await).await?;
    assert_eq!(observer::at_rest(real, &[]).await?, Vec::<String>::new());
    assert_eq!(real.kubelets_at(TO).await?, u64::try_from(nodes.len())?);

    let log = real.audit_log()?;
    let of_person = |entry: &AuditEntry| entry.user_agent.starts_with("kubectl") && entry.received >= from;
    let asked: Vec<_> = log.iter().filter(|entry| of_person(entry)).collect();
    let refused = asked.iter().filter(|entry| entry.subresource == "eviction" && entry.code == 429).count();
    let evictions = asked.iter().filter(|entry| entry.subresource == "eviction" && entry.code < 300).count();
    let (asked_of_service, violations) = (beside.probe.asked(), beside.observer.seen().violations);
    assert_eq!(asked_of_service.too_few(Duration::from_secs_f64(seconds)), None);
    println!("by hand: the Service: {}, violations: {violations:#?}", asked_of_service.summary());
    for line in asked_of_service.losses() {
        println!("{line}");
    }
    let figures = Figures {
        who: table::PERSON,
        seconds,
        leaving_seconds: left_workers(&log, of_person).seconds,
        requests: asked.len(),
        evictions,
        refused,
        asked: asked_of_service,
        violations: violations.len(),
    };
    table::print(size, &figures)?;
    assert!(evictions > 0, "the audit log shows no eviction by kubectl");
    Ok(())
}

/// Runs the script to its end, and prints which step begins when.
async fn by_hand(nodes: &[String], began: Instant) -> TestResult {
    let mut script = tokio::process::Command::new("sh");
    script.arg(root("tests/real/by-hand.sh")).arg(TO).args(nodes).kill_on_drop(true);
    let mut running = script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (Some(stdout), Some(mut stderr)) = (running.stdout.take(), running.stderr.take()) else {
        return Err(Failure::new("the script has no output"));
    };
    let steps = async {
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some(step) = line.strip_prefix("--- ") {
                println!("{:>5.0} s  {step}", began.elapsed().as_secs_f64());
            }
        }
        Ok::<_, std::io::Error>(())
    };
    let complaints = async {
        let mut complaints = String::new();
        stderr.read_to_string(&mut complaints).await.map(|_| complaints)
    };
    let ended = async { tokio::try_join!(steps, complaints, running.wait()) };
    let ((), complaints, status) = tokio::time::timeout(LIMIT, ended).await??;
    if status.success() {
        return Ok(());
    }
    let last: Vec<_> = complaints.lines().rev().take(12).collect();
    let last: Vec<_> = last.into_iter().rev().collect();
    Err(Failure::new(format!("tests/real/by-hand.sh: {status}\n{}", last.join("\n"))))
}
