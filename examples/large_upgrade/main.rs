//! A whole upgrade of a large virtual cluster, in its own time: how long it takes there and here, what it asks of the
//! kube-apiserver, how often pods move, and how much memory it needs; and the same nodes moved by hand.
//!
//! `cargo run --release --example large_upgrade -- [nodes] [replicas]`: 5,000 nodes, and a budget for every 50 pods, if
//! nothing is said. `make bench-upgrade` runs it, with and without a spare node in each zone.

#![allow(clippy::unwrap_used, reason = "a measurement that fails says so")]

mod by_hand;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel::clients::Clients;
use evenkeel::clock::Clock;
use evenkeel::demo::executor::{self, Takes};
use evenkeel::operator::{OperatorOptions, operate};
use evenkeel_core::lease::LeaseTiming;
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_sim::{Cluster, NodeGroup, crowd};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const FROM: &str = "v1.36.4";
const TO: &str = "v1.37.1";
const PODS_PER_NODE: usize = 30;
/// How long an executor works on a node before the kubelet is replaced, and how long that is silent then.
const WORK: Duration = Duration::from_mins(2);
const SILENT: Duration = Duration::from_secs(8);
/// How long a node is cordoned at least before its executor begins.
const SETTLE: Duration = Duration::from_secs(5);
/// How long a component of the control plane is away.
const AWAY: Duration = Duration::from_secs(6);
const AGENT: &str = "evenkeel";
/// The cluster's time after which nobody waits any more.
const PATIENCE: Duration = Duration::from_hours(24 * 14);

/// The C library's own takes three times as long and twice the memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TAKES: Takes = Takes { work: WORK, silent: SILENT, away: AWAY };

fn main() {
    let number = |at: usize, or: usize| std::env::args().nth(at).map_or(or, |text| text.parse().unwrap());
    let size = Size { nodes: number(1, 5000), replicas: number(2, 50), spare: 0 };
    let evenkeel = virtually(upgrade(size));
    let with_spare = virtually(upgrade(Size { spare: 3, ..size }));
    let by_hand = virtually(by_hand(size));
    println!("\n  beside by hand              time  evictions  requests");
    for (name, cost) in [("by Evenkeel", evenkeel), ("with a spare node a zone", with_spare)] {
        println!(
            "  {name:<24} {:>7.3} {:>10.2} {:>9.2}",
            cost.seconds / by_hand.seconds,
            cost.evictions / by_hand.evictions,
            cost.requests / by_hand.requests
        );
    }
}

/// What an upgrade cost.
struct Cost {
    /// Of the cluster's time.
    seconds: f64,
    /// For each pod.
    evictions: f64,
    /// For each node, its evictions included.
    requests: f64,
}

fn virtually(measured: impl Future<Output = Cost>) -> Cost {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(measured)
}

/// Of the cluster.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    /// Pods of each `ReplicaSet`, which one budget covers.
    replicas: usize,
    spare: usize,
}

impl Size {
    const fn pods(self) -> usize {
        self.nodes * PODS_PER_NODE
    }

    /// Nodes that move.
    const fn moved(self) -> usize {
        self.nodes + self.spare + 3
    }
}

/// The cluster, and a client of it.
async fn made(size: Size) -> (Cluster, Client) {
    let began = Instant::now();
    let Size { nodes, replicas, spare } = size;
    let cluster = Cluster::builder().seed(1).version(TO).start();
    let client = cluster.client_of("kubectl");
    prepare(&client).await;
    cluster.add_control_plane(&NodeGroup::new("cp", 3).kubelet(FROM).zones(["a", "b", "c"]), FROM);
    cluster.add_nodes(&NodeGroup::new("worker", nodes).kubelet(FROM).zones(["a", "b", "c"]));
    if spare > 0 {
        cluster.add_nodes(&NodeGroup::new("spare", spare).kubelet(FROM).zones(["a", "b", "c"]));
    }
    cluster.load(crowd(nodes, replicas));
    sleep(Duration::from_mins(1)).await;
    println!(
        "\n{nodes} workers, {spare} spare ones, 3 control-plane nodes, {} pods, {} budgets; made in {:.0} s",
        size.pods(),
        size.pods() / replicas,
        began.elapsed().as_secs_f64()
    );
    (cluster, client)
}

/// What a program asked for: how often, by verb and resource.
#[derive(Default)]
struct Asked(BTreeMap<String, usize>);

impl Asked {
    /// Adds what `agent` asked since the last time.
    fn add(&mut self, cluster: &Cluster, agent: &str) {
        for call in cluster.faults().record().into_iter().filter(|call| call.agent == agent) {
            let what =
                call.subresource.map_or(call.resource.clone(), |sub| format!("{}/{sub}", call.resource));
            *self.0.entry(format!("{} {what}", call.verb)).or_default() += 1;
        }
    }

    /// Prints what `size` nodes cost, and what was asked most often.
    fn tell(mut self, size: Size, took: Duration) -> Cost {
        let evictions = self.0.remove("create pods/eviction").unwrap_or_default();
        let probes = self.0.remove("get ").unwrap_or_default();
        let rest = self.0.values().sum::<usize>();
        let is_of_node = |what: &&String| {
            let (verb, of) = what.split_once(' ').unwrap_or_default();
            verb != "get" && verb != "list" && verb != "watch" && of.starts_with("node")
        };
        let writes: usize = self.0.iter().filter(|(what, _)| is_of_node(what)).map(|(_, count)| count).sum();
        println!(
            "  evictions   {evictions} asked, {:.2} for each pod",
            float(evictions) / float(size.pods())
        );
        let probes =
            if probes > 0 { format!(", and {probes} probes of kube-apiservers") } else { String::new() };
        println!(
            "  requests    {:.1} a node besides its evictions{probes}",
            float(rest) / float(size.moved())
        );
        // Nobody who works by hand has any.
        if self.0.contains_key("create nodeupgrades.evenkeel.dev") {
            println!(
                "  writes      {:.1} to each node and its NodeUpgrade, where 6 are the goal",
                float(writes) / float(size.moved())
            );
        }
        let mut most: Vec<_> = self.0.iter().collect();
        most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (what, count) in most.into_iter().take(7) {
            println!("              {count:>8} {what}");
        }
        println!("  memory      {} MiB at most so far, the cluster included", memory());
        Cost {
            seconds: took.as_secs_f64(),
            evictions: float(evictions) / float(size.pods()),
            requests: float(evictions + rest) / float(size.moved()),
        }
    }
}

async fn upgrade(size: Size) -> Cost {
    let (cluster, client) = made(size).await;
    executor::run(&cluster, TAKES);
    let stop = CancellationToken::new();
    let operator = tokio::spawn(operate(clients(&cluster), options(), clock(&cluster), stop.clone()));
    let limit = (size.nodes / 50).max(1);
    create(&client, "ClusterUpgrade", &wish(limit)).await;

    let (real, begun) = (Instant::now(), tokio::time::Instant::now());
    let upgrades = objects(&client, "ClusterUpgrade");
    let (mut asked, mut told) = (Asked::default(), String::new());
    let status = loop {
        sleep(Duration::from_mins(1)).await;
        asked.add(&cluster, AGENT);
        let status = upgrades.get("large").await.unwrap().data["status"].clone();
        let summary = status["progress"]["summary"].as_str().unwrap_or_default().to_owned();
        if begun.elapsed().as_secs() % 3600 < 60 && summary != told {
            eprintln!(
                "{:>3} h: {summary} nodes, {:.0} s",
                begun.elapsed().as_secs() / 3600,
                real.elapsed().as_secs_f64()
            );
            told = summary;
        }
        if status["completionTime"].is_string() {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not end: {:#}", status["conditions"]);
    };
    let took = begun.elapsed();
    stop.cancel();
    operator.await.unwrap().unwrap();
    println!(
        "  {} nodes, {limit} at once: {}",
        status["progress"]["summary"], status["conditions"][0]["reason"]
    );
    took_for(size, limit, took, real);
    asked.tell(size, took)
}

/// The same nodes, one after the other, as a person moves them.
async fn by_hand(size: Size) -> Cost {
    let (cluster, _client) = made(size).await;
    let (real, begun) = (Instant::now(), tokio::time::Instant::now());
    let mut asked = Asked::default();
    let moving = {
        let cluster = cluster.clone();
        tokio::spawn(async move { by_hand::upgrade(&cluster, TAKES, TO).await })
    };
    while !moving.is_finished() {
        sleep(Duration::from_mins(1)).await;
        asked.add(&cluster, by_hand::AGENT);
    }
    let refused = moving.await.unwrap();
    println!("  by hand, one node after the other, as kubectl drain asks: {refused} evictions were refused");
    let took = begun.elapsed();
    took_for(size, 1, took, real);
    asked.tell(size, took)
}

fn took_for(size: Size, at_once: usize, took: Duration, real: Instant) {
    let least = (WORK + SILENT + SETTLE).as_secs_f64() * float(size.moved()) / float(at_once);
    println!(
        "  time        {:.1} h of the cluster, {:.2} times what its nodes take at least; {:.0} s here",
        took.as_secs_f64() / 3600.0,
        took.as_secs_f64() / least,
        real.elapsed().as_secs_f64()
    );
}

fn wish(limit: usize) -> Value {
    json!({"metadata": {"name": "large"}, "spec": {
        "version": TO, "mode": "Automatic", "controlPlane": {"executor": "machines"},
        "nodeGroups": [{"name": "all", "selector": {}, "executor": "machines", "maxUnavailable": limit}],
        "drain": {"timeoutSeconds": 3600}}})
}

/// Installs our kinds, the namespaces, and an executor that is somebody else.
async fn prepare(client: &Client) {
    let definitions: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    for (_, definition) in evenkeel::api::definitions() {
        let object = serde_json::from_value(serde_json::to_value(definition).unwrap()).unwrap();
        definitions.create(&PostParams::default(), &object).await.unwrap();
    }
    for name in ["evenkeel-system", "evenkeel-executors"] {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }
    sleep(Duration::from_secs(2)).await;
    create(client, "UpgradeExecutor", &json!({"metadata": {"name": "machines"}, "spec": {"external": {}}}))
        .await;
}

fn objects(client: &Client, kind: &str) -> Api<DynamicObject> {
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("evenkeel.dev", "v1alpha1", kind)),
    )
}

async fn create(client: &Client, kind: &str, object: &Value) {
    let mut object = object.clone();
    (object["apiVersion"], object["kind"]) = ("evenkeel.dev/v1alpha1".into(), kind.into());
    let object = serde_json::from_value(object).unwrap();
    objects(client, kind).create(&PostParams::default(), &object).await.unwrap();
}

fn clients(cluster: &Cluster) -> Clients {
    let process = cluster.process(AGENT);
    let probed = process.clone();
    Clients {
        read: process.client(),
        effects: process.client(),
        election: process.client_as("lease"),
        connect: Arc::new(move |address| Ok(probed.client_at(address))),
    }
}

fn clock(cluster: &Cluster) -> Clock {
    let cluster = cluster.clone();
    Clock::new(move || cluster.now())
}

fn options() -> OperatorOptions {
    let seconds = Duration::from_secs;
    OperatorOptions {
        upgrades: true,
        namespace: "kube-system".to_owned(),
        identity: "large".to_owned(),
        executors_namespace: "evenkeel-executors".to_owned(),
        lease: LeaseTiming { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) },
        listen: ([127, 0, 0, 1], 0).into(),
        releases: Catalogue::shipped().unwrap(),
    }
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// The most memory that this process has had, in MiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}
