//! Leader election on a Lease object: the driver of [`evenkeel_core::lease`].
//!
//! Here belong requests and the clock; every decision is the core's. The invariants: a [`Proof`] ends
//! `renew_deadline` after the renewal behind it was *sent*, so whoever checks it right before a request sends
//! nothing after another replica took over; and a [`Term`] that ended never gives a proof again, even when we lead
//! again. A Lease never fences by itself: every write still carries its own precondition.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::lease::{Record, Timing, View, Write, step};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::clients::{one_line, within};

/// We do not lead, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leadership was lost")]
pub struct LeadershipLost;

/// Proves that this process leads, until [`Proof::valid_until`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    valid_until: Instant,
    /// The number of the term, counted from 1 for each time that this process begins to lead.
    term: u64,
}

impl Proof {
    /// The end of the proof. A renewal does not extend it: take a new one from [`Term::proof`].
    pub fn valid_until(&self) -> Instant {
        self.valid_until
    }

    /// Whether the proof still holds. Call it right before a request is sent.
    ///
    /// # Errors
    /// [`LeadershipLost`] when the proof has ended.
    pub fn check(&self) -> Result<(), LeadershipLost> {
        if Instant::now() < self.valid_until { Ok(()) } else { Err(LeadershipLost) }
    }
}

/// A term and the proof of it that was published last.
#[derive(Clone, Debug)]
struct Led {
    proof: Proof,
    /// Cancelled when the term is over before its proof ends.
    over: CancellationToken,
}

/// Whether this process leads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Led>>);

impl Leadership {
    /// Resolves as soon as we lead, with the term that begins or goes on; never if the election was stopped.
    pub async fn gained(&self) -> Term {
        let mut proofs = self.0.clone();
        let leads = |led: &Option<Led>| led.as_ref().is_some_and(|led| led.proof.check().is_ok());
        let led = proofs.wait_for(leads).await.ok().and_then(|led| led.clone());
        match led {
            Some(Led { proof, over }) => Term { number: proof.term, over, proofs },
            None => std::future::pending().await,
        }
    }
}

/// One time without a gap in which this process leads. A term that is over never comes back, even when we lead again:
/// work that began in one term writes nothing in the next. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Term {
    number: u64,
    over: CancellationToken,
    proofs: watch::Receiver<Option<Led>>,
}

impl Term {
    /// A proof as of now, if this term lasts.
    pub fn proof(&self) -> Option<Proof> {
        self.proofs.borrow().as_ref().map(|led| led.proof).filter(|proof| self.holds(proof))
    }

    /// Resolves as soon as this term is over. A renewal wakes nobody: it is seen when the proof before it ends.
    pub async fn lost(&self) {
        while let Some(proof) = self.proof() {
            if self.over.run_until_cancelled(sleep_until(proof.valid_until)).await.is_none() {
                return;
            }
        }
    }

    fn holds(&self, proof: &Proof) -> bool {
        proof.term == self.number && proof.check().is_ok()
    }
}

/// The sending end of the election: it publishes one proof after the other, and numbers the terms.
#[derive(Debug)]
pub(super) struct Lessor {
    proofs: watch::Sender<Option<Led>>,
    term: u64,
}

impl Default for Lessor {
    fn default() -> Self {
        Self { proofs: watch::Sender::new(None), term: 0 }
    }
}

impl Lessor {
    /// Publishes that we lead until that instant, or with `None` that we do not lead. Returns whether a proof was
    /// published before.
    fn tell(&mut self, until: Option<Instant>) -> bool {
        // A proof that ran out ended its term, though nobody has looked.
        let before = self.proofs.borrow().clone();
        let goes_on = before.as_ref().filter(|led| until.is_some() && led.proof.check().is_ok());
        let led = until.map(|valid_until| {
            let over = goes_on.map_or_else(CancellationToken::new, |led| led.over.clone());
            self.term += u64::from(goes_on.is_none());
            Led { proof: Proof { valid_until, term: self.term }, over }
        });
        if let Some(over) = before.as_ref().filter(|_| goes_on.is_none()).map(|led| &led.over) {
            over.cancel();
        }
        self.proofs.send_replace(led);
        before.is_some()
    }

    /// Leads for `time` from now, and returns the term that begins or goes on.
    #[cfg(test)]
    pub(super) fn lets(&mut self, time: Duration) -> Term {
        self.tell(Some(Instant::now() + time));
        let proofs = self.proofs.subscribe();
        let over = proofs.borrow().as_ref().map(|led| led.over.clone()).unwrap_or_default();
        Term { number: self.term, over, proofs }
    }
}

/// A candidate for the leadership that one Lease stands for.
pub struct Candidate {
    /// A client without retries.
    pub client: Client,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who we are: another text for each start of a process, such as `<pod name>_<random>`.
    pub identity: String,
    /// The timing of the election.
    pub timing: Timing,
}

impl Candidate {
    /// Stands for election until `stop`, then releases the Lease if we hold it; the task ends after that.
    ///
    /// `stop` must not be cancelled before everything that acts as the leader has ended. Must be called inside a
    /// tokio runtime.
    pub fn spawn(self, stop: CancellationToken) -> (Leadership, JoinHandle<()>) {
        let lessor = Lessor::default();
        let leadership = Leadership(lessor.proofs.subscribe());
        let election = Election {
            leases: Api::namespaced(self.client, &self.namespace),
            name: self.name,
            view: View::new(&self.identity, self.timing),
            timing: self.timing,
            origin: Instant::now(),
            held: None,
            lessor,
        };
        (leadership, tokio::spawn(election.run(stop)))
    }
}

struct Election {
    leases: Api<Lease>,
    name: String,
    view: View,
    timing: Timing,
    origin: Instant,
    /// The Lease as our last write left it. `None` when it may have changed since: then it is read again.
    held: Option<Lease>,
    lessor: Lessor,
}

impl Election {
    async fn run(mut self, stop: CancellationToken) {
        while stop.run_until_cancelled(self.look()).await.is_some() {
            if stop.run_until_cancelled(sleep(self.timing.retry)).await.is_none() {
                break;
            }
        }
        self.release().await;
    }

    /// Gives the Lease up, so that others take over at once. It tries once; if that fails, the Lease expires.
    async fn release(mut self) {
        let (view, write) = self.view.clone().release();
        self.view = view;
        self.publish();
        if write.is_none() {
            return;
        }
        // A look that was interrupted may have written the Lease: it is read again before it is released.
        let lease = match self.held.take() {
            Some(held) => Ok(Some(held)),
            None => within(self.limit(), self.leases.get_opt(&self.name)).await,
        };
        let released = match lease {
            Ok(lease) => {
                let (view, _) = step(self.view.clone(), lease.as_ref().map(record), self.now());
                match view.release().1 {
                    Some(write) => self.send(&write, lease).await.map(|_| ()),
                    None => return,
                }
            }
            Err(error) => Err(error),
        };
        match released {
            Ok(()) => tracing::info!("leadership released"),
            Err(error) => tracing::warn!(error = one_line(&error), "the lease was not released; it expires"),
        }
    }

    /// One look at the Lease and, if it is our turn, one write.
    async fn look(&mut self) {
        let lease = match self.held.take() {
            Some(held) => Some(held),
            None => match within(self.limit(), self.leases.get_opt(&self.name)).await {
                Ok(lease) => lease,
                Err(error) => {
                    tracing::warn!(error = one_line(&error), "cannot read the leader election lease");
                    return self.publish();
                }
            },
        };
        let (view, write) = step(self.view.clone(), lease.as_ref().map(record), self.now());
        self.view = view;
        self.publish();
        let Some(write) = write else { return };
        let sent = self.now();
        match self.send(&write, lease).await {
            Ok(lease) => {
                self.view = self.view.clone().wrote(record(&lease), sent, self.now());
                self.held = Some(lease);
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                tracing::debug!("another candidate wrote the lease first");
            }
            Err(error) => tracing::warn!(error = one_line(&error), "cannot write the leader election lease"),
        }
        self.publish();
    }

    async fn send(&self, write: &Write, lease: Option<Lease>) -> kube::Result<Lease> {
        let now = MicroTime(Timestamp::now());
        let mut lease = lease.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            ..Lease::default()
        });
        lease.metadata.resource_version = write.resource_version.as_deref().map(str::to_owned);
        lease.metadata.managed_fields = None;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(write.holder.as_ref().to_owned());
        // Whole seconds on the wire: rounded up, so that nobody waits less than we count on.
        let seconds = write.duration.as_millis().div_ceil(1000);
        spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
        spec.lease_transitions = Some(write.transitions);
        spec.renew_time = Some(now.clone());
        if write.acquires {
            spec.acquire_time = Some(now);
        }
        let params = PostParams::default();
        if write.resource_version.is_some() {
            within(self.limit(), self.leases.replace(&self.name, &params, &lease)).await
        } else {
            within(self.limit(), self.leases.create(&params, &lease)).await
        }
    }

    fn publish(&mut self) {
        let now = self.now();
        let until = self.view.leads_until().filter(|until| now < *until);
        let led = self.lessor.tell(until.map(|until| self.origin + until));
        match (led, until.is_some()) {
            (false, true) => tracing::info!("leading"),
            (true, false) => tracing::warn!("no longer leading"),
            _ => {}
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The longest wait for one answer. As in client-go, two attempts fit into the deadline.
    fn limit(&self) -> Duration {
        self.timing.renew_deadline / 2
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    let seconds =
        spec.and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.to_string());
    Record {
        resource_version: lease.metadata.resource_version.as_deref().unwrap_or_default().into(),
        holder: spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default().into(),
        duration: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or_default(),
        renewed: Arc::from(renewed.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::sync::Mutex;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// One Lease behind a server that enforces resourceVersion, and who is cut off from it.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<Stored>>);

    #[derive(Default)]
    struct Stored {
        lease: Option<Value>,
        version: u64,
        cut_off: BTreeSet<&'static str>,
    }

    impl Server {
        fn answer(&self, who: &str, method: &http::Method, sent: &[u8]) -> (u16, Value) {
            let mut server = self.0.lock().unwrap();
            let Stored { lease, version, cut_off } = &mut *server;
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
                    let (code, answer) = server.answer(who, &parts.method, &sent);
                    let answer = Body::from(answer.to_string().into_bytes());
                    Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).unwrap())
                }
            });
            Client::new(service, "default")
        }

        fn candidate(&self, who: &'static str, stop: &CancellationToken) -> (Leadership, JoinHandle<()>) {
            let timing = Timing {
                // Whole seconds on the wire.
                lease: Duration::from_secs(1),
                renew_deadline: Duration::from_millis(500),
                retry: Duration::from_millis(50),
            };
            let (namespace, name) = ("evenkeel".to_owned(), "evenkeel".to_owned());
            Candidate { client: self.client(who), namespace, name, identity: who.to_owned(), timing }
                .spawn(stop.clone())
        }

        fn holder(&self) -> String {
            self.0.lock().unwrap().lease.as_ref().unwrap()["spec"]["holderIdentity"]
                .as_str()
                .unwrap()
                .to_owned()
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
        let (a, a_ends) = server.candidate("a", &stop_a);
        let term = soon(a.gained()).await;
        let (b, _) = server.candidate("b", &stop_b);
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
        let (a, _) = server.candidate("a", &stop);
        let term = soon(a.gained()).await;
        let proof = term.proof().unwrap();
        let (b, _) = server.candidate("b", &stop);
        server.0.lock().unwrap().cut_off.insert("a");
        soon(term.lost()).await;
        assert!(proof.check().is_err() && !leads(&b));
        soon(b.gained()).await;
        assert!(!leads(&a));
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_leads_again_leads_another_term() {
        let server = Server::default();
        let stop = CancellationToken::new();
        let (a, _) = server.candidate("a", &stop);
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
}
