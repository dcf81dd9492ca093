//! That an upgrade says one thing wherever it is told: the column of `kubectl get`, the event, the metric, `waitingFor`, and the
//! command line have the reason and the line of condition Ready.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use evenkeel::operator::{Options, operate};
use evenkeel_sim::Cluster;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::campaign::{Wrong, virtually};
use super::super::kube_api::Kube;
use super::super::replica::{clients, clock, options};
use super::super::script::Step;
use super::attacks::steps;
use super::base::{self, Setting, UPGRADES};
use super::executor::Executor;
use super::figures::page;
use super::{UP, condition, people};

/// What is told of the upgrade by everybody who tells of it.
struct Voices {
    upgrade: Value,
    column: String,
    events: Vec<Value>,
    metrics: String,
}

/// What is told so long after an upgrade began that is like this.
fn told(begins: &str, after: Duration) -> Voices {
    let (told, wrong) = virtually(async || {
        let script = steps(begins);
        let mut setting = Setting::of(&script);
        let (cluster, kube) = base::start(&setting, 1).await;
        setting.begins = cluster.now();
        let _executor = Executor::start(&cluster, &setting);
        for step in &script {
            let Step::At { deed, .. } = step else { continue };
            if !Setting::says(deed) {
                people::happens(&cluster, &kube, &setting, deed).await;
            }
        }
        kube.create(UPGRADES, &setting.upgrade(UP, &setting.to)).await;
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (process, stop) = (cluster.process("evenkeel-a"), CancellationToken::new());
        let options = Options { listen, ..options("a", 1, true) };
        let running = tokio::spawn(operate(clients(&process), options, clock(&cluster), stop.clone()));
        sleep(after).await;
        let told = Voices {
            upgrade: kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap(),
            column: column(&cluster).await,
            events: kube.list("/apis/events.k8s.io/v1/namespaces/default/events").await,
            metrics: page(listen).await,
        };
        stop.cancel();
        assert!(running.await.unwrap().is_ok());
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
    table["rows"][0]["cells"][at].as_str().unwrap_or_default().to_owned()
}

/// What the program prints of `upgrade` when it reads it from a file.
fn printed(upgrade: &Value, args: &[&str]) -> String {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    std::fs::write(file.path(), upgrade.to_string()).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    let output = program.args(args).arg("-f").arg(file.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_upgrade_says_one_thing_wherever_it_is_told() {
    let minutes = Duration::from_mins;
    for (begins, after, reason) in [
        ("at 0 approval", minutes(2), "AwaitingApproval"),
        ("at 0 freeze 0 3600", minutes(3), "Frozen"),
        ("at 0 webhook", minutes(2), "PreflightFailed"),
        ("at 0 impossible", minutes(15), "NodesParked"),
        (
            "at 0 impossible; at 0 risk U3/PodDisruptionBudget/shop/frozen 86400",
            minutes(15),
            "CompletedWithExceptions",
        ),
        ("", minutes(15), "Completed"),
    ] {
        let Voices { upgrade, column, events, metrics } = told(begins, after);
        let ready = condition(&upgrade, "Ready").unwrap();
        let message = ready["message"].as_str().unwrap();
        assert_eq!((ready["reason"].as_str(), column.as_str()), (Some(reason), reason), "{upgrade:#}");
        let events = events.iter().filter(|of| of["regarding"]["name"] == UP && of["reason"] == reason);
        let notes: Vec<&Value> = events.map(|of| &of["note"]).collect();
        assert!(notes.contains(&&json!(message)), "{message}: {notes:#?}");
        let series = format!("evenkeel_upgrade_waiting{{reason=\"{reason}\",upgrade=\"{UP}\"}} 1");
        assert_eq!(metrics.contains(&series), reason != "Completed", "{series} in\n{metrics}");
        let first = &upgrade["status"]["waitingFor"][0];
        if reason != "Completed" {
            assert_eq!((first["reason"].as_str(), first["message"].as_str()), (Some(reason), Some(message)));
        }
        let shown: Value = serde_json::from_str(&printed(&upgrade, &["status", "-o", "json"])).unwrap();
        let shown = &shown["upgrades"][0];
        assert_eq!((&shown["stage"], &shown["message"]), (&json!(reason), &json!(message)), "{shown:#}");
        let explained = printed(&upgrade, &["explain", &format!("cup/{UP}")]);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&explained).contains(&words(message)), "{message}: {explained}");
        let table = printed(&upgrade, &["status"]);
        assert_eq!(words(&table).matches(&words(message)).count(), 1, "said once: {table}");
    }
}
