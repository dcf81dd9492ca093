//! The operator as a whole: what it starts, in which order, and how it ends.
//!
//! The invariants: once it listens, it ends only on a signal, whatever the cluster does; and nothing that one term of
//! leadership started writes after the end of that term.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evenkeel_core::lease::LeaseTiming;
use evenkeel_core::skew::lifecycle::Catalogue;
use kube::Config;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::caches::ControllerCaches;
use super::metrics::{Build, Metrics};
use super::prerequisites::Needs;
use super::report::Reporter;
use super::upgrade::Driver;
use super::{serve, shutdown};
use crate::act::elect::{Candidate, Term};
use crate::act::{Authority, Effects, Hands};
use crate::clients::{ClientError, Clients, one_line};
use crate::clock::Clock;
use crate::observe::cache::Shared;
use crate::observe::{Observer, PodScope, ages};

/// The settings of the operator.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// Drive `ClusterUpgrade`s, not only report.
    pub upgrades: bool,
    /// Namespace of the leader election Lease. All installations in a cluster have to share it, or each would lead.
    pub namespace: String,
    /// The name of this process in the election. It has to differ at each start, so that a restarted process does not
    /// take itself for its predecessor.
    pub identity: String,
    /// Namespace of executors' Jobs.
    pub executors_namespace: String,
    /// How long the Lease lasts, how long a leader tries to renew it, and how often.
    pub lease: LeaseTiming,
    /// Address of `/metrics`, `/healthz` and `/readyz`.
    pub listen: SocketAddr,
    /// The release data: until when each minor is maintained.
    pub releases: Catalogue,
}

/// Why the operator could not start, in one line. Once it has started, it ends only when it is told to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotBegun(String);

impl From<ClientError> for NotBegun {
    fn from(error: ClientError) -> Self {
        Self(one_line(&error))
    }
}

impl From<std::io::Error> for NotBegun {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Runs until SIGTERM.
///
/// # Errors
/// [`NotBegun`], when a client, a signal handler or the HTTP listener cannot be made.
pub async fn run(config: Config, options: OperatorOptions) -> Result<(), NotBegun> {
    let stop = shutdown::on_signal()?;
    operate(Clients::of(&config)?, options, Clock::default(), stop).await
}

/// Runs the operator with these clients and this clock, until `stop`. Whatever it started ends with it, also when its
/// future is dropped.
///
/// A problem of the cluster does not end it: it waits, says why, and goes on when the problem is solved. So it survives
/// a kube-apiserver's restart.
///
/// # Errors
/// [`NotBegun`], when the HTTP listener or the metrics cannot be made.
pub async fn operate(
    clients: Clients,
    options: OperatorOptions,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), NotBegun> {
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        revision: option_env!("EVENKEEL_REVISION").unwrap_or("unknown"),
        rust_version: env!("CARGO_PKG_RUST_VERSION"),
    };
    let scope = if options.upgrades { PodScope::All } else { PodScope::KubeSystem };
    let metrics = Arc::new(Metrics::new(&build, scope).map_err(|error| NotBegun(error.to_string()))?);

    // The watches outlive the controllers, and the election outlives both: see `Candidate::spawn`.
    let watching = CancellationToken::new();
    let _watching = watching.clone().drop_guard();
    let listener = serve::bind(options.listen).await?;
    tracing::info!(address = %options.listen, upgrades = options.upgrades, "serving metrics and health");
    let connect = Arc::clone(&clients.connect);
    let shared = Shared::until(watching.clone());
    let observer = Arc::new(Observer::start(&clients.read, connect, scope, &shared));
    let needs = Arc::new(Needs::default());
    let started = Arc::new(OnceLock::new());
    let ready = readiness(Arc::clone(&observer), Arc::clone(&needs), Arc::clone(&started));
    let serving = tokio::spawn(serve::serve(listener, Arc::clone(&metrics), ready, watching.clone()));
    let work = async {
        let installed = needs.met(&clients.read, options.upgrades);
        if stop.run_until_cancelled(installed).await.is_some() {
            let namespace = options.upgrades.then_some(options.executors_namespace.as_str());
            let controllers = ControllerCaches::start(&clients.read, namespace, &shared);
            // Nobody else sets it.
            let _ = started.set(controllers.clone());
            let watches = Watches { observer: Arc::clone(&observer), controllers };
            campaign(&watches, &clients, &options, &metrics, &clock, &stop).await;
        }
    };
    tokio::select! {
        biased;
        () = work => {}
        () = watch_sources(&observer, &metrics, &clock) => {}
    }
    watching.cancel();
    // The HTTP server ends with the watches; whether it answered the last scrape changes nothing.
    let _ = serving.await;
    Ok(())
}

/// Stands for election again and again, and works while it leads, until `stop`; then hands the lease over.
async fn campaign(
    watches: &Watches,
    clients: &Clients,
    options: &OperatorOptions,
    metrics: &Metrics,
    clock: &Clock,
    stop: &CancellationToken,
) {
    let electing = CancellationToken::new();
    let _electing = electing.clone().drop_guard();
    let candidate = Candidate {
        client: clients.election.clone(),
        namespace: options.namespace.clone(),
        name: LEASE.to_owned(),
        identity: options.identity.clone(),
        timing: options.lease,
    };
    let (leadership, election) = candidate.spawn(electing.clone());
    let effects = Effects::new(clients.effects.clone());
    while let Some(term) = stop.run_until_cancelled(leadership.gained()).await {
        metrics.leader(true);
        lead(watches, options, &effects, term, metrics, clock, stop).await;
        // The controllers only borrow the metrics, and so are gone by now: none shows a row after this.
        metrics.leader(false);
    }
    electing.cancel();
    // The lease is handed over before the process ends; if that hangs, it expires by itself.
    if tokio::time::timeout(HANDOVER, election).await.is_err() {
        tracing::warn!("the lease was not released in time; it expires");
    }
}

/// All installations in a cluster stand for this one Lease of kube-system.
const LEASE: &str = "evenkeel";

/// Longest time that the release of the Lease may take; by default a pod has 30 s to end.
const HANDOVER: Duration = Duration::from_secs(8);

/// Everything that is watched, by every replica.
struct Watches {
    observer: Arc<Observer>,
    controllers: ControllerCaches,
}

/// Runs the controllers until `stop`, or until `term` is over: then they are dropped where they are, with every request
/// that is on its way. A task of theirs that is left cannot write, because its term is over.
async fn lead(
    watches: &Watches,
    options: &OperatorOptions,
    effects: &Effects,
    term: Term,
    metrics: &Metrics,
    clock: &Clock,
    stop: &CancellationToken,
) {
    let authority = Authority::Leader(term.clone());
    let reporter = Reporter {
        observer: &watches.observer,
        releases: &options.releases,
        reports: watches.controllers.reports.clone(),
        effects: effects.clone(),
        authority: authority.clone(),
        metrics,
        clock: clock.clone(),
    };
    let drive = async {
        if let Some(caches) = &watches.controllers.upgrades {
            let namespace = &options.executors_namespace;
            let driver = Driver {
                observer: &watches.observer,
                caches,
                effects: effects.clone(),
                authority: authority.clone(),
                hands: Hands::new(effects.clone(), authority.clone(), namespace, clock.clone()),
                clock: clock.clone(),
                executors_namespace: namespace,
                releases: &options.releases,
                metrics,
            };
            driver.run(stop.child_token()).await;
        }
    };
    tokio::select! {
        biased;
        () = term.lost() => {
            tracing::warn!("the leadership was lost; nothing is written until it is had again");
        }
        _ = async { tokio::join!(reporter.run(stop.child_token()), drive) } => {}
    }
}

fn readiness(
    observer: Arc<Observer>,
    needs: Arc<Needs>,
    started: Arc<OnceLock<ControllerCaches>>,
) -> serve::Ready {
    Arc::new(move || {
        if let Some(line) = needs.line() {
            return Err(line);
        }
        let Some(controllers) = started.get() else {
            return Err("the server was not asked yet whether our kinds are installed".to_owned());
        };
        let of_cluster = observer.standing().into_iter().filter_map(|standing| {
            let syncing = || format!("{}: the first list is not complete yet", standing.source);
            standing.state.seen(syncing).err()
        });
        let faults: Vec<String> = of_cluster.chain(controllers.unseen()).map(|unseen| unseen.line).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    })
}

/// Updates the metrics of the sources every second; never ends.
async fn watch_sources(observer: &Observer, metrics: &Metrics, clock: &Clock) {
    let mut failing: Vec<bool> = Vec::new();
    loop {
        let standing = observer.standing();
        failing.resize(standing.len(), false);
        let now = clock.now();
        for (source, failed) in standing.iter().zip(&mut failing) {
            let broken = source.state.fault().is_some();
            if broken && !*failed {
                metrics.collect_failed(source.source);
            }
            *failed = broken;
        }
        for (source, age) in ages(&standing) {
            #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 fit into 52 bits")]
            metrics.collected(source, now.as_second() as f64 - age.as_secs_f64());
        }
        sleep(Duration::from_secs(1)).await;
    }
}
