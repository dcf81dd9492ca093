//! The model of the cluster: made from the caches, kept between looks, and updated with what changed in them.
//!
//! Here belongs how a change of a source changes the model. Nothing here sends a request or judges. The invariant:
//! after an update the model is equal to one that is made anew from the same sources, and it holds nothing of a
//! source that cannot be relied on.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{Cluster, Instance, Webhook};
use evenkeel_core::version::{Effective, Observed};
use jiff::Timestamp;

use super::apiservers::Endpoint;
use super::components::{self, Sources, same_process};
use super::fold::{Fold, Key, News, SyncState};
use super::inventory::PodScope;
use super::leaders::{self, Leading};
use super::lean::{
    CandidateSeen, LeaseSeen, Node, NodeSeen, PersistentVolume, Pod, PodDisruptionBudget, PodSeen,
    StatefulSet, VolumeAttachment,
};
use super::platform::Platform;
use super::recognise;

/// The model, and what is needed to update it.
pub(super) struct Model {
    cluster: Arc<Cluster>,
    scope: PodScope,
    /// What is kept of each Node, by name: more than the model holds.
    nodes: BTreeMap<Arc<str>, Arc<NodeSeen>>,
    /// The pods that run a component.
    running: BTreeMap<Key, PodSeen>,
    /// Which sources the model was made with.
    has: Has,
    /// From what the components were found; `None` when a node or a pod that tells of components has changed since.
    found_by: Option<SmallSources>,
    /// The leases that tell who leads, with their times.
    led_by: Vec<LeaseSeen>,
    platform: Option<Platform>,
    leading: Vec<Leading>,
}

#[derive(Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a source of its own")]
struct Has {
    nodes: bool,
    pods: bool,
    budgets: bool,
    webhooks: bool,
    volumes: bool,
    attachments: bool,
    stateful_sets: bool,
}

/// The sources of components that are few, and so are compared as a whole. A lease's time changes at every renewal,
/// so instead of it the freshness of the lease and the number of leases that are older are compared.
#[derive(PartialEq, Eq)]
struct SmallSources {
    leases: Vec<(LeaseSeen, bool, usize)>,
    endpoints: Vec<EndpointTold>,
    candidates: Vec<CandidateSeen>,
}

/// What an endpoint tells: its address, version, what it emulates, its build, and whether it is ready.
type EndpointTold = (Arc<str>, Observed, Option<Effective>, Arc<str>, bool);

impl SmallSources {
    fn of(
        leases: &[LeaseSeen],
        endpoints: &[Endpoint],
        candidates: Vec<CandidateSeen>,
        now: Timestamp,
    ) -> Self {
        let lease = |lease: &LeaseSeen| {
            let older = leases.iter().filter(|other| other.renewed < lease.renewed).count();
            (LeaseSeen { renewed: None, ..lease.clone() }, lease.is_fresh(now), older)
        };
        let endpoint = |found: &Endpoint| {
            let Endpoint { address, version, effective, build, ready, .. } = found;
            (Arc::clone(address), version.clone(), *effective, Arc::clone(build), *ready)
        };
        Self {
            leases: leases.iter().map(lease).collect(),
            endpoints: endpoints.iter().map(endpoint).collect(),
            candidates,
        }
    }
}

impl Model {
    /// An empty model for the pods of `scope`.
    pub(super) fn new(scope: PodScope) -> Self {
        Self {
            cluster: Arc::default(),
            scope,
            nodes: BTreeMap::new(),
            running: BTreeMap::new(),
            has: Has::default(),
            found_by: None,
            led_by: Vec::new(),
            platform: None,
            leading: Vec::new(),
        }
    }

    /// The model as it is now. Later updates do not change what this returned.
    pub(super) fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster)
    }

    /// The platform of the cluster; `None` if it was not recognised.
    pub(super) fn platform(&self) -> Option<Platform> {
        self.platform
    }

    /// Controllers that lead where they cannot be seen.
    pub(super) fn leading(&self) -> &[Leading] {
        &self.leading
    }

    /// Updates the nodes of the model with `news`, and returns how far `fold` can be relied on.
    pub(super) fn nodes(&mut self, fold: &Fold<Node>, news: News) -> SyncState {
        let state = fold.state();
        let usable = state == SyncState::Synced;
        match news {
            News::These(keys) if usable && self.has.nodes => {
                for key in keys {
                    self.node(&key.1, fold.value(&key));
                }
            }
            _ if usable || self.has.nodes => {
                let all = || fold.values().filter(|_| usable);
                let cluster = Arc::make_mut(&mut self.cluster);
                cluster.set_nodes(all().map(|seen| Arc::clone(&seen.node)).collect());
                self.nodes = all().map(|seen| (Arc::clone(&seen.node.name), Arc::clone(seen))).collect();
                self.found_by = None;
            }
            _ => {}
        }
        self.has.nodes = usable;
        debug_assert!(
            self.cluster.nodes().iter().eq(fold.values().filter(|_| usable).map(|seen| &seen.node)),
            "the nodes of the model are those that are seen"
        );
        state
    }

    fn node(&mut self, name: &Arc<str>, seen: Option<&Arc<NodeSeen>>) {
        let told = |seen: &NodeSeen| {
            let node = &seen.node;
            let whole = same_process::is_server(node).then(|| (node.kubelet.clone(), node.ready));
            (seen.internal_ips.clone(), seen.platform, seen.hostname.clone(), node.control_plane, whole)
        };
        let cluster = Arc::make_mut(&mut self.cluster);
        let before = if let Some(seen) = seen {
            cluster.set_node(Arc::clone(&seen.node));
            self.nodes.insert(Arc::clone(name), Arc::clone(seen))
        } else {
            cluster.remove_node(name);
            self.nodes.remove(name)
        };
        if before.as_deref().map(told) != seen.map(|seen| told(seen)) {
            self.found_by = None;
        }
    }

    /// Updates the pods of the model with `news`, and returns how far `fold` can be relied on.
    pub(super) fn pods(&mut self, fold: &Fold<Pod>, news: News) -> SyncState {
        let state = fold.state();
        let usable = state == SyncState::Synced;
        match news {
            News::These(keys) if usable && self.has.pods => {
                for key in keys {
                    let seen = fold.value(&key);
                    self.pod(key, seen);
                }
            }
            _ if usable || self.has.pods => {
                let all = || fold.pairs().filter(|_| usable);
                if self.scope == PodScope::All {
                    let bound = all().map(|(_, seen)| seen).filter(|seen| is_bound(seen));
                    let bound = bound.map(|seen| Arc::clone(&seen.pod)).collect();
                    Arc::make_mut(&mut self.cluster).set_pods(bound);
                }
                let running = all().filter(|(_, seen)| seen.runs.is_some());
                self.running = running.map(|(key, seen)| (key.clone(), seen.clone())).collect();
                self.found_by = None;
            }
            _ => {}
        }
        self.has.pods = usable;
        debug_assert!(self.has_pods_of(fold, usable), "the pods of the model are those that are seen");
        state
    }

    fn pod(&mut self, key: Key, seen: Option<&PodSeen>) {
        if self.scope == PodScope::All {
            let cluster = Arc::make_mut(&mut self.cluster);
            match seen.filter(|seen| is_bound(seen)) {
                Some(seen) => cluster.set_pod(Arc::clone(&seen.pod)),
                None => cluster.remove_pod(&key.0, &key.1),
            }
        }
        let runs = seen.filter(|seen| seen.runs.is_some());
        if runs.is_none() && !self.running.contains_key(&key) {
            return;
        }
        let before = match runs {
            Some(seen) => self.running.insert(key, seen.clone()),
            None => self.running.remove(&key),
        };
        if before.as_ref() != runs {
            self.found_by = None;
        }
    }

    fn has_pods_of(&self, fold: &Fold<Pod>, usable: bool) -> bool {
        let wanted = fold.values().filter(|seen| usable && self.scope == PodScope::All && is_bound(seen));
        let mut count = 0;
        let mut found = wanted.inspect(|_| count += 1);
        found.all(|seen| self.cluster.pod(&seen.pod.namespace, &seen.pod.name) == Some(&seen.pod))
            && self.cluster.pods().count() == count
    }

    /// Updates the budgets of the model with `news`, and returns how far `fold` can be relied on.
    pub(super) fn budgets(&mut self, fold: &Fold<PodDisruptionBudget>, news: News) -> SyncState {
        let state = fold.state();
        let usable = state == SyncState::Synced;
        match news {
            News::These(keys) if usable && self.has.budgets => {
                for key in keys {
                    let cluster = Arc::make_mut(&mut self.cluster);
                    match fold.value(&key) {
                        Some(budget) => cluster.set_budget(Arc::clone(budget)),
                        None => cluster.remove_budget(&key.0, &key.1),
                    }
                }
            }
            _ if usable || self.has.budgets => {
                let all = fold.values().filter(|_| usable).map(Arc::clone).collect();
                Arc::make_mut(&mut self.cluster).set_budgets(all);
            }
            _ => {}
        }
        self.has.budgets = usable;
        debug_assert!(
            self.cluster.budgets().eq(fold.values().filter(|_| usable).map(AsRef::as_ref)),
            "the budgets of the model are those that are seen"
        );
        state
    }

    /// Replaces the webhooks of the model if they are `usable` and either `changed` or were not usable before;
    /// removes them if they are not usable.
    pub(super) fn webhooks(&mut self, usable: bool, changed: bool, webhooks: impl FnOnce() -> Vec<Webhook>) {
        if usable && (changed || !self.has.webhooks) {
            Arc::make_mut(&mut self.cluster).set_webhooks(webhooks());
        } else if !usable && self.has.webhooks {
            Arc::make_mut(&mut self.cluster).set_webhooks(Vec::new());
        }
        self.has.webhooks = usable;
    }

    /// Updates the volumes of the model with `news`, and returns how far `fold` can be relied on. While it cannot,
    /// the model says that it is not known which pods are tied to a node.
    pub(super) fn volumes(&mut self, fold: &Fold<PersistentVolume>, news: &News) -> SyncState {
        let state = fold.state();
        let usable = state == SyncState::Synced;
        if usable && (!news.is_empty() || !self.has.volumes) {
            let tied = fold.values().flatten().filter(|seen| !seen.hosts.is_empty());
            let tied = tied.map(|seen| (seen.claim.clone(), seen.hosts.clone())).collect();
            let claims =
                fold.values().flatten().map(|seen| (seen.volume.clone(), seen.claim.clone())).collect();
            let surroundings = Arc::make_mut(&mut self.cluster).surroundings_mut();
            (surroundings.volumes, surroundings.claims) = (Some(tied), Some(claims));
        } else if !usable && self.has.volumes {
            let surroundings = Arc::make_mut(&mut self.cluster).surroundings_mut();
            (surroundings.volumes, surroundings.claims) = (None, None);
        }
        self.has.volumes = usable;
        state
    }

    /// Updates the attached volumes of the model with `news`, and returns how far `fold` can be relied on. While it
    /// cannot, the model says that they are not known.
    pub(super) fn attachments(&mut self, fold: &Fold<VolumeAttachment>, news: &News) -> SyncState {
        let state = fold.state();
        let usable = state == SyncState::Synced;
        if usable && (!news.is_empty() || !self.has.attachments) {
            let attached = fold.values().cloned().collect();
            Arc::make_mut(&mut self.cluster).surroundings_mut().attached = Some(attached);
        } else if !usable && self.has.attachments {
            Arc::make_mut(&mut self.cluster).surroundings_mut().attached = None;
        }
        self.has.attachments = usable;
        state
    }

    /// Updates the `StatefulSets` of the model with `news`, and returns how far `fold` can be relied on. While it cannot,
    /// the model says that no workload is known.
    pub(super) fn stateful_sets(&mut self, fold: &Fold<StatefulSet>, news: &News) -> SyncState {
        let state = fold.state();
        let usable = state == SyncState::Synced;
        if usable && (!news.is_empty() || !self.has.stateful_sets) {
            let sets = fold.values().cloned().collect();
            Arc::make_mut(&mut self.cluster).surroundings_mut().workloads = Some(sets);
        } else if !usable && self.has.stateful_sets {
            Arc::make_mut(&mut self.cluster).surroundings_mut().workloads = None;
        }
        self.has.stateful_sets = usable;
        state
    }

    /// Finds the components from the nodes and pods of the model and from the arguments, if any of these changed.
    pub(super) fn find(
        &mut self,
        leases: &[LeaseSeen],
        endpoints: &[Endpoint],
        candidates: Vec<CandidateSeen>,
        now: Timestamp,
    ) {
        let by = SmallSources::of(leases, endpoints, candidates, now);
        let same = self.found_by.as_ref() == Some(&by);
        if !same || self.led_by != leases {
            let nodes: Vec<_> = self.nodes.values().map(AsRef::as_ref).collect();
            let pods: Vec<_> = self.running.values().collect();
            let all: Vec<_> = leases.iter().collect();
            let cluster = Arc::make_mut(&mut self.cluster);
            if !same {
                let seen = Sources { nodes: &nodes, pods: &pods, leases: &all, endpoints, asked: true, now };
                let mut instances = components::instances(&seen);
                // Where pods cannot be read, every controller would look hidden.
                let unseen = leaders::add(&mut instances, &by.candidates, &seen);
                self.leading = if self.has.pods { unseen } else { Vec::new() };
                self.platform = recognise::platform(&nodes, &pods);
                cluster.set_instances(instances);
            }
            cluster.set_leaders(leaders::leaders(&all, &nodes));
            (self.found_by, self.led_by) = (Some(by), leases.to_vec());
        }
        let probed = |server: &Instance| {
            let endpoint = endpoints.iter().find(|endpoint| endpoint.address == server.name);
            endpoint.and_then(|endpoint| endpoint.probed(now))
        };
        Arc::make_mut(&mut self.cluster).set_probed(probed);
    }
}

fn is_bound(seen: &PodSeen) -> bool {
    !seen.pod.node.is_empty()
}

#[cfg(test)]
mod tests;
