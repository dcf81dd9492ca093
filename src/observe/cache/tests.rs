//! The request loop against an in-process kube-apiserver that follows a script.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::{StreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::super::lean::Lease;
use super::contents::{STARTING, cause};
use super::*;

/// One answer of the kube-apiserver.
enum ScriptedAnswer {
    Refuse(u16, &'static str),
    List(Value),
    /// A watch that tells these events and then stays open, or ends.
    Watch(Vec<Value>, bool),
}

/// Answers in turn and keeps what was asked; after the last answer every request hangs.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<(VecDeque<ScriptedAnswer>, Vec<String>)>>);

impl Server {
    fn new(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self(Arc::new(Mutex::new((answers.into_iter().collect(), Vec::new()))))
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }

    fn watch(&self) -> (Cache<Lease>, CancellationToken) {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let server = server.clone();
            async move {
                let answer = {
                    let mut server = server.0.lock().unwrap();
                    server.1.push(request.uri().query().unwrap_or_default().to_owned());
                    server.0.pop_front()
                };
                let (code, body) = match answer {
                    None => std::future::pending().await,
                    Some(ScriptedAnswer::Refuse(code, message)) => {
                        let status =
                            json!({"kind": "Status", "status": "Failure", "code": code, "message": message});
                        (code, Body::from(status.to_string()))
                    }
                    Some(ScriptedAnswer::List(list)) => (200, Body::from(list.to_string())),
                    Some(ScriptedAnswer::Watch(events, open)) => {
                        let lines: String =
                            events.iter().flat_map(|event| [event.to_string(), "\n".to_owned()]).collect();
                        let told = stream::once(async move { Ok::<_, Infallible>(Bytes::from(lines)) });
                        let body = if open { told.chain(stream::pending()).boxed() } else { told.boxed() };
                        (200, Body::from_stream(body))
                    }
                };
                Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        let api = Api::namespaced(Client::new(service, "default"), "kube-system");
        let pace = RetryPace { first: Duration::from_millis(10), longest: Duration::from_millis(40) };
        let stop = CancellationToken::new();
        (Cache::spawn(api, &(), Select::default(), pace, &Shared::until(stop.clone())), stop)
    }
}

fn lease(name: &str, version: u32) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata":
        {"name": name, "namespace": "kube-system", "resourceVersion": version.to_string(), "uid": name}})
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn mark(version: u32, ends_the_list: bool) -> Value {
    let annotations = if ends_the_list { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    event("BOOKMARK", &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}))
}

/// What a server says that has forgotten the changes since then.
fn too_old() -> Value {
    event(
        "ERROR",
        &json!({"kind": "Status", "code": 410, "message": "too old resource version", "reason": "Expired"}),
    )
}

fn names(cache: &Cache<Lease>) -> Vec<String> {
    cache.list().iter().map(|lease| lease.name.to_string()).collect()
}

async fn until(cache: &Cache<Lease>, done: impl Fn(&Cache<Lease>) -> bool) {
    let mut changes = cache.0.shared.changes.subscribe();
    let settled = async {
        while !done(cache) {
            assert!(changes.changed().await);
        }
    };
    let state = || format!("{:?} {:?}", cache.state(), names(cache));
    timeout(Duration::from_secs(10), settled).await.unwrap_or_else(|_| panic!("it stays at {}", state()));
}

fn synced(cache: &Cache<Lease>, expected: &[&str]) -> bool {
    cache.state() == SyncState::Synced && names(cache) == expected
}

#[tokio::test]
async fn a_streamed_list_is_followed_and_resumed_where_it_ended() {
    let added = |name, version| event("ADDED", &lease(name, version));
    let server = Server::new([
        ScriptedAnswer::Watch(
            vec![added("a", 3), added("b", 4), mark(7, true), added("c", 8), mark(9, false)],
            false,
        ),
        ScriptedAnswer::Watch(vec![event("DELETED", &lease("a", 10))], true),
    ]);
    let (cache, _stop) = server.watch();
    until(&cache, |cache| synced(cache, &["b", "c"])).await;
    let asked = server.asked();
    assert!(
        asked[0].contains("sendInitialEvents=true") && asked[0].ends_with("resourceVersion="),
        "{}",
        asked[0]
    );
    assert!(
        asked[1].ends_with("resourceVersion=9") && !asked[1].contains("sendInitialEvents"),
        "{}",
        asked[1]
    );
    assert!(cache.confirmed().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_paged_from_then_on() {
    let page = |names: &[&str], version: u32, more: &str| {
        let items: Vec<_> = names.iter().map(|name| lease(name, 3)).collect();
        ScriptedAnswer::List(
            json!({"metadata": {"resourceVersion": version.to_string(), "continue": more}, "items": items}),
        )
    };
    let by_gate = ScriptedAnswer::Refuse(
        422,
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
    );
    let old_etcd = "a watch stream was requested by the client but the required storage feature RequestWatchProgress \
                    is disabled";
    let by_storage = json!({"kind": "Status", "code": 500, "message": old_etcd, "reason": "InternalError"});
    for refuses in [by_gate, ScriptedAnswer::Watch(vec![event("ERROR", &by_storage)], false)] {
        let server = Server::new([
            refuses,
            page(&["a"], 7, "next"),
            page(&["b"], 7, ""),
            ScriptedAnswer::Watch(vec![too_old()], false),
            page(&["b"], 20, ""),
        ]);
        let (cache, _stop) = server.watch();
        until(&cache, |cache| names(cache) == ["a", "b"]).await;
        until(&cache, |cache| synced(cache, &["b"])).await;
        let asked = server.asked();
        assert!(asked[1].contains("limit=500") && asked[2].contains("continue=next"), "{asked:?}");
        assert!(asked[3].contains("watch=true") && asked[4].contains("limit=500"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_server_forgot_is_not_relied_on_and_is_listed_at_once() {
    let a = || event("ADDED", &lease("a", 3));
    let server = Server::new([
        // It is silent for so long that the watch is opened again.
        ScriptedAnswer::Watch(vec![a(), mark(7, true)], true),
        ScriptedAnswer::Watch(vec![too_old()], true),
        ScriptedAnswer::Watch(vec![a(), mark(9, true), too_old()], true),
    ]);
    let (cache, _stop) = server.watch();
    until(&cache, |cache| synced(cache, &["a"])).await;
    while server.asked().len() < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    let begun = Instant::now();
    while server.asked().len() < 4 {
        assert!(begun.elapsed() < Duration::from_millis(18), "it is listed at once: {:?}", server.asked());
        sleep(Duration::from_millis(1)).await;
    }
    assert!(
        begun.elapsed() >= Duration::from_millis(10),
        "a list that is at once too old is not repeated at once"
    );
    assert_eq!(cache.state(), SyncState::Syncing, "the last list did not last");
}

#[tokio::test(start_paused = true)]
async fn after_a_long_failure_nothing_is_relied_on_before_a_new_list() {
    for (failures, lists) in [(50, false), (200, true)] {
        let begins = ScriptedAnswer::Watch(vec![event("ADDED", &lease("a", 3)), mark(7, true)], false);
        let away = std::iter::repeat_with(|| ScriptedAnswer::Refuse(503, "no connection")).take(failures);
        // The server has not told yet what was missed.
        let back = ScriptedAnswer::Watch(Vec::new(), true);
        let list = ScriptedAnswer::Watch(vec![event("ADDED", &lease("b", 8)), mark(9, true)], true);
        let server = Server::new(std::iter::once(begins).chain(away).chain([back, list]));
        let (cache, _stop) = server.watch();
        until(&cache, |cache| matches!(cache.state(), SyncState::Failing { .. })).await;
        let begun = Instant::now();
        while cache.state() != SyncState::Synced {
            sleep(Duration::from_millis(1)).await;
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", cache.state());
        }
        assert_eq!(begun.elapsed() > Duration::from_secs(5), lists, "{:?}", begun.elapsed());
        assert_eq!(names(&cache), [if lists { "b" } else { "a" }], "after {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn an_undecodable_object_taints_until_it_is_listed_clean() {
    let bad = event("ADDED", &json!({"metadata": {"name": "bad", "labels": 7}}));
    let good = event("ADDED", &lease("good", 3));
    let server = Server::new([
        ScriptedAnswer::Watch(vec![good.clone(), bad, mark(7, true)], true),
        ScriptedAnswer::Watch(vec![good, mark(8, true)], true),
    ]);
    let (cache, _stop) = server.watch();
    until(&cache, |cache| matches!(cache.state(), SyncState::Tainted(_)) && names(cache) == ["good"]).await;
    until(&cache, |cache| synced(cache, &["good"])).await;
}

#[tokio::test]
async fn refusals_say_what_to_do_and_grow_rarer() {
    let refuse = |code, message| ScriptedAnswer::Refuse(code, message);
    let server = Server::new([
        refuse(403, "leases is forbidden"),
        refuse(404, "the server could not find the requested resource"),
        refuse(500, "etcd is down"),
        refuse(500, "etcd is down"),
        ScriptedAnswer::Watch(vec![mark(7, true)], true),
    ]);
    let begun = Instant::now();
    let (cache, _stop) = server.watch();
    let failing = |cache: &Cache<Lease>, text: &str| matches!(cache.state(), SyncState::Failing { why, .. } if why.contains(text));
    let grant = "grant the verbs list and watch on leases.coordination.k8s.io";
    until(&cache, |cache| matches!(cache.state(), SyncState::Refused(why) if why.contains(grant))).await;
    until(&cache, |cache| failing(cache, "does not serve leases.coordination.k8s.io")).await;
    until(&cache, |cache| failing(cache, "etcd is down (HTTP 500)")).await;
    until(&cache, |cache| synced(cache, &[])).await;
    assert!(begun.elapsed() >= Duration::from_millis(10 + 20 + 40 + 40));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_just_started_is_no_lost_permission() {
    let begins = ScriptedAnswer::Watch(vec![mark(7, true)], false);
    let refuses = std::iter::repeat_with(|| ScriptedAnswer::Refuse(403, "leases is forbidden"));
    let server = Server::new(std::iter::once(begins).chain(refuses.take(5000)));
    let (cache, _stop) = server.watch();
    let begun = Instant::now();
    let why = "Lease: cannot watch leases.coordination.k8s.io: leases is forbidden (HTTP 403)";
    until(&cache, |cache| matches!(cache.state(), SyncState::Failing { why: told, code: Some(403) } if told.as_ref() == why)).await;
    sleep(STARTING.saturating_sub(begun.elapsed() + Duration::from_secs(1))).await;
    assert!(matches!(cache.state(), SyncState::Failing { .. }), "{:?}", cache.state());
    until(&cache, |cache| matches!(cache.state(), SyncState::Refused(_))).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_away_for_long_and_has_just_started_is_no_lost_permission() {
    let begins = ScriptedAnswer::Watch(vec![mark(7, true)], false);
    // With the longest wait of these tests, longer than `STARTING`.
    let away = std::iter::repeat_with(|| ScriptedAnswer::Refuse(503, "no connection")).take(3000);
    let refuses = std::iter::repeat_with(|| ScriptedAnswer::Refuse(403, "leases is forbidden")).take(5000);
    let server = Server::new(std::iter::once(begins).chain(away).chain(refuses));
    let (cache, _stop) = server.watch();
    let failing = |cache: &Cache<Lease>, with: &str| {
        assert!(!matches!(cache.state(), SyncState::Refused(_)), "{:?}", cache.state());
        matches!(cache.state(), SyncState::Failing { why, .. } if why.contains(with))
    };
    until(&cache, |cache| failing(cache, "503")).await;
    sleep(STARTING + Duration::from_secs(55)).await;
    assert!(failing(&cache, "503"), "it is away for longer than it takes to start");
    until(&cache, |cache| failing(cache, "403")).await;
    sleep(STARTING.saturating_sub(Duration::from_secs(6))).await;
    assert!(failing(&cache, "403"));
    until(&cache, |cache| matches!(cache.state(), SyncState::Refused(_))).await;
}

#[test]
fn what_kinds_have_in_common_is_told_once() {
    let answer = |code: u16| {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "x", "code": code, "message": "no"});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    };
    let alike = |code: u16, refused: bool| {
        cause(&answer(code), "Node: no", refused) == cause(&answer(code), "Pod: no", refused)
    };
    assert!(alike(503, false), "the server is away");
    assert!(alike(403, false), "the server has just started");
    assert!(!alike(403, true) && !alike(404, false), "each kind lacks something of its own");
}

#[tokio::test]
async fn a_watch_that_breaks_keeps_what_is_held() {
    let server = Server::new([
        ScriptedAnswer::Watch(vec![event("ADDED", &lease("a", 3)), mark(7, true)], false),
        ScriptedAnswer::Refuse(500, "etcd is down"),
        ScriptedAnswer::Watch(Vec::new(), true),
    ]);
    let (cache, _stop) = server.watch();
    until(&cache, |cache| matches!(cache.state(), SyncState::Failing { .. }) && names(cache) == ["a"]).await;
    until(&cache, |cache| synced(cache, &["a"])).await;
    assert_eq!(server.asked().len(), 3, "no second list");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_without_a_word_is_noticed_after_two_bookmarks() {
    let server = Server::new([
        ScriptedAnswer::Watch(vec![event("ADDED", &lease("a", 3)), mark(7, true)], true),
        ScriptedAnswer::Watch(vec![event("ADDED", &lease("b", 8))], true),
    ]);
    let (cache, _stop) = server.watch();
    until(&cache, |cache| synced(cache, &["a"])).await;
    let begun = Instant::now();
    let sees = async {
        let mut changes = cache.0.shared.changes.subscribe();
        while !synced(&cache, &["a", "b"]) {
            assert!(changes.changed().await);
        }
    };
    timeout(Duration::from_mins(5), sees).await.unwrap();
    let took = begun.elapsed();
    assert!(took > Duration::from_mins(2) && took < Duration::from_secs(140), "{took:?}");
    assert!(server.asked()[1].ends_with("resourceVersion=7"), "{}", server.asked()[1]);
}

#[tokio::test(start_paused = true)]
async fn what_a_watch_lost_is_made_good_by_a_list_before_long() {
    let server = Server::new([
        ScriptedAnswer::Watch(vec![event("ADDED", &lease("a", 3)), mark(7, true)], true),
        ScriptedAnswer::Watch(Vec::new(), true),
        // Nobody was told that `a` went and `b` came.
        ScriptedAnswer::Watch(vec![event("ADDED", &lease("b", 8)), mark(9, true)], true),
    ]);
    let (cache, _stop) = server.watch();
    until(&cache, |cache| synced(cache, &["a"])).await;
    let begun = Instant::now();
    while names(&cache) != ["b"] {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(cache.state(), SyncState::Synced, "what was complete stays so");
        assert!(begun.elapsed() < Duration::from_mins(6), "{:?}", names(&cache));
    }
    let asked = server.asked();
    let anew = |at: usize| asked[at].contains("sendInitialEvents=true");
    assert_eq!([anew(0), anew(1), anew(2)], [true, false, true], "{asked:?}");
}
