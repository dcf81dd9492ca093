//! Kubelets: they start the pods of their node, say what became of them, end them in time, and send heartbeats.
//!
//! One model plays all kubelets. A kubelet that is stopped does nothing at all, like one that crashed. It reports the
//! version that a test gives it, so it can lie. A program says what the containers do of a pod that runs to an end:
//! among other things they may restart the kubelet of their node in another version.

mod heartbeats;
mod pod_life;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::control::ControlPlane;
use super::model::{self, ModelStep};
use crate::api::ApiState;
use crate::clock;
use crate::random::{Random, Spread};
use crate::store::Change;

/// How long things take; each time is drawn anew for every pod.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Times {
    /// To get the images that the node does not have. By default no time.
    pub pull: Spread,
    /// From a pod's binding, or its last image, to its containers running.
    pub start: Spread,
    /// From running to ready.
    pub ready: Spread,
    /// From a deletion to the containers' end, if the grace period is not shorter.
    pub terminate: Spread,
    /// How long a container of a Job runs.
    pub job: Spread,
    /// How long a kubelet that is restarted is silent.
    pub restart: Spread,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = |least, most| Spread::between(Duration::from_secs(least), Duration::from_secs(most));
        Self {
            pull: Spread::fixed(Duration::ZERO),
            start: Spread::between(Duration::from_millis(500), Duration::from_secs(2)),
            ready: seconds(1, 3),
            terminate: seconds(1, 5),
            job: seconds(5, 15),
            restart: seconds(5, 20),
        }
    }
}

/// What the containers of a pod do that runs to an end, when their time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deed {
    /// They end well.
    Succeed,
    /// They end badly.
    Fail,
    /// They never end.
    Hang,
    /// They go on, and are asked again after this time.
    GoOn(Duration),
    /// They end well, and the kubelet of their node is restarted and then says that it has this version.
    Kubelet(String),
    /// They end well, and the kubelet of their node never comes back.
    EndKubelet,
    /// They end well, and this component of their node, one of [`crate::COMPONENTS`], is replaced by one of this version.
    Component(&'static str, String),
}

type Program = Arc<dyn Fn(&Value) -> Deed + Send + Sync>;

#[derive(Clone, Debug, Default)]
struct Kubelet {
    down: bool,
    /// The kubelet was started again and has not looked at its pods yet.
    back: bool,
    images: BTreeSet<String>,
    /// The number of its address, which also tells it from an earlier kubelet of its name; 0 until its node is there.
    address: u32,
    /// How many heartbeats it has sent.
    beats: u32,
    /// The conditions of its node are those that a kubelet that is well reports.
    well: bool,
}

#[derive(Default)]
struct Fleet {
    times: Times,
    /// What containers do, by their pod.
    program: Option<Program>,
    /// Images that no registry has.
    missing: BTreeSet<String>,
    /// Never iterated, so its order does not matter.
    nodes: HashMap<Arc<str>, Kubelet>,
    addresses: u32,
    pods: u32,
}

/// A handle on all kubelets.
#[derive(Clone, Default)]
pub struct Kubelets(Arc<Mutex<Fleet>>);

impl std::fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.with(|fleet| {
            f.debug_struct("Kubelets").field("nodes", &fleet.nodes.len()).finish_non_exhaustive()
        })
    }
}

impl Kubelets {
    fn with<T>(&self, work: impl FnOnce(&mut Fleet) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the program that says what the containers do of a pod that runs to an end. Without a program all end well.
    pub fn set_program(&self, program: impl Fn(&Value) -> Deed + Send + Sync + 'static) {
        self.with(|fleet| fleet.program = Some(Arc::new(program)));
    }

    /// Sets whether this image is missing in every registry from now on.
    pub fn set_missing(&self, image: &str, missing: bool) {
        self.with(|fleet| {
            if missing {
                fleet.missing.insert(image.to_owned());
            } else {
                fleet.missing.remove(image);
            }
        });
    }

    pub(crate) fn restart_time(&self, random: &mut Random) -> Duration {
        self.with(|fleet| fleet.times.restart.clone()).draw(random)
    }

    /// Ends a kubelet: no heartbeat and no pod of its node moves until it is started again.
    pub fn stop(&self, node: &str) {
        self.with(|fleet| fleet.nodes.entry(node.into()).or_default().down = true);
    }

    /// Starts a kubelet that was stopped. It finds its pods as they are, and goes on with each when it has said that it
    /// is back.
    pub(crate) fn start(&self, node: &str) {
        self.with(|fleet| {
            let kubelet = fleet.nodes.entry(node.into()).or_default();
            kubelet.back |= std::mem::take(&mut kubelet.down);
        });
    }

    fn runs(&self, node: &str) -> bool {
        self.with(|fleet| fleet.nodes.get(node).is_none_or(|kubelet| !kubelet.down))
    }
}

pub(super) struct KubeletModel {
    kubelets: Kubelets,
    control: ControlPlane,
    /// The next step of each pod that has a timer for it.
    timed: HashMap<String, &'static str>,
    /// By timer: the nodes whose next heartbeats it is for, each with its kubelet's number.
    beats: HashMap<u64, Vec<(Arc<str>, u32)>>,
    /// The timer that was made last, and when.
    next_beats: (Duration, u64),
}

impl KubeletModel {
    pub(super) fn new(kubelets: Kubelets, control: ControlPlane) -> Self {
        Self {
            kubelets,
            control,
            timed: HashMap::new(),
            beats: HashMap::new(),
            next_beats: (Duration::ZERO, 0),
        }
    }
}

impl model::Model for KubeletModel {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            "pods" if change.deleted => {
                self.timed.remove(&*change.record.key);
                Vec::new()
            }
            "pods" if change.record.node.is_some() => vec![format!("pod|{}", change.record.key)],
            "nodes" if change.deleted => {
                self.kubelets.with(|fleet| fleet.nodes.remove(&*change.record.key));
                Vec::new()
            }
            "nodes" => {
                let name = &*change.record.key;
                // Only a kubelet that is well writes this reason.
                let well = change.record.text().contains("\"KubeletReady\"");
                let (begins, back) = self.kubelets.with(|fleet| {
                    fleet.addresses += 1;
                    let address = fleet.addresses;
                    let kubelet = fleet.nodes.entry(name.into()).or_default();
                    kubelet.well = well;
                    let begins = kubelet.address == 0;
                    if begins {
                        kubelet.address = address;
                    }
                    (begins, std::mem::take(&mut kubelet.back))
                });
                let mut keys = if begins { vec![format!("first|{name}")] } else { Vec::new() };
                if back {
                    keys.extend(state.store.pods_of(name).iter().map(|pod| format!("pod|{}", pod.key)));
                }
                keys
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        if let Some(pod) = key.strip_prefix("pod|") {
            self.pod(pod, false, world);
        } else if let Some(pod) = key.strip_prefix("due|") {
            self.pod(pod, true, world);
        } else if let Some(timer) = key.strip_prefix("beats|") {
            let due = timer.parse().ok().and_then(|timer| self.beats.remove(&timer));
            let mut due: Vec<(Arc<str>, u32)> = due.unwrap_or_default();
            // In order of names, neighbours in the store are looked up one after the other, which is faster.
            due.sort_unstable();
            let now = world.state.clock.now();
            due.retain(|(node, kubelet)| self.beat(node, *kubelet, now, world));
            self.again(due, world);
        } else if let Some(node) = key.strip_prefix("first|") {
            let kubelet = self.kubelets.with(|fleet| fleet.nodes.get(node).map(|kubelet| kubelet.address));
            let due = kubelet.map(|kubelet| (Arc::from(node), kubelet));
            let now = world.state.clock.now();
            let due = due.filter(|(node, kubelet)| self.beat(node, *kubelet, now, world));
            self.again(due.into_iter().collect(), world);
        } else if let Some((node, version)) = key.strip_prefix("back|").and_then(|rest| rest.split_once('|'))
        {
            self.kubelets.start(node);
            returned(world.state, node, version);
        }
    }
}

/// Writes what a kubelet reports when it begins: its version. `false` if there is no such node.
pub(crate) fn returned(state: &mut ApiState, node: &str, version: &str) -> bool {
    let Some(kind) = state.kinds.stored("nodes").cloned() else { return false };
    let Some(before) = state.store.get("nodes", node).cloned() else { return false };
    let mut object = before.copy();
    object["status"]["nodeInfo"]["kubeletVersion"] = version.into();
    let now = clock::seconds(state.clock.now());
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastHeartbeatTime"] = now.clone().into();
    }
    state.put(&kind, node, object);
    true
}
