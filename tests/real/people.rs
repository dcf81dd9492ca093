//! What people do to an upgrade on its way, and what they are told: they suspend it, and a budget of theirs keeps a node.
//!
//! Here belong the steps of one upgrade; who watches it meanwhile is in `main`.

use std::time::Duration;

use evenkeel_devcluster::{Failure, TestResult};
use evenkeel_testkit::observer;
use evenkeel_testkit::scenario::until;
use evenkeel_testkit::watched::Watched as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;

use crate::cluster::{Claimed, Real};
use crate::{Beside, figures, prepared, reaches, sample, violations};

/// The node that a budget keeps.
const STUCK: &str = "worker-2";
/// So long nothing new must begin while the upgrade is suspended.
const QUIET: Duration = Duration::from_secs(20);
/// So long a word takes to be heard.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Time for the control plane, which comes first.
const LIMIT: Duration = Duration::from_mins(10);

/// A pod that can run on one node only, under a budget that never lets it go.
const KEPT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: kept, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: kept}}
  template:
    metadata: {labels: {app: kept}}
    spec:
      nodeSelector: {kubernetes.io/hostname: worker-2}
      terminationGracePeriodSeconds: 1
      containers:
      - {name: kept, image: "devcluster.test/tools:1", command: [sleep, infinity]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: kept, namespace: shop}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: kept}}}
"#;

pub async fn interfere(real: &Real) -> TestResult {
    prepared(real).await?;
    real.apply_text("kept.yaml", KEPT).await?;
    let kept: Api<Pod> = Api::namespaced(real.client(), "shop");
    until("the kept pod is ready", Duration::from_mins(1), async || {
        let pods = kept.list(&ListParams::default().labels("app=kept")).await?.items;
        Ok(pods.len() == 1 && pods.iter().all(evenkeel_testkit::scenario::is_ready))
    })
    .await?;

    let beside = Beside::new();
    let mut suspended = None;
    beside
        .during(real, async || {
            real.apply_text("upgrade.yaml", &sample()?).await?;
            suspended = Some(suspend(real).await?);
            keeps_its_node_alone(real, &beside).await?;
            real.kubectl(&["-n", "shop", "delete", "pdb", "kept"]).await?;
            reaches(real, "Completed", Duration::from_mins(5)).await
        })
        .await?;
    println!("complete after {:.0} s", beside.seconds());
    let requests = beside.observer.audit(real)?;
    figures(&requests, &beside);
    assert_eq!(observer::at_rest(real, &[]).await?, Vec::<String>::new());
    assert_eq!(violations(&beside.observer.seen()), Vec::<String>::new());
    let (from, until) = suspended.ok_or_else(|| Failure::new("nobody suspended anything"))?;
    let begun = begun_between(real, from, until)?;
    assert_eq!(begun, Vec::<String>::new(), "begun while it was suspended");
    Ok(())
}

/// Suspends the upgrade while a node is drained, which is given back, and lets it go on after a while in which nothing
/// happens. Returns since when and until when it was suspended.
async fn suspend(real: &Real) -> Result<(Timestamp, Timestamp), Failure> {
    let drained = real.claimed("kubelet", &["Draining"], LIMIT).await?.node;
    set_suspended(real, true).await?;
    let from = Timestamp::now();
    reaches(real, "Suspended", Duration::from_secs(10)).await?;
    until(&format!("{drained} is given back"), Duration::from_secs(20), async || {
        let moves = |claim: &Claimed| ["Claimed", "Draining", "Upgrading"].contains(&claim.state.as_str());
        let cordoned = ["get", "node", &drained, "-o", "jsonpath={.spec.unschedulable}"];
        Ok(!real.claims().await?.iter().any(moves) && real.kubectl(&cordoned).await?.is_empty())
    })
    .await?;
    tokio::time::sleep(QUIET).await;
    let until = Timestamp::now();
    set_suspended(real, false).await?;
    Ok((from, until))
}

async fn set_suspended(real: &Real, suspended: bool) -> TestResult {
    let patch = format!(r#"{{"spec":{{"suspend":{suspended}}}}}"#);
    real.kubectl(&["patch", "clusterupgrade", "prod-137", "--type=merge", "-p", &patch]).await.map(drop)
}

/// What the operator claimed, evicted or gave to an executor in that time.
fn begun_between(real: &Real, from: Timestamp, until: Timestamp) -> Result<Vec<String>, Failure> {
    let log = real.audit_log()?;
    let begins = |entry: &&evenkeel_devcluster::AuditEntry| {
        entry.user == evenkeel_testkit::scenario::OPERATOR_USER
            && entry.verb == "create"
            && (entry.subresource == "eviction"
                || ["nodeupgrades", "jobs"].contains(&entry.resource.as_str()))
            && !entry.uri.contains("dryRun")
            && entry.code < 300
            && (from + AT_ONCE..until).contains(&entry.received)
    };
    let line = |entry: &evenkeel_devcluster::AuditEntry| {
        format!("{} {} {}", entry.received, entry.resource, entry.name)
    };
    Ok(log.iter().filter(begins).map(line).collect())
}

/// The node whose pod never leaves keeps nobody else, and is named with its reason in one line: in the status, in an event
/// and in a metric.
async fn keeps_its_node_alone(real: &Real, beside: &Beside) -> TestResult {
    reaches(real, "NodesParked", LIMIT).await?;
    println!("{:>5.0} s  only {STUCK} is left", beside.seconds());
    let upgrade: Value =
        serde_json::from_str(&real.kubectl(&["get", "clusterupgrade", "prod-137", "-o", "json"]).await?)?;
    let status = &upgrade["status"];
    assert_eq!(status["progress"]["upgraded"], 2, "{status:#}");
    let parked: Vec<_> = status["parked"].as_array().into_iter().flatten().collect();
    let [parked] = parked.as_slice() else {
        return Err(Failure::new(format!("not one node is parked: {parked:?}")));
    };
    let reason = parked["reason"].as_str().unwrap_or_default();
    assert_eq!(parked["node"], STUCK);
    assert!(reason.contains("shop/kept"), "{reason:?} does not name the budget");
    assert_eq!(reason.lines().count(), 1, "{reason:?}");

    let events: Value = serde_json::from_str(&real.kubectl(&["get", "events", "-A", "-o", "json"]).await?)?;
    let events = events["items"].as_array().into_iter().flatten();
    let notes: Vec<_> = events.filter_map(|event| event["message"].as_str()).collect();
    let tells = |note: &&&str| note.contains(STUCK) && note.contains("shop/kept");
    assert!(notes.iter().any(|note| tells(&note)), "no event tells of {STUCK}: {notes:#?}");

    let metrics = real.metrics_of_leader().await?;
    let series =
        format!(r#"evenkeel_upgrade_blocked_node{{node="{STUCK}",state="Parked",upgrade="prod-137"}} 1"#);
    assert!(metrics.contains(&series), "no {series} in\n{metrics}");
    Ok(())
}
