//! What an upgrade says of the time ahead while it goes on, and of the upgrades before it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::super::campaign::{Wrong, virtually};
use super::super::kube_api::Kube;
use super::super::replica::replica;
use super::base::{self, Setting, UPGRADES};
use super::executor::Executor;
use super::watcher::rest::asked_well;
use super::{UP, condition};

/// The status of the upgrade as soon as `so` is true of it.
async fn when(kube: &Kube, so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_hours(1) {
        sleep(Duration::from_millis(500)).await;
        let object = kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap_or_default();
        if so(&object) {
            return object["status"].clone();
        }
    }
    panic!("it never was so: {:#?}", kube.list(UPGRADES).await);
}

fn is_complete(object: &Value, version: &str) -> bool {
    let complete = condition(object, "Ready").is_some_and(|of| of["reason"] == "Completed");
    complete && object["status"]["plan"]["to"] == version
}

/// How many nodes are in the waves that are ahead.
fn nodes(status: &Value) -> i64 {
    let waves = status["plan"]["waves"].as_array().into_iter().flatten();
    waves.map(|wave| wave["nodes"].as_i64().unwrap()).sum()
}

#[test]
fn an_upgrade_says_how_long_it_takes_and_what_it_did_before() {
    let (seen, wrong) = virtually(async || {
        // Slow enough for what is ahead to be reckoned several times.
        let setting = Setting::of(&["at 0 executor kubelet/* after 30".parse().unwrap()]);
        let (cluster, kube) = base::start(&setting, 1).await;
        let _executor = Executor::start(&cluster, &setting);
        kube.create(UPGRADES, &setting.upgrade(UP, &setting.to)).await;
        cluster.faults().record();
        let stop = CancellationToken::new();
        let running = tokio::spawn(replica(cluster.clone(), "a", true, stop.clone()));
        let first = when(&kube, |object| object["status"]["plan"]["hash"].is_string()).await;
        // What is ahead is reckoned once a minute.
        let moves = |object: &Value| {
            object["status"]["progress"]["upgraded"].as_i64() >= Some(4) && nodes(&object["status"]) < 9
        };
        let midway = when(&kube, moves).await;
        let done = when(&kube, |object| is_complete(object, &setting.to)).await;
        let next = json!({"spec": {"version": "v1.37.2"}});
        kube.merge(&format!("{UPGRADES}/{UP}"), &next).await.unwrap();
        let again = when(&kube, |object| is_complete(object, "v1.37.2")).await;
        stop.cancel();
        running.await.unwrap();
        assert_eq!(asked_well(&cluster.faults().record()), Wrong::new());
        [first, midway, done, again]
    });
    assert_eq!(wrong, Wrong::new());
    let [first, midway, done, again] = seen;
    assert_eq!(nodes(&first), 9, "{first:#}");
    let p50 = |status: &Value| status["plan"]["estimate"]["p50Seconds"].as_i64().unwrap();
    let about = &first["plan"]["estimate"];
    assert!(about["leastSeconds"].as_i64() <= about["p50Seconds"].as_i64(), "{about}");
    assert!(about["p50Seconds"].as_i64() <= about["p90Seconds"].as_i64(), "{about}");
    // What was done meanwhile is not counted any more, and went faster than anybody could guess.
    assert!(p50(&midway) < p50(&first) && nodes(&midway) < 9, "{midway:#}");
    assert!(midway["progress"]["eta"].as_str().is_some_and(|eta| eta.ends_with('m')), "{midway:#}");
    for (status, count) in [(&done, 1), (&again, 2)] {
        assert!(status["plan"].get("estimate").is_none() && status["progress"].get("eta").is_none());
        let past = status["history"].as_array().unwrap();
        assert_eq!(past.len(), count, "{past:#?}");
        assert!(past.iter().all(|one| one["nodes"] == 9), "{past:#?}");
    }
    let told = |at: usize, field: &str| again["history"][at][field].as_str().unwrap_or_default().to_owned();
    assert_eq!((told(0, "from"), told(0, "to")), ("v1.36.4".to_owned(), "v1.37.1".to_owned()));
    assert_eq!((told(1, "from"), told(1, "to")), ("v1.37.1".to_owned(), "v1.37.2".to_owned()));
}

/// The finding about the budget of the web shop.
fn about_web(status: &Value) -> Value {
    let findings = status["plan"]["findings"].as_array().cloned().unwrap_or_default();
    let about = |finding: &Value| {
        finding["id"].as_str().is_some_and(|id| id.starts_with('U') && id.ends_with("/shop/web"))
    };
    let mut those = findings.into_iter().filter(about);
    let first = those.next().unwrap_or_default();
    assert_eq!(those.next(), None);
    first
}

#[test]
fn what_keeps_nodes_from_being_drained_is_told_before_the_approval() {
    let (seen, wrong) = virtually(async || {
        let setting = Setting::of(&["at 0 approval".parse().unwrap()]);
        let (cluster, kube) = base::start(&setting, 1).await;
        kube.budget("web", Some(json!({"minAvailable": 10}))).await;
        sleep(Duration::from_secs(10)).await;
        kube.create(UPGRADES, &setting.upgrade(UP, &setting.to)).await;
        cluster.faults().record();
        let stop = CancellationToken::new();
        let running = tokio::spawn(replica(cluster.clone(), "a", true, stop.clone()));
        let first = when(&kube, |object| object["status"]["plan"]["hash"].is_string()).await;
        let id = about_web(&first)["id"].clone();
        let risk = json!({"finding": id, "until": "2099-12-31", "reason": "its owner scales it"});
        kube.merge(&format!("{UPGRADES}/{UP}"), &json!({"spec": {"acceptedRisks": [risk]}})).await.unwrap();
        let accepted =
            |object: &Value| object["status"]["observedGeneration"] == object["metadata"]["generation"];
        let second = when(&kube, accepted).await;
        kube.delete("/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web").await.unwrap();
        let third = when(&kube, |object| about_web(&object["status"]).is_null()).await;
        stop.cancel();
        running.await.unwrap();
        assert_eq!(asked_well(&cluster.faults().record()), Wrong::new());
        [first, second, third]
    });
    assert_eq!(wrong, Wrong::new());
    let [first, second, third] = seen;
    let known = about_web(&first);
    assert_eq!((&known["weight"], &known["accepted"]), (&json!("stops"), &Value::Null), "{first:#}");
    assert!(known["message"].as_str().is_some_and(|message| message.contains("minAvailable 10")), "{known}");
    let taken = about_web(&second);
    assert_eq!((&taken["weight"], &taken["accepted"]), (&json!("warns"), &json!("its owner scales it")));
    // An acceptance whose finding is settled is told too.
    let left = third["plan"]["findings"].as_array().unwrap();
    assert!(left.iter().any(|finding| finding["id"].as_str().unwrap().starts_with("A1/")), "{left:#?}");
}
