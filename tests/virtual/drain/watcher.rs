//! What is checked after every write of a run.
//!
//! It knows only what was written, and by whom; it never asks the program that it watches, and shares no code with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_sim::Write;
use serde_json::Value;
use tokio::time::Instant;

use super::super::campaign::Wrong;

/// Who drains.
pub const DRAINER: &str = "evenkeel-drain";
/// What is drained.
pub const TARGETS: [&str; 2] = ["worker-1", "worker-2"];

#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) node: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) healthy: bool,
    pub(super) leaving: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) needs: i64,
    pub(super) known: bool,
}

/// Checks after every write.
#[derive(Default)]
pub(super) struct Watcher {
    pub(super) wrong: Wrong,
    pub(super) pods: BTreeMap<String, Seen>,
    pub(super) budgets: BTreeMap<String, Budget>,
    pub(super) nodes: BTreeMap<String, (bool, Option<String>)>,
    /// Nodes whose cordon somebody else set.
    pub(super) theirs: BTreeSet<String>,
    /// When somebody else changed a node's cordon last: what is on its way may come later.
    pub(super) others: BTreeMap<String, Instant>,
    pub(super) went: Vec<String>,
    pub(super) came: Vec<String>,
    pub(super) uids: BTreeMap<String, usize>,
    pub(super) writes: Vec<Instant>,
}

pub(super) fn labels(value: &Value) -> BTreeMap<String, String> {
    let map = value.as_object().into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

pub(super) fn seen(pod: &Value) -> Seen {
    let ready = |found: &Value| found["type"] == "Ready" && found["status"] == "True";
    Seen {
        node: pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned(),
        labels: labels(&pod["metadata"]["labels"]),
        healthy: pod["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(ready)),
        leaving: pod["metadata"].get("deletionTimestamp").is_some(),
    }
}

impl Watcher {
    pub(super) fn see(&mut self, write: &Write<'_>) {
        if write.is_heartbeat() {
            return;
        }
        let ours = write.author() == DRAINER;
        if ours {
            self.writes.push(Instant::now());
        }
        let key = format!("{}/{}", write.namespace(), write.name());
        let said = match write.resource() {
            "pods" => self.pod(write, &key, ours),
            "nodes" => self.node(write, ours),
            "poddisruptionbudgets.policy" => {
                match write.after() {
                    Some(budget) => {
                        let needs = budget["status"]["desiredHealthy"].as_i64();
                        let known = needs.is_some()
                            && budget["status"]["observedGeneration"] == budget["metadata"]["generation"];
                        let labels = labels(&budget["spec"]["selector"]["matchLabels"]);
                        self.budgets.insert(key, Budget { labels, needs: needs.unwrap_or(0), known });
                    }
                    None => _ = self.budgets.remove(&key),
                }
                Ok(())
            }
            other if ours => Err(format!("writes {other} {key}")),
            _ => Ok(()),
        };
        if let Err(what) = said {
            self.wrong.push(format!("revision {}: {what}", write.revision()));
        }
    }

    fn pod(&mut self, write: &Write<'_>, key: &str, ours: bool) -> Result<(), String> {
        let before = self.pods.get(key).cloned().unwrap_or_default();
        let after = write.after().map(|pod| seen(&pod));
        match &after {
            Some(after) => _ = self.pods.insert(key.to_owned(), after.clone()),
            None => _ = self.pods.remove(key),
        }
        if before.node.is_empty()
            && after.as_ref().is_some_and(|after| TARGETS.contains(&after.node.as_str()))
        {
            self.came.push(key.to_owned());
        }
        let leaves = !before.leaving && after.as_ref().is_none_or(|after| after.leaving);
        if !ours || !leaves {
            return Ok(());
        }
        self.went.push(key.to_owned());
        let times = self.uids.entry(write.uid().to_owned()).or_default();
        *times += 1;
        if *times > 1 {
            return Err(format!("evicts {key} {times} times"));
        }
        if !TARGETS.contains(&before.node.as_str()) {
            return Err(format!("evicts {key} from {:?}, which nobody asked it to drain", before.node));
        }
        let held = self.nodes.get(&before.node).is_some_and(|(cordoned, _)| *cordoned);
        let moment = Duration::from_secs(20);
        let lately = self.others.get(&before.node).is_some_and(|at| at.elapsed() < moment);
        if !held && !lately {
            return Err(format!("evicts {key} from {}, which is not cordoned", before.node));
        }
        if !before.healthy {
            return Ok(());
        }
        for (name, budget) in &self.budgets {
            let namespace = name.split('/').next().unwrap_or_default();
            let selects =
                |of: &BTreeMap<String, String>| budget.labels.iter().all(|(k, v)| of.get(k) == Some(v));
            if !key.starts_with(&format!("{namespace}/")) || !selects(&before.labels) || !budget.known {
                continue;
            }
            let healthy = self.pods.iter().filter(|(key, pod)| {
                key.starts_with(&format!("{namespace}/"))
                    && selects(&pod.labels)
                    && pod.healthy
                    && !pod.leaving
            });
            let healthy = healthy.count() as i64;
            if healthy < budget.needs {
                return Err(format!("evicts {key}: {name} needs {} and has {healthy} left", budget.needs));
            }
        }
        Ok(())
    }

    fn node(&mut self, write: &Write<'_>, ours: bool) -> Result<(), String> {
        let name = write.name().to_owned();
        let before = self.nodes.get(&name).cloned().unwrap_or((false, None));
        let Some(node) = write.after() else {
            self.nodes.remove(&name);
            self.others.insert(name, Instant::now());
            return if ours { Err("deletes a node".to_owned()) } else { Ok(()) };
        };
        let mark = node["metadata"]["annotations"]["evenkeel.dev/cordoned-by"].as_str().map(str::to_owned);
        let after = (node["spec"]["unschedulable"] == true, mark);
        self.nodes.insert(name.clone(), after.clone());
        let was_theirs = match (before.0, after.0) {
            (false, true) if !ours => !self.theirs.insert(name.clone()),
            (true, true) => self.theirs.contains(&name),
            _ => self.theirs.remove(&name),
        };
        if !ours {
            if before.0 != after.0 {
                self.others.insert(name, Instant::now());
            }
            return Ok(());
        }
        let marked = after.1.as_deref().is_some_and(|mark| mark.starts_with("drain:"));
        match (&before, &after) {
            _ if !TARGETS.contains(&name.as_str()) => Err(format!("writes node {name}")),
            ((false, _), (true, _)) if !marked => Err(format!("cordons {name} without its mark")),
            ((true, None), (true, Some(_))) => Err(format!("marks {name}, which somebody else cordoned")),
            ((true, _), (false, _)) if was_theirs => {
                Err(format!("takes off a cordon of {name} that somebody set after ours"))
            }
            ((true, None), (false, _)) => Err(format!("takes off a cordon of {name} that is not ours")),
            ((true, Some(_)), (true, None)) => {
                Err(format!("takes the mark off {name} and leaves the cordon"))
            }
            _ => Ok(()),
        }
    }
}
