//! The observer against an in-process cluster of one node.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use evenkeel_core::cluster::Component;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::*;

fn objects(path: &str) -> Option<Vec<Value>> {
    let meta =
        |name: &str| json!({"name": name, "namespace": "kube-system", "uid": name, "resourceVersion": "3"});
    Some(match path {
        "/api/v1/nodes" => vec![json!({
            "metadata": {"name": "n1", "uid": "n1", "resourceVersion": "3"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                       "nodeInfo": {"kubeletVersion": "v1.36.4"}},
        })],
        "/api/v1/namespaces/kube-system/pods" => vec![json!({
            "metadata": meta("kube-proxy-x"),
            "spec": {"nodeName": "n1", "containers": [{"name": "kube-proxy", "image": "kube-proxy:v1.36.4"}]},
        })],
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices" => vec![json!({
            "metadata": meta("kubernetes"),
            "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"name": "https", "port": 6443}],
        })],
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases" => vec![json!({
            "metadata": meta("kube-scheduler"),
            "spec": {"holderIdentity": "elsewhere_1", "renewTime": "2026-11-20T11:59:59.000000Z"},
        })],
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations" => vec![json!({
            "metadata": {"name": "policy", "uid": "w", "resourceVersion": "3"},
            "webhooks": [{"name": "exact.example.com", "matchPolicy": "Exact", "failurePolicy": "Fail",
                          "rules": [{"apiVersions": ["v1"]}]}],
        })],
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations" => Vec::new(),
        // The service account may not read budgets.
        _ => return None,
    })
}

/// A client of a server that serves `LeaseCandidates` if `candidates`, and lets nobody read them.
fn client(candidates: bool) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
        let path = request.uri().path();
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let (code, body) = if path == "/version" {
            let empty = ["gitCommit", "goVersion", "gitTreeState", "buildDate", "compiler", "platform"];
            let mut version: Value = empty.iter().map(|key| ((*key).to_owned(), json!(""))).collect();
            version["gitVersion"] = json!("v1.36.4");
            version["major"] = json!("1");
            version["minor"] = json!("36");
            (200, Body::from(version.to_string()))
        } else if candidates && path == "/apis/coordination.k8s.io/v1beta1" {
            let kind = json!({"name": "leasecandidates", "singularName": "", "namespaced": true,
                "kind": "LeaseCandidate", "verbs": ["list", "watch"]});
            let served = json!({"groupVersion": "coordination.k8s.io/v1beta1", "resources": [kind]});
            (200, Body::from(served.to_string()))
        } else if path == "/readyz" {
            (200, Body::from(b"ok".to_vec()))
        } else if let (Some(objects), false) = (objects(path), is_watch) {
            (200, Body::from(json!({"metadata": {"resourceVersion": "9"}, "items": objects}).to_string()))
        } else if let Some(objects) = objects(path) {
            let events = objects.iter().map(|object| json!({"type": "ADDED", "object": object}));
            let end = json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
            let end =
                json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "X", "metadata": end}});
            let lines: String =
                events.chain([end]).flat_map(|event| [event.to_string(), "\n".to_owned()]).collect();
            let told = stream::once(async move { Ok::<_, Infallible>(Bytes::from(lines)) });
            (200, Body::from_stream(told.chain(stream::pending())))
        } else {
            let status =
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not yours"});
            (403, Body::from(status.to_string()))
        };
        Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_cluster_is_made_of_what_can_be_relied_on() {
    let stop = CancellationToken::new();
    let connect: Connect = Arc::new(|_| Ok(client(false)));
    let observer =
        Observer::start(&client(false), connect, PodScope::KubeSystem, &Shared::until(stop.clone()));
    let mut changes = observer.changes().subscribe();
    let now = "2026-11-20T12:00:00Z".parse().unwrap();
    assert!(observer.cluster(now).is_err(), "nothing is known yet");
    let settled = async {
        loop {
            match observer.cluster(now) {
                Ok((cluster, inventory))
                    if inventory.missing.len() == 1
                        && cluster.instances().len() == 2
                        && !cluster.webhooks().is_empty()
                        && !inventory.leading.is_empty() =>
                {
                    return (cluster, inventory);
                }
                _ => assert!(changes.changed().await),
            }
        }
    };
    let (cluster, inventory) =
        tokio::time::timeout(Duration::from_mins(1), settled).await.expect("ready in time");

    let reason = inventory.reason(Source::Budgets).expect("budgets are named as missing");
    assert!(reason.contains("grant the verbs list and watch on poddisruptionbudgets.policy"), "{reason}");
    let server = cluster.of(Component::KubeApiserver).next().unwrap();
    assert_eq!((server.name.as_ref(), server.version.to_string().as_str()), ("192.0.2.1:6443", "v1.36.4"));
    assert_eq!(server.node.as_deref(), Some("n1"));
    assert_eq!(cluster.pods().count(), 0, "a report needs no pods");
    let webhook = &cluster.webhooks()[0];
    assert!(webhook.exact && webhook.lists_versions && webhook.fails_closed, "{webhook:?}");
    let hidden: Vec<_> = inventory.leading.iter().map(|hidden| hidden.component).collect();
    assert_eq!(hidden, [Component::KubeScheduler], "its lease says that it works");
    assert_eq!(inventory.unseen(), None, "budgets are no components");
    assert!(inventory.is_settled(), "a refusal stays one");
    let standing = observer.standing();
    assert!(
        standing.iter().all(|found| (found.state == SyncState::Synced) == (found.source != Source::Budgets))
    );
}

#[tokio::test]
async fn candidates_that_are_served_and_cannot_be_read_are_named_as_missing() {
    let stop = CancellationToken::new();
    let connect: Connect = Arc::new(|_| Ok(client(true)));
    let observer = Observer::start(&client(true), connect, PodScope::KubeSystem, &Shared::until(stop));
    let mut changes = observer.changes().subscribe();
    let now = "2026-11-20T12:00:00Z".parse().unwrap();
    let grant = "grant the verbs list and watch on leasecandidates.coordination.k8s.io";
    let is_named = |inventory: &Inventory| {
        let of_leases = |missing: &&Missing| missing.source == Source::Leases;
        inventory.missing.iter().filter(of_leases).any(|missing| missing.reason.contains(grant))
    };
    let settled = async {
        while !observer.cluster(now).is_ok_and(|(_, inventory)| is_named(&inventory)) {
            assert!(changes.changed().await);
        }
    };
    tokio::time::timeout(Duration::from_mins(1), settled).await.expect("named in time");
    assert!(observer.standing().iter().any(|found| {
        found.source == Source::Leases && found.state.fault().is_some_and(|why| why.contains(grant))
    }));
}
