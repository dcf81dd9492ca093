//! A report that somebody suspended says so once, keeps what was seen, and is said to be old by its metric.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use evenkeel::operator::{OperatorOptions, operate};
use tokio::task::JoinHandle;

use super::super::replica::{clients, clock, options, page};
use super::*;

/// The operator, in its `start`th process, and where it shows its metrics.
fn operator(
    cluster: &Cluster,
    start: u32,
    stop: &CancellationToken,
) -> (JoinHandle<()>, std::net::SocketAddr) {
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let process = cluster.process("evenkeel-a");
    let options = OperatorOptions { listen, ..options("a", start, false) };
    let running = operate(clients(&process), options, clock(cluster), stop.clone());
    (tokio::spawn(async move { running.await.unwrap() }), listen)
}

/// Status and reason of each condition of `report`, by type; and all messages.
fn conditions(report: &Value) -> (std::collections::BTreeMap<String, String>, String) {
    let all = report["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    let said = all.iter().map(|of| (text(of, "type"), text(of, "status") + " " + &text(of, "reason")));
    (said.collect(), all.iter().map(|of| text(of, "message") + "\n").collect())
}

/// Checks that `report` says of itself, and of this generation, that it is suspended; and that it holds what `before` does.
fn says_so(report: &Value, before: &Value) {
    let (status, was) = (&report["status"], &before["status"]);
    let (said, messages) = conditions(report);
    for (condition, expected) in [
        ("Ready", "Unknown Suspended"),
        ("Reconciling", "False Suspended"),
        ("Stalled", "False Suspended"),
        ("SkewSupported", "Unknown Suspended"),
        ("NextMinorAllowed", "Unknown Suspended"),
        ("InventoryComplete", "Unknown Suspended"),
    ] {
        assert_eq!(said[condition], expected, "{condition}: {status:#}");
    }
    let seen = was["lastObservedTime"].as_str().unwrap();
    assert!(messages.contains(seen) && messages.contains("spec.suspend to false"), "{messages}");
    assert_eq!(status["observedGeneration"], report["metadata"]["generation"]);
    assert_eq!(
        (&status["supported"], &status["nextMinor"]["allowed"]),
        (&json!("Unknown"), &json!("Unknown"))
    );
    for kept in ["server", "kubelets", "components", "findings", "nodes", "apiservers", "lastObservedTime"] {
        assert_eq!(status[kept], was[kept], "{kept}");
    }
}

/// The value of the metric that says when the report was last right.
async fn last_right(listen: std::net::SocketAddr) -> f64 {
    let page = page(listen).await;
    let of = |line: &str| {
        line.strip_prefix("evenkeel_report_last_success_timestamp_seconds{report=\"cluster\"} ")?.parse().ok()
    };
    page.lines().find_map(of).unwrap_or_else(|| panic!("{page}"))
}

#[test]
fn it_says_so_once_and_keeps_what_was_seen() {
    let ((), wrong) = virtually(async || {
        let (cluster, kube) = base().start(1).await;
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        cluster.on_write(move |write| {
            if write.author().starts_with("evenkeel") && write.resource().starts_with("clusterskewreports") {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let stop = CancellationToken::new();
        let (running, listen) = operator(&cluster, 1, &stop);
        sleep(Duration::from_secs(30)).await;
        let before = kube.get(REPORT).await.unwrap();
        assert_eq!(conditions(&before).0["Ready"], "True Fresh");

        kube.merge(REPORT, &json!({"spec": {"suspend": true}})).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        says_so(&kube.get(REPORT).await.unwrap(), &before);
        let (written, right) = (writes.load(Ordering::SeqCst), last_right(listen).await);
        cluster.start_kubelet("old-1", "v1.36.4");
        sleep(Duration::from_mins(10)).await;
        says_so(&kube.get(REPORT).await.unwrap(), &before);
        assert_eq!(writes.load(Ordering::SeqCst), written, "nothing is written again");
        assert!((last_right(listen).await - right).abs() < 0.5, "an alert says that it is old");
        assert!(!page(listen).await.contains("v1.32.2"), "the other metrics go on");

        // What somebody else made of it is taken back.
        kube.merge(&format!("{REPORT}/status"), &json!({"status": {"nodes": 4711}})).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        says_so(&kube.get(REPORT).await.unwrap(), &before);

        stop.cancel();
        running.await.unwrap();
        let (written, stop) = (writes.load(Ordering::SeqCst), CancellationToken::new());
        let (running, listen) = operator(&cluster, 2, &stop);
        sleep(Duration::from_mins(10)).await;
        says_so(&kube.get(REPORT).await.unwrap(), &before);
        assert_eq!(writes.load(Ordering::SeqCst), written, "whoever leads next finds it right");
        assert!(last_right(listen).await < 0.5);

        kube.merge(REPORT, &json!({"spec": {"suspend": false}})).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        let resumed = kube.get(REPORT).await.unwrap();
        let (said, _) = conditions(&resumed);
        assert_eq!(
            (&*said["Ready"], &*said["SkewSupported"]),
            ("True Fresh", "False ControllerManagerNewer")
        );
        assert!(last_right(listen).await > right);
        stop.cancel();
        running.await.unwrap();
    });
    assert_eq!(wrong, Wrong::new());
}

/// From git, before anybody looked.
#[test]
fn a_report_that_was_never_anything_but_suspended_says_that_nothing_was_seen() {
    let ((), wrong) = virtually(async || {
        let (cluster, kube) = base().start(1).await;
        let report = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterSkewReport",
            "metadata": {"name": "cluster"}, "spec": {"suspend": true}});
        let made = kube.create("/apis/evenkeel.dev/v1alpha1/clusterskewreports", &report).await;
        assert_eq!(made["status"]["observedGeneration"], -1, "no tool takes it for done");
        let stop = CancellationToken::new();
        let (running, _) = operator(&cluster, 1, &stop);
        sleep(Duration::from_secs(30)).await;
        let told = kube.get(REPORT).await.unwrap();
        let (said, messages) = conditions(&told);
        assert_eq!(
            (&*said["Ready"], told["status"]["observedGeneration"].as_i64()),
            ("Unknown Suspended", Some(1))
        );
        assert!(messages.contains("before the cluster was looked at"), "{messages}");
        stop.cancel();
        running.await.unwrap();
    });
    assert_eq!(wrong, Wrong::new());
}
