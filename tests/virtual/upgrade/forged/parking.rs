//! Forgeries of parking: nodes that are parked too early, are not given back, or are tried again too soon.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::people;
use super::{CLAIMS, Stage, UP, Wrong, names, said_of};

impl Stage {
    /// The claim of `node` says that it is Parked, or taken up anew, for the `attempt`th time.
    async fn is_at(&self, node: &str, state: &str, attempt: i64, blocked_by: &Value) {
        let path = format!("{CLAIMS}/{UP}.kubelet.{node}/status");
        let status = json!({"state": state, "message": "words", "attempt": attempt, "since": "2026-01-01T00:00:00Z",
            "blockedBy": blocked_by});
        self.forger.merge(&path, &json!({"status": status})).await.unwrap();
    }

    async fn gives_back(&self, node: &str) {
        let patch = json!({"metadata": {"annotations": {"evenkeel.dev/cordoned-by": null}},
            "spec": {"unschedulable": null}});
        self.forger.merge(&format!("/api/v1/nodes/{node}"), &patch).await.unwrap();
    }
}

fn says(words: &str, wrong: &Wrong) -> bool {
    wrong.iter().any(|line| line.contains(words))
}

/// What is said when `node` is parked so many seconds after its drain began.
fn parked(begins: &str, node: &'static str, seconds: u64) -> Wrong {
    said_of(begins, async |stage| {
        people::impossible(&stage.person).await;
        stage.plane_is_there().await;
        stage.take(node).await;
        stage.state("kubelet", node, "Draining", "").await;
        sleep(Duration::from_secs(seconds)).await;
        stage.state("kubelet", node, "Parked", "words").await;
        stage.gives_back(node).await;
    })
}

#[test]
fn invariant_12_a_node_is_parked_before_its_time() {
    // The drain may take 300 seconds, or 60.
    names(12, "parks up.kubelet.main-3 after 250", &parked("", "main-3", 250));
    assert!(!says("parks", &parked("", "main-3", 301)));
    assert!(!says("parks", &parked("at 0 drain 60", "main-3", 61)));
    // A pod of main-6 never leaves it, which is known after half a minute.
    names(12, "before it is seen to stand still", &parked("", "main-6", 20));
    assert!(!says("parks", &parked("", "main-6", 40)));
    let not_begun = said_of("", async |stage| {
        stage.plane_is_there().await;
        stage.take("main-3").await;
        stage.state("kubelet", "main-3", "Parked", "words").await;
    });
    names(12, "parks up.kubelet.main-3, whose drain has not begun", &not_begun);
}

#[test]
fn a_node_is_parked_because_somebody_uncordoned_it() {
    let parked = |uncordons: bool| {
        said_of("", async |stage| {
            stage.plane_is_there().await;
            stage.take("main-3").await;
            stage.state("kubelet", "main-3", "Draining", "").await;
            if uncordons {
                let free = json!({"spec": {"unschedulable": null}});
                stage.person.merge("/api/v1/nodes/main-3", &free).await.unwrap();
            }
            sleep(Duration::from_secs(9)).await;
            stage.state("kubelet", "main-3", "Parked", "words").await;
        })
    };
    assert!(says("parks", &parked(false)));
    assert!(!says("parks", &parked(true)));
}

#[test]
fn invariant_7_a_parked_node_is_not_given_back() {
    let kept = |again: bool| {
        said_of("at 0 drain 60", async |stage| {
            stage.plane_is_there().await;
            stage.take("main-3").await;
            stage.state("kubelet", "main-3", "Draining", "").await;
            sleep(Duration::from_secs(61)).await;
            stage.state("kubelet", "main-3", "Parked", "words").await;
            sleep(Duration::from_secs(70)).await;
            if again {
                stage.is_at("main-3", "Claimed", 2, &json!([])).await;
            }
        })
    };
    names(7, "is Parked, and its node was not given back", &kept(false));
    names(7, "tries main-3 again, which was not given back", &kept(true));
}

/// What is said when a node that was parked the `attempt`th time is tried again so many seconds later.
fn tried(attempt: i64, seconds: u64, blocked_by: &Value) -> Wrong {
    let begins = "at 0 drain 60";
    said_of(begins, async |stage| {
        people::impossible(&stage.person).await;
        stage.plane_is_there().await;
        stage.take("main-6").await;
        stage.is_at("main-6", "Draining", attempt, &json!([])).await;
        sleep(Duration::from_secs(61)).await;
        stage.is_at("main-6", "Parked", attempt, blocked_by).await;
        stage.gives_back("main-6").await;
        sleep(Duration::from_secs(seconds)).await;
        stage.is_at("main-6", "Claimed", attempt + 1, &json!([])).await;
    })
}

#[test]
fn invariant_12_a_parked_node_is_tried_again_before_its_time() {
    let nothing = json!([]);
    names(12, "which is try 2", &tried(1, 50, &nothing));
    assert!(!says("tries", &tried(1, 61, &nothing)));
    // Each time after twice as long.
    names(12, "which is try 4", &tried(3, 230, &nothing));
    assert!(!says("tries", &tried(3, 241, &nothing)));
    // Sooner only where what was in its way is gone, or its budget has room.
    let by =
        |pod: &str, budget: &str| json!([{"pod": pod, "podDisruptionBudget": budget, "reason": "words"}]);
    assert!(!says("tries", &tried(1, 20, &by("shop/gone", ""))));
    names(12, "which is try 2", &tried(1, 5, &by("shop/gone", "")));
    names(12, "which is try 5", &tried(4, 20, &by("shop/gone", "")));
}

#[test]
fn invariant_12_a_parked_node_is_tried_again_and_its_pod_still_cannot_leave() {
    let tried = |budget: &'static str| {
        said_of("at 0 drain 60", async |stage| {
            people::impossible(&stage.person).await;
            stage.plane_is_there().await;
            stage.take("main-6").await;
            stage.is_at("main-6", "Draining", 1, &json!([])).await;
            sleep(Duration::from_secs(61)).await;
            let pod = stage.pods_of("frozen").await.remove(0);
            let pod = format!("shop/{}", pod["metadata"]["name"].as_str().unwrap());
            let by = json!([{"pod": pod, "podDisruptionBudget": "shop/frozen", "reason": "words"}]);
            stage.is_at("main-6", "Parked", 1, &by).await;
            stage.gives_back("main-6").await;
            let spec = json!({"spec": {"maxUnavailable": budget.parse::<i64>().unwrap()}});
            let path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/frozen";
            stage.person.merge(path, &spec).await.unwrap();
            sleep(Duration::from_secs(20)).await;
            stage.is_at("main-6", "Claimed", 2, &json!([])).await;
        })
    };
    names(12, "still cannot leave", &tried("0"));
    assert!(!says("tries", &tried("1")));
}
