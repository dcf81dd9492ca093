//! A drain of many pods without a budget, at a server that is slow to answer or busy.

use std::time::Duration;

use evenkeel::clock::Clock;
use evenkeel_sim::faults::Call;
use futures::stream;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::campaign::virtually;
use super::super::script;
use super::watcher::DRAINER;
use super::{Paper, base, request};

/// How many evictions may be on their way at once.
const AT_ONCE: usize = 8;

/// A drain that somebody ended.
struct Ended {
    /// What it printed.
    said: String,
    /// When it was interrupted, and how long it took to end after that.
    interrupted: Instant,
    took: Duration,
    evictions: Vec<Call>,
}

/// Drains 60 pods for so long while every eviction meets `fault`, and presses Ctrl-C.
async fn interrupted_after(seconds: u64, fault: &str) -> Ended {
    let (cluster, kube) = base().start(7).await;
    kube.workload("deployments", "crowd", 60, &json!({})).await;
    sleep(Duration::from_secs(30)).await;
    cluster.faults().record();
    let fault = format!("like {DRAINER} create~pods/eviction {fault}");
    script::arm(&cluster, &[fault.parse().unwrap()]);
    let process = cluster.process(DRAINER);
    let (seen, paper) = (cluster.clone(), Paper::default());
    let clock = Clock::new(move || seen.now());
    let interrupted = Instant::now() + Duration::from_secs(seconds);
    let interrupts = stream::unfold(Some(interrupted), async |at| {
        sleep_until(at?).await;
        Some(((), None))
    });
    let (out, notes) = (Box::new(paper.clone()), Box::new(paper.clone()));
    let (client, asked) = (process.client(), request(&clock));
    let ended =
        evenkeel::cli::drain::run(&client, process.client(), clock, asked, interrupts, out, notes).await;
    let took = interrupted.elapsed();
    let said = String::from_utf8_lossy(&paper.0.lock().unwrap()).into_owned();
    assert_eq!(ended, Ok(130), "{said}");
    let is_eviction = |call: &Call| call.subresource.as_deref() == Some("eviction");
    let evictions = cluster.faults().record().into_iter().filter(is_eviction).collect();
    Ended { said, interrupted, took, evictions }
}

#[test]
fn an_interrupted_drain_asks_no_pod_more_however_many_may_go() {
    let ((), wrong) = virtually(async || {
        let Ended { said, interrupted, took, evictions } = interrupted_after(3, "delay:8").await;
        assert!(took < Duration::from_secs(10), "it ends {took:?} after it was interrupted");
        assert_eq!(evictions.len(), AT_ONCE, "{said}");
        assert!(evictions.iter().all(|call| call.at < interrupted), "none is asked later: {said}");
        assert_eq!(said.matches("is leaving").count(), AT_ONCE, "each answer was awaited: {said}");
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_busy_server_is_left_alone_however_many_pods_may_go() {
    let ((), wrong) = virtually(async || {
        let Ended { said, evictions, .. } = interrupted_after(25, "throttle:30").await;
        assert!((1..=AT_ONCE).contains(&evictions.len()), "{} evictions: {said}", evictions.len());
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
