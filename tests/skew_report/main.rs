//! The report on a real control plane in the middle of an upgrade: right in every row, whatever happens to the cluster
//! and to the program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod bad;
mod golden;
mod replica;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, TestResult, V1_36, V1_37, in_namespace};
use evenkeel_testkit::golden::is_written_anew;
use evenkeel_testkit::scenario::{kubectl, root, until};
use replica::{Replica, USER};
use serde_json::Value;

/// How long a change may take to be in the report, on a machine that does other things too.
const SOON: Duration = Duration::from_secs(20);

/// The program that is tested.
fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

/// Three apiservers of two minors, controllers of the older one, and kubelets of five minors, four makers and none.
async fn cluster() -> Result<Cluster, Failure> {
    let pool = |count, version: &str, label: &str, value: &str| {
        NodeGroup::workers(count).kubelet(version).label(label, value)
    };
    let general = |count, version: &str| NodeGroup::workers(count).kubelet(version).pool("general");
    let cluster = Cluster::builder()
        .apiservers(&[V1_37, V1_37, V1_36])
        .control_plane_kubelet("v1.36.4")
        .nodes(NodeGroup::workers(2).kubelet("v1.33.12+k3s1").pool("edge"))
        .nodes(pool(2, "v1.34.9-eks-7fcd7ec", "eks.amazonaws.com/nodegroup", "blue"))
        .nodes(pool(2, "v1.35.6-gke.1240000", "cloud.google.com/gke-nodepool", "pool-1"))
        .nodes(general(2, "v1.36.4"))
        .nodes(general(1, "v1.37.1"))
        .nodes(general(1, "v1.nonsense\u{1b}[31m<script>alert(1)</script>\u{202e}\n=cmd()"))
        .manifests([root("tests/skew_report/system.yaml"), root("config/default")])
        .start()
        .await?;
    let established =
        ["wait", "--for=condition=Established", "--timeout=30s", "crd/clusterskewreports.evenkeel.dev"];
    kubectl(&cluster, &established).await?;
    until("the pods of kube-system run", Duration::from_mins(1), async || {
        let phases = "jsonpath={.items[*].status.phase}";
        let phases = kubectl(&cluster, &["-n", "kube-system", "get", "pods", "-o", phases]).await?;
        Ok(phases.split(' ').filter(|phase| *phase == "Running").count() == 3 + 2 + 4 + 2 + 1)
    })
    .await?;
    Ok(cluster)
}

async fn report(cluster: &Cluster) -> Result<Value, Failure> {
    let text = kubectl(cluster, &["get", "skew", "cluster", "-o", "json"]).await?;
    serde_json::from_str(&text).map_err(|error| Failure::new(format!("the report is no JSON: {error}")))
}

/// Every row, as `component pool version count behind headroom state samples`, and the apiservers.
fn rows(report: &Value) -> String {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let list = |path: &str| report["status"][path].as_array().cloned().unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    for row in list("components") {
        let keys = ["component", "pool", "version", "count", "minorsBehind", "headroom", "state", "source"];
        let cells: Vec<_> = keys.iter().map(|key| word(&row[*key])).collect();
        let samples: Vec<_> = row["samples"].as_array().into_iter().flatten().map(word).collect();
        // A DaemonSet's pods are called another thing in each run.
        let samples: Vec<_> = samples.into_iter().filter(|name| !name.starts_with("kube-proxy-")).collect();
        let samples: Vec<_> = samples.into_iter().filter(|name| !name.starts_with("cloud-")).collect();
        lines.push(format!("{}  {}", cells.join("  "), samples.join(",")));
    }
    for server in list("apiservers") {
        let keys = ["name", "node", "version", "reachable"];
        lines.push(keys.iter().map(|key| word(&server[*key])).collect::<Vec<_>>().join("  "));
    }
    lines.join("\n") + "\n"
}

/// Waits until every row is as in that golden file.
async fn settles(cluster: &Cluster, name: &str) -> TestResult {
    if is_written_anew() {
        // Nothing to wait for but time.
        tokio::time::sleep(Duration::from_secs(10)).await;
        return golden::check(name, &rows(&report(cluster).await?));
    }
    let mut last = Failure::new("never looked");
    let settled = until(name, SOON, async || match golden::check(name, &rows(&report(cluster).await?)) {
        Ok(()) => Ok(true),
        Err(difference) => {
            last = difference;
            Ok(false)
        }
    })
    .await;
    settled.map_err(|_| last)
}

async fn status(cluster: &Cluster, path: &str) -> Result<String, Failure> {
    kubectl(cluster, &["get", "skew", "cluster", "-o", &format!("jsonpath={path}")]).await
}

async fn says(cluster: &Cluster, path: &str, wanted: &str) -> TestResult {
    until(&format!("{path} is {wanted}"), SOON, async || {
        let told = status(cluster, path).await?;
        if told == wanted { Ok(true) } else { Err(Failure::new(told)) }
    })
    .await
}

#[test]
fn the_report_is_right_in_every_row() -> TestResult {
    in_namespace("the_report_is_right_in_every_row", async || {
        let cluster = cluster().await?;
        let mut first = Replica::new(&cluster, "first", 8081).await?;
        let mut second = Replica::new(&cluster, "second", 8082).await?;
        let told = whole_story(&cluster, &mut first, &mut second).await;
        if told.is_err() {
            eprintln!("{}\n{}", first.log(), second.log());
        }
        told
    })
}

async fn whole_story(cluster: &Cluster, first: &mut Replica, second: &mut Replica) -> TestResult {
    first.start()?;
    seen(cluster, first).await?;
    cluster_changes(cluster).await?;
    edited(cluster).await?;
    replicas(cluster, first, second).await?;
    asked_for(cluster)
}

/// What people see at the beginning, in the middle of an upgrade.
async fn seen(cluster: &Cluster, first: &Replica) -> TestResult {
    until("there is a report", SOON, async || Ok(report(cluster).await?["status"]["nodes"] == 13)).await?;
    says(cluster, "{.status.nextMinor.budgets[*].name}", "cart").await?;
    settles(cluster, "rows-mixed").await?;
    golden::check("get", &kubectl(cluster, &["get", "skew"]).await?)?;
    golden::check("get-wide", &kubectl(cluster, &["get", "skew", "-o", "wide"]).await?)?;
    golden::check("describe", &without_ends(&kubectl(cluster, &["describe", "skew", "cluster"]).await?))?;
    golden::check("explain", &kubectl(cluster, &["explain", "skew.status"]).await?)?;
    let upgrades = kubectl(cluster, &["get", "upgrades", "--no-headers"]).await?;
    assert!(upgrades.contains("cluster"), "it is in the category: {upgrades}");

    let events = ["get", "events", "--field-selector=involvedObject.kind=ClusterSkewReport", "-o"];
    let events = [&events[..], &["jsonpath={range .items[*]}{.type} {.reason};{end}"]].concat();
    until("there is an event", SOON, async || {
        Ok(kubectl(cluster, &events).await? == "Warning SkewUnsupported;")
    })
    .await?;

    let page = first.page("/metrics").await?;
    for line in [
        r#"evenkeel_component_instances{component="kubelet",minor="1.33",pool="edge",version="v1.33.12+k3s1"} 2"#,
        r#"evenkeel_component_minor_versions_behind{component="kubelet",pool="edge"} 4"#,
        r#"evenkeel_component_minor_versions_ahead{component="kubelet",pool="general"} 1"#,
        r#"evenkeel_component_minor_versions_behind_limit{component="kubelet"} 3"#,
        r#"evenkeel_violations{component="kubelet",pool="edge",rule="R2",severity="Unsupported"} 2"#,
        r#"evenkeel_kubernetes_minor_eol_timestamp_seconds{minor="1.37"} 1824768000"#,
        "evenkeel_leader 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    for path in ["/healthz", "/readyz"] {
        let answer = first.page(path).await?;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    for line in first.log().lines() {
        let parsed: Result<Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok_and(|entry| entry["timestamp"].is_string()), "no JSON: {line}");
    }
    Ok(())
}

/// What `kubectl describe` says, but for the findings that come and go with the calendar: ends of life, and patches of
/// minors that are still maintained.
fn without_ends(described: &str) -> String {
    let (before, rest) = described.split_once("  Findings:\n").unwrap_or((described, ""));
    // The next field of the status is indented as the list's name is.
    let end = rest.match_indices("\n  ").find(|(at, _)| !rest[at + 3..].starts_with(' '));
    let (findings, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at + 1));
    let id =
        |block: &str| block.lines().find_map(|line| line.trim_start().strip_prefix("Id:").map(str::to_owned));
    let by_calendar = |block: &&str| {
        id(block).is_some_and(|id| id.trim_start().starts_with("EOL/") || id.trim_start().starts_with("O0/"))
    };
    let blocks = findings.split("    Count: ").filter(|block| !by_calendar(block));
    format!("{before}  Findings:\n{}{after}", blocks.collect::<Vec<_>>().join("    Count: "))
}

async fn cluster_changes(cluster: &Cluster) -> TestResult {
    cluster.apiserver(2).swap(V1_37).await?;
    settles(cluster, "rows-swapped").await?;
    let blockers = status(cluster, "{.status.nextMinor.blockers}").await?;
    assert!(blockers.contains("webhook orders.shop.example.com of orders fails closed"), "{blockers}");
    kubectl(cluster, &["delete", "validatingwebhookconfiguration", "orders"]).await?;
    until("the webhook is in nobody's way", SOON, async || {
        Ok(!status(cluster, "{.status.nextMinor.blockers}").await?.contains("webhook"))
    })
    .await?;

    // One dies. It stays in the report, with the time since when; and returns.
    cluster.apiserver(1).stop().await?;
    settles(cluster, "rows-one-dead").await?;
    let dead = "{.status.apiservers[?(@.node=='cp-2')]['reachable','since','message']}";
    let since = status(cluster, dead).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(status(cluster, dead).await?, since, "since when does not move");
    assert!(since.starts_with("false 20") && since.contains("no address"), "{since}");
    cluster.apiserver(1).start().await?;
    settles(cluster, "rows-swapped").await?;
    // It hangs: connections are taken and nothing is answered.
    cluster.apiserver(1).pause().await?;
    until("it does not answer", Duration::from_mins(1), async || {
        Ok(status(cluster, "{.status.apiservers[?(@.node=='cp-2')].reachable}").await? == "false")
    })
    .await?;
    cluster.apiserver(1).resume().await?;
    settles(cluster, "rows-swapped").await?;

    // A node joins, a node leaves.
    cluster.add_nodes(&NodeGroup::workers(1).kubelet("v1.35.9").pool("spare")).await?;
    settles(cluster, "rows-node-joined").await?;
    cluster.remove_node("spare-1").await?;
    settles(cluster, "rows-swapped").await?;

    // A lease disappears: the apiserver is there all the same.
    let lease = "jsonpath={.items[0].metadata.name}";
    let identity = "-lapiserver.kubernetes.io/identity=kube-apiserver";
    let lease = kubectl(cluster, &["-n", "kube-system", "get", "lease", identity, "-o", lease]).await?;
    kubectl(cluster, &["-n", "kube-system", "delete", "lease", &lease]).await?;
    settles(cluster, "rows-swapped").await
}

/// Whatever somebody writes into the report, it is right again soon.
async fn edited(cluster: &Cluster) -> TestResult {
    let before = rows(&report(cluster).await?);
    let lie = r#"{"status":{"supported":"True","violations":0,"minorsBehind":0,"emulated":"1.20","components":[],
        "conditions":[{"type":"Approved","status":"True","reason":"Me","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    let patch = ["patch", "skew", "cluster", "--subresource=status", "--type=merge", "-p", lie];
    kubectl(cluster, &patch).await?;
    says(
        cluster,
        "{.status.supported} {.status.violations} {.status.minorsBehind} {.status.emulated}",
        "False 2 4 ",
    )
    .await?;
    says(cluster, "{.status.conditions[*].type}", CONDITIONS).await?;
    assert_eq!(rows(&report(cluster).await?), before);
    // Added beside ours, as another controller would.
    let add = r#"[{"op":"add","path":"/status/conditions/-","value":{"type":"Approved","status":"True","reason":"Me","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}]"#;
    kubectl(cluster, &["patch", "skew", "cluster", "--subresource=status", "--type=json", "-p", add]).await?;
    says(cluster, "{.status.conditions[*].type}", CONDITIONS).await?;
    kubectl(cluster, &["delete", "skew", "cluster"]).await?;
    until("it is made again", SOON, async || Ok(rows(&report(cluster).await?) == before)).await?;

    // What a person wants of it.
    let spec = r#"{"spec":{"poolLabelKeys":["kubernetes.io/os"],"policy":"KubernetesStrict"}}"#;
    kubectl(cluster, &["patch", "skew", "cluster", "--type=merge", "-p", spec]).await?;
    says(cluster, "{.status.policy} {.status.pools}", "KubernetesStrict 1").await?;
    let spec = r#"{"spec":{"poolLabelKeys":[],"policy":"Kubernetes"}}"#;
    kubectl(cluster, &["patch", "skew", "cluster", "--type=merge", "-p", spec]).await?;
    says(cluster, "{.status.policy} {.status.pools}", "Kubernetes 5").await?;
    let refused = kubectl(
        cluster,
        &["patch", "skew", "cluster", "--type=merge", "-p", r#"{"spec":{"refreshPeriodSeconds":1}}"#],
    );
    assert!(refused.await.is_err(), "too often");
    let another = r#"{"apiVersion":"evenkeel.dev/v1alpha1","kind":"ClusterSkewReport","metadata":{"name":"mine"},"spec":{}}"#;
    let path = cluster.logs().join("mine.json");
    std::fs::write(&path, another).map_err(|error| Failure::new(error.to_string()))?;
    let refused = kubectl(cluster, &["create", "-f", &path.display().to_string()]).await;
    let line = format!("{:?}", refused.err().ok_or_else(|| Failure::new("there are two reports"))?);
    assert!(line.contains("there is one report, and it must be named `cluster`"), "{line}");
    Ok(())
}

const CONDITIONS: &str = "Ready Reconciling Stalled SkewSupported NextMinorAllowed InventoryComplete";

async fn replicas(cluster: &Cluster, first: &mut Replica, second: &mut Replica) -> TestResult {
    // Killed, and started again: what happened meanwhile is seen.
    first.kill().await?;
    cluster.restart_kubelet("edge-1", "v1.34.1+k3s1").await?;
    first.start()?;
    settles(cluster, "rows-after-kill").await?;

    // Two of them: the second waits.
    second.start()?;
    until("the second is ready", SOON, async || {
        Ok(second.page("/readyz").await?.starts_with("HTTP/1.1 200"))
    })
    .await?;
    let leads = async |replica: &Replica| -> Result<bool, Failure> {
        Ok(replica.page("/metrics").await?.lines().any(|line| line == "evenkeel_leader 1"))
    };
    until("the first leads", SOON, async || leads(first).await).await?;
    assert!(!leads(second).await?, "one leads");
    let writes = || -> Result<usize, Failure> {
        let log = cluster.audit_log()?;
        Ok(log.iter().filter(|e| e.user == USER && e.is_write() && e.subresource == "status").count())
    };
    let before = writes()?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(writes()? - before <= 1, "at rest they write nothing: {} writes", writes()? - before);

    // The leader freezes; the other one takes over. When it wakes, it leads no more and writes nothing.
    first.signal("STOP").await?;
    cluster.restart_kubelet("edge-2", "v1.34.1+k3s1").await?;
    settles(cluster, "rows-after-freeze").await?;
    assert!(leads(second).await?);
    let before = writes()?;
    first.signal("CONT").await?;
    until("it says that it lost the lease", SOON, async || Ok(first.log().contains("leadership was lost")))
        .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!leads(first).await? && leads(second).await?, "the second leads");
    let alive = first.page("/healthz").await?;
    assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
    assert!(writes()? - before <= 1, "nobody fights: {} writes", writes()? - before);
    settles(cluster, "rows-after-freeze").await?;

    // SIGTERM hands over at once.
    until("the first is ready", SOON, async || Ok(first.page("/readyz").await?.starts_with("HTTP/1.1 200")))
        .await?;
    second.signal("TERM").await?;
    let told = Instant::now();
    assert_eq!(second.ends(Duration::from_secs(10)).await?.code(), Some(0));
    until("the first leads", SOON, async || leads(first).await).await?;
    let took = told.elapsed();
    assert!(took < Duration::from_secs(4), "before the lease would have run out: {took:?}");

    // The last ones that are too old are mended, and the one that is too new is not any more.
    cluster.restart_kubelet("general-4", "v1.37.1").await?;
    says(cluster, "{.status.supported}", "Unknown").await?;
    kubectl(cluster, &["-n", "kube-system", "delete", "daemonset", "kube-proxy-eks"]).await?;
    says(
        cluster,
        "{.status.supported} {.status.conditions[?(@.type=='SkewSupported')].reason}",
        "True AllSupported",
    )
    .await?;
    let reasons = "jsonpath={.items[*].reason}";
    let events = ["get", "events", "--field-selector=involvedObject.kind=ClusterSkewReport", "-o", reasons];
    until("that is told", SOON, async || Ok(kubectl(cluster, &events).await?.contains("SkewResolved"))).await
}

/// What it asked for, by the audit log: nothing that its role does not allow, and little.
fn asked_for(cluster: &Cluster) -> TestResult {
    let log = cluster.audit_log()?;
    let own: Vec<_> = log.iter().filter(|entry| entry.user == USER).collect();
    let refused: Vec<_> = own.iter().filter(|e| e.code == 403).map(|e| e.uri.clone()).collect();
    assert_eq!(refused, Vec::<String>::new(), "its role allows what it does");
    let agents: std::collections::BTreeSet<_> = own.iter().map(|e| e.user_agent.as_str()).collect();
    let agent = format!("evenkeel/{} (linux/", env!("CARGO_PKG_VERSION"));
    assert!(agents.iter().all(|a| a.starts_with(&agent) && a.ends_with(") operator")), "{agents:?}");
    let mut written: Vec<_> = own
        .iter()
        .filter(|e| e.is_write())
        .map(|e| format!("{} {}/{}", e.verb, e.resource, e.subresource))
        .collect();
    written.sort_unstable();
    written.dedup();
    assert_eq!(
        written,
        [
            "create clusterskewreports/",
            "create events/",
            "create leases/",
            "update clusterskewreports/status",
            "update leases/"
        ]
    );
    Ok(())
}
