//! The cluster as a program sees it: how it is made, and the clients that it gives out.
//!
//! Here belongs what a test or a program calls; what it sets in motion is in the other modules. The invariant: on a
//! paused runtime, one seed and the same calls give one history.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{ApiState, Body, Kinds, Release, Server, Shared, WriteOptions};
use crate::clock::Clock;
use crate::faults::Faults;
use crate::models::{ControlPlane, Kubelets};
use crate::observed_write::Write;
use crate::random::Random;
use crate::store::{Store, WriteObserver};

/// The settings of a cluster that is to be made.
#[derive(Clone, Debug)]
pub struct Builder {
    seed: u64,
    version: String,
    began: Timestamp,
    hashed: bool,
    network: [u8; 3],
}

/// A cluster. Cloning it is another handle on the same one.
#[derive(Clone, Debug)]
pub struct Cluster {
    shared: Shared,
    release: Arc<Release>,
    faults: Faults,
    kubelets: Kubelets,
    control: ControlPlane,
    #[allow(dead_code, reason = "its drop ends the models")]
    models: Arc<Models>,
}

/// The task of the models; it ends with the last handle on the cluster.
#[derive(Debug)]
struct Models(tokio::task::AbortHandle);

impl Drop for Models {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cluster {
    /// The settings of a cluster: at first seed 0, the newest version that is known, and no nodes.
    pub fn builder() -> Builder {
        Builder {
            seed: 0,
            version: "v1.37.1".into(),
            began: Timestamp::constant(1_767_225_600, 0),
            hashed: false,
            network: [192, 0, 2],
        }
    }

    /// A client. Each has its own connection: one that crashes leaves the others alone.
    ///
    /// It has to be made inside a tokio runtime, as any `kube::Client`.
    pub fn client(&self) -> kube::Client {
        self.client_of("kube-rs")
    }

    /// A client of a program with that name, which field managers and fault rules see.
    pub fn client_of(&self, agent: &str) -> kube::Client {
        self.process(agent).client()
    }

    /// A program of that name: its clients live and crash together.
    pub fn process(&self, agent: &str) -> Process {
        Process(self.server(agent, self.release.clone()))
    }

    /// A client of an API server of another version, such as `v1.36.4`: in the middle of an upgrade a cluster has several.
    pub fn client_at(&self, agent: &str, version: &str) -> kube::Client {
        kube::Client::new(Service(self.server(agent, Arc::new(Release::new(version)))), "default")
    }

    /// What answers requests that go to the apiserver at that address, and to no other.
    pub(crate) fn server_at(&self, address: &str) -> Server {
        Server { endpoint: Some(address.into()), ..self.server("", self.release.clone()) }
    }

    /// What answers the requests of `agent`, as an apiserver of that release does.
    pub(crate) fn server(&self, agent: &str, release: Arc<Release>) -> Server {
        Server {
            shared: self.shared.clone(),
            release,
            faults: self.faults.clone(),
            control: self.control.clone(),
            life: Arc::default(),
            agent: agent.into(),
            endpoint: None,
        }
    }

    /// The faults of this cluster: add to them at any time.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The kubelets: sets how long things take on nodes, and ends a kubelet.
    pub fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    /// The control-plane nodes, if there are any.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control
    }

    /// Adds control-plane nodes, with static pods of `version` each. Returns the nodes' names.
    pub fn add_control_plane(&self, group: &NodeGroup, version: &str) -> Vec<String> {
        let names = self.add_nodes(group);
        let mut state = self.shared.lock_as("kubelet");
        for name in &names {
            self.control.join(&mut state, name, version);
        }
        names
    }

    /// Replaces a component of a control-plane node, one of [`crate::COMPONENTS`], by a new process of this version.
    pub fn replace_component(&self, node: &str, component: &str, version: &str) {
        self.control.set(&mut self.shared.lock_as("kubelet"), node, component, version, true);
    }

    /// Ends a component of a control-plane node, or starts it again; `false` if the node has no such component.
    pub fn run_component(&self, node: &str, component: &str, runs: bool) -> bool {
        self.control.run(&mut self.shared.lock_as("kubelet"), node, component, runs)
    }

    /// Runs the components of a control plane, of `version` each, as processes of hosts that are no nodes: no pod shows
    /// them. Apiservers are known by their endpoints, the others by the leases that they hold. The objects that
    /// [`Cluster::load`] puts into a cluster do not say that such processes run: call this for that cluster, too.
    pub fn run_on_hosts(&self, hosts: &[&str], version: &str) {
        let mut state = self.shared.lock_as("kube-apiserver");
        for host in hosts {
            self.control.join(&mut state, host, version);
        }
    }

    /// Ends a component of a control-plane node and takes its mirror pod away, as a kubelet does that replaces a static
    /// pod, until [`Cluster::replace_component`] or [`Cluster::run_component`]; `false` if the node has no such
    /// component.
    pub fn take_component(&self, node: &str, component: &str) -> bool {
        self.control.take(&mut self.shared.lock_as("kubelet"), node, component)
    }

    /// Adds nodes, with a kubelet each. Returns the nodes' names.
    pub fn add_nodes(&self, group: &NodeGroup) -> Vec<String> {
        let mut state = self.shared.lock_as("kubelet");
        let Some(kind) = state.kinds.stored("nodes").cloned() else { return Vec::new() };
        let options = WriteOptions { manager: "kubelet".into(), ..WriteOptions::default() };
        let mut names = Vec::new();
        for at in 0..group.count {
            let name = format!("{}-{}", group.prefix, at + 1);
            let mut node = group.node(&name, at);
            self.kubelets.start(&name);
            // A name that is taken keeps its node.
            if state.create(&kind, None, node.take(), &options).is_ok() {
                names.push(name);
            }
        }
        names
    }

    /// Starts a kubelet again. It reports `version` from now on, which may be another version than before.
    ///
    /// `false` if there is no such node.
    pub fn start_kubelet(&self, node: &str, version: &str) -> bool {
        self.kubelets.start(node);
        crate::models::returned(&mut self.shared.lock_as("kubelet"), node, version)
    }

    /// Restarts a kubelet in another version: it is silent as long as [`crate::Times`] says, then it is back.
    pub fn restart_kubelet(&self, node: &str, version: &str) {
        self.kubelets.stop(node);
        let time = self.kubelets.restart_time(&mut self.shared.lock().random);
        let (cluster, node, version) = (self.clone(), node.to_owned(), version.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            cluster.start_kubelet(&node, &version);
        });
    }

    /// Lets a kubelet report a version without a restart, so that it can lie.
    pub fn claim_version(&self, node: &str, version: &str) -> bool {
        crate::models::returned(&mut self.shared.lock_as("kubelet"), node, version)
    }

    /// Every object that there is, CustomResourceDefinitions first. [`Cluster::load`] puts them into another cluster.
    pub fn dump(&self) -> Vec<Value> {
        let state = self.shared.lock();
        let mut shelves: Vec<_> = state.store.shelves().collect();
        shelves.sort_by_key(|(name, _)| &***name != "customresourcedefinitions.apiextensions.k8s.io");
        shelves.into_iter().flat_map(|(_, shelf)| shelf.live.values()).map(|record| record.copy()).collect()
    }

    /// Puts objects into the cluster as they are, such as those of a snapshot, with their UIDs, owners and status; only
    /// the resourceVersions are new. A control-plane component runs if its static pod is Ready. Objects of kinds that
    /// are not served are left out. Returns how many objects were put in.
    pub fn load(&self, objects: impl IntoIterator<Item = Value>) -> usize {
        let mut state = self.shared.lock_as("snapshot");
        let mut count = 0;
        for mut object in objects {
            let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
            let Some(kind) = state.kinds.by_kind(&text("apiVersion"), &text("kind")).cloned() else {
                continue;
            };
            if kind.decode(&mut object).is_err() {
                continue;
            }
            let metadata = &object["metadata"];
            let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
            let key = kind.key(Some(&text("namespace")), &text("name"));
            if text("uid").is_empty() {
                object["metadata"]["uid"] = state.random.uid().into();
            }
            if object["metadata"].get("creationTimestamp").is_none() {
                object["metadata"]["creationTimestamp"] = state.now().into();
            }
            if kind.kind == "Pod" {
                self.control.adopt(&object, &state.random.uid());
            }
            state.put(&kind, &key, object);
            count += 1;
        }
        count
    }

    /// The last revision of anything.
    pub fn revision(&self) -> u64 {
        self.shared.lock().store.revision()
    }

    /// The time in the cluster.
    pub fn now(&self) -> Timestamp {
        self.shared.lock().clock.now()
    }

    /// Tells `observer` every write from now on, as soon as it is done and before anybody else knows. `observer` must
    /// not use the cluster, which is locked meanwhile.
    pub fn on_write(&self, mut observer: impl FnMut(&Write<'_>) + Send + 'static) {
        let told = WriteObserver(Box::new(move |resource, change, author| {
            observer(&Write::new(resource, change, author));
        }));
        self.shared.lock().store.observe(told);
    }

    /// Sets the cluster's clock forward, or back. Timers do not notice, as on a real machine.
    pub fn jump(&self, by: SignedDuration) {
        self.shared.lock().clock.jump(by);
    }

    /// A hash of everything that was ever written, in order; `None` unless [`Builder::hashed`].
    pub fn history(&self) -> Option<u64> {
        self.shared.lock().store.hash()
    }

    /// Forgets everything before now: a watch from an earlier revision gets a 410, and continue tokens expire.
    pub fn compact(&self) {
        let mut state = self.shared.lock();
        let revision = state.store.revision();
        state.store.compact(revision);
    }
}

/// A program that uses the cluster.
#[derive(Clone, Debug)]
pub struct Process(Server);

impl Process {
    /// A client. It has to be made inside a tokio runtime, as any `kube::Client`.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(Service(self.0.clone()), "default")
    }

    /// A client that goes by another name, and lives and crashes with this program.
    pub fn client_as(&self, agent: &str) -> kube::Client {
        kube::Client::new(Service(Server { agent: agent.into(), ..self.0.clone() }), "default")
    }

    /// A client of the apiserver at that address alone: one of [`ControlPlane::addresses`].
    pub fn client_at(&self, address: &str) -> kube::Client {
        kube::Client::new(Service(Server { endpoint: Some(address.into()), ..self.0.clone() }), "default")
    }

    /// The program's name.
    pub fn agent(&self) -> &str {
        &self.0.agent
    }

    /// Whether the program has crashed.
    pub fn is_dead(&self) -> bool {
        self.0.life.is_over()
    }

    /// Stops the program for `time`, as with SIGSTOP and SIGCONT: see [`crate::faults::Fault::Pause`].
    pub fn pause(&self, time: Duration) {
        self.0.life.pause(time);
    }

    /// Crashes the program now: it sends no request and gets no answer any more.
    pub fn kill(&self) {
        self.0.life.end();
    }
}

/// Nodes that are alike.
#[derive(Clone, Debug)]
pub struct NodeGroup {
    prefix: String,
    count: usize,
    version: String,
    zones: Vec<String>,
    labels: Vec<(String, String)>,
    taints: Vec<Value>,
    capacity: (String, String, u32),
}

impl NodeGroup {
    /// `count` nodes called `<prefix>-1` and so on, of version v1.37.1, with 8 CPUs, 32 GiB and room for 110 pods each.
    pub fn new(prefix: impl Into<String>, count: usize) -> Self {
        Self {
            prefix: prefix.into(),
            count,
            version: "v1.37.1".into(),
            zones: Vec::new(),
            labels: Vec::new(),
            taints: Vec::new(),
            capacity: ("8".into(), "32Gi".into(), 110),
        }
    }

    /// The kubelets' version.
    #[must_use]
    pub fn kubelet(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Spreads the nodes over zones, one after the other.
    #[must_use]
    pub fn zones<S: Into<String>>(mut self, zones: impl IntoIterator<Item = S>) -> Self {
        self.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// A label of every node.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// A taint of every node, such as `("dedicated", "db", "NoSchedule")`.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(json!({"key": key, "value": value, "effect": effect}));
        self
    }

    /// What each node has: CPUs, memory, pods.
    #[must_use]
    pub fn capacity(mut self, cpu: impl Into<String>, memory: impl Into<String>, pods: u32) -> Self {
        self.capacity = (cpu.into(), memory.into(), pods);
        self
    }

    fn node(&self, name: &str, at: usize) -> Value {
        let mut labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
        if let Some(zone) = at.checked_rem(self.zones.len()).and_then(|at| self.zones.get(at)) {
            labels["topology.kubernetes.io/zone"] = zone.as_str().into();
        }
        for (key, value) in &self.labels {
            labels[key] = value.as_str().into();
        }
        let (cpu, memory, pods) = &self.capacity;
        let capacity = json!({"cpu": cpu, "memory": memory, "pods": pods.to_string()});
        json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": self.taints},
            "status": {"capacity": capacity, "allocatable": capacity, "nodeInfo": {"kubeletVersion": self.version,
                "osImage": "virtual", "operatingSystem": "linux", "architecture": "amd64", "containerRuntimeVersion": "virtual://1"},
                "addresses": [{"type": "Hostname", "address": name}]},
        })
    }
}

impl Builder {
    /// The seed of all chance in the cluster: the same seed gives the same history.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What `/version` says, such as `v1.36.4`.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// What the cluster's clock shows at the start; without it, 2026-01-01 00:00 UTC.
    #[must_use]
    pub fn starting_at(mut self, began: Timestamp) -> Self {
        self.began = began;
        self
    }

    /// Keeps a hash of the history, which costs a little with every write.
    #[must_use]
    pub fn hashed(mut self) -> Self {
        self.hashed = true;
        self
    }

    /// Gives control-plane nodes addresses of this network, such as `[127, 10, 20]`: see [`Cluster::serve_control_plane`].
    /// Without it the addresses are of 192.0.2.0/24, where no machine is.
    #[must_use]
    pub fn network(mut self, network: [u8; 3]) -> Self {
        self.network = network;
        self
    }

    /// Makes the cluster: its API, with the namespaces that every cluster has.
    ///
    /// It has to be called inside the tokio runtime whose clock the cluster uses, paused or not.
    pub fn start(self) -> Cluster {
        let release = Arc::new(Release::new(&self.version));
        let mut state = ApiState {
            store: Store::new(self.hashed),
            kinds: Kinds::default(),
            random: Random::new(self.seed),
            clock: Clock::starting_at(self.began),
            release: release.clone(),
        };
        let options =
            WriteOptions { manager: "kube-apiserver".into(), tracked: true, ..WriteOptions::default() };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let namespace = json!({"metadata": {"name": name}});
            if let Some(kind) = state.kinds.stored("namespaces").cloned() {
                // Nothing is there that it could clash with.
                let _ = state.create(&kind, None, namespace, &options);
            }
        }
        let service = json!({
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
        });
        if let Some(kind) = state.kinds.stored("services").cloned() {
            let _ = state.create(&kind, Some("default"), service, &options);
        }
        let shared = Shared::new(state);
        let kubelets = Kubelets::default();
        let control = ControlPlane::new(self.network);
        let running = crate::models::run(shared.clone(), kubelets.clone(), control.clone(), self.seed);
        let models = tokio::spawn(running);
        Cluster {
            shared,
            release,
            faults: Faults::default(),
            kubelets,
            control,
            models: Arc::new(Models(models.abort_handle())),
        }
    }
}

/// What `kube::Client` talks to.
#[derive(Clone, Debug)]
struct Service(Server);

impl tower::Service<Request<kube::client::Body>> for Service {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.0.clone().serve(request))
    }
}
