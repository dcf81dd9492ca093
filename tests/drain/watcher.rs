//! Follows pods and budgets beside a drain and notes each time that a budget falls below what it needs.
//!
//! It shares no code with the product: health is counted from the pods themselves, what is needed is the disruption
//! controller's number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use evenkeel_devcluster::{Failure, TestResult};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};

/// What was seen so far.
#[derive(Clone, Default)]
pub struct Seen {
    pods: BTreeMap<String, Pod>,
    budgets: BTreeMap<String, PodDisruptionBudget>,
    whole: BTreeSet<String>,
    /// A list has begun, after which pods may be gone without a word.
    listing: bool,
    pub events: usize,
    pub fallen: Vec<String>,
}

#[derive(Clone, Default)]
pub struct Watcher(Arc<Mutex<Seen>>);

#[allow(clippy::large_enum_variant, reason = "one at a time")]
enum Seeing {
    Pod(Event<Pod>),
    Budget(Event<PodDisruptionBudget>),
}

impl Watcher {
    pub fn seen(&self) -> Seen {
        self.0.lock().map(|seen| seen.clone()).unwrap_or_default()
    }

    /// Watches until the future is dropped.
    pub async fn watch(&self, client: Client) -> TestResult {
        let config = watcher::Config::default();
        let pods =
            watcher(Api::<Pod>::all(client.clone()), config.clone()).map(|event| event.map(Seeing::Pod));
        let budgets =
            watcher(Api::<PodDisruptionBudget>::all(client), config).map(|event| event.map(Seeing::Budget));
        let mut events = futures::stream::select(pods.boxed(), budgets.boxed());
        while let Some(event) = events.next().await {
            let Ok(mut seen) = self.0.lock() else { break };
            seen.events += 1;
            match event {
                Ok(Seeing::Pod(Event::Apply(pod) | Event::InitApply(pod))) => {
                    seen.pods.insert(key(&pod), pod);
                }
                Ok(Seeing::Pod(Event::Delete(pod))) => _ = seen.pods.remove(&key(&pod)),
                Ok(Seeing::Pod(Event::Init)) => {
                    seen.pods.clear();
                    seen.listing = true;
                }
                Ok(Seeing::Pod(Event::InitDone)) => seen.listing = false,
                Ok(Seeing::Budget(Event::Apply(budget) | Event::InitApply(budget))) => {
                    let name = format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any());
                    seen.budgets.insert(name, budget);
                }
                _ => {}
            }
            seen.check();
        }
        Err(Failure::new("the watcher's watches ended"))
    }
}

impl Seen {
    fn check(&mut self) {
        if self.listing {
            return;
        }
        let mut fallen = Vec::new();
        for (name, budget) in &self.budgets {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let Some(labels) = selector.and_then(|selector| selector.match_labels.as_ref()) else { continue };
            let of_budget = |pod: &&Pod| {
                pod.namespace() == budget.namespace()
                    && labels.iter().all(|(k, v)| pod.labels().get(k) == Some(v))
            };
            let healthy = self.pods.values().filter(of_budget).filter(|pod| healthy(pod)).count();
            let desired =
                budget.status.as_ref().and_then(|status| status.desired_healthy).unwrap_or_default();
            let desired = usize::try_from(desired).unwrap_or_default();
            if healthy >= desired {
                self.whole.insert(name.clone());
            } else if self.whole.remove(name) {
                fallen.push(format!("PDB {name}: {healthy} healthy, {desired} needed"));
            }
        }
        self.fallen.extend(fallen);
    }
}

fn key(pod: &Pod) -> String {
    // By UID: a StatefulSet's pod that comes back is another one.
    pod.uid().unwrap_or_default()
}

fn healthy(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}
