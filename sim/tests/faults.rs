//! Every fault does what it says, to the request that was named and to no other.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_sim::Cluster;
use evenkeel_sim::faults::{Call, Fault, Rewrite, WatchFault, shortest};
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

#[test]
fn admission_denies_and_rewrites() {
    run(async |cluster, _, maps| {
        cluster.faults().when(creates, Fault::Deny("no.example"), 1);
        match maps.create(&PostParams::default(), &named("a")).await {
            Err(Error::Api(status)) => {
                assert_eq!(status.code, 400);
                assert!(status.message.starts_with("admission webhook \"no.example\" denied the request"));
            }
            other => panic!("{other:?}"),
        }
        cluster.faults().when(creates, Fault::WebhookDown("no.example"), 1);
        assert!(maps.create(&PostParams::default(), &named("a")).await.is_err());
        assert!(!there(&maps, "a").await);
        let mut map = named("a");
        map.metadata.annotations = Some([("example.com/ours".to_owned(), "yes".to_owned())].into());
        cluster.faults().when(
            creates,
            Fault::Rewrite(Rewrite::without("/metadata/annotations/example.com~1ours")),
            1,
        );
        let made = maps.create(&PostParams::default(), &map).await.unwrap();
        assert!(made.metadata.annotations.unwrap_or_default().is_empty());
    });
}

#[test]
fn what_is_late_is_carried_out_though_nobody_waits() {
    run(async |cluster, _, maps| {
        cluster.faults().when(creates, Fault::Late(Duration::from_secs(20)), 1);
        let (how, what) = (PostParams::default(), named("a"));
        let sent = tokio::time::timeout(Duration::from_secs(5), maps.create(&how, &what));
        assert!(sent.await.is_err());
        assert!(!there(&maps, "a").await);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(there(&maps, "a").await);
    });
}

/// A program is stopped just before a request, which it gives up meanwhile, and it has a watch open. Until it goes on,
/// it sends nothing and is told nothing. Then the request is carried out all the same, and the watch tells what
/// happened.
#[test]
fn who_is_stopped_does_nothing_until_it_goes_on() {
    run(async |cluster, client, maps| {
        let stopped = cluster.process("stopped");
        let its: Api<ConfigMap> = Api::default_namespaced(stopped.client());
        let begun = tokio::time::Instant::now();
        let mut watch = its.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        let from_stopped = |call: &Call| creates(call) && call.agent == "stopped";
        cluster.faults().when(from_stopped, Fault::Pause(Duration::from_secs(20)), 1);
        let (how, its_own, another) = (PostParams::default(), named("its-own"), named("another"));
        let given_up = tokio::time::timeout(Duration::from_secs(5), its.create(&how, &its_own));
        assert!(given_up.await.is_err());
        maps.create(&how, &another).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 5, "others are not stopped");
        assert!(!there(&maps, "its-own").await);

        let mut told = Vec::new();
        while let Ok(Some(WatchEvent::Added(map))) = watch.try_next().await {
            told.push((map.metadata.name.unwrap(), begun.elapsed().as_secs()));
            if told.len() == 3 {
                break;
            }
        }
        let when_it_goes_on = ["kube-root-ca.crt", "another", "its-own"].map(|name| (name.to_owned(), 20));
        assert_eq!(told, when_it_goes_on);
        drop(client);

        stopped.pause(Duration::from_secs(7));
        assert!(there(&its, "its-own").await);
        assert_eq!(begun.elapsed().as_secs(), 27);
    });
}

/// What a watch of `ConfigMaps` tells in the next 30 seconds while `work` goes on, and whether it broke.
async fn watched(maps: &Api<ConfigMap>, from: &str, work: impl Future<Output = ()>) -> (Vec<String>, bool) {
    let how = WatchParams::default().timeout(200);
    let stream = maps.watch(&how, from).await.unwrap();
    let watch = tokio::spawn(async move {
        let mut stream = stream.boxed();
        let mut seen = Vec::new();
        loop {
            match tokio::time::timeout(Duration::from_secs(100), stream.next()).await {
                Ok(Some(Ok(WatchEvent::Added(map)))) => seen.push(map.metadata.name.unwrap()),
                Ok(Some(Ok(WatchEvent::Bookmark(_)))) => seen.push("bookmark".to_owned()),
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(_))) => return (seen, true),
                Ok(None) | Err(_) => return (seen, false),
            }
        }
    });
    work.await;
    watch.await.unwrap()
}

#[test]
fn watches_that_say_nothing_or_break() {
    for (fault, wanted) in [(Fault::Bookmarks, true), (Fault::Silence, false)] {
        run(async |cluster, _, maps| {
            let from = cluster.revision().to_string();
            cluster.faults().when(|call| call.verb == "watch", fault.clone(), 1);
            let work = async { drop(maps.create(&PostParams::default(), &named("a")).await) };
            let (seen, _) = watched(&maps, &from, work).await;
            assert_eq!(seen.iter().any(|seen| seen == "bookmark"), wanted, "{fault:?}");
            assert!(seen.iter().all(|seen| seen == "bookmark"), "{fault:?}: {seen:?}");
        });
    }
    run(async |cluster, _, maps| {
        let from = cluster.revision().to_string();
        let work = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cluster.faults().blackout(Duration::from_secs(3));
        };
        let (_, broke) = watched(&maps, &from, work).await;
        assert!(broke, "a blackout breaks what is open");
        tokio::time::sleep(Duration::from_secs(3)).await;
        maps.list(&ListParams::default()).await.unwrap();
    });
    run(async |cluster, _, maps| {
        let from = cluster.revision().to_string();
        cluster.faults().event("configmaps", 0, WatchFault::Swap);
        let work = async {
            for name in ["a", "b", "c"] {
                maps.create(&PostParams::default(), &named(name)).await.unwrap();
            }
        };
        let (seen, _) = watched(&maps, &from, work).await;
        assert_eq!(seen.iter().filter(|seen| *seen != "bookmark").collect::<Vec<_>>(), ["b", "a", "c"]);
    });
}

#[test]
fn a_watch_can_begin_in_the_past() {
    run(async |cluster, _, maps| {
        for name in ["a", "b"] {
            maps.create(&PostParams::default(), &named(name)).await.unwrap();
        }
        cluster.faults().when(|call| call.verb == "watch", Fault::Stale(1), 1);
        let how = WatchParams::default().initial_events().timeout(10);
        let mut stream = maps.watch(&how, "").await.unwrap().boxed();
        let mut seen = Vec::new();
        while let Some(Ok(event)) = stream.next().await {
            match event {
                WatchEvent::Added(map) => seen.push(map.metadata.name.unwrap()),
                WatchEvent::Bookmark(mark)
                    if mark.metadata.annotations.contains_key("k8s.io/initial-events-end") =>
                {
                    seen.push("|".to_owned());
                }
                _ => {}
            }
        }
        let of_ours: Vec<_> = seen.iter().filter(|name| ["a", "b", "|"].contains(&name.as_str())).collect();
        assert_eq!(of_ours, ["a", "|", "b"], "what is newer than the beginning follows");
    });
}

#[test]
fn a_clock_jumps_and_timers_do_not_notice() {
    run(async |cluster, _, _| {
        let (before, began) = (cluster.now(), tokio::time::Instant::now());
        cluster.jump(jiff::SignedDuration::from_hours(-1));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(began.elapsed().as_secs(), 60);
        assert_eq!(cluster.now().duration_since(before).as_secs(), 60 - 3600);
    });
}

#[test]
fn every_write_is_told_with_its_author() {
    run(async |cluster, _, _| {
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let tell = told.clone();
        cluster.on_write(move |write| {
            if write.resource() == "configmaps" {
                let now = write.after().is_some();
                tell.lock().unwrap().push((write.author().to_owned(), write.name().to_owned(), now));
            }
        });
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client_of("tester"));
        maps.create(&PostParams::default(), &named("a")).await.unwrap();
        maps.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
        let wanted = [true, false].map(|now| ("tester".to_owned(), "a".to_owned(), now));
        assert_eq!(*told.lock().unwrap(), wanted);
    });
}

#[test]
fn a_failing_script_is_made_as_short_as_it_can_be() {
    let script: Vec<u32> = (0..40).collect();
    let mut asked = 0;
    let short = shortest(&script, |script| {
        asked += 1;
        script.contains(&7)
            && script.contains(&31)
            && script.iter().position(|at| *at == 7) < script.iter().position(|at| *at == 31)
    });
    assert_eq!(short, [7, 31]);
    assert!(asked < 120, "{asked}");
    assert!(shortest(&script, |_| true).is_empty());
}

/// A program that opens the watch again goes on after its last bookmark.
#[test]
fn a_bookmark_never_overtakes_an_event_that_is_late() {
    run(async |cluster, _, maps| {
        let from = cluster.revision().to_string();
        cluster.faults().event("configmaps", 0, WatchFault::Delay(Duration::from_secs(20)));
        let work = async {
            // The bookmark is due at 60 s, the event that was written before at 75 s.
            tokio::time::sleep(Duration::from_secs(55)).await;
            maps.create(&PostParams::default(), &named("a")).await.unwrap();
        };
        let (seen, _) = watched(&maps, &from, work).await;
        assert_eq!(seen.first().map(String::as_str), Some("a"), "{seen:?}");
    });
}
