//! What a person is told while a drain goes on: which pods left, what the drain waits for, and the live view.
//!
//! It reads decisions and makes none. The invariant: each thing is told once; a wait that lasts is told again each
//! minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::Cluster;
use evenkeel_core::disruption::preflight::{Question, forecast};
use evenkeel_core::disruption::{CordonMark, Rules, class, warnings};
use evenkeel_core::drain::{DrainDecision, NodeState, PodLeft, PodWait, first_wait};
use jiff::Timestamp;
use tokio::time::Instant;

use super::display::{DrainScreen, Event};
use super::draining::Draining;
use super::waited::{DrainTrouble, TELL_AGAIN, Waited};

/// A wait is told when it has lasted this long.
const TELL_AFTER: Duration = Duration::from_secs(5);
/// A wait is over when it has been absent for this long. It is absent for a moment whenever an eviction is sent
/// again, and must not count as a new wait then.
const OVER_AFTER: Duration = Duration::from_secs(2);

impl Draining {
    /// Tells before the drain how long it will take, if the core has a forecast, and what a higher concurrency would
    /// save.
    pub(super) fn foretell(&mut self) -> Result<(), String> {
        let cluster = self.watches.cluster();
        let nodes = self.request.nodes.iter().filter_map(|name| cluster.node(name)).collect();
        let (rules, now) = (&self.request.policy.rules, self.clock.now());
        let at_once = self.request.concurrency;
        let question = Question { cluster: &cluster, nodes, at_once, rules, timeout: None, now };
        match forecast(&question) {
            Some(forecast) => self.teller.foretell(forecast),
            None => Ok(()),
        }
    }

    /// Tells the warnings about the pods of every requested node, once for each node.
    pub(super) fn warn(&mut self, cluster: &Cluster, now: Timestamp) -> Result<(), String> {
        let rules = self.request.policy.rules.clone();
        for name in self.request.nodes.clone() {
            if !self.kept.warned.insert(Arc::clone(&name)) {
                continue;
            }
            for (line, pods) in warned(cluster, &name, &rules, now) {
                self.teller.tell(Event::of_node(&name, "warning", format!("warning: {line}: {pods}")))?;
            }
        }
        Ok(())
    }

    /// Tells which pods are gone.
    pub(super) fn gone(&mut self, cluster: &Cluster) -> Result<(), String> {
        let there: BTreeSet<&Arc<str>> = cluster.pods().map(|pod| &pod.uid).collect();
        let gone: Vec<Arc<str>> =
            self.kept.asked.keys().filter(|uid| !there.contains(uid)).cloned().collect();
        for uid in gone {
            if let Some((node, pod)) = self.kept.asked.remove(&uid) {
                self.teller.tell(Event::of_pod(&node, "gone", &pod, "gone"))?;
            }
        }
        Ok(())
    }

    /// Tells which nodes are drained or failed since the last look, and which were cordoned by somebody else.
    pub(super) fn changed(&mut self, cluster: &Cluster, decision: &DrainDecision<'_>) -> Result<(), String> {
        for (name, state) in &decision.states {
            let before = self.kept.states.get(name).cloned();
            if before.as_ref() == Some(state) {
                continue;
            }
            if state.is_final() {
                // Nothing more is asked of the server about it, but that it is uncordoned.
                self.kept.troubles.ends(&DrainTrouble::Patch(Arc::clone(name)));
                self.kept.troubles.ends(&DrainTrouble::Reread(Arc::clone(name)));
            }
            if let Some(conditions) = state.conditions(before.as_ref()) {
                self.say_on_node(name, conditions);
            }
            let event = match state {
                NodeState::Drained { took, .. } => {
                    Event::of_node(name, "drained", format!("drained in {} s", took.as_secs()))
                }
                NodeState::Failed { why } => Event::of_node(name, "failed", why.told()),
                NodeState::Cordoned { .. } | NodeState::Draining(_)
                    if matches!(before, None | Some(NodeState::Waiting)) && !ours(cluster, name) =>
                {
                    Event::of_node(name, "cordoned", "was cordoned already, by somebody else")
                }
                _ => continue,
            };
            self.teller.tell(event)?;
        }
        Ok(())
    }

    /// Tells what the drain waits for, once the wait has lasted for [`TELL_AFTER`].
    pub(super) fn waiting(&mut self, decision: &DrainDecision<'_>) -> Result<(), String> {
        let mut now_waited: BTreeMap<(Arc<str>, String), (String, Event)> = BTreeMap::new();
        for (node, left) in &decision.left {
            let held = left.iter().filter_map(|left| Some((left, left.wait.held()?)));
            for (left, held) in held {
                let budget = held.budget.as_ref().map(|(namespace, name)| format!("{namespace}/{name}"));
                let key = budget.clone().unwrap_or_else(|| left.pod.full_name());
                let event = Event::of_pod(node, "waiting", &left.pod.full_name(), held.reason.clone());
                now_waited.entry((Arc::clone(node), key)).or_insert((held.reason, event.about(budget)));
            }
        }
        for (node, why) in &decision.waiting {
            let event = Event::of_node(node, "waiting", why.clone());
            now_waited.insert((Arc::clone(node), String::new()), (why.clone(), event));
        }
        let now = Instant::now();
        for (key, (_, event)) in now_waited {
            let waited = self.kept.waits.entry(key).or_insert(Waited::begins(now));
            waited.seen = now;
            let due = waited.told.map_or(waited.since + TELL_AFTER, |told| told + TELL_AGAIN);
            if now >= due {
                waited.told = Some(now);
                self.teller.tell(event)?;
            }
        }
        self.kept.waits.retain(|_, waited| now < waited.seen + OVER_AFTER);
        Ok(())
    }

    /// Warns that a watch or a request of ours fails, with `why`: once, and again each minute while it lasts.
    pub(super) fn trouble(&mut self, trouble: DrainTrouble, why: &str) -> Result<(), String> {
        if self.kept.troubles.begins(trouble, why, Instant::now()) {
            return self.teller.note(&format!("warning: {why}"));
        }
        Ok(())
    }

    pub(super) fn show(&mut self, cluster: &Cluster, decision: &DrainDecision<'_>) -> Result<(), String> {
        if !self.teller.is_live() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut view = DrainScreen::default();
        for name in &self.request.nodes {
            let what = match decision.states.get(name) {
                None | Some(NodeState::Waiting) => "is being cordoned".to_owned(),
                Some(NodeState::Cordoned { .. }) => decision.waiting.get(name).cloned().unwrap_or_default(),
                Some(NodeState::Draining(drain)) => {
                    let left = decision.left.get(name).map_or(0, Vec::len);
                    let seconds = now.duration_since(drain.begun).as_secs();
                    let all = cluster.pods_on(name).len();
                    match (left, decision.waiting.get(name)) {
                        (0, Some(why)) => format!("empty, {why}   {seconds} s"),
                        (0, None) => format!("empty, makes sure that no pod still arrives   {seconds} s"),
                        _ => format!("{left} to leave, {} stay   {seconds} s", all.saturating_sub(left)),
                    }
                }
                Some(NodeState::Drained { took, .. }) => format!("drained in {} s", took.as_secs()),
                Some(NodeState::Failed { why }) => why.told(),
            };
            view.nodes.push((Arc::clone(name), what));
        }
        view.budgets = queues(cluster, decision);
        let waits = self.kept.waits.iter().map(|((node, what), waited)| {
            let reason = decision.left.get(node).map(|left| first_wait(left)).unwrap_or_default();
            (if reason.is_empty() { what.clone() } else { reason }, waited.since)
        });
        let troubles = self.kept.troubles.longest().map(|(line, since)| (line.to_owned(), since));
        let oldest = troubles.into_iter().chain(waits).min_by_key(|(_, since)| *since);
        let left: Vec<&PodLeft<'_>> = decision.left.values().flatten().collect();
        view.waits = match oldest {
            Some((reason, since)) => format!("waits since {} s: {reason}", since.elapsed().as_secs()),
            None if left.is_empty() => "looks whether the nodes stay empty".to_owned(),
            None => format!("{} pods are leaving", left.len()),
        };
        self.teller.draw(&view)
    }
}

/// Whether the Node of that name carries the cordon of a drain, this one or one before it.
pub(super) fn ours(cluster: &Cluster, name: &str) -> bool {
    cluster.node(name).is_some_and(|node| node.cordoned_by.as_deref().is_some_and(CordonMark::is_drain))
}

/// The warnings about pods of `node`, with the pods.
fn warned(cluster: &Cluster, node: &str, rules: &Rules, now: Timestamp) -> BTreeMap<String, String> {
    let mut lines: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
    for pod in cluster.pods_on(node) {
        let class = class(pod, rules, cluster.surroundings(), now);
        for line in warnings(pod, class, cluster.surroundings()) {
            lines.entry(line).or_default().push(pod.full_name().into());
        }
    }
    let shown =
        |pods: Vec<Arc<str>>| evenkeel_core::skew::sample_names(pods.len(), &pods[..pods.len().min(5)]);
    lines.into_iter().map(|(line, pods)| (line, shown(pods))).collect()
}

/// A line for each budget that pods wait on.
fn queues(cluster: &Cluster, decision: &DrainDecision<'_>) -> Vec<String> {
    let mut queues: BTreeMap<(Arc<str>, Arc<str>), usize> = BTreeMap::new();
    for left in decision.left.values().flatten() {
        if let PodWait::Budget(refusal) = &left.wait
            && let Some(budget) = refusal.budget()
        {
            *queues.entry(budget.clone()).or_default() += 1;
        }
    }
    let line = |((namespace, name), count): (&(Arc<str>, Arc<str>), &usize)| {
        let budget = cluster.budget(namespace, name)?;
        Some(format!(
            "PDB {}   {count} waiting   {} allowed, {} of {} healthy, {} needed",
            budget.full_name(),
            budget.disruptions_allowed,
            budget.current_healthy,
            budget.expected_pods,
            budget.desired_healthy
        ))
    };
    queues.iter().filter_map(line).collect()
}
