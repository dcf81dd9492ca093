//! Writes that lose a race to a change that wakes nobody, such as a kubelet's heartbeat, or that fail: they are decided
//! again soon, and not in a tight loop, whether anything else happens or not.

use std::time::Duration;

use evenkeel_sim::faults::{Call, Fault};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::UP;
use super::base::UPGRADES;
use super::installed::{Story, nodes_that_are, story};

const NODE: &str = "main-6";
/// The write of the upgrade's status.
const STATUS: &str = "update clusterupgrades.evenkeel.dev/status up";

/// The upgrade moves one node, and nothing besides happens in the cluster.
async fn moves_one_node(story: &Story) {
    let only = json!([{"name": "one", "selector": {"matchLabels": {"kubernetes.io/hostname": NODE}},
        "executor": "machines", "maxUnavailable": 1}]);
    let path = format!("{UPGRADES}/{UP}");
    story.kube.merge(&path, &json!({"spec": {"nodeGroups": only}})).await.unwrap();
}

/// The next so many patches of the node are answered like this.
fn answers(story: &Story, code: u16, times: u64) {
    let patches = |call: &Call| call.agent == "evenkeel-a" && call.line() == format!("patch nodes {NODE}");
    story.cluster.faults().when(patches, Fault::Refuse(code), times);
}

/// When the node was patched since this was last asked.
fn patches(story: &Story) -> Vec<Instant> {
    let calls = story.cluster.faults().record();
    calls.iter().filter(|call| call.line() == format!("patch nodes {NODE}")).map(|call| call.at).collect()
}

/// How long after each of these the next one came.
fn gaps(all: &[Instant]) -> Vec<Duration> {
    all.windows(2).map(|two| two[1] - two[0]).collect()
}

#[test]
fn a_node_waits_for_a_lost_cordon_or_uncordon_no_longer_than_a_moment() {
    story("", "Automatic", async |story| {
        moves_one_node(story).await;
        for (state, ends) in [("Draining", "Upgrading"), ("Upgraded", "Upgraded")] {
            answers(story, 409, 1);
            story.until(state, |_, claims| nodes_that_are(claims, state) == 1).await;
            let gaps = gaps(&patches(story));
            let soon = |gap: &Duration| *gap < Duration::from_secs(2);
            assert!(gaps.len() == 1 && gaps.iter().all(soon), "{state}: {gaps:?}");
            story.until(ends, |_, claims| nodes_that_are(claims, ends) == 1).await;
        }
        story.is("Completed", "").await;
    });
}

/// Something changes in the cluster, so that the operator looks at it.
async fn changes(story: &Story, turn: usize) {
    let label = json!({"metadata": {"labels": {"turn": turn.to_string()}}});
    story.kube.merge("/api/v1/nodes/main-1", &label).await.unwrap();
}

/// The write that did not come through twenty times was sent ever more rarely.
fn ever_more_rarely(gaps: &[Duration]) {
    let longest = gaps.iter().max().copied().unwrap_or_default();
    assert!(gaps.len() == 20 && longest < Duration::from_secs(20), "{gaps:?}");
    assert!(gaps.iter().sum::<Duration>() > Duration::from_mins(3), "{gaps:?}");
}

#[test]
fn what_loses_or_fails_again_and_again_is_sent_ever_more_rarely_whatever_else_changes() {
    for (busy, code) in [(false, 409), (true, 409), (true, 500)] {
        story("", "Automatic", async |story| {
            moves_one_node(story).await;
            answers(story, code, 20);
            let is_cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
            let begun = Instant::now();
            let mut turn = 0;
            while !story.kube.get(&format!("/api/v1/nodes/{NODE}")).await.as_ref().is_some_and(is_cordoned) {
                assert!(begun.elapsed() < Duration::from_mins(30), "it never comes through");
                tokio::time::sleep(Duration::from_millis(200)).await;
                turn += 1;
                if busy {
                    changes(story, turn).await;
                }
            }
            ever_more_rarely(&gaps(&patches(story)));
            story.is("Completed", "").await;
        });
    }
}

/// What the status remembers is stored before anything is done, so that nothing is done meanwhile.
#[test]
fn a_status_that_loses_again_and_again_is_sent_ever_more_rarely_whatever_else_changes() {
    story("", "Automatic", async |story| {
        let of_status = |call: &Call| call.agent == "evenkeel-a" && call.line() == STATUS;
        story.cluster.faults().when(of_status, Fault::Refuse(409), 20);
        let path = format!("{UPGRADES}/{UP}");
        let mut calls = Vec::new();
        for turn in 0.. {
            let upgrade = story.kube.get(&path).await.unwrap();
            calls.extend(story.cluster.faults().record().into_iter().filter(of_status));
            if !upgrade["status"]["plan"].is_null() {
                break;
            }
            assert!(turn < 9000, "it never comes through");
            tokio::time::sleep(Duration::from_millis(200)).await;
            changes(story, turn).await;
        }
        let sent: Vec<Instant> = calls.iter().map(|call| call.at).collect();
        ever_more_rarely(&gaps(&sent[..21]));
        story.is("Completed", "").await;
    });
}

/// Each is written to the upgrade as it is after its status, which was written a moment before.
#[test]
fn our_finalizer_loses_no_race_against_our_own_status() {
    story("", "Automatic", async |story| {
        moves_one_node(story).await;
        story.is("Completed", "").await;
        let path = format!("{UPGRADES}/{UP}");
        story.kube.delete(&path).await.unwrap();
        while story.kube.get(&path).await.is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let line = format!("patch clusterupgrades.evenkeel.dev {UP}");
        let calls = story.cluster.faults().record();
        let ours: Vec<_> =
            calls.iter().filter(|call| call.agent == "evenkeel-a" && call.line() == line).collect();
        assert_eq!(ours.len(), 2, "put on, and taken off: {ours:#?}");
    });
}
