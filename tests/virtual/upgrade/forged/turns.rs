//! Forgeries of turns: zones that go one after the other, canaries, and percentages.

use std::time::Duration;

use tokio::time::sleep;

use super::{Stage, TO, Wrong, names, said_of};

impl Stage {
    async fn claims(&self, node: &str) {
        let uid = self.uid_of(node).await;
        self.claim("kubelet", node, &uid).await;
    }

    /// The kubelet of `node` runs the target, for long enough that everybody knows.
    async fn moves(&self, node: &str) {
        self.cluster.restart_kubelet(node, TO);
        sleep(Duration::from_mins(1)).await;
    }
}

fn has(words: &str, wrong: &Wrong) -> bool {
    wrong.iter().any(|line| line.contains(words))
}

#[test]
fn invariant_5_nodes_of_two_zones() {
    let beside = |begins: &str, other: &'static str| {
        said_of(begins, async |stage| {
            stage.plane_is_there().await;
            stage.claims("main-1").await;
            stage.claims(other).await;
        })
    };
    let words = "claims main-2 of zone b while main-1 of zone a is under way";
    names(5, words, &beside("at 0 zones rest", "main-2"));
    for (begins, other) in [("at 0 zones rest", "main-4"), ("at 0 zones rest", "canary-2"), ("", "main-2")] {
        assert_eq!(beside(begins, other), Wrong::new(), "{begins} {other}");
    }
    let again = said_of("at 0 zones rest", async |stage| {
        stage.plane_is_there().await;
        stage.claims("main-1").await;
        stage.state("kubelet", "main-1", "Parked", "words that say why").await;
        stage.claims("main-2").await;
        stage.state("kubelet", "main-1", "Claimed", "").await;
    });
    names(5, "takes up main-1 of zone a while main-2 of zone b is under way", &again);
}

#[test]
fn invariant_13_nodes_that_go_before_the_canaries() {
    let two = |begins: &str, state: Option<&'static str>, moved: Option<&'static str>| {
        said_of(begins, async |stage| {
            stage.plane_is_there().await;
            if let Some(node) = moved {
                stage.moves(node).await;
            }
            stage.claims("main-1").await;
            if let Some(state) = state {
                stage.state("kubelet", "main-1", state, "words that say why").await;
            }
            stage.claims("main-3").await;
        })
    };
    let words = "claims main-3 before the canaries of group rest run v1.37.1";
    names(13, words, &two("at 0 canary rest 1", None, None));
    names(13, words, &two("at 0 canary rest 1", Some("Failed"), None));
    // The second canary, one in the place of a node that was parked, and one after a canary.
    assert_eq!(two("at 0 canary rest 2", None, None), Wrong::new());
    assert!(!has("before the canaries", &two("at 0 canary rest 1", Some("Parked"), None)));
    assert_eq!(two("at 0 canary rest 1", None, Some("main-2")), Wrong::new());
}

#[test]
fn invariant_13_nodes_that_go_while_canaries_soak() {
    let after = |seconds: u64| {
        said_of("at 0 canary canary 1; at 0 soak canary 300", async |stage| {
            stage.plane_is_there().await;
            stage.moves("canary-1").await;
            sleep(Duration::from_secs(seconds)).await;
            stage.claims("canary-2").await;
        })
    };
    names(13, "claims canary-2 while the canaries of group canary soak", &after(100));
    assert_eq!(after(300), Wrong::new());
}

#[test]
fn invariant_5_percentages_are_rounded_down() {
    let takes = |begins: &str, nodes: &'static [&'static str]| {
        said_of(begins, async |stage| {
            stage.plane_is_there().await;
            for node in nodes {
                stage.take(node).await;
            }
        })
    };
    // Nine nodes are left for the second group.
    names(5, "group rest are out, 2 may be", &takes("at 0 most rest 30%", &["main-1", "main-3", "main-5"]));
    names(5, "group rest are out, 1 may be", &takes("at 0 most rest 9%", &["main-1", "main-3"]));
    assert!(!has("may be", &takes("at 0 most rest 30%", &["main-1", "main-3"])));
    assert!(!has("may be", &takes("at 0 most rest 34%", &["main-1", "main-3", "main-5"])));
    // Two of twelve are less than a fifth of them.
    let fails = |nodes: &'static [&'static str]| {
        said_of("at 0 limit maxFailed 20%", async |stage| {
            stage.plane_is_there().await;
            for node in nodes {
                stage.claims(node).await;
                stage.state("kubelet", node, "Failed", "words that say why").await;
            }
            stage.claims("main-5").await;
        })
    };
    names(13, "2 nodes are Failed", &fails(&["main-1", "main-3"]));
    assert!(!has("nodes are Failed", &fails(&["main-1"])));
}

/// main-1 and main-4 are of zone a, main-2 is of zone b.
#[test]
fn invariant_5_a_zone_is_taken_up_again() {
    let back = |late: &'static str| {
        said_of("at 0 zones rest", async |stage| {
            stage.plane_is_there().await;
            let path = "/api/v1/nodes/main-4";
            let cordon = |is: serde_json::Value| serde_json::json!({"spec": {"unschedulable": is}});
            if late == "later" {
                stage.person.merge(path, &cordon(true.into())).await.unwrap();
            }
            for node in ["main-1", "main-2", "main-4"] {
                if node == "main-4" && late == "later" {
                    stage.person.merge(path, &cordon(serde_json::Value::Null)).await.unwrap();
                }
                sleep(Duration::from_secs(10)).await;
                let uid = stage.uid_of(node).await;
                stage.claim("kubelet", node, &uid).await;
                sleep(Duration::from_secs(10)).await;
                stage.cluster.restart_kubelet(node, TO);
                sleep(Duration::from_secs(20)).await;
                stage.state("kubelet", node, "Upgraded", "").await;
            }
        })
    };
    names(5, "claims main-4 of zone a although zone a was left", &back("at once"));
    let later = back("later");
    assert!(!later.iter().any(|line| line.contains("was left")), "{later:#?}");
}
