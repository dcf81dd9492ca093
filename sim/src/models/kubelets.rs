//! Kubelets: they start the pods of their node, say what became of them, end them in time, and send heartbeats.
//!
//! One model plays all of them. A kubelet that is stopped does nothing at all, as one that crashed; what it says of
//! itself is what the cluster was told, so it can lie.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::{World, condition, leaving};
use crate::api::{Deletion, State};
use crate::clock;
use crate::store::Change;

/// How kubelets behave: least and most of each time, drawn anew for every pod.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Times {
    /// From a pod's binding to its containers running.
    pub start: (Duration, Duration),
    /// From running to ready.
    pub ready: (Duration, Duration),
    /// From a deletion to the containers' end, if the grace period is not shorter.
    pub terminate: (Duration, Duration),
    /// How long a container of a Job runs.
    pub job: (Duration, Duration),
}

impl Default for Times {
    fn default() -> Self {
        let seconds = |least, most| (Duration::from_secs(least), Duration::from_secs(most));
        Self {
            start: (Duration::from_millis(500), Duration::from_secs(2)),
            ready: seconds(1, 3),
            terminate: seconds(1, 5),
            job: seconds(5, 15),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Kubelet {
    down: bool,
    /// Its heartbeat timer runs.
    beats: bool,
    address: u32,
}

#[derive(Debug, Default)]
struct Inner {
    times: Times,
    nodes: BTreeMap<String, Kubelet>,
    addresses: u32,
    pods: u32,
}

/// A handle on all kubelets.
#[derive(Clone, Debug, Default)]
pub struct Kubelets(Arc<Mutex<Inner>>);

impl Kubelets {
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long things take from now on.
    pub fn set_times(&self, times: Times) {
        self.with(|inner| inner.times = times);
    }

    /// Ends a kubelet: no heartbeat and no pod of its node moves until it is started again.
    pub fn stop(&self, node: &str) {
        self.with(|inner| inner.nodes.entry(node.to_owned()).or_default().down = true);
    }

    /// Starts a kubelet that was stopped. It finds its pods as they are.
    pub(crate) fn start(&self, node: &str) {
        self.with(|inner| inner.nodes.entry(node.to_owned()).or_default().down = false);
    }

    fn runs(&self, node: &str) -> bool {
        self.with(|inner| inner.nodes.get(node).is_none_or(|kubelet| !kubelet.down))
    }
}

pub(super) struct Model {
    kubelets: Kubelets,
    /// Pods whose next step has its time already.
    timed: BTreeMap<String, &'static str>,
}

const LEASE: Duration = Duration::from_secs(10);
/// A node says how it is this often even if nothing changed: so many leases.
const STATUS: u32 = 30;

impl Model {
    pub(super) fn new(kubelets: Kubelets) -> Self {
        Self { kubelets, timed: BTreeMap::new() }
    }
}

impl super::Model for Model {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn keys(&mut self, resource: &str, change: &Change, _: &State) -> Vec<String> {
        match resource {
            "pods" if change.deleted => {
                self.timed.remove(&*change.record.key);
                Vec::new()
            }
            "pods" if change.record.node.is_some() => vec![format!("pod|{}", change.record.key)],
            "nodes" if change.deleted => {
                self.kubelets.with(|inner| inner.nodes.remove(&*change.record.key));
                Vec::new()
            }
            "nodes" => {
                let name = change.record.key.to_string();
                let beats = self.kubelets.with(|inner| {
                    inner.addresses += 1;
                    let address = inner.addresses;
                    let kubelet = inner.nodes.entry(name.clone()).or_default();
                    if kubelet.address == 0 {
                        kubelet.address = address;
                    }
                    std::mem::replace(&mut kubelet.beats, true)
                });
                if beats { Vec::new() } else { vec![format!("beat|0|{name}")] }
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut World<'_>) {
        if let Some(pod) = key.strip_prefix("pod|") {
            self.pod(pod, false, world);
        } else if let Some(pod) = key.strip_prefix("due|") {
            self.pod(pod, true, world);
        } else if let Some((count, node)) = key.strip_prefix("beat|").and_then(|rest| rest.split_once('|')) {
            self.beat(count.parse().unwrap_or(0), node, world);
        }
    }
}

fn draw(world: &mut World<'_>, (least, most): (Duration, Duration)) -> Duration {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(world.random.between(micros(least), micros(most)))
}

impl Model {
    /// One step of a pod's life; `due` if the time that was drawn for it is over.
    fn pod(&mut self, key: &str, due: bool, world: &mut World<'_>) {
        let Some(record) = world.record("pods", key) else { return };
        let Some(node) = record.node.clone() else { return };
        if !world.state.store.get("nodes", &node).is_some_and(|_| self.kubelets.runs(&node)) {
            self.timed.remove(key);
            return;
        }
        let pod = record.value();
        // A mirror pod is what its manifest says; nobody here starts or ends it.
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let finished = matches!(phase, "Succeeded" | "Failed");
        let ready = crate::api::ready(&pod);
        let once = pod["spec"]["restartPolicy"] != "Always";
        let times = self.kubelets.with(|inner| inner.times.clone());
        let (next, time) = if leaving(&pod) {
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
            (
                "end",
                if finished {
                    (Duration::ZERO, Duration::ZERO)
                } else {
                    let most = Duration::from_secs(grace);
                    (times.terminate.0.min(most), times.terminate.1.min(most))
                },
            )
        } else if finished {
            return;
        } else if phase == "Pending" {
            ("start", times.start)
        } else if !ready
            && !pod["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter().any(|found| found["type"] == "Ready" && found["reason"].is_string())
            })
        {
            ("ready", times.ready)
        } else if once {
            ("finish", times.job)
        } else {
            return;
        };
        if !due {
            if self.timed.get(key) != Some(&next) {
                self.timed.insert(key.to_owned(), next);
                let time = draw(world, time);
                world.after(time, format!("due|{key}"));
            }
            return;
        }
        if self.timed.get(key) != Some(&next) {
            return;
        }
        self.timed.remove(key);
        let now = world.now();
        if next == "end" {
            let how = Deletion { grace: Some(0), uid: Some(record.uid.to_string()), ..Deletion::default() };
            let _ = world.delete("pods", key, &how);
            return;
        }
        let (host, address) = self.kubelets.with(|inner| {
            inner.pods += u32::from(next == "start");
            (inner.nodes.get(&*node).map_or(0, |kubelet| kubelet.address), inner.pods)
        });
        let _ = world.change("pods", key, true, |pod| step(pod, next, &now, host, address));
    }

    /// Renews the lease, and now and then the node's status.
    fn beat(&mut self, count: u32, node: &str, world: &mut World<'_>) {
        let Some(record) = world.record("nodes", node) else { return };
        world.after(LEASE, format!("beat|{}|{node}", (count + 1) % STATUS));
        if !self.kubelets.runs(node) {
            return;
        }
        let now = world.state.clock.now();
        let key = format!("kube-node-lease/{node}");
        let time = clock::micros(now);
        if world.state.store.renew("leases.coordination.k8s.io", &key, &time).is_none() {
            let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": &*record.uid}]);
            let lease = json!({"metadata": {"name": node, "ownerReferences": owner},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time}});
            // One that is there without a time is somebody else's.
            let _ = world.create("leases.coordination.k8s.io", Some("kube-node-lease"), lease);
        }
        // Only a kubelet that is well gives this reason.
        let waits = !record.text.contains("\"KubeletReady\"");
        if count == 0 || waits {
            let now = clock::seconds(now);
            let mut object = record.value();
            for (kind, word, reason, message) in [
                (
                    "MemoryPressure",
                    "False",
                    "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available",
                ),
                ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ] {
                let wanted = json!({"type": kind, "status": word, "reason": reason, "message": message, "lastHeartbeatTime": now});
                condition(&mut object["status"], &wanted, &now);
            }
            world.put("nodes", node, object, !waits);
            if waits {
                // Its pods were marked unready meanwhile.
                for pod in world.state.store.pods_of(node) {
                    world.after(Duration::ZERO, format!("pod|{}", pod.key));
                }
            }
        }
    }
}

fn step(pod: &mut Value, next: &str, now: &str, host: u32, address: u32) {
    let names: Vec<(String, String)> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| {
            let text = |name: &str| container[name].as_str().unwrap_or_default().to_owned();
            (text("name"), text("image"))
        })
        .collect();
    let finished = next == "finish";
    let ready = next == "ready";
    let state = if finished {
        json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": pod["status"]["startTime"], "finishedAt": now}})
    } else {
        json!({"running": {"startedAt": now}})
    };
    let status = &mut pod["status"];
    status["phase"] = if finished { "Succeeded".into() } else { "Running".into() };
    if next == "start" {
        let host = format!("10.128.{}.{}", host / 250, host % 250 + 1);
        let ip = format!("10.244.{}.{}", address / 250 % 250, address % 250 + 1);
        status["startTime"] = now.into();
        status["hostIP"] = host.clone().into();
        status["hostIPs"] = json!([{"ip": host}]);
        status["podIP"] = ip.clone().into();
        status["podIPs"] = json!([{"ip": ip}]);
    }
    status["containerStatuses"] = names
        .iter()
        .map(|(name, image)| {
            json!({"name": name, "image": image, "imageID": "", "lastState": {}, "ready": ready, "restartCount": 0,
                "started": !finished, "state": state})
        })
        .collect::<Vec<Value>>()
        .into();
    let word = if ready { "True" } else { "False" };
    for (kind, word) in [
        ("PodReadyToStartContainers", "True"),
        ("Initialized", "True"),
        ("ContainersReady", word),
        ("Ready", word),
    ] {
        let mut wanted = json!({"type": kind, "status": word, "lastProbeTime": null});
        if finished && word == "False" {
            wanted["reason"] = "PodCompleted".into();
        }
        condition(status, &wanted, now);
    }
}
