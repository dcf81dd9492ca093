//! Follows every event of the cluster beside the operator and notes each broken invariant of the design.
//!
//! It shares no code with the operator and trusts none of its words: versions come from the apiservers and Nodes
//! themselves, health from the pods, and who deleted what from the audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_devcluster::{Failure, Release, Role};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};

use crate::requests::{self, Requests};
use crate::scenario::{MAX_UNAVAILABLE, OPERATOR_USER, TO, is_ready};
use crate::standin::{cluster_upgrades, node_upgrades};
use crate::watched::Watched;

mod done;

const MARK: &str = "evenkeel.dev/cordoned-by";

/// So long a budget may wait for the deletion of a pod whose eviction was granted.
const STANDS_STILL: SignedDuration = SignedDuration::from_secs(30);

/// What was seen so far.
#[derive(Default, Clone)]
pub struct Seen {
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    listing: BTreeMap<String, Pod>,
    budgets: BTreeMap<String, PodDisruptionBudget>,
    /// Claims that said "Upgraded", by UID.
    upgraded: BTreeSet<String>,
    /// Budgets that were once whole: before that, pods are still starting.
    whole: BTreeSet<String>,
    pub events: usize,
    pub violations: Vec<String>,
    /// Budgets that waited long for an eviction: where a kube-apiserver dies in the middle of one, nobody can help it.
    pub waited: Vec<String>,
    pub most_unavailable: usize,
    /// Evictions by pod UID that were seen to happen.
    pub evicted: BTreeSet<String>,
}

#[derive(Clone)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    /// How many nodes of a pool may be unavailable at once.
    limits: Arc<[(&'static str, usize)]>,
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
    Claim(Event<DynamicObject>),
    Upgrade(Event<DynamicObject>),
}

impl Observer {
    /// `limits` say how many nodes of a pool may be unavailable at once.
    pub fn with_limits(limits: &[(&'static str, usize)]) -> Self {
        Self { seen: Arc::default(), limits: limits.into() }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().map(|seen| seen.clone()).unwrap_or_default()
    }

    fn note(&self, line: String) {
        if let Ok(mut seen) = self.seen.lock() {
            seen.violations.push(line);
        }
    }

    /// Watches until the future is dropped.
    pub async fn watch(&self, cluster: &impl Watched) -> Result<(), Failure> {
        let client = cluster.client();
        let config = watcher::Config::default();
        let nodes = watcher(Api::<Node>::all(client.clone()), config.clone()).map(|e| e.map(Seeing::Node));
        let pods = watcher(Api::<Pod>::all(client.clone()), config.clone()).map(|e| e.map(Seeing::Pod));
        let budgets = watcher(Api::<PodDisruptionBudget>::all(client.clone()), config.clone())
            .map(|e| e.map(Seeing::Budget));
        let claims = watcher(node_upgrades(client.clone()), config.clone()).map(|e| e.map(Seeing::Claim));
        let upgrades = watcher(cluster_upgrades(client.clone()), config).map(|e| e.map(Seeing::Upgrade));
        let mut events = futures::stream::select_all([
            nodes.boxed(),
            pods.boxed(),
            budgets.boxed(),
            claims.boxed(),
            upgrades.boxed(),
        ]);
        while let Some(event) = events.next().await {
            match event {
                Ok(Seeing::Node(event)) => self.node(cluster, event).await,
                Ok(Seeing::Pod(event)) => {
                    if let Event::Apply(pod) = &event {
                        self.controller_may_be(cluster, pod).await;
                    }
                    self.pod(event);
                }
                Ok(Seeing::Budget(event)) => self.budget(event),
                Ok(Seeing::Claim(event)) => self.claim(cluster, event).await,
                Ok(Seeing::Upgrade(event)) => self.upgrade(cluster, event).await,
                // The apiserver behind the watch was replaced; the watcher lists again.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Err(Failure::new("the observer's watches ended"))
    }

    async fn node(&self, cluster: &impl Watched, event: Event<Node>) {
        let (Event::Apply(node) | Event::InitApply(node)) = event else { return };
        let name = node.name_any();
        let before = {
            let Ok(mut seen) = self.seen.lock() else { return };
            seen.events += 1;
            let before = seen.nodes.insert(name.clone(), node.clone());
            seen.check_unavailable(&self.limits);
            before
        };
        let version = kubelet(&node);
        if before.as_ref().map(kubelet).is_some_and(|b| b != version) {
            self.kubelet_may_be(cluster, &name, &version).await;
        }
        if let Some(mark) =
            node.annotations().get(MARK).filter(|_| !before.as_ref().is_some_and(unschedulable))
        {
            self.claim_exists(cluster, &name, mark).await;
        }
        let mark = before.filter(unschedulable).and_then(|before| before.annotations().get(MARK).cloned());
        if let Some(mark) = mark.filter(|_| !unschedulable(&node)) {
            self.executor_has_ended(cluster, &name, &mark).await;
        }
    }

    /// No kubelet is newer than any apiserver or controller, and none moves before all of them did.
    async fn kubelet_may_be(&self, cluster: &impl Watched, node: &str, version: &str) {
        let runs = Release::parse(version);
        for component in cluster.components().await {
            let name = component.name;
            match component.release {
                Ok(release) if runs.is_some_and(|runs| runs <= release) => {}
                Ok(release) => {
                    self.note(format!(
                        "kubelet on {node} is {version} while {name} is {}",
                        release.version()
                    ));
                }
                Err(error) => self.note(format!("kubelet on {node} moved while {name} was gone: {error}")),
            }
        }
    }

    /// No controller is newer than an apiserver that it may ask.
    async fn controller_may_be(&self, cluster: &impl Watched, pod: &Pod) {
        let component = pod.labels().get("component").map(String::as_str).unwrap_or_default();
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let image = container.and_then(|container| container.image.as_deref()).unwrap_or_default();
        let tag = image.rsplit(':').next().and_then(Release::parse);
        let Some(runs) = tag.filter(|_| ["kube-controller-manager", "kube-scheduler"].contains(&component))
        else {
            return;
        };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        for server in cluster.asked_by_controllers_of(node).await {
            if server.role == Role::Apiserver && server.release.is_ok_and(|release| release < runs) {
                self.note(format!("{component} is {runs} while {} is not", server.name));
            }
        }
    }

    /// The claim was recorded before the cordon.
    async fn claim_exists(&self, cluster: &impl Watched, node: &str, mark: &str) {
        let (name, uid) = mark.split_once('/').unwrap_or((mark, ""));
        for _ in 0..20 {
            match node_upgrades(cluster.client()).get_opt(name).await {
                Ok(Some(claim)) if claim.uid().as_deref() == Some(uid) => return,
                Ok(_) => break,
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        self.note(format!("node {node} was cordoned for {mark}, which does not exist"));
    }

    fn pod(&self, event: Event<Pod>) {
        let Ok(mut seen) = self.seen.lock() else { return };
        seen.events += 1;
        match event {
            // A list in the making is not the cluster: it counts when it is complete.
            Event::Init => seen.listing.clear(),
            Event::InitApply(pod) => {
                seen.listing.insert(key(&pod), pod);
                return;
            }
            Event::InitDone => seen.pods = std::mem::take(&mut seen.listing),
            Event::Apply(pod) => {
                if pod.metadata.deletion_timestamp.is_some() && pod.namespace().as_deref() == Some("shop") {
                    if left_by_eviction(&pod) {
                        seen.evicted.extend(pod.uid());
                    } else {
                        let line = format!("pod {} was deleted without an eviction", key(&pod));
                        seen.violations.push(line);
                    }
                }
                seen.pods.insert(key(&pod), pod);
            }
            Event::Delete(pod) => {
                seen.pods.remove(&key(&pod));
            }
        }
        seen.check_budgets();
    }

    fn budget(&self, event: Event<PodDisruptionBudget>) {
        let Ok(mut seen) = self.seen.lock() else { return };
        seen.events += 1;
        match event {
            Event::InitApply(budget) | Event::Apply(budget) => {
                let key = format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any());
                let before = seen.budgets.insert(key, budget.clone());
                if let Some(before) = before {
                    let stuck = stood_still(&before, &budget, Timestamp::now());
                    seen.waited.extend(stuck);
                }
            }
            Event::Delete(budget) => {
                let key = format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any());
                seen.budgets.remove(&key);
                seen.whole.remove(&key);
            }
            Event::Init | Event::InitDone => {}
        }
        // The pods may have been listed first, and none of them may ever change again.
        seen.check_budgets();
    }

    /// What the audit log tells afterwards; what is wrong in it is noted.
    pub fn audit(&self, cluster: &impl Watched) -> Result<Requests, Failure> {
        let (requests, wrong) = requests::of(&cluster.audit_log()?, OPERATOR_USER);
        for line in wrong {
            self.note(line);
        }
        Ok(requests)
    }
}

impl Seen {
    /// Does a budget, `namespace/name`, need healthy pods, and has all of them?
    pub fn is_whole(&self, budget: &str) -> bool {
        self.whole.contains(budget) && self.budgets.get(budget).is_some_and(|budget| desired(budget) > 0)
    }

    /// No pool has more unavailable nodes than it may have, and the control plane one.
    fn check_unavailable(&mut self, limits: &[(&str, usize)]) {
        let out = |group: &dyn Fn(&Node) -> bool| {
            let nodes = self.nodes.values().filter(|node| group(node));
            nodes.filter(|node| unschedulable(node) || !node_ready(node)).count()
        };
        let control_plane = |node: &Node| node.labels().contains_key("node-role.kubernetes.io/control-plane");
        let mut wrong = Vec::new();
        let mut all = 0;
        for (pool, limit) in limits {
            let of_pool = |node: &Node| node.labels().get("pool").is_some_and(|of| of == pool);
            let workers = out(&of_pool);
            all += workers;
            if workers > *limit {
                wrong.push(format!("{workers} workers of pool {pool} are unavailable; {limit} may be"));
            }
        }
        let servers = out(&control_plane);
        if servers > 1 {
            wrong.push(format!("{servers} control-plane nodes are unavailable; 1 may be"));
        }
        self.most_unavailable = self.most_unavailable.max(all);
        self.violations.extend(wrong);
    }

    /// No budget that was whole has fewer healthy pods than it needs.
    fn check_budgets(&mut self) {
        let mut broken = Vec::new();
        for (name, budget) in &self.budgets {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let Some(labels) = selector.and_then(|selector| selector.match_labels.as_ref()) else { continue };
            let namespace = budget.namespace();
            let of_budget = |pod: &&Pod| {
                pod.namespace() == namespace && labels.iter().all(|(k, v)| pod.labels().get(k) == Some(v))
            };
            let healthy = self.pods.values().filter(of_budget).filter(|pod| healthy(pod)).count();
            let desired = desired(budget);
            if healthy >= desired {
                self.whole.insert(name.clone());
            } else if self.whole.remove(name) {
                // Once for each time that it falls below.
                broken.push(format!("PDB {name} is violated: {healthy} healthy, {desired} needed"));
            }
        }
        self.violations.extend(broken);
    }
}

/// Evictions of which `before` still waits for the pod's deletion and `now` no longer does, though the pod was asked to leave
/// so long ago that its eviction cannot have gone well. The disruption controller gives up after two minutes; meanwhile the
/// budget allows less than it could.
fn stood_still(before: &PodDisruptionBudget, now: &PodDisruptionBudget, at: Timestamp) -> Vec<String> {
    fn waits(budget: &PodDisruptionBudget) -> BTreeMap<String, Time> {
        budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()).unwrap_or_default()
    }
    let still = waits(now);
    let gone = waits(before).into_iter().filter(|(pod, _)| !still.contains_key(pod));
    let late = gone.filter(|(_, since)| at.duration_since(since.0) > STANDS_STILL);
    late.map(|(pod, since)| {
        let (name, waited) = (before.name_any(), at.duration_since(since.0).as_secs());
        format!("PDB {name} waited {waited} s for the eviction of {pod}")
    })
    .collect()
}

/// How many healthy pods a budget needs, as far as the disruption controller has said.
fn desired(budget: &PodDisruptionBudget) -> usize {
    let desired = budget.status.as_ref().and_then(|status| status.desired_healthy).unwrap_or_default();
    usize::try_from(desired).unwrap_or_default()
}

fn key(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn healthy(pod: &Pod) -> bool {
    is_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}

fn left_by_eviction(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "DisruptionTarget" && c.status == "True")
}

fn unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

/// It carries the taint by which Evenkeel asks the scheduler to prefer other nodes.
fn is_avoided(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == "evenkeel.dev/outdated")
}

fn node_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn kubelet(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.kubelet_version.clone()).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_budget_that_is_listed_after_its_pods_is_seen_to_be_whole() -> Result<(), serde_json::Error> {
        let observer = Observer::default();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "ledger-0", "labels": {"app": "ledger"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))?;
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "ledger"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "ledger"}}},
            "status": {"desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1},
        }))?;
        for event in [Event::Init, Event::InitApply(pod), Event::InitDone] {
            observer.pod(event);
        }
        for event in [Event::Init, Event::InitApply(budget), Event::InitDone] {
            observer.budget(event);
        }
        assert!(observer.seen().is_whole("shop/ledger"));
        assert_eq!(observer.seen().violations, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn a_budget_that_waits_long_for_an_eviction_is_seen() -> Result<(), serde_json::Error> {
        let budget = |waits: serde_json::Value| {
            serde_json::from_value::<PodDisruptionBudget>(json!({
                "metadata": {"namespace": "shop", "name": "ledger"},
                "status": {"desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1,
                    "disruptedPods": waits},
            }))
        };
        let since = "2026-11-21T10:00:00Z";
        let before = budget(json!({"ledger-0": since, "ledger-1": since}))?;
        let now = budget(json!({"ledger-1": since}))?;
        let after = |seconds| {
            let at = since.parse::<Timestamp>().map(|since| since + SignedDuration::from_secs(seconds));
            stood_still(&before, &now, at.unwrap_or_default())
        };
        assert_eq!(after(10), Vec::<String>::new());
        assert_eq!(after(119), ["PDB ledger waited 119 s for the eviction of ledger-0"]);
        Ok(())
    }
}
