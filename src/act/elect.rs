//! Leader election on a Lease object: the driver of [`evenkeel_core::lease`].
//!
//! Here belong requests and the clock; every decision is the core's. The invariants: a [`Proof`] ends
//! `renew_deadline` after the renewal behind it was *sent*, so whoever checks it right before a request sends
//! nothing after another replica took over; and a [`Term`] that ended never gives a proof again, even when we lead
//! again. A Lease never fences by itself: every write still carries its own precondition.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::lease::{CandidateView, LeaseRecord, LeaseTiming, LeaseWrite, step};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
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
    /// Where the Lease is; the same for every installation that stands for it.
    pub namespace: String,
    /// `metadata.name` of the Lease.
    pub name: String,
    /// Who we are: another text for each start of a process, such as `<pod name>_<random>`.
    pub identity: String,
    /// How long a term is, and how often it is renewed and asked for.
    pub timing: LeaseTiming,
}

impl Candidate {
    /// Stands for election until `stop`, then releases the Lease if we hold it; the task ends after that.
    ///
    /// `stop` must not be cancelled before everything that acts as the leader has ended. Must be called inside a
    /// tokio runtime.
    pub fn spawn(self, stop: CancellationToken) -> (Leadership, JoinHandle<()>) {
        let election = self.election();
        let leadership = Leadership(election.lessor.proofs.subscribe());
        (leadership, tokio::spawn(election.run(stop)))
    }

    fn election(self) -> Election {
        Election {
            leases: Api::namespaced(self.client, &self.namespace),
            name: self.name,
            view: CandidateView::new(&self.identity, self.timing),
            timing: self.timing,
            origin: Instant::now(),
            held: None,
            troubled: false,
            lessor: Lessor::default(),
        }
    }
}

/// A look at the Lease that failed.
struct LookFailure {
    what: &'static str,
    error: kube::Error,
}

/// What people are told after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookNews {
    Fails,
    Works,
}

struct Election {
    leases: Api<Lease>,
    name: String,
    view: CandidateView,
    timing: LeaseTiming,
    origin: Instant,
    /// The Lease as our last write left it. `None` when it may have changed since: then it is read again.
    held: Option<Lease>,
    /// Whether the last look failed.
    troubled: bool,
    lessor: Lessor,
}

impl Election {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            // The next look is due so long after the begin of this one: a slow answer must not put the renewal off as well.
            let next = Instant::now() + self.timing.retry;
            let Some(looked) = stop.run_until_cancelled(self.look()).await else { break };
            match (self.news(&looked), looked) {
                (Some(LookNews::Fails), Err(LookFailure { what, error })) => {
                    tracing::warn!(error = one_line(&error), "{what}; it is tried again");
                }
                (Some(LookNews::Works), _) => {
                    tracing::info!("the leader election lease can be read and written again");
                }
                _ => {}
            }
            if stop.run_until_cancelled(sleep_until(next)).await.is_none() {
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

    /// One look at the Lease and, if it is our turn, one write. Whatever becomes of it, who leads is published.
    async fn look(&mut self) -> Result<(), LookFailure> {
        let looked = self.look_and_write().await;
        self.publish();
        looked
    }

    async fn look_and_write(&mut self) -> Result<(), LookFailure> {
        let lease = match self.held.take() {
            Some(held) => Some(held),
            None => within(self.limit(), self.leases.get_opt(&self.name))
                .await
                .map_err(|error| LookFailure { what: "cannot read the leader election lease", error })?,
        };
        let (view, write) = step(self.view.clone(), lease.as_ref().map(record), self.now());
        self.view = view;
        self.publish();
        let Some(write) = write else { return Ok(()) };
        let sent = self.now();
        match self.send(&write, lease).await {
            Ok(lease) => {
                self.view = self.view.clone().wrote(record(&lease), sent, self.now());
                self.held = Some(lease);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                tracing::debug!("another candidate wrote the lease first");
                Ok(())
            }
            Err(error) => Err(LookFailure { what: "cannot write the leader election lease", error }),
        }
    }

    /// What is new with that look: nothing while it ends as the one before did, for a kube-apiserver may be away for
    /// minutes.
    fn news(&mut self, looked: &Result<(), LookFailure>) -> Option<LookNews> {
        let before = std::mem::replace(&mut self.troubled, looked.is_err());
        match (before, self.troubled) {
            (false, true) => Some(LookNews::Fails),
            (true, false) => Some(LookNews::Works),
            _ => None,
        }
    }

    async fn send(&self, write: &LeaseWrite, lease: Option<Lease>) -> kube::Result<Lease> {
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

fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.as_ref();
    let seconds =
        spec.and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.to_string());
    LeaseRecord {
        resource_version: lease.metadata.resource_version.as_deref().unwrap_or_default().into(),
        holder: spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default().into(),
        duration: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or_default(),
        renewed: Arc::from(renewed.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
