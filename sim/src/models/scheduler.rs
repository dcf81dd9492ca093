//! The scheduler: which node a pod runs on.
//!
//! Filters decide what is feasible, scores choose among it, chance decides between equals. It keeps what each node has
//! left from its watches, so that a pod is placed without looking at every other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Model, World, condition, leaving};
use crate::api::State;
use crate::api::selector::LabelSelector;
use crate::record::Labels;
use crate::schema::milli;
use crate::store::Change;

/// What a pod takes of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    cpu: i128,
    memory: i128,
    pods: i128,
}

struct Node {
    labels: Arc<Labels>,
    taints: Value,
    unschedulable: bool,
    room: Load,
    used: Load,
    pods: BTreeSet<Arc<str>>,
}

struct Placed {
    node: Arc<str>,
    load: Load,
    labels: Arc<Labels>,
    /// Terms by which it keeps others away.
    alone: Value,
}

/// The scheduler, with what it knows.
#[derive(Default)]
pub(super) struct Scheduler {
    nodes: BTreeMap<Arc<str>, Node>,
    placed: BTreeMap<Arc<str>, Placed>,
    waiting: BTreeSet<Arc<str>>,
    /// Those of `placed` that keep others away: few, and asked for with every node.
    alone: BTreeSet<Arc<str>>,
    /// The nodes in the order in which they are looked at; empty when there are others than before.
    order: Vec<Arc<str>>,
    /// Where the last look ended, which did not see all of many nodes.
    start: usize,
    /// How many pods of a namespace with the same labels each node has.
    alike: BTreeMap<(Box<str>, Arc<Labels>), BTreeMap<Arc<str>, i128>>,
}

/// A pod that looks for a node, with what is the same for every node.
struct Wanted<'a> {
    pod: &'a Value,
    labels: &'a Arc<Labels>,
    load: Load,
    selector: LabelSelector,
    /// Required node affinity.
    required: &'a Value,
    preferred: &'a Value,
    /// It has affinity to pods or against them.
    social: bool,
    spreads: bool,
    volumes: bool,
    alike: Option<&'a BTreeMap<Arc<str>, i128>>,
}

fn load(spec: &Value) -> Load {
    let mut load = Load { pods: 1, ..Load::default() };
    let amount = |container: &Value, name: &str| {
        container["resources"]["requests"][name].as_str().and_then(milli).unwrap_or(0)
    };
    for container in spec["containers"].as_array().into_iter().flatten() {
        load.cpu += amount(container, "cpu");
        load.memory += amount(container, "memory");
    }
    load
}

impl Load {
    fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, memory: self.memory + other.memory, pods: self.pods + other.pods }
    }

    fn minus(self, other: Self) -> Self {
        Self { cpu: self.cpu - other.cpu, memory: self.memory - other.memory, pods: self.pods - other.pods }
    }
}

/// Of so many nodes this many feasible ones are enough to choose among. Source: `numFeasibleNodesToFind` in
/// `pkg/scheduler/schedule_one.go`.
fn enough(nodes: usize) -> usize {
    const LEAST: usize = 100;
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    if nodes < LEAST { nodes } else { (nodes * percent / 100).max(LEAST) }
}

impl Model for Scheduler {
    fn name(&self) -> &'static str {
        "kube-scheduler"
    }

    fn keys(&mut self, resource: &str, change: &Change, _: &State) -> Vec<String> {
        match resource {
            "nodes" => {
                // A heartbeat changes nothing here.
                let parts = |text: &Value| (text["spec"].clone(), text["status"]["allocatable"].clone());
                let quiet = !change.deleted
                    && change.before.as_ref().is_some_and(|before| {
                        Arc::ptr_eq(&before.labels, &change.record.labels)
                            && parts(&before.value()) == parts(&change.record.value())
                    });
                if quiet {
                    return Vec::new();
                }
                self.node(change);
                self.waiting.iter().map(ToString::to_string).collect()
            }
            "pods" => self.pod(change),
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut World<'_>) {
        let Some(record) = world.record("pods", key) else { return };
        let pod = record.value();
        if record.node.is_some() || leaving(&pod) || pod["spec"]["schedulerName"] != "default-scheduler" {
            self.waiting.remove(key);
            return;
        }
        if self.order.is_empty() {
            self.order = self.nodes.keys().cloned().collect();
        }
        let wanted = self.wanted(&pod, &record);
        let (mut scores, mut looked) = (Vec::<(i128, &Arc<str>)>::new(), 0);
        let enough = enough(self.order.len());
        let (before, from) = self.order.split_at(self.start.min(self.order.len()));
        for name in from.iter().chain(before) {
            if scores.len() == enough {
                break;
            }
            looked += 1;
            if let Some(node) = self.nodes.get(name).filter(|node| self.fits(world, &wanted, name, node)) {
                scores.push((wanted.score(name, node), name));
            }
        }
        let next = (self.start + looked).checked_rem(self.order.len()).unwrap_or(0);
        let most = scores.iter().map(|(score, _)| *score).max();
        let best: Vec<Arc<str>> = scores
            .into_iter()
            .filter(|(score, _)| Some(*score) == most)
            .map(|(_, name)| name.clone())
            .collect();
        self.start = next;
        let at = usize::try_from(world.random.below(best.len() as u64)).unwrap_or(0);
        let Some(node) = best.get(at) else {
            self.waiting.insert(record.key.clone());
            let now = world.now();
            let message = format!("0/{} nodes are available", self.nodes.len());
            let _ = world.change("pods", key, true, |pod| {
                condition(
                    &mut pod["status"],
                    &json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                        "lastProbeTime": null}),
                    &now,
                );
            });
            // What it missed is tried again all the same.
            world.after(Duration::from_mins(5), key);
            return;
        };
        let Some(kind) = world.kind("pods") else { return };
        if world.state.assign(&kind, key, node).is_ok() {
            self.waiting.remove(key);
            self.place(&record.key, node.clone(), &pod, record.labels.clone());
        }
    }
}

impl Scheduler {
    fn node(&mut self, change: &Change) {
        let name = &change.record.key;
        if change.deleted {
            self.nodes.remove(name);
            self.order.clear();
            return;
        }
        let object = change.record.value();
        let amount = |name: &str| object["status"]["allocatable"][name].as_str().and_then(milli);
        let room = Load {
            cpu: amount("cpu").unwrap_or(0),
            memory: amount("memory").unwrap_or(0),
            pods: amount("pods").unwrap_or(0) / 1000,
        };
        let known = self.nodes.remove(name);
        if known.is_none() {
            self.order.clear();
        }
        let (used, pods) = known.map(|node| (node.used, node.pods)).unwrap_or_default();
        self.nodes.insert(
            name.clone(),
            Node {
                labels: change.record.labels.clone(),
                taints: object["spec"]["taints"].clone(),
                unschedulable: object["spec"]["unschedulable"] == true,
                room,
                used,
                pods,
            },
        );
    }

    fn pod(&mut self, change: &Change) -> Vec<String> {
        let key = &change.record.key;
        let over = change.deleted || change.record.phase.finished();
        if over {
            self.waiting.remove(key);
            self.displace(key, change.record.namespace());
            return self.waiting.iter().map(ToString::to_string).collect();
        }
        match &change.record.node {
            Some(node) => {
                if !self.placed.contains_key(key) {
                    self.place(key, node.clone(), &change.record.value(), change.record.labels.clone());
                }
                Vec::new()
            }
            None => vec![key.to_string()],
        }
    }

    fn place(&mut self, key: &Arc<str>, name: Arc<str>, pod: &Value, labels: Arc<Labels>) {
        let load = load(&pod["spec"]);
        if let Some(node) = self.nodes.get_mut(&name) {
            node.used = node.used.plus(load);
            node.pods.insert(key.clone());
        }
        let alone =
            pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                .clone();
        if !alone.is_null() {
            self.alone.insert(key.clone());
        }
        let namespace = key.split('/').next().unwrap_or_default();
        let alike = self.alike.entry((namespace.into(), labels.clone())).or_default();
        *alike.entry(name.clone()).or_default() += 1;
        self.placed.insert(key.clone(), Placed { node: name, load, labels, alone });
    }

    /// A pod is no longer where it was.
    fn displace(&mut self, key: &Arc<str>, namespace: &str) {
        let Some(placed) = self.placed.remove(key) else { return };
        self.alone.remove(key);
        let group = (namespace.into(), placed.labels);
        if let Some(alike) = self.alike.get_mut(&group) {
            if let Some(count) = alike.get_mut(&placed.node) {
                *count -= 1;
            }
            alike.retain(|_, count| *count > 0);
            if alike.is_empty() {
                self.alike.remove(&group);
            }
        }
        if let Some(node) = self.nodes.get_mut(&placed.node) {
            node.used = node.used.minus(placed.load);
            node.pods.remove(key);
        }
    }

    fn wanted<'a>(&'a self, pod: &'a Value, record: &'a crate::record::Record) -> Wanted<'a> {
        let spec = &pod["spec"];
        let affinity = &spec["affinity"];
        let has = |value: &Value| value.as_array().is_some_and(|all| !all.is_empty());
        Wanted {
            pod,
            labels: &record.labels,
            load: load(spec),
            selector: LabelSelector::map(&spec["nodeSelector"]),
            required: &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"],
            preferred: &affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
            social: !affinity["podAffinity"].is_null() || !affinity["podAntiAffinity"].is_null(),
            spreads: has(&spec["topologySpreadConstraints"]),
            volumes: has(&spec["volumes"]),
            alike: self.alike.get(&(record.namespace().into(), record.labels.clone())),
        }
    }

    fn fits(&self, world: &World<'_>, wanted: &Wanted<'_>, name: &str, node: &Node) -> bool {
        let wants = wanted.load.plus(node.used);
        wants.pods <= node.room.pods
            && (wants.cpu <= node.room.cpu || wanted.load.cpu == 0)
            && (wants.memory <= node.room.memory || wanted.load.memory == 0)
            && tolerated(&wanted.pod["spec"], node)
            && wanted.selector.matches(&node.labels)
            && (wanted.required.is_null() || affine(wanted.required, &node.labels, name))
            && (!wanted.social && self.alone.is_empty() || self.together(wanted.pod, wanted.labels, node))
            && (!wanted.spreads || self.spread(wanted.pod, node))
            && (!wanted.volumes || bound(world, wanted.pod, node, name))
    }

    /// Required affinity and anti-affinity between pods, both ways.
    fn together(&self, pod: &Value, labels: &Labels, node: &Node) -> bool {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let near = |term: &Value| {
            let topology = term["topologyKey"].as_str().unwrap_or_default();
            let selector = LabelSelector::object(term.get("labelSelector")).unwrap_or_default();
            let here = node.labels.get(topology);
            here.is_some()
                && self.placed.iter().any(|(key, placed)| {
                    key.starts_with(&format!("{namespace}/"))
                        && selector.matches(&placed.labels)
                        && self.nodes.get(&placed.node).and_then(|node| node.labels.get(topology)) == here
                })
        };
        let required = |kind: &str| {
            pod["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let wanted = required("podAffinity").iter().all(|term| {
            // The first of a group that wants to be together may go anywhere.
            let itself = LabelSelector::object(term.get("labelSelector"))
                .is_some_and(|selector| selector.matches(labels));
            near(term) || itself && !self.any(namespace, term)
        });
        wanted
            && !required("podAntiAffinity").iter().any(near)
            && !self.alone.iter().filter_map(|key| self.placed.get_key_value(key)).any(|(key, placed)| {
                placed.alone.as_array().into_iter().flatten().any(|term| {
                    let topology = term["topologyKey"].as_str().unwrap_or_default();
                    let there = self.nodes.get(&placed.node).and_then(|node| node.labels.get(topology));
                    key.starts_with(&format!("{namespace}/"))
                        && there.is_some()
                        && there == node.labels.get(topology)
                        && LabelSelector::object(term.get("labelSelector"))
                            .is_some_and(|selector| selector.matches(labels))
                })
            })
    }

    fn any(&self, namespace: &str, term: &Value) -> bool {
        let selector = LabelSelector::object(term.get("labelSelector")).unwrap_or_default();
        self.placed.iter().any(|(key, placed)| {
            key.starts_with(&format!("{namespace}/")) && selector.matches(&placed.labels)
        })
    }

    /// `DoNotSchedule` constraints. Nodes that are cordoned still count, as they do by default.
    fn spread(&self, pod: &Value, node: &Node) -> bool {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let constraints = pod["spec"]["topologySpreadConstraints"].as_array();
        constraints.into_iter().flatten().filter(|one| one["whenUnsatisfiable"] != "ScheduleAnyway").all(|one| {
            let topology = one["topologyKey"].as_str().unwrap_or_default();
            let Some(here) = node.labels.get(topology) else { return false };
            let selector = LabelSelector::object(one.get("labelSelector")).unwrap_or_default();
            let mut domains: BTreeMap<&String, i64> = BTreeMap::new();
            for (name, other) in &self.nodes {
                let chosen = LabelSelector::map(&pod["spec"]["nodeSelector"]).matches(&other.labels)
                    && affine(&pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"], &other.labels, name);
                if let Some(domain) = other.labels.get(topology).filter(|_| chosen) {
                    let count = other.pods.iter().filter(|key| {
                        key.starts_with(&format!("{namespace}/")) && self.placed.get(*key).is_some_and(|placed| selector.matches(&placed.labels))
                    });
                    *domains.entry(domain).or_default() += i64::try_from(count.count()).unwrap_or(0);
                }
            }
            let least = domains.values().min().copied().unwrap_or(0);
            domains.get(here).copied().unwrap_or(0) + 1 - least <= one["maxSkew"].as_i64().unwrap_or(1)
        })
    }
}

impl Wanted<'_> {
    /// How good a node is: room that is left, preferred affinity, few pods of the same owner's labels, taints avoided.
    fn score(&self, name: &str, node: &Node) -> i128 {
        let used = node.used.plus(self.load);
        let free = |used: i128, room: i128| if room > 0 { ((room - used).max(0) * 100) / room } else { 0 };
        let mut score = i128::midpoint(free(used.cpu, node.room.cpu), free(used.memory, node.room.memory));
        score -= 50 * self.alike.and_then(|alike| alike.get(name)).copied().unwrap_or(0);
        for term in self.preferred.as_array().into_iter().flatten() {
            if terms(&term["preference"], &node.labels, name) {
                score += 2 * i128::from(term["weight"].as_i64().unwrap_or(0));
            }
        }
        let avoided = node.taints.as_array().into_iter().flatten();
        let avoided = avoided
            .filter(|taint| taint["effect"] == "PreferNoSchedule" && !tolerates(&self.pod["spec"], taint))
            .count();
        score - 300 * i128::try_from(avoided).unwrap_or(0)
    }
}

fn tolerated(spec: &Value, node: &Node) -> bool {
    let cordon = || json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    (!node.unschedulable || tolerates(spec, &cordon()))
        && node
            .taints
            .as_array()
            .into_iter()
            .flatten()
            .filter(|taint| taint["effect"] != "PreferNoSchedule")
            .all(|taint| tolerates(spec, taint))
}

/// Does one of its tolerations speak of this taint?
pub(super) fn tolerates(spec: &Value, taint: &Value) -> bool {
    spec["tolerations"].as_array().into_iter().flatten().any(|toleration| toleration_fits(toleration, taint))
}

pub(super) fn toleration_fits(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
    (effect.is_empty() || taint["effect"] == effect.as_str())
        && (key.is_empty() && toleration["operator"] == "Exists" || taint["key"] == key.as_str())
        && (toleration["operator"] == "Exists" || text(&toleration["value"]) == text(&taint["value"]))
}

/// Required node affinity: any of its terms, and no terms at all where none is required.
pub(super) fn affine(required: &Value, labels: &Labels, name: &str) -> bool {
    required["nodeSelectorTerms"]
        .as_array()
        .is_none_or(|all| all.iter().any(|term| terms(term, labels, name)))
}

fn terms(term: &Value, labels: &Labels, name: &str) -> bool {
    let empty = term["matchExpressions"].as_array().is_none_or(Vec::is_empty)
        && term["matchFields"].as_array().is_none_or(Vec::is_empty);
    let selector =
        |tests: &Value| LabelSelector::object(Some(&json!({"matchExpressions": tests}))).unwrap_or_default();
    let mut fields = Labels::new();
    fields.insert("metadata.name".into(), name.to_owned());
    !empty
        && selector(&term["matchExpressions"]).matches(labels)
        && selector(&term["matchFields"]).matches(&fields)
}

/// Volumes that are bound to some nodes only.
fn bound(world: &World<'_>, pod: &Value, node: &Node, name: &str) -> bool {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    pod["spec"]["volumes"].as_array().into_iter().flatten().all(|volume| {
        let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() else { return true };
        let Some(claim) = world.get("persistentvolumeclaims", &format!("{namespace}/{claim}")) else {
            return false;
        };
        let Some(volume) =
            claim["spec"]["volumeName"].as_str().and_then(|name| world.get("persistentvolumes", name))
        else {
            return true;
        };
        affine(&volume["spec"]["nodeAffinity"]["required"], &node.labels, name)
    })
}

#[cfg(test)]
mod tests {
    use super::enough;

    #[test]
    fn of_many_nodes_not_all_are_looked_at() {
        let found = [1, 99, 100, 200, 1000, 5000, 20_000].map(enough);
        assert_eq!(found, [1, 99, 100, 100, 420, 500, 1000]);
    }
}
