//! What a survey makes of lists that the server refuses, or breaks off.

use std::convert::Infallible;

use http::Response;
use kube::client::Body;
use serde_json::{Value, json};

use evenkeel_core::cluster::Owner;

use super::*;

/// A server that has two pages of one object each of everything, and refuses `refused`: all of it, or the second page.
fn client(refused: &'static str, from_page: usize) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| async move {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        let page = if query.contains("continue=") { 2 } else { 1 };
        let resource = path.rsplit('/').next().unwrap_or_default();
        let (code, body) = if resource == refused && page >= from_page {
            (403, json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not yours"}))
        } else {
            (200, list(resource, page))
        };
        Ok::<_, Infallible>(
            Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap(),
        )
    });
    Client::new(service, "default")
}

fn list(resource: &str, page: usize) -> Value {
    let (api_version, kind, rest) = match resource {
        "persistentvolumes" => ("v1", "PersistentVolume", json!({"spec": {}})),
        "namespaces" => ("v1", "Namespace", json!({})),
        "resourcequotas" => ("v1", "ResourceQuota", json!({})),
        "deployments" => ("apps/v1", "Deployment", json!({"spec": {"replicas": 2}})),
        "jobs" => ("batch/v1", "Job", json!({})),
        "validatingwebhookconfigurations" => {
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", json!({}))
        }
        "mutatingwebhookconfigurations" => {
            ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", json!({}))
        }
        _ => return json!({"metadata": {}, "items": []}),
    };
    let mut object = rest;
    object["metadata"] = json!({"name": format!("one-{page}"), "namespace": "shop"});
    let next = if page == 1 { json!({"continue": "next"}) } else { json!({}) };
    json!({"kind": format!("{kind}List"), "apiVersion": api_version, "metadata": next, "items": [object]})
}

/// Which parts of the surroundings were read.
fn read(cluster: &Cluster) -> [bool; 5] {
    let found = cluster.surroundings();
    [
        found.volumes.is_some(),
        found.terminating.is_some(),
        found.full_quotas.is_some(),
        found.autoscalers.is_some(),
        found.pod_webhooks.is_some(),
    ]
}

#[tokio::test]
async fn what_the_server_refuses_was_not_read() {
    for (refused, parts) in [
        ("nothing", [true; 5]),
        ("persistentvolumes", [false, true, true, true, true]),
        ("namespaces", [true, false, true, true, true]),
        ("resourcequotas", [true, true, false, true, true]),
        ("horizontalpodautoscalers", [true, true, true, false, true]),
        ("validatingwebhookconfigurations", [true, true, true, true, false]),
    ] {
        for from_page in [1, 2] {
            // Of an empty list there is one page.
            let whole = from_page == 2 && refused == "horizontalpodautoscalers";
            let survey = Survey::of_cluster(&client(refused, from_page)).await.unwrap();
            let expected = if whole { [true; 5] } else { parts };
            assert_eq!(read(&survey.cluster()), expected, "{refused} from page {from_page}");
            let told =
                survey.missing().iter().any(|line| line.starts_with(&format!("cannot list {refused}")));
            assert_eq!(told, expected != [true; 5], "{:?}", survey.missing());
        }
    }
    let volumes = Survey::of_volumes(&client("persistentvolumes", 2)).await;
    assert_eq!(volumes.cluster().surroundings().volumes, None);
}

#[tokio::test]
async fn a_kind_of_controllers_that_was_read_in_part_was_not_read() {
    let gone = |kind: &str| Owner { kind: kind.into(), ..owner() };
    for (refused, from_page, known) in
        [("nothing", 1, [true, true]), ("deployments", 1, [false, true]), ("deployments", 2, [false, true])]
    {
        let survey = Survey::of_cluster(&client(refused, from_page)).await.unwrap();
        let cluster = survey.cluster();
        let is_gone = |kind: &str| cluster.surroundings().is_gone(&"shop".into(), &gone(kind));
        assert_eq!([is_gone("Deployment"), is_gone("Job")], known, "{refused} from page {from_page}");
    }
}

/// One that does not exist.
fn owner() -> Owner {
    let api_version = "apps/v1".into();
    Owner { api_version, kind: "Deployment".into(), name: "none".into(), uid: "none".into() }
}
