//! Asking every kube-apiserver for its version, each by its own address.
//!
//! Here belongs when to ask and what came back; where the addresses come from belongs to the caller. The invariants:
//! at most one request in flight per endpoint; an endpoint that does not answer is asked ever more rarely, up to every
//! [`Pace::regular`]; and an answer of the past is never shown as one of the present.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::version::{Effective, Observed, Unknown};
use kube::Client;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::answer::Answer;
use super::cache::Changes;
use crate::clients::{Connect, PROBE_TIMEOUT, one_line, within};

/// When endpoints are asked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two questions to an endpoint that answers, and the longest wait for one that does not.
    pub regular: Duration,
    /// After the first failure; it doubles with each further one.
    pub first_retry: Duration,
    /// At least this long between two questions, whatever happens.
    pub between: Duration,
}

impl Default for Pace {
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
    /// What it answered last; [`Unknown::NotReported`] before the first answer, [`Unknown::Unreachable`] when it failed.
    pub version: Observed,
    /// What it emulates, as it answered last; `None` when it says nothing of that (before 1.33).
    pub effective: Option<Effective>,
    /// It answered when it was last asked.
    pub reachable: bool,
    /// It was asked at least once, with whatever result.
    pub asked: bool,
    /// Why it did not answer.
    pub error: Option<Arc<str>>,
    /// Since when it has been as it is.
    pub since: Instant,
    /// When it last answered.
    pub confirmed: Option<Instant>,
}

/// At most so many are asked. Whoever may write an `EndpointSlice` could name thousands; no control plane has as many.
pub const MOST: usize = 32;

/// Asks the apiserver endpoints it is given, until it is dropped.
pub struct Apiservers {
    connect: Connect,
    pace: Pace,
    changes: Changes,
    known: Arc<Mutex<BTreeMap<Arc<str>, Endpoint>>>,
    tasks: Mutex<BTreeMap<Arc<str>, Task>>,
    /// How many addresses there are that are not asked.
    left_out: AtomicUsize,
}

/// The task that asks one endpoint; it ends when this is dropped.
struct Task {
    ask_now: Arc<Notify>,
    _stop: DropGuard,
}

impl Apiservers {
    /// Asks nobody until [`Apiservers::set`].
    pub fn new(connect: Connect, pace: Pace, changes: Changes) -> Self {
        Self {
            connect,
            pace,
            changes,
            known: Arc::default(),
            tasks: Mutex::default(),
            left_out: AtomicUsize::new(0),
        }
    }

    /// Asks exactly the endpoints of these addresses from now on, and every one of them at once; of more than [`MOST`]
    /// those first that are asked already.
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
                    Endpoint {
                        address: Arc::clone(address),
                        version: Observed::Unknown(Unknown::NotReported),
                        effective: None,
                        reachable: false,
                        asked: false,
                        error: None,
                        since: Instant::now(),
                        confirmed: None,
                    }
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

    /// What is not asked, in one line, if there is anything.
    pub fn left_out(&self) -> Option<String> {
        let left_out = self.left_out.load(Ordering::Relaxed);
        (left_out > 0).then(|| {
            format!(
                "{left_out} more addresses of kube-apiservers are not asked for their version: the EndpointSlices of \
                 Service default/kubernetes name more than {MOST}; look who wrote them"
            )
        })
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
    pace: Pace,
    changes: Changes,
    known: Arc<Mutex<BTreeMap<Arc<str>, Endpoint>>>,
    ask_now: Arc<Notify>,
}

impl Asker {
    async fn run(&self) {
        let mut client = None;
        let mut retry = self.pace.first_retry;
        loop {
            let answer = self.ask(&mut client).await;
            let wait = if answer.is_ok() {
                retry = self.pace.first_retry;
                self.pace.regular
            } else {
                // A connection that failed may be half dead; the next question makes a new one.
                client = None;
                let wait = retry;
                retry = (retry * 2).min(self.pace.regular);
                wait
            };
            self.record(answer);
            // However often somebody wants to know at once.
            sleep(self.pace.between).await;
            tokio::select! {
                () = sleep(wait.saturating_sub(self.pace.between)) => {}
                () = self.ask_now.notified() => {}
            }
        }
    }

    async fn ask(&self, client: &mut Option<Client>) -> Result<(Observed, Option<Effective>), String> {
        let client = match client {
            Some(client) => client,
            None => client.insert((self.connect)(&self.address).map_err(|error| one_line(&error))?),
        };
        let info =
            within(PROBE_TIMEOUT, client.apiserver_version()).await.map_err(|error| one_line(&error))?;
        let Answer { version, effective } = info.into();
        Ok((version, effective))
    }

    fn record(&self, answer: Result<(Observed, Option<Effective>), String>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(endpoint) = known.get_mut(&self.address) else { return };
        let now = Instant::now();
        let (version, effective, error) = match answer {
            Ok((version, effective)) => {
                endpoint.confirmed = Some(now);
                (version, effective, None)
            }
            Err(error) => (Observed::Unknown(Unknown::Unreachable), None, Some(error.into())),
        };
        let reachable = error.is_none();
        let changed = !endpoint.asked
            || endpoint.reachable != reachable
            || endpoint.version != version
            || endpoint.effective != effective;
        if changed {
            endpoint.since = now;
            if let Some(error) = &error {
                tracing::warn!(address = %self.address, %error, "kube-apiserver does not answer");
            } else {
                tracing::info!(address = %self.address, %version, "kube-apiserver answers");
            }
        }
        (endpoint.version, endpoint.effective, endpoint.error) = (version, effective, error);
        (endpoint.reachable, endpoint.asked) = (reachable, true);
        drop(known);
        if changed {
            self.changes.bump();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::AtomicBool;

    use kube::client::Body;

    use super::*;

    /// An apiserver that answers `/version`, unless it is down.
    #[derive(Clone, Default)]
    struct Fake {
        down: Arc<AtomicBool>,
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
                        assert_eq!(request.uri().path(), "/version");
                        assert_eq!(fake.in_flight.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                        fake.asked.fetch_add(1, Ordering::SeqCst);
                        sleep(Duration::from_millis(5)).await;
                        fake.in_flight.fetch_sub(1, Ordering::SeqCst);
                        let (code, body) = if fake.down.load(Ordering::SeqCst) {
                            (503, "{}".to_owned())
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

    #[tokio::test]
    async fn endpoints_are_asked_at_once_and_again() {
        let fake = Fake::default();
        let changes = Changes::default();
        let mut woken = changes.subscribe();
        let short = Duration::from_millis(20);
        let pace = Pace { regular: Duration::from_hours(1), first_retry: short, between: short };
        let servers = Apiservers::new(fake.connect(), pace, changes);
        let address: Arc<str> = "192.0.2.1:6443".into();
        let all = BTreeSet::from([Arc::clone(&address)]);
        let until = async |done: &dyn Fn(&Endpoint) -> bool,
                           woken: &mut tokio::sync::watch::Receiver<u64>| {
            let settled = async {
                while !servers.list().first().is_some_and(done) {
                    woken.changed().await.unwrap();
                }
            };
            tokio::time::timeout(Duration::from_secs(5), settled).await.expect("wakes when a result changes");
        };

        servers.set(&all);
        until(&|endpoint| endpoint.reachable && endpoint.version.to_string() == "v1.36.4", &mut woken).await;
        assert_eq!(fake.asked.load(Ordering::SeqCst), 1);
        let emulation = servers.list()[0].effective.map(|effective| effective.emulation().to_string());
        assert_eq!(emulation.as_deref(), Some("1.35"), "what it emulates is part of the answer");

        fake.down.store(true, Ordering::SeqCst);
        servers.set(&all);
        until(&|endpoint| endpoint.version == Observed::Unknown(Unknown::Unreachable), &mut woken).await;
        assert!(servers.list()[0].error.is_some());

        fake.down.store(false, Ordering::SeqCst);
        until(&|endpoint| endpoint.reachable, &mut woken).await;

        servers.set(&BTreeSet::new());
        assert!(servers.list().is_empty());
    }

    #[tokio::test]
    async fn of_thousands_of_addresses_a_few_are_asked_and_the_others_are_told() {
        let fake = Fake::default();
        let servers = Apiservers::new(fake.connect(), Pace::default(), Changes::default());
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

    #[tokio::test]
    async fn a_storm_of_changes_is_no_storm_of_questions() {
        let fake = Fake::default();
        let pace = Pace { between: Duration::from_millis(100), ..Pace::default() };
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
