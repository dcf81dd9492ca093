//! How long deciding takes: the judgement of a cluster, the next step of an upgrade, and one look of the operator from a
//! changed pod to the decision. `make bench` runs it; no network and no cluster is involved.
//!
//! Times depend on the machine and on what else runs on it. Beside them is the number of instructions, which does not:
//! callgrind counts them, where valgrind is installed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench may fail where it stands")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::{
    Budget, Cluster, Component, Demand, Disrupted, Evidence, Instance, Node, Owner, Parts, Phase, Pod,
    Quantity, Reach, Selector, UnhealthyPolicy,
};
use evenkeel_core::disruption::Sent;
use evenkeel_core::plan::{Planned, check_waves, progress, waves};
use evenkeel_core::rollout::{
    Claim, ClaimState, Decision, Freshness, Gates, Jobs, Memory, RefusedWrites, Subject, World, decide,
    planned,
};
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::skew::policy::Policy;
use evenkeel_core::skew::{Census, assess, assess_counted};
use evenkeel_core::upgrade::{Amount, ApprovalMode, NodeGroup, Progress, Unit, Upgrade};
use evenkeel_core::version::{KubeVersion, Observed};
use evenkeel_spread::{Spread, seconds};
use jiff::Timestamp;

const PODS_PER_NODE: usize = 30;
/// Each guards the pods of one workload.
const BUDGETS: usize = 500;
/// Nodes and budgets of the cluster that is looked at.
const LOOK: (usize, usize) = (5_000, 3_000);
const TARGET: &str = "v1.37.1";
/// So many finished claims there are in the middle of a large upgrade: what a rollout keeps of them.
const FINISHED: usize = 500;
/// How often each is run at least, and for how long.
const RUNS: usize = 15;
const PATIENCE: Duration = Duration::from_secs(1);
/// With this argument the program runs one of them a few times and does nothing else, for callgrind to look at.
const COUNTED: &str = "--counted";
/// With this one it measures a look and nothing else.
const LOOKED: &str = "--look";

/// What is measured: a name, what one figure is about, and how many of those one run is.
const MEASURED: [(&str, usize, &str); 10] = [
    ("compact model", 5_000, "node"),
    ("compact model", 100_000, "node"),
    ("changes, compact model", 5_000, "changed node"),
    ("changes, compact model", 100_000, "changed node"),
    ("one change and its judgement", 5_000, "node"),
    ("assess", 5_000, "node"),
    ("assess", 100_000, "node"),
    ("assess, with kube-proxies", 5_000, "node"),
    ("assess, with kube-proxies", 100_000, "node"),
    ("decide, mid-upgrade", 5_000, "node"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [COUNTED, name, nodes, runs] => {
            let mut run = prepared(name, nodes.parse().unwrap());
            (0..runs.parse().unwrap()).for_each(|_: u32| run());
        }
        _ if arguments.iter().any(|argument| argument == LOOKED) => look(),
        // `cargo bench` passes this; under `cargo test` nothing is measured.
        _ if arguments.iter().any(|argument| argument == "--bench") => {
            table();
            look();
        }
        _ => {}
    }
}

fn table() {
    println!("\ndeciding: median (min..max) of at least {RUNS} runs");
    let counted =
        Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !counted {
        println!("instructions are not counted: valgrind is not installed");
    }
    for (name, nodes, unit) in MEASURED {
        let all = seconds(RUNS, PATIENCE, prepared(name, nodes));
        let size = f64::from(u32::try_from(nodes).unwrap());
        let each = all.iter().map(|seconds| seconds * 1e9 / size).collect();
        let times = format!("{:.1} ns per {unit}", Spread::of(each));
        let instructions = if counted {
            format!("   {:.1} instructions", instructions(name, nodes) / size)
        } else {
            String::new()
        };
        println!("{name:<30}{nodes:>7} nodes   {times:<40}{instructions}");
    }
}

/// One look in the middle of an upgrade, as a whole and in its parts.
fn look() {
    let (nodes, budgets) = LOOK;
    let pods = nodes * PODS_PER_NODE;
    let before = resident();
    let mut scene = Scene::new(nodes, budgets);
    let bytes = (resident() - before) / f64::from(u32::try_from(pods).unwrap());
    println!(
        "\none look: {nodes} nodes, {pods} pods, {budgets} budgets, {} nodes draining, {FINISHED} just upgraded",
        scene.claims.len() - FINISHED
    );
    println!("{:<50}{bytes:.0} bytes per pod, nodes and budgets included", "memory of the model");
    let mut show = |what: &str, run: &mut dyn FnMut(&mut Scene)| {
        let all = seconds(RUNS, PATIENCE, || run(&mut scene));
        let spread = Spread::of(all.iter().map(|seconds| seconds * 1e3).collect());
        println!("{what:<50}{spread:.3} ms");
    };
    let mut round = 0;
    show("one pod changed, model and decision", &mut |scene| {
        round += 1;
        scene.change(round);
        scene.memory = scene.sent.memory(&scene.cluster, at(60));
        drop(black_box(scene.decide()));
    });
    show("  the model", &mut |scene| {
        round += 1;
        scene.change(round);
    });
    show("  the model, while somebody holds the one before", &mut |scene| {
        round += 1;
        let held = scene.cluster.clone();
        scene.change(round);
        drop(held);
    });
    show("  what was sent and is not seen", &mut |scene| drop(scene.sent.memory(&scene.cluster, at(60))));
    show("  the decision", &mut |scene| drop(black_box(scene.decide())));
    show("    its plan, made and judged", &mut |scene| drop(black_box(scene.planned())));
    show("    the waves of its nodes, made and judged", &mut |scene| {
        let (plan, members) = (scene.planned(), scene.upgrade.members(&scene.cluster));
        let made = waves(plan.plan(), &scene.upgrade, &scene.cluster, &members);
        assert!(check_waves(plan.plan(), &made, &scene.upgrade, &members).is_empty());
    });
    println!("{:<50}{:.0} MiB", "memory of the process, model and plan", resident() / f64::from(1 << 20));
    show("    its progress", &mut |scene| {
        let members = scene.upgrade.members(&scene.cluster);
        let target = &scene.upgrade.version;
        let reached = |_, version: &KubeVersion| version.satisfies(target);
        _ = black_box(progress(&scene.cluster, &members, Unit::Component, reached));
    });
}

/// The memory that this process has now, in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or_default() * 1024.0
}

/// How many instructions one run takes: those of three runs less those of one.
fn instructions(name: &str, nodes: usize) -> f64 {
    let counted = |runs: u32| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().unwrap())
            .args([COUNTED, name, &nodes.to_string(), &runs.to_string()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let all = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<f64>().ok());
        all.unwrap_or_else(|| panic!("callgrind counted nothing: {said}"))
    };
    (counted(3) - counted(1)) / 2.0
}

/// One of [`MEASURED`], with everything made that it needs.
fn prepared(name: &str, nodes: usize) -> Box<dyn FnMut()> {
    match name {
        "assess" => {
            let cluster = half_upgraded(nodes);
            Box::new(move || drop(black_box(assess(black_box(&cluster), &Policy::default()))))
        }
        // Every node is counted again and all is judged; what a node is was read before.
        "compact model" => {
            let cluster = half_upgraded(nodes);
            let mut census = Census::of(&cluster);
            Box::new(move || {
                census.count();
                drop(black_box(assess_counted(black_box(&census), &cluster, &Policy::default())));
            })
        }
        // Every node goes to another version, one after the other and in no order of their names.
        "changes, compact model" => {
            let cluster = half_upgraded(nodes);
            let mut census = Census::of(&cluster);
            let mut all: Vec<Node> = cluster.nodes().iter().map(|node| node.as_ref().clone()).collect();
            let versions = [version(TARGET), version("v1.36.4")];
            let mut round = 0;
            Box::new(move || {
                round += 1;
                for step in 0..nodes {
                    let place = step * 7_919 % nodes;
                    all[place].kubelet.clone_from(&versions[(place + round) % 2]);
                    census.changed(place, black_box(&all[place]));
                }
            })
        }
        "one change and its judgement" => {
            let mut cluster = half_upgraded(nodes);
            let mut census = Census::of(&cluster);
            let versions = [version(TARGET), version("v1.36.4")];
            let mut round = 0;
            Box::new(move || {
                round += 1;
                let place = round * 7_919 % nodes;
                let name = Arc::clone(&cluster.nodes()[place].name);
                cluster.change_node(&name, |node| node.kubelet.clone_from(&versions[round % 2]));
                census.changed(place, black_box(&cluster.nodes()[place]));
                drop(black_box(assess_counted(&census, &cluster, &Policy::default())));
            })
        }
        "assess, with kube-proxies" => {
            let cluster = with_proxies(half_upgraded(nodes));
            Box::new(move || drop(black_box(assess(black_box(&cluster), &Policy::default()))))
        }
        "decide, mid-upgrade" => {
            let scene = Scene::new(nodes, BUDGETS);
            Box::new(move || drop(black_box(scene.decide())))
        }
        _ => panic!("nothing is called {name}"),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn version(text: &str) -> Observed {
    Observed::from_report(text)
}

/// A control plane at the target; every second node is too, the others are a minor behind.
fn half_upgraded(nodes: usize) -> Cluster {
    let control_plane =
        [Component::KubeApiserver, Component::KubeControllerManager, Component::KubeScheduler];
    let instances = control_plane.iter().flat_map(|component| {
        (1..=3).map(move |n| instance(*component, &format!("{component}-cp-{n}"), &format!("cp-{n}"), TARGET))
    });
    // Texts that repeat are held once, as observing does.
    let pools = ["canary", "general", "memory", "gpu"]
        .map(|pool| (Arc::from(pool), Arc::new(BTreeMap::from(labels(pool)))));
    let nodes = (0..nodes).map(|n| {
        let (pool, labels) = &pools[n % pools.len()];
        let name = format!("node-{n:05}");
        Node {
            uid: format!("uid-{name}").into(),
            name: name.into(),
            resource_version: "1".into(),
            pool: Arc::clone(pool),
            labels: Arc::clone(labels),
            kubelet: version(if n % 2 == 0 { TARGET } else { "v1.36.4" }),
            evidence: Evidence::Kubelet,
            ready: true,
            heartbeat: Some(at(0)),
            not_ready_since: None,
            unschedulable: false,
            cordoned_by: None,
            held: false,
            control_plane: false,
            etcd: false,
            taints: "".into(),
            outdated_for: None,
        }
    });
    Parts { instances: instances.collect(), nodes: nodes.map(Arc::new).collect(), ..Parts::default() }.seal()
}

fn labels(pool: &str) -> [(String, String); 3] {
    [("pool", pool), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

fn instance(component: Component, name: &str, node: &str, reported: &str) -> Instance {
    Instance {
        component,
        name: name.into(),
        node: Some(node.into()),
        version: version(reported),
        evidence: Evidence::Image,
        effective: None,
        reach: Reach::Any,
        incarnation: "1".into(),
        ready: true,
        probed: None,
    }
}

fn with_proxies(mut cluster: Cluster) -> Cluster {
    // A DaemonSet's pods end in random letters, so by name they are in no order of their nodes.
    let proxies = cluster.nodes().iter().enumerate().map(|(n, node)| {
        let letters = n.wrapping_mul(0x9e37_79b9) % 0x10_0000;
        instance(Component::KubeProxy, &format!("kube-proxy-{letters:05x}-{n}"), &node.name, "v1.36.4")
    });
    let instances = cluster.instances().iter().cloned().chain(proxies).collect();
    cluster.set_instances(instances);
    cluster
}

/// Everything a decision is made from.
struct Scene {
    upgrade: Upgrade,
    cluster: Cluster,
    claims: Vec<Claim>,
    sent: Sent,
    memory: Memory,
    releases: Catalogue,
}

impl Scene {
    fn new(nodes: usize, budgets: usize) -> Self {
        let mut cluster = half_upgraded(nodes);
        let target: KubeVersion = TARGET.parse().unwrap();
        let draining = nodes / 100;
        let behind = cluster.nodes().iter().filter(|node| node.kubelet.to_string() != TARGET);
        let mut drained: Vec<Node> = behind.take(draining).map(|node| node.as_ref().clone()).collect();
        let mut claims: Vec<_> = drained.iter_mut().map(|node| claim(node, &target)).collect();
        for node in drained {
            cluster.set_node(node);
        }
        let done = cluster.nodes().iter().filter(|node| node.kubelet.to_string() == TARGET);
        claims.extend(done.take(FINISHED).map(|node| upgraded(node, &target)));
        claims.sort_by(|a, b| a.name.cmp(&b.name));
        let apps: Vec<_> = (0..budgets).map(App::new).collect();
        let pods =
            (0..nodes * PODS_PER_NODE).map(|n| pod(n, &cluster.nodes()[n % nodes].name, &apps[n % budgets]));
        let pods = pods.map(Arc::new).collect();
        cluster.set_pods(pods);
        (0..budgets).for_each(|n| cluster.set_budget(budget(n, &apps[n])));
        let (sent, memory) = (Sent::default(), Memory::default());
        let releases = Catalogue::shipped().unwrap();
        Self { upgrade: upgrade(target), cluster, claims, sent, memory, releases }
    }

    /// A pod somewhere is not ready, or ready again.
    fn change(&mut self, round: usize) {
        let (_, budgets) = LOOK;
        let number = round * 7_919 % self.cluster.nodes().len() * PODS_PER_NODE;
        let (namespace, name) = (namespace(number % budgets), format!("app-{}-{number}", number % budgets));
        let seen = self.cluster.pod(&namespace, &name).unwrap();
        let changed = Pod { ready: !seen.ready, ..seen.clone() };
        self.cluster.set_pod(changed);
    }

    fn with_world<T>(&self, see: impl FnOnce(World<'_>) -> T) -> T {
        see(World {
            cluster: &self.cluster,
            claims: &self.claims,
            unreadable: &[],
            jobs: &Jobs::default(),
            hidden: &[],
            absent_executors: &[],
            gates: &Gates::default(),
            refused: &RefusedWrites::default(),
            freshness: &Freshness::default(),
            memory: &self.memory,
            executors: "evenkeel-executors",
            now: at(60),
        })
    }

    fn planned(&self) -> Planned {
        let progress = Progress::default();
        self.with_world(|world| planned(black_box(&self.upgrade), &progress, world, &self.releases))
    }

    fn decide(&self) -> Decision {
        let progress = Progress { started: Some(at(0)), protected: true, ..Progress::default() };
        let planned = self.planned();
        self.with_world(|world| decide(&planned, black_box(&self.upgrade), &progress, world))
    }
}

fn upgrade(target: KubeVersion) -> Upgrade {
    let workers = NodeGroup {
        // All that drain: the budget is used up, as it is most of the time.
        max_unavailable: Amount::Count(LOOK.0 / 100),
        ..NodeGroup::new("workers", Selector::default(), "external")
    };
    Upgrade {
        name: "bench".into(),
        uid: "bench".into(),
        mode: ApprovalMode::Automatic,
        groups: vec![NodeGroup::new("canary", labelled("pool", "canary"), "external"), workers],
        ..Upgrade::to(target)
    }
}

fn labelled(key: &str, value: &str) -> Selector {
    Selector { match_labels: [(key.to_owned(), value.to_owned())].into(), match_expressions: Vec::new() }
}

/// The claim of a node that is done.
fn upgraded(node: &Node, target: &KubeVersion) -> Claim {
    Claim { state: ClaimState::Upgraded { at: at(20) }, ..claim(&mut node.clone(), target) }
}

/// The claim of a node that drains, and the node as the cordon left it.
fn claim(node: &mut Node, target: &KubeVersion) -> Claim {
    let claim = Claim {
        name: format!("bench.kubelet.{}", node.name).into(),
        uid: format!("claim-{}", node.name).into(),
        resource_version: "1".into(),
        created: None,
        upgrade: "bench".into(),
        upgrade_uid: "bench".into(),
        ending: false,
        finalizers: Vec::new(),
        subject: Subject {
            component: Component::Kubelet,
            components: Vec::new(),
            node: node.name.clone(),
            node_uid: node.uid.clone(),
            from: node.kubelet.to_string(),
            to: target.clone(),
            executor: "external".into(),
        },
        state: ClaimState::Draining { since: at(30), stalled: None },
        attempt: 1,
        message: "draining".to_owned(),
        blockers: Vec::new(),
    };
    node.unschedulable = true;
    node.cordoned_by = Some(claim.mark().into());
    claim
}

/// What the pods of a workload have in common; texts that repeat are held once, as observing does.
struct App {
    namespace: Arc<str>,
    labels: Arc<BTreeMap<String, String>>,
    owner: Arc<Owner>,
}

impl App {
    fn new(number: usize) -> Self {
        let app = format!("app-{number}");
        Self {
            namespace: namespace(number),
            labels: Arc::new([("app".to_owned(), app.clone())].into()),
            owner: Arc::new(Owner {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                uid: format!("uid-{app}").into(),
                name: app.into(),
            }),
        }
    }
}

fn pod(number: usize, node: &Arc<str>, app: &App) -> Pod {
    Pod {
        namespace: Arc::clone(&app.namespace),
        name: format!("{}-{number}", app.owner.name).into(),
        uid: format!("{number:08x}-0000-4000-8000-{number:012x}").into(),
        node: Arc::clone(node),
        labels: Arc::clone(&app.labels),
        owner: Some(Arc::clone(&app.owner)),
        phase: Phase::Running,
        ready: true,
        mirror: false,
        empty_dir: false,
        ready_after: None,
        special: None,
    }
}

fn budget(number: usize, app: &App) -> Budget {
    Budget {
        namespace: Arc::clone(&app.namespace),
        name: format!("app-{number}").into(),
        resource_version: "1".into(),
        selector: Some(labelled("app", &format!("app-{number}"))),
        generation: 1,
        observed_generation: 1,
        disruptions_allowed: 1,
        current_healthy: 300,
        desired_healthy: 299,
        expected_pods: 300,
        sync_failed: None,
        closed_since: None,
        unhealthy_policy: UnhealthyPolicy::IfHealthyBudget,
        demand: Demand::MaxUnavailable(Quantity::Count(1)),
        disrupted: Disrupted::new(),
        made_by: None,
    }
}

/// Fifty namespaces of ten workloads each.
fn namespace(workload: usize) -> Arc<str> {
    format!("team-{}", workload % 50).into()
}
