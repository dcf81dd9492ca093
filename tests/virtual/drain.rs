//! The drain: it dies at every request and is started again, the server fails in every way, watches lose events, people
//! and other programs interfere; in the end the same pods were evicted, each once, and no budget ever broke.
//!
//! Checked after every write of any run: a pod leaves only by an eviction that names its UID, from a node that we hold
//! cordoned; no eviction takes a budget below what it needs; the cordon and its mark are one write; nobody else's cordon
//! is taken off; and nothing is asked again and again.

mod campaigns;
mod crowded;
mod interrupted;
mod unseen;
mod watcher;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use evenkeel::clock::Clock;
use evenkeel_core::cluster::CORDON_ANNOTATION;
use evenkeel_core::disruption::{CordonMark, Rules};
use evenkeel_core::drain::{DrainPolicy, DrainRequest, OnTimeout, SETTLE};
use evenkeel_sim::faults::Call;
use evenkeel_sim::{Cluster, NodeGroup};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::campaign::{self, Wrong, all, virtually};
use super::deeds::happens;
use super::kube_api::{BASE_SEED, BUDGETS, Base, Kube, PODS};
use super::rights::{Account, beyond};
use super::script::{self, Step};
use watcher::{Budget, DRAINER, TARGETS, Watcher, labels, seen};

/// How long one drain may take, as the person who began it said.
const TIMEOUT: Duration = Duration::from_mins(10);
/// No drain, however often it is started again, goes on for longer.
const FOREVER: Duration = Duration::from_hours(1);

/// More evictions than any run needs.
const ENDLESS: usize = 300;

/// How a run ended.
struct Run {
    wrong: Wrong,
    /// Pods that were asked to leave and did, as often as it happened.
    went: Vec<String>,
    /// Pods that came to a node which is to be drained, because it was not cordoned yet.
    came: Vec<String>,
    /// What is on the nodes, and how each node is.
    end: Value,
    calls: Vec<Call>,
    /// What the command said.
    said: String,
    /// How each start of it ended.
    codes: Vec<Result<u8, String>>,
}

/// Where the command writes to.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl io::Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Five workers; a Deployment with a tight budget, one without, a StatefulSet, a DaemonSet, pods that are finished and
/// not ready.
async fn cluster() -> Base {
    let cluster = Cluster::builder().seed(BASE_SEED).version("v1.37.1").start();
    let kube = Kube(cluster.client_of("kubectl"));
    kube.namespace("shop").await;
    cluster.add_nodes(&NodeGroup::new("worker", 5).kubelet("v1.36.4").zones(["a", "b"]));
    sleep(Duration::from_secs(12)).await;
    kube.deployment("cart", 6, Some(json!({"maxUnavailable": 1}))).await;
    kube.deployment("web", 5, None).await;
    kube.workload(
        "statefulsets",
        "db",
        4,
        &json!({"spec": {"serviceName": "db", "podManagementPolicy": "Parallel"}}),
    )
    .await;
    kube.budget("db", Some(json!({"minAvailable": 3}))).await;
    kube.workload("daemonsets", "logs", 0, &json!({"spec": {"replicas": null}})).await;
    sleep(Duration::from_secs(30)).await;
    Base::of(&cluster)
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    // A runtime of its own, because the one of whoever asks runs already.
    BASE.get_or_init(|| std::thread::scope(|scope| scope.spawn(|| virtually(cluster).0).join().unwrap()))
}

/// What the command is asked for.
fn request(clock: &Clock) -> DrainRequest {
    DrainRequest {
        nodes: TARGETS.iter().map(|&name| name.into()).collect(),
        concurrency: 2,
        policy: DrainPolicy {
            rules: Rules { evict_finished: true, ..Rules::default() },
            timeout: SignedDuration::try_from(TIMEOUT).ok(),
            on_timeout: OnTimeout::Park,
            settle: SETTLE,
            await_volumes: false,
        },
        give_back: false,
        mark: CordonMark::of_drain(clock.now(), "test"),
        stopped: None,
    }
}

/// Runs the command as somebody who starts it again when it dies, or when it says that it did not come to its end.
async fn drained(cluster: Cluster, paper: Paper) -> Vec<Result<u8, String>> {
    let mut codes = Vec::new();
    let begun = Instant::now();
    while codes.len() < 12 && begun.elapsed() < FOREVER {
        let process = cluster.process(DRAINER);
        let seen = cluster.clone();
        let clock = Clock::new(move || seen.now());
        let request = request(&clock);
        let (out, notes) = (Box::new(paper.clone()), Box::new(paper.clone()));
        let client = process.client();
        let never = futures::stream::pending();
        let run = evenkeel::cli::drain::run(&client, process.client(), clock, request, never, out, notes);
        let crashed = async {
            while !process.is_dead() {
                let known = cluster.faults().crashes();
                if !process.is_dead() {
                    cluster.faults().crashed(known).await;
                }
            }
        };
        let ended = tokio::select! {
            ended = run => Some(ended),
            () = crashed => None,
            () = sleep(FOREVER) => Some(Err("goes on for ever".to_owned())),
        };
        match ended {
            Some(Ok(0)) => {
                codes.push(Ok(0));
                return codes;
            }
            Some(ended) => {
                codes.push(ended);
                sleep(Duration::from_secs(10)).await;
            }
            None => sleep(Duration::from_secs(1)).await,
        }
    }
    codes
}

/// Who sees what is written, and knows what is there.
async fn watcher(kube: &Kube) -> Watcher {
    let mut watcher = Watcher::default();
    for pod in kube.list(PODS).await {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        watcher.pods.insert(format!("shop/{name}"), seen(&pod));
    }
    for node in kube.list("/api/v1/nodes").await {
        watcher.nodes.insert(node["metadata"]["name"].as_str().unwrap_or_default().to_owned(), (false, None));
    }
    for budget in kube.list(BUDGETS).await {
        let name = budget["metadata"]["name"].as_str().unwrap_or_default();
        let needs = budget["status"]["desiredHealthy"].as_i64().unwrap_or(0);
        let labels = labels(&budget["spec"]["selector"]["matchLabels"]);
        watcher.budgets.insert(format!("shop/{name}"), Budget { labels, needs, known: true });
    }
    watcher
}

async fn life(seed: u64, script: &[Step]) -> Run {
    let (cluster, kube) = base().start(seed).await;
    let watcher = Arc::new(Mutex::new(watcher(&kube).await));
    let seeing = Arc::clone(&watcher);
    cluster.on_write(move |write| seeing.lock().unwrap().see(write));
    cluster.faults().record();
    script::arm(&cluster, script);
    let begun = Instant::now();
    let paper = Paper::default();
    let mut deeds: Vec<(u64, String)> = Vec::new();
    let mut early = Vec::new();
    for step in script {
        match step {
            Step::At { millis: 0, deed } => early.push(deed.clone()),
            Step::At { millis, deed } => deeds.push((*millis, deed.clone())),
            _ => {}
        }
    }
    for deed in early {
        happens(&cluster, &kube, &deed).await;
        sleep(Duration::from_secs(1)).await;
    }
    let work = tokio::spawn({
        let drained = drained(cluster.clone(), paper.clone());
        let watcher = Arc::clone(&watcher);
        // However long it is given: nobody looks on while it evicts without an end.
        let endless = async move {
            while watcher.lock().unwrap().went.len() < ENDLESS {
                sleep(Duration::from_secs(10)).await;
            }
        };
        async move {
            let codes = tokio::select! {
                codes = drained => codes,
                () = endless => vec![Err("evicts without an end".to_owned())],
            };
            (codes, Instant::now())
        }
    });
    deeds.sort_by_key(|(at, _)| *at);
    for (at, deed) in deeds {
        sleep_until(begun + Duration::from_millis(at)).await;
        happens(&cluster, &kube, &deed).await;
    }
    let lasting = script.iter().any(|step| matches!(step, Step::Like { .. }));
    if lasting {
        sleep_until(begun + Duration::from_mins(1)).await;
        cluster.faults().clear();
    }
    let (codes, ended) = work.await.unwrap_or_else(|error| (vec![Err(error.to_string())], Instant::now()));
    sleep(Duration::from_secs(20)).await;
    let calls: Vec<Call> =
        cluster.faults().record().into_iter().filter(|call| call.agent == DRAINER).collect();
    let mut wrong = std::mem::take(&mut watcher.lock().unwrap().wrong);
    let end = end(&kube).await;
    let said = String::from_utf8_lossy(&paper.0.lock().unwrap()).into_owned();
    wrong.extend(asked_well(&calls));
    // What people do when the command has ended is theirs.
    let later = |step: &Step| matches!(step, Step::At { millis, .. } if begun + Duration::from_millis(*millis) > ended);
    let during: Vec<Step> = script.iter().filter(|step| !later(step)).cloned().collect();
    if during.len() == script.len() {
        wrong.extend(left_well(&end, &said, &codes, script));
    }
    let (went, came) = {
        let mut watcher = watcher.lock().unwrap();
        (std::mem::take(&mut watcher.went), std::mem::take(&mut watcher.came))
    };
    Run { wrong, went, came, end, calls, said, codes }
}

/// Every request by itself and all of them together.
fn asked_well(calls: &[Call]) -> Wrong {
    let mut wrong = beyond(calls, Account::Drainer);
    let mut asked: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.is_write()) {
        let line = call.line();
        match (call.verb, call.resource.as_str(), call.subresource.as_deref()) {
            ("create", "pods", Some("eviction")) => {
                let sent = call.sent();
                let uid = sent["deleteOptions"]["preconditions"]["uid"].as_str().unwrap_or_default();
                if uid.is_empty() {
                    wrong.push(format!("{line} names no UID"));
                }
                if sent["deleteOptions"].get("gracePeriodSeconds").is_some_and(|grace| !grace.is_null()) {
                    wrong.push(format!("{line} chooses a grace period"));
                }
                asked.entry(uid.to_owned()).or_default().push(call.at);
            }
            ("patch", "nodes", None) => {
                let sent = call.sent();
                let text = |name: &str| sent["metadata"][name].as_str().unwrap_or_default().is_empty();
                if text("uid") || text("resourceVersion") {
                    wrong.push(format!("{line} has no precondition"));
                }
            }
            _ => wrong.push(format!("asks {line}")),
        }
    }
    for (uid, times) in asked {
        for window in times.windows(8) {
            let (first, last) = (window[0], window[7]);
            if last < first + Duration::from_secs(10) {
                wrong.push(format!("asks for pod {uid} 8 times in {:?}", last - first));
                break;
            }
        }
    }
    let writes: Vec<Instant> = calls.iter().filter(|call| call.is_write()).map(|call| call.at).collect();
    for window in writes.windows(60) {
        if window[59] < window[0] + Duration::from_secs(1) {
            wrong.push("sends 60 writes within a second".to_owned());
            break;
        }
    }
    // However much fails: a watch or list is not opened again without a pause.
    let reads: Vec<Instant> = calls.iter().filter(|call| !call.is_write()).map(|call| call.at).collect();
    for window in reads.windows(80) {
        if window[79] < window[0] + Duration::from_secs(5) {
            wrong.push("sends 80 reads within five seconds".to_owned());
            break;
        }
    }
    wrong
}

/// At rest no node is left cordoned by us but those that are empty, and those that were named.
fn left_well(end: &Value, said: &str, codes: &[Result<u8, String>], script: &[Step]) -> Wrong {
    let mut wrong = Vec::new();
    for (name, node) in end["nodes"].as_object().into_iter().flatten() {
        let ours = node["marked"] == true;
        let full = node["pods"].as_array().is_some_and(|pods| !pods.is_empty());
        let named =
            said.lines().any(|line| line.starts_with("left cordoned") && line.contains(name.as_str()));
        if ours && node["cordoned"] == true && full && !named {
            wrong.push(format!("{name} is left cordoned by us and not drained, and nobody was told"));
        }
        if ours && node["cordoned"] != true {
            wrong.push(format!("{name} carries our mark and is not cordoned"));
        }
    }
    let interfered = script.iter().any(|step| matches!(step, Step::At { .. }));
    match codes.last() {
        Some(Ok(0)) => {}
        Some(Ok(2)) if interfered => {}
        // Who asks for a node that is not there is told so, and nothing is touched.
        Some(Err(why)) if why.starts_with("there is no node") && interfered => {}
        other => wrong.push(format!("it ends with {other:?} after {} starts", codes.len())),
    }
    wrong
}

/// What is where: for each node how it is and which pods are on it that a drain has to move; for each workload how many
/// of its pods are ready.
async fn end(kube: &Kube) -> Value {
    let mut nodes = json!({});
    for node in kube.list("/api/v1/nodes").await {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let mark = node["metadata"]["annotations"][CORDON_ANNOTATION].as_str();
        nodes[name] = json!({"cordoned": node["spec"]["unschedulable"] == true,
            "marked": mark.is_some_and(CordonMark::is_drain), "pods": []});
    }
    let mut ready: BTreeMap<String, usize> = BTreeMap::new();
    for pod in kube.list(PODS).await {
        let seen = seen(&pod);
        let app = seen.labels.get("app").cloned().unwrap_or_default();
        *ready.entry(app.clone()).or_default() += usize::from(seen.healthy && !seen.leaving);
        if TARGETS.contains(&seen.node.as_str())
            && !matches!(app.as_str(), "logs" | "mirror")
            // To a node that is not cordoned these come as it happens.
            && (nodes[&seen.node]["cordoned"] == true || !matches!(app.as_str(), "cart" | "web" | "db"))
            && let Some(pods) = nodes[&seen.node]["pods"].as_array_mut()
        {
            pods.push(app.into());
        }
    }
    // A Job that was done before its pod was evicted needs no other pod.
    ready.retain(|_, ready| *ready > 0);
    json!({"nodes": nodes, "ready": ready})
}

fn run(seed: u64, script: &[Step]) -> Run {
    let (mut run, panics) = virtually(async || life(seed, script).await);
    run.wrong.extend(panics);
    run
}

/// What there is before the command begins.
fn early(script: &[Step]) -> Vec<Step> {
    script.iter().filter(|step| matches!(step, Step::At { millis: 0, .. })).cloned().collect()
}

/// Without people in between: the same end and the same evictions as without faults.
fn campaign(name: &str, scripts: Vec<(u64, Vec<Step>)>) {
    let begun_alike =
        |script: &[Step]| !script.iter().any(|step| matches!(step, Step::At { millis: 1.., .. }));
    let mut wanted: BTreeMap<(u64, String), Run> = BTreeMap::new();
    for (seed, script) in scripts.iter().filter(|(_, script)| begun_alike(script)) {
        let begins = early(script);
        wanted.entry((*seed, script::line(&begins))).or_insert_with(|| {
            let run = run(*seed, &begins);
            assert!(run.wrong.is_empty(), "seed {seed}, {begins:?}: {:#?}\n{}", run.wrong, run.said);
            run
        });
    }
    all(name, scripts, |seed, script| {
        let mut done = run(seed, script);
        let mut wrong = std::mem::take(&mut done.wrong);
        if let Some(wanted) =
            wanted.get(&(seed, script::line(&early(script)))).filter(|_| begun_alike(script))
        {
            if done.end != wanted.end {
                wrong.push(format!("ends otherwise: {} not {}", done.end, wanted.end));
            }
            if done.codes.last() != wanted.codes.last() {
                wrong.push(format!("ends with {:?} not {:?}", done.codes, wanted.codes));
            }
            let (now, then) = (left(&done), left(wanted));
            if now != then {
                wrong.push(format!("evicts {now:?} not {then:?}"));
            }
        }
        if !wrong.is_empty() {
            wrong.extend(done.said.lines().map(|line| format!("| {line}")));
        }
        wrong
    });
}

/// Who left, in order of their names. What comes back to its node is evicted by each command that begins anew, and what
/// came to a node before its cordon is evicted once more.
fn left(run: &Run) -> Vec<String> {
    let comes_back = |name: &&String| name.starts_with("shop/returning-") || name.starts_with("shop/fixed-");
    let mut left = sorted(run.went.iter().filter(|name| !comes_back(name)).cloned().collect());
    for came in &run.came {
        if let Some(at) = left.iter().position(|name| name == came) {
            left.remove(at);
        }
    }
    left
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}
