//! What the cluster looks like: one watch per kind, apiserver probes, and the model made of both; or snapshot files.
//!
//! Everything is read here and nothing is written or judged. The invariant: a [`Cluster`] is only ever made from
//! caches that are complete, untainted and followed; what a report can do without is listed as missing, never
//! silently empty.

pub mod apiservers;
pub mod cache;
pub mod components;
pub mod files;
pub mod fold;
pub mod given;
pub mod lean;
pub mod survey;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::Cluster;
use jiff::Timestamp;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use apiservers::{Apiservers, Connect};
use cache::{Cache, Changes, Pace, Select};
use components::Sources;
use fold::{State, Watched};
use lean::{EndpointSlice, Lease, Node, Pod, PodDisruptionBudget};

/// A source of the model, as status, logs and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Nodes.
    Nodes,
    /// `EndpointSlices` of the Service `default/kubernetes`.
    Endpoints,
    /// The answers of the apiservers to `/version`.
    Versions,
    /// Pods of kube-system, or of all namespaces.
    Pods,
    /// Identity leases of the apiservers.
    Leases,
    /// `PodDisruptionBudgets`.
    Budgets,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 6] =
        [Self::Nodes, Self::Endpoints, Self::Versions, Self::Pods, Self::Leases, Self::Budgets];

    /// Its name: `nodes`, `endpointslices`, `version`, `pods`, `leases`, `pdbs`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Endpoints => "endpointslices",
            Self::Versions => "version",
            Self::Pods => "pods",
            Self::Leases => "leases",
            Self::Budgets => "pdbs",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A source that cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub source: Source,
    /// Why, in one line that says what to do about it.
    pub reason: Arc<str>,
}

/// What a [`Cluster`] was made without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The sources that could not be relied on; the model has nothing of theirs.
    pub missing: Vec<Missing>,
}

impl Inventory {
    /// Why the model has nothing of `source`, if it has not.
    pub fn reason(&self, source: Source) -> Option<&str> {
        self.missing.iter().find(|missing| missing.source == source).map(|missing| missing.reason.as_ref())
    }
}

/// No model can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not ready: {}", .0.iter().map(|missing| missing.reason.as_ref()).collect::<Vec<_>>().join("; "))]
pub struct NotReady(pub Vec<Missing>);

/// How a source stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Which source.
    pub source: Source,
    /// Whether it can be relied on.
    pub state: State,
    /// How long ago the server last told anything.
    pub age: Option<Duration>,
}

/// Whose pods are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodScope {
    /// Those of kube-system: enough for a report.
    KubeSystem,
    /// Those of all namespaces: needed to drain nodes.
    All,
}

/// The watches of the program.
pub struct Observer {
    /// Nodes.
    pub nodes: Cache<Node>,
    /// Pods, as far as [`PodScope`] says.
    pub pods: Cache<Pod>,
    /// Budgets of all namespaces.
    pub budgets: Cache<PodDisruptionBudget>,
    /// The apiservers' endpoints.
    pub endpoints: Cache<EndpointSlice>,
    /// The apiservers' identity leases.
    pub leases: Cache<Lease>,
    apiservers: Arc<Apiservers>,
    scope: PodScope,
    changes: Changes,
}

impl Observer {
    /// Starts every watch with `client` (a read client), and asks the apiservers through `connect`, until `stop`.
    ///
    /// Must be called inside a tokio runtime.
    pub fn start(
        client: &Client,
        connect: Connect,
        scope: PodScope,
        changes: Changes,
        stop: &CancellationToken,
    ) -> Self {
        fn watch<K: Watched<DynamicType = ()>>(
            api: Api<K>,
            labels: Option<&str>,
            changes: &Changes,
            stop: &CancellationToken,
        ) -> Cache<K> {
            let select = Select { labels: labels.map(str::to_owned), fields: None };
            Cache::spawn(api, &(), select, changes.clone(), Pace::default(), stop.clone())
        }
        let pods = match scope {
            PodScope::KubeSystem => Api::namespaced(client.clone(), "kube-system"),
            PodScope::All => Api::all(client.clone()),
        };
        let slices = Api::namespaced(client.clone(), "default");
        let leases = Api::namespaced(client.clone(), "kube-system");
        let apiservers = Arc::new(Apiservers::new(connect, apiservers::Pace::default(), changes.clone()));
        let observer = Self {
            nodes: watch(Api::all(client.clone()), None, &changes, stop),
            pods: watch(pods, None, &changes, stop),
            budgets: watch(Api::all(client.clone()), None, &changes, stop),
            endpoints: watch(slices, Some("kubernetes.io/service-name=kubernetes"), &changes, stop),
            leases: watch(leases, Some("apiserver.kubernetes.io/identity=kube-apiserver"), &changes, stop),
            apiservers,
            scope,
            changes,
        };
        observer.ask_apiservers(stop.clone());
        observer
    }

    /// Keeps the probes at the endpoints that exist. A changed slice, or a lease with another holder, means that an
    /// apiserver came, went or was replaced: all are asked at once.
    fn ask_apiservers(&self, stop: CancellationToken) {
        let (endpoints, leases) = (self.endpoints.clone(), self.leases.clone());
        let apiservers = Arc::clone(&self.apiservers);
        let mut changes = self.changes.subscribe();
        let keep = async move {
            let mut asked = None;
            loop {
                let slices = endpoints.list();
                let holders: Vec<_> = leases.list().into_iter().map(|lease| lease.holder).collect();
                let now = Some((slices, holders));
                // A list that is not complete must not take an endpoint away.
                if endpoints.state() == State::Synced && asked != now {
                    let slices = now.iter().flat_map(|(slices, _)| slices);
                    apiservers.set(&slices.flat_map(|slice| slice.addresses.iter().cloned()).collect());
                    asked = now;
                }
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(keep).await });
    }

    /// What wakes the controllers.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Each apiserver endpoint and what it last answered.
    pub fn apiservers(&self) -> Vec<apiservers::Endpoint> {
        self.apiservers.list()
    }

    /// How every source stands, for metrics and readiness.
    pub fn standing(&self) -> Vec<Standing> {
        fn of<K: Watched>(source: Source, cache: &Cache<K>) -> Standing {
            Standing { source, state: cache.state(), age: cache.confirmed().map(|at| at.elapsed()) }
        }
        let asked = self.apiservers.list();
        let versions = Standing {
            source: Source::Versions,
            state: versions(&asked),
            age: asked.iter().map(|endpoint| endpoint.confirmed).min().flatten().map(|at| at.elapsed()),
        };
        vec![
            of(Source::Nodes, &self.nodes),
            of(Source::Endpoints, &self.endpoints),
            versions,
            of(Source::Pods, &self.pods),
            of(Source::Leases, &self.leases),
            of(Source::Budgets, &self.budgets),
        ]
    }

    /// The cluster as it is known at `now`, sorted, and what it was made without.
    ///
    /// # Errors
    /// While the nodes or the apiservers' endpoints cannot be relied on, or an endpoint was not asked yet.
    pub fn cluster(&self, now: Timestamp) -> Result<(Cluster, Inventory), NotReady> {
        let mut needed = Vec::new();
        require(Source::Nodes, &self.nodes.state(), &mut needed);
        require(Source::Endpoints, &self.endpoints.state(), &mut needed);
        let endpoints = self.apiservers.list();
        if let Some(endpoint) = endpoints.iter().find(|endpoint| !endpoint.asked) {
            let reason =
                format!("kube-apiserver {} was not asked for its version yet", endpoint.address).into();
            needed.push(Missing { source: Source::Versions, reason });
        } else if endpoints.is_empty()
            && self.endpoints.read(|slices| slices.values().any(|slice| !slice.addresses.is_empty()))
        {
            let reason = "the kube-apiservers were not asked for their versions yet".into();
            needed.push(Missing { source: Source::Versions, reason });
        }
        if !needed.is_empty() {
            return Err(NotReady(needed));
        }

        let mut missing = Vec::new();
        let use_pods = require(Source::Pods, &self.pods.state(), &mut missing);
        let use_leases = require(Source::Leases, &self.leases.state(), &mut missing);
        let use_budgets = require(Source::Budgets, &self.budgets.state(), &mut missing);
        let leases = if use_leases { self.leases.list() } else { Vec::new() };
        let leases: Vec<_> = leases.iter().collect();
        let mut cluster = Cluster::default();
        self.nodes.read(|nodes| {
            let nodes: Vec<_> = nodes.values().map(AsRef::as_ref).collect();
            self.pods.read(|pods| {
                let pods: Vec<_> = pods.values().filter(|_| use_pods).collect();
                let running: Vec<_> = pods.iter().copied().filter(|pod| pod.runs.is_some()).collect();
                let seen = Sources {
                    nodes: &nodes,
                    pods: &running,
                    leases: &leases,
                    endpoints: &endpoints,
                    asked: true,
                    now,
                };
                cluster.instances = components::instances(&seen);
                if self.scope == PodScope::All {
                    let bound = pods.iter().filter(|pod| !pod.pod.node.is_empty());
                    cluster.pods = bound.map(|pod| pod.pod.clone()).collect();
                }
            });
            cluster.nodes = nodes.iter().map(|seen| seen.node.clone()).collect();
        });
        if use_budgets {
            cluster.budgets =
                self.budgets.read(|budgets| budgets.values().map(|budget| budget.as_ref().clone()).collect());
        }
        Ok((cluster.sorted(), Inventory { missing }))
    }
}

/// Whether `state` can be relied on; when not, the reason is added to `missing`.
fn require(source: Source, state: &State, missing: &mut Vec<Missing>) -> bool {
    let reason = match state {
        State::Synced => return true,
        State::Syncing => format!("{source}: the first list is not complete yet").into(),
        State::Tainted(reason) | State::Failing(reason) => Arc::clone(reason),
    };
    missing.push(Missing { source, reason });
    false
}

/// The probes as one source: failing when no endpoint answers.
fn versions(asked: &[apiservers::Endpoint]) -> State {
    if asked.iter().any(|endpoint| endpoint.reachable) {
        State::Synced
    } else if let Some(error) = asked.iter().find_map(|endpoint| endpoint.error.as_ref()) {
        State::Failing(format!("no kube-apiserver answers at its own address: {error}").into())
    } else {
        State::Syncing
    }
}

#[cfg(test)]
mod tests;
