//! What is sent when a claim is made.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use evenkeel_core::cluster::Component;
use kube::Client;
use kube::client::Body;

use super::super::authority::{Authority, Effects};
use super::super::elect::Lessor;
use super::*;
use crate::clock::Clock;

/// Whoever deletes a claim would otherwise take it from under an executor that works.
#[tokio::test]
async fn a_claim_is_made_with_our_finalizer() {
    let sent = Arc::new(Mutex::new(serde_json::Value::Null));
    let heard = Arc::clone(&sent);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let heard = Arc::clone(&heard);
        async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            *heard.lock().unwrap() = serde_json::from_slice(&body).unwrap();
            Ok::<_, Infallible>(http::Response::new(Body::from(body.to_vec())))
        }
    });
    let effects = Effects::new(Client::new(service, "default"));
    let mut lessor = Lessor::default();
    let authority = Authority::Leader(lessor.lets(Duration::from_mins(1)));
    let hands = Hands::new(effects, authority, "executors", Clock::default());
    let upgrade = serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {"name": "up", "uid": "u"},
        "spec": {"version": "v1.37.1", "controlPlane": {"executor": "x"}, "nodeGroups": [],
            "executors": [{"name": "x", "external": {}}]},
    }));
    let subject = Subject {
        component: Component::Kubelet,
        components: Vec::new(),
        node: "n-1".into(),
        node_uid: "uid-n-1".into(),
        from: "v1.36.4".into(),
        to: "v1.37.1".parse().unwrap(),
        executor: "x".into(),
    };
    let made = hands.create_claim(&upgrade.unwrap(), "up.kubelet.n-1", &subject).await;
    assert!(matches!(made, Ok(Outcome::Claim(_))), "{made:?}");
    let metadata = sent.lock().unwrap()["metadata"].clone();
    assert_eq!(metadata["finalizers"], json!([FINALIZER]));
    assert_eq!(metadata["ownerReferences"][0]["uid"], "u");
}
