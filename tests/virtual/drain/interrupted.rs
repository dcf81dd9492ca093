//! Somebody ends a drain whose evictions the server is slow to answer, as behind a slow webhook.

use std::time::Duration;

use evenkeel::clock::Clock;
use evenkeel_sim::faults::Call;
use futures::stream;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::super::campaign::virtually;
use super::super::script;
use super::watcher::DRAINER;
use super::{Paper, base, request};

/// How many evictions may be on their way at once.
const AT_ONCE: usize = 8;

#[test]
fn an_interrupted_drain_asks_no_pod_more_however_many_may_go() {
    let ((), wrong) = virtually(async || {
        let (cluster, kube) = base().start(7).await;
        kube.workload("deployments", "crowd", 60, &json!({})).await;
        sleep(Duration::from_secs(30)).await;
        cluster.faults().record();
        script::arm(&cluster, &[format!("like {DRAINER} create~pods/eviction delay:8").parse().unwrap()]);
        let process = cluster.process(DRAINER);
        let (seen, paper) = (cluster.clone(), Paper::default());
        let clock = Clock::new(move || seen.now());
        let ends_at = Instant::now() + Duration::from_secs(3);
        let interrupts = stream::unfold(Some(ends_at), async |at| {
            tokio::time::sleep_until(at?).await;
            Some(((), None))
        });
        let (out, notes) = (Box::new(paper.clone()), Box::new(paper.clone()));
        let (client, asked) = (process.client(), request(&clock));
        let ended =
            evenkeel::cli::drain::run(&client, process.client(), clock, asked, interrupts, out, notes).await;
        let said = String::from_utf8_lossy(&paper.0.lock().unwrap()).into_owned();
        assert_eq!(ended, Ok(130), "{said}");
        let took = ends_at.elapsed();
        assert!(took < Duration::from_secs(10), "it ends {took:?} after it was interrupted");
        let evictions = |call: &&Call| call.subresource.as_deref() == Some("eviction");
        let calls = cluster.faults().record();
        let evictions: Vec<&Call> = calls.iter().filter(evictions).collect();
        assert_eq!(evictions.len(), AT_ONCE, "{said}");
        assert!(evictions.iter().all(|call| call.at < ends_at), "none is asked later: {said}");
        assert_eq!(said.matches("is leaving").count(), AT_ONCE, "each answer was awaited: {said}");
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
