//! How the watcher learns what the operator cannot know: it hears of every fault that is met, and of every request and
//! event that tells anew.
//!
//! The invariant: nothing is excused any more after the object was told of again, or its kind was read again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_sim::Cluster;
use evenkeel_sim::faults::{Call, Fault, Told, WatchFault};
use serde_json::Value;
use tokio::time::Instant;

use super::super::super::script::{Step, kind_of};
use super::blind::{Ends, MOMENT, Spot, UPGRADES, key};
use super::{Watcher, text};

/// What the watcher must know of a script to be fair.
pub fn fair(watcher: &mut Watcher, script: &[Step]) {
    for step in script {
        watcher.expects(step);
        // What is lost or late is found out where it is: by `asked` and `told_of`.
        match step {
            Step::At { deed, .. } if deed.starts_with("blackout") || deed.starts_with("cut") => {
                watcher.events_may_fail = true;
            }
            Step::At { deed, .. } => watcher.clocks_jump |= deed.starts_with("jump"),
            Step::Call { .. } | Step::Like { .. } | Step::Told { .. } => watcher.events_may_fail = true,
        }
    }
}

/// For how long `fault` holds something back.
fn lasts(fault: &str) -> Option<Duration> {
    let (word, seconds) = fault.split_once(':')?;
    let holds = matches!(word, "late" | "delay" | "pause");
    holds.then(|| Duration::from_secs(seconds.parse().unwrap_or(0)))
}

/// The object that an event is about.
fn object_of(told: &Told) -> String {
    let event: Value = serde_json::from_str(&told.line).unwrap_or_default();
    let metadata = &event["object"]["metadata"];
    key(&text(&metadata["namespace"]), &text(&metadata["name"]))
}

/// Lets the watcher know of everything that programs ask and are told. What meets a fault is known to be so only if this
/// comes before the faults are put into the cluster.
pub fn attend(cluster: &Cluster, watcher: &Arc<Mutex<Watcher>>) {
    let (asks, hears) = (Arc::clone(watcher), Arc::clone(watcher));
    let asked = move |call: &Call| {
        asks.lock().unwrap_or_else(PoisonError::into_inner).asked(call);
        false
    };
    // Neither ever fits: they are there to be asked.
    cluster.faults().when(asked, Fault::Compact, 1);
    let told = move |told: &Told| {
        hears.lock().unwrap_or_else(PoisonError::into_inner).told_of(told);
        false
    };
    cluster.faults().when_told(told, WatchFault::Drop, 1);
}

impl Watcher {
    /// Remembers what is going to go wrong.
    pub fn expects(&mut self, step: &Step) {
        let times = match step {
            Step::Call { times, .. } => *times,
            Step::Like { .. } => u64::MAX,
            Step::Told { .. } => 1,
            Step::At { .. } => return,
        };
        self.blind.faults.push((step.clone(), times));
    }

    /// The fault that the first of the steps that `fits` brings.
    fn meets(&mut self, fits: impl Fn(&Step) -> bool) -> Option<String> {
        let (step, left) = self.blind.faults.iter_mut().find(|(step, left)| *left > 0 && fits(step))?;
        *left -= 1;
        match step {
            Step::Call { fault, .. } | Step::Like { fault, .. } | Step::Told { fault, .. } => {
                Some(fault.clone())
            }
            Step::At { .. } => None,
        }
    }

    /// From now on `agent` does not know what happens to `object`, or to any object.
    pub fn lose(&mut self, agent: &str, resource: &str, object: Option<String>) {
        self.blinds(agent, resource, object, Some(Instant::now()), Ends::List);
    }

    fn blinds(
        &mut self,
        agent: &str,
        resource: &str,
        object: Option<String>,
        from: Option<Instant>,
        ends: Ends,
    ) {
        // What is told now happened a moment ago.
        let from = from.map(|from| from.checked_sub(MOMENT).unwrap_or(from));
        self.blind.add(Spot {
            agent: agent.to_owned(),
            resource: resource.to_owned(),
            object,
            from,
            until: Instant::now() + ends.at_last(),
            ends,
        });
    }

    fn ends(&mut self, which: impl Fn(&Spot) -> bool) {
        self.blind.ends(Instant::now() + MOMENT, which);
    }

    /// A program asks.
    fn asked(&mut self, call: &Call) {
        let fault = self.meets(|step| match step {
            Step::Call { agent, nth, .. } => *agent == call.agent && call.nth >= *nth,
            Step::Like { agent, line, .. } => *agent == call.agent && kind_of(call) == *line,
            Step::Told { .. } | Step::At { .. } => false,
        });
        let namespace = call.namespace.clone().unwrap_or_default();
        let object = call.name.as_ref().map(|name| key(&namespace, name));
        let (agent, resource) = (call.agent.as_str(), call.resource.as_str());
        let word = fault.as_deref().map(|fault| fault.split(':').next().unwrap_or(fault));
        let now = Some(Instant::now());
        let time = fault.as_deref().and_then(lasts);
        if let Some(time) = time.filter(|_| call.is_write()) {
            self.blind.holds_back(call, time);
        }
        if let Some(time) = time.filter(|_| word == Some("pause")) {
            self.blind.sleeps(agent, time);
        }
        match (word, call.verb) {
            (None, "list") => {
                // A fresh look at the pods of a node is a list, too, and tells nothing of others.
                let whole = resource != "pods";
                self.ends(|spot| {
                    let ended = spot.ends != Ends::List || whole;
                    spot.agent == agent && spot.resource == resource && ended
                });
            }
            (None, "watch") => {
                self.ends(|spot| spot.agent == agent && spot.resource == resource && spot.ends != Ends::List);
            }
            (None, "get") => self.ends(|spot| {
                let same = spot.object == object;
                spot.agent == agent && spot.resource == resource && same && spot.ends == Ends::Get
            }),
            (Some("late" | "delay" | "pause"), "list" | "watch") => {
                self.blinds(agent, resource, None, now, Ends::After(time.unwrap_or_default()));
            }
            (Some("late" | "delay" | "pause"), "get") => {
                self.blinds(agent, resource, object, now, Ends::After(time.unwrap_or_default()));
            }
            (Some("stale"), "list" | "watch") => self.blinds(agent, resource, None, None, Ends::Watch),
            (Some("stale"), "get") => self.blinds(agent, resource, object, None, Ends::Get),
            (Some("bookmarks"), "watch") => self.blinds(agent, resource, None, now, Ends::List),
            (Some("silence" | "hang-before" | "hang-after"), "list" | "watch") => {
                self.blinds(agent, resource, None, now, Ends::Watch);
            }
            _ => {}
        }
    }

    /// A program is told of an object, or would be.
    fn told_of(&mut self, told: &Told) {
        if told.agent == "evenkeel-a" {
            self.heard.entry(told.resource.clone()).or_default().push(Instant::now());
        }
        let fault = self.meets(|step| {
            matches!(step, Step::Told { agent, resource, nth, .. }
                if *agent == told.agent && *resource == told.resource && *nth == told.nth)
        });
        match fault.as_deref() {
            Some("drop" | "swap") => {
                let object = object_of(told);
                self.blinds(&told.agent, &told.resource, Some(object), Some(Instant::now()), Ends::List);
            }
            Some(fault) if fault.starts_with("delay") => {
                let lag = lasts(fault).unwrap_or_default();
                self.blind.lags.push((told.agent.clone(), told.resource.clone(), lag));
            }
            None if self.blind.spots.iter().any(|spot| spot.resource == told.resource) => {
                let object = Some(object_of(told));
                self.ends(|spot| {
                    spot.agent == told.agent && spot.resource == told.resource && spot.object == object
                });
            }
            _ => {}
        }
    }

    /// Whether who wrote last cannot know what has been so of `object` since `since`.
    pub(super) fn is_blind(&self, resource: &str, object: &str, since: Instant) -> bool {
        self.blind.hides(&self.author, resource, object, since)
    }

    /// Whether the operator must know what has been so of a node since `since`.
    pub(super) fn knows_node(&self, name: &str, since: Instant) -> bool {
        self.is_old(since) && !self.is_blind("nodes", name, since)
    }

    /// The same of a pod, `namespace/name`.
    pub(super) fn knows_pod(&self, name: &str, since: Instant) -> bool {
        self.is_old(since) && !self.is_blind("pods", name, since)
    }

    /// The same of a claim.
    pub(super) fn knows_claim(&self, name: &str, since: Instant) -> bool {
        self.is_old(since) && !self.is_blind("nodeupgrades.evenkeel.dev", name, since)
    }

    /// The same of what a person wants of an upgrade.
    pub(super) fn knows_upgrade(&self, name: &str, since: Instant) -> bool {
        self.is_old(since) && !self.is_blind(UPGRADES, name, since)
    }

    /// The same of a component of the control plane, which shows in its pod, its lease, its node and, as a kube-apiserver,
    /// in the endpoints of the API.
    pub(super) fn knows_instance(&self, node: &str, component: &str, since: Instant) -> bool {
        self.is_old(since) && !self.is_blind_of_instance(node, component, since)
    }

    pub(super) fn is_blind_of_instance(&self, node: &str, component: &str, since: Instant) -> bool {
        let pod = format!("kube-system/{component}-{node}");
        let lease = format!("kube-system/{component}");
        self.is_blind("pods", &pod, since)
            || self.is_blind("nodes", node, since)
            || self.is_blind("leases.coordination.k8s.io", &lease, since)
            || component == "kube-apiserver"
                && self.is_blind("endpointslices.discovery.k8s.io", "default/kubernetes", since)
    }
}
