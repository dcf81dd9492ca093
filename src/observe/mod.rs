//! What the cluster looks like: one watch per kind, kube-apiserver probes, and the model made of both; or snapshot
//! files.
//!
//! Here everything is read, and nothing is written or judged. The invariant: a [`Cluster`] is only ever made from
//! caches whose list is complete, without an object that could not be decoded, and followed by a watch. Any other
//! source is named as missing; its part is never silently empty.

pub mod apiservers;
pub mod cache;
pub mod components;
pub mod files;
pub mod fold;
pub mod interner;
mod inventory;
pub mod leaders;
pub mod lean;
mod model;
mod optional_kind;
pub mod platform;
mod recognise;
pub mod stated_versions;
pub mod survey;
pub mod version_answer;

use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_core::cluster::{Cluster, Component, Instance};
use evenkeel_core::version::Effective;
use jiff::Timestamp;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use apiservers::Apiservers;
use cache::{Cache, Changes, RetryPace, Select, Shared};
use fold::{SyncState, Watched};
use interner::Detail;
use lean::{
    EndpointSlice, Lease, LeaseCandidate, MutatingWebhooks, Node, PersistentVolume, Pod, PodDisruptionBudget,
    StatefulSet, ValidatingWebhooks, VolumeAttachment,
};
use model::Model;
use optional_kind::OptionalKind;

pub use inventory::{Inventory, Missing, NotReady, PodScope, Source, SourceStanding, Trouble, ages};

use crate::api::report::Server;
use crate::clients::Connect;

/// The watches of the program.
pub struct Observer {
    /// All nodes, with as much of each as the scope asks for ([`Detail`]).
    pub nodes: Cache<Node>,
    /// Pods of the namespaces that [`PodScope`] selects.
    pub pods: Cache<Pod>,
    /// `PodDisruptionBudgets` of all namespaces, whatever the scope.
    pub budgets: Cache<PodDisruptionBudget>,
    /// `EndpointSlices` of the Service `default/kubernetes`: the addresses of the kube-apiservers.
    pub endpoints: Cache<EndpointSlice>,
    /// Leases of kube-system: identities of kube-apiservers, and who leads the controllers.
    pub leases: Cache<Lease>,
    /// `ValidatingWebhookConfigurations`.
    pub validating: Cache<ValidatingWebhooks>,
    /// `MutatingWebhookConfigurations`.
    pub mutating: Cache<MutatingWebhooks>,
    /// `PersistentVolumes`; only where nodes are drained ([`PodScope::All`]).
    pub volumes: Option<Cache<PersistentVolume>>,
    /// `VolumeAttachments`, in the same case.
    pub attachments: Option<Cache<VolumeAttachment>>,
    /// `StatefulSets` of all namespaces, in the same case.
    pub stateful_sets: Option<Cache<StatefulSet>>,
    candidates: OptionalKind<LeaseCandidate>,
    apiservers: Arc<Apiservers>,
    model: Mutex<Model>,
    changes: Changes,
}

impl Observer {
    /// Starts every watch with `client` (a read client), and asks the kube-apiservers through `connect`, until
    /// `shared.stop`.
    ///
    /// Must be called inside a tokio runtime.
    pub fn start(client: &Client, connect: Connect, scope: PodScope, shared: &Shared) -> Self {
        fn watch<K: Watched<DynamicType = ()>>(
            api: Api<K>,
            labels: Option<&str>,
            detail: Detail,
            shared: &Shared,
        ) -> Cache<K> {
            let select = Select { labels: labels.map(str::to_owned), detail, ..Select::default() };
            Cache::spawn(api, &(), select, RetryPace::default(), shared)
        }
        let pods = match scope {
            PodScope::KubeSystem => Api::namespaced(client.clone(), "kube-system"),
            PodScope::All => Api::all(client.clone()),
        };
        let slices = Api::namespaced(client.clone(), "default");
        let leases = Api::namespaced(client.clone(), "kube-system");
        let apiservers =
            Arc::new(Apiservers::new(connect, apiservers::ProbePace::default(), shared.changes.clone()));
        let detail = match scope {
            PodScope::KubeSystem => Detail::Report,
            PodScope::All => Detail::Decisions,
        };
        let drains = scope == PodScope::All;
        let observer = Self {
            nodes: watch(Api::all(client.clone()), None, detail, shared),
            pods: watch(pods, None, detail, shared),
            budgets: watch(Api::all(client.clone()), None, detail, shared),
            endpoints: watch(slices, Some("kubernetes.io/service-name=kubernetes"), detail, shared),
            leases: watch(leases, None, detail, shared),
            validating: watch(Api::all(client.clone()), None, detail, shared),
            mutating: watch(Api::all(client.clone()), None, detail, shared),
            volumes: drains.then(|| watch(Api::all(client.clone()), None, detail, shared)),
            attachments: drains.then(|| watch(Api::all(client.clone()), None, detail, shared)),
            stateful_sets: drains.then(|| watch(Api::all(client.clone()), None, detail, shared)),
            candidates: OptionalKind::watch(client, "kube-system", shared),
            apiservers,
            model: Mutex::new(Model::new(scope)),
            changes: shared.changes.clone(),
        };
        observer.ask_apiservers(shared.stop.clone());
        observer
    }

    /// Probes exactly the endpoints that exist. A changed slice, or an identity lease with another holder, means that
    /// a kube-apiserver came, went or was replaced: then all are asked at once, as after the watch of slices failed.
    fn ask_apiservers(&self, stop: CancellationToken) {
        let (endpoints, leases) = (self.endpoints.clone(), self.leases.clone());
        let apiservers = Arc::clone(&self.apiservers);
        let mut changes = self.changes.subscribe();
        let keep = async move {
            let mut asked = None;
            loop {
                let slices = endpoints.list();
                let identities = leases.list().into_iter().filter(|lease| lease.identity);
                let holders: Vec<_> = identities.map(|lease| lease.holder).collect();
                let now = Some((slices, holders));
                // A list that is not complete must not remove an endpoint.
                if endpoints.state() != SyncState::Synced {
                    asked = None;
                } else if asked != now {
                    let slices = now.iter().flat_map(|(slices, _)| slices);
                    apiservers.set(&slices.flat_map(|slice| slice.addresses.iter().cloned()).collect());
                    asked = now;
                }
                if !changes.changed().await {
                    return;
                }
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(keep).await });
    }

    /// Asks every kube-apiserver again now, before its regular time, for a caller that waits for a fresh answer. No
    /// kube-apiserver is asked more often than once a second.
    pub fn ask_apiservers_now(&self) {
        self.apiservers.ask_now();
    }

    /// Folds in the Node of that name, if there is one, and all of its pods, as separate requests read them; `version` is
    /// the resourceVersion of the list of pods. So the caches know what a watch has not told yet or has lost.
    pub fn reread(&self, name: &str, node: Option<Node>, pods: Vec<Pod>, version: &str) {
        if let Some(node) = node {
            self.nodes.apply_own(node);
        }
        self.pods.reread(pods, version, |seen| *seen.pod.node == *name);
    }

    /// Folds in all attached volumes, as a separate request read them at resourceVersion `version`.
    pub fn reread_attachments(&self, all: Vec<VolumeAttachment>, version: &str) {
        if let Some(attachments) = &self.attachments {
            attachments.reread(all, version, |_| true);
        }
    }

    /// The counter of changes to which the controllers subscribe.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Each kube-apiserver of `cluster`, and if it does not answer or is not ready, why.
    pub fn servers(&self, cluster: &Cluster) -> Vec<Server> {
        let asked = self.apiservers.list();
        let server = |instance: &Instance| {
            let endpoint = asked.iter().find(|endpoint| endpoint.address == instance.name);
            let silent = || match endpoint {
                Some(endpoint) => endpoint.error.clone().unwrap_or_else(|| "it was not asked yet".into()),
                None => "the cluster lists no address for it: it is starting or gone".into(),
            };
            Server {
                name: Arc::clone(&instance.name),
                node: instance.node.clone(),
                version: instance.version.clone(),
                emulation: instance.effective.map(Effective::emulation),
                reachable: endpoint.is_some_and(|endpoint| endpoint.reachable),
                error: (!instance.ready).then(silent),
            }
        };
        cluster.of(Component::KubeApiserver).map(server).collect()
    }

    /// How every source stands, for metrics and readiness.
    pub fn standing(&self) -> Vec<SourceStanding> {
        fn of<K: Watched>(source: Source, cache: &Cache<K>) -> SourceStanding {
            SourceStanding { source, state: cache.state(), age: cache.confirmed().map(|at| at.elapsed()) }
        }
        let asked = self.apiservers.list();
        let versions = SourceStanding {
            source: Source::Versions,
            state: versions(&asked),
            age: asked.iter().map(|endpoint| endpoint.confirmed).min().flatten().map(|at| at.elapsed()),
        };
        let mut all = vec![
            of(Source::Nodes, &self.nodes),
            of(Source::Endpoints, &self.endpoints),
            versions,
            of(Source::Pods, &self.pods),
            of(Source::Leases, &self.leases),
            of(Source::Budgets, &self.budgets),
            of(Source::Webhooks, &self.validating),
            of(Source::Webhooks, &self.mutating),
        ];
        all.extend(self.volumes.as_ref().map(|volumes| of(Source::Volumes, volumes)));
        all.extend(self.attachments.as_ref().map(|attachments| of(Source::Attachments, attachments)));
        all.extend(self.stateful_sets.as_ref().map(|sets| of(Source::StatefulSets, sets)));
        // They tell of controllers what the leases do not.
        all.extend(self.candidates.served().map(|candidates| of(Source::Leases, candidates)));
        all
    }

    /// The cluster as it is known at `now`, and the sources that it was made without. The cost grows with what
    /// changed since the last call.
    ///
    /// A source that the server does not let us read is left out and named. A source that fails for another reason
    /// is left out and named too, unless it is the nodes or the endpoints: without those there is no model.
    ///
    /// # Errors
    /// [`NotReady`] while the nodes or the kube-apiservers' endpoints are pending or failing, or an endpoint was not
    /// asked yet.
    pub fn cluster(&self, now: Timestamp) -> Result<(Arc<Cluster>, Inventory), NotReady> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gaps = Gaps::default();
        gaps.must(Source::Nodes, &self.nodes.news(|nodes, news| model.nodes(nodes, news)));
        let use_endpoints = gaps.must(Source::Endpoints, &self.endpoints.state());
        let endpoints = if use_endpoints { self.apiservers.list() } else { Vec::new() };
        if let Some(endpoint) = endpoints.iter().find(|endpoint| !endpoint.asked) {
            let address = &endpoint.address;
            gaps.not_asked(format!("kube-apiserver {address} was not asked for its version yet"));
        } else if use_endpoints
            && endpoints.is_empty()
            && self.endpoints.read(|slices| slices.values().any(|slice| !slice.addresses.is_empty()))
        {
            gaps.not_asked("the kube-apiservers were not asked for their versions yet".to_owned());
        }
        if !gaps.needed.is_empty() {
            return Err(NotReady(gaps.needed));
        }

        gaps.missing.extend(self.apiservers.left_out().map(|line| Missing {
            source: Source::Endpoints,
            reason: line.into(),
            trouble: Trouble::Failing,
        }));
        let pods_known = gaps.may(Source::Pods, &self.pods.news(|pods, news| model.pods(pods, news)));
        let leases = gaps.may(Source::Leases, &self.leases.state()).then(|| self.leases.list());
        gaps.may(Source::Budgets, &self.budgets.news(|budgets, news| model.budgets(budgets, news)));
        let (validating, some) = self.validating.news(|hooks, news| (hooks.state(), !news.is_empty()));
        let (mutating, more) = self.mutating.news(|hooks, news| (hooks.state(), !news.is_empty()));
        let usable = gaps.may(Source::Webhooks, &validating) && gaps.may(Source::Webhooks, &mutating);
        model.webhooks(usable, some || more, || {
            let configurations = self.validating.list().into_iter().chain(self.mutating.list());
            configurations.flat_map(|hooks| hooks.to_vec()).collect()
        });
        if let Some(volumes) = &self.volumes {
            gaps.may(Source::Volumes, &volumes.news(|volumes, news| model.volumes(volumes, &news)));
        }
        if let Some(attachments) = &self.attachments {
            gaps.may(Source::Attachments, &attachments.news(|all, news| model.attachments(all, &news)));
        }
        if let Some(sets) = &self.stateful_sets {
            gaps.may(Source::StatefulSets, &sets.news(|sets, news| model.stateful_sets(sets, &news)));
        }
        let candidates = self.candidates.served();
        let candidates = candidates.filter(|cache| gaps.may(Source::Leases, &cache.state()));
        let candidates = candidates.map(Cache::list).unwrap_or_default();
        model.find(&leases.unwrap_or_default(), &endpoints, candidates, now);
        let (platform, leading) = (model.platform(), model.leading().to_vec());
        Ok((model.cluster(), Inventory { missing: gaps.missing, platform, pods_known, leading }))
    }
}

/// Collects the sources that cannot be relied on.
#[derive(Default)]
struct Gaps {
    needed: Vec<Missing>,
    missing: Vec<Missing>,
}

impl Gaps {
    /// Whether `source` can be relied on. If it cannot, there is no model, unless the server refuses it: then the
    /// model is made without it.
    fn must(&mut self, source: Source, state: &SyncState) -> bool {
        let gap = gap(source, state);
        match state {
            SyncState::Refused(_) => self.missing.extend(gap),
            _ => self.needed.extend(gap),
        }
        *state == SyncState::Synced
    }

    /// Whether `source` can be relied on. If it cannot, the model is made without it.
    fn may(&mut self, source: Source, state: &SyncState) -> bool {
        self.missing.extend(gap(source, state));
        *state == SyncState::Synced
    }

    fn not_asked(&mut self, reason: String) {
        self.needed.push(Missing {
            source: Source::Versions,
            reason: reason.into(),
            trouble: Trouble::Pending,
        });
    }
}

fn gap(source: Source, state: &SyncState) -> Option<Missing> {
    if *state == SyncState::Synced {
        return None;
    }
    let syncing = || format!("{source}: the first list is not complete yet").into();
    let reason = state.fault().map_or_else(syncing, Arc::clone);
    let trouble = match state {
        SyncState::Refused(_) => Trouble::Refused,
        SyncState::Tainted(_) | SyncState::Failing { .. } => Trouble::Failing,
        SyncState::Syncing | SyncState::Synced => Trouble::Pending,
    };
    Some(Missing { source, reason, trouble })
}

/// The probes as one source: failing when no endpoint answers.
fn versions(asked: &[apiservers::Endpoint]) -> SyncState {
    if asked.iter().any(|endpoint| endpoint.reachable) {
        SyncState::Synced
    } else if let Some(error) = asked.iter().find_map(|endpoint| endpoint.error.as_ref()) {
        let why = format!("no kube-apiserver answers at its own address: {error}").into();
        SyncState::Failing { why, code: None }
    } else {
        SyncState::Syncing
    }
}

#[cfg(test)]
mod tests;
