//! What a test does to a development cluster looks through the API as it would in production.

use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, TestResult, V1_36, V1_37, in_namespace};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};

/// Waits up to 90 seconds until `probe` is true. An error is "not yet": whoever kills an apiserver must expect some.
async fn until(what: &str, mut probe: impl AsyncFnMut() -> Result<bool, Failure>) -> TestResult {
    let started = Instant::now();
    while !probe().await.unwrap_or(false) {
        if started.elapsed() > Duration::from_secs(90) {
            return Err(Failure::new(format!("90 seconds later, still not: {what}")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{what}: after {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

async fn node(cluster: &Cluster, name: &str) -> Result<(String, String, Vec<String>), Failure> {
    let api: Api<Node> = Api::all(cluster.client());
    let node = api.get(name).await?;
    let status = node.status.unwrap_or_default();
    let ready = status.conditions.unwrap_or_default().into_iter().find(|c| c.type_ == "Ready");
    let taints = node.spec.and_then(|s| s.taints).unwrap_or_default().into_iter().map(|t| t.key).collect();
    Ok((
        ready.map(|c| c.status).unwrap_or_default(),
        status.node_info.unwrap_or_default().kubelet_version,
        taints,
    ))
}

async fn pod(cluster: &Cluster, name: &str) -> Result<(bool, i32, String), Failure> {
    let api: Api<Pod> = Api::namespaced(cluster.client(), "kube-system");
    let Some(pod) = api.get_opt(name).await? else { return Ok((false, 0, String::new())) };
    let uid = pod.uid().unwrap_or_default();
    let status = pod.status.unwrap_or_default();
    let ready =
        status.conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let restarts = status.container_statuses.unwrap_or_default().first().map_or(0, |c| c.restart_count);
    Ok((ready, restarts, uid))
}

#[test]
fn nodes_behave() -> TestResult {
    in_namespace("nodes_behave", async || {
        let cluster = Cluster::builder()
            .apiservers(&[V1_36])
            .nodes(NodeGroup::workers(2).kubelet("v1.34.9-eks-1234567"))
            .start()
            .await?;
        let (ready, version, taints) = node(&cluster, "worker-1").await?;
        assert_eq!((ready.as_str(), version.as_str(), taints), ("True", "v1.34.9-eks-1234567", vec![]));

        cluster.set_node_ready("worker-1", false).await?;
        until("the controller taints a node that is not ready", async || {
            Ok(node(&cluster, "worker-1").await?.2.iter().any(|t| t == "node.kubernetes.io/not-ready"))
        })
        .await?;
        // Long enough for the lease to be renewed: that must not make the node ready.
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(node(&cluster, "worker-1").await?.0, "False");
        cluster.set_node_ready("worker-1", true).await?;
        until("the taint is gone again", async || Ok(node(&cluster, "worker-1").await?.2.is_empty())).await?;

        let away = Duration::from_millis(1500);
        let (restarted, seen) =
            futures::join!(cluster.restart_kubelet_within("worker-2", "v1.36.4", away), async {
                tokio::time::sleep(away / 2).await;
                node(&cluster, "worker-2").await
            });
        restarted?;
        let (ready, version, _) = seen?;
        assert_eq!((ready.as_str(), version.as_str()), ("False", "v1.34.9-eks-1234567"));
        let (ready, version, _) = node(&cluster, "worker-2").await?;
        assert_eq!((ready.as_str(), version.as_str()), ("True", "v1.36.4"));

        let names = cluster.add_nodes(&NodeGroup::workers(1)).await?;
        assert_eq!(names, ["worker-3"]);
        cluster.remove_node("worker-3").await?;
        assert!(node(&cluster, "worker-3").await.is_err());
        let names = cluster.add_nodes(&NodeGroup::workers(2)).await?;
        assert_eq!(names, ["worker-4", "worker-5"]);

        cluster.apply(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jobs.yaml")).await?;
        let jobs: Api<Job> = Api::namespaced(cluster.client(), "default");
        for (name, wanted) in [("works", "Complete"), ("fails", "Failed")] {
            until(&format!("job {name} is {wanted}"), async || {
                let conditions = jobs.get(name).await?.status.and_then(|s| s.conditions).unwrap_or_default();
                Ok(conditions.iter().any(|c| c.type_ == wanted && c.status == "True"))
            })
            .await?;
        }

        let kubeconfig = cluster.service_account_kubeconfig("default", "default").await?;
        let client = cluster.client_from(&kubeconfig).await?;
        let denied = Api::<Node>::all(client).list(&ListParams::default()).await;
        assert!(
            matches!(denied, Err(kube::Error::Api(s)) if s.code == 403),
            "a service account has no rights"
        );
        let log = cluster.audit_log()?;
        let denied = log.iter().find(|e| e.code == 403 && e.resource == "nodes");
        assert_eq!(denied.map(|e| e.user.as_str()), Some("system:serviceaccount:default:default"));

        let output = cluster.kubectl(&["get", "nodes", "--no-headers"]).await?;
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 5);
        Ok(())
    })
}

/// How many pods of tests/web.yaml are ready.
async fn ready_pods(cluster: &Cluster) -> Result<usize, Failure> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let list = pods.list(&ListParams::default().labels("app=web")).await?.items;
    let conditions = list.iter().flat_map(|p| p.status.iter().flat_map(|s| s.conditions.iter().flatten()));
    Ok(conditions.filter(|c| c.type_ == "Ready" && c.status == "True").count())
}

#[test]
fn a_silent_kubelet_is_noticed_and_forgiven() -> TestResult {
    in_namespace("a_silent_kubelet_is_noticed_and_forgiven", async || {
        let cluster = Cluster::builder().apiservers(&[V1_37]).nodes(NodeGroup::workers(1)).start().await?;
        cluster.apply(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/web.yaml")).await?;
        until("all pods are ready", async || Ok(ready_pods(&cluster).await? == 6)).await?;
        cluster.stop_kubelet("worker-1").await?;
        until("the node is unknown", async || Ok(node(&cluster, "worker-1").await?.0 == "Unknown")).await?;
        until("its pods are given up", async || Ok(ready_pods(&cluster).await? == 0)).await?;
        cluster.start_kubelet("worker-1").await?;
        assert_eq!(ready_pods(&cluster).await?, 6);
        until("the node is whole again", async || {
            let (ready, _, taints) = node(&cluster, "worker-1").await?;
            Ok(ready == "True" && taints.is_empty())
        })
        .await?;
        assert_eq!(ready_pods(&cluster).await?, 6);
        Ok(())
    })
}

#[test]
fn components_behave() -> TestResult {
    in_namespace("components_behave", async || {
        let cluster = Cluster::builder().apiservers(&[V1_36, V1_37]).controller_replicas(2).start().await?;
        let server = cluster.apiserver(0);

        let before = pod(&cluster, "kube-apiserver-cp-1").await?;
        let process = server.process_id();
        server.kill().await?;
        until("a killed apiserver is started again", async || {
            let (ready, restarts, uid) = pod(&cluster, "kube-apiserver-cp-1").await?;
            Ok(ready && restarts == 1 && uid == before.2 && server.process_id() != process)
        })
        .await?;

        server.stop().await?;
        assert_eq!(server.process_id(), None);
        assert!(!pod(&cluster, "kube-apiserver-cp-1").await?.0, "a stopped component is not ready");
        for _ in 0..5 {
            cluster.client().apiserver_version().await?;
        }
        server.start().await?;
        assert!(pod(&cluster, "kube-apiserver-cp-1").await?.0);

        server.pause().await?;
        until("a paused apiserver is seen as unhealthy", async || Ok(!server.is_healthy())).await?;
        until("so does its mirror pod", async || Ok(!pod(&cluster, "kube-apiserver-cp-1").await?.0)).await?;
        server.resume().await?;
        until("it is back", async || Ok(pod(&cluster, "kube-apiserver-cp-1").await?.0)).await?;

        let pods: Api<Pod> = Api::namespaced(cluster.client(), "kube-system");
        let before = pod(&cluster, "kube-scheduler-cp-2").await?;
        pods.delete("kube-scheduler-cp-2", &DeleteParams::default()).await?;
        until("a deleted mirror pod is made again", async || {
            let (ready, _, uid) = pod(&cluster, "kube-scheduler-cp-2").await?;
            Ok(ready && uid != before.2)
        })
        .await?;

        for handle in [cluster.controller_manager(0), cluster.scheduler(1)] {
            let started = Instant::now();
            handle.swap(V1_36).await?;
            println!("{} swapped in {:.1} s", handle.name(), started.elapsed().as_secs_f64());
        }
        let error = cluster.apiserver(2).stop().await.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("kube-apiserver-cp-3") && error.contains("runs 2"), "{error}");
        let scratch = cluster.kubeconfig().to_owned();
        drop(cluster);
        assert!(!Path::new(&scratch).exists(), "files were left behind");
        Ok(())
    })
}
