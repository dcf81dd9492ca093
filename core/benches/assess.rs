//! How long the two pure functions take that run at every change: the judgement of a cluster, and the next step of an
//! upgrade. `make bench` runs it. Neither a network nor a cluster is involved: this is what deciding costs, not what
//! observing or acting does.

#![allow(clippy::unwrap_used, reason = "a bench may fail where it stands")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::ItemsCount;
use evenkeel_core::cluster::{
    Budget, Cluster, Component, Demand, Disrupted, Evidence, Instance, Node, Owner, Phase, Pod, Quantity,
    Reach, Selector, UnhealthyPolicy,
};
use evenkeel_core::plan::{Amount, Executor, Group, Mode, Upgrade};
use evenkeel_core::rollout::{Claim, Decision, Memory, State, Subject, World, decide};
use evenkeel_core::skew::assess;
use evenkeel_core::skew::policy::Policy;
use evenkeel_core::version::{KubeVersion, Observed};
use jiff::{SignedDuration, Timestamp};

const PODS_PER_NODE: usize = 30;
/// Each guards the pods of one workload.
const BUDGETS: usize = 500;
const TARGET: &str = "v1.37.1";

fn main() {
    divan::main();
    // `cargo bench` passes this; under `cargo test` nothing is measured.
    if std::env::args().any(|arg| arg == "--bench") {
        summary();
    }
}

/// The judgement of nodes of four pools and two versions, without kube-proxies.
#[divan::bench(args = [5_000, 50_000])]
fn assess_nodes(bencher: Bencher<'_, '_>, nodes: usize) {
    let cluster = half_upgraded(nodes);
    bencher.counter(ItemsCount::new(nodes)).bench_local(|| assess(black_box(&cluster), &Policy::default()));
}

/// The same with a kube-proxy on every node, as most clusters have it.
#[divan::bench(args = [5_000, 50_000])]
fn assess_nodes_with_proxies(bencher: Bencher<'_, '_>, nodes: usize) {
    let cluster = with_proxies(half_upgraded(nodes));
    bencher.counter(ItemsCount::new(nodes)).bench_local(|| assess(black_box(&cluster), &Policy::default()));
}

/// One decision in the middle of an upgrade: half of the nodes done, one percent draining, thirty pods on every node.
#[divan::bench(args = [5_000])]
fn decide_mid_upgrade(bencher: Bencher<'_, '_>, nodes: usize) {
    let scene = Scene::new(nodes);
    bencher.counter(ItemsCount::new(nodes)).bench_local(|| scene.decide());
}

/// The same figures as nanoseconds per node: the best of many runs, which other load on the machine disturbs least.
fn summary() {
    println!("\nns per node (best of the runs of one second)");
    for nodes in [5_000, 50_000] {
        let cluster = half_upgraded(nodes);
        line("assess", nodes, || drop(black_box(assess(black_box(&cluster), &Policy::default()))));
        let cluster = with_proxies(cluster);
        line("assess, with kube-proxies", nodes, || {
            drop(black_box(assess(black_box(&cluster), &Policy::default())));
        });
    }
    let scene = Scene::new(5_000);
    line("decide, mid-upgrade", 5_000, || drop(black_box(scene.decide())));
}

fn line(what: &str, nodes: usize, run: impl Fn()) {
    let mut best = Duration::MAX;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let started = Instant::now();
        run();
        best = best.min(started.elapsed());
    }
    let each = best.as_secs_f64() * 1e9 / f64::from(u32::try_from(nodes).unwrap());
    println!("{what:<26} {nodes:>6} nodes {each:>10.1} ns  ({:.3} ms)", best.as_secs_f64() * 1e3);
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
    let pools = ["canary", "general", "memory", "gpu"];
    let nodes = (0..nodes).map(|n| {
        let pool = pools.get(n % pools.len()).copied().unwrap_or_default();
        let name = format!("node-{n:05}");
        Node {
            uid: format!("uid-{name}").into(),
            name: name.into(),
            resource_version: "1".into(),
            pool: pool.into(),
            labels: BTreeMap::from(labels(pool)).into(),
            kubelet: version(if n % 2 == 0 { TARGET } else { "v1.36.4" }),
            ready: true,
            heartbeat: Some(at(0)),
            unschedulable: false,
            cordoned_by: None,
            held: false,
            control_plane: false,
        }
    });
    Cluster { instances: instances.collect(), nodes: nodes.collect(), ..Cluster::default() }.sorted()
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
    }
}

fn with_proxies(mut cluster: Cluster) -> Cluster {
    let proxies = cluster.nodes.iter().map(|node| {
        instance(Component::KubeProxy, &format!("kube-proxy-{}", node.name), &node.name, "v1.36.4")
    });
    cluster.instances.extend(proxies);
    cluster.sorted()
}

/// Everything a decision is made from.
struct Scene {
    upgrade: Upgrade,
    cluster: Cluster,
    claims: Vec<Claim>,
    memory: Memory,
}

impl Scene {
    fn new(nodes: usize) -> Self {
        let mut cluster = half_upgraded(nodes);
        let target: KubeVersion = TARGET.parse().unwrap();
        let draining = nodes / 100;
        let behind = cluster.nodes.iter_mut().filter(|node| node.kubelet.to_string() != TARGET);
        let claims: Vec<_> = behind.take(draining).map(|node| claim(node, &target)).collect();
        cluster.pods = (0..nodes * PODS_PER_NODE).map(|n| pod(n, nodes)).collect();
        cluster.budgets = (0..BUDGETS).map(budget).collect();
        Self { upgrade: upgrade(target), cluster: cluster.sorted(), claims, memory: Memory::default() }
    }

    fn decide(&self) -> Decision {
        decide(
            black_box(&self.upgrade),
            World {
                cluster: &self.cluster,
                claims: &self.claims,
                jobs: &BTreeMap::new(),
                memory: &self.memory,
                executors: "evenkeel-executors",
                now: at(60),
            },
        )
    }
}

fn upgrade(target: KubeVersion) -> Upgrade {
    let external = Executor::External { deadline: SignedDuration::from_hours(2) };
    Upgrade {
        name: "bench".into(),
        version: target,
        mode: Mode::Automatic,
        approved_hash: None,
        suspended: false,
        queued_behind: None,
        control_plane_executor: "cloud".into(),
        groups: vec![
            Group {
                name: "canary".into(),
                selector: labelled("pool", "canary"),
                max_unavailable: Amount::Count(1),
                executor: "cloud".into(),
            },
            Group {
                name: "workers".into(),
                selector: Selector::default(),
                max_unavailable: Amount::Percent(2),
                executor: "cloud".into(),
            },
        ],
        drain_timeout: SignedDuration::from_mins(30),
        executors: [("cloud".into(), external)].into(),
        from: None,
        started: Some(at(0)),
        completed: None,
    }
}

fn labelled(key: &str, value: &str) -> Selector {
    Selector { match_labels: [(key.to_owned(), value.to_owned())].into(), match_expressions: Vec::new() }
}

/// The claim of a node that drains, and the node as the cordon left it.
fn claim(node: &mut Node, target: &KubeVersion) -> Claim {
    let claim = Claim {
        name: format!("bench.kubelet.{}", node.name).into(),
        uid: format!("claim-{}", node.name).into(),
        resource_version: "1".into(),
        upgrade: "bench".into(),
        subject: Subject {
            component: Component::Kubelet,
            node: node.name.clone(),
            node_uid: node.uid.clone(),
            from: node.kubelet.to_string(),
            to: target.clone(),
            executor: "cloud".into(),
        },
        state: State::Draining { since: at(30) },
        attempt: 1,
        message: "draining".to_owned(),
        blockers: Vec::new(),
    };
    node.unschedulable = true;
    node.cordoned_by = Some(claim.mark().into());
    claim
}

fn pod(number: usize, nodes: usize) -> Pod {
    let app = format!("app-{}", number % BUDGETS);
    Pod {
        namespace: namespace(number % BUDGETS),
        name: format!("{app}-{number}").into(),
        uid: format!("uid-{number}").into(),
        node: format!("node-{:05}", number % nodes).into(),
        labels: Arc::new([("app".to_owned(), app.clone())].into()),
        owner: Some(Owner {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            uid: format!("uid-{app}").into(),
            name: app.into(),
        }),
        phase: Phase::Running,
        ready: true,
        deleting: None,
        mirror: false,
        empty_dir: false,
        executor_of: None,
        special: None,
    }
}

fn budget(number: usize) -> Budget {
    Budget {
        namespace: namespace(number),
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
