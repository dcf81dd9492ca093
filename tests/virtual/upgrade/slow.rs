//! Evictions that the server is slow to answer, as behind a slow webhook, of a node whose pods no budget keeps: all of them
//! may go at once. What waits behind those that are under way is decided anew, and nothing else waits for them.

use std::time::Duration;

use evenkeel_sim::faults::Call;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::super::script::Step;
use super::UP;
use super::base::UPGRADES;
use super::installed::story;

/// How many evictions may be under way at once.
const AT_ONCE: usize = 8;

#[test]
fn a_suspended_upgrade_asks_no_pod_more_however_many_may_go() {
    story("", "Automatic", async |story| {
        let on_canaries = json!({"spec": {"template": {"spec": {"nodeSelector": {"pool": "canary"}}}}});
        story.kube.workload("deployments", "crowd", 60, &on_canaries).await;
        let slow: Step = "like evenkeel-a create~pods/eviction delay:8".parse().unwrap();
        story.arm(&[slow]);
        let drains = |claim: &serde_json::Value| claim["status"]["state"] == "Draining";
        story.until("a node drains", |_, claims| claims.iter().any(drains)).await;
        sleep(Duration::from_secs(3)).await;
        let path = format!("{UPGRADES}/{UP}");
        story.kube.merge(&path, &json!({"spec": {"suspend": true}})).await.unwrap();
        let suspended = Instant::now();
        story.is("Suspended", "").await;
        assert!(suspended.elapsed() < Duration::from_secs(3), "it is said {:?} later", suspended.elapsed());
        sleep(Duration::from_mins(1)).await;
        let calls = story.cluster.faults().record();
        let evictions = |call: &&Call| call.subresource.as_deref() == Some("eviction");
        let evictions: Vec<&Call> = calls.iter().filter(evictions).collect();
        assert_eq!(
            evictions.len(),
            AT_ONCE,
            "{:?}",
            evictions.iter().map(|call| call.line()).collect::<Vec<_>>()
        );
        assert!(evictions.iter().all(|call| call.at < suspended));
        // It goes on where it was.
        story.heal();
        story.kube.merge(&path, &json!({"spec": {"suspend": false}})).await.unwrap();
        story.is("Completed", "").await;
    });
}
