//! The demonstration: a virtual cluster, the operator running on it, and what a person can do to the cluster.
//!
//! Here belongs what happens to the cluster; what is shown of it belongs to the command line. The operator and the
//! observer are the real ones and know nothing of this. The invariant: a person's deeds go through the cluster's own
//! API or happen to its machines, never through the operator.

pub mod executor;
mod proposal;
mod scenario;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::cluster::{CORDON_ANNOTATION, Cluster as Seen};
use evenkeel_core::lease::LeaseTiming;
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::version::{KubeVersion, Minor};
use evenkeel_sim::serve::Served;
use evenkeel_sim::{Cluster, NodeGroup, Process, Write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use executor::Takes;
pub use scenario::Scenario;

use crate::clients::{Clients, one_line};
use crate::clock::Clock;
use crate::observe::cache::Shared;
use crate::observe::{Inventory, NotReady, Observer, PodScope};
use crate::operator::{self, OperatorOptions};

/// How old the cluster is when a person first sees it: older than the time after which the report names a
/// PodDisruptionBudget that allows no eviction.
const AGE: Duration = Duration::from_secs(13 * 60 + 10);
/// A kubelet version that the version skew policy forbids beside the kube-apiservers of every scenario.
const TOO_OLD: &str = "v1.32.13";
const APISERVER: &str = "kube-apiserver";
/// How long whoever changes versions takes.
const TAKES: Takes =
    Takes { work: Duration::from_secs(40), silent: Duration::from_secs(8), away: Duration::from_secs(6) };

/// The settings of a demonstration.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The seed of every random choice in the cluster.
    pub seed: u64,
    /// In which state the cluster begins.
    pub scenario: Scenario,
    /// Whether programs outside of this process, such as kubectl, will use the cluster.
    pub served: bool,
}

/// Something that happened, in one line.
#[derive(Clone, Debug)]
pub struct Happened {
    /// When it happened, in the cluster's time.
    pub at: Timestamp,
    /// True for an event that the operator published; false for a person's deed.
    pub by_operator: bool,
    /// What happened, for a person to read.
    pub line: String,
}

/// The running demonstration. Dropping it stops the operator and the watches.
pub struct Demo {
    cluster: Cluster,
    client: Client,
    observer: Observer,
    happened: Arc<Mutex<Vec<Happened>>>,
    joined: Mutex<usize>,
    _stop: DropGuard,
}

impl Demo {
    /// Makes the cluster, starts the operator on it and lets thirteen minutes of the cluster's time pass.
    ///
    /// It has to be called inside a tokio runtime of one thread whose clock is paused.
    ///
    /// # Errors
    /// One line, if an object of the cluster cannot be created or the operator has ended.
    pub async fn begin(setting: Setting, releases: Catalogue) -> Result<Self, String> {
        // kubectl computes ages by this machine's clock, so a served cluster begins now. Otherwise every run is the
        // same.
        let began = if setting.served { Timestamp::now() } else { scenario::BEGAN };
        // Two processes that serve their clusters at the same time use different addresses.
        let [.., high, low] = std::process::id().to_be_bytes();
        let network = if setting.served { [127, high.max(1), low] } else { [192, 0, 2] };
        let age = jiff::SignedDuration::try_from(AGE).unwrap_or_default();
        let builder = Cluster::builder().seed(setting.seed).version(scenario::NEWEST).network(network);
        let cluster = builder.starting_at(began - age).start();
        let seen_first = tokio::time::Instant::now() + AGE;
        let client = cluster.client_of("kubectl");
        scenario::furnish(&cluster, &client, setting.scenario).await?;

        let happened = Arc::<Mutex<Vec<Happened>>>::default();
        let told = Arc::clone(&happened);
        cluster.on_write(move |write| {
            if let Some(said) = said(write) {
                told.lock().unwrap_or_else(PoisonError::into_inner).push(said);
            }
        });
        executor::run(&cluster, TAKES);
        let stop = CancellationToken::new();
        let now = {
            let cluster = cluster.clone();
            Clock::new(move || cluster.now())
        };
        let process = cluster.process("evenkeel");
        let operating = operator::operate(clients(&process), options(releases), now, stop.child_token());
        let operating = tokio::spawn(operating);
        let eyes = clients(&cluster.process("evenkeel-demo"));
        let observer =
            Observer::start(&eyes.read, eyes.connect, PodScope::KubeSystem, &Shared::until(stop.clone()));
        let demo =
            Self { cluster, client, observer, happened, joined: Mutex::default(), _stop: stop.drop_guard() };
        tokio::time::sleep_until(seen_first).await;
        if operating.is_finished() {
            let why = match operating.await {
                Ok(Err(ended)) => ended.to_string(),
                Ok(Ok(())) => "it was told to".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(format!("the operator on the made-up cluster has ended: {why}"));
        }
        Ok(demo)
    }

    /// Serves the cluster on this machine, and writes the kubeconfig to `path`.
    ///
    /// # Errors
    /// One line, if there is no port to be had or the file cannot be written.
    pub async fn serve(&self, path: &Path) -> Result<Served, String> {
        let served = self.cluster.serve_control_plane().await.map_err(|error| error.to_string())?;
        served.write_kubeconfig(path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(served)
    }

    /// The time in the cluster.
    pub fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    /// What `evenkeel report` would see now.
    ///
    /// # Errors
    /// [`NotReady`], which names what is not seen yet.
    pub fn look(&self) -> Result<(Arc<Seen>, Inventory), NotReady> {
        self.observer.cluster(self.now())
    }

    /// The client with which a person reads and changes the cluster; the cluster knows its requests as kubectl's.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What happened so far without the first `from` lines, oldest first.
    pub fn happened(&self, from: usize) -> Vec<Happened> {
        let happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        happened.get(from..).unwrap_or_default().to_vec()
    }

    /// Records a person's deed in `line`.
    fn did(&self, line: String) {
        let done = Happened { at: self.now(), by_operator: false, line };
        self.happened.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }

    /// Takes the next step of an upgrade of the control plane.
    ///
    /// While kube-apiservers of two minors run, the oldest goes to the newest's version. When all run one version,
    /// the controller-managers and schedulers of an older minor follow, one at a time; then the first kube-apiserver
    /// goes to the next minor.
    pub fn upgrade_control_plane(&self) {
        let servers = self.versions(APISERVER);
        let (Some((at, oldest)), Some((_, newest))) = (servers.first(), servers.last()) else {
            return self.did("there is no kube-apiserver".to_owned());
        };
        for component in ["kube-controller-manager", "kube-scheduler"] {
            let others = self.versions(component);
            let behind =
                others.first().filter(|(_, version)| oldest == newest && minor(version) < minor(oldest));
            if let Some((node, version)) = behind {
                self.cluster.replace_component(node, component, oldest);
                return self.did(format!("{component} on {node} goes from {version} to {oldest}"));
            }
        }
        let target = if minor(oldest) == minor(newest) { next(newest) } else { newest.clone() };
        self.cluster.replace_component(at, APISERVER, &target);
        self.did(format!("{APISERVER} on {at} goes from {oldest} to {target}"));
    }

    /// Starts the kube-apiserver that is dead; if none is, kills that of the last control-plane node.
    pub fn kill_or_start(&self) {
        let plane = self.cluster.control_plane();
        let down = plane
            .nodes()
            .into_iter()
            .find(|node| plane.component(node, APISERVER).is_some_and(|(_, runs)| !runs));
        if let Some(node) = down {
            self.cluster.run_component(&node, APISERVER, true);
            return self.did(format!("{APISERVER} on {node} is started again"));
        }
        let Some(node) = plane.nodes().into_iter().next_back() else {
            return self.did("there is no kube-apiserver".to_owned());
        };
        self.cluster.run_component(&node, APISERVER, false);
        self.did(format!("{APISERVER} on {node} is killed"));
    }

    /// Adds a node whose kubelet is too old for the kube-apiservers.
    pub fn add_old_node(&self) {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        *joined += 1;
        let group = NodeGroup::new(format!("rack-{}", *joined + 6), 1).kubelet(TOO_OLD).zones(["b"]);
        let names = self.cluster.add_nodes(&scenario::pool(group, "forgotten"));
        drop(joined);
        self.did(format!("node {} joins with kubelet {TOO_OLD}", names.join(", ")));
    }

    /// Upgrades every kubelet of the oldest minor to the version of the oldest kube-apiserver.
    ///
    /// # Errors
    /// One line, if the nodes cannot be listed.
    pub async fn upgrade_oldest_kubelets(&self) -> Result<(), String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.map_err(|error| one_line(&error))?;
        let mut by_version: BTreeMap<(Option<Minor>, String), Vec<String>> = BTreeMap::new();
        for node in nodes {
            let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
            let version = info.map(|info| info.kubelet_version.clone()).unwrap_or_default();
            by_version.entry((minor(&version), version)).or_default().push(node.name_any());
        }
        let servers = self.versions(APISERVER);
        let Some(((old, version), names)) = by_version.first_key_value() else {
            self.did("there is no node".to_owned());
            return Ok(());
        };
        let Some((_, target)) = servers.first().filter(|(_, target)| *old < minor(target)) else {
            self.did("no kubelet is older than the kube-apiservers".to_owned());
            return Ok(());
        };
        for name in names {
            self.cluster.restart_kubelet(name, target);
        }
        let nodes = if names.len() == 1 { "node" } else { "nodes" };
        self.did(format!("the kubelets {version} of {} {nodes} go to {target}", names.len()));
        Ok(())
    }

    /// Changes every PodDisruptionBudget that can never allow an eviction so that it allows one unavailable pod. If
    /// there is none, lets one allow no eviction any more.
    ///
    /// # Errors
    /// One line, if the budgets cannot be listed or changed.
    pub async fn mend_or_break_budgets(&self) -> Result<(), String> {
        if self.mended_budgets().await? {
            return Ok(());
        }
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), "shop");
        let patch = json!({"spec": {"minAvailable": null, "maxUnavailable": 0}});
        let patched = budgets.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.map_err(|error| format!("shop/web: {}", one_line(&error)))?;
        self.did("PodDisruptionBudget shop/web now allows no unavailable pod".to_owned());
        Ok(())
    }

    /// Changes every PodDisruptionBudget that can never allow an eviction so that it allows one unavailable pod.
    ///
    /// # Errors
    /// One line, if the budgets cannot be listed or changed.
    pub async fn mend_budgets(&self) -> Result<(), String> {
        if !self.mended_budgets().await? {
            self.did("no budget is impossible".to_owned());
        }
        Ok(())
    }

    /// Whether there was a budget to mend.
    async fn mended_budgets(&self) -> Result<bool, String> {
        let budgets: Api<PodDisruptionBudget> = Api::all(self.client.clone());
        let all = budgets.list(&ListParams::default()).await.map_err(|error| one_line(&error))?;
        let mut mended = Vec::new();
        for budget in all {
            let (Some(namespace), Some(status)) = (budget.namespace(), &budget.status) else { continue };
            if status.disruptions_allowed != Some(0) || status.desired_healthy < status.expected_pods {
                continue;
            }
            let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &namespace);
            let patch = json!({"spec": {"minAvailable": null, "maxUnavailable": 1}});
            let name = budget.name_any();
            let patched = budgets.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            patched.map_err(|error| format!("{namespace}/{name}: {}", one_line(&error)))?;
            mended.push(format!("{namespace}/{name}"));
        }
        if mended.is_empty() {
            return Ok(false);
        }
        self.did(format!("PodDisruptionBudget {} now allows one unavailable pod", mended.join(", ")));
        Ok(true)
    }

    /// Uncordons the worker that a person cordoned; if there is none, cordons the last one by name that runs pods.
    ///
    /// # Errors
    /// One line, if the nodes cannot be listed or changed.
    pub async fn cordon_or_uncordon(&self) -> Result<(), String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let all = nodes.list(&ListParams::default()).await.map_err(|error| one_line(&error))?.items;
        let worker = |node: &&Node| !node.labels().contains_key("node-role.kubernetes.io/control-plane");
        let cordoned = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        let by_person = |node: &&Node| cordoned(node) && !node.annotations().contains_key(CORDON_ANNOTATION);
        let workers = || all.iter().filter(worker);
        let (node, cordon) = match workers().find(by_person) {
            Some(node) => (Some(node), false),
            None => (workers().rfind(|node| !cordoned(node)), true),
        };
        let Some(name) = node.map(Node::name_any) else {
            self.did("there is no node to cordon".to_owned());
            return Ok(());
        };
        let patch = json!({"spec": {"unschedulable": if cordon { Value::Bool(true) } else { Value::Null }}});
        let patched = nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.map_err(|error| format!("node {name}: {}", one_line(&error)))?;
        self.did(format!("kubectl {}cordon {name}", if cordon { "" } else { "un" }));
        Ok(())
    }

    /// The nodes on which the control-plane component runs, each with the component's version; the oldest version
    /// first.
    fn versions(&self, component: &str) -> Vec<(String, String)> {
        let plane = self.cluster.control_plane();
        let running = |node: String| {
            let (version, runs) = plane.component(&node, component)?;
            runs.then_some((node, version))
        };
        let mut all: Vec<_> = plane.nodes().into_iter().filter_map(running).collect();
        all.sort_by_key(|(node, version)| (minor(version), node.clone()));
        all
    }
}

fn minor(version: &str) -> Option<Minor> {
    version.parse().ok().map(|version: KubeVersion| version.minor())
}

/// The first version of the next minor.
fn next(version: &str) -> String {
    minor(version).map_or_else(|| version.to_owned(), |minor| format!("v{}.0", minor.next()))
}

/// What happened by `write` if it is the operator's write of an event; `None` for any other write.
fn said(write: &Write<'_>) -> Option<Happened> {
    if write.resource() != "events" || write.author() != "evenkeel" {
        return None;
    }
    let event: Value = write.after()?;
    // How the upgrade stands as a whole is shown by tables, and would be told twice.
    if ["ClusterUpgrade", "Node"].iter().any(|kind| event["related"]["kind"] == *kind) {
        return None;
    }
    let at = event["metadata"]["creationTimestamp"].as_str()?.parse().ok()?;
    let line = format!("{}: {}", event["reason"].as_str()?, event["message"].as_str()?);
    Some(Happened { at, by_operator: true, line })
}

fn clients(process: &Process) -> Clients {
    let probed = process.clone();
    Clients {
        read: process.client(),
        effects: process.client(),
        election: process.client(),
        connect: Arc::new(move |address| Ok(probed.client_at(address))),
    }
}

fn options(releases: Catalogue) -> OperatorOptions {
    let seconds = Duration::from_secs;
    OperatorOptions {
        upgrades: true,
        namespace: "kube-system".to_owned(),
        identity: "evenkeel-0".to_owned(),
        executors_namespace: "evenkeel-executors".to_owned(),
        lease: LeaseTiming { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) },
        listen: ([127, 0, 0, 1], 0).into(),
        releases,
    }
}
