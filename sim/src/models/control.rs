//! Control-plane nodes: static pods, the leases by which apiservers and leaders are known, and the endpoints.
//!
//! What runs on each node is kept in a [`ControlPlane`]; the API shows it as mirror pods, and an apiserver answers
//! under its own address with its own version. A component that is stopped renews no lease: after 15 seconds the
//! component of another node takes its election lease over. A controller may be told to come late to its work: until
//! then it renews no lease either, and the models of its work stand still while nobody is at it. What the components do
//! besides that never belongs here; it is in the other models.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::model::{self, ModelStep};
use super::objects::{condition, leaving};
use crate::api::{ApiState, WriteOptions};
use crate::clock;
use crate::random::Random;
use crate::store::Change;

/// What may run on a control-plane node.
pub const COMPONENTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
const LEASES: &str = "leases.coordination.k8s.io";
const SLICES: &str = "endpointslices.discovery.k8s.io";
/// How often an apiserver renews its identity lease.
const IDENTITY: Duration = Duration::from_secs(10);
/// How often a leader renews its lease.
const LEADER: Duration = Duration::from_secs(2);
/// How long a leader's lease lasts after it was renewed last.
const LEASE_SECONDS: u32 = 15;
/// The components that elect a leader.
const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// One component on one node.
#[derive(Clone, Debug)]
struct Instance {
    version: String,
    runs: bool,
    /// The name of the process in leases: another one for each start.
    process: String,
    restarts: u32,
    /// Its kubelet has taken its pod away, to bring it back as another one.
    absent: bool,
    /// From when on it is at work, by the time for which the cluster has run.
    works_from: Duration,
}

#[derive(Debug)]
struct Processes {
    /// The first three numbers of every address.
    network: [u8; 3],
    /// By node and component.
    instances: BTreeMap<(String, String), Instance>,
    /// By node.
    addresses: BTreeMap<String, String>,
    /// The processes that lead, by their components.
    leading: BTreeMap<String, String>,
    /// How long a controller that is started takes to come to its work.
    late: Duration,
    /// A controller that ends gives up the lease that it holds.
    gives_up: bool,
}

impl Processes {
    /// Whether a process of `component` leads, and runs.
    fn works(&self, component: &str) -> bool {
        let leads = |((_, of), instance): (&(String, String), &Instance)| {
            of == component && instance.runs && self.leading.get(of) == Some(&instance.process)
        };
        self.instances.iter().any(leads)
    }
}

/// A handle on the control-plane nodes.
#[derive(Clone, Debug)]
pub struct ControlPlane(Arc<Mutex<Processes>>);

impl ControlPlane {
    /// Without nodes; those that join get addresses of this network.
    pub(crate) fn new(network: [u8; 3]) -> Self {
        let processes = Processes {
            network,
            instances: BTreeMap::new(),
            addresses: BTreeMap::new(),
            leading: BTreeMap::new(),
            late: Duration::ZERO,
            gives_up: false,
        };
        Self(Arc::new(Mutex::new(processes)))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Processes) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The address of each apiserver: `192.0.2.1:6443`.
    pub fn addresses(&self) -> Vec<String> {
        self.with(|processes| processes.addresses.values().map(|ip| format!("{ip}:6443")).collect())
    }

    /// The nodes, by name.
    pub fn nodes(&self) -> Vec<String> {
        self.with(|processes| processes.addresses.keys().cloned().collect())
    }

    /// The version of a component on a node, and whether it runs.
    pub fn component(&self, node: &str, component: &str) -> Option<(String, bool)> {
        let at = (node.to_owned(), component.to_owned());
        self.with(|processes| processes.instances.get(&at).map(|of| (of.version.clone(), of.runs)))
    }

    /// A controller that is started from now on takes so long to come to its work, as one that has many caches to fill. If
    /// it is not at once, controllers do nothing while none of their processes leads.
    pub fn set_late(&self, time: Duration) {
        self.with(|processes| processes.late = time);
    }

    /// A controller that ends from now on gives up its lease, as kube-scheduler does: nobody holds it then.
    pub fn set_gives_up(&self) {
        self.with(|processes| processes.gives_up = true);
    }

    /// Whether a controller, kube-controller-manager or kube-scheduler, is at work: one of its processes leads, and runs.
    pub fn works(&self, component: &str) -> bool {
        self.with(|processes| processes.works(component))
    }

    /// Whether the controller that `model` is part of has to wait for a process that leads.
    pub(super) fn holds_back(&self, model: &str) -> bool {
        CONTROLLERS.contains(&model)
            && self.with(|processes| !processes.late.is_zero() && !processes.works(model))
    }

    /// What the apiserver at an address says of its version; `None` if none answers there.
    pub(crate) fn version_at(&self, address: &str) -> Option<String> {
        let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
        self.with(|processes| {
            let node = processes.addresses.iter().find(|(_, of)| *of == ip)?.0.clone();
            let instance = processes.instances.get(&(node, "kube-apiserver".to_owned()))?;
            instance.runs.then(|| instance.version.clone())
        })
    }

    /// Puts the static pods of a new control-plane node into the cluster.
    pub(crate) fn join(&self, state: &mut ApiState, node: &str, version: &str) {
        let address = self.with(|processes| {
            let next = processes.addresses.len() + 1;
            let [a, b, c] = processes.network;
            processes
                .addresses
                .entry(node.to_owned())
                .or_insert_with(|| format!("{a}.{b}.{c}.{next}"))
                .clone()
        });
        let kind = state.kinds.stored("nodes").cloned();
        if let (Some(kind), Some(record)) = (kind, state.store.get("nodes", node).cloned()) {
            let mut object = record.copy();
            object["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "".into();
            object["spec"]["taints"] =
                json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
            object["status"]["addresses"] =
                json!([{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": node}]);
            state.put(&kind, node, object);
        }
        for component in COMPONENTS {
            self.set(state, node, component, version, true);
        }
        self.publish(state);
    }

    /// Takes note of a component that the static pod of a loaded cluster shows.
    pub(crate) fn adopt(&self, pod: &Value, process: &str) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let container = &pod["spec"]["containers"][0];
        let node = text(&pod["spec"]["nodeName"]);
        let component = COMPONENTS.into_iter().find(|of| container["name"] == *of);
        if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_none() {
            return;
        }
        let Some(component) = component.filter(|_| !node.is_empty()) else { return };
        let image = text(&container["image"]);
        let instance = Instance {
            version: image.rsplit(':').next().unwrap_or_default().to_owned(),
            runs: crate::record::ready(pod),
            process: process.to_owned(),
            restarts: 0,
            absent: false,
            works_from: Duration::ZERO,
        };
        self.with(|processes| {
            processes.addresses.insert(node.clone(), text(&pod["status"]["hostIP"]));
            processes.instances.insert((node, component.to_owned()), instance);
        });
    }

    /// Sets what runs on a node from now on: a new process, which its mirror pod shows.
    pub(crate) fn set(&self, state: &mut ApiState, node: &str, component: &str, version: &str, runs: bool) {
        let (process, now) = (state.random.uid(), state.clock.elapsed());
        self.ends(state, node, component);
        self.with(|processes| {
            let at = (node.to_owned(), component.to_owned());
            let restarts = processes.instances.get(&at).map_or(0, |before| before.restarts + 1);
            let (version, works_from) = (version.to_owned(), now + processes.late);
            let instance = Instance { version, runs, process, restarts, absent: false, works_from };
            processes.instances.insert(at, instance);
        });
        self.mirror(state, node, component);
        if component == "kube-apiserver" {
            self.publish(state);
        }
    }

    /// Ends a component, or starts it again as it was.
    pub(crate) fn run(&self, state: &mut ApiState, node: &str, component: &str, runs: bool) -> bool {
        let at = (node.to_owned(), component.to_owned());
        let Some(version) = self.with(|processes| processes.instances.get(&at).map(|of| of.version.clone()))
        else {
            return false;
        };
        self.set(state, node, component, &version, runs);
        true
    }

    /// Ends a component and takes its mirror pod away, until it is set or run again.
    pub(crate) fn take(&self, state: &mut ApiState, node: &str, component: &str) -> bool {
        self.ends(state, node, component);
        let at = (node.to_owned(), component.to_owned());
        let taken = self.with(|processes| {
            let Some(instance) = processes.instances.get_mut(&at) else { return false };
            (instance.runs, instance.absent) = (false, true);
            true
        });
        if taken && let Some(kind) = state.kinds.stored("pods").cloned() {
            state.remove(&kind, &format!("kube-system/{component}-{node}"));
        }
        if taken && component == "kube-apiserver" {
            self.publish(state);
        }
        taken
    }

    /// The process of `component` on `node` ends now, if there is one. It gives up the lease that it holds, if it is to.
    fn ends(&self, state: &mut ApiState, node: &str, component: &str) {
        let at = (node.to_owned(), component.to_owned());
        let gives_up = self.with(|processes| {
            let leads = |of: &Instance| of.runs && processes.leading.get(component) == Some(&of.process);
            processes.gives_up && processes.instances.get(&at).is_some_and(leads)
        });
        let (key, now) = (format!("kube-system/{component}"), clock::micros(state.clock.now()));
        let lease = state.store.get(LEASES, &key).filter(|_| gives_up).cloned();
        if let (Some(kind), Some(lease)) = (state.kinds.stored(LEASES).cloned(), lease) {
            let mut lease = lease.copy();
            let spec = &mut lease["spec"];
            (spec["holderIdentity"], spec["leaseDurationSeconds"]) = ("".into(), 1.into());
            (spec["acquireTime"], spec["renewTime"]) = (now.clone().into(), now.into());
            state.put(&kind, &key, lease);
        }
    }

    /// The pod by which the API shows what a node's kubelet runs from a file.
    fn mirror(&self, state: &mut ApiState, node: &str, component: &str) {
        let at = (node.to_owned(), component.to_owned());
        let Some((instance, address)) = self.with(|processes| {
            Some((
                processes.instances.get(&at)?.clone(),
                processes.addresses.get(node).cloned().unwrap_or_default(),
            ))
        }) else {
            return;
        };
        if instance.absent {
            return;
        }
        let (Some(kind), Some(owner)) =
            (state.kinds.stored("pods").cloned(), state.store.get("nodes", node).cloned())
        else {
            return;
        };
        let name = format!("{component}-{node}");
        let key = format!("kube-system/{name}");
        let image = format!("registry.k8s.io/{component}:{}", instance.version);
        if let Some(before) = state.store.get("pods", &key).cloned()
            && before.text().contains(&format!("{image:?}"))
        {
            // The manifest is the same, so the pod is: its container started or ended.
            let mut pod = before.copy();
            status(&mut pod, component, &image, &address, &instance, &state.now());
            state.put(&kind, &key, pod);
            return;
        }
        state.remove(&kind, &key);
        let hash = Random::new(state.store.revision()).uid();
        let pod = json!({
            "metadata": {"name": name, "namespace": "kube-system",
                "labels": {"component": component, "tier": "control-plane"},
                "annotations": {
                    "kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash,
                    "kubernetes.io/config.seen": state.now(), "kubernetes.io/config.source": "file",
                },
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": &*owner.uid, "controller": true}]},
            "spec": {"nodeName": node, "hostNetwork": true, "enableServiceLinks": false,
                "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
                "containers": [{"name": component, "image": image, "command": [component]}]},
        });
        let mut pod = pod;
        if component == "kube-apiserver" {
            let annotation = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint";
            pod["metadata"]["annotations"][annotation] = format!("{address}:6443").into();
        }
        let options = WriteOptions { manager: "kubelet".into(), tracked: true, ..WriteOptions::default() };
        if state.create(&kind, Some("kube-system"), pod, &options).is_ok()
            && let Some(made) = state.store.get("pods", &key).cloned()
        {
            let mut pod = made.copy();
            status(&mut pod, component, &image, &address, &instance, &state.now());
            state.put(&kind, &key, pod);
        }
    }

    /// The endpoints of the Service `default/kubernetes`: every apiserver that runs.
    fn publish(&self, state: &mut ApiState) {
        let running = self.with(|processes| {
            let runs = |node: &str| {
                processes
                    .instances
                    .get(&(node.to_owned(), "kube-apiserver".to_owned()))
                    .is_some_and(|of| of.runs)
            };
            let all = processes.addresses.iter().filter(|(node, _)| runs(node));
            all.map(|(_, ip)| json!({"addresses": [ip], "conditions": {"ready": true}}))
                .collect::<Vec<Value>>()
        });
        let Some(kind) = state.kinds.stored(SLICES).cloned() else { return };
        let key = "default/kubernetes";
        if let Some(before) = state.store.get(SLICES, key).cloned() {
            let mut slice = before.copy();
            if slice["endpoints"] != json!(running) {
                slice["endpoints"] = running.into();
                state.put(&kind, key, slice);
            }
            return;
        }
        let slice = json!({"metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4", "endpoints": running, "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]});
        let options =
            WriteOptions { manager: "kube-apiserver".into(), tracked: true, ..WriteOptions::default() };
        // Nothing is there that it could clash with.
        let _ = state.create(&kind, Some("default"), slice, &options);
    }

    fn processes(&self, component: &str) -> Vec<(String, Instance)> {
        self.with(|processes| {
            let all =
                processes.instances.iter().filter(|((_, of), instance)| of == component && instance.runs);
            all.map(|((node, _), instance)| (node.clone(), instance.clone())).collect()
        })
    }
}

fn status(pod: &mut Value, component: &str, image: &str, address: &str, instance: &Instance, now: &str) {
    let word = if instance.runs { "True" } else { "False" };
    let state = if instance.runs {
        json!({"running": {"startedAt": now}})
    } else {
        json!({"waiting": {"reason": "CrashLoopBackOff"}})
    };
    let status = &mut pod["status"];
    status["phase"] = "Running".into();
    status["hostIP"] = address.into();
    status["podIP"] = address.into();
    status["hostIPs"] = json!([{"ip": address}]);
    status["podIPs"] = json!([{"ip": address}]);
    if status["startTime"].is_null() {
        status["startTime"] = now.into();
    }
    status["containerStatuses"] = json!([{"name": component, "image": image, "imageID": "", "ready": instance.runs,
        "started": instance.runs, "restartCount": instance.restarts, "lastState": {}, "state": state}]);
    for kind in ["Initialized", "ContainersReady", "Ready", "PodScheduled"] {
        let word = if matches!(kind, "Initialized" | "PodScheduled") { "True" } else { word };
        condition(status, &json!({"type": kind, "status": word, "lastProbeTime": null}), now);
    }
}

/// The leases of the control plane, and the static pods that somebody deletes.
pub(super) struct ControlModel {
    control: ControlPlane,
}

impl ControlModel {
    pub(super) fn new(control: ControlPlane) -> Self {
        Self { control }
    }

    /// Renews a lease for `holder`, or takes it.
    fn hold(&self, world: &mut ModelStep<'_>, name: &str, labels: &Value, seconds: u32, holder: &str) {
        let (key, now) = (format!("kube-system/{name}"), clock::micros(world.state.clock.now()));
        let Some(before) = world.record(LEASES, &key) else {
            let lease = json!({"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": holder,
                "leaseDurationSeconds": seconds, "acquireTime": now, "renewTime": now, "leaseTransitions": 0}});
            // It is tried again at the next renewal.
            let _ = world.create(LEASES, Some("kube-system"), lease);
            return;
        };
        if before.text().contains(&format!("\"holderIdentity\":{holder:?}")) {
            let now = world.state.clock.now();
            let _ = world.state.store.beat(LEASES, &key, now);
            return;
        }
        let _ = world.change(LEASES, &key, false, |lease| {
            let spec = &mut lease["spec"];
            let transitions = spec["leaseTransitions"].as_i64().unwrap_or(0);
            (spec["holderIdentity"], spec["leaseDurationSeconds"]) = (holder.into(), seconds.into());
            (spec["acquireTime"], spec["renewTime"]) = (now.clone().into(), now.into());
            spec["leaseTransitions"] = (transitions + 1).into();
        });
    }

    fn elect(&self, component: &str, world: &mut ModelStep<'_>) {
        let now = world.state.clock.elapsed();
        let mut processes = self.control.processes(component);
        processes.retain(|(_, of)| of.works_from <= now);
        let holder = |(node, of): &(String, Instance)| format!("{node}_{}", of.process);
        let lease = world.get(LEASES, &format!("kube-system/{component}"));
        let held = lease.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let held = held.filter(|holder| !holder.is_empty());
        let still = processes.iter().find(|process| held == Some(&holder(process)));
        let renewed = lease.as_ref().and_then(|lease| clock::read(lease["spec"]["renewTime"].as_str()?));
        let silent = renewed.is_none_or(|at| {
            world.state.clock.now().duration_since(at).as_secs() >= i64::from(LEASE_SECONDS)
        });
        let next = still.or_else(|| processes.first().filter(|_| held.is_none() || silent));
        if let Some(next) = next {
            let process = next.1.process.clone();
            self.control.with(|processes| processes.leading.insert(component.to_owned(), process));
            self.hold(world, component, &json!({}), LEASE_SECONDS, &holder(next));
        }
    }
}

impl model::Model for ControlModel {
    fn name(&self) -> &'static str {
        "kube-control-plane"
    }

    fn begin(&mut self) -> Vec<(Duration, String)> {
        vec![(Duration::ZERO, "identities".into()), (Duration::from_millis(500), "leaders".into())]
    }

    fn keys(&mut self, resource: &str, change: &Change, _: &ApiState) -> Vec<String> {
        if resource == "pods" && change.record.namespace() == "kube-system" && change.deleted {
            return vec![format!("pod|{}", change.record.name())];
        }
        Vec::new()
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        match key {
            "identities" => {
                for (node, instance) in self.control.processes("kube-apiserver") {
                    let id = node.bytes().fold(7_u64, |id, byte| id.wrapping_mul(131) ^ u64::from(byte));
                    let name = format!("apiserver-{}", Random::new(id).suffix(26));
                    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": node});
                    let holder = format!("{name}_{}", instance.process);
                    self.hold(world, &name, &labels, 3600, &holder);
                }
                world.after(IDENTITY, key);
            }
            "leaders" => {
                for component in CONTROLLERS {
                    self.elect(component, world);
                }
                world.after(LEADER, key);
            }
            _ => {
                // A kubelet brings the mirror pod back that somebody deleted.
                let Some(name) = key.strip_prefix("pod|") else { return };
                let found = COMPONENTS.iter().find_map(|component| {
                    Some((*component, name.strip_prefix(component)?.strip_prefix('-')?.to_owned()))
                });
                let there =
                    world.get("pods", &format!("kube-system/{name}")).is_some_and(|pod| !leaving(&pod));
                if let Some((component, node)) = found.filter(|_| !there) {
                    let control = self.control.clone();
                    control.mirror(world.state, &node, component);
                }
            }
        }
    }
}
