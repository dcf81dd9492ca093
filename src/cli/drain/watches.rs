//! What a drain watches: each of its nodes, their pods, the budgets, and what stands around pods where that matters.
//!
//! Here is only what is seen; what is done about it is in `draining`. The invariant: `seen` is an error while something that
//! a decision cannot do without is not complete. `StatefulSets` are none of that: whoever may not read them drains as if
//! no pod were still to be made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::{Cluster, Parts, Surroundings, Traits};
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
/// How long a drain waits for what it can do without, so that its first look knows it too.
const HELPFUL: Duration = Duration::from_secs(5);
/// The longest time between two looks at whether a watch has shown everything.
const AGAIN: Duration = Duration::from_millis(200);
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
    /// Begins to watch what a drain of `nodes` needs, which awaits that volumes are detached or does not, and waits until
    /// the watches have shown everything.
    ///
    /// # Errors
    /// What is not seen, in one line, when it is refused, or when that takes longer than [`PATIENCE`].
    pub(super) async fn begin(
        client: &Client,
        nodes: &[Arc<str>],
        await_volumes: bool,
    ) -> Result<Self, String> {
        let stop = CancellationToken::new();
        let shared = Shared::until(stop.clone());
        let watch = |fields: String| Select { fields: Some(fields), ..Select::default() };
        let watched = nodes.iter().map(|name| {
            let select = watch(format!("metadata.name={name}"));
            (Arc::clone(name), Cache::spawn(Api::all(client.clone()), &(), select, PACE, &shared))
        });
        let pods = nodes.iter().map(|name| {
            let select = watch(format!("spec.nodeName={name}"));
            (Arc::clone(name), Cache::spawn(Api::all(client.clone()), &(), select, PACE, &shared))
        });
        let attachments = await_volumes.then(|| {
            let all = Api::all(client.clone());
            Cache::spawn(all, &(), Select::default(), PACE, &shared)
        });
        let mut watches = Self {
            changes: shared.changes.clone(),
            nodes: watched.collect(),
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
            let cache =
                watches.stateful_sets.insert(Cache::spawn(all, &(), Select::default(), PACE, &shared));
            let mut changed = watches.changes.subscribe();
            let begun = Instant::now();
            while cache.state() == SyncState::Syncing && begun.elapsed() < HELPFUL {
                let _ = tokio::time::timeout(AGAIN, changed.changed()).await;
            }
        }
        // Which pods are tied to their node matters only for a drain of several nodes, and whose volume it is for one that
        // waits for volumes.
        let ties = nodes.len() > 1;
        let matters = |pod: &Traits| {
            (await_volumes && pod.mounted().next().is_some()) || (ties && !pod.claims.is_empty())
        };
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
            let _ = tokio::time::timeout(AGAIN, changed.changed()).await;
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use evenkeel_core::cluster::{Owner, Scale};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// A server with one node, a pod of the StatefulSet `shop/db` on it, and that set if it may be read.
    fn client(sets: bool) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| async move {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": true});
            let of_shop =
                |name: &str| json!({"namespace": "shop", "name": name, "uid": "u", "resourceVersion": "1"});
            let mut pod = json!({"metadata": of_shop("db-0"), "spec": {"nodeName": "n-1"}});
            pod["metadata"]["ownerReferences"] = json!([owner]);
            let objects = match path {
                "/api/v1/nodes" => {
                    vec![json!({"metadata": {"name": "n-1", "uid": "n", "resourceVersion": "1"}})]
                }
                "/api/v1/pods" => vec![pod],
                "/apis/apps/v1/statefulsets" => {
                    vec![json!({"metadata": of_shop("db"), "spec": {"replicas": 3}})]
                }
                _ => vec![],
            };
            let refused = path.ends_with("statefulsets") && !sets;
            let (code, answer) = if refused {
                (
                    403,
                    json!({"kind": "Status", "status": "Failure", "code": 403, "message": "not yours"})
                        .to_string(),
                )
            } else if query.contains("sendInitialEvents=true") {
                let mark =
                    json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
                let event =
                    |kind: &str, object: Value| format!("{}\n", json!({"type": kind, "object": object}));
                let added: String = objects.into_iter().map(|object| event("ADDED", object)).collect();
                (200, added + &event("BOOKMARK", json!({"apiVersion": "v1", "kind": "X", "metadata": mark})))
            } else if query.contains("watch=true") {
                return std::future::pending().await;
            } else {
                (200, json!({"metadata": {"resourceVersion": "9"}, "items": objects}).to_string())
            };
            let answer = Body::from(answer.into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).unwrap())
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_look_knows_the_scale_of_a_stateful_set_that_may_be_read() {
        for (sets, scale) in [(true, Scale::Of("u".into(), 3)), (false, Scale::Unknown)] {
            let watches = Watches::begin(&client(sets), &["n-1".into()], false).await.unwrap();
            let owner = Owner {
                api_version: "apps/v1".into(),
                kind: "StatefulSet".into(),
                name: "db".into(),
                uid: "u".into(),
            };
            let cluster = watches.cluster();
            assert_eq!(cluster.surroundings().scale(&"shop".into(), &owner), scale);
            assert_eq!((cluster.nodes().len(), cluster.pods().count()), (1, 1));
        }
    }
}
