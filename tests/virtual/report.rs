//! The report's controller: it dies, is cut off, is lied to and paused at every request, and in the end the report is that
//! of a run without faults.
//!
//! Checked after every write of any run: only what the operator may write is written, only by who leads, not more often
//! than said, not larger than said, and no version is reported that no kubelet has had.

mod campaigns;
mod process;
mod suspended;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use evenkeel_sim::faults::Call;
use evenkeel_sim::{Cluster, NodeGroup, Write};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::campaign::{self, Wrong, all, virtually};
use super::kube_api::{BASE_SEED, Base, Kube};
use super::replica::replica;
use super::rights::{Account, beyond};
use super::script::{self, Step};

const REPORT: &str = "/apis/evenkeel.dev/v1alpha1/clusterskewreports/cluster";
/// The election's, in kube-system.
const LEASE: &str = "evenkeel";
/// How long things happen, and how long it then may take until all is well.
const LIFE: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_secs(80);
/// Nothing is told twice of an event that was lost, but kubelets say how they are every five minutes.
const QUIET_AFTER_LOSS: Duration = Duration::from_secs(700);
/// Larger than this no report is, however large the cluster.
const MOST_BYTES: usize = 64 * 1024;

/// How a run ended.
struct Run {
    wrong: Wrong,
    report: Value,
    calls: Vec<Call>,
}

/// Checks after every write.
#[derive(Default)]
struct Watcher {
    wrong: Wrong,
    /// Every state that the kubelets' versions were in, oldest first.
    kubelets: BTreeSet<Vec<String>>,
    nodes: std::collections::BTreeMap<String, String>,
    leader: String,
    report_writes: Vec<Instant>,
    generation: i64,
    /// Events were lost or came in another order, so what is seen need never have been at once.
    blurred: bool,
    /// A request came after its time; its precondition is all that holds it back.
    late: bool,
}

impl Watcher {
    fn see(&mut self, write: &Write<'_>) {
        match write.resource() {
            "nodes" if !write.is_heartbeat() => {
                match write.after() {
                    Some(node) => {
                        let version =
                            node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default();
                        self.nodes.insert(write.name().to_owned(), version.to_owned());
                    }
                    None => _ = self.nodes.remove(write.name()),
                }
                let mut versions: Vec<String> = self.nodes.values().cloned().collect();
                versions.sort_unstable();
                self.kubelets.insert(versions);
            }
            "leases.coordination.k8s.io" if write.name() == LEASE => {
                let after = write.after().unwrap_or_default();
                after["spec"]["holderIdentity"].as_str().unwrap_or_default().clone_into(&mut self.leader);
            }
            _ => {}
        }
        if !write.author().starts_with("evenkeel") {
            return;
        }
        let said = match write.resource() {
            "clusterskewreports.evenkeel.dev" => self.report(write),
            "leases.coordination.k8s.io" if write.name() == LEASE => return,
            "events.events.k8s.io" | "events" => return,
            other => Err(format!("writes {other} {}/{}", write.namespace(), write.name())),
        };
        if let Err(what) = said {
            self.wrong.push(format!("revision {}: {} {what}", write.revision(), write.author()));
        }
    }

    fn report(&mut self, write: &Write<'_>) -> Result<(), String> {
        let after = write.after().ok_or("deletes the report")?;
        if write.before().is_some_and(|before| before["spec"] != after["spec"]) {
            return Err("changes the report's spec".to_owned());
        }
        let replica = write.author().trim_start_matches("evenkeel-");
        if !self.leader.is_empty() && !self.leader.starts_with(replica) && !self.late {
            return Err(format!("writes the report while {} leads", self.leader));
        }
        let status = &after["status"];
        // As the server makes it.
        if status["observedGeneration"] == -1 {
            return Ok(());
        }
        let now = Instant::now();
        // One write, and one more that takes out what somebody else put there.
        let busy = self.report_writes.iter().filter(|at| now < **at + Duration::from_secs(1)).count();
        self.report_writes.push(now);
        if busy > 1 {
            return Err(format!("writes the report {} times within a second", busy + 1));
        }
        if after.to_string().len() > MOST_BYTES {
            return Err(format!("makes the report {} bytes large", after.to_string().len()));
        }
        let generation = status["observedGeneration"].as_i64().unwrap_or(0);
        if generation < self.generation || generation > after["metadata"]["generation"].as_i64().unwrap_or(0)
        {
            return Err(format!("says generation {generation} after {}", self.generation));
        }
        self.generation = generation;
        let mut versions = Vec::new();
        for row in status["components"].as_array().into_iter().flatten() {
            if row["component"] == "kubelet" {
                let count = row["count"].as_u64().unwrap_or(0);
                let version = row["version"].as_str().unwrap_or_default();
                versions.extend((0..count).map(|_| version.to_owned()));
            }
        }
        versions.sort_unstable();
        if versions.len() as i64 != status["nodes"].as_i64().unwrap_or(0) {
            return Err(format!("counts {} kubelets of {} nodes", versions.len(), status["nodes"]));
        }
        let ready = status["conditions"].as_array().into_iter().flatten();
        let fresh = ready.clone().any(|found| found["type"] == "Ready" && found["status"] == "True");
        if fresh && !self.blurred && !self.kubelets.contains(&versions) {
            return Err(format!("reports kubelets {versions:?}, which never were"));
        }
        Ok(())
    }
}

/// Three control-plane nodes, three workers of two minors, one of them too old.
async fn cluster() -> Base {
    let cluster = Cluster::builder().seed(BASE_SEED).version("v1.37.1").start();
    let kube = Kube(cluster.client_of("kubectl"));
    kube.install().await;
    kube.namespace("evenkeel-system").await;
    kube.namespace("shop").await;
    cluster.add_control_plane(&NodeGroup::new("cp", 3).kubelet("v1.37.1"), "v1.37.1");
    cluster.replace_component("cp-3", "kube-apiserver", "v1.36.4");
    cluster.add_nodes(&NodeGroup::new("worker", 2).kubelet("v1.36.4"));
    cluster.add_nodes(&NodeGroup::new("old", 1).kubelet("v1.32.2"));
    sleep(Duration::from_secs(15)).await;
    Base::of(&cluster)
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    // A runtime of its own, because the one of whoever asks runs already.
    BASE.get_or_init(|| std::thread::scope(|scope| scope.spawn(|| virtually(cluster).0).join().unwrap()))
}

/// What happens in every run: kubelets and apiservers change, a node comes and another goes, somebody edits the report.
const DEEDS: [(u64, &str); 7] = [
    (8_000, "kubelet old-1 v1.36.4"),
    (11_000, "component cp-3 kube-apiserver v1.37.1"),
    (14_000, "join late v1.35.2"),
    (17_000, "kubelet worker-1 v1.37.1"),
    (19_000, "edit"),
    (22_000, "leave worker-2"),
    (25_000, "component cp-1 kube-scheduler v1.36.9"),
];

async fn happens(cluster: &Cluster, kube: &Kube, deed: &str) {
    let words: Vec<&str> = deed.split(' ').collect();
    match words.as_slice() {
        ["kubelet" | "again", node, version] => _ = cluster.start_kubelet(node, version),
        ["component", node, component, version] => cluster.replace_component(node, component, version),
        ["join", prefix, version] => _ = cluster.add_nodes(&NodeGroup::new(*prefix, 1).kubelet(*version)),
        ["leave", node] => _ = kube.delete(&format!("/api/v1/nodes/{node}")).await,
        ["edit"] => {
            let patch = json!({"status": {"supported": "certainly", "nodes": 4711}});
            // There may be no report yet.
            _ = kube.merge(&format!("{REPORT}/status"), &patch).await;
        }
        ["blackout", seconds] => {
            // What happens to the cluster happens all the same.
            let ours = ["evenkeel-a", "evenkeel-b", "evenkeel-a-lease", "evenkeel-b-lease"];
            cluster.faults().blackout_of(&ours, Duration::from_secs(seconds.parse().unwrap()));
        }
        ["cut", agent, seconds] => {
            let lease = format!("{agent}-lease");
            let time = Duration::from_secs(seconds.parse().unwrap());
            cluster.faults().blackout_of(&[agent, &lease], time);
        }
        ["stop", node, component] => _ = cluster.run_component(node, component, false),
        ["start", node, component] => _ = cluster.run_component(node, component, true),
        ["jump", seconds] => cluster.jump(jiff::SignedDuration::from_secs(seconds.parse().unwrap())),
        ["compact"] => cluster.compact(),
        ["mutate", kind, name, pointer, value] => {
            if let Some(mut object) = object(cluster, kind, name) {
                *object.pointer_mut(pointer).unwrap_or(&mut Value::Null) = evil(value.parse().unwrap());
                cluster.load([object]);
            }
        }
        ["mend", kind, name, pointer] => {
            let was = base().find(kind, name).and_then(|object| object.pointer(pointer).cloned());
            if let Some(mut object) = object(cluster, kind, name) {
                // A path that the server took away with what was around it comes back with the whole object.
                match (object.pointer_mut(pointer), was) {
                    (Some(at), Some(was)) => *at = was,
                    _ => object = base().find(kind, name).unwrap_or(object),
                }
                cluster.load([object]);
            }
        }
        ["silent", node] => cluster.kubelets().stop(node),
        _ => panic!("nothing is called {deed}"),
    }
}

fn object(cluster: &Cluster, kind: &str, name: &str) -> Option<Value> {
    cluster.dump().into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// What nobody sane writes into a field.
fn evil(which: usize) -> Value {
    match which {
        0 => json!("v1.99999999999999999999.0"),
        1 => json!("\u{1b}[31m<script>alert(1)</script>\u{202e}\n=cmd()"),
        2 => json!("x".repeat(200_000)),
        3 => json!(""),
        4 => Value::Null,
        5 => json!(1e30),
        6 => json!(-1),
        7 => json!([]),
        8 => json!({}),
        _ => json!("2999-12-31T23:59:59Z"),
    }
}
const EVIL: usize = 10;

/// One run, with two replicas.
async fn life(seed: u64, script: &[Step]) -> Run {
    let (cluster, kube) = base().start(seed).await;
    let loses = |step: &Step| match step {
        Step::Told { fault, .. } => fault == "drop" || fault == "swap",
        // A server that skips events and says that there were none is not found out before it is asked anew.
        Step::Call { fault, .. } => fault == "bookmarks",
        // What a node is made to say is not what is shown of it.
        Step::At { deed, .. } => deed.starts_with("mutate"),
        Step::Like { .. } => false,
    };
    let late = |step: &Step| matches!(step, Step::Call { fault, .. } if fault.starts_with("late") || fault.starts_with("pause"));
    let watcher = Arc::new(Mutex::new(Watcher {
        blurred: script.iter().any(loses),
        late: script.iter().any(late),
        ..Watcher::default()
    }));
    for node in kube.list("/api/v1/nodes").await {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&node["status"]["nodeInfo"]["kubeletVersion"]);
        watcher.lock().unwrap().nodes.insert(text(&node["metadata"]["name"]), version);
    }
    {
        let mut seen = watcher.lock().unwrap();
        let mut versions: Vec<String> = seen.nodes.values().cloned().collect();
        versions.sort_unstable();
        seen.kubelets.insert(versions);
    }
    let seeing = Arc::clone(&watcher);
    cluster.on_write(move |write| seeing.lock().unwrap().see(write));
    cluster.faults().record();
    script::arm(&cluster, script);

    let begun = Instant::now();
    let stop = CancellationToken::new();
    let first = tokio::spawn(replica(cluster.clone(), "a", false, stop.clone()));
    let second = tokio::spawn({
        let (cluster, stop) = (cluster.clone(), stop.clone());
        async move {
            sleep(Duration::from_secs(3)).await;
            replica(cluster, "b", false, stop).await;
        }
    });
    let mut deeds: Vec<(u64, String)> = DEEDS.iter().map(|(at, deed)| (*at, (*deed).to_owned())).collect();
    for step in script {
        if let Step::At { millis, deed } = step {
            deeds.push((*millis, deed.clone()));
        }
    }
    deeds.sort_by_key(|(at, _)| *at);
    for (at, deed) in deeds {
        sleep_until(begun + Duration::from_millis(at)).await;
        happens(&cluster, &kube, &deed).await;
    }
    sleep_until(begun + LIFE + outage(script)).await;
    cluster.faults().clear();
    let mute =
        |step: &Step| matches!(step, Step::Call { fault, .. } if fault == "silence" || fault == "bookmarks");
    let lost = script.iter().any(|step| {
        mute(step) || matches!(step, Step::Told { fault, .. } if fault == "drop" || fault == "swap")
    });
    sleep(if lost { QUIET_AFTER_LOSS } else { QUIET }).await;
    let calls = cluster.faults().record();
    let report = kube.get(REPORT).await.unwrap_or_default();
    stop.cancel();
    let _ = (first.await, second.await);
    let mut wrong = std::mem::take(&mut watcher.lock().unwrap().wrong);
    wrong.extend(beyond(&calls, Account::Reporter));
    Run { wrong, report, calls }
}

/// How much longer things go wrong than things happen.
fn outage(script: &[Step]) -> Duration {
    let seconds = |step: &Step| match step {
        Step::At { deed, .. } if deed.starts_with("blackout") || deed.starts_with("cut") => {
            deed.rsplit(' ').next()?.parse().ok()
        }
        _ => None,
    };
    Duration::from_secs(script.iter().filter_map(seconds).max().unwrap_or(0))
}

/// The report without times.
fn timeless(mut report: Value) -> Value {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| {
                    !matches!(key.as_str(), "lastObservedTime" | "lastTransitionTime" | "since")
                });
                map.values_mut().for_each(clean);
            }
            Value::Array(list) => list.iter_mut().for_each(clean),
            _ => {}
        }
    }
    let mut status = report["status"].take();
    clean(&mut status);
    status
}

fn run(seed: u64, script: &[Step]) -> Run {
    let (mut run, panics) = virtually(async || life(seed, script).await);
    run.wrong.extend(panics);
    run
}

/// Runs the scripts against the end of a run without faults.
fn campaign(name: &str, scripts: Vec<(u64, Vec<Step>)>) {
    let faultless = run(1, &[]);
    assert!(faultless.wrong.is_empty(), "{:#?}", faultless.wrong);
    let wanted = timeless(faultless.report);
    all(name, scripts, |seed, script| {
        let done = run(seed, script);
        let mut wrong = done.wrong;
        let ended = timeless(done.report);
        let skips = |step: &Step| matches!(step, Step::Call { fault, .. } if fault == "bookmarks");
        if ended != wanted && !script.iter().any(skips) {
            wrong.push(format!("ends otherwise: {}", difference(&wanted, &ended, "status")));
        }
        wrong
    });
}

/// Where two values differ first.
pub fn difference(wanted: &Value, found: &Value, path: &str) -> String {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            let keys: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
            let null = Value::Null;
            let differs = keys.into_iter().find(|key| wanted.get(*key) != found.get(*key));
            let Some(key) = differs else { return String::new() };
            let (wanted, found) = (wanted.get(key).unwrap_or(&null), found.get(key).unwrap_or(&null));
            difference(wanted, found, &format!("{path}.{key}"))
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let at = wanted.iter().zip(found).position(|(wanted, found)| wanted != found).unwrap_or(0);
            difference(&wanted[at], &found[at], &format!("{path}[{at}]"))
        }
        _ => format!("{path} is {found}, not {wanted}"),
    }
}
