//! Asks every kube-apiserver for its version and whether it is ready, each at its own address.
//!
//! Here belongs when to ask and what came back; where the addresses come from belongs to the caller. The invariants:
//! there is at most one request in flight per endpoint; an endpoint that does not answer, or is not ready, is asked
//! at ever longer intervals, at most [`ProbePace::regular`] apart; and an old answer is never shown as a current one.
//!
//! `/version` and `/readyz` are asked one after the other. A kube-apiserver answers `/version` from the moment at
//! which it listens, long before it can serve anything, and until its last moment; only `/readyz` says that it
//! serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::version::{Effective, Observed, Unknown, escape};
use jiff::Timestamp;
use kube::Client;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::cache::Changes;
use super::version_answer::VersionAnswer;
use crate::clients::{Connect, PROBE_TIMEOUT, one_line, within};

/// How many of the checks that failed are named.
const FAILED_CHECKS: usize = 3;

/// When endpoints are asked.
#[derive(Clone, Copy, Debug)]
pub struct ProbePace {
    /// Between two questions to an endpoint that answers, and the longest wait for one that does not.
    pub regular: Duration,
    /// After the first failure; it doubles with each further one.
    pub first_retry: Duration,
    /// At least this long between two questions, whatever happens.
    pub between: Duration,
}

impl Default for ProbePace {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { regular: Duration::from_secs(30), first_retry: second, between: second }
    }
}

/// What is known of one endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `192.0.2.1:6443`.
    pub address: Arc<str>,
    /// What it answered last; [`Unknown::NotReported`] before the first answer, [`Unknown::Unreachable`] when it
    /// failed.
    pub version: Observed,
    /// What it emulates, as it answered last; `None` when it says nothing of that (before 1.33).
    pub effective: Option<Effective>,
    /// The build that it names in `/version`: another one for each release, and for each build of one release.
    pub build: Arc<str>,
    /// It answered `/version` when it was last asked.
    pub reachable: bool,
    /// It answered `/readyz` with 200 when it was last asked.
    pub ready: bool,
    /// It was asked at least once, with whatever result.
    pub asked: bool,
    /// Why it did not answer, or is not ready.
    pub error: Option<Arc<str>>,
    /// When what a decision reads of this last changed.
    pub since: Instant,
    /// When it last answered `/version` and the question to `/readyz` that follows had ended, answered or not.
    pub confirmed: Option<Instant>,
}

/// The most endpoints that are asked. Whoever may write an `EndpointSlice` could name thousands of addresses; no
/// control plane has so many kube-apiservers.
pub const MOST: usize = 32;

/// Asks the kube-apiserver endpoints it is given, until it is dropped.
pub struct Apiservers {
    connect: Connect,
    pace: ProbePace,
    changes: Changes,
    known: Arc<Mutex<BTreeMap<Arc<str>, Endpoint>>>,
    tasks: Mutex<BTreeMap<Arc<str>, Task>>,
    /// How many addresses are beyond [`MOST`], and so are not asked.
    left_out: AtomicUsize,
}

/// The task that asks one endpoint; it ends when this is dropped.
struct Task {
    ask_now: Arc<Notify>,
    _stop: DropGuard,
}

impl Apiservers {
    /// A prober without endpoints: it asks nobody until [`Apiservers::set`] is called.
    pub fn new(connect: Connect, pace: ProbePace, changes: Changes) -> Self {
        Self {
            connect,
            pace,
            changes,
            known: Arc::default(),
            tasks: Mutex::default(),
            left_out: AtomicUsize::new(0),
        }
    }

    /// From now on asks exactly the endpoints at these addresses, and each of them at once. If there are more than
    /// [`MOST`], those that are asked already come first and the rest is left out.
    ///
    /// Must be called inside a tokio runtime.
    pub fn set(&self, addresses: &BTreeSet<Arc<str>>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, new): (Vec<_>, Vec<_>) =
            addresses.iter().partition(|address| tasks.contains_key(address.as_ref()));
        let left_out = addresses.len().saturating_sub(MOST);
        self.left_out.store(left_out, Ordering::Relaxed);
        let addresses: &BTreeSet<Arc<str>> = &known.into_iter().chain(new).take(MOST).cloned().collect();
        let before = tasks.len();
        tasks.retain(|address, _| addresses.contains(address));
        let mut changed = tasks.len() != before;
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|address, _| addresses.contains(address));
            for address in addresses {
                known.entry(Arc::clone(address)).or_insert_with(|| {
                    changed = true;
                    Endpoint::unknown(address)
                });
            }
        }
        for address in addresses {
            if let Some(task) = tasks.get(address) {
                task.ask_now.notify_one();
            } else {
                tasks.insert(Arc::clone(address), self.spawn(Arc::clone(address)));
            }
        }
        drop(tasks);
        if changed {
            self.changes.bump();
        }
    }

    /// One line that says how many addresses are not asked and why; `None` if all are asked.
    pub fn left_out(&self) -> Option<String> {
        let left_out = self.left_out.load(Ordering::Relaxed);
        (left_out > 0).then(|| {
            format!(
                "{left_out} more addresses of kube-apiservers are not asked for their version: the EndpointSlices of \
                 Service default/kubernetes name more than {MOST}; look who wrote them"
            )
        })
    }

    /// Asks every endpoint again, now rather than when it is due.
    pub fn ask_now(&self) {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        for task in tasks.values() {
            task.ask_now.notify_one();
        }
    }

    /// Every endpoint, by address.
    pub fn list(&self) -> Vec<Endpoint> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn spawn(&self, address: Arc<str>) -> Task {
        let stop = CancellationToken::new();
        let ask_now = Arc::new(Notify::new());
        let asker = Asker {
            address,
            connect: Arc::clone(&self.connect),
            pace: self.pace,
            changes: self.changes.clone(),
            known: Arc::clone(&self.known),
            ask_now: Arc::clone(&ask_now),
        };
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(asker.run()).await });
        Task { ask_now, _stop: stop.drop_guard() }
    }
}

struct Asker {
    address: Arc<str>,
    connect: Connect,
    pace: ProbePace,
    changes: Changes,
    known: Arc<Mutex<BTreeMap<Arc<str>, Endpoint>>>,
    ask_now: Arc<Notify>,
}

impl Asker {
    async fn run(&self) {
        let mut client = None;
        let mut retry = self.pace.first_retry;
        loop {
            let wait = if self.ask(&mut client).await {
                retry = self.pace.first_retry;
                self.pace.regular
            } else {
                let wait = retry;
                retry = (retry * 2).min(self.pace.regular);
                wait
            };
            // This pause holds even when `ask_now` is called more often.
            sleep(self.pace.between).await;
            tokio::select! {
                biased;
                () = self.ask_now.notified() => {}
                () = sleep(wait.saturating_sub(self.pace.between)) => {}
            }
        }
    }

    /// Asks for the version and then whether the kube-apiserver is ready, on the connection that is `kept` if there is
    /// one. Returns whether it is ready.
    async fn ask(&self, kept: &mut Option<Client>) -> bool {
        let asked = async {
            let client = match kept.take() {
                Some(client) => client,
                None => (self.connect)(&self.address).map_err(|error| one_line(&error))?,
            };
            let info = within(PROBE_TIMEOUT, client.apiserver_version()).await;
            info.map(|info| (client, info)).map_err(|error| one_line(&error))
        };
        // A connection that failed may be half dead: it is not kept, and the next question makes a new one.
        let (client, info) = match asked.await {
            Ok(answered) => answered,
            Err(error) => {
                self.record(|endpoint| endpoint.is_silent(error));
                return false;
            }
        };
        // A version that changed is recorded at once, however long the second answer takes.
        self.record(|endpoint| endpoint.answers(info.into()));
        let ready = within(PROBE_TIMEOUT, client.request_text(readyz())).await;
        if let Ok(_) | Err(kube::Error::Api(_)) = ready {
            *kept = Some(client);
        }
        let ready = ready.map(drop).map_err(|error| unready(&error));
        let is_ready = ready.is_ok();
        self.record(|endpoint| endpoint.is_ready(ready));
        is_ready
    }

    /// Changes what is known of the endpoint, and wakes the subscribers if a decision reads anything of the change.
    fn record(&self, change: impl FnOnce(&mut Endpoint)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(endpoint) = known.get_mut(&self.address) else { return };
        let before = endpoint.clone();
        change(endpoint);
        // Until both questions were asked once, nobody reads this endpoint.
        let changed = endpoint.asked && !endpoint.is_as(&before);
        if changed {
            endpoint.since = Instant::now();
            let Endpoint { address, version, error, .. } = &*endpoint;
            match error.as_deref() {
                Some(error) if endpoint.reachable => {
                    tracing::warn!(%address, %version, %error, "kube-apiserver is not ready");
                }
                Some(error) => tracing::warn!(%address, %error, "kube-apiserver does not answer"),
                None if endpoint.ready => tracing::info!(%address, %version, "kube-apiserver is ready"),
                None => tracing::info!(%address, %version, "kube-apiserver answers"),
            }
        }
        drop(known);
        if changed {
            self.changes.bump();
        }
    }
}

impl Endpoint {
    /// An endpoint that was not asked yet.
    fn unknown(address: &Arc<str>) -> Self {
        Self {
            address: Arc::clone(address),
            version: Observed::Unknown(Unknown::NotReported),
            effective: None,
            build: "".into(),
            reachable: false,
            ready: false,
            asked: false,
            error: None,
            since: Instant::now(),
            confirmed: None,
        }
    }

    /// The time of day of [`Endpoint::confirmed`], given the time `now`; `None` before the first answer.
    pub fn probed(&self, now: Timestamp) -> Option<Timestamp> {
        now.checked_sub(self.confirmed?.elapsed()).ok()
    }

    /// Records an answer to `/version`. If the build or version is another one, whether it is ready is not known any
    /// more.
    fn answers(&mut self, answer: VersionAnswer) {
        let VersionAnswer { version, effective, build } = answer;
        if !self.reachable || self.build != build || self.version != version {
            (self.ready, self.error) = (false, None);
        }
        (self.version, self.effective, self.build, self.reachable) = (version, effective, build, true);
    }

    /// Records the answer to `/readyz`: it is ready, or why it is not.
    fn is_ready(&mut self, ready: Result<(), String>) {
        (self.ready, self.error) = (ready.is_ok(), ready.err().map(Into::into));
        (self.asked, self.confirmed) = (true, Some(Instant::now()));
    }

    /// Records that it did not answer `/version`, and why.
    fn is_silent(&mut self, error: String) {
        let (since, confirmed) = (self.since, self.confirmed);
        let version = Observed::Unknown(Unknown::Unreachable);
        let (asked, error) = (true, Some(error.into()));
        *self = Self { version, asked, error, since, confirmed, ..Self::unknown(&self.address) };
    }

    /// Whether everything that a decision reads is the same as in `before`.
    fn is_as(&self, before: &Self) -> bool {
        (self.asked, self.reachable, self.ready) == (before.asked, before.reachable, before.ready)
            && (&self.version, self.effective, &self.build)
                == (&before.version, before.effective, &before.build)
    }
}

fn readyz() -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = http::Uri::from_static("/readyz");
    request
}

/// Why `/readyz` was not answered with 200: the checks that failed, where it lists them.
fn unready(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else { return format!("/readyz: {}", one_line(error)) };
    if matches!(status.code, 401 | 403) {
        let hint = "the role system:public-info-viewer allows it to everybody";
        return format!(
            "whether it is ready may not be asked: grant the verb get on the URL /readyz ({hint})"
        );
    }
    let failed = status.message.lines().filter_map(|line| line.strip_prefix("[-]")?.split(' ').next());
    let failed: Vec<_> = failed.take(FAILED_CHECKS).map(escape).collect();
    match failed.as_slice() {
        [] => format!("/readyz: {}", one_line(error)),
        checks => format!("/readyz says HTTP {}: {} failed", status.code, checks.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::AtomicBool;

    use kube::client::Body;

    use super::*;

    const UNREADY: &str = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: \
                           reason withheld\nreadyz check failed\n";

    /// A kube-apiserver that answers `/version` and `/readyz`, unless it is down.
    #[derive(Clone, Default)]
    struct Fake {
        down: Arc<AtomicBool>,
        unready: Arc<AtomicBool>,
        asked: Arc<AtomicUsize>,
        in_flight: Arc<AtomicUsize>,
    }

    impl Fake {
        fn connect(&self) -> Connect {
            let fake = self.clone();
            Arc::new(move |_| {
                let fake = fake.clone();
                let service = tower::service_fn(move |request: http::Request<Body>| {
                    let fake = fake.clone();
                    async move {
                        assert_eq!(fake.in_flight.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                        let is_version = request.uri().path() == "/version";
                        fake.asked.fetch_add(usize::from(is_version), Ordering::SeqCst);
                        sleep(Duration::from_millis(5)).await;
                        fake.in_flight.fetch_sub(1, Ordering::SeqCst);
                        let (code, body) = if fake.down.load(Ordering::SeqCst) {
                            (503, "{}".to_owned())
                        } else if !is_version && fake.unready.load(Ordering::SeqCst) {
                            (500, UNREADY.to_owned())
                        } else if !is_version {
                            (200, "ok".to_owned())
                        } else {
                            let version = serde_json::json!({
                                "major": "1", "minor": "36", "gitVersion": "v1.36.4", "gitCommit": "", "goVersion": "",
                                "gitTreeState": "", "buildDate": "", "compiler": "", "platform": "",
                                "emulationMajor": "1", "emulationMinor": "35",
                            });
                            (200, version.to_string())
                        };
                        let answer =
                            http::Response::builder().status(code).body(Body::from(body.into_bytes()));
                        Ok::<_, Infallible>(answer.unwrap())
                    }
                });
                Ok(Client::new(service, "default"))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn endpoints_are_asked_at_once_and_again() {
        let fake = Fake::default();
        let changes = Changes::default();
        let mut woken = changes.subscribe();
        let short = Duration::from_millis(20);
        let pace = ProbePace { regular: Duration::from_hours(1), first_retry: short, between: short };
        let servers = Apiservers::new(fake.connect(), pace, changes);
        let address: Arc<str> = "192.0.2.1:6443".into();
        let all = BTreeSet::from([Arc::clone(&address)]);
        let until = async |done: &dyn Fn(&Endpoint) -> bool, woken: &mut crate::observe::cache::Changed| {
            let settled = async {
                while !servers.list().first().is_some_and(done) {
                    assert!(woken.changed().await);
                }
            };
            tokio::time::timeout(Duration::from_secs(5), settled).await.expect("wakes when a result changes");
        };

        servers.set(&all);
        until(&|endpoint| endpoint.ready && endpoint.version.to_string() == "v1.36.4", &mut woken).await;
        assert_eq!(fake.asked.load(Ordering::SeqCst), 1);
        let emulation = servers.list()[0].effective.map(|effective| effective.emulation().to_string());
        assert_eq!(emulation.as_deref(), Some("1.35"), "what it emulates is part of the answer");

        fake.down.store(true, Ordering::SeqCst);
        servers.set(&all);
        until(&|endpoint| endpoint.version == Observed::Unknown(Unknown::Unreachable), &mut woken).await;
        assert!(servers.list()[0].error.is_some());

        fake.down.store(false, Ordering::SeqCst);
        until(&|endpoint| endpoint.ready, &mut woken).await;

        fake.unready.store(true, Ordering::SeqCst);
        servers.set(&all);
        until(&|endpoint| endpoint.reachable && !endpoint.ready, &mut woken).await;
        let endpoint = servers.list().remove(0);
        assert_eq!(endpoint.version.to_string(), "v1.36.4", "it is there, and serves nothing");
        assert_eq!(
            endpoint.error.as_deref(),
            Some("/readyz says HTTP 500: etcd, poststarthook/rbac/bootstrap-roles failed")
        );
        fake.unready.store(false, Ordering::SeqCst);
        until(&|endpoint| endpoint.ready && endpoint.error.is_none(), &mut woken).await;

        servers.set(&BTreeSet::new());
        assert!(servers.list().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_thousands_of_addresses_a_few_are_asked_and_the_others_are_told() {
        let fake = Fake::default();
        let servers = Apiservers::new(fake.connect(), ProbePace::default(), Changes::default());
        let real: Arc<str> = "192.0.2.9:6443".into();
        servers.set(&BTreeSet::from([Arc::clone(&real)]));
        assert_eq!(servers.left_out(), None);
        let mut all: BTreeSet<Arc<str>> = (0..5000).map(|n| format!("10.0.0.1:{n}").into()).collect();
        all.insert(Arc::clone(&real));
        servers.set(&all);
        let asked = servers.list();
        assert_eq!(asked.len(), MOST);
        assert!(asked.iter().any(|endpoint| endpoint.address == real), "who is asked already stays");
        assert!(servers.left_out().unwrap().starts_with("4969 more addresses"));
        servers.set(&BTreeSet::from([real]));
        assert_eq!((servers.list().len(), servers.left_out()), (1, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_changes_is_no_storm_of_questions() {
        let fake = Fake::default();
        let pace = ProbePace { between: Duration::from_millis(100), ..ProbePace::default() };
        let servers = Apiservers::new(fake.connect(), pace, Changes::default());
        let all = BTreeSet::from([Arc::from("192.0.2.1:6443")]);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            servers.set(&all);
            sleep(Duration::from_millis(2)).await;
        }
        let asked = fake.asked.load(Ordering::SeqCst);
        assert!((2..=6).contains(&asked), "{asked} questions in half a second");
    }
}
