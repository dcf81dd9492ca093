//! What is sent of many evictions, and when.

use std::collections::BTreeMap;
use std::convert::Infallible;

use evenkeel_core::cluster::Parts;
use evenkeel_core::disruption::Budgets;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::sleep;

use super::super::authority::{Authority, Effects};
use super::super::elect::Lessor;
use super::*;
use crate::clock::Clock;
use crate::observe::fold::Watched as _;
use crate::observe::interner::Interner;
use crate::observe::lean;

/// Hands at a server that takes `takes` for each answer.
fn hands(takes: Duration) -> Hands {
    let service = tower::service_fn(move |_: http::Request<Body>| async move {
        sleep(takes).await;
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
        Ok::<_, Infallible>(http::Response::new(Body::from(status.to_string().into_bytes())))
    });
    let effects = Effects::new(Client::new(service, "default"));
    let authority = Authority::Leader(Lessor::default().lets(Duration::from_hours(1)));
    Hands::new(effects, authority, "executors", Clock::default())
}

/// The evictions of so many pods that no budget selects.
fn evictions(pods: usize) -> Vec<Action> {
    let cluster = Parts::default().seal();
    let mut budgets = Budgets::new(&cluster, BTreeMap::new(), Timestamp::UNIX_EPOCH);
    let mut names = Interner::default();
    let mut evict = |number: usize| {
        let name = format!("web-{number}");
        let pod = json!({"metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"nodeName": "n-1"}, "status": {"phase": "Running"}});
        let pod = serde_json::from_value::<lean::Pod>(pod).unwrap().keep(&mut names).pod;
        Action::Evict(budgets.take(&pod).unwrap())
    };
    (0..pods).map(&mut evict).collect()
}

fn upgrade() -> Arc<ClusterUpgrade> {
    let upgrade = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {"name": "up"},
        "spec": {"version": "v1.37.1", "controlPlane": {"executor": "x"}, "nodeGroups": []}});
    Arc::new(serde_json::from_value(upgrade).unwrap())
}

/// How many pods are remembered as asked.
fn asked(sent: &mut Sent) -> usize {
    sent.memory(&Parts::default().seal(), Timestamp::UNIX_EPOCH).pods.len()
}

#[tokio::test(start_paused = true)]
async fn every_place_is_taken_again_as_soon_as_it_is_free() {
    let (hands, mut sent, mut all) =
        (hands(Duration::from_millis(20)), Sent::default(), Evictions::default());
    let (upgrade, begun, now) = (upgrade(), Instant::now(), Timestamp::UNIX_EPOCH);
    for action in evictions(12 * EVICTIONS_AT_ONCE) {
        assert_eq!(all.take(action, &upgrade), None);
    }
    assert_eq!(all.take(Action::Protect, &upgrade), Some(Action::Protect), "that is no eviction");
    all.send(&hands, &mut sent, now);
    while let Some(done) = all.under_way.join_next().await {
        assert!(matches!(done, Ok(Outcome::Eviction { .. })), "{done:?}");
        all.send(&hands, &mut sent, now);
        assert!(all.under_way.len() <= EVICTIONS_AT_ONCE);
    }
    assert_eq!((begun.elapsed().as_millis(), asked(&mut sent)), (12 * 20, 12 * EVICTIONS_AT_ONCE));
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_sent_by_a_decision_of_this_moment_or_not_at_all() {
    for is_old in [false, true] {
        let (hands, mut sent, mut all) = (hands(2 * COUNTS), Sent::default(), Evictions::default());
        let (upgrade, now) = (upgrade(), Timestamp::UNIX_EPOCH);
        for action in evictions(3 * EVICTIONS_AT_ONCE) {
            all.take(action, &upgrade);
        }
        all.send(&hands, &mut sent, now);
        if !is_old {
            // The next look begins, and finds that nothing more may go.
            all.forget();
        }
        while all.under_way.join_next().await.is_some() {
            all.send(&hands, &mut sent, now);
        }
        assert_eq!(asked(&mut sent), EVICTIONS_AT_ONCE, "only what was sent counts");
    }
}
