//! Every fault does what it says, to the request that was named and to no other.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_sim::Cluster;
use evenkeel_sim::faults::{Call, Fault, WatchFault};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Error};

fn named(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

fn run(test: impl AsyncFnOnce(Cluster, Client, Api<ConfigMap>)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::builder().start();
        let client = cluster.client();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let maps = Api::default_namespaced(client.clone());
        test(cluster, client, maps).await;
    });
}

fn creates(call: &Call) -> bool {
    call.verb == "create" && call.resource == "configmaps"
}

async fn there(maps: &Api<ConfigMap>, name: &str) -> bool {
    maps.get_opt(name).await.unwrap().is_some()
}

#[test]
fn a_refused_request_is_not_carried_out() {
    run(async |cluster, _, maps| {
        for code in [400, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504] {
            cluster.faults().when(creates, Fault::Refuse(code), 1);
            match maps.create(&PostParams::default(), &named("a")).await {
                Err(Error::Api(status)) => assert_eq!(status.code, code),
                other => panic!("{code}: {other:?}"),
            }
            assert!(!there(&maps, "a").await);
        }
        maps.create(&PostParams::default(), &named("a")).await.unwrap();
    });
}

#[test]
fn before_and_after_are_told_apart() {
    run(async |cluster, _, maps| {
        for (fault, done) in
            [(Fault::ResetBefore, false), (Fault::ResetAfter, true), (Fault::AnswerAfter(504), true)]
        {
            let name =
                format!("after-{done}-{}", maps.list(&ListParams::default()).await.unwrap().items.len());
            cluster.faults().when(creates, fault.clone(), 1);
            assert!(maps.create(&PostParams::default(), &named(&name)).await.is_err(), "{fault:?}");
            assert_eq!(there(&maps, &name).await, done, "{fault:?}");
        }
        for (fault, name, done) in [(Fault::HangBefore, "x", false), (Fault::HangAfter, "y", true)] {
            cluster.faults().when(creates, fault, 1);
            let (how, what) = (PostParams::default(), named(name));
            let sent = tokio::time::timeout(Duration::from_secs(30), maps.create(&how, &what));
            assert!(sent.await.is_err());
            assert_eq!(there(&maps, name).await, done);
        }
    });
}

#[test]
fn a_fault_by_ordinal_hits_that_request_only() {
    run(async |cluster, _, maps| {
        let next = cluster.faults().calls();
        cluster.faults().at(next + 1, Fault::Refuse(500));
        maps.create(&PostParams::default(), &named("a")).await.unwrap();
        assert!(maps.create(&PostParams::default(), &named("b")).await.is_err());
        maps.create(&PostParams::default(), &named("b")).await.unwrap();
    });
}

#[test]
fn a_crash_ends_that_client_only() {
    run(async |cluster, _, _| {
        let (dies, lives) = (cluster.client(), cluster.client());
        let maps: Api<ConfigMap> = Api::default_namespaced(dies);
        cluster.faults().when(creates, Fault::CrashAfter, 1);
        assert!(maps.create(&PostParams::default(), &named("a")).await.is_err());
        assert!(maps.list(&ListParams::default()).await.is_err());
        assert!(there(&Api::default_namespaced(lives), "a").await);
    });
}

#[test]
fn stale_reads_and_compaction() {
    run(async |cluster, _, maps| {
        maps.create(&PostParams::default(), &named("a")).await.unwrap();
        maps.create(&PostParams::default(), &named("b")).await.unwrap();
        let count = async || maps.list(&ListParams::default()).await.unwrap().items.len();
        let now = count().await;
        cluster.faults().when(|call| call.verb == "list", Fault::Stale(1), 1);
        assert_eq!(count().await, now - 1);
        assert_eq!(count().await, now);
        let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
        maps.create(&PostParams::default(), &named("c")).await.unwrap();
        cluster.faults().when(|call| call.verb == "list", Fault::Compact, 1);
        let next = ListParams::default().limit(1).continue_token(&page.metadata.continue_.unwrap());
        match maps.list(&next).await {
            Err(Error::Api(status)) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_blackout_ends() {
    run(async |cluster, _, maps| {
        cluster.faults().blackout(Duration::from_secs(30));
        assert!(maps.list(&ListParams::default()).await.is_err());
        tokio::time::sleep(Duration::from_secs(31)).await;
        maps.list(&ListParams::default()).await.unwrap();
    });
}

#[test]
fn watch_events_are_dropped_doubled_and_late() {
    for (fault, wanted) in [
        (WatchFault::Drop, &["a", "c"][..]),
        (WatchFault::Duplicate, &["a", "b", "b", "c"]),
        (WatchFault::Gone, &["a", "410"]),
        (WatchFault::End, &["a"]),
        (WatchFault::Delay(Duration::from_secs(5)), &["a", "b", "c"]),
    ] {
        run(async |cluster, _, maps| {
            let began = cluster.revision().to_string();
            cluster.faults().event("configmaps", 1, fault);
            let stream = maps.watch(&WatchParams::default().timeout(20), &began).await.unwrap();
            let watch = tokio::spawn(async move {
                let mut stream = stream.boxed();
                let mut seen = Vec::new();
                let since = tokio::time::Instant::now();
                let mut first_late = None;
                while let Ok(Some(event)) = stream.try_next().await {
                    match event {
                        WatchEvent::Added(map) => seen.push(map.metadata.name.unwrap()),
                        WatchEvent::Error(status) => seen.push(status.code.to_string()),
                        _ => {}
                    }
                    if seen.len() == 2 {
                        first_late = first_late.or(Some(since.elapsed()));
                    }
                }
                (seen, first_late)
            });
            for name in ["a", "b", "c"] {
                tokio::time::sleep(Duration::from_millis(10)).await;
                maps.create(&PostParams::default(), &named(name)).await.unwrap();
            }
            let (seen, late) = watch.await.unwrap();
            assert_eq!(seen, wanted, "{fault:?}");
            if let WatchFault::Delay(time) = fault {
                assert!(late.unwrap() >= time, "{late:?}");
            }
        });
    }
}

#[test]
fn requests_are_remembered() {
    run(async |cluster, _, maps| {
        cluster.faults().record();
        maps.create(&PostParams::default(), &named("a")).await.unwrap();
        let calls = cluster.faults().record();
        assert_eq!(calls.len(), 1);
        assert!(calls[0].is_write() && calls[0].namespace.as_deref() == Some("default"));
    });
}
