//! What is sent of many evictions, and when.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evenkeel_core::cluster::Parts;
use evenkeel_core::disruption::Budgets;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::sleep;

use super::super::authority::{Authority, EVICTIONS_AT_ONCE, Effects};
use super::super::elect::Lessor;
use super::*;
use crate::clock::Clock;
use crate::observe::fold::Watched as _;
use crate::observe::interner::Interner;
use crate::observe::lean;

/// Hands at a server that takes `takes` for each answer, and answers only so many requests at once.
fn hands(takes: Duration) -> Hands {
    let at_once = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let at_once = Arc::clone(&at_once);
        async move {
            assert!(at_once.fetch_add(1, Ordering::SeqCst) < EVICTIONS_AT_ONCE, "too many at once");
            sleep(takes).await;
            at_once.fetch_sub(1, Ordering::SeqCst);
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
            Ok::<_, Infallible>(http::Response::new(Body::from(status.to_string().into_bytes())))
        }
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

/// How many pods are remembered as asked.
fn asked(sent: &mut Sent) -> usize {
    sent.memory(&Parts::default().seal(), Timestamp::UNIX_EPOCH).pods.len()
}

#[tokio::test(start_paused = true)]
async fn every_place_is_taken_again_as_soon_as_it_is_free() {
    let (hands, mut sent, mut all) =
        (hands(Duration::from_millis(20)), Sent::default(), Evictions::default());
    let (begun, now) = (Instant::now(), Timestamp::UNIX_EPOCH);
    for action in evictions(12 * EVICTIONS_AT_ONCE) {
        assert_eq!(all.take(action), None);
    }
    assert_eq!(all.take(Action::Protect), Some(Action::Protect), "that is no eviction");
    all.send(&hands, &mut sent, now);
    while let Some(done) = all.under_way.join_next().await {
        assert!(matches!(done, Ok(Outcome::Eviction { .. })), "{done:?}");
        all.send(&hands, &mut sent, now);
    }
    assert_eq!((begun.elapsed().as_millis(), asked(&mut sent)), (12 * 20, 12 * EVICTIONS_AT_ONCE));
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_sent_by_a_decision_of_this_moment_or_not_at_all() {
    for is_old in [false, true] {
        let (hands, mut sent, mut all) = (hands(2 * COUNTS), Sent::default(), Evictions::default());
        let now = Timestamp::UNIX_EPOCH;
        for action in evictions(3 * EVICTIONS_AT_ONCE) {
            all.take(action);
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
