//! What a drain watches: each of its nodes, their pods, the budgets, and what stands around pods where that matters.
//!
//! Here is only what is seen; what is done about it is in `draining`. The invariant: `seen` is an error while something that
//! a decision cannot do without is not complete. `StatefulSets` are none of that: whoever may not read them drains as if
//! no pod were still to be made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::{Cluster, Parts, Surroundings, Traits};
use evenkeel_core::drain::DrainRequest;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::reread::PodsRead;
use crate::observe::cache::{Cache, Changes, RetryPace, Select, Shared};
use crate::observe::fold::{SyncState, Unseen};
use crate::observe::lean::{self, PodSeen};
use crate::observe::survey::Survey;

/// How long the watches may take to show everything that the drain needs.
const PATIENCE: Duration = Duration::from_secs(30);
const PACE: RetryPace = RetryPace { first: Duration::from_millis(500), longest: Duration::from_secs(10) };

/// The watches of one drain. They end when this is dropped.
pub(super) struct Watches {
    pub(super) changes: Changes,
    nodes: BTreeMap<Arc<str>, Cache<lean::Node>>,
    pods: BTreeMap<Arc<str>, Cache<lean::Pod>>,
    budgets: Cache<lean::PodDisruptionBudget>,
    /// The `VolumeAttachments`, if the drain waits until volumes are detached.
    attachments: Option<Cache<lean::VolumeAttachment>>,
    /// The `StatefulSets`, if a pod of a node is of one.
    stateful_sets: Option<Cache<lean::StatefulSet>>,
    /// What was read once.
    read_once: Surroundings,
    _stop: DropGuard,
}

impl Watches {
    /// Begins to watch, and waits until the watches have shown everything that the drain needs.
    ///
    /// # Errors
    /// What is not seen, in one line, when it is refused, or when that takes longer than [`PATIENCE`].
    pub(super) async fn begin(client: &Client, request: &DrainRequest) -> Result<Self, String> {
        let stop = CancellationToken::new();
        let shared = Shared::until(stop.clone());
        let watch = |fields: String| Select { fields: Some(fields), ..Select::default() };
        let nodes = request.nodes.iter().map(|name| {
            let select = watch(format!("metadata.name={name}"));
            (Arc::clone(name), Cache::spawn(Api::all(client.clone()), &(), select, PACE, &shared))
        });
        let pods = request.nodes.iter().map(|name| {
            let select = watch(format!("spec.nodeName={name}"));
            (Arc::clone(name), Cache::spawn(Api::all(client.clone()), &(), select, PACE, &shared))
        });
        let attachments = request.policy.await_volumes.then(|| {
            let all = Api::all(client.clone());
            Cache::spawn(all, &(), Select::default(), PACE, &shared)
        });
        let mut watches = Self {
            changes: shared.changes.clone(),
            nodes: nodes.collect(),
            pods: pods.collect(),
            budgets: Cache::spawn(Api::all(client.clone()), &(), Select::default(), PACE, &shared),
            attachments,
            stateful_sets: None,
            read_once: Surroundings::default(),
            _stop: stop.drop_guard(),
        };
        watches.synced().await?;
        if watches.any_pod(|pod| pod.pod.owner.as_ref().is_some_and(|owner| *owner.kind == *"StatefulSet")) {
            let all = Api::all(client.clone());
            watches.stateful_sets = Some(Cache::spawn(all, &(), Select::default(), PACE, &shared));
        }
        // Which pods are tied to their node matters only for a drain of several nodes, and whose volume it is for one that
        // waits for volumes.
        let (ties, waits) = (request.nodes.len() > 1, request.policy.await_volumes);
        let matters =
            |pod: &Traits| (waits && pod.mounted().next().is_some()) || (ties && !pod.claims.is_empty());
        if watches.any_pod(|pod| matters(pod.pod.traits())) {
            let survey = Survey::of_volumes(client).await;
            for line in survey.missing() {
                eprintln!("warning: {line}; pods on local volumes are not told apart");
            }
            watches.read_once = survey.cluster().surroundings().clone();
        }
        Ok(watches)
    }

    fn any_pod(&self, wanted: impl Fn(&PodSeen) -> bool) -> bool {
        self.pods.values().any(|cache| cache.read(|pods| pods.values().any(&wanted)))
    }

    async fn synced(&self) -> Result<(), String> {
        let mut changed = self.changes.subscribe();
        let begun = Instant::now();
        loop {
            match self.seen() {
                Ok(()) => return Ok(()),
                Err(unseen) if begun.elapsed() > PATIENCE || unseen.refused => return Err(unseen.line),
                Err(_) => {}
            }
            let _ = tokio::time::timeout(Duration::from_millis(200), changed.changed()).await;
        }
    }

    /// Whether everything that the drain needs can be relied on.
    pub(super) fn seen(&self) -> Result<(), Unseen> {
        let nodes = self.nodes.values().map(Cache::state);
        let pods = self.pods.values().map(Cache::state);
        let attachments = self.attachments.iter().map(Cache::state);
        let states = nodes.chain(pods).chain([self.budgets.state()]).chain(attachments);
        let unseen =
            states.filter_map(|state| state.seen(|| "the cluster did not answer in time".to_owned()).err());
        // What is refused is told before what may pass.
        unseen.min_by_key(|unseen| !unseen.refused).map_or(Ok(()), Err)
    }

    /// The nodes of the drain, their pods and every budget, as they are seen now.
    pub(super) fn cluster(&self) -> Cluster {
        let mut parts = Parts { surroundings: self.surroundings(), ..Parts::default() };
        for (name, cache) in &self.nodes {
            parts.nodes.extend(cache.get("", name).map(|seen| seen.node.clone()));
        }
        for cache in self.pods.values() {
            cache.read(|pods| parts.pods.extend(pods.values().map(|seen| seen.pod.as_ref().clone())));
        }
        self.budgets.read(|budgets| parts.budgets.extend(budgets.values().map(|b| b.as_ref().clone())));
        parts.seal()
    }

    /// What stands around the pods, as it is seen now.
    pub(super) fn surroundings(&self) -> Surroundings {
        let mut seen = self.read_once.clone();
        let attached =
            |cache: &Cache<lean::VolumeAttachment>| cache.read(|all| all.values().cloned().collect());
        seen.attached = self.attachments.as_ref().map(attached);
        let known = self.stateful_sets.as_ref().filter(|cache| cache.state() == SyncState::Synced);
        seen.workloads = known.map(|cache| cache.read(|sets| sets.values().cloned().collect()));
        seen
    }

    /// The UID of the Node of that name, if there is one.
    pub(super) fn uid(&self, name: &str) -> Option<Arc<str>> {
        Some(Arc::clone(&self.nodes.get(name)?.get("", name)?.node.uid))
    }

    /// The node of the drain on which the pod of that UID is; empty where it is on none.
    pub(super) fn node_of(&self, uid: &Arc<str>) -> Arc<str> {
        let on = |cache: &Cache<lean::Pod>| cache.read(|pods| pods.values().any(|pod| pod.pod.uid == *uid));
        let found = self.pods.iter().find(|(_, cache)| on(cache));
        found.map_or_else(|| "".into(), |(name, _)| Arc::clone(name))
    }

    /// Folds in a Node as the answer to a write of ours has it.
    pub(super) fn apply_own(&self, name: &str, node: lean::Node) {
        if let Some(cache) = self.nodes.get(name) {
            cache.apply_own(node);
        }
    }

    /// Folds in the pods of a node as a separate request read them.
    pub(super) fn reread(&self, name: &str, read: PodsRead) {
        if let Some(cache) = self.pods.get(name) {
            cache.reread(read.pods, &read.version, |_| true);
        }
    }
}
