//! The operator with upgrades: a whole upgrade of a cluster, while it dies, is cut off, is paused and lied to, executors
//! fail and people interfere.
//!
//! Checked after every write of any run: the invariants of docs/architecture.md, by [`watcher`]. Without people in between every run
//! has to end as the one without faults.

mod attacks;
mod base;
mod bounds;
mod branch;
mod branch_alike;
mod campaigns;
mod controllers;
mod daemons;
mod deletions;
mod drains;
mod ends;
mod executor;
mod figures;
mod forged;
mod gone;
mod installed;
mod kinds;
mod lease;
mod lost;
mod outlook;
mod people;
mod plane;
mod policies;
mod races;
mod random;
mod refused;
mod schedules;
mod slow;
mod told;
mod undone;
mod waits;
mod watcher;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_sim::Cluster;
use evenkeel_sim::faults::Call;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::campaign::{self, Wrong, all, is_long, virtually};
use super::kube_api::{Kube, condition};
use super::replica::replica;
use super::script::{self, Step, has_two};
use base::{CLAIMS, Setting, UPGRADES};
use branch::{Branches, begins};
use executor::Executor;
use watcher::Watcher;
use watcher::faults::{attend, fair};
use watcher::rest::{asked_well, at_rest};

/// The upgrade of every run, unless a script makes others.
const UP: &str = "up";
/// However much goes wrong, then the cluster is at rest. A node whose drain may take 50 minutes is tried twice, and hoped for an
/// hour more, before a person is called.
const FOREVER: Duration = Duration::from_hours(6);
/// What was said last may be of an operator that has died since: looked at every five seconds, it stays so for longer
/// than another needs to take over.
const QUIET: u32 = 6;
/// What lasts goes wrong for so long.
const LASTS: Duration = Duration::from_mins(2);

/// How a run ended.
#[derive(Default)]
struct Run {
    wrong: Wrong,
    end: Value,
    calls: Vec<Call>,
    /// When the first replica was told an event, of each resource, from the beginning on.
    told: BTreeMap<String, Vec<Duration>>,
    /// Pods that were evicted.
    evicted: usize,
    /// Claims that were parked.
    parked: usize,
    /// What the upgrades said that they wait for: the reasons of their condition Ready.
    reasons: BTreeSet<String>,
    /// The same in their order, each with how long after the beginning it was said.
    said: Vec<(Duration, String)>,
    /// The claims that an executor was given, and how long after the beginning.
    given: Vec<(Duration, String)>,
    /// Every state that a claim came into.
    turns: Vec<Turn>,
    /// What faults kept from the operator: the kind, and the object where it was a single one.
    unknown: Vec<(String, Option<String>)>,
    /// How long it took in the cluster's time.
    took: Duration,
}

/// A claim that came into another state.
#[derive(Clone, Debug)]
struct Turn {
    /// How long after the beginning.
    at: Duration,
    claim: String,
    state: String,
}

/// Something that a person does, so that the run may end otherwise; machines that go and come back leave no trace.
fn is_people(step: &Step) -> bool {
    let Step::At { millis: 1.., deed } = step else { return false };
    let first = deed.split(' ').next().unwrap_or_default();
    !["blackout", "cut", "jump", "compact", "take", "start", "zone"].contains(&first)
}

/// One run, with one replica or with two. With branches it is copied on its way, and each copy goes on by its own script.
async fn life(seed: u64, script: &[Step], branches: Option<&Arc<Branches>>) -> Run {
    let mut setting = Setting::of(script);
    let (cluster, kube) = base::start(&setting, seed).await;
    setting.begins = cluster.now();
    let mut watcher = Watcher::new(&kube, cluster.control_plane().clone(), cluster.now()).await;
    fair(&mut watcher, script);
    let watcher = Arc::new(Mutex::new(watcher));
    let seeing = Arc::clone(&watcher);
    cluster.on_write(move |write| seeing.lock().unwrap().see(write));
    let _executor = Executor::start(&cluster, &setting);
    let mut deeds: Vec<(u64, String)> = Vec::new();
    for step in script {
        match step {
            Step::At { deed, .. } if Setting::says(deed) => {}
            Step::At { millis: 0, deed } => people::happens(&cluster, &kube, &setting, deed).await,
            Step::At { millis, deed } => deeds.push((*millis, deed.clone())),
            _ => {}
        }
    }
    cluster.faults().record();
    if branches.is_none() {
        attend(&cluster, &watcher);
    }
    script::arm(&cluster, script);
    if let Some(branches) = branches {
        branches.arm(&cluster, &watcher);
    }
    let begun = Instant::now();
    kube.create(UPGRADES, &setting.upgrade(UP, &setting.to)).await;
    let stop = CancellationToken::new();
    let mut replicas = vec![tokio::spawn(replica(cluster.clone(), "a", true, stop.clone()))];
    if has_two(script) || branches.is_some_and(|branches| branches.has_two()) {
        replicas.push(tokio::spawn(later(cluster.clone(), stop.clone())));
    }
    for (at, of) in branches.map(|branches| branches.moments()).unwrap_or_default() {
        sleep_until(begun + Duration::from_millis(at)).await;
        if let Some(branches) = branches.filter(|branches| branches.leave(of)) {
            let mine = branches.mine().unwrap_or_default();
            fair(&mut watcher.lock().unwrap(), mine);
            for step in mine.iter().filter(|step| !begins(step)) {
                if let Step::At { millis, deed } = step {
                    deeds.push((*millis, deed.clone()));
                }
            }
            break;
        }
    }
    deeds.sort_by_key(|(at, _)| *at);
    for (at, deed) in deeds {
        sleep_until(begun + Duration::from_millis(at)).await;
        people::happens(&cluster, &kube, &setting, &deed).await;
        watcher.lock().unwrap().clock_shows(cluster.now());
    }
    if script.iter().any(|step| matches!(step, Step::Like { .. })) {
        sleep_until(begun + LASTS).await;
        cluster.faults().clear();
        attend(&cluster, &watcher);
    }
    sleep_until(begun + Duration::from_secs(setting.lasts)).await;
    let mut wrong: Wrong = come_to_rest(&kube, &watcher).await.err().into_iter().collect();
    let took = begun.elapsed();
    settle(&kube).await;
    // A parked node may have been taken up once more meanwhile.
    if watcher.lock().unwrap().is_busy_although_held() {
        wrong.extend(come_to_rest(&kube, &watcher).await.err());
    }
    let calls = cluster.faults().record();
    let end = end(&cluster, &kube).await;
    stop.cancel();
    for replica in replicas {
        let _ = replica.await;
    }
    wrong.extend(asked_well(&calls));
    let watcher = &mut watcher.lock().unwrap();
    let mut run = seen(watcher, begun);
    run.wrong.extend(wrong);
    Run { end, calls, took, ..run }
}

/// What the watcher saw of a run that began at `begun` and is at rest.
fn seen(watcher: &mut Watcher, begun: Instant) -> Run {
    at_rest(watcher);
    let since = |all: &[(Instant, String)]| all.iter().map(|(at, of)| (*at - begun, of.clone())).collect();
    Run {
        said: since(&watcher.said),
        given: since(&watcher.given),
        told: watcher
            .heard
            .iter()
            .map(|(of, all)| (of.clone(), all.iter().map(|at| *at - begun).collect()))
            .collect(),
        turns: watcher
            .turns
            .iter()
            .map(|(at, claim, state)| Turn { at: *at - begun, claim: claim.clone(), state: state.clone() })
            .collect(),
        unknown: std::mem::take(&mut watcher.blind.ever),
        evicted: watcher.evictions(),
        parked: watcher.parked,
        reasons: watcher.reasons.clone(),
        wrong: std::mem::take(&mut watcher.wrong),
        ..Run::default()
    }
}

/// The second replica, which begins when the first one leads.
async fn later(cluster: Cluster, stop: CancellationToken) {
    sleep(Duration::from_secs(3)).await;
    replica(cluster, "b", true, stop).await;
}

/// Waits until every upgrade is done, or says that only a person brings it further, and nothing is under way.
async fn come_to_rest(kube: &Kube, watcher: &Mutex<Watcher>) -> Result<(), String> {
    // What a person did last may have begun everything anew.
    let happened = Instant::now();
    let mut quiet = 0;
    while happened.elapsed() < FOREVER {
        sleep(Duration::from_secs(5)).await;
        let upgrades = kube.list(UPGRADES).await;
        let held = |upgrade: &Value| {
            condition(upgrade, "Ready").is_some_and(|of| of["reason"] == "ControlPlaneHeld")
        };
        let rests = upgrades.iter().all(|upgrade| {
            let says = |kind: &str| condition(upgrade, kind).is_some_and(|of| of["status"] == "True");
            let current = upgrade["status"]["observedGeneration"] == upgrade["metadata"]["generation"];
            // Neither does anything until something else happens.
            let idle = |of: &Value| of["reason"] == "Queued" || of["reason"] == "PlanOnly";
            let idle = condition(upgrade, "Ready").is_some_and(idle);
            // A kube-apiserver that was asked in vain is asked again, unless a step of the control plane lost it, or it
            // stays away.
            let known = |of: &Value| !of["message"].to_string().contains("is not known");
            let lost =
                |of: &Value| of["reason"] == "ControlPlaneFailed" || of["reason"] == "ControlPlaneHeld";
            let lost = condition(upgrade, "Ready").is_some_and(lost);
            let current = current && (lost || condition(upgrade, "PreflightPassed").is_none_or(known));
            current && (says("Ready") || says("Stalled") || says("Paused") || idle)
        });
        let held = upgrades.iter().any(held);
        let watcher = watcher.lock().unwrap();
        let busy = if held { watcher.is_busy_although_held() } else { watcher.is_busy() };
        quiet = if rests && !busy { quiet + 1 } else { 0 };
        if quiet >= QUIET {
            return Ok(());
        }
    }
    let upgrades = kube.list(UPGRADES).await;
    let said =
        upgrades.first().map(|upgrade| upgrade["status"]["waitingFor"].to_string()).unwrap_or_default();
    Err(format!("is not at rest after {FOREVER:?}; it waits for {said}"))
}

/// Waits for pods that were moved last, as long as that may take at most.
async fn settle(kube: &Kube) {
    for _ in 0..8 {
        sleep(Duration::from_secs(15)).await;
        let pods = kube.list("/api/v1/namespaces/shop/pods").await;
        let ready = |pod: &Value| condition(pod, "Ready").is_some_and(|of| of["status"] == "True");
        if pods.iter().all(|pod| ready(pod) && pod["metadata"].get("deletionTimestamp").is_none()) {
            return;
        }
    }
}

/// What is compared between runs: nodes, claims, control plane, ready pods, and what the upgrades say, without times.
async fn end(cluster: &Cluster, kube: &Kube) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut nodes = json!({});
    for node in kube.list("/api/v1/nodes").await {
        let ready = condition(&node, "Ready").is_some_and(|of| of["status"] == "True");
        nodes[text(&node["metadata"]["name"])] = json!({
            "kubelet": node["status"]["nodeInfo"]["kubeletVersion"], "ready": ready,
            "cordoned": node["spec"]["unschedulable"] == true,
            "marked": node["metadata"]["annotations"]["evenkeel.dev/cordoned-by"].is_string(),
            "avoided": node["spec"]["taints"].to_string().contains("evenkeel.dev/outdated")});
    }
    let mut claims = json!({});
    for claim in kube.list(CLAIMS).await {
        claims[text(&claim["metadata"]["name"])] = claim["status"]["state"].clone();
    }
    let mut ready: BTreeMap<String, usize> = BTreeMap::new();
    for pod in kube.list("/api/v1/namespaces/shop/pods").await {
        let well = condition(&pod, "Ready").is_some_and(|of| of["status"] == "True");
        let leaving = pod["metadata"].get("deletionTimestamp").is_some();
        *ready.entry(text(&pod["metadata"]["labels"]["app"])).or_default() += usize::from(well && !leaving);
    }
    let mut upgrades = json!({});
    for upgrade in kube.list(UPGRADES).await {
        let all = upgrade["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let conditions: BTreeMap<String, Value> = all
            .iter()
            .map(|of| (text(&of["type"]), json!([of["status"], of["reason"], of["message"]])))
            .collect();
        let parked = upgrade["status"]["parked"].as_array().cloned().unwrap_or_default();
        let parked: Vec<Value> = parked.iter().map(|of| json!([of["node"], of["state"]])).collect();
        upgrades[text(&upgrade["metadata"]["name"])] = json!({"conditions": conditions,
            "progress": upgrade["status"]["progress"], "parked": parked});
    }
    let plane = cluster.control_plane();
    let mut servers = json!({});
    for node in plane.nodes() {
        for component in evenkeel_sim::COMPONENTS {
            let (version, runs) = plane.component(&node, component).unwrap_or_default();
            servers[format!("{component}/{node}")] = json!([version, runs]);
        }
    }
    json!({"nodes": nodes, "claims": claims, "ready": ready, "upgrades": upgrades, "servers": servers})
}

fn run(seed: u64, script: &[Step]) -> Run {
    run_with(seed, script, None)
}

fn run_with(seed: u64, script: &[Step], branches: Option<&Arc<Branches>>) -> Run {
    let (mut run, panics) = virtually(async || life(seed, script, branches).await);
    run.wrong.extend(panics);
    if std::env::var("EVENKEEL_SHOW").is_ok() {
        show(&run);
    }
    run
}

/// Prints every request and the end.
fn show(run: &Run) {
    let Some(first) = run.calls.first().map(|call| call.at) else { return };
    for call in &run.calls {
        let since = (call.at - first).as_secs_f64();
        eprintln!("{since:>9.3} {:>3} {} {}", call.nth, call.agent, call.line());
    }
    eprintln!("{:#}\n{} evicted in {:?}", run.end, run.evicted, run.took);
}

/// Without people in between: the same end as without faults.
fn campaign(name: &str, scripts: Vec<(u64, Vec<Step>)>) {
    campaign_by(name, scripts, Value::clone);
}

/// The same, where two ends are the same if `what` makes the same of both.
fn campaign_by(name: &str, scripts: Vec<(u64, Vec<Step>)>, what: impl Fn(&Value) -> Value + Sync) {
    let settings =
        |script: &[Step]| -> Vec<Step> { script.iter().filter(|step| begins(step)).cloned().collect() };
    let alone = |script: &[Step]| !script.iter().any(is_people);
    let mut wanted: BTreeMap<(u64, String), Value> = BTreeMap::new();
    for (seed, script) in scripts.iter().filter(|(_, script)| alone(script)) {
        let begins = settings(script);
        wanted.entry((*seed, script::line(&begins))).or_insert_with(|| {
            let run = run(*seed, &begins);
            assert!(run.wrong.is_empty(), "seed {seed}, {begins:?}: {:#?}", run.wrong);
            what(&run.end)
        });
    }
    judged(name, scripts, |seed, script, done| {
        let mut wrong = done.wrong;
        let (key, end) = ((seed, script::line(&settings(script))), what(&done.end));
        if let Some(wanted) = wanted.get(&key).filter(|_| alone(script)).filter(|wanted| **wanted != end) {
            let difference = super::report::difference(wanted, &end, "end");
            wrong.push(format!("invariant 14: ends otherwise: {difference}"));
        }
        wrong
    });
}

/// Runs that `judge` finds nothing wrong with. What can be is played by branches in a long campaign, and what is wrong with
/// those is played once more as a run of its own, so that its script can be made short.
fn judged(name: &str, scripts: Vec<(u64, Vec<Step>)>, judge: impl Fn(u64, &[Step], Run) -> Wrong + Sync) {
    let (mut scripts, mut said) = (scripts, BTreeMap::new());
    if is_long() && std::env::var_os("EVENKEEL_SCRIPT").is_none() {
        let (wrong, left) = branch::all(name, scripts, |seed, beginning, branches| {
            let done = run_with(seed, beginning, Some(branches));
            branches.mine().map(|script| judge(seed, script, done)).unwrap_or_default()
        });
        scripts = left;
        for ((seed, script), wrong) in wrong {
            said.insert((seed, script::line(&script)), wrong);
            scripts.push((seed, script));
        }
    }
    all(name, scripts, |seed, script| {
        let mut wrong = judge(seed, script, run(seed, script));
        if let Some(said) = said.get(&(seed, script::line(script))).filter(|_| wrong.is_empty()) {
            wrong.push(format!("only a branch of another run says: {}", said.join("; ")));
        }
        wrong
    });
}
