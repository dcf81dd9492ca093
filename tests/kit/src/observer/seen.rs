//! What was seen so far, and what of it is wrong by itself.
//!
//! Here belongs the state that events add up to. Nothing here asks the cluster: an event may only raise a question, which
//! is asked elsewhere. Every event carries the time at which it was read, so nothing here has a clock of its own.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_devcluster::Release;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use super::nodes::{MARK, is_control_plane, kubelet, node_ready, unschedulable};
use super::notes::{Noted, Question};
use super::steps::Steps;
use crate::scenario::is_ready;

/// So long a budget may wait for the deletion of a pod whose eviction was granted.
const STANDS_STILL: SignedDuration = SignedDuration::from_secs(30);

/// What was seen so far.
#[derive(Default, Clone)]
pub struct Seen {
    pub(super) nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    listing: BTreeMap<String, Pod>,
    budgets: BTreeMap<String, PodDisruptionBudget>,
    /// Budgets that were once whole: before that, pods are still starting.
    whole: BTreeSet<String>,
    pub(super) steps: Steps,
    /// What was called done and is judged, each time once.
    pub(super) done: BTreeSet<String>,
    pub events: usize,
    /// What is wrong, and when it was seen.
    pub noted: Vec<Noted>,
    /// Budgets that waited long for an eviction, and when that ended: where a kube-apiserver dies in the middle of one,
    /// nobody can help it.
    pub waits: Vec<Noted>,
    /// The lines of `noted`.
    pub violations: Vec<String>,
    /// The lines of `waits`.
    pub waited: Vec<String>,
    /// What was called done and could not be judged: the API was away until the next step had begun.
    pub unjudged: Vec<String>,
    pub most_unavailable: usize,
    /// Evictions by pod UID that were seen to happen.
    pub evicted: BTreeSet<String>,
}

impl Seen {
    pub(super) fn note(&mut self, at: Timestamp, line: String) {
        self.noted.push(Noted { at, line });
    }

    /// Everything that is wrong by now, in words.
    pub(super) fn judged(mut self) -> Self {
        self.noted.extend(self.steps.wrong());
        self.noted.sort_by_key(|noted| noted.at);
        self.violations = self.noted.iter().map(|noted| noted.line.clone()).collect();
        self.waited = self.waits.iter().map(|noted| noted.line.clone()).collect();
        self
    }

    /// Does a budget, `namespace/name`, need healthy pods, and has all of them?
    pub fn is_whole(&self, budget: &str) -> bool {
        self.whole.contains(budget) && self.budgets.get(budget).is_some_and(|budget| desired(budget) > 0)
    }

    pub(super) fn node(
        &mut self,
        event: Event<Node>,
        at: Timestamp,
        limits: &[(&str, usize)],
    ) -> Vec<Question> {
        let (Event::Apply(node) | Event::InitApply(node)) = event else { return Vec::new() };
        let name = node.name_any();
        let before = self.nodes.insert(name.clone(), node.clone());
        self.check_unavailable(limits, at);
        let mut questions = Vec::new();
        let version = kubelet(&node);
        if before.as_ref().map(kubelet).is_some_and(|before| before != version) {
            questions.push(Question::KubeletMay { node: name.clone(), version });
        }
        let mark =
            node.annotations().get(MARK).filter(|_| !before.as_ref().is_some_and(unschedulable)).cloned();
        questions.extend(mark.map(|mark| Question::ClaimExists { node: name.clone(), mark }));
        let mark = before.filter(unschedulable).and_then(|before| before.annotations().get(MARK).cloned());
        if let Some(mark) = mark.filter(|_| !unschedulable(&node)) {
            self.steps.given_back(&node, &mark, at);
        }
        questions
    }

    pub(super) fn pod(&mut self, event: Event<Pod>, at: Timestamp) -> Vec<Question> {
        let mut questions = Vec::new();
        match event {
            // A list in the making is not the cluster: it counts when it is complete.
            Event::Init => self.listing.clear(),
            Event::InitApply(pod) => {
                self.listing.insert(key(&pod), pod);
                return questions;
            }
            Event::InitDone => self.pods = std::mem::take(&mut self.listing),
            Event::Apply(pod) => {
                questions.extend(controller_may_be(&pod));
                if pod.metadata.deletion_timestamp.is_some() && pod.namespace().as_deref() == Some("shop") {
                    if left_by_eviction(&pod) {
                        self.evicted.extend(pod.uid());
                    } else {
                        self.note(at, format!("pod {} was deleted without an eviction", key(&pod)));
                    }
                }
                self.pods.insert(key(&pod), pod);
            }
            Event::Delete(pod) => {
                self.pods.remove(&key(&pod));
            }
        }
        self.check_budgets(at);
        questions
    }

    pub(super) fn budget(&mut self, event: Event<PodDisruptionBudget>, at: Timestamp) {
        match event {
            Event::InitApply(budget) | Event::Apply(budget) => {
                let key = format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any());
                let before = self.budgets.insert(key, budget.clone());
                if let Some(before) = before {
                    self.waits.extend(stood_still(&before, &budget, at));
                }
            }
            Event::Delete(budget) => {
                let key = format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any());
                self.budgets.remove(&key);
                self.whole.remove(&key);
            }
            Event::Init | Event::InitDone => {}
        }
        // The pods may have been listed first, and none of them may ever change again.
        self.check_budgets(at);
    }

    /// No pool has more unavailable nodes than it may have, and the control plane one.
    fn check_unavailable(&mut self, limits: &[(&str, usize)], at: Timestamp) {
        let out = |group: &dyn Fn(&Node) -> bool| {
            let nodes = self.nodes.values().filter(|node| group(node));
            nodes.filter(|node| unschedulable(node) || !node_ready(node)).count()
        };
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
        let servers = out(&is_control_plane);
        if servers > 1 {
            wrong.push(format!("{servers} control-plane nodes are unavailable; 1 may be"));
        }
        self.most_unavailable = self.most_unavailable.max(all);
        self.noted.extend(wrong.into_iter().map(|line| Noted { at, line }));
    }

    /// No budget that was whole has fewer healthy pods than it needs.
    fn check_budgets(&mut self, at: Timestamp) {
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
        self.noted.extend(broken.into_iter().map(|line| Noted { at, line }));
    }
}

/// Whether a controller may be what this pod says: no controller is newer than a kube-apiserver that it may ask.
fn controller_may_be(pod: &Pod) -> Option<Question> {
    let component = pod.labels().get("component").map(String::as_str).unwrap_or_default();
    if !["kube-controller-manager", "kube-scheduler"].contains(&component) {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let image = spec.containers.first()?.image.as_deref()?;
    Some(Question::ControllerMay {
        component: component.to_owned(),
        node: spec.node_name.clone().unwrap_or_default(),
        runs: Release::parse(image.rsplit(':').next()?)?,
    })
}

/// Evictions of which `before` still waits for the pod's deletion and `now` no longer does, though the pod was asked to leave
/// so long ago that its eviction cannot have gone well. The disruption controller gives up after two minutes; meanwhile the
/// budget allows less than it could.
fn stood_still(before: &PodDisruptionBudget, now: &PodDisruptionBudget, at: Timestamp) -> Vec<Noted> {
    fn waits(budget: &PodDisruptionBudget) -> BTreeMap<String, Time> {
        budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()).unwrap_or_default()
    }
    let still = waits(now);
    let gone = waits(before).into_iter().filter(|(pod, _)| !still.contains_key(pod));
    let late = gone.filter(|(_, since)| at.duration_since(since.0) > STANDS_STILL);
    late.map(|(pod, since)| {
        let (name, waited) = (before.name_any(), at.duration_since(since.0).as_secs());
        Noted { at, line: format!("PDB {name} waited {waited} s for the eviction of {pod}") }
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
