//! The scheduler: which node a pod runs on.
//!
//! Filters decide what is feasible, scores choose among it, chance decides between equals. It keeps what each node has
//! left from its watches, so that a pod is placed without looking at every other.

mod node;
mod rules;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use node::{Load, Node, amount, load};
pub(super) use rules::{affine, tolerates, toleration_fits};
use rules::{bound, terms, tolerated};

use super::model::{Model, ModelStep};
use super::objects::{condition, leaving};
use crate::api::ApiState;
use crate::labels::{LabelSelector, Labels};
use crate::store::Change;

struct Placed {
    node: Arc<str>,
    load: Load,
    labels: Arc<Labels>,
    /// Its required anti-affinity terms, by which it keeps other pods away.
    alone: Value,
}

/// The scheduler, with what it knows.
#[derive(Default)]
pub(super) struct Scheduler {
    /// In the order of their names, in which the scheduler looks at them.
    nodes: Vec<Node>,
    /// Iterated only where the order does not matter.
    placed: HashMap<Arc<str>, Placed>,
    waiting: BTreeSet<Arc<str>>,
    /// The pods of `placed` that keep others away. They are few, and are compared with for every node.
    alone: BTreeSet<Arc<str>>,
    /// Where the next look begins: of many nodes a look sees only some.
    start: usize,
    /// By namespace and labels: how many such pods each node has.
    alike: HashMap<Box<str>, HashMap<Arc<Labels>, BTreeMap<Arc<str>, i64>>>,
}

/// A pod that looks for a node, with what is computed once for all nodes.
struct Wanted<'a> {
    pod: &'a Value,
    labels: &'a Arc<Labels>,
    load: Load,
    selector: LabelSelector,
    /// Required node affinity.
    required: &'a Value,
    preferred: &'a Value,
    /// It has affinity or anti-affinity to other pods.
    social: bool,
    spreads: bool,
    /// It has volumes that may be tied to some nodes.
    claims: bool,
    /// How many pods with the same labels a node has, by the node's index.
    alike: BTreeMap<usize, i64>,
}

/// How many feasible nodes are enough to choose among, in a cluster of this many nodes. Source:
/// `numFeasibleNodesToFind` in `pkg/scheduler/schedule_one.go`.
fn enough(nodes: usize) -> usize {
    const LEAST: usize = 100;
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    if nodes < LEAST { nodes } else { (nodes * percent / 100).max(LEAST) }
}

impl Model for Scheduler {
    fn name(&self) -> &'static str {
        "kube-scheduler"
    }

    fn keys(&mut self, resource: &str, change: &Change, _: &ApiState) -> Vec<String> {
        match resource {
            "nodes" => {
                // A heartbeat changes nothing here.
                let quiet = !change.deleted
                    && change.before.as_ref().is_some_and(|before| {
                        let (was, is) = (before.value(), change.record.value());
                        Arc::ptr_eq(&before.labels, &change.record.labels)
                            && was["spec"] == is["spec"]
                            && was["status"]["allocatable"] == is["status"]["allocatable"]
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

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(record) = world.record("pods", key) else { return };
        let pod = record.value();
        if record.node.is_some() || leaving(&pod) || pod["spec"]["schedulerName"] != "default-scheduler" {
            self.waiting.remove(key);
            return;
        }
        let wanted = self.wanted(&pod, &record);
        let (mut scores, mut looked) = (Vec::<(i64, &Arc<str>)>::new(), 0);
        let enough = enough(self.nodes.len());
        let start = self.start.min(self.nodes.len());
        let from = self.nodes.iter().enumerate().skip(start);
        for (at, node) in from.chain(self.nodes.iter().enumerate().take(start)) {
            if scores.len() == enough {
                break;
            }
            looked += 1;
            if self.fits(world, &wanted, node) {
                scores.push((wanted.score(at, node), &node.name));
            }
        }
        let next = (self.start + looked).checked_rem(self.nodes.len()).unwrap_or(0);
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
            // It is tried again even if no change that would help is seen.
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
        let place = self.find(&change.record.key);
        if change.deleted {
            drop(place.map(|at| self.nodes.remove(at)));
            return;
        }
        let object = change.record.value();
        let all = &object["status"]["allocatable"];
        let room = Load {
            cpu: amount(&all["cpu"], 1),
            memory: amount(&all["memory"], 1000),
            pods: amount(&all["pods"], 1000),
        };
        let mut node = Node {
            name: change.record.key.clone(),
            labels: change.record.labels.clone(),
            taints: object["spec"]["taints"].clone(),
            unschedulable: object["spec"]["unschedulable"] == true,
            room,
            used: Load::default(),
            pods: BTreeSet::new(),
        };
        match place {
            Ok(at) => {
                let Some(known) = self.nodes.get_mut(at) else { return };
                (node.used, node.pods) = (known.used, std::mem::take(&mut known.pods));
                *known = node;
            }
            Err(at) => self.nodes.insert(at, node),
        }
    }

    /// The index of a node, or where it would be inserted.
    fn find(&self, name: &str) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| (*node.name).cmp(name))
    }

    fn get(&self, name: &str) -> Option<&Node> {
        self.nodes.get(self.find(name).ok()?)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        let at = self.find(name).ok()?;
        self.nodes.get_mut(at)
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
        if let Some(node) = self.get_mut(&name) {
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
        if !self.alike.contains_key(namespace) {
            self.alike.insert(namespace.into(), HashMap::new());
        }
        if let Some(groups) = self.alike.get_mut(namespace) {
            *groups.entry(labels.clone()).or_default().entry(name.clone()).or_default() += 1;
        }
        self.placed.insert(key.clone(), Placed { node: name, load, labels, alone });
    }

    /// Forgets where a pod was.
    fn displace(&mut self, key: &Arc<str>, namespace: &str) {
        let Some(placed) = self.placed.remove(key) else { return };
        self.alone.remove(key);
        if let Some(groups) = self.alike.get_mut(namespace)
            && let Some(alike) = groups.get_mut(&placed.labels)
        {
            if let Some(count) = alike.get_mut(&placed.node) {
                *count -= 1;
            }
            alike.retain(|_, count| *count > 0);
            if alike.is_empty() {
                groups.remove(&placed.labels);
            }
        }
        if let Some(node) = self.get_mut(&placed.node) {
            node.used = node.used.minus(placed.load);
            node.pods.remove(key);
        }
    }

    fn wanted<'a>(&'a self, pod: &'a Value, record: &'a crate::record::Record) -> Wanted<'a> {
        let spec = &pod["spec"];
        let affinity = &spec["affinity"];
        let has = |value: &Value| value.as_array().is_some_and(|all| !all.is_empty());
        let mut volumes = spec["volumes"].as_array().into_iter().flatten();
        let groups = self.alike.get(record.namespace());
        let alike = groups.and_then(|groups| groups.get(&record.labels));
        Wanted {
            pod,
            labels: &record.labels,
            load: load(spec),
            selector: LabelSelector::map(&spec["nodeSelector"]),
            required: &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"],
            preferred: &affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
            social: !affinity["podAffinity"].is_null() || !affinity["podAntiAffinity"].is_null(),
            spreads: has(&spec["topologySpreadConstraints"]),
            claims: volumes.any(|volume| !volume["persistentVolumeClaim"].is_null()),
            alike: alike
                .into_iter()
                .flatten()
                .filter_map(|(node, count)| Some((self.find(node).ok()?, *count)))
                .collect(),
        }
    }

    fn fits(&self, world: &ModelStep<'_>, wanted: &Wanted<'_>, node: &Node) -> bool {
        let wants = wanted.load.plus(node.used);
        wants.pods <= node.room.pods
            && (wants.cpu <= node.room.cpu || wanted.load.cpu == 0)
            && (wants.memory <= node.room.memory || wanted.load.memory == 0)
            && tolerated(&wanted.pod["spec"], node)
            && wanted.selector.matches(&node.labels)
            && (wanted.required.is_null() || affine(wanted.required, &node.labels, &node.name))
            && (!wanted.social && self.alone.is_empty() || self.together(wanted.pod, wanted.labels, node))
            && (!wanted.spreads || self.spread(wanted.pod, node))
            && (!wanted.claims || bound(world, wanted.pod, node))
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
                        && self.get(&placed.node).and_then(|node| node.labels.get(topology)) == here
                })
        };
        let required = |kind: &str| {
            pod["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let wanted = required("podAffinity").iter().all(|term| {
            // The first pod of a group that wants to be together may go anywhere.
            let itself = LabelSelector::object(term.get("labelSelector"))
                .is_some_and(|selector| selector.matches(labels));
            near(term) || itself && !self.any(namespace, term)
        });
        wanted
            && !required("podAntiAffinity").iter().any(near)
            && !self.alone.iter().filter_map(|key| self.placed.get_key_value(key)).any(|(key, placed)| {
                placed.alone.as_array().into_iter().flatten().any(|term| {
                    let topology = term["topologyKey"].as_str().unwrap_or_default();
                    let there = self.get(&placed.node).and_then(|node| node.labels.get(topology));
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

    /// Whether `DoNotSchedule` constraints allow the node. Cordoned nodes count in them, as they do by default.
    fn spread(&self, pod: &Value, node: &Node) -> bool {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let constraints = pod["spec"]["topologySpreadConstraints"].as_array();
        constraints.into_iter().flatten().filter(|one| one["whenUnsatisfiable"] != "ScheduleAnyway").all(|one| {
            let topology = one["topologyKey"].as_str().unwrap_or_default();
            let Some(here) = node.labels.get(topology) else { return false };
            let selector = LabelSelector::object(one.get("labelSelector")).unwrap_or_default();
            let mut domains: BTreeMap<&String, i64> = BTreeMap::new();
            for other in &self.nodes {
                let chosen = LabelSelector::map(&pod["spec"]["nodeSelector"]).matches(&other.labels)
                    && affine(&pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"], &other.labels, &other.name);
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
    /// How good a node is: room that is left, preferred affinity, few pods with the same labels, no taint to avoid.
    fn score(&self, at: usize, node: &Node) -> i64 {
        let used = node.used.plus(self.load);
        let free = |used: i64, room: i64| if room > 0 { ((room - used).max(0) * 100) / room } else { 0 };
        let mut score = i64::midpoint(free(used.cpu, node.room.cpu), free(used.memory, node.room.memory));
        score -= 50 * self.alike.get(&at).copied().unwrap_or(0);
        for term in self.preferred.as_array().into_iter().flatten() {
            if terms(&term["preference"], &node.labels, &node.name) {
                score += 2 * term["weight"].as_i64().unwrap_or(0);
            }
        }
        let avoided = node.taints.as_array().into_iter().flatten();
        let avoided = avoided
            .filter(|taint| taint["effect"] == "PreferNoSchedule" && !tolerates(&self.pod["spec"], taint))
            .count();
        score - 300 * i64::try_from(avoided).unwrap_or(0)
    }
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
