//! The operator as a whole: what it starts, in which order, and how it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::lease::Timing;
use evenkeel_core::skew::lifecycle::Catalogue;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Config, CustomResourceExt, Resource};
use tokio_util::sync::CancellationToken;

use super::metrics::{Build, Metrics};
use super::report::Reporter;
use super::upgrade::Driver;
use super::{serve, shutdown};
use crate::act::Hands;
use crate::act::elect::{Candidate, Leadership};
use crate::api::{ClusterSkewReport, ClusterUpgrade, NodeUpgrade};
use crate::clients::{ClientError, Clients, one_line, within};
use crate::clock::Clock;
use crate::observe::cache::{Cache, Changes, Pace, Select};
use crate::observe::fold::State;
use crate::observe::lean::{EXECUTOR_LABEL, Job};
use crate::observe::{Observer, PodScope};

/// How the operator is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Drive `ClusterUpgrade`s, not only report.
    pub upgrades: bool,
    /// Namespace of the leader election Lease.
    pub namespace: String,
    /// Our name in the election; another for each start.
    pub identity: String,
    /// Namespace of executors' Jobs.
    pub executors_namespace: String,
    /// How fast leadership changes hands.
    pub lease: Timing,
    /// Address of `/metrics`, `/healthz` and `/readyz`.
    pub listen: SocketAddr,
    /// Which minors are maintained until when.
    pub releases: Catalogue,
}

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// It could not begin.
    #[error("{0}")]
    NotBegun(String),
    /// Another replica may lead now. Whoever started us starts us again.
    #[error("leadership was lost; exiting so that nothing is done twice")]
    LeadershipLost,
}

impl From<ClientError> for Ended {
    fn from(error: ClientError) -> Self {
        Self::NotBegun(one_line(&error))
    }
}

/// Runs until SIGTERM or until leadership is lost.
///
/// # Errors
/// [`Ended`], one line that says what to do.
pub async fn run(config: Config, options: Options) -> Result<(), Ended> {
    let stop = shutdown::on_signal().map_err(not_begun)?;
    operate(Clients::of(&config)?, options, Clock::default(), stop).await
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn not_begun(error: std::io::Error) -> Ended {
    Ended::NotBegun(error.to_string())
}

/// Runs with these clients by this clock, until `stop` or until leadership is lost. Whatever it started ends with it,
/// also when it is dropped.
///
/// # Errors
/// [`Ended`], one line that says what to do.
pub async fn operate(
    clients: Clients,
    options: Options,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), Ended> {
    let effects = clients.effects.clone();
    installed::<ClusterSkewReport>(&effects).await?;
    if options.upgrades {
        installed::<ClusterUpgrade>(&effects).await?;
        installed::<NodeUpgrade>(&effects).await?;
    }
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        revision: option_env!("EVENKEEL_REVISION").unwrap_or("unknown"),
        rust_version: env!("CARGO_PKG_RUST_VERSION"),
    };
    let metrics = Arc::new(Metrics::new(&build).map_err(|error| Ended::NotBegun(error.to_string()))?);

    // The watches outlive the controllers, and the election outlives both: see `Candidate::spawn`.
    let watching = CancellationToken::new();
    let _watching = watching.clone().drop_guard();
    let watches = Watches::start(&clients, &options, &watching);
    let listener = serve::bind(options.listen).await.map_err(not_begun)?;
    tracing::info!(address = %options.listen, upgrades = options.upgrades, "serving metrics and health");
    let ready = readiness(Arc::clone(&watches.observer));
    let serving = tokio::spawn(serve::serve(listener, Arc::clone(&metrics), ready, watching.clone()));
    let electing = CancellationToken::new();
    let _electing = electing.clone().drop_guard();
    let candidate = Candidate {
        client: clients.election.clone(),
        namespace: options.namespace.clone(),
        name: "evenkeel".to_owned(),
        identity: options.identity.clone(),
        timing: options.lease,
    };
    let (leadership, election) = candidate.spawn(electing.clone());

    let stopped_without_leading = async {
        stop.cancelled().await;
        if leadership.proof().is_some() {
            // The controllers come to their end first.
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = lead(&watches, &options, &effects, &leadership, &metrics, &clock, &stop) => ended,
        () = watch_sources(&watches.observer, &metrics, &clock) => Ok(()),
        () = stopped_without_leading => Ok(()),
    };
    metrics.leader(false);
    electing.cancel();
    // The lease is handed over before the process ends; if that hangs, it expires by itself.
    if tokio::time::timeout(HANDOVER, election).await.is_err() {
        tracing::warn!("the lease was not released in time; it expires");
    }
    watching.cancel();
    // It ends with the watches; whether the last scrape was answered changes nothing.
    let _ = serving.await;
    ended
}

/// Longest time that handing over the lease may take; a pod has 30 s to end.
const HANDOVER: Duration = Duration::from_secs(8);

/// Everything that is watched, by every replica.
struct Watches {
    observer: Arc<Observer>,
    reports: Cache<DynamicObject>,
    /// Only where upgrades are driven.
    driven: Option<(Cache<DynamicObject>, Cache<DynamicObject>, Cache<Job>)>,
}

impl Watches {
    fn start(clients: &Clients, options: &Options, stop: &CancellationToken) -> Self {
        let read = clients.read.clone();
        let changes = Changes::default();
        let scope = if options.upgrades { PodScope::All } else { PodScope::KubeSystem };
        let connect = Arc::clone(&clients.connect);
        let custom = |resource: ApiResource| {
            let api: Api<DynamicObject> = Api::all_with(read.clone(), &resource);
            Cache::spawn(api, &resource, Select::default(), changes.clone(), Pace::default(), stop.clone())
        };
        let jobs = || {
            let api = Api::namespaced(read.clone(), &options.executors_namespace);
            let select = Select { labels: Some(EXECUTOR_LABEL.to_owned()), ..Select::default() };
            Cache::spawn(api, &(), select, changes.clone(), Pace::default(), stop.clone())
        };
        Self {
            observer: Arc::new(Observer::start(&read, connect, scope, changes.clone(), stop)),
            reports: custom(ApiResource::erase::<ClusterSkewReport>(&())),
            driven: options.upgrades.then(|| {
                let upgrades = custom(ApiResource::erase::<ClusterUpgrade>(&()));
                (upgrades, custom(ApiResource::erase::<NodeUpgrade>(&())), jobs())
            }),
        }
    }
}

/// Waits for the leadership, then works until `stop` or until it is lost.
async fn lead(
    watches: &Watches,
    options: &Options,
    effects: &Client,
    leadership: &Leadership,
    metrics: &Metrics,
    clock: &Clock,
    stop: &CancellationToken,
) -> Result<(), Ended> {
    leadership.gained().await;
    metrics.leader(true);
    let reporter = Reporter {
        observer: &watches.observer,
        releases: &options.releases,
        reports: watches.reports.clone(),
        client: effects.clone(),
        leadership: leadership.clone(),
        metrics,
        clock: clock.clone(),
    };
    let drive = async {
        if let Some((upgrades, claims, jobs)) = watches.driven.clone() {
            let driver = Driver {
                observer: &watches.observer,
                upgrades,
                claims,
                jobs,
                client: effects.clone(),
                leadership: leadership.clone(),
                hands: Hands::new(
                    effects.clone(),
                    leadership.clone(),
                    &options.executors_namespace,
                    clock.clone(),
                ),
                clock: clock.clone(),
                executors_namespace: &options.executors_namespace,
                metrics,
            };
            driver.run(stop.child_token()).await;
        }
    };
    tokio::select! {
        _ = async { tokio::join!(reporter.run(stop.child_token()), drive) } => Ok(()),
        () = leadership.lost() => Err(Ended::LeadershipLost),
    }
}

/// That the apiserver answers and knows the kind, or one line that says what to do.
async fn installed<K>(client: &Client) -> Result<(), Ended>
where
    K: Resource<DynamicType = ()> + CustomResourceExt,
{
    let resource = ApiResource::erase::<K>(&());
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let one = kube::api::ListParams::default().limit(1);
    match within(Duration::from_secs(10), objects.list(&one)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(Ended::NotBegun(format!(
            "the CustomResourceDefinition {} is not installed; install it with kubectl apply -k config/crd",
            K::crd_name()
        ))),
        Err(error) => Err(Ended::NotBegun(format!("cannot list {}: {}", resource.plural, one_line(&error)))),
    }
}

fn readiness(observer: Arc<Observer>) -> serve::Ready {
    Arc::new(move || {
        let faults = observer.standing().into_iter().filter_map(|standing| match standing.state {
            State::Synced => None,
            State::Syncing => Some(format!("{}: the first list is not complete yet", standing.source)),
            State::Tainted(why) | State::Failing(why) | State::Refused(why) => Some(why.to_string()),
        });
        let faults: Vec<String> = faults.collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    })
}

/// Keeps the metrics of the sources; never ends.
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
            if let (State::Synced, Some(age)) = (&source.state, source.age) {
                #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 fit into 52 bits")]
                metrics.collected(source.source, now.as_second() as f64 - age.as_secs_f64());
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
