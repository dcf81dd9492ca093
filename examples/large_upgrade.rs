//! A whole upgrade of a large virtual cluster, in its own time: how long it takes there and here, what it asks of the
//! kube-apiserver, how often pods move, and how much memory it needs.
//!
//! `cargo run --release --example large_upgrade -- [nodes] [replicas]`: 5,000 nodes, and a budget for every 50 pods, if
//! nothing is said. `make bench-upgrade` runs it, with and without a spare node in each zone.

#![allow(clippy::unwrap_used, reason = "a measurement that fails says so")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel::clients::Clients;
use evenkeel::clock::Clock;
use evenkeel::demo::executor::{self, Takes};
use evenkeel::operator::{Options, operate};
use evenkeel_core::lease::Timing;
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

fn main() {
    let number = |at: usize, or: usize| std::env::args().nth(at).map_or(or, |text| text.parse().unwrap());
    let (nodes, replicas) = (number(1, 5000), number(2, 50));
    for spare in [0, 3] {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(upgrade(nodes, replicas, spare));
    }
}

async fn upgrade(nodes: usize, replicas: usize, spare: usize) {
    let (began, pods) = (Instant::now(), nodes * PODS_PER_NODE);
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
        "\n{nodes} workers, {spare} spare ones, 3 control-plane nodes, {pods} pods, {} budgets; made in {:.0} s",
        pods / replicas,
        began.elapsed().as_secs_f64()
    );
    executor::work(&cluster, Takes { work: WORK, silent: SILENT, away: AWAY });
    let stop = CancellationToken::new();
    let operator = tokio::spawn(operate(clients(&cluster), options(), clock(&cluster), stop.clone()));
    let limit = (nodes / 50).max(1);
    create(&client, "ClusterUpgrade", &wish(limit)).await;

    let (real, begun) = (Instant::now(), tokio::time::Instant::now());
    let upgrades = objects(&client, "ClusterUpgrade");
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    let mut told = String::new();
    let status = loop {
        sleep(Duration::from_mins(1)).await;
        for call in cluster.faults().record().into_iter().filter(|call| call.agent == AGENT) {
            let what =
                call.subresource.map_or(call.resource.clone(), |sub| format!("{}/{sub}", call.resource));
            *asked.entry(format!("{} {what}", call.verb)).or_default() += 1;
        }
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
    let moved = nodes + spare + 3;
    let least = (WORK + SILENT + SETTLE).as_secs_f64() * float(moved) / float(limit);
    let evictions = asked.get("create pods/eviction").copied().unwrap_or_default();
    let probes = asked.get("get ").copied().unwrap_or_default();
    let rest = asked.values().sum::<usize>() - evictions - probes;
    println!(
        "  {} nodes, {limit} at once: {}",
        status["progress"]["summary"], status["conditions"][0]["reason"]
    );
    println!(
        "  time        {:.1} h of the cluster, {:.2} times what its nodes take at least; {:.0} s here",
        took.as_secs_f64() / 3600.0,
        took.as_secs_f64() / least,
        real.elapsed().as_secs_f64()
    );
    println!("  evictions   {evictions} asked, {:.2} for each pod", float(evictions) / float(pods));
    println!(
        "  requests    {:.1} a node besides its evictions, and {probes} probes of kube-apiservers",
        float(rest) / float(moved)
    );
    asked.remove("get ");
    let mut most: Vec<_> = asked.iter().collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (what, count) in most.into_iter().take(8) {
        println!("              {count:>8} {what}");
    }
    println!("  memory      {} MiB, the cluster included", memory());
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

fn options() -> Options {
    let seconds = Duration::from_secs;
    Options {
        upgrades: true,
        namespace: "kube-system".to_owned(),
        identity: "large".to_owned(),
        executors_namespace: "evenkeel-executors".to_owned(),
        lease: Timing { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) },
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
