//! The disruption controller: how many pods of each budget may go.
//!
//! It is one worker at the pace of its client, as in a real cluster, so that many budgets lag. It counts Ready pods
//! that are not being deleted, and asks their controllers how many there should be. A lookup that fails closes the
//! budget and leaves the other numbers as they were.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::model::{Model, ModelStep};
use super::objects::condition;
use super::pods::scaled;
use crate::api::ApiState;
use crate::clock;
use crate::labels::Labels;
use crate::record::{Owner, Record};
use crate::store::Change;

const BUDGETS: &str = "poddisruptionbudgets.policy";
/// How long a pod counts as disrupted whose eviction was accepted and whose deletion is not seen.
const EXPIRY: Duration = Duration::from_mins(2);
/// Kinds that have a number of replicas, besides custom ones.
const SCALED: [(&str, &str, &str); 4] = [
    ("", "ReplicationController", "replicationcontrollers"),
    ("apps", "Deployment", "deployments.apps"),
    ("apps", "ReplicaSet", "replicasets.apps"),
    ("apps", "StatefulSet", "statefulsets.apps"),
];

/// The disruption controller.
#[derive(Default)]
pub(super) struct Disruption {
    /// The first budget of the pods with these labels in a namespace; forgotten when a budget comes, goes or gets
    /// another selector. Never iterated, so its order does not matter.
    chosen: HashMap<(Box<str>, Arc<Labels>), Option<Arc<str>>>,
}

impl Model for Disruption {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn pace(&self) -> Duration {
        Duration::from_millis(5)
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            BUDGETS => {
                let before = change.before.as_ref().filter(|_| !change.deleted);
                if before.is_none_or(|before| before.selector != change.record.selector) {
                    self.chosen.clear();
                }
                if change.deleted { Vec::new() } else { vec![change.record.key.to_string()] }
            }
            "pods" => {
                let other = change.before.as_ref().filter(|before| before.labels != change.record.labels);
                let all = std::iter::once(&change.record).chain(other);
                all.filter_map(|pod| self.budget_of(state, pod)).collect()
            }
            _ if SCALED.iter().any(|(_, _, scaled)| *scaled == resource) => {
                // Of all that changes about a controller, only its number of replicas matters to budgets.
                if change.before.as_ref().is_some_and(|before| before.replicas == change.record.replicas) {
                    return Vec::new();
                }
                let budgets = state.store.within(BUDGETS, change.record.namespace());
                budgets.map(|budget| budget.key.to_string()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(record) = world.record(BUDGETS, key) else { return };
        let (budget, namespace) = (record.value(), record.namespace());
        let pods = record
            .selector
            .as_ref()
            .map_or_else(Vec::new, |selector| world.state.store.labeled_pods(namespace, selector));
        let now = world.state.clock.now();
        let (disrupted, recheck) = disrupted(&budget, &pods, now);
        match expected(world, &budget, &pods, namespace) {
            Ok((expected, desired)) => {
                let healthy =
                    |pod: &&Arc<Record>| !pod.leaving && pod.ready && !disrupted.contains_key(pod.name());
                let current = pods.iter().filter(healthy).count();
                write(
                    world,
                    key,
                    &budget,
                    &disrupted,
                    (i64::try_from(current).unwrap_or(0), expected, desired),
                );
            }
            Err(why) => fail_safe(world, key, &why),
        }
        if let Some(time) = recheck {
            world.after(time, key);
        }
    }
}

impl Disruption {
    /// The first budget that selects a pod; a pod of several wakes only that one.
    fn budget_of(&mut self, state: &ApiState, pod: &Record) -> Option<String> {
        let selects = |budget: &&Arc<Record>| {
            budget.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
        };
        // Pods with new labels come all the time, and the cache must not grow without end.
        if self.chosen.len() > 65_536 {
            self.chosen.clear();
        }
        let chosen = self.chosen.entry((pod.namespace().into(), pod.labels.clone()));
        let chosen = chosen.or_insert_with(|| {
            let mut budgets = state.store.within(BUDGETS, pod.namespace());
            budgets.find(selects).map(|budget| budget.key.clone())
        });
        chosen.as_ref().map(ToString::to_string)
    }
}

/// How many pods there should be, and how many must be healthy.
fn expected(
    world: &ModelStep<'_>,
    budget: &Value,
    pods: &[Arc<Record>],
    namespace: &str,
) -> Result<(i64, i64), String> {
    let (least, most) = (&budget["spec"]["minAvailable"], &budget["spec"]["maxUnavailable"]);
    if !most.is_null() {
        let expected = scale(world, pods, namespace)?;
        return Ok((expected, (expected - scaled(most, expected, true)).max(0)));
    }
    match least {
        Value::Number(_) => Ok((i64::try_from(pods.len()).unwrap_or(0), scaled(least, 0, true))),
        Value::String(_) => {
            let expected = scale(world, pods, namespace)?;
            Ok((expected, scaled(least, expected, true)))
        }
        _ => Ok((0, 0)),
    }
}

/// The sizes of the pods' controllers, each counted once.
fn scale(world: &ModelStep<'_>, pods: &[Arc<Record>], namespace: &str) -> Result<i64, String> {
    let mut sizes: BTreeMap<Box<str>, i64> = BTreeMap::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for pod in pods {
        let Some(owner) = &pod.controller else { continue };
        if !seen.insert(&owner.uid) {
            continue;
        }
        let found = size(world, owner, namespace)?;
        let (uid, size) = found.ok_or_else(|| format!("found no controllers for pod {:?}", pod.name()))?;
        sizes.insert(uid, size);
    }
    Ok(sizes.values().sum())
}

/// The size of a controller, by its own UID; of a ReplicaSet that belongs to a Deployment, the Deployment's.
fn size(world: &ModelStep<'_>, owner: &Owner, namespace: &str) -> Result<Option<(Box<str>, i64)>, String> {
    let Owner { api_version, kind, name, uid } = owner;
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let key = format!("{namespace}/{name}");
    if let Some((_, _, resource)) = SCALED.iter().find(|(of, named, _)| *of == group && *named == &**kind) {
        let Some(object) = world.record(resource, &key).filter(|object| object.uid == *uid) else {
            return Ok(None);
        };
        if &**kind == "ReplicaSet"
            && let Some(above) = &object.controller
        {
            // The pods of a ReplicaSet whose owner is gone, or is no Deployment, have no controller.
            return if &*above.kind == "Deployment" { size(world, above, namespace) } else { Ok(None) };
        }
        return Ok(Some((uid.clone(), object.replicas.unwrap_or(0))));
    }
    let Some(found) = world.state.kinds.by_kind(api_version, kind) else {
        return Err(format!("no matches for kind {kind:?} in version {api_version:?}"));
    };
    if !found.scale {
        let plural =
            if group.is_empty() { found.plural.clone() } else { format!("{}.{group}", found.plural) };
        return Err(format!("{plural} does not implement the scale subresource"));
    }
    let subject = crate::api::RequestTarget {
        kind: found.clone(),
        namespace: Some(namespace.to_owned()),
        name: None,
        subresource: None,
    };
    match world.state.scale(&subject, name) {
        Ok(scale) if scale["metadata"]["uid"] == **uid => {
            Ok(Some((uid.clone(), scale["spec"]["replicas"].as_i64().unwrap_or(0))))
        }
        _ => Ok(None),
    }
}

/// The pods whose eviction was accepted and that are still there, and how long until the first of them is given up.
fn disrupted(
    budget: &Value,
    pods: &[Arc<Record>],
    now: Timestamp,
) -> (BTreeMap<String, Value>, Option<Duration>) {
    let (mut kept, mut recheck) = (BTreeMap::new(), None::<Duration>);
    for (name, time) in budget["status"]["disruptedPods"].as_object().into_iter().flatten() {
        let there = pods.iter().any(|pod| pod.name() == name && !pod.leaving);
        let since = time.as_str().and_then(clock::read).unwrap_or(now);
        let left =
            EXPIRY.checked_sub(now.duration_since(since).unsigned_abs()).filter(|left| !left.is_zero());
        if let Some(left) = left.filter(|_| there) {
            kept.insert(name.clone(), time.clone());
            recheck = Some(recheck.map_or(left, |recheck| recheck.min(left)));
        }
    }
    (kept, recheck)
}

fn write(
    world: &mut ModelStep<'_>,
    key: &str,
    budget: &Value,
    disrupted: &BTreeMap<String, Value>,
    counts: (i64, i64, i64),
) {
    let (current, expected, desired) = counts;
    let allowed = if expected <= 0 { 0 } else { (current - desired).max(0) };
    let now = world.now();
    let generation = budget["metadata"]["generation"].clone();
    let old = &budget["status"];
    let mut status = json!({"currentHealthy": current, "desiredHealthy": desired, "disruptionsAllowed": allowed,
        "expectedPods": expected, "observedGeneration": generation});
    if !disrupted.is_empty() {
        status["disruptedPods"] = json!(disrupted);
    }
    status["conditions"] = old["conditions"].clone();
    let (word, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    condition(
        &mut status,
        &json!({"type": "DisruptionAllowed", "status": word, "reason": reason, "message": "", "observedGeneration": generation}),
        &now,
    );
    if status != *old && world.change(BUDGETS, key, true, |budget| budget["status"] = status).is_err() {
        world.after(Duration::from_millis(10), key);
    }
}

/// Closes a budget until the lookup works again.
fn fail_safe(world: &mut ModelStep<'_>, key: &str, why: &str) {
    let now = world.now();
    let _ = world.change(BUDGETS, key, true, |budget| {
        budget["status"]["disruptionsAllowed"] = 0.into();
        condition(
            &mut budget["status"],
            &json!({"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": why}),
            &now,
        );
    });
    // A real controller waits longer after each failure.
    world.after(Duration::from_secs(30), key);
}
