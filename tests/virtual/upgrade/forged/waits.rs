//! Forgeries of what keeps anything new from being begun: windows, freezes, soaks, failures, zones and gates.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{PODS, TO, UP, UPGRADES, Wrong, names, said, said_of};

/// What is said when a node is claimed in a setting that begins so.
fn claims(begins: &str) -> Wrong {
    said_of(begins, async |stage| {
        stage.plane_is_there().await;
        let uid = stage.uid_of("main-1").await;
        stage.claim("kubelet", "main-1", &uid).await;
    })
}

#[test]
fn invariant_13_something_new_when_only_what_was_begun_may_go_on() {
    assert_eq!(claims("at 0 window 0 3600; at 0 freeze 3600 7200; at 0 soak controlPlane 30"), Wrong::new());
    names(13, "no window is open", &claims("at 0 window 10 3600"));
    names(13, "freeze fair lasts", &claims("at 0 freeze 10 3600"));
    names(13, "on cp-1 soaks", &claims("at 0 soak controlPlane 600"));
}

#[test]
fn invariant_13_something_new_when_clocks_elsewhere_show_another_time() {
    for zone in ["Asia/Kolkata", "Pacific/Honolulu"] {
        let zone = format!("at 0 time-zone {zone}");
        assert_eq!(claims(&format!("{zone}; at 0 window 0 3600; at 0 freeze 3600 7200")), Wrong::new());
        names(13, "no window is open", &claims(&format!("{zone}; at 0 window 10 3600")));
        names(13, "freeze fair lasts", &claims(&format!("{zone}; at 0 freeze 10 3600")));
    }
    // The cluster begins on a Thursday, as clocks in UTC show it, and on a Wednesday, as those in Honolulu do.
    let on = |day: &'static str, zone: &'static str, start: &'static str| {
        said_of("", async |stage| {
            let window = json!({"name": "w", "timeZone": zone, "days": [day], "start": start,
                "durationSeconds": 7200});
            let spec = json!({"spec": {"windows": [window]}});
            stage.person.merge(&format!("{UPGRADES}/{UP}"), &spec).await.unwrap();
            stage.plane_is_there().await;
            let uid = stage.uid_of("main-1").await;
            stage.claim("kubelet", "main-1", &uid).await;
        })
    };
    assert_eq!(on("Thu", "UTC", "00:00"), Wrong::new());
    assert_eq!(on("Wed", "Pacific/Honolulu", "13:00"), Wrong::new());
    names(13, "no window is open", &on("Thu", "Pacific/Honolulu", "13:00"));
    names(13, "no window is open", &on("Wed", "UTC", "00:00"));
}

#[test]
fn invariant_13_something_new_after_too_many_failures_or_in_a_silent_zone() {
    for (limit, state) in [("maxFailed", "Failed"), ("maxParked", "Parked")] {
        let wrong = said_of(&format!("at 0 limit {limit} 1"), async |stage| {
            stage.plane_is_there().await;
            for node in ["main-1", "main-2"] {
                let uid = stage.uid_of(node).await;
                stage.claim("kubelet", node, &uid).await;
                stage.state("kubelet", node, state, "words that say why").await;
            }
        });
        names(13, &format!("1 nodes are {state}"), &wrong);
    }
    let wrong = said(async |stage| {
        stage.plane_is_there().await;
        for node in stage.person.list("/api/v1/nodes").await {
            if node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "c" {
                stage.cluster.kubelets().stop(node["metadata"]["name"].as_str().unwrap());
            }
        }
        sleep(Duration::from_mins(2)).await;
        let uid = stage.uid_of("main-3").await;
        stage.claim("kubelet", "main-3", &uid).await;
    });
    names(13, "are not ready", &wrong);
}

#[test]
fn invariant_13_something_new_while_a_gate_is_closed() {
    names(13, "its gate is closed", &claims("at 0 gated"));
}

#[test]
fn invariant_13_something_new_that_is_not_done_in_time() {
    names(13, "the window closes within", &claims("at 0 window 0 300"));
    names(13, "freeze fair begins within", &claims("at 0 freeze 300 7200"));
    // Its like took a minute each, and it is taken to take as long.
    let after_three = |begins: &str| {
        said_of(begins, async |stage| {
            stage.plane_is_there().await;
            for node in ["canary-1", "main-1", "main-2"] {
                let uid = stage.uid_of(node).await;
                stage.claim("kubelet", node, &uid).await;
                sleep(Duration::from_mins(1)).await;
                stage.cluster.restart_kubelet(node, TO);
                sleep(Duration::from_secs(10)).await;
                stage.state("kubelet", node, "Upgraded", "").await;
            }
            sleep(Duration::from_secs(10)).await;
            let uid = stage.uid_of("main-3").await;
            stage.claim("kubelet", "main-3", &uid).await;
        })
    };
    assert_eq!(after_three("at 0 window 0 900"), Wrong::new());
    names(13, "claims main-3 while the window closes within", &after_three("at 0 window 0 310"));
}

#[test]
fn invariant_13_another_node_before_the_pods_of_the_last_one_are_back() {
    let wrong = |starts: bool| {
        said(async |stage| {
            stage.plane_is_there().await;
            stage.take("main-1").await;
            stage.state("kubelet", "main-1", "Upgrading", "").await;
            for node in stage.person.list("/api/v1/nodes").await {
                let path = format!("/api/v1/nodes/{}", node["metadata"]["name"].as_str().unwrap());
                stage.person.merge(&path, &json!({"spec": {"unschedulable": starts}})).await.unwrap();
            }
            let mut pods = stage.pods_of("web").await;
            pods.retain(|pod| pod["spec"]["nodeName"] != "main-1");
            let gone = pods[0]["metadata"]["name"].as_str().unwrap();
            stage.person.delete(&format!("{PODS}/{gone}")).await.unwrap();
            sleep(Duration::from_secs(40)).await;
            let other = pods[1]["spec"]["nodeName"].as_str().unwrap();
            let uid = stage.uid_of(other).await;
            stage.claim("kubelet", other, &uid).await;
        })
    };
    names(13, "made in the place of one that left, is not ready", &wrong(true));
    let all: String = wrong(false).into_iter().collect();
    assert!(!all.contains("in the place of one"), "{all}");
}

/// What a clock shows after it was set is what counts.
#[test]
fn invariant_13_something_new_by_a_clock_that_was_set() {
    let set = |seconds: i64, then: u64| {
        said_of("at 0 window 0 3600", async |stage| {
            stage.plane_is_there().await;
            stage.watcher.lock().unwrap().clocks_jump = true;
            stage.cluster.jump(jiff::SignedDuration::from_secs(seconds));
            stage.watcher.lock().unwrap().clock_shows(stage.cluster.now());
            sleep(Duration::from_secs(then)).await;
            let uid = stage.uid_of("main-1").await;
            stage.claim("kubelet", "main-1", &uid).await;
        })
    };
    names(13, "no window is open", &set(7200, 10));
    assert_eq!(set(7200, 1), Wrong::new(), "it was open a moment ago");
    assert_eq!(set(600, 10), Wrong::new());
}
