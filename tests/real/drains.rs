//! The same node with the same ten pods, drained by `kubectl drain` and by `evenkeel drain`: how long it takes, what each
//! asks of the API, and what a Service loses meanwhile.
//!
//! Here belong the two drains and their figures. The pods are real containers that take their time to end.

use std::time::{Duration, Instant};

use evenkeel_devcluster::{Failure, TestResult};
use evenkeel_testkit::scenario::{is_ready, until};
use evenkeel_testkit::watched::Watched as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;

use crate::binary;
use crate::cluster::Real;
use crate::probe::{Probe, every_node_answers};

/// The node that is drained, and the one that its pods go to.
const DRAINED: &str = "worker-1";
const OTHER: &str = "worker-2";
const PODS: usize = 10;
/// Longer than any of the two drains takes.
const LIMIT: Duration = Duration::from_mins(3);
/// So long the Service is asked after a drain as well: a pod that went too early is missed a moment later.
const AFTER: Duration = Duration::from_secs(3);

/// One drain, in figures.
struct Figures {
    who: &'static str,
    seconds: f64,
    requests: usize,
    refused: usize,
    asked: usize,
    lost: usize,
}

pub async fn beside_each_other(real: &Real) -> TestResult {
    let kubectl = ["kubectl", "drain", DRAINED, "--ignore-daemonsets"].map(str::to_owned);
    let ours = [binary().display().to_string(), "drain".to_owned(), DRAINED.to_owned()];
    let theirs = measured(real, "kubectl", &kubectl).await?;
    let ours = measured(real, "evenkeel", &ours).await?;
    println!("{:<10}{:>7}{:>10}{:>6}{:>8}{:>6}", "drain by", "wall s", "requests", "429", "asked", "lost");
    for Figures { who, seconds, requests, refused, asked, lost } in [&theirs, &ours] {
        println!("{who:<10}{seconds:>7.1}{requests:>10}{refused:>6}{asked:>8}{lost:>6}");
    }
    assert!(theirs.requests > PODS, "the audit log shows {} requests of kubectl", theirs.requests);
    assert!(ours.requests >= PODS, "the audit log shows {} requests of ours", ours.requests);
    assert!(
        ours.requests * 2 < theirs.requests,
        "{} requests are not half of {}",
        ours.requests,
        theirs.requests
    );
    assert!(ours.seconds <= theirs.seconds, "{:.1} s are more than {:.1} s", ours.seconds, theirs.seconds);
    assert_eq!(ours.refused, 0, "evictions were refused");
    assert_eq!(ours.lost, 0, "requests were lost");
    Ok(())
}

/// Puts ten pods on the node, drains it with this command, and gives everything back.
async fn measured(real: &Real, who: &'static str, command: &[String]) -> Result<Figures, Failure> {
    real.kubectl(&["cordon", OTHER]).await?;
    real.apply("tests/real/ten.yaml").await?;
    let pods: Api<Pod> = Api::namespaced(real.client(), "ten");
    let on = async |node: &str| {
        let pods = pods.list(&ListParams::default()).await?.items;
        let there = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        Ok::<_, Failure>(pods.iter().filter(there).filter(|pod| is_ready(pod)).count())
    };
    until("ten pods are ready on the node", LIMIT, async || Ok(on(DRAINED).await? == PODS)).await?;
    let allowed = ["-n", "ten", "get", "pdb", "-o", "jsonpath={.items[*].status.disruptionsAllowed}"];
    until("both budgets are computed", LIMIT, async || Ok(real.kubectl(&allowed).await? == "2 3")).await?;
    real.kubectl(&["uncordon", OTHER]).await?;

    let addresses = real.addresses().await?;
    every_node_answers(&addresses, 30081).await?;
    let probe = Probe::new(Instant::now());
    let (from, began) = (Timestamp::now(), Instant::now());
    let drain = async {
        let (program, args) = command.split_first().ok_or_else(|| Failure::new("there is no command"))?;
        let mut drain = tokio::process::Command::new(program);
        drain.args(args).stdin(std::process::Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(LIMIT, drain.output()).await??;
        let seconds = began.elapsed().as_secs_f64();
        println!("{}", evenkeel_devcluster::lab::said(&output, &command.join(" "))?);
        let until = Timestamp::now();
        tokio::time::sleep(AFTER).await;
        Ok::<_, Failure>((seconds, until))
    };
    let (seconds, until_then) = tokio::select! {
        drained = drain => drained?,
        never = probe.ask(&addresses, 30081) => match never {},
    };
    assert_eq!(on(DRAINED).await?, 0, "{who} left pods on {DRAINED}");
    let log = real.audit_log()?;
    let asks = |entry: &&evenkeel_devcluster::AuditEntry| {
        entry.user_agent.starts_with(who)
            && entry.pod.is_empty()
            && (from..until_then).contains(&entry.received)
    };
    let requests: Vec<_> = log.iter().filter(asks).collect();
    let asked = probe.asked();
    assert_eq!(asked.too_few(Duration::from_secs_f64(seconds) + AFTER), None, "{who}");
    for (at, node, why) in asked.lost.iter().take(10) {
        println!("{:>5.1} s  by {node}: {why}", at.as_secs_f64());
    }
    let figures = Figures {
        who,
        seconds,
        requests: requests.len(),
        refused: requests.iter().filter(|entry| entry.code == 429).count(),
        asked: asked.sent,
        lost: asked.lost.len(),
    };
    real.kubectl(&["uncordon", DRAINED]).await?;
    real.kubectl(&["delete", "namespace", "ten", "--timeout=120s"]).await?;
    Ok(figures)
}
