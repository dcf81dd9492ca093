//! Candidates for one Lease, behind a server that enforces its version and that some of them cannot reach.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Mutex;

use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;

/// One Lease behind a server that enforces resourceVersion, and who is cut off from it.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
    cut_off: BTreeSet<&'static str>,
    /// How long each answer takes.
    takes: Duration,
}

impl Server {
    fn answer(&self, who: &str, method: &http::Method, sent: &[u8]) -> (u16, Value) {
        let mut server = self.0.lock().unwrap();
        let Stored { lease, version, cut_off, .. } = &mut *server;
        let status = |code: u16, reason: &str| {
            (
                code,
                json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": reason}),
            )
        };
        if cut_off.contains(who) {
            return status(503, "ServiceUnavailable");
        }
        if method == http::Method::GET {
            return lease.clone().map_or_else(|| status(404, "NotFound"), |lease| (200, lease));
        }
        let mut object: Value = serde_json::from_slice(sent).unwrap();
        let precondition = object["metadata"]["resourceVersion"].clone();
        let current =
            lease.as_ref().map_or(Value::Null, |lease| lease["metadata"]["resourceVersion"].clone());
        if precondition != current {
            return status(409, if method == http::Method::POST { "AlreadyExists" } else { "Conflict" });
        }
        *version += 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        *lease = Some(object.clone());
        (200, object)
    }

    fn client(&self, who: &'static str) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let sent = body.collect_bytes().await.unwrap();
                let takes = server.0.lock().unwrap().takes;
                sleep(takes).await;
                let (code, answer) = server.answer(who, &parts.method, &sent);
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn candidate(&self, who: &'static str) -> Candidate {
        let timing = LeaseTiming {
            // Whole seconds on the wire.
            lease: Duration::from_secs(1),
            renew_deadline: Duration::from_millis(500),
            retry: Duration::from_millis(50),
        };
        let (namespace, name) = ("evenkeel".to_owned(), "evenkeel".to_owned());
        Candidate { client: self.client(who), namespace, name, identity: who.to_owned(), timing }
    }

    fn holder(&self) -> String {
        self.0.lock().unwrap().lease.as_ref().unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
    }
}

fn leads(leadership: &Leadership) -> bool {
    leadership.0.borrow().as_ref().is_some_and(|led| led.proof.check().is_ok())
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("in time")
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_over() {
    let server = Server::default();
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let (a, a_ends) = server.candidate("a").spawn(stop_a.clone());
    let term = soon(a.gained()).await;
    let (b, _) = server.candidate("b").spawn(stop_b.clone());
    sleep(Duration::from_millis(1500)).await;
    assert!(term.proof().is_some() && !leads(&b), "a leader that renews keeps the lease");

    stop_a.cancel();
    soon(a_ends).await.unwrap();
    assert!(term.proof().is_none());
    soon(b.gained()).await;
    assert_eq!(server.holder(), "b");
    assert_eq!(server.0.lock().unwrap().lease.as_ref().unwrap()["spec"]["leaseTransitions"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let server = Server::default();
    let stop = CancellationToken::new();
    let (a, _) = server.candidate("a").spawn(stop.clone());
    let term = soon(a.gained()).await;
    let proof = term.proof().unwrap();
    let (b, _) = server.candidate("b").spawn(stop.clone());
    server.0.lock().unwrap().cut_off.insert("a");
    soon(term.lost()).await;
    assert!(proof.check().is_err() && !leads(&b));
    soon(b.gained()).await;
    assert!(!leads(&a));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_and_answers_in_time_costs_no_leadership() {
    let server = Server::default();
    server.0.lock().unwrap().takes = Duration::from_millis(4500);
    let candidate = Candidate { timing: LeaseTiming::default(), ..server.candidate("a") };
    let (a, _) = candidate.spawn(CancellationToken::new());
    let term = tokio::time::timeout(Duration::from_mins(1), a.gained()).await.unwrap();
    let lost = tokio::time::timeout(Duration::from_mins(10), term.lost()).await;
    assert!(lost.is_err(), "each renewal was answered before the proof of the one before it ended");
}

#[tokio::test(start_paused = true)]
async fn whoever_leads_again_leads_another_term() {
    let server = Server::default();
    let stop = CancellationToken::new();
    let (a, _) = server.candidate("a").spawn(stop.clone());
    let first = soon(a.gained()).await;
    server.0.lock().unwrap().cut_off.insert("a");
    soon(first.lost()).await;
    server.0.lock().unwrap().cut_off.clear();
    let second = soon(a.gained()).await;
    assert!(second.proof().is_some());
    assert!(first.proof().is_none(), "what was begun in the first term ends with it");
    soon(first.lost()).await;
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_long_is_told_of_once() {
    let server = Server::default();
    let mut election = server.candidate("a").election();
    for outage in 0..2 {
        assert_eq!(looks(&mut election, 100).await, if outage == 0 { vec![] } else { vec![LookNews::Works] });
        server.0.lock().unwrap().cut_off.insert("a");
        assert_eq!(looks(&mut election, 100).await, [LookNews::Fails], "a hundred looks failed");
        server.0.lock().unwrap().cut_off.clear();
    }
}

/// The news of so many looks.
async fn looks(election: &mut Election, count: usize) -> Vec<LookNews> {
    let mut news = Vec::new();
    for _ in 0..count {
        let looked = election.look().await;
        news.extend(election.news(&looked));
        sleep(election.timing.retry).await;
    }
    news
}
