//! The cluster that is upgraded, and the `ClusterUpgrade` that a person writes for it.
//!
//! Made once for each kind of control plane and copied for every run. A script says at its beginning (`at 0 …`) what is
//! otherwise than usual: [`Setting`].

mod asked;

use std::sync::OnceLock;
use std::time::Duration;

use evenkeel_sim::{Cluster, NodeGroup};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::campaign::virtually;
use super::super::kube_api::{BASE_SEED, Base, Kube};
use super::super::script::Step;
pub use asked::ahead_of_utc;
use asked::{Asked, amount};

pub const FROM: &str = "v1.36.4";
pub const TO: &str = "v1.37.1";
pub const UPGRADES: &str = "/apis/evenkeel.dev/v1alpha1/clusterupgrades";
pub const CLAIMS: &str = "/apis/evenkeel.dev/v1alpha1/nodeupgrades";
pub const CHANGERS: &str = "/apis/evenkeel.dev/v1alpha1/upgradeexecutors";
pub const EXECUTORS: &str = "evenkeel-executors";
/// The image of the executor's Job.
pub const IMAGE: &str = "registry.example/upgrade:1";
/// The executor of the first node.
pub const FIRST: &str = "first";
/// Hosts of a control plane that are no nodes.
pub const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];

/// What an executor does with a component of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// After so many seconds it brings what it was asked for.
    After(u64),
    /// It brings at once what it was asked for, and goes on for so many seconds after that, where anybody can hear it.
    Lingers(u64),
    /// It says that it failed, where it can, and changes nothing.
    Fail,
    /// It never ends.
    Hang,
    /// It says that all is well, and changes nothing.
    Lie,
    /// It brings this version.
    Wrong(String),
    /// It takes the process away and never brings it back.
    Gone,
    /// It brings what it was asked for, and the kubelet's node is never ready again.
    Breaks,
    /// Of the components of a node that it moves together it moves so many, and then ends like this.
    Part(usize, Stop),
}

impl Way {
    /// For how long it goes on after everything was changed.
    pub fn lingers(&self) -> Duration {
        if let Self::Lingers(seconds) = self { Duration::from_secs(*seconds) } else { Duration::ZERO }
    }
}

/// How an executor ends that has moved a part of a node's components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It says that it failed, where it can.
    Fail,
    /// It never ends.
    Hang,
    /// It says that all is well, and goes on.
    Lie,
}

/// How a run is otherwise than usual.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The control plane runs as processes of hosts, not as static pods of nodes.
    pub hosts: bool,
    /// A person takes the responsibility for controllers that cannot be seen.
    pub accept: bool,
    /// Executors are Jobs, not somebody outside.
    pub jobs: bool,
    /// The components of a control-plane node move together.
    pub whole: bool,
    /// An executor of its own moves the first node, and the others can follow only after it.
    pub first: bool,
    /// The second group selects every node that is left, those of the control plane too.
    pub everything: bool,
    /// The executors' deadline, in seconds.
    pub deadline: u64,
    /// The drains' timeout, in seconds.
    pub drain: u64,
    /// What else is said of drains.
    pub drains: Value,
    /// The version to reach.
    pub to: String,
    /// When the run begins, in the cluster's time.
    pub begins: Timestamp,
    /// From which second of the run to which one nothing new may begin.
    pub freeze: Option<(i64, i64)>,
    /// From which minute of the run on a window is open, and for how many seconds, every day.
    pub windows: Vec<(i64, i64)>,
    /// For how many seconds the control plane, or a group, soaks.
    pub soaks: Vec<(String, i64)>,
    /// How many nodes may be out: `maxFailed` or `maxParked`, and the number or percentage.
    pub limits: Vec<(String, Value)>,
    /// There is a gate.
    pub gate: bool,
    /// Executors that nobody has installed yet.
    pub without: Vec<String>,
    /// What executors do, by `component/node`; good where nothing is said.
    pub ways: Vec<(String, Way)>,
    /// For so many seconds it is looked at, also where nothing happens any more.
    pub lasts: u64,
    /// What else is asked for.
    pub asked: Asked,
}

impl Setting {
    /// What the steps `at 0 …` of `script` say.
    pub fn of(script: &[Step]) -> Self {
        let mut setting = Self {
            hosts: false,
            accept: false,
            jobs: false,
            whole: false,
            first: false,
            everything: false,
            deadline: 300,
            drain: 300,
            drains: json!({}),
            to: TO.to_owned(),
            begins: Timestamp::UNIX_EPOCH,
            freeze: None,
            windows: Vec::new(),
            soaks: Vec::new(),
            limits: Vec::new(),
            gate: false,
            without: Vec::new(),
            ways: Vec::new(),
            lasts: 0,
            asked: Asked::default(),
        };
        let number = |text: &str| text.parse::<i64>().unwrap();
        for step in script {
            let Step::At { millis: 0, deed } = step else { continue };
            match deed.split(' ').collect::<Vec<_>>().as_slice() {
                ["hosts"] => setting.hosts = true,
                ["accept"] => setting.accept = true,
                ["jobs"] => setting.jobs = true,
                ["whole"] => setting.whole = true,
                ["first"] => setting.first = true,
                ["everything"] => setting.everything = true,
                ["deadline", seconds] => setting.deadline = seconds.parse().unwrap(),
                ["drain", seconds] => setting.drain = seconds.parse().unwrap(),
                ["lasts", seconds] => setting.lasts = seconds.parse().unwrap(),
                ["freeze", from, until] => setting.freeze = Some((number(from), number(until))),
                ["window", from, length] => setting.windows.push((number(from), number(length))),
                ["soak", of, seconds] => setting.soaks.push(((*of).to_owned(), number(seconds))),
                ["limit", of, count] => setting.limits.push(((*of).to_owned(), amount(count))),
                ["force"] => setting.drains["onTimeout"] = "Force".into(),
                ["halt"] => setting.drains["onTimeout"] = "Halt".into(),
                ["minor-only"] => setting.drains["mode"] = "MinorOnly".into(),
                ["detach"] => setting.drains["volumes"] = "Detach".into(),
                ["empty-dir", may] => setting.drains["emptyDir"] = (*may).into(),
                ["bare-pods", may] => setting.drains["barePods"] = (*may).into(),
                ["rule", app, behavior] => {
                    let rule = json!({"namespaces": ["shop"], "behavior": behavior,
                        "selector": {"matchLabels": {"app": app}}});
                    match setting.drains["podRules"].as_array_mut() {
                        Some(rules) => rules.push(rule),
                        None => setting.drains["podRules"] = json!([rule]),
                    }
                }
                ["gated"] => setting.gate = true,
                ["without", name] => setting.without.push((*name).to_owned()),
                ["target", version] => (*version).clone_into(&mut setting.to),
                ["executor", what, way @ ..] => {
                    let way = match way {
                        ["after", seconds] => Way::After(seconds.parse().unwrap()),
                        ["lingers", seconds] => Way::Lingers(seconds.parse().unwrap()),
                        ["fail"] => Way::Fail,
                        ["hang"] => Way::Hang,
                        ["lie"] => Way::Lie,
                        ["wrong", version] => Way::Wrong((*version).to_owned()),
                        ["gone"] => Way::Gone,
                        ["breaks"] => Way::Breaks,
                        ["part", many, "fail"] => Way::Part(many.parse().unwrap(), Stop::Fail),
                        ["part", many, "hang"] => Way::Part(many.parse().unwrap(), Stop::Hang),
                        ["part", many, "lie"] => Way::Part(many.parse().unwrap(), Stop::Lie),
                        other => panic!("executors do not {other:?}"),
                    };
                    setting.ways.push(((*what).to_owned(), way));
                }
                words => setting.asked.hear(words),
            }
        }
        setting
    }

    /// Whether `deed` says how the run is, not what happens in it.
    pub fn says(deed: &str) -> bool {
        let first = deed.split(' ').next().unwrap_or_default();
        let all = [
            "hosts",
            "accept",
            "jobs",
            "whole",
            "first",
            "everything",
            "deadline",
            "drain",
            "lasts",
            "target",
            "executor",
            "freeze",
            "window",
            "soak",
            "limit",
            "force",
            "halt",
            "minor-only",
            "detach",
            "empty-dir",
            "bare-pods",
            "rule",
            "gated",
            "without",
        ];
        all.contains(&first) || Asked::WORDS.contains(&first)
    }

    /// What the executor does with `component` on `node`.
    pub fn way(&self, component: &str, node: &str) -> Way {
        let fits = |(what, _): &&(String, Way)| {
            what.split_once('/')
                .is_some_and(|(of, at)| (of == component || of == "*") && (at == node || at == "*"))
        };
        self.ways.iter().find(fits).map_or(Way::After(3), |(_, way)| way.clone())
    }

    /// What the platform team installs under this name.
    pub fn changer(&self, name: &str) -> Value {
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": name, "image": IMAGE}]}});
        let spec = if self.jobs {
            json!({"job": {"template": template, "deadlineSeconds": self.deadline}})
        } else {
            json!({"external": {"deadlineSeconds": self.deadline}})
        };
        json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "UpgradeExecutor", "metadata": {"name": name},
            "spec": spec})
    }

    /// What the person wants.
    pub fn upgrade(&self, name: &str, version: &str) -> Value {
        let rest = if self.everything { json!({}) } else { json!({"matchLabels": {"pool": "main"}}) };
        let mut plane = json!({"executor": "machines"});
        let mut drain = self.drains.clone();
        drain["timeoutSeconds"] = self.drain.into();
        if self.accept {
            plane["hidden"] = "Accept".into();
        }
        if self.whole {
            plane["unit"] = "Node".into();
        }
        if self.first {
            plane["firstExecutor"] = FIRST.into();
        }
        let mut object = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {"name": name}, "spec": {
            "version": version, "mode": "Automatic", "controlPlane": plane,
            "nodeGroups": [
                {"name": "canary", "selector": {"matchLabels": {"pool": "canary"}}, "executor": "machines", "maxUnavailable": 1},
                {"name": "rest", "selector": rest, "executor": "machines", "maxUnavailable": 2},
            ],
            "drain": drain}});
        self.waits(&mut object["spec"]);
        self.asked.write(&mut object["spec"], self.begins);
        object
    }

    /// When the upgrade may go on, and how far.
    fn waits(&self, spec: &mut Value) {
        let at = |seconds: i64| self.begins + SignedDuration::from_secs(seconds);
        let local = |seconds: i64, form: &str| self.asked.local(at(seconds)).strftime(form).to_string();
        for (minute, seconds) in &self.windows {
            let start = local(minute * 60, "%H:%M");
            let mut window =
                json!({"name": format!("w{minute}"), "start": start, "durationSeconds": seconds});
            if let Some(zone) = self.asked.time_zone() {
                // Only on the day that it is there.
                window["days"] = json!([local(minute * 60, "%a")]);
                window["timeZone"] = zone.into();
            }
            match spec["windows"].as_array_mut() {
                Some(windows) => windows.push(window),
                None => spec["windows"] = json!([window]),
            }
        }
        if let Some((from, until)) = self.freeze {
            let zone = self.asked.time_zone();
            let form = if zone.is_some() { "%Y-%m-%dT%H:%M:%S" } else { "%Y-%m-%dT%H:%M:%SZ" };
            let mut freeze = json!({"name": "fair", "from": local(from, form), "until": local(until, form)});
            if let Some(zone) = zone {
                freeze["timeZone"] = zone.into();
            }
            spec["freezes"] = json!([freeze]);
        }
        for (of, seconds) in &self.soaks {
            match of.as_str() {
                "controlPlane" => spec["controlPlane"]["soakSeconds"] = json!(seconds),
                "canary" => {
                    spec["nodeGroups"][0]["soakSeconds"] = json!(seconds);
                    spec["nodeGroups"][1]["dependsOn"] = json!(["canary"]);
                }
                other => panic!("{other} does not soak"),
            }
        }
        if self.gate {
            let object = json!({"apiVersion": "example.com/v1", "kind": "ServiceLevel", "namespace": "shop",
                "name": "checkout"});
            spec["gates"] = json!([{"name": "slo", "object": object, "condition": {"type": "Healthy"}}]);
        }
        for (of, count) in &self.limits {
            spec["failurePolicy"][of] = json!(count);
        }
    }
}

/// The nodes of a pool.
pub fn pool(name: &str, count: usize) -> NodeGroup {
    NodeGroup::new(name, count).kubelet(FROM).zones(["a", "b", "c"]).label("pool", name)
}

async fn cluster(hosts: bool) -> Base {
    let cluster = Cluster::builder().seed(BASE_SEED).version(TO).start();
    let kube = Kube(cluster.client_of("kubectl"));
    kube.install().await;
    for namespace in ["evenkeel-system", EXECUTORS, "shop"] {
        kube.namespace(namespace).await;
    }
    if hosts {
        cluster.run_on_hosts(&HOSTS, FROM);
    } else {
        cluster.add_control_plane(&NodeGroup::new("cp", 3).kubelet(FROM).zones(["a", "b", "c"]), FROM);
    }
    cluster.add_nodes(&pool("canary", 3));
    cluster.add_nodes(&pool("main", 6));
    sleep(Duration::from_secs(12)).await;
    workloads(&kube).await;
    sleep(Duration::from_secs(40)).await;
    Base::of(&cluster)
}

/// Sixty pods, the static ones counted: budgets that are fine, tight and shared; pods that only one node can run.
async fn workloads(kube: &Kube) {
    kube.deployment("web", 10, None).await;
    kube.deployment("cart", 8, Some(json!({"maxUnavailable": 1}))).await;
    kube.deployment("api", 8, Some(json!({"maxUnavailable": "25%"}))).await;
    let parallel = json!({"spec": {"serviceName": "db", "podManagementPolicy": "Parallel"}});
    kube.workload("statefulsets", "db", 4, &parallel).await;
    kube.budget("db", Some(json!({"minAvailable": 3}))).await;
    kube.workload("daemonsets", "logs", 0, &json!({"spec": {"replicas": null}})).await;
    // One budget for two workloads.
    for name in ["left", "right"] {
        kube.workload("deployments", name, 3, &labelled(name, "tier", "both")).await;
    }
    shared(kube, "both", "tier", "both", &json!({"maxUnavailable": 1})).await;
    // Two nodes, each with two pods on its own disks, whose budgets cross.
    for (name, vault, node) in [
        ("ledger-a", "p", "main-1"),
        ("ledger-b", "q", "main-1"),
        ("ledger-c", "q", "main-2"),
        ("ledger-d", "p", "main-2"),
    ] {
        local(kube, name, vault, node).await;
    }
    for vault in ["p", "q"] {
        shared(kube, &format!("vault-{vault}"), "vault", vault, &json!({"minAvailable": 1})).await;
    }
    let canary = json!({"spec": {"template": {"spec": {"nodeSelector": {"pool": "canary"}}}}});
    kube.workload("deployments", "gpu", 2, &canary).await;
    kube.budget("gpu", Some(json!({"maxUnavailable": 1}))).await;
    let licence =
        json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "main-4"}}}}});
    kube.workload("deployments", "licence", 1, &licence).await;
}

fn labelled(app: &str, key: &str, value: &str) -> Value {
    json!({"spec": {"template": {"metadata": {"labels": {"app": app, key: value}}}}})
}

async fn shared(kube: &Kube, name: &str, key: &str, value: &str, budget: &Value) {
    let mut spec = budget.clone();
    spec["selector"] = json!({"matchLabels": {key: value}});
    let object = json!({"metadata": {"name": name}, "spec": spec});
    kube.create("/apis/policy/v1/namespaces/shop/poddisruptionbudgets", &object).await;
}

/// One pod whose volume is a disk of `node`.
async fn local(kube: &Kube, name: &str, vault: &str, node: &str) {
    let here = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    let volume = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "local", "local": {"path": "/disks/1"},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": here}}}, "status": {"phase": "Bound"}});
    kube.create("/api/v1/persistentvolumes", &volume).await;
    let claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}, "status": {"phase": "Bound"}});
    kube.create("/api/v1/namespaces/shop/persistentvolumeclaims", &claim).await;
    let mut more = labelled(name, "vault", vault);
    more["spec"]["template"]["spec"] =
        json!({"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]});
    more["spec"]["strategy"] = json!({"type": "Recreate"});
    kube.workload("deployments", name, 1, &more).await;
}

/// A copy of the cluster that `setting` speaks of.
pub async fn start(setting: &Setting, seed: u64) -> (Cluster, Kube) {
    static PODS: OnceLock<Base> = OnceLock::new();
    static PROCESSES: OnceLock<Base> = OnceLock::new();
    let of = if setting.hosts { &PROCESSES } else { &PODS };
    let hosts = setting.hosts;
    // A runtime of its own, because the one of whoever asks runs already.
    let base = of.get_or_init(|| {
        std::thread::scope(|scope| scope.spawn(|| virtually(async || cluster(hosts).await).0).join().unwrap())
    });
    let (cluster, kube) = base.start(seed).await;
    if hosts {
        cluster.run_on_hosts(&HOSTS, FROM);
    }
    for name in ["machines", FIRST].into_iter().chain(setting.asked.workers()) {
        if !setting.without.iter().any(|without| without == name) {
            kube.create(CHANGERS, &setting.changer(name)).await;
        }
    }
    (cluster, kube)
}
