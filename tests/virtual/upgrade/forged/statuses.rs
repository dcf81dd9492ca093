//! Forgeries of what the statuses of upgrades say: what is upgraded, what is waited for, and what may stay behind.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::executor;
use super::{TO, UP, UPGRADES, Wrong, names, only, people, said, said_of};

#[test]
fn invariant_11_a_status_that_says_what_is_not() {
    let status = |status: Value| {
        said(async |stage| {
            sleep(Duration::from_secs(50)).await;
            let status = json!({"status": status});
            stage.forger.merge(&format!("{UPGRADES}/{UP}/status"), &status).await.unwrap();
        })
    };
    let ready = json!({"type": "Ready", "status": "True", "reason": "Completed", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    only(11, &status(json!({"observedGeneration": 1, "conditions": [ready]})));
    only(11, &status(json!({"observedGeneration": 1, "progress": {"upgraded": 3}})));
    only(11, &status(json!({"observedGeneration": 7})));
}

#[test]
fn invariant_12_a_wait_that_does_not_say_what_ends_it() {
    let status = |reason: &str, waits: Value| {
        said(async |stage| {
            sleep(Duration::from_secs(50)).await;
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": reason,
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let conditions = [condition("Ready", "False"), condition("Stalled", "True")];
            let status =
                json!({"status": {"observedGeneration": 1, "conditions": conditions, "waitingFor": waits}});
            stage.forger.merge(&format!("{UPGRADES}/{UP}/status"), &status).await.unwrap();
        })
    };
    let wait = |reason: &str, message: &str, ended_by: &str| json!({"reason": reason, "message": message, "endedBy": ended_by});
    assert_eq!(status("NodesHeld", json!([wait("NodesHeld", "n-1 is held", "Person")])), Wrong::new());
    names(12, "waits for", &status("NodesHeld", json!([wait("NodesHeld", "", "Person")])));
    names(12, "does not say who ends", &status("NodesHeld", json!([wait("NodesHeld", "n-1 is held", "")])));
    names(
        12,
        "and waits for \"GroupFull\" first",
        &status("NodesHeld", json!([wait("GroupFull", "a", "Person")])),
    );
    names(12, "waits for no person", &status("NodesHeld", json!([wait("NodesHeld", "n-1 is held", "Time")])));
}

#[test]
fn invariant_11_ready_although_a_node_is_behind() {
    let ready = |begins: &str, parked: Value| {
        said_of(begins, async |stage| {
            stage.plane_is_there().await;
            people::impossible(&stage.person).await;
            for node in stage.person.list("/api/v1/nodes").await {
                let name = node["metadata"]["name"].as_str().unwrap();
                if name != "main-6" {
                    executor::kubelet(&stage.cluster, name, TO).await;
                }
            }
            sleep(Duration::from_secs(10)).await;
            let reason = "CompletedWithExceptions";
            let condition = json!({"type": "Ready", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let wait = json!({"reason": reason, "message": "main-6 stays", "endedBy": "Person"});
            let status = json!({"status": {"observedGeneration": 1, "conditions": [condition], "parked": parked,
                "waitingFor": [wait]}});
            stage.forger.merge(&format!("{UPGRADES}/{UP}/status"), &status).await.unwrap();
        })
    };
    let accepted = |until: u64| format!("at 0 risk U3/PodDisruptionBudget/shop/frozen {until}");
    let parked = || json!([{"node": "main-6", "state": "Parked", "reason": "PDB shop/frozen"}]);
    let words = "is Ready, and 11 of 12 nodes are upgraded";
    assert_eq!(ready(&accepted(86_400), parked()), Wrong::new());
    names(11, words, &ready("", parked()));
    names(11, words, &ready(&accepted(20), parked()));
    names(11, words, &ready(&accepted(86_400), json!([])));
    names(11, words, &ready("at 0 risk U3/PodDisruptionBudget/other/frozen 86400", parked()));
}
