//! What is sent when a claim is made, and when it is moved on.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use evenkeel_core::cluster::Component;
use evenkeel_core::rollout::{AskedExecutor, Before, ClaimState};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;

use super::super::authority::{Authority, Effects};
use super::super::elect::Lessor;
use super::*;
use crate::clock::Clock;

/// Hands whose requests all succeed, and the bodies that they sent.
fn hands() -> (Hands, Arc<Mutex<Vec<serde_json::Value>>>) {
    hands_at(|_| None)
}

/// The same at a server that refuses what is sent to a URI of which `says` has something to say, in these words.
fn hands_at(says: fn(&str) -> Option<String>) -> (Hands, Arc<Mutex<Vec<serde_json::Value>>>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&sent);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let heard = Arc::clone(&heard);
        async move {
            // As much of an object as is read of it.
            let object = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade", "metadata": {"name": "c"}});
            let refusal = says(&request.uri().to_string()).map(|why| {
                let status = kube::core::Status::failure(&why, "Invalid").with_code(422);
                serde_json::to_value(status).unwrap()
            });
            let code = if refusal.is_some() { 422 } else { 200 };
            let body = request.into_body().collect_bytes().await.unwrap();
            heard.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            let answer = Body::from(refusal.unwrap_or(object).to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).unwrap())
        }
    });
    let effects = Effects::new(Client::new(service, "default"));
    let mut lessor = Lessor::default();
    let authority = Authority::Leader(lessor.lets(Duration::from_mins(1)));
    (Hands::new(effects, authority, "executors", Clock::default()), sent)
}

fn upgrade() -> ClusterUpgrade {
    let upgrade = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {"name": "up", "uid": "u"},
        "spec": {"version": "v1.37.1", "controlPlane": {"executor": "x"}, "nodeGroups": [],
            "executors": [{"name": "x", "external": {}}]},
    });
    serde_json::from_value(upgrade).unwrap()
}

fn claim() -> DynamicObject {
    let claim = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade", "metadata": {"name": "c", "generation": 2},
        "spec": {"upgradeName": "up", "component": "kubelet", "nodeName": "n", "fromVersion": "v1.36.4",
                 "toVersion": "v1.37.1", "executor": "x"},
        "status": {"conditions": [{"type": "Reconciling", "status": "True", "reason": "Claimed", "message": "",
                                   "lastTransitionTime": "2026-11-02T09:00:00Z"}]},
    });
    serde_json::from_value(claim).unwrap()
}

fn next(state: ClaimState) -> NextState {
    NextState { state, attempt: 1, message: "why".to_owned(), blockers: Vec::new(), job: None }
}

/// Whoever deletes a claim would otherwise take it from under an executor that works.
#[tokio::test]
async fn a_claim_is_made_with_our_finalizer() {
    let (hands, sent) = hands();
    let subject = Subject {
        component: Component::Kubelet,
        components: Vec::new(),
        node: "n-1".into(),
        node_uid: "uid-n-1".into(),
        from: "v1.36.4".into(),
        to: "v1.37.1".parse().unwrap(),
        executor: "x".into(),
    };
    let made = hands.create_claim(&upgrade(), "up.kubelet.n-1", &subject).await;
    assert!(matches!(made, Ok(Outcome::Claim(_))), "{made:?}");
    let metadata = sent.lock().unwrap()[0]["metadata"].clone();
    assert_eq!(metadata["finalizers"], json!([FINALIZER]));
    assert_eq!(metadata["ownerReferences"][0]["uid"], "u");
}

/// How the claim stands goes with its state: it costs no request of its own.
#[tokio::test]
async fn the_write_of_a_state_has_its_conditions_and_generation() {
    let (hands, sent) = hands();
    let state = ClaimState::Draining { since: Timestamp::UNIX_EPOCH, stalled: None };
    let recorded = hands.record(&upgrade(), &claim(), "7", next(state), None).await;
    assert!(matches!(recorded, Ok(Outcome::Claim(_))), "{recorded:?}");
    let sent = sent.lock().unwrap().clone();
    let status = &sent[0]["status"];
    assert_eq!(
        (&sent[0]["metadata"]["resourceVersion"], &status["observedGeneration"]),
        (&json!("7"), &json!(2))
    );
    let reconciling = status["conditions"].as_array().unwrap().iter().find(|of| of["type"] == "Reconciling");
    let reconciling = reconciling.unwrap();
    assert_eq!((&reconciling["status"], &reconciling["reason"]), (&json!("True"), &json!("Draining")));
    assert_eq!(reconciling["lastTransitionTime"], "2026-11-02T09:00:00Z", "it is so since then");
    // A merge patch keeps what it does not name, and what an earlier attempt left is no longer so.
    for old in ["job", "observedTime", "staticPodsBefore", "deadlineTime", "executorKind", "retryTime"] {
        assert_eq!(status.get(old), Some(&json!(null)), "{old}");
    }
}

/// Without its deadline, or what there was before, a claim would be taken for another one, and no later write would
/// mend that.
#[tokio::test]
async fn a_state_that_the_server_would_cut_is_not_recorded() {
    // As a kube-apiserver answers whose definition is of another version. Unless it is asked so, it drops the field.
    let (hands, _) = hands_at(|uri| {
        let object = r#""{\"status\":{\"deadlineTime\":\"2026-11-02T10:00:00Z\"}}""#;
        let fields = r#"unknown field "status.deadlineTime", unknown field "status.executorKind""#;
        let why =
            || format!(" \"\" is invalid: patch: Invalid value: {object}: strict decoding error: {fields}");
        uri.contains("fieldValidation=Strict").then(why)
    });
    let asked = AskedExecutor { job: true, until: Timestamp::UNIX_EPOCH };
    let before = Before { asked: Some(asked), ..Before::default() };
    let state = ClaimState::Upgrading { since: Timestamp::UNIX_EPOCH, before, observed: None };
    let Err(Stop::Refused(what, why)) = hands.record(&upgrade(), &claim(), "7", next(state), None).await
    else {
        panic!("it is recorded");
    };
    assert_eq!(what, "record NodeUpgrade c");
    let remedy = "is of another version; install this one's with kubectl apply -k config/crd";
    let definition = "its CustomResourceDefinition nodeupgrades.evenkeel.dev";
    assert_eq!(why, format!("the server does not know status.deadlineTime: {definition} {remedy}"));
}
