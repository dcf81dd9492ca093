//! What is checked after every write of a run: the fourteen invariants of docs/architecture.md, each by its number.
//!
//! It knows what was written and by whom, and what runs on the control plane's machines; it never asks the program that
//! it watches, and shares no code with it. The operator learns of what others did a moment later, so what others
//! did within the last moment is not held against it. The fourteenth, that every run ends alike, is checked at the end.

mod approval;
mod approved;
mod blind;
mod checks;
mod controllers;
mod executors;
pub mod faults;
mod model;
mod parking;
mod plane;
mod pods;
pub mod rest;
mod risks;
mod said;
mod starting;
mod taints;
mod turns;
mod waits;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_sim::{COMPONENTS, ControlPlane, Write};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::super::campaign::Wrong;
use super::super::kube_api::Kube;
use super::base::CHANGERS;
use approved::Approvals;
use blind::{Blind, MOMENT};
use model::{Budget, Claim, Labels, Node, Pod, Upgrade, labels, text, version};

/// An apiserver that is another without anybody having told so is asked this often.
const ASKED_EVERY: Duration = Duration::from_secs(35);

/// A component of the control plane as it is, and since when.
#[derive(Clone, Debug)]
struct Instance {
    version: String,
    runs: bool,
    since: Instant,
    /// Since when it has that version; none where it had it from the beginning.
    version_since: Option<Instant>,
}

/// Checks after every write.
pub struct Watcher {
    pub wrong: Wrong,
    plane: ControlPlane,
    instances: BTreeMap<(String, String), Instance>,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    budgets: BTreeMap<String, Budget>,
    claims: BTreeMap<String, Claim>,
    upgrades: BTreeMap<String, Upgrade>,
    leader: String,
    /// The executors that are Jobs, and the name of each one's container.
    jobs: BTreeMap<String, String>,
    /// Whether the Jobs of a claim, by its UID, are complete: one of them is.
    complete: BTreeSet<String>,
    /// The Jobs that have not ended, and the UIDs of their claims.
    working: BTreeMap<String, String>,
    /// Reasons of events by the name of the object that they are related to.
    told: BTreeSet<(String, String)>,
    /// How often each UID was evicted.
    pub evicted: BTreeMap<String, usize>,
    /// By how much a fault held back what is looked at now; its precondition is all that keeps it from harm.
    late: Option<Duration>,
    /// Clocks are set, so that nobody can tell how long what took that is told by two times.
    pub clocks_jump: bool,
    /// When the clock was last set.
    clock_set: Option<Instant>,
    /// Reasons of the upgrades' condition Ready.
    pub reasons: BTreeSet<String>,
    /// How many claims were parked.
    pub parked: usize,
    /// The definition lacks what upgrades wait for, so that a server drops it.
    pub waits_are_dropped: bool,
    /// Requests failed, so that an event may be missing: it decides nothing.
    pub events_may_fail: bool,
    /// The node of each volume that is attached; no volume of these is of a pod that stays.
    attached: BTreeMap<String, String>,
    /// Since when the gate has been closed; none while it is open.
    gate_closed: Option<Instant>,
    /// What stands in the way of another minor, by the name of the webhook configuration, and since when.
    webhooks: BTreeMap<String, (Vec<String>, Instant)>,
    approvals: Approvals,
    /// The zone of each group of an upgrade that is under way to a version, and the UIDs of nodes that were left behind in others.
    zones: BTreeMap<(String, String, String), (String, BTreeSet<String>)>,
    /// What a fault kept from whom.
    pub blind: Blind,
    /// Who writes what is looked at now.
    author: String,
    /// Every reason of an upgrade's condition Ready, and when it began to be said.
    pub said: Vec<(Instant, String)>,
    /// When each claim was given to an executor.
    pub given: Vec<(Instant, String)>,
    /// Every state that a claim came into, and when.
    pub turns: Vec<(Instant, String, String)>,
    /// When the first replica was told an event, of each resource.
    pub heard: BTreeMap<String, Vec<Instant>>,
    /// When each controller was last at work.
    worked: BTreeMap<&'static str, Instant>,
    /// The cluster's time when the watcher began, or its clock was set, and when that was.
    began: (Timestamp, Instant),
}

impl Watcher {
    /// One that knows `kube`'s cluster as it is now.
    pub async fn new(kube: &Kube, plane: ControlPlane, now: Timestamp) -> Self {
        let mut watcher = Self {
            wrong: Wrong::new(),
            plane,
            instances: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            budgets: BTreeMap::new(),
            claims: BTreeMap::new(),
            upgrades: BTreeMap::new(),
            leader: String::new(),
            jobs: BTreeMap::new(),
            complete: BTreeSet::new(),
            working: BTreeMap::new(),
            told: BTreeSet::new(),
            evicted: BTreeMap::new(),
            late: None,
            clocks_jump: false,
            clock_set: None,
            reasons: BTreeSet::new(),
            parked: 0,
            waits_are_dropped: false,
            events_may_fail: false,
            attached: BTreeMap::new(),
            gate_closed: Some(Instant::now()),
            webhooks: BTreeMap::new(),
            approvals: Approvals::default(),
            zones: BTreeMap::new(),
            blind: Blind::default(),
            author: String::new(),
            said: Vec::new(),
            given: Vec::new(),
            turns: Vec::new(),
            heard: BTreeMap::new(),
            worked: BTreeMap::new(),
            began: (now, Instant::now()),
        };
        let name = |object: &Value| text(&object["metadata"]["name"]);
        let key = |object: &Value| format!("{}/{}", text(&object["metadata"]["namespace"]), name(object));
        for node in kube.list("/api/v1/nodes").await {
            watcher.nodes.insert(name(&node), Node::of(&node, None));
        }
        for pod in kube.list("/api/v1/pods").await {
            watcher.pods.insert(key(&pod), Pod::found(&pod));
        }
        for budget in kube.list("/apis/policy/v1/poddisruptionbudgets").await {
            watcher.budgets.insert(key(&budget), Budget::of(&budget, None));
        }
        for executor in kube.list(CHANGERS).await {
            watcher.has_content(&name(&executor), Some(&executor));
            watcher.changer(&executor);
        }
        watcher.look_at_plane();
        watcher
    }

    /// What runs on the control plane's machines, whatever the API says of it.
    fn look_at_plane(&mut self) {
        for node in self.plane.nodes() {
            for component in COMPONENTS {
                let Some((version, runs)) = self.plane.component(&node, component) else { continue };
                let key = (node.clone(), component.to_owned());
                let before = self.instances.get(&key);
                if before.is_some_and(|was| was.version == version && was.runs == runs) {
                    continue;
                }
                let since = Instant::now();
                let version_since = match before {
                    Some(was) if was.version == version => was.version_since,
                    Some(_) => Some(since),
                    None => None,
                };
                let went = before.is_some_and(|was| was.runs) && !runs;
                self.instances.insert(key, Instance { version, runs, since, version_since });
                if went {
                    self.goes_away(&node, component);
                }
            }
        }
    }

    pub fn see(&mut self, write: &Write<'_>) {
        self.look_at_work();
        if write.is_heartbeat() {
            return;
        }
        self.look_at_plane();
        write.author().clone_into(&mut self.author);
        self.late = self.blind.delay_of(write);
        let ours = write.author().starts_with("evenkeel");
        let begun = self.wrong.len();
        match write.resource() {
            "nodes" => self.node(write, ours),
            "pods" => self.pod(write, ours),
            "poddisruptionbudgets.policy" => {
                let key = format!("{}/{}", write.namespace(), write.name());
                match write.after() {
                    Some(budget) => {
                        let budget = Budget::of(&budget, self.budgets.get(&key));
                        _ = self.budgets.insert(key, budget);
                    }
                    None => _ = self.budgets.remove(&key),
                }
            }
            "volumeattachments.storage.k8s.io" if !ours => match write.after() {
                Some(volume) => {
                    _ = self.attached.insert(write.name().to_owned(), text(&volume["spec"]["nodeName"]));
                }
                None => _ = self.attached.remove(write.name()),
            },
            "servicelevels.example.com" => {
                let object = write.after().unwrap_or_default();
                let is_open = object["status"]["conditions"][0]["status"] == "True";
                self.gate_closed = (!is_open).then(|| self.gate_closed.unwrap_or_else(Instant::now));
            }
            "validatingwebhookconfigurations.admissionregistration.k8s.io" if !ours => self.webhooks(write),
            "nodeupgrades.evenkeel.dev" => self.claim(write, ours),
            "clusterupgrades.evenkeel.dev" => self.upgrade(write, ours),
            "upgradeexecutors.evenkeel.dev" if !ours => {
                let after = write.after();
                self.has_content(write.name(), after.as_ref());
                self.changer(&after.unwrap_or_default());
            }
            "jobs.batch" => {
                self.job_ends(write);
                if ours {
                    self.job(write);
                }
            }
            "leases.coordination.k8s.io"
                if (write.namespace(), write.name()) == ("kube-system", "evenkeel") =>
            {
                let after = write.after().unwrap_or_default();
                self.leader = text(&after["spec"]["holderIdentity"]);
                return;
            }
            "events" | "events.events.k8s.io" => {
                let event = write.after().unwrap_or_default();
                let related = text(&event["related"]["name"]);
                self.told.insert((related, text(&event["reason"])));
                return;
            }
            "clusterskewreports.evenkeel.dev" => return,
            other if ours => {
                self.wrong.push(format!("writes {other} {}/{}", write.namespace(), write.name()));
            }
            _ => {}
        }
        if ours {
            self.led(write);
        }
        for line in &mut self.wrong[begun..] {
            *line = format!("revision {}: {} {line}", write.revision(), write.author());
        }
    }

    fn node(&mut self, write: &Write<'_>, ours: bool) {
        let name = write.name().to_owned();
        let before = self.nodes.get(&name).cloned();
        let Some(object) = write.after() else {
            self.nodes.remove(&name);
            if ours {
                self.wrong.push(format!("deletes node {name}"));
            }
            return;
        };
        let mut after = Node::of(&object, before.as_ref());
        let was_cordoned = before.as_ref().is_some_and(|before| before.cordoned);
        if !ours {
            if was_cordoned != after.cordoned {
                after.others = Some(Instant::now());
                after.theirs = after.cordoned;
            }
            self.nodes.insert(name, after);
            return;
        }
        let Some(before) = before else {
            self.wrong.push(format!("makes node {name}"));
            return;
        };
        if !after.cordoned {
            after.theirs = false;
        }
        self.nodes.insert(name.clone(), after.clone());
        self.taints(&name, &before, &after);
        match (before.cordoned, after.cordoned) {
            (false, true) => self.cordons(&name, &before, &after),
            (true, false) => self.uncordons(&name, &before, &after),
            (true, true) if before.mark != after.mark => self.hands_over(&name, &before, &after),
            (false, false) if after.mark.is_some() => {
                self.fault(6, format!("marks {name} and does not cordon it"));
            }
            _ => {}
        }
    }

    fn pod(&mut self, write: &Write<'_>, ours: bool) {
        let key = format!("{}/{}", write.namespace(), write.name());
        let known = self.pods.get(&key).cloned();
        let after = write.after().map(|pod| Pod::of(&pod, known.as_ref()));
        let before = known.unwrap_or_default();
        match &after {
            Some(after) => _ = self.pods.insert(key.clone(), after.clone()),
            None => _ = self.pods.remove(&key),
        }
        if let Some(after) = after.as_ref().filter(|after| after.node != before.node) {
            self.arrives(&key, after);
        }
        if !ours {
            return;
        }
        if write.before().is_none() {
            self.wrong.push(format!("makes pod {key}"));
            return;
        }
        let leaves = !before.leaving && after.as_ref().is_none_or(|after| after.leaving);
        if leaves {
            self.evicts(&key, &before, write.uid());
        }
    }

    fn claim(&mut self, write: &Write<'_>, ours: bool) {
        let name = write.name().to_owned();
        let before = self.claims.get(&name).cloned();
        // What others keep of a claim that the operator let go is a claim no more.
        let is_left = |object: &Value| is_let_go(object) && (ours || before.is_none());
        let Some(object) = write.after().filter(|object| !is_left(object)) else {
            self.claims.remove(&name);
            if let Some(claim) = before.filter(|_| ours) {
                self.lets_go(&name, &claim);
            }
            return;
        };
        let mut after = Claim::of(&object, before.as_ref());
        after.node = host(&self.plane, &after.node);
        self.claims.insert(name.clone(), after.clone());
        if before.as_ref().is_none_or(|before| before.uid != after.uid || before.state != after.state) {
            self.turns.push((Instant::now(), name.clone(), after.state.clone()));
        }
        if !ours {
            return;
        }
        let parked = |claim: &Claim| claim.state == "Parked";
        self.parked += usize::from(parked(&after) && !before.as_ref().is_some_and(parked));
        match before {
            None => self.claims_it(&name, &after),
            Some(before) if before.uid == after.uid && before.state != after.state => {
                if after.state == "Upgrading" {
                    self.given.push((Instant::now(), name.clone()));
                }
                self.goes_on(&name, &before, &after);
            }
            Some(_) => {}
        }
        self.says_why(&name, &after);
    }

    fn upgrade(&mut self, write: &Write<'_>, ours: bool) {
        let name = write.name().to_owned();
        let before = self.upgrades.get(&name).cloned();
        let Some(object) = write.after() else {
            self.upgrades.remove(&name);
            // Somebody deleted it before, and it went with our finalizer.
            let ended = write.before().is_some_and(|was| was["metadata"].get("deletionTimestamp").is_some());
            if ours && !ended {
                self.wrong.push(format!("deletes ClusterUpgrade {name}"));
            }
            return;
        };
        let after = Upgrade::of(&object, before.as_ref());
        self.upgrades.insert(name.clone(), after.clone());
        if !ours {
            self.approves(before.as_ref(), &after);
        }
        if ours {
            let all = after.status["conditions"].as_array().into_iter().flatten();
            for reason in all.filter(|of| of["type"] == "Ready").map(|of| text(&of["reason"])) {
                if self.said.last().is_none_or(|(_, last)| *last != reason) {
                    self.said.push((Instant::now(), reason.clone()));
                }
                self.reasons.insert(reason);
            }
            if before.as_ref().is_some_and(|before| before.generation != after.generation) {
                self.wrong.push(format!("changes the spec of ClusterUpgrade {name}"));
            }
            self.status(&name, before.as_ref(), &after);
        }
    }

    fn fault(&mut self, invariant: u8, what: impl std::fmt::Display) {
        self.wrong.push(format!("invariant {invariant}: {what}"));
    }

    /// How long whoever writes now may not know of what others did: longer for the one request that a fault held back, and
    /// for a program that has just been woken.
    fn moment(&self) -> Duration {
        MOMENT + self.late.unwrap_or_default() + self.blind.slept(&self.author)
    }

    /// Is it so for long enough that the operator must know?
    fn is_old(&self, since: Instant) -> bool {
        since.elapsed() > self.moment()
    }
}

/// Whether a claim is deleted, and does not wait for the operator.
fn is_let_go(claim: &Value) -> bool {
    let meta = &claim["metadata"];
    let waits =
        meta["finalizers"].as_array().is_some_and(|all| all.iter().any(|of| of == "evenkeel.dev/settle"));
    meta.get("deletionTimestamp").is_some() && !waits
}

/// The host of an apiserver that is named by its address, as where its host is no node.
pub fn host(plane: &ControlPlane, place: &str) -> String {
    let all = plane.addresses();
    let at = all.iter().position(|address| address.replace(':', "-") == place.replace(':', "-"));
    let named = |at: usize| plane.nodes().into_iter().nth(at);
    at.and_then(named).unwrap_or_else(|| place.to_owned())
}

/// Are all of `wanted` among `labels`?
fn selects(wanted: &Labels, found: &Labels) -> bool {
    wanted.iter().all(|(key, value)| found.get(key) == Some(value))
}
