//! Follows every event of the cluster beside the operator and notes each broken invariant of docs/architecture.md.
//!
//! It shares no code with the operator and trusts none of its words: versions come from the apiservers and Nodes
//! themselves, health from the pods, and who deleted what from the audit log. Here belongs the reading: every event gets
//! its time when it is read, and what it asks of the cluster is asked at once, beside the reading, so that an answer that
//! takes its time keeps no event waiting. What was read is judged to its end, also when whoever is watched has ended.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_devcluster::{Failure, TestResult};
use futures::stream::{BoxStream, FuturesUnordered, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};

use crate::requests::{self, Requests};
use crate::scenario::{MAX_UNAVAILABLE, OPERATOR_USER, TO};
use crate::standin::{cluster_upgrades, node_upgrades};
use crate::watched::Watched;

mod done;
mod nodes;
mod notes;
mod questions;
mod seen;
mod steps;
#[cfg(test)]
mod tests;

use nodes::{MARK, kubelet, unschedulable};
use notes::Question;

pub use notes::Noted;
pub use seen::Seen;

const EXECUTORS: &str = "evenkeel-executors";

/// So long the last events may take to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(2);
/// Longer than any question waits for its answer.
const ANSWERED_WITHIN: Duration = Duration::from_mins(4);
/// Between two tries of a watch that fails.
const TRIES_AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    /// How many nodes of a pool may be unavailable at once.
    limits: Arc<[(&'static str, usize)]>,
    control_plane_first: bool,
}

/// Of the cluster of [`crate::scenario`].
impl Default for Observer {
    fn default() -> Self {
        Self::with_limits(&[("general", MAX_UNAVAILABLE)])
    }
}

#[allow(clippy::large_enum_variant, reason = "one at a time")]
enum Seeing {
    Node(Event<Node>),
    Pod(Event<Pod>),
    Budget(Event<PodDisruptionBudget>),
    Job(Event<Job>),
    Claim(Event<DynamicObject>),
    Upgrade(Event<DynamicObject>),
}

impl Observer {
    /// `limits` say how many nodes of a pool may be unavailable at once.
    pub fn with_limits(limits: &[(&'static str, usize)]) -> Self {
        Self { seen: Arc::default(), limits: limits.into(), control_plane_first: false }
    }

    /// Of an upgrade in which no worker moves beside the control plane.
    #[must_use]
    pub fn control_plane_first(self) -> Self {
        Self { control_plane_first: true, ..self }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().map(|seen| seen.clone()).unwrap_or_default().judged()
    }

    fn note(&self, at: Timestamp, line: String) {
        if let Ok(mut seen) = self.seen.lock() {
            seen.note(at, line);
        }
    }

    /// Watches until the future is dropped.
    pub async fn watch(&self, cluster: &impl Watched) -> TestResult {
        self.during(cluster, std::future::pending()).await
    }

    /// Watches while `body` runs, and until what was seen of it is judged.
    pub async fn during(&self, cluster: &impl Watched, body: impl Future<Output = TestResult>) -> TestResult {
        self.follow(select_all(watches(cluster)), body, |question, at| self.ask(cluster, question, at)).await
    }

    /// Reads events while `body` runs and for a moment longer, and waits for the answers to everything that was asked.
    async fn follow<A: Future<Output = ()>>(
        &self,
        mut events: impl Stream<Item = Seeing> + Unpin,
        body: impl Future<Output = TestResult>,
        ask: impl Fn(Question, Timestamp) -> A,
    ) -> TestResult {
        let began = Timestamp::now();
        let mut answers = FuturesUnordered::new();
        let asked = |event| {
            let at = Timestamp::now();
            let ask = &ask;
            self.sees(event, at, began).into_iter().map(move |question| ask(question, at))
        };
        let mut body = pin!(async {
            body.await?;
            tokio::time::sleep(ARRIVES_WITHIN).await;
            Ok::<_, Failure>(())
        });
        loop {
            tokio::select! {
                done = &mut body => break done?,
                Some(event) = events.next() => answers.extend(asked(event)),
                Some(()) = answers.next() => {}
            }
        }
        let all = answers.count();
        tokio::time::timeout(ANSWERED_WITHIN, all).await?;
        Ok(())
    }

    /// Takes an event that was read at `at`, and says what has to be asked because of it.
    fn sees(&self, event: Seeing, at: Timestamp, began: Timestamp) -> Vec<Question> {
        let Ok(mut seen) = self.seen.lock() else { return Vec::new() };
        seen.events += 1;
        match event {
            Seeing::Node(event) => seen.node(event, at, &self.limits),
            Seeing::Pod(event) => seen.pod(event, at),
            Seeing::Budget(event) => {
                seen.budget(event, at);
                Vec::new()
            }
            Seeing::Job(event) => {
                seen.steps.job(event);
                Vec::new()
            }
            Seeing::Claim(Event::Apply(claim)) => seen.claim(&claim, self.control_plane_first, at, None),
            Seeing::Claim(Event::InitApply(claim)) => {
                seen.claim(&claim, self.control_plane_first, at, Some(began))
            }
            Seeing::Upgrade(Event::Apply(upgrade) | Event::InitApply(upgrade)) => seen.upgrade(&upgrade, at),
            Seeing::Claim(_) | Seeing::Upgrade(_) => Vec::new(),
        }
    }

    /// What the audit log tells afterwards; what is wrong in it is noted.
    pub fn audit(&self, cluster: &impl Watched) -> Result<Requests, Failure> {
        let (requests, wrong) = requests::of(&cluster.audit_log()?, OPERATOR_USER);
        let now = Timestamp::now();
        for line in wrong {
            self.note(now, line);
        }
        Ok(requests)
    }
}

/// Everything that is watched. Where the apiserver behind a watch was replaced, that watch lists again.
fn watches(cluster: &impl Watched) -> Vec<BoxStream<'static, Seeing>> {
    fn kind<K: Send + 'static>(
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        seeing: fn(Event<K>) -> Seeing,
    ) -> BoxStream<'static, Seeing> {
        let events = events.then(async |event| {
            if event.is_err() {
                tokio::time::sleep(TRIES_AGAIN).await;
            }
            event
        });
        events.filter_map(move |event| std::future::ready(event.ok().map(seeing))).boxed()
    }
    let config = watcher::Config::default;
    let client = cluster.client();
    vec![
        kind(watcher(Api::all(client.clone()), config()), Seeing::Node),
        kind(watcher(Api::all(client.clone()), config()), Seeing::Pod),
        kind(watcher(Api::all(client.clone()), config()), Seeing::Budget),
        kind(watcher(Api::namespaced(client.clone(), EXECUTORS), config()), Seeing::Job),
        kind(watcher(node_upgrades(client.clone()), config()), Seeing::Claim),
        kind(watcher(cluster_upgrades(client), config()), Seeing::Upgrade),
    ]
}

/// It carries the taint by which Evenkeel asks the scheduler to prefer other nodes.
fn is_avoided(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == "evenkeel.dev/outdated")
}

/// At rest: every node at the target, schedulable, unmarked and not avoided, but for those named.
pub async fn at_rest(cluster: &impl Watched, except: &[&str]) -> Result<Vec<String>, Failure> {
    let nodes: Api<Node> = Api::all(cluster.client());
    let mut wrong = Vec::new();
    for node in nodes.list(&ListParams::default()).await?.items {
        let name = node.name_any();
        if unschedulable(&node) || node.annotations().contains_key(MARK) {
            wrong.push(format!("{name} is left cordoned"));
        }
        // One that could not be drained is to be upgraded still.
        if is_avoided(&node) && !except.contains(&name.as_str()) {
            wrong.push(format!("{name} is left to be avoided"));
        }
        if kubelet(&node) != TO && !except.contains(&name.as_str()) {
            wrong.push(format!("{name} runs {}", kubelet(&node)));
        }
    }
    Ok(wrong)
}
