//! The cluster of real nodes as the test sees it from within: kubectl, Evenkeel's own Deployment, and what the observer
//! has to know of static pods.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use evenkeel_devcluster::real::Inner;
use evenkeel_devcluster::{AuditEntry, Failure, Release, Role, TestResult};
use evenkeel_testkit::scenario::{TO, is_ready, root, until};
use evenkeel_testkit::standin::node_upgrades;
use evenkeel_testkit::watched::{Component, Part, Watched};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::probe::every_node_answers;
use crate::report::Size;

/// How long a static pod may be away while its node's kubelet is replaced.
const AWAY: Duration = Duration::from_mins(2);
/// So long one is waited for of which it is known what it ran.
const PATIENCE: Duration = Duration::from_secs(10);

/// A NodeUpgrade, as far as tests look at it.
pub struct Claimed {
    pub node: String,
    pub component: String,
    pub state: String,
    pub message: String,
}

pub struct Real {
    inner: Inner,
    /// The image for executors, by its digest.
    tools: String,
    /// What each component of the control plane ran when it answered last.
    ran: Mutex<BTreeMap<String, Release>>,
}

impl Real {
    pub async fn from_env(tools: String) -> Result<Self, Failure> {
        Ok(Self { inner: Inner::from_env().await?, tools, ran: Mutex::default() })
    }

    /// kubectl as the administrator; its standard output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String, Failure> {
        let mut command = tokio::process::Command::new("kubectl");
        let output =
            command.args(args).stdin(std::process::Stdio::null()).kill_on_drop(true).output().await?;
        evenkeel_devcluster::lab::said(&output, &format!("kubectl {}", args.join(" ")))
    }

    /// Applies a file or a kustomization of the project.
    pub async fn apply(&self, path: &str) -> TestResult {
        let path = root(path);
        let flag = if path.is_dir() { "-k" } else { "-f" };
        self.kubectl(&["apply", "--server-side", flag, &path.display().to_string()]).await.map(drop)
    }

    /// Applies what a person wrote, from a file beside the kubeconfig.
    pub async fn apply_text(&self, name: &str, text: &str) -> TestResult {
        let path = std::env::temp_dir().join(format!("evenkeel-{}-{name}", std::process::id()));
        std::fs::write(&path, text)?;
        let applied = self.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()]).await;
        std::fs::remove_file(&path)?;
        applied.map(drop)
    }

    /// Evenkeel as its README says, with the executors for kubeadm; only the image has another name than Debian's.
    pub async fn install(&self) -> TestResult {
        self.apply("config/upgrade").await?;
        for crd in ["clusterskewreports", "clusterupgrades", "nodeupgrades", "upgradeexecutors"] {
            let crd = format!("crd/{crd}.evenkeel.dev");
            self.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", &crd]).await?;
        }
        let executors = root("config/executors/kubeadm").display().to_string();
        let executors = self.kubectl(&["kustomize", &executors]).await?;
        let debian = "docker.io/library/debian:13-slim@sha256:DIGEST";
        assert_eq!(
            executors.matches(debian).count(),
            3,
            "three executors, each with one image:\n{executors}"
        );
        self.apply_text("executors.yaml", &executors.replace(debian, &self.tools)).await?;
        let allow = format!(r#"{{"data":{{"executors":"{}"}}}}"#, self.tools);
        let map = ["-n", "evenkeel-executors", "patch", "configmap", "executor-images", "--type=merge", "-p"];
        self.kubectl(&[&map[..], &[&allow]].concat()).await?;
        let rollout = ["-n", "evenkeel-system", "rollout", "status", "deployment/evenkeel", "--timeout=120s"];
        self.kubectl(&rollout).await.map(drop)
    }

    /// Takes away the configuration without which kubeadm refuses every upgrade; returns what brings it back when it is
    /// applied.
    pub async fn take_kubeadm_config(&self) -> Result<String, Failure> {
        let map = ["-n", "kube-system", "get", "configmap", "kubeadm-config", "-o", "json"];
        let mut taken: Value = serde_json::from_str(&self.kubectl(&map).await?)?;
        taken["metadata"] = json!({"namespace": "kube-system", "name": "kubeadm-config"});
        self.kubectl(&["-n", "kube-system", "delete", "configmap", "kubeadm-config"]).await?;
        Ok(taken.to_string())
    }

    /// Starts the workloads and waits until every pod is ready and every budget whole.
    pub async fn workloads(&self) -> TestResult {
        for worker in ["worker-1", "worker-2"] {
            self.kubectl(&["label", "node", worker, "pool=general"]).await?;
        }
        self.apply("tests/real/workloads.yaml").await?;
        until("every pod of the workloads is ready", Duration::from_mins(2), async || {
            self.pods_are_ready().await
        })
        .await?;
        let healthy = ["-n", "shop", "get", "pdb", "-o", "jsonpath={.items[*].status.disruptionsAllowed}"];
        until("every budget allows an eviction", Duration::from_secs(30), async || {
            Ok(self.kubectl(&healthy).await? == "1 1 1")
        })
        .await?;
        every_node_answers(&self.addresses().await?, 30080).await
    }

    /// Whether every pod of the workloads is ready.
    pub async fn pods_are_ready(&self) -> Result<bool, Failure> {
        let pods = Api::<Pod>::namespaced(self.client(), "shop").list(&ListParams::default()).await?.items;
        Ok(pods.len() == 14 && pods.iter().all(is_ready))
    }

    /// The addresses of all nodes.
    pub async fn addresses(&self) -> Result<Vec<Ipv4Addr>, Failure> {
        let nodes = Api::<Node>::all(self.client()).list(&ListParams::default()).await?;
        let addresses = nodes.iter().filter_map(|node| node.status.as_ref()?.addresses.as_ref()).flatten();
        let internal = addresses.filter(|address| address.type_ == "InternalIP");
        Ok(internal.filter_map(|address| address.address.parse().ok()).collect())
    }

    /// How many nodes there are.
    pub async fn size(&self) -> Result<Size, Failure> {
        let control_planes = self.inner.control_planes().len();
        let nodes = Api::<Node>::all(self.client()).list(&ListParams::default()).await?.items.len();
        Ok(Size { control_planes, workers: nodes - control_planes })
    }

    /// How many kubelets run this version, as they say themselves.
    pub async fn kubelets_at(&self, version: &str) -> Result<u64, Failure> {
        let nodes = Api::<Node>::all(self.client()).list(&ListParams::default()).await?;
        let runs = |node: &&Node| {
            let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
            info.is_some_and(|info| info.kubelet_version == version)
        };
        Ok(u64::try_from(nodes.iter().filter(runs).count())?)
    }

    /// What the kube-apiserver of a control-plane node answers, if it does.
    pub async fn apiserver_version(&self, node: &str) -> Option<String> {
        let index = self.inner.control_planes().iter().position(|name| name == node)?;
        self.inner.apiserver_version(index).await.ok()
    }

    /// The report as the API has it.
    pub async fn report(&self) -> Result<Value, Failure> {
        let report = self.kubectl(&["get", "clusterskewreport", "cluster", "-o", "json"]).await?;
        Ok(serde_json::from_str::<Value>(&report)?["status"].take())
    }

    /// What the operator's pods have logged at level WARN or above: each line without its time, and how often.
    pub async fn warnings(&self) -> Result<BTreeMap<String, usize>, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client(), "evenkeel-system");
        let mut warnings = BTreeMap::new();
        for pod in pods.list(&ListParams::default()).await? {
            let log = self.kubectl(&["-n", "evenkeel-system", "logs", &pod.name_any()]).await?;
            for line in log.lines() {
                let Value::Object(mut fields) = serde_json::from_str(line)? else { continue };
                let level = fields.remove("level");
                if level.is_some_and(|level| level == "WARN" || level == "ERROR") {
                    fields.retain(|name, _| name != "timestamp" && name != "target");
                    *warnings.entry(format!("{}: {}", pod.name_any(), Value::Object(fields))).or_default() +=
                        1;
                }
            }
        }
        Ok(warnings)
    }

    /// Every NodeUpgrade.
    pub async fn claims(&self) -> Result<Vec<Claimed>, Failure> {
        let claims = node_upgrades(self.client()).list(&ListParams::default()).await?;
        let claimed = |claim: &DynamicObject| {
            let text =
                |part: &str, field: &str| claim.data[part][field].as_str().unwrap_or_default().to_owned();
            Claimed {
                node: text("spec", "nodeName"),
                component: text("spec", "component"),
                state: text("status", "state"),
                message: text("status", "message"),
            }
        };
        Ok(claims.iter().map(claimed).collect())
    }

    /// Waits for a claim on this component that is in one of these states.
    pub async fn claimed(
        &self,
        component: &str,
        states: &[&str],
        limit: Duration,
    ) -> Result<Claimed, Failure> {
        let mut found = None;
        until(&format!("a {component} is {}", states.join(" or ")), limit, async || {
            let claims = self.claims().await?.into_iter();
            let mut claims = claims.filter(|claim| claim.component == component);
            found = claims.find(|claim| states.contains(&claim.state.as_str()));
            Ok(found.is_some())
        })
        .await?;
        found.ok_or_else(|| Failure::new("nothing was found"))
    }

    /// The pod that leads.
    pub async fn leader(&self) -> Result<String, Failure> {
        let lease =
            ["-n", "kube-system", "get", "lease", "evenkeel", "-o", "jsonpath={.spec.holderIdentity}"];
        let holder = self.kubectl(&lease).await?;
        // A pod's name and a word that changes with each start.
        Ok(holder.rsplit_once('_').map_or(holder.as_str(), |(pod, _)| pod).to_owned())
    }

    /// What the pod that leads has to say to Prometheus.
    pub async fn metrics_of_leader(&self) -> Result<String, Failure> {
        let leader = self.leader().await?;
        let path = format!("/api/v1/namespaces/evenkeel-system/pods/{leader}:8080/proxy/metrics");
        self.kubectl(&["get", "--raw", &path]).await
    }

    /// A command that runs what its arguments name on a node, in all of its namespaces, as its administrator would.
    pub fn on_node(&self, node: &str) -> Result<tokio::process::Command, Failure> {
        let process = self.inner.process(node)?.to_string();
        let mut command = tokio::process::Command::new("nsenter");
        command.args(["--target", &process, "--mount", "--net", "--uts", "--ipc", "--pid", "--cgroup", "--"]);
        command.args(["env", "-i", "HOME=/root", "LANG=C.UTF-8"]);
        command.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        Ok(command)
    }

    /// The program, in the cluster's network.
    pub async fn evenkeel(&self, binary: &PathBuf, args: &[&str]) -> Result<String, Failure> {
        let output = tokio::process::Command::new(binary).args(args).kill_on_drop(true).output().await?;
        // Its exit status says what it found.
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.stdout.is_empty() {
            return Err(Failure::new(format!("evenkeel {}: {error}", args.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What the kube-apiserver of a control-plane node says that it runs.
    async fn server(&self, index: usize) -> Component {
        self.component(index, Role::Apiserver, async || {
            let version = self.inner.apiserver_version(index).await?;
            Release::parse(&version).ok_or_else(|| format!("{version} is none of the releases"))
        })
        .await
    }

    /// What the mirror pod of a controller says that it runs.
    async fn controller(&self, index: usize, role: Role) -> Component {
        let name = format!("{}-{}", role.name(), self.inner.control_planes()[index]);
        let pods: Api<Pod> = Api::namespaced(self.client(), "kube-system");
        self.component(index, role, async || {
            let pod = pods.get(&name).await.map_err(|e| e.to_string())?;
            running(&pod).ok_or_else(|| format!("{name} does not run"))
        })
        .await
    }

    /// Asks a component until it answers. One that is away is waited for for a moment, or, where nobody knows what it ran,
    /// for as long as it may be away.
    async fn component(
        &self,
        index: usize,
        role: Role,
        ask: impl AsyncFn() -> Result<Release, String>,
    ) -> Component {
        let node = self.inner.control_planes()[index].clone();
        let name = format!("{}-{node}", role.name());
        let last = self.ran.lock().ok().and_then(|ran| ran.get(&name).copied());
        let patience = if last.is_some() { PATIENCE } else { AWAY };
        let began = tokio::time::Instant::now();
        let release = loop {
            match ask().await {
                Err(_) if began.elapsed() < patience => tokio::time::sleep(Duration::from_millis(500)).await,
                answer => break answer,
            }
        };
        if let (Ok(release), Ok(mut ran)) = (&release, self.ran.lock()) {
            ran.insert(name.clone(), *release);
        }
        Component { name, role, node, release, last }
    }
}

/// The release that the first container of a pod runs; nothing where it does not run.
fn running(pod: &Pod) -> Option<Release> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    container.state.as_ref()?.running.as_ref()?;
    Release::parse(container.image.rsplit(':').next()?)
}

/// Since when a pod is ready, by its condition.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True")?;
    // One without a time was always ready.
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}

impl Watched for Real {
    fn client(&self) -> Client {
        self.inner.client()
    }

    async fn components(&self) -> Vec<Component> {
        let asked = (0..self.inner.control_planes().len()).map(async |index| {
            let (server, manager, scheduler) = tokio::join!(
                self.server(index),
                self.controller(index, Role::ControllerManager),
                self.controller(index, Role::Scheduler),
            );
            [server, manager, scheduler]
        });
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }

    /// kubeadm's controllers talk to the kube-apiserver of their own node.
    async fn asked_by_controllers_of(&self, node: &str) -> Vec<Component> {
        let index = self.inner.control_planes().iter().position(|name| name == node);
        match index {
            Some(index) => vec![self.server(index).await],
            None => Vec::new(),
        }
    }

    /// A control-plane node is whole when its four static pods are ready, three of them at the target.
    async fn parts(&self, node: &str) -> Result<Vec<Part>, Failure> {
        if !self.inner.control_planes().iter().any(|name| name == node) {
            return Ok(Vec::new());
        }
        let pods: Api<Pod> = Api::namespaced(self.client(), "kube-system");
        let mut parts = Vec::new();
        for component in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
            let name = format!("{component}-{node}");
            let pod = pods.get_opt(&name).await?;
            let runs = pod.as_ref().and_then(running).map_or("nothing", Release::version);
            let behind = (component != "etcd" && runs != TO).then(|| runs.to_owned());
            parts.push(Part { name, ready_since: pod.as_ref().and_then(ready_since), behind });
        }
        Ok(parts)
    }

    fn audit_log(&self) -> Result<Vec<AuditEntry>, Failure> {
        Ok(self.inner.audit_log()?)
    }
}
