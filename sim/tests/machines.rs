//! Control planes and kubelets, and the programs of pods: what a version change looks like from outside.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_sim::{Cluster, Deed, NodeGroup};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

fn run(test: impl AsyncFnOnce(Cluster, Client)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::builder().seed(3).start();
        let client = cluster.client();
        test(cluster, client).await;
    });
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

async fn addresses(client: &Client) -> Vec<String> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let slice = slices.get("kubernetes").await.unwrap();
    slice.endpoints.unwrap_or_default().into_iter().flat_map(|endpoint| endpoint.addresses).collect()
}

#[test]
fn every_apiserver_answers_for_itself() {
    run(async |cluster, client| {
        cluster.add_control_plane(&NodeGroup::new("cp", 3), "v1.36.4");
        cluster.replace_component("cp-2", "kube-apiserver", "v1.37.1");
        seconds(5).await;
        assert_eq!(addresses(&client).await, ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        let process = cluster.process("test");
        let mut versions = Vec::new();
        for address in cluster.control_plane().addresses() {
            versions.push(process.client_at(&address).apiserver_version().await.unwrap().git_version);
        }
        assert_eq!(versions, ["v1.36.4", "v1.37.1", "v1.36.4"]);
        assert!(cluster.run_component("cp-1", "kube-apiserver", false));
        assert!(process.client_at("192.0.2.1:6443").apiserver_version().await.is_err());
        assert_eq!(addresses(&client).await, ["192.0.2.2", "192.0.2.3"]);
    });
}

#[test]
fn static_pods_are_shown_and_come_back() {
    run(async |cluster, client| {
        cluster.add_control_plane(&NodeGroup::new("cp", 1), "v1.36.4");
        seconds(5).await;
        let pods: Api<Pod> = Api::namespaced(client, "kube-system");
        let image = async || {
            let pod = pods.get("kube-scheduler-cp-1").await.unwrap();
            (pod.uid().unwrap(), pod.spec.unwrap().containers[0].image.clone().unwrap())
        };
        let (first, before) = image().await;
        assert_eq!(before, "registry.k8s.io/kube-scheduler:v1.36.4");
        cluster.replace_component("cp-1", "kube-scheduler", "v1.37.1");
        let (second, after) = image().await;
        assert!(first != second && after.ends_with(":v1.37.1"));
        pods.delete("kube-scheduler-cp-1", &kube::api::DeleteParams::default().grace_period(0))
            .await
            .unwrap();
        seconds(5).await;
        assert_ne!(image().await.0, second);
    });
}

#[test]
fn a_leader_that_ends_is_followed_by_another() {
    run(async |cluster, client| {
        cluster.add_control_plane(&NodeGroup::new("cp", 2), "v1.36.4");
        seconds(5).await;
        let leases: Api<Lease> = Api::namespaced(client, "kube-system");
        let holder = async || {
            let spec = leases.get("kube-controller-manager").await.unwrap().spec.unwrap();
            (spec.holder_identity.unwrap(), spec.lease_transitions.unwrap_or(0))
        };
        let (first, _) = holder().await;
        assert!(first.starts_with("cp-1_"), "{first}");
        cluster.run_component("cp-1", "kube-controller-manager", false);
        seconds(10).await;
        assert_eq!(holder().await.0, first, "its lease has to expire");
        seconds(10).await;
        let (second, transitions) = holder().await;
        assert!(second.starts_with("cp-2_") && transitions == 1, "{second} {transitions}");
        let identity = ListParams::default().labels("apiserver.kubernetes.io/identity=kube-apiserver");
        assert_eq!(leases.list(&identity).await.unwrap().items.len(), 2);
    });
}

#[test]
fn a_controller_that_comes_late_does_nothing_until_then() {
    run(async |cluster, client| {
        cluster.add_control_plane(&NodeGroup::new("cp", 1), "v1.36.4");
        seconds(5).await;
        let plane = cluster.control_plane();
        plane.set_late(Duration::from_mins(1));
        plane.set_gives_up();
        let manager = "kube-controller-manager";
        assert!(plane.works(manager));
        cluster.replace_component("cp-1", manager, "v1.37.1");
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
        let holder = async || leases.get(manager).await.unwrap().spec.unwrap().holder_identity.unwrap();
        assert_eq!((holder().await, plane.works(manager)), (String::new(), false), "it gave its lease up");
        let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
        jobs.create(&PostParams::default(), &job("late", "cp-1")).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(client, "default");
        let pods = async || pods.list(&ListParams::default()).await.unwrap().items.len();
        seconds(50).await;
        assert_eq!((holder().await, plane.works(manager), pods().await), (String::new(), false, 0));
        assert!(plane.works("kube-scheduler"));
        seconds(15).await;
        assert_eq!((plane.works(manager), pods().await), (true, 1));
        assert!(holder().await.starts_with("cp-1_"));
    });
}

fn job(name: &str, node: &str) -> Job {
    let template = json!({"metadata": {"labels": {"job": name}}, "spec": {"nodeName": node, "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "registry.example/upgrade:1"}]}});
    serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}}),
    )
    .unwrap()
}

#[test]
fn a_job_upgrades_the_kubelet_of_its_node() {
    run(async |cluster, client| {
        cluster.add_nodes(&NodeGroup::new("w", 3).kubelet("v1.36.4"));
        cluster.kubelets().set_program(|pod: &Value| match pod["metadata"]["labels"]["job"].as_str() {
            Some("good") => Deed::Kubelet("v1.37.1".into()),
            Some("bad") => Deed::Fail,
            Some("lost") => Deed::EndKubelet,
            _ => Deed::Succeed,
        });
        seconds(15).await;
        let jobs: Api<Job> = Api::default_namespaced(client.clone());
        for (name, node) in [("good", "w-1"), ("bad", "w-2"), ("lost", "w-3")] {
            jobs.create(&PostParams::default(), &job(name, node)).await.unwrap();
        }
        seconds(180).await;
        let nodes: Api<Node> = Api::all(client);
        let mut seen = Vec::new();
        for name in ["w-1", "w-2", "w-3"] {
            let status = nodes.get(name).await.unwrap().status.unwrap();
            let ready = status.conditions.unwrap().into_iter().find(|found| found.type_ == "Ready").unwrap();
            seen.push((status.node_info.unwrap().kubelet_version, ready.status));
        }
        let wanted = [("v1.37.1", "True"), ("v1.36.4", "True"), ("v1.36.4", "Unknown")];
        assert_eq!(seen, wanted.map(|(version, ready)| (version.to_owned(), ready.to_owned())));
        let ended = async |name: &str| {
            let status = jobs.get(name).await.unwrap().status.unwrap();
            (status.succeeded.unwrap_or(0), status.failed.unwrap_or(0))
        };
        assert_eq!((ended("good").await, ended("bad").await), ((1, 0), (0, 1)));
    });
}

/// It starts the pods that came to its node while it was away, and ends those that were deleted, even if nobody noticed
/// that it was away.
#[test]
fn a_kubelet_that_is_back_goes_on_with_its_pods() {
    run(async |cluster, client| {
        cluster.add_nodes(&NodeGroup::new("w", 1));
        seconds(15).await;
        let pods: Api<Pod> = Api::default_namespaced(client);
        let pod = |name: &str| -> Pod {
            let spec =
                json!({"nodeName": "w-1", "containers": [{"name": "c", "image": "registry.example/c:1"}]});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
        };
        pods.create(&PostParams::default(), &pod("leaves")).await.unwrap();
        seconds(30).await;
        cluster.kubelets().stop("w-1");
        pods.delete("leaves", &DeleteParams::default()).await.unwrap();
        pods.create(&PostParams::default(), &pod("comes")).await.unwrap();
        seconds(3).await;
        cluster.start_kubelet("w-1", "v1.37.1");
        seconds(60).await;
        assert!(pods.get_opt("leaves").await.unwrap().is_none());
        let phase = pods.get("comes").await.unwrap().status.unwrap().phase;
        assert_eq!(phase.as_deref(), Some("Running"));
    });
}

#[test]
fn an_image_that_no_registry_has_keeps_a_pod_pending() {
    run(async |cluster, client| {
        cluster.add_nodes(&NodeGroup::new("w", 1));
        seconds(15).await;
        cluster.kubelets().set_missing("registry.example/c:2", true);
        let pods: Api<Pod> = Api::default_namespaced(client);
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "w-1", "containers": [{"name": "c", "image": "registry.example/c:2"}]}}),
        )
        .unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        seconds(60).await;
        let status = async || pods.get("p").await.unwrap().status.unwrap();
        let waiting = status().await.container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("ImagePullBackOff"));
        cluster.kubelets().set_missing("registry.example/c:2", false);
        seconds(60).await;
        assert_eq!(status().await.phase.as_deref(), Some("Running"));
    });
}
