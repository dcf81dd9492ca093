//! What the reporter costs on a real kube-apiserver with 5,000 nodes, and how fast it is.
//!
//! `make bench-cluster` runs it, with the static binary that the image ships. It starts a control plane in a namespace of
//! its own, makes the nodes as large as real ones are, runs the reporter under its own service account, and measures from
//! outside: by a watch on the report, by `/proc`, and by the apiserver's audit log. Nothing here asks the reporter itself.

#![allow(clippy::cast_precision_loss, reason = "counts and milliseconds are small")]

mod nodes;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, Role, TestResult, V1_37};
use evenkeel_testkit::scenario::{kubectl, root};
use futures::stream::{self, Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use nodes::{POOLS, node, node_name, quiet};

const NODES: usize = 5000;
const STARTS: usize = 10;
const CHANGES: usize = 200;
const STORM: Duration = Duration::from_secs(30);
/// Next to nothing, and as much as the report.
const FLOORS: [(usize, &str); 2] = [(100, "0.1 kB"), (38_000, "38 kB")];
const REST: Duration = Duration::from_mins(1);
const USER: &str = "system:serviceaccount:evenkeel-system:evenkeel-reporter";

fn main() -> ExitCode {
    let binary = std::env::args_os().nth(1).map(PathBuf::from).filter(|path| path.is_file());
    let Some(binary) = binary else {
        eprintln!("error: name the evenkeel binary to measure; `make bench-cluster` builds and names it");
        return ExitCode::FAILURE;
    };
    let entered = evenkeel_devcluster::enter(async || match measure(&binary).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure:?}");
            ExitCode::FAILURE
        }
    });
    entered.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn line(what: &str, found: &str, goal: &str) {
    println!("{what:<52} {found:<34} {goal}");
}

async fn measure(binary: &Path) -> TestResult {
    // No kubelet renews these nodes: they are not to be called dead meanwhile.
    let alive = "--node-monitor-grace-period=24h";
    let cluster =
        Cluster::builder().apiservers(&[V1_37]).extra_arg(Role::ControllerManager, alive).start().await?;
    cluster.apply(root("config/default")).await?;
    let established =
        ["wait", "--for=condition=Established", "--timeout=30s", "crd/clusterskewreports.evenkeel.dev"];
    kubectl(&cluster, &established).await?;
    let nodes: Api<Node> = Api::all(cluster.client());
    let begun = Instant::now();
    let made = stream::iter(0..NODES).map(|n| {
        let nodes = nodes.clone();
        async move {
            let node = serde_json::from_value(node(n)).map_err(|error| Failure::new(error.to_string()))?;
            nodes.create(&PostParams::default(), &node).await.map_err(Failure::from)
        }
    });
    let made: Vec<_> = made.buffer_unordered(8).collect().await;
    let size = made.first().and_then(|node| serde_json::to_vec(node.as_ref().ok()?).ok()).map(|t| t.len());
    made.into_iter().collect::<Result<Vec<_>, _>>()?;
    println!(
        "one kube-apiserver v1.37.1 and etcd on this machine; {NODES} nodes of {:.1} kB in {POOLS} pools, made in {:.0} s\n",
        size.unwrap_or_default() as f64 / 1e3,
        begun.elapsed().as_secs_f64()
    );
    quiet(&nodes).await?;
    line("WHAT", "FOUND", "GOAL, METHOD");

    let mut bench = Bench::new(&cluster, binary).await?;
    // More arguments name the parts that are wanted.
    let parts: Vec<String> = std::env::args().skip(2).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|named| named == part);
    bench.starts(if wanted("starts") { STARTS } else { 1 }).await?;
    if wanted("rest") {
        bench.rest(&nodes).await?;
    }
    if wanted("latency") {
        bench.latency(&nodes, if parts.is_empty() { CHANGES } else { CHANGES / 4 }).await?;
    }
    if wanted("storm") {
        bench.storm(&nodes).await?;
    }
    bench.size().await?;
    bench.stop().await
}

/// The reporter under test, and what is seen of its report.
struct Bench<'a> {
    cluster: &'a Cluster,
    binary: &'a Path,
    kubeconfig: PathBuf,
    child: Option<Child>,
    seen: UnboundedReceiver<(Instant, Value)>,
}

impl<'a> Bench<'a> {
    async fn new(cluster: &'a Cluster, binary: &'a Path) -> Result<Self, Failure> {
        let kubeconfig = cluster.service_account_kubeconfig("evenkeel-system", "evenkeel-reporter").await?;
        let kind = GroupVersionKind::gvk("evenkeel.dev", "v1alpha1", "ClusterSkewReport");
        let reports: Api<DynamicObject> = Api::all_with(cluster.client(), &ApiResource::from_gvk(&kind));
        let (tell, seen) = unbounded_channel();
        tokio::spawn(async move {
            loop {
                let params = WatchParams::default().timeout(290);
                let Ok(events) = reports.watch(&params, "0").await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let mut events = events.boxed();
                while let Some(Ok(event)) = events.next().await {
                    if let WatchEvent::Added(report) | WatchEvent::Modified(report) = event {
                        let _ = tell.send((Instant::now(), report.data));
                    }
                }
            }
        });
        Ok(Self { cluster, binary, kubeconfig, child: None, seen })
    }

    fn log(&self) -> PathBuf {
        self.cluster.logs().join("evenkeel.log")
    }

    fn start(&mut self) -> TestResult {
        let log = std::fs::File::options().create(true).append(true).open(self.log());
        let log = log.map_err(|error| Failure::new(error.to_string()))?;
        let mut command = Command::new(self.binary);
        command
            .args(["operator", "--listen", "127.0.0.1:8080", "--identity", "bench", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        self.child = Some(command.spawn().map_err(|error| Failure::new(error.to_string()))?);
        Ok(())
    }

    async fn stop(&mut self) -> TestResult {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let id = child.id().unwrap_or_default().to_string();
        let failed = |error: std::io::Error| Failure::new(error.to_string());
        Command::new("kill").args(["-TERM", &id]).status().await.map_err(failed)?;
        child.wait().await.map(|_| ()).map_err(failed)
    }

    /// The next state of the report that `wanted` accepts, and when it was seen.
    async fn sees(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Instant, Failure> {
        let seen = &mut self.seen;
        let look = async {
            while let Some((at, report)) = seen.recv().await {
                if wanted(&report["status"]) {
                    return Ok(at);
                }
            }
            Err(Failure::new("the watch on the report ended"))
        };
        let found = tokio::time::timeout(Duration::from_secs(30), look).await;
        found.unwrap_or_else(|_| {
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(12).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
            Err(Failure::new(format!("the report does not show the change within 30 s\n{last}")))
        })
    }

    /// A field of `/proc/<pid>/status`, in MiB.
    fn memory(&self, field: &str) -> f64 {
        let id = self.child.as_ref().and_then(Child::id).unwrap_or_default();
        let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next());
        found.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default() / 1024.0
    }

    /// User and system time of the process so far, in clock ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let id = self.child.as_ref().and_then(Child::id).unwrap_or_default();
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields: Vec<_> = text.split_whitespace().collect();
        [13, 14].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
    }

    async fn starts(&mut self, times: usize) -> TestResult {
        let mut took = Vec::new();
        for _ in 0..times {
            self.stop().await?;
            // The report's time has no fractions: one that is written twice in a second is written once.
            tokio::time::sleep(Duration::from_millis(1100)).await;
            while self.seen.try_recv().is_ok() {}
            let begun = Instant::now();
            self.start()?;
            let whole = |status: &Value| status["nodes"] == NODES + 1;
            took.push(self.sees(whole).await?.duration_since(begun).as_secs_f64() * 1e3);
        }
        line(
            "start to first report",
            &told(&mut took, "ms"),
            &format!("<= 800 ms; process started to status seen by a watch, {times} times"),
        );
        Ok(())
    }

    /// What it costs while nothing changes but heartbeats: each kubelet posts its status every five minutes.
    async fn rest(&mut self, nodes: &Api<Node>) -> TestResult {
        let ticks = self.ticks();
        let (begun, since) = (Instant::now(), Timestamp::now());
        let mut n = 0;
        while begun.elapsed() < REST {
            let now = Timestamp::now().to_string();
            let beat = json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": now}]}});
            patch(nodes, n, &beat).await?;
            n += 1;
            tokio::time::sleep_until(
                (begun + Duration::from_millis(60) * u32::try_from(n).unwrap_or(u32::MAX)).into(),
            )
            .await;
        }
        let (resident, peak) = (self.memory("VmRSS:"), self.memory("VmHWM:"));
        line(
            "memory at rest",
            &format!("{resident:.1} MiB (peak {peak:.1})"),
            "<= 25 MiB; VmRSS and VmHWM after a minute at rest",
        );
        let cpu = (self.ticks() - ticks) as f64 / 100.0 / REST.as_secs_f64() * 100.0;
        line(
            "processor at rest",
            &format!("{cpu:.2} % of one core"),
            &format!("<= 0.5 %; utime + stime over that minute, {n} heartbeats in it"),
        );
        let own = self.own_requests(since)?;
        let of = |what: &str| own.iter().filter(|request| request.as_str() == what).count();
        let (leases, status) = (of("update leases/"), of("update clusterskewreports/status"));
        line(
            "requests at rest",
            &format!("{} a minute", own.len()),
            &format!("audit log; {leases} lease renewals, {status} reports; watches stay open"),
        );
        Ok(())
    }

    async fn latency(&mut self, nodes: &Api<Node>, changes: usize) -> TestResult {
        let since = Timestamp::now();
        let ticks = self.ticks();
        let mut took = Vec::new();
        for n in 0..changes {
            // Longer than the second that lies between two writes.
            tokio::time::sleep(Duration::from_millis(1150)).await;
            let version = format!("v1.36.{}", 100 + n);
            let change = json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
            while self.seen.try_recv().is_ok() {}
            let begun = Instant::now();
            let shows = |status: &Value| {
                let rows = status["components"].as_array();
                rows.into_iter().flatten().any(|row| row["version"] == version.as_str())
            };
            let (sent, seen) = tokio::join!(patch(nodes, n, &change), self.sees(shows));
            sent?;
            took.push(seen?.duration_since(begun).as_secs_f64() * 1e3);
        }
        line(
            "a node's new version to the written status",
            &told(&mut took, "ms"),
            &format!(
                "p50 <= 1.3 x the round with 0.1 kB; PATCH sent to status seen by a watch, {changes} changes"
            ),
        );
        let own = (self.ticks() - ticks) as f64 * 10.0 / changes as f64;
        let log = self.cluster.audit_log()?;
        let between = |a: Timestamp, b: Timestamp| b.duration_since(a).as_secs_f64() * 1e3;
        let told_to = log.iter().filter(|e| e.subresource == "status" && e.received >= since);
        let (own_writes, changed): (Vec<_>, Vec<_>) = told_to.partition(|e| e.user == USER);
        let changed = changed.into_iter().filter(|e| e.resource == "nodes");
        // One change is over before the next begins.
        let pairs = changed.filter_map(|change| {
            let write = own_writes.iter().find(|write| write.received >= change.received)?;
            Some((change, write))
        });
        let mut reaction: Vec<_> =
            pairs.map(|(change, write)| between(change.answered, write.received)).collect();
        let mut writes: Vec<_> = own_writes.iter().map(|e| between(e.received, e.answered)).collect();
        line(
            "  of that, the reporter's own processor time",
            &format!("{own:.1} ms"),
            "utime + stime, the rest included",
        );
        line(
            "  of that, the server's time for the write",
            &told(&mut writes, "ms"),
            "audit log, received to answered",
        );
        line(
            "  from the node's PATCH answered to that write's begin",
            &told(&mut reaction, "ms"),
            "audit log; delivery of the event, the look, the request",
        );
        for (size, what) in FLOORS {
            let mut floor = self.floor(nodes, changes.min(50), size).await?;
            line(
                &format!("  the same round without a reporter, {what}"),
                &told(&mut floor, "ms"),
                "PATCH of a node, its event, PATCH of a ConfigMap of that size, its event; by this program",
            );
        }
        Ok(())
    }

    /// How long the machine takes for what the reporter waits for, if nothing is computed in between.
    async fn floor(&self, nodes: &Api<Node>, changes: usize, size: usize) -> Result<Vec<f64>, Failure> {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.client(), "default");
        let text = "x".repeat(size);
        let map = |n: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "floor"}, "data": {"n": n.to_string(), "text": text}});
        let (first, params) = (map(usize::MAX), PatchParams::apply("bench").force());
        maps.patch("floor", &params, &Patch::Apply(&first)).await?;
        let mut of_nodes = events(nodes).await?;
        let mut of_maps = events(&maps).await?;
        let mut took = Vec::new();
        for n in 0..changes {
            tokio::time::sleep(Duration::from_millis(1150)).await;
            let (name, version) = (node_name(n), format!("v1.35.{}", size + n));
            let begun = Instant::now();
            let change = json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
            let sent = patch(nodes, n, &change);
            let round = async {
                next(&mut of_nodes, |node: &Node| node.metadata.name.as_deref() == Some(&name)).await?;
                maps.patch("floor", &params, &Patch::Apply(&map(n))).await?;
                let wanted = n.to_string();
                next(&mut of_maps, |map: &ConfigMap| {
                    map.data.as_ref().is_some_and(|data| data["n"] == wanted)
                })
                .await?;
                Ok::<_, Failure>(begun.elapsed())
            };
            let (sent, round) = tokio::join!(sent, round);
            sent?;
            took.push(round?.as_secs_f64() * 1e3);
        }
        Ok(took)
    }

    async fn storm(&mut self, nodes: &Api<Node>) -> TestResult {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (begun, since) = (Instant::now(), Timestamp::now());
        let sent = stream::iter(0..NODES).map(|n| async move {
            let at = begun + STORM.mul_f64(n as f64 / NODES as f64);
            tokio::time::sleep_until(at.into()).await;
            patch(nodes, n, &json!({"status": {"nodeInfo": {"kubeletVersion": "v1.37.1"}}})).await
        });
        let sent: Vec<_> = sent.buffer_unordered(32).collect().await;
        sent.into_iter().collect::<Result<Vec<_>, _>>()?;
        let ended = Instant::now();
        let took = ended - begun;
        let all = |status: &Value| {
            let rows = status["components"].as_array();
            let kubelets = rows.into_iter().flatten().filter(|row| row["component"] == "kubelet");
            kubelets.into_iter().all(|row| row["version"] == "v1.37.1")
        };
        let settled = self.sees(all).await?.saturating_duration_since(ended);
        let writes = self.own_requests(since)?;
        let writes =
            writes.iter().filter(|request| request.as_str() == "update clusterskewreports/status").count();
        line(
            &format!("status writes during {NODES} changes in {:.0} s", took.as_secs_f64()),
            &format!("{writes} ({:.2} a second)", writes as f64 / took.as_secs_f64()),
            "<= 1 a second; audit log",
        );
        line(
            "the last of them to the written status",
            &format!("{:.0} ms", settled.as_secs_f64() * 1e3),
            "<= 1,100 ms; last PATCH answered to status seen by a watch",
        );
        let (resident, peak) = (self.memory("VmRSS:"), self.memory("VmHWM:"));
        line("memory after that", &format!("{resident:.1} MiB (peak {peak:.1})"), "VmRSS and VmHWM");
        Ok(())
    }

    async fn size(&self) -> TestResult {
        let report = kubectl(
            self.cluster,
            &["get", "--raw", "/apis/evenkeel.dev/v1alpha1/clusterskewreports/cluster"],
        );
        line(
            "the report as it is stored",
            &format!("{:.1} kB", report.await?.len() as f64 / 1e3),
            "<= 64 KiB; JSON with managedFields, after the storm",
        );
        Ok(())
    }

    /// What the reporter has asked for since then, as `verb resource/subresource`; watches that stay open aside.
    fn own_requests(&self, since: Timestamp) -> Result<Vec<String>, Failure> {
        let log = self.cluster.audit_log()?;
        let own = log.iter().filter(|entry| entry.user == USER && entry.received >= since);
        Ok(own.map(|entry| format!("{} {}/{}", entry.verb, entry.resource, entry.subresource)).collect())
    }
}

type Events<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>;

/// What changes from now on.
async fn events<K>(api: &Api<K>) -> Result<Events<K>, Failure>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let now = api.list_metadata(&ListParams::default().limit(1)).await?.metadata.resource_version;
    let events = api.watch(&WatchParams::default().timeout(290), &now.unwrap_or_default()).await?;
    Ok(events.boxed())
}

/// Waits for the change of an object that `wanted` accepts.
async fn next<K>(events: &mut Events<K>, wanted: impl Fn(&K) -> bool) -> TestResult {
    while let Some(event) = events.next().await {
        if let WatchEvent::Modified(object) = event?
            && wanted(&object)
        {
            return Ok(());
        }
    }
    Err(Failure::new("the watch ended"))
}

async fn patch(nodes: &Api<Node>, n: usize, body: &Value) -> TestResult {
    let name = node_name(n);
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(body)).await?;
    Ok(())
}

/// `p50 7.1, p99 30.2, max 31.0 ms`.
fn told(took: &mut [f64], unit: &str) -> String {
    took.sort_by(f64::total_cmp);
    let at = |percent: usize| took.get((took.len() - 1) * percent / 100).copied().unwrap_or_default();
    format!("p50 {:.1}, p99 {:.1}, max {:.1} {unit}", at(50), at(99), at(100))
}
