//! The node lifecycle controller: what becomes of a node that is silent, and of the pods on it.
//!
//! Only changes that the controller sees itself count as signs of life, so the clocks of nodes do not matter. It taints
//! the nodes that must lose their pods one after the other, zone by zone: slower when most of a zone is silent, and not
//! at all when every zone is. Their pods are then deleted without asking any budget.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::model::{Model, ModelStep};
use super::objects::{condition, find_condition};
use super::scheduler::toleration_fits;
use crate::api::{ApiState, Deletion};
use crate::store::Change;

const PERIOD: Duration = Duration::from_secs(5);
/// How long a node may be silent before its conditions become `Unknown`.
const GRACE: Duration = Duration::from_secs(50);
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// The controller, with what it last saw of each node.
#[derive(Default)]
pub(super) struct Lifecycle {
    /// Iterated in any order, so what is written because of it is sorted by name first.
    nodes: HashMap<Arc<str>, LastSeen>,
    /// The names of the zones.
    names: BTreeSet<Arc<str>>,
    /// When each zone may lose its next node.
    zones: BTreeMap<Arc<str>, Duration>,
    disrupted: bool,
}

/// The status of a Ready condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadyStatus {
    True,
    False,
    Unknown,
    Other,
}

/// What was seen of a node, so that a node that is well need not be read.
struct LastSeen {
    zone: Arc<str>,
    ready: ReadyStatus,
    /// The last sign of life.
    sign: Duration,
}

impl Model for Lifecycle {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn hears_beats(&self) -> bool {
        true
    }

    fn begin(&mut self) -> Vec<(Duration, String)> {
        vec![(PERIOD, "monitor".into())]
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            "leases.coordination.k8s.io" => {
                if let Some(node) =
                    change.record.key.strip_prefix("kube-node-lease/").filter(|_| !change.deleted)
                {
                    self.lives(node, state.clock.elapsed());
                }
                Vec::new()
            }
            "nodes" if change.deleted => {
                self.nodes.remove(&change.record.key);
                vec![format!("gone|{}", change.record.key)]
            }
            "nodes" if change.quiet => {
                self.lives(&change.record.key, state.clock.elapsed());
                Vec::new()
            }
            "nodes" => {
                let object = change.record.value();
                let beat = |node: &Value| {
                    find_condition(node, "Ready").map(|ready| ready["lastHeartbeatTime"].clone())
                };
                let was = self.nodes.get(&change.record.key).map(|seen| seen.sign);
                let same =
                    change.before.as_ref().is_some_and(|before| beat(&before.value()) == beat(&object));
                let sign = was.filter(|_| same).unwrap_or_else(|| state.clock.elapsed());
                let zone: Arc<str> = zone(&object).into();
                self.names.insert(zone.clone());
                let zone = self.names.get(&zone).cloned().unwrap_or(zone);
                let seen = LastSeen { zone, ready: ReadyStatus::of(&object), sign };
                self.nodes.insert(change.record.key.clone(), seen);
                vec![format!("taint|{}", change.record.key)]
            }
            // The node of a pod that was just placed may have taints that make pods leave.
            "pods"
                if change.record.node.is_some()
                    && change.before.as_ref().is_none_or(|before| before.node.is_none()) =>
            {
                vec![format!("pod|{}", change.record.key)]
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        if key == "monitor" {
            self.monitor(world);
            world.after(PERIOD, key);
        } else if let Some(node) = key.strip_prefix("taint|") {
            taint(node, world);
        } else if let Some(pod) = key.strip_prefix("pod|") {
            evict(pod, world);
        } else if let Some(node) = key.strip_prefix("gone|") {
            // Pods of a node that is gone are deleted at once.
            if world.record("nodes", node).is_none() {
                for pod in world.state.store.pods_of(node) {
                    let _ =
                        world.delete("pods", &pod.key, &Deletion { grace: Some(0), ..Deletion::default() });
                }
            }
        }
    }
}

fn ready(node: &Value) -> &str {
    find_condition(node, "Ready").and_then(|ready| ready["status"].as_str()).unwrap_or("Unknown")
}

impl ReadyStatus {
    fn of(node: &Value) -> Self {
        match ready(node) {
            "True" => Self::True,
            "False" => Self::False,
            "Unknown" => Self::Unknown,
            _ => Self::Other,
        }
    }
}

fn zone(node: &Value) -> String {
    let label = |name: &str| node["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

impl Lifecycle {
    fn lives(&mut self, node: &str, now: Duration) {
        if let Some(seen) = self.nodes.get_mut(node) {
            seen.sign = now;
        }
    }

    fn monitor(&mut self, world: &mut ModelStep<'_>) {
        let now = world.state.clock.elapsed();
        let text = world.now();
        let mut zones: BTreeMap<Arc<str>, (usize, usize)> = BTreeMap::new();
        let mut sick: Vec<(Arc<str>, Arc<str>, &'static str)> = Vec::new();
        let mut well: Vec<(&Arc<str>, usize)> = self.names.iter().map(|zone| (zone, 0)).collect();
        let mut rest: Vec<(&Arc<str>, &LastSeen, bool)> = Vec::new();
        for (name, seen) in &self.nodes {
            let silent = now.saturating_sub(seen.sign) > GRACE;
            if seen.ready == ReadyStatus::True && !silent {
                let count = well.iter_mut().find(|(zone, _)| Arc::ptr_eq(zone, &seen.zone));
                if let Some((_, count)) = count {
                    *count += 1;
                }
            } else {
                rest.push((name, seen, silent));
            }
        }
        for (zone, count) in well.into_iter().filter(|(_, count)| *count > 0) {
            zones.insert(zone.clone(), (count, 0));
        }
        rest.sort_unstable_by_key(|(name, ..)| *name);
        for (name, LastSeen { zone, ready, .. }, silent) in rest {
            if silent && *ready != ReadyStatus::Unknown {
                let _ = world.change("nodes", name, true, |node| {
                    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
                        let beat = find_condition(node, kind)
                            .map(|found| found["lastHeartbeatTime"].clone())
                            .unwrap_or_default();
                        let wanted = json!({"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
                            "message": "Kubelet stopped posting node status.", "lastHeartbeatTime": beat});
                        condition(&mut node["status"], &wanted, &text);
                    }
                });
                unready(name, world);
            }
            zones.entry(zone.clone()).or_default().1 += 1;
            let taint = if !silent && *ready == ReadyStatus::False { NOT_READY } else { UNREACHABLE };
            sick.push((zone.clone(), name.clone(), taint));
        }
        let full = |&(ready, sick): &(usize, usize)| ready == 0 && sick > 0;
        let all = !zones.is_empty() && zones.values().all(full);
        if all != self.disrupted {
            self.disrupted = all;
            if all {
                // If every zone is silent, the control plane is probably cut off itself: no node loses pods.
                for (_, node, _) in &sick {
                    execute(node, None, world);
                }
            } else {
                self.nodes.values_mut().for_each(|seen| seen.sign = now);
            }
        }
        if all {
            return;
        }
        for (zone, node, key) in sick {
            let Some(counts) = zones.get(&zone) else { continue };
            let (total, bad) = (counts.0 + counts.1, counts.1);
            let partial = !full(counts) && bad > 2 && bad * 100 >= total * 55;
            let pause = match (partial, total > 50) {
                (false, _) => Duration::from_secs(10),
                (true, true) => Duration::from_secs(100),
                (true, false) => continue,
            };
            let has = world.get("nodes", &node).is_some_and(|node| {
                node["spec"]["taints"].as_array().is_some_and(|all| {
                    all.iter().any(|taint| taint["key"] == key && taint["effect"] == "NoExecute")
                })
            });
            let next = self.zones.entry(zone).or_default();
            if !has && *next <= now {
                *next = now + pause;
                execute(&node, Some(key), world);
            }
        }
    }
}

/// Pods on a node that is not ready are not ready either.
fn unready(node: &str, world: &mut ModelStep<'_>) {
    let now = world.now();
    for pod in world.state.store.pods_of(node) {
        let _ = world.change("pods", &pod.key, true, |pod| {
            if crate::record::ready(pod) {
                condition(
                    &mut pod["status"],
                    &json!({"type": "Ready", "status": "False", "lastProbeTime": null}),
                    &now,
                );
            }
        });
    }
}

/// Sets the taint that makes pods leave a node; without a `key`, takes such taints off.
fn execute(node: &str, key: Option<&str>, world: &mut ModelStep<'_>) {
    let now = world.now();
    let _ = world.change("nodes", node, false, |node| {
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| {
            taint["effect"] != "NoExecute" || taint["key"] != NOT_READY && taint["key"] != UNREACHABLE
        });
        if let Some(key) = key {
            taints.push(json!({"key": key, "effect": "NoExecute", "timeAdded": now}));
        }
        put_taints(node, taints);
    });
}

fn put_taints(node: &mut Value, taints: Vec<Value>) {
    if !taints.is_empty() {
        node["spec"]["taints"] = taints.into();
    } else if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove("taints");
    }
}

/// The taints that follow from a node's conditions and from its being cordoned.
fn taint(name: &str, world: &mut ModelStep<'_>) {
    let Some(node) = world.get("nodes", name) else { return };
    let status = ready(&node);
    let wanted = [
        (NOT_READY, status == "False" || find_condition(&node, "Ready").is_none()),
        (UNREACHABLE, status == "Unknown" && find_condition(&node, "Ready").is_some()),
        (CORDONED, node["spec"]["unschedulable"] == true),
    ];
    let well = status == "True";
    let now = world.now();
    let _ = world.change("nodes", name, false, |node| {
        let old = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let mut taints = old.clone();
        for (key, wants) in wanted {
            let mine = |taint: &Value| taint["key"] == key && taint["effect"] == "NoSchedule";
            if !wants {
                taints.retain(|taint| !mine(taint));
            } else if !taints.iter().any(mine) {
                taints.push(json!({"key": key, "effect": "NoSchedule", "timeAdded": now}));
            }
        }
        if well {
            taints.retain(|taint| {
                taint["effect"] != "NoExecute" || taint["key"] != NOT_READY && taint["key"] != UNREACHABLE
            });
        }
        if taints != old {
            put_taints(node, taints);
        }
    });
    if status == "False" {
        unready(name, world);
    }
    let leaves = node["spec"]["taints"]
        .as_array()
        .is_some_and(|all| all.iter().any(|taint| taint["effect"] == "NoExecute"));
    if leaves {
        for pod in world.state.store.pods_of(name) {
            evict(&pod.key, world);
        }
    }
}

/// Deletes a pod that does not tolerate its node's taints, or has tolerated them for as long as it says.
fn evict(key: &str, world: &mut ModelStep<'_>) {
    let Some(record) = world.record("pods", key) else { return };
    let Some(node) = record.node.as_deref().and_then(|node| world.record("nodes", node)) else { return };
    if record.leaving || !node.text().contains("\"NoExecute\"") {
        return;
    }
    let (node, pod) = (node.value(), record.value());
    let now = world.state.clock.now();
    let mut due: Option<i64> = None;
    for taint in
        node["spec"]["taints"].as_array().into_iter().flatten().filter(|taint| taint["effect"] == "NoExecute")
    {
        let since = taint["timeAdded"].as_str().and_then(crate::clock::read).unwrap_or(now);
        let tolerations = pod["spec"]["tolerations"].as_array();
        let fits: Vec<&Value> =
            tolerations.into_iter().flatten().filter(|one| toleration_fits(one, taint)).collect();
        let seconds = if fits.is_empty() {
            Some(0)
        } else {
            fits.iter().filter_map(|one| one["tolerationSeconds"].as_i64()).min()
        };
        if let Some(seconds) = seconds {
            let left = seconds.max(0) - now.duration_since(since).as_secs();
            due = Some(due.map_or(left, |due| due.min(left)));
        }
    }
    match due {
        None => {}
        Some(left) if left > 0 => world.after(Duration::from_secs(left.unsigned_abs()), format!("pod|{key}")),
        Some(_) => {
            let text = world.now();
            let _ = world.change("pods", key, true, |pod| {
                let wanted = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                    "message": "Taint manager: deleting due to NoExecute taint", "lastProbeTime": null});
                condition(&mut pod["status"], &wanted, &text);
            });
            let _ = world.delete(
                "pods",
                key,
                &Deletion { uid: Some(record.uid.to_string()), ..Deletion::default() },
            );
        }
    }
}
