//! The development cluster is what it says it is: several real apiservers of chosen minors, controllers that
//! lead, nodes that look like nodes, and evictions that answer as production's do.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{
    Cluster, Failure, Handle, NodeGroup, Release, TestResult, V1_36, V1_37, in_namespace,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::Eviction;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};

#[test]
fn cluster_starts() -> TestResult {
    in_namespace("cluster_starts", async || {
        let started = Instant::now();
        let cluster = Cluster::builder()
            .apiservers(&[V1_36, V1_36, V1_36])
            .nodes(NodeGroup::workers(6).zones(["a", "b", "c"]).kubelet("v1.36.4").pool("general"))
            .start()
            .await?;
        println!("started in {:.1} s", started.elapsed().as_secs_f64());

        three_apiservers(&cluster, [V1_36, V1_36, V1_36]).await?;
        let before = static_pod(&cluster, "kube-apiserver-cp-1").await?;

        swap(cluster.apiserver(0)).await?;
        three_apiservers(&cluster, [V1_37, V1_36, V1_36]).await?;
        let after = static_pod(&cluster, "kube-apiserver-cp-1").await?;
        assert_ne!(before.uid(), after.uid(), "a changed static pod is another pod");
        evictions(&cluster).await?;

        // Controllers come after the last apiserver: one that is newer than its apiserver waits for APIs that
        // are not there, and does nothing.
        swap(cluster.apiserver(1)).await?;
        swap(cluster.apiserver(2)).await?;
        swap(cluster.controller_manager(0)).await?;
        swap(cluster.scheduler(0)).await?;
        three_apiservers(&cluster, [V1_37, V1_37, V1_37]).await?;
        for name in ["kube-controller-manager-cp-1", "kube-scheduler-cp-1"] {
            let pod = static_pod(&cluster, name).await?;
            assert!(image(&pod).ends_with(V1_37.version()), "{name}: {}", image(&pod));
        }

        drop(cluster);
        let left = processes();
        assert!(left.is_empty(), "left behind: {left:?}");
        Ok(())
    })
}

async fn swap(handle: Handle<'_>) -> TestResult {
    let started = Instant::now();
    handle.swap(V1_37).await?;
    println!("{} swapped in {:.1} s", handle.name(), started.elapsed().as_secs_f64());
    Ok(())
}

async fn three_apiservers(cluster: &Cluster, releases: [Release; 3]) -> TestResult {
    let client = cluster.client();
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let endpoints = slices.get("kubernetes").await?.endpoints.unwrap_or_default();
    let addresses: BTreeSet<_> = endpoints.into_iter().flat_map(|e| e.addresses).collect();
    assert_eq!(addresses, ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(String::from).into());

    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let identity = ListParams::default().labels("apiserver.kubernetes.io/identity=kube-apiserver");
    let hosts: BTreeSet<_> = leases
        .list(&identity)
        .await?
        .items
        .into_iter()
        .filter_map(|l| l.labels().get("kubernetes.io/hostname").cloned())
        .collect();
    assert_eq!(hosts, ["cp-1", "cp-2", "cp-3"].map(String::from).into());

    for (index, release) in releases.into_iter().enumerate() {
        let direct = cluster.apiserver(index).client().await?;
        assert_eq!(direct.apiserver_version().await?.git_version, release.version());
        let pod = static_pod(cluster, &format!("kube-apiserver-cp-{}", index + 1)).await?;
        assert!(image(&pod).ends_with(release.version()), "{}", image(&pod));
    }
    let nodes: Api<Node> = Api::all(client);
    assert_eq!(nodes.list(&ListParams::default()).await?.items.len(), 9);
    Ok(())
}

/// A static pod that is Running and Ready.
async fn static_pod(cluster: &Cluster, name: &str) -> Result<Pod, Failure> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "kube-system");
    let pod = pods.get(name).await?;
    assert!(ready(&pod), "{name} is not ready: {:?}", pod.status);
    Ok(pod)
}

fn image(pod: &Pod) -> String {
    let container = pod.spec.as_ref().and_then(|s| s.containers.first());
    container.and_then(|c| c.image.clone()).unwrap_or_default()
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Six pods of which five must be available: one eviction is granted, the next only after the replacement.
async fn evictions(cluster: &Cluster) -> TestResult {
    let started = Instant::now();
    cluster.apply(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/web.yaml")).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let of_web = ListParams::default().labels("app=web");
    let first = loop {
        if started.elapsed() > Duration::from_mins(1) {
            return Err(Failure::new("the six pods did not become ready in a minute"));
        }
        let list = pods.list(&of_web).await?.items;
        if list.len() == 6 && list.iter().all(ready) {
            break list;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    println!("six pods ready after {:.1} s", started.elapsed().as_secs_f64());
    let names: Vec<_> = first.iter().map(kube::ResourceExt::name_any).collect();

    // The budget counts the pods a moment after they are ready.
    while evict(&cluster.client(), &names[0]).await? != 201 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(evict(&cluster.client(), &names[1]).await?, 429, "the budget was spent");
    let spent = Instant::now();
    while evict(&cluster.client(), &names[1]).await? != 201 {
        assert!(spent.elapsed() < Duration::from_secs(30), "the replacement never counted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("the budget was back after {:.1} s", spent.elapsed().as_secs_f64());
    let evicted = cluster.audit_log()?;
    let evicted = evicted.iter().filter(|e| e.subresource == "eviction" && e.code == 201).count();
    assert_eq!(evicted, 2, "the audit log shows both granted evictions");
    Ok(())
}

async fn evict(client: &Client, name: &str) -> Result<u16, Failure> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let body = Eviction {
        metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        ..Default::default()
    };
    let answer: kube::Result<kube::core::Status> =
        pods.create_subresource("eviction", name, &PostParams::default(), &body).await;
    match answer {
        Ok(status) => Ok(status.code.max(201)),
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => Err(error.into()),
    }
}

/// The command lines of every live process in this PID namespace but this one.
fn processes() -> Vec<String> {
    let own = std::process::id().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec!["/proc cannot be read".to_owned()] };
    entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()) && *name != own)
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok())
        .filter(|line| !line.is_empty())
        .collect()
}
