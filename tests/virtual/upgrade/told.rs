//! That an upgrade says one thing wherever it is told: the column of `kubectl get`, the event, the metric, `waitingFor`, and the
//! command line have the reason and the line of condition Ready.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel::api::upgrade::UNSEEN_REASONS;
use evenkeel::operator::{OperatorOptions, operate};
use evenkeel_core::rollout::UpgradePhase;
use evenkeel_sim::Cluster;
use evenkeel_sim::faults::{Call, Fault};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::campaign::{Wrong, virtually};
use super::super::kube_api::Kube;
use super::super::replica::{clients, clock, options, page};
use super::super::script::{self, Step};
use super::attacks::steps;
use super::base::{self, Setting, UPGRADES};
use super::executor::Executor;
use super::installed::{nodes_that_are, story};
use super::watcher::rest::asked_well;
use super::{UP, condition, people};

/// What is told of the upgrade by everybody who tells of it.
struct Voices {
    upgrade: Value,
    column: String,
    events: Vec<Value>,
    metrics: String,
}

/// What is told so long after an upgrade began that is like this.
fn told(script: &str, after: Duration) -> Voices {
    let (told, wrong) = virtually(async || {
        let script = steps(script);
        let mut setting = Setting::of(&script);
        let (cluster, kube) = base::start(&setting, 1).await;
        setting.begins = cluster.now();
        let _executor = Executor::start(&cluster, &setting);
        let mut later = Vec::new();
        for step in &script {
            match step {
                Step::At { deed, .. } if Setting::says(deed) => {}
                Step::At { millis: 0, deed } => people::happens(&cluster, &kube, &setting, deed).await,
                Step::At { millis, deed } => later.push((Duration::from_millis(*millis), deed)),
                _ => {}
            }
        }
        script::arm(&cluster, &script);
        cluster.faults().record();
        let begun = Instant::now();
        kube.create(UPGRADES, &setting.upgrade(UP, &setting.to)).await;
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (process, stop) = (cluster.process("evenkeel-a"), CancellationToken::new());
        let options = OperatorOptions { listen, ..options("a", 1, true) };
        let running = tokio::spawn(operate(clients(&process), options, clock(&cluster), stop.clone()));
        for (at, deed) in later {
            sleep_until(begun + at).await;
            people::happens(&cluster, &kube, &setting, deed).await;
        }
        sleep_until(begun + after).await;
        let told = Voices {
            upgrade: kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap(),
            column: column(&cluster).await,
            events: kube.list("/apis/events.k8s.io/v1/namespaces/default/events").await,
            metrics: page(listen).await,
        };
        stop.cancel();
        assert!(running.await.unwrap().is_ok());
        assert_eq!(asked_well(&cluster.faults().record()), Wrong::new());
        told
    });
    assert_eq!(wrong, Wrong::new());
    told
}

/// What `kubectl get` prints of the upgrade in column STAGE.
async fn column(cluster: &Cluster) -> String {
    let Kube(client) = Kube(cluster.client_of("kubectl"));
    let request =
        http::Request::get(UPGRADES).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let at =
        table["columnDefinitions"].as_array().unwrap().iter().position(|of| of["name"] == "Stage").unwrap();
    let rows = table["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["cells"][0] == UP).unwrap();
    row["cells"][at].as_str().unwrap_or_default().to_owned()
}

/// What the program prints of `upgrade` when it reads it from a file.
fn printed(upgrade: &Value, args: &[&str]) -> String {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    std::fs::write(file.path(), upgrade.to_string()).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    let output = program.args(args).arg("-f").arg(file.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// How an upgrade begins, after how many minutes it is asked, and the reason that it has then.
const REASONS: [(&str, u64, &str); 31] = [
    ("at 0 plan-only", 2, "PlanOnly"),
    ("at 0 approval", 2, "AwaitingApproval"),
    ("at 60000 suspend up", 5, "Suspended"),
    ("at 0 upgrade second", 1, "Queued"),
    ("at 0 without machines", 2, "Invalid"),
    ("at 0 webhook", 2, "PreflightFailed"),
    ("at 0 window 60 3600", 3, "WaitingForWindow"),
    ("at 0 freeze 0 3600", 3, "Frozen"),
    ("at 0 soak controlPlane 3600", 5, "Soaking"),
    ("at 0 gated; at 0 gate kind; at 0 gate False", 3, "GateClosed"),
    ("at 0 gated", 3, "GateUnreadable"),
    (SILENT_ZONE, 7, "ZoneDisrupted"),
    // Until then a node that is parked elsewhere may go on by itself.
    (LOST_ZONE, 300, "ZoneGone"),
    ("at 0 executor kubelet/* hang; at 0 deadline 3600; at 150000 delete-upgrade up", 4, "Deleting"),
    ("at 0 deadline 60; at 0 executor kube-apiserver/cp-2 hang", 10, "ControlPlaneFailed"),
    ("at 0 hosts", 10, "ControlPlaneHeld"),
    ("at 110000 take cp-3 kube-apiserver", 30, "ControlPlaneHeld"),
    ("at 110000 component cp-3 kube-apiserver v1.36.4", 30, "ControlPlaneHeld"),
    ("at 0 deadline 60; at 0 executor kubelet/main-3 hang", 15, "NodesFailed"),
    ("at 0 halt; at 0 drain 60; at 0 returning", 15, "NodesHalted"),
    ("at 0 impossible", 15, "NodesParked"),
    ("at 0 limit maxParked 1; at 0 drain 60; at 0 returning", 15, "FailurePolicy"),
    (
        "at 0 limit maxFailed 1; at 0 deadline 60; at 0 executor kubelet/canary-1 hang; at 0 executor kubelet/* after 50",
        15,
        "FailurePolicy",
    ),
    ("at 0 window 10 180", 3, "NoWindowFits"),
    ("like evenkeel-a create~nodeupgrades.evenkeel.dev refuse:403", 3, "WritesRefused"),
    ("at 0 hold main-4", 10, "NodesHeld"),
    ("at 0 impossible; at 0 risk U3/PodDisruptionBudget/shop/frozen 86400", 15, "CompletedWithExceptions"),
    (
        "like evenkeel-a list~persistentvolumes refuse:403; like evenkeel-a watch~persistentvolumes refuse:403",
        5,
        "Forbidden",
    ),
    (
        "like evenkeel-a list~persistentvolumes refuse:500; like evenkeel-a watch~persistentvolumes refuse:500",
        5,
        "ClusterNotSeen",
    ),
    ("at 0 hosts; at 0 accept", 15, "Completed"),
    ("", 15, "Completed"),
];

/// All nodes of a zone are silent.
const SILENT_ZONE: &str = "at 0 hosts; at 0 accept; at 0 soak controlPlane 300; at 0 zone c silent";
/// All but one are, so that nothing holds that one but its zone.
const LOST_ZONE: &str = "at 0 hosts; at 0 accept; at 0 soak controlPlane 300; at 0 zone a silent; at 0 spare main; \
     at 0 most rest 50%";

/// How many things are waited for, by reason, as `metrics` say it.
fn counted(metrics: &str) -> BTreeMap<String, usize> {
    let count = |line: &str| {
        let (series, count) = line.strip_prefix("evenkeel_upgrade_waiting_for{")?.rsplit_once(' ')?;
        let (reason, of) = series.split_once("reason=\"")?.1.split_once('"')?;
        (of.contains(&format!("upgrade=\"{UP}\"")) && count != "0")
            .then(|| (reason.to_owned(), count.parse().unwrap()))
    };
    metrics.lines().filter_map(count).collect()
}

/// The same, as the status of `upgrade` lists it.
fn listed(upgrade: &Value) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for wait in upgrade["status"]["waitingFor"].as_array().unwrap() {
        *counts.entry(wait["reason"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// What is not told alike of the upgrade that is like this.
fn differs(script: &str, minutes: u64, reason: &str) {
    let Voices { upgrade, column, events, metrics } = told(script, Duration::from_mins(minutes));
    let ready = condition(&upgrade, "Ready").unwrap();
    let message = ready["message"].as_str().unwrap();
    let said = (ready["reason"].as_str(), column.as_str());
    assert_eq!(said, (Some(reason), reason), "{script}: {upgrade:#}");
    let events = events.iter().filter(|of| of["regarding"]["name"] == UP && of["reason"] == reason);
    let notes: Vec<&Value> = events.map(|of| &of["note"]).collect();
    assert!(notes.contains(&&json!(message)), "{script}: {message}: {notes:#?}");
    let series = format!("evenkeel_upgrade_waiting{{reason=\"{reason}\",upgrade=\"{UP}\"}} 1");
    assert_eq!(metrics.contains(&series), reason != "Completed", "{script}: {series} in\n{metrics}");
    let first = &upgrade["status"]["waitingFor"][0];
    if reason != "Completed" {
        let first = (first["reason"].as_str(), first["message"].as_str());
        assert_eq!(first, (Some(reason), Some(message)), "{script}");
    }
    assert_eq!(counted(&metrics), listed(&upgrade), "{script}");
    let shown: Value = serde_json::from_str(&printed(&upgrade, &["status", "-o", "json"])).unwrap();
    let shown = &shown["upgrades"][0];
    assert_eq!(
        (&shown["stage"], &shown["message"]),
        (&json!(reason), &json!(message)),
        "{script}: {shown:#}"
    );
    let explained = printed(&upgrade, &["explain", &format!("cup/{UP}")]);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&explained).contains(&words(message)), "{script}: {message}: {explained}");
    let table = printed(&upgrade, &["status"]);
    assert_eq!(words(&table).matches(&words(message)).count(), 1, "{script}: said once: {table}");
}

/// Every reason that an upgrade can have but those of work that goes on, and that there is no other.
#[test]
fn an_upgrade_says_one_thing_wherever_it_is_told() {
    let tried: BTreeSet<&str> = REASONS.iter().map(|(.., reason)| *reason).collect();
    let there = UpgradePhase::WAITS.map(UpgradePhase::reason).into_iter().chain(UNSEEN_REASONS);
    assert_eq!(tried, there.chain([UpgradePhase::Completed.reason()]).collect());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = std::thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            while let Some((script, minutes, reason)) = REASONS.get(next.fetch_add(1, Ordering::SeqCst)) {
                if std::panic::catch_unwind(|| differs(script, *minutes, reason)).is_err() {
                    failed.push((*reason, *script));
                }
            }
            failed
        };
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(failed, []);
}

/// Of the watches of a server that was away and is back, one may fail a few times more while the others work. Nobody is told then
/// that the cluster is not seen, however long the server was away.
#[test]
fn a_server_that_is_back_is_no_cluster_that_is_not_seen() {
    story("", "Automatic", async |story| {
        story.until("nodes move", |_, claims| nodes_that_are(claims, "Upgraded") > 2).await;
        let faults = story.cluster.faults();
        faults.blackout_of(&["evenkeel-a", "evenkeel-a-lease"], Duration::from_secs(40));
        let late =
            |call: &Call| call.agent == "evenkeel-a" && call.resource == "upgradeexecutors.evenkeel.dev";
        faults.when(late, Fault::Refuse(500), 4);
        let mut said = BTreeSet::new();
        for _ in 0..1200 {
            sleep(Duration::from_millis(100)).await;
            let upgrade = story.kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap();
            said.insert(condition(&upgrade, "Ready").unwrap()["reason"].as_str().unwrap().to_owned());
        }
        assert!(!said.contains("ClusterNotSeen"), "{said:?}");
        story.is("Completed", "").await;
    });
}
