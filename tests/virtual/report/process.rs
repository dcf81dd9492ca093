//! The operator as a process: whatever is wrong with the cluster it waits for, alive, and goes on in the same process when
//! that is over.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use evenkeel::operator::operate;
use tokio::task::JoinHandle;

use super::super::replica::{clients, clock, options};
use super::*;

const OURS: [&str; 2] = ["evenkeel-a", "evenkeel-a-lease"];

/// The operator, started once.
fn start(cluster: &Cluster, stop: &CancellationToken) -> JoinHandle<Result<(), String>> {
    let process = cluster.process("evenkeel-a");
    let running = operate(clients(&process), options("a", 1, false), clock(cluster), stop.clone());
    tokio::spawn(async move { running.await.map_err(|error| error.to_string()) })
}

/// What the report says of the kubelet `version`.
async fn reported(kube: &Kube, version: &str) -> bool {
    let report = kube.get(REPORT).await.unwrap_or_default();
    let rows = report["status"]["components"].as_array().cloned().unwrap_or_default();
    rows.iter().any(|row| row["component"] == "kubelet" && row["version"] == version)
}

#[test]
fn it_waits_for_its_apiserver_and_for_its_definitions() {
    let ((), wrong) = virtually(async || {
        let cluster = Cluster::builder().seed(1).version("v1.37.1").start();
        let kube = Kube(cluster.client_of("kubectl"));
        cluster.add_control_plane(&NodeGroup::new("cp", 1).kubelet("v1.37.1"), "v1.37.1");
        let stop = CancellationToken::new();
        cluster.faults().blackout_of(&OURS, Duration::from_mins(1));
        let mut running = start(&cluster, &stop);
        sleep(Duration::from_secs(59)).await;
        assert!(!running.is_finished(), "without an apiserver it waits");
        sleep(Duration::from_secs(31)).await;
        assert!(!running.is_finished(), "without its definitions it waits");
        kube.install().await;
        sleep(Duration::from_secs(40)).await;
        assert!(reported(&kube, "v1.37.1").await, "then it does its work");
        stop.cancel();
        assert_eq!((&mut running).await.unwrap(), Ok(()));

        // And what waits can be told to stop.
        let stop = CancellationToken::new();
        cluster.faults().blackout_of(&OURS, Duration::from_hours(1));
        let running = start(&cluster, &stop);
        sleep(Duration::from_secs(5)).await;
        stop.cancel();
        assert_eq!(running.await.unwrap(), Ok(()));
    });
    assert_eq!(wrong, Wrong::new());
}

#[test]
fn whoever_lost_the_lease_leads_again_in_the_same_process() {
    let ((), wrong) = virtually(async || {
        let (cluster, kube) = base().start(1).await;
        let (writes, away) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, gone) = (Arc::clone(&writes), Arc::clone(&away));
        cluster.on_write(move |write| {
            if write.author().starts_with("evenkeel") && gone.load(Ordering::SeqCst) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let stop = CancellationToken::new();
        let running = start(&cluster, &stop);
        sleep(Duration::from_secs(30)).await;
        assert!(reported(&kube, "v1.32.2").await);

        away.store(true, Ordering::SeqCst);
        cluster.faults().blackout_of(&OURS, Duration::from_secs(40));
        cluster.start_kubelet("old-1", "v1.36.4");
        sleep(Duration::from_secs(39)).await;
        assert!(!running.is_finished(), "it lost the lease long ago");
        assert_eq!(writes.load(Ordering::SeqCst), 0);
        away.store(false, Ordering::SeqCst);
        sleep(Duration::from_secs(40)).await;
        assert!(!reported(&kube, "v1.32.2").await, "it leads again, and the report is right");
        let lease = kube.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/evenkeel").await;
        assert_eq!(lease.unwrap()["spec"]["holderIdentity"], "a_1");
        stop.cancel();
        assert_eq!(running.await.unwrap(), Ok(()));
    });
    assert_eq!(wrong, Wrong::new());
}
