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

#[test]
fn an_upgrade_says_how_long_it_takes_and_what_it_did_before() {
    let (seen, wrong) = virtually(async || {
        let setting = Setting::of(&[]);
        let (cluster, kube) = base::start(&setting, 1).await;
        let _executor = Executor::start(&cluster, &setting);
        kube.create(UPGRADES, &setting.upgrade(UP, &setting.to)).await;
        let stop = CancellationToken::new();
        let running = tokio::spawn(replica(cluster.clone(), "a", true, stop.clone()));
        let first = when(&kube, |object| object["status"]["plan"]["hash"].is_string()).await;
        let moves = |object: &Value| object["status"]["progress"]["upgraded"].as_i64() >= Some(4);
        let midway = when(&kube, moves).await;
        let done = when(&kube, |object| is_complete(object, &setting.to)).await;
        let next = json!({"spec": {"version": "v1.37.2"}});
        kube.merge(&format!("{UPGRADES}/{UP}"), &next).await.unwrap();
        let again = when(&kube, |object| is_complete(object, "v1.37.2")).await;
        stop.cancel();
        running.await.unwrap();
        [first, midway, done, again]
    });
    assert_eq!(wrong, Wrong::new());
    let [first, midway, done, again] = seen;
    let nodes = |status: &Value| -> i64 {
        let waves = status["plan"]["waves"].as_array().into_iter().flatten();
        waves.map(|wave| wave["nodes"].as_i64().unwrap()).sum()
    };
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
