//! Forgeries of pods that a rule takes out of the drain, also where the drain forces.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{PODS, Wrong, said_of};

/// What is said when a pod of `web` leaves main-1 so many seconds after its drain began, by a deletion or an eviction.
fn leaves(begins: &str, seconds: u64, deleted: bool) -> Wrong {
    said_of(&format!("at 0 force; at 0 drain 60; {begins}"), async |stage| {
        stage.plane_is_there().await;
        stage.take("main-1").await;
        stage.state("kubelet", "main-1", "Draining", "").await;
        sleep(Duration::from_secs(seconds)).await;
        let mut pods = stage.pods_of("web").await;
        pods.retain(|pod| pod["spec"]["nodeName"] == "main-1");
        let (name, uid) = (pods[0]["metadata"]["name"].as_str().unwrap(), &pods[0]["metadata"]["uid"]);
        if deleted {
            stage.forger.delete(&format!("{PODS}/{name}")).await.unwrap();
        } else {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
                "deleteOptions": {"preconditions": {"uid": uid}}});
            stage.forger.create(&format!("{PODS}/{name}/eviction"), &eviction).await;
        }
    })
}

#[test]
fn invariant_3_a_pod_leaves_that_a_rule_takes_out_of_the_drain() {
    let says = |words: &str, wrong: &Wrong| {
        wrong.iter().any(|line| line.contains("invariant 3:") && line.contains(words))
    };
    for (rule, deletes) in [("Skip", true), ("WaitCompleted", false)] {
        let begins = format!("at 0 rule web {rule}");
        for (seconds, deleted) in [(10, false), (61, false), (10, true)] {
            let wrong = leaves(&begins, seconds, deleted);
            assert!(
                says("which a rule takes out of the drain", &wrong),
                "{rule} {seconds} {deleted}: {wrong:#?}"
            );
        }
        // The deadline of a drain that forces ends the wait for what is to complete, and nothing else.
        let late = leaves(&begins, 61, true);
        assert_eq!(says("which a rule leaves alone", &late), deletes, "{rule}: {late:#?}");
        assert!(!says("which a rule takes out", &late), "{rule}: {late:#?}");
    }
    // The first rule that selects it counts.
    let late = leaves("at 0 rule web Drain; at 0 rule web Skip", 61, true);
    assert!(!says("a rule", &late), "{late:#?}");
}
