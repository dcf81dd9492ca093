//! UpgradeExecutors that are installed late, changed or taken away while an upgrade is under way; and definitions that
//! are newer or older than the program.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel::api::upgrade::UNSEEN_REASONS;
use evenkeel_core::rollout::UpgradePhase;
use evenkeel_sim::Cluster;
use evenkeel_sim::faults::Call;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::super::campaign::{Wrong, virtually};
use super::super::kube_api::Kube;
use super::super::replica::{page, replica_at};
use super::super::script::{self, Step};
use super::base::{self, CHANGERS, CLAIMS, Setting, UPGRADES};
use super::ends::{ends, said};
use super::executor::Executor;
use super::watcher::Watcher;
use super::watcher::faults::{attend, fair};
use super::watcher::rest::{asked_well, at_rest};
use super::{UP, condition};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "upgradeexecutors.evenkeel.dev";

/// An upgrade that is told step by step.
pub struct Story {
    pub setting: Setting,
    pub cluster: Cluster,
    pub kube: Kube,
    watcher: Arc<Mutex<Watcher>>,
    /// Where the operator shows its metrics.
    metrics: SocketAddr,
}

impl Story {
    /// From now on this goes wrong, too.
    pub fn arm(&self, script: &[Step]) {
        fair(&mut self.watcher.lock().unwrap(), script);
        script::arm(&self.cluster, script);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.cluster.faults().clear();
        attend(&self.cluster, &self.watcher);
    }

    /// 12: the metric has the reason of condition Ready, where that is one with which it waits, and no other.
    async fn metric_says_what_condition_says(&self) {
        let reason = |upgrade: &Value| condition(upgrade, "Ready").map(|of| of["reason"].clone());
        let (mut said, mut shown) = (None, Vec::new());
        for _ in 0..5 {
            let upgrade = self.kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap_or_default();
            said = reason(&upgrade).and_then(|of| Some(of.as_str()?.to_owned()));
            let page = page(self.metrics).await;
            let on = |line: &&str| line.starts_with("evenkeel_upgrade_waiting{") && line.ends_with(" 1");
            let all = page.lines().filter(on).filter(|line| line.contains(&format!("upgrade=\"{UP}\"")));
            shown = all
                .filter_map(|line| Some(line.split_once("reason=\"")?.1.split('"').next()?.to_owned()))
                .collect();
            let waits = said.iter().filter(|of| waits(of)).cloned().collect::<Vec<_>>();
            if shown == waits {
                return;
            }
            // It is written a moment before the status, or after it.
            sleep(Duration::from_secs(1)).await;
        }
        self.watcher
            .lock()
            .unwrap()
            .wrong
            .push(format!("invariant 12: is {said:?}, and the metric says {shown:?}"));
    }

    /// Waits until `so` is true of the upgrade and of its claims.
    pub async fn until(&self, what: &str, so: impl Fn(&Value, &[Value]) -> bool) -> Value {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_hours(1) {
            sleep(Duration::from_millis(500)).await;
            let object = self.kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap_or_default();
            if so(&object, &self.kube.list(CLAIMS).await) {
                return object;
            }
        }
        let (upgrade, claims) = (self.kube.list(UPGRADES).await, self.kube.list(CLAIMS).await);
        panic!("never: {what}: {upgrade:#?} {claims:#?}");
    }

    pub async fn is(&self, reason: &str, message: &str) -> Value {
        let so = |object: &Value, _: &[Value]| {
            let ready = condition(object, "Ready");
            ready.is_some_and(|of| {
                of["reason"] == reason && of["message"].as_str().unwrap_or_default().contains(message)
            })
        };
        self.until(&format!("{reason}: {message}"), so).await
    }

    async fn approve(&self, upgrade: &Value) -> String {
        let hash = upgrade["status"]["plan"]["hash"].as_str().unwrap().to_owned();
        let spec = json!({"spec": {"approval": {"planHash": hash}}});
        self.kube.merge(&format!("{UPGRADES}/{UP}"), &spec).await.unwrap();
        hash
    }

    /// Installs a definition of the kind of that plural whose status lacks a field.
    async fn lacks(&self, plural: &str, field: &str) {
        self.watcher.lock().unwrap().waits_are_dropped |= field == "waitingFor";
        let old = definition_of(plural, |schema| {
            schema["properties"]["status"]["properties"].as_object_mut().unwrap().remove(field);
        });
        let path = format!("{DEFINITIONS}/{plural}.evenkeel.dev");
        // A merge would leave the field in.
        let mut object = self.kube.get(&path).await.unwrap();
        object["spec"]["versions"] = old["spec"]["versions"].clone();
        self.kube.send("PUT", &path, "application/json", &object).await.unwrap();
    }

    /// Five minutes in which something changes again and again, and is looked at.
    async fn turns(&self) {
        for turn in 0..100 {
            let label = json!({"metadata": {"labels": {"turn": turn.to_string()}}});
            self.kube.merge("/api/v1/nodes/main-1", &label).await.unwrap();
            sleep(Duration::from_secs(3)).await;
        }
    }

    async fn install(&self, name: &str) {
        self.kube.create(CHANGERS, &self.setting.changer(name)).await;
    }

    async fn uninstall(&self, name: &str) {
        self.kube.delete(&format!("{CHANGERS}/{name}")).await.unwrap();
    }

    /// What is in flight comes to its end, and for minutes nothing else begins.
    async fn comes_to_a_stand(&self) {
        self.until("nothing is in flight", |_, claims| !claims.iter().any(in_flight)).await;
        let before = self.kube.list(CLAIMS).await.len();
        sleep(Duration::from_mins(5)).await;
        let claims = self.kube.list(CLAIMS).await;
        assert!(!claims.iter().any(in_flight), "{claims:#?}");
        assert_eq!(claims.len(), before);
        for node in self.kube.list("/api/v1/nodes").await {
            assert_ne!(node["spec"]["unschedulable"], true, "{}", node["metadata"]["name"]);
        }
    }
}

fn in_flight(claim: &Value) -> bool {
    ["", "Claimed", "Draining", "Upgrading"].contains(&claim["status"]["state"].as_str().unwrap_or_default())
}

pub fn nodes_that_are(claims: &[Value], state: &str) -> usize {
    let so = |claim: &&Value| claim["spec"]["component"] == "kubelet" && claim["status"]["state"] == state;
    claims.iter().filter(so).count()
}

/// An upgrade of this mode, in a cluster that begins as `says` says.
pub fn story<T: Send>(says: &str, mode: &str, tell: impl AsyncFnOnce(&Story) -> T) -> T {
    let (told, wrong) = virtually(async || {
        let steps: Vec<_> = says.split_terminator("; ").map(|step| step.parse().unwrap()).collect();
        let setting = Setting::of(&steps);
        let (cluster, kube) = base::start(&setting, 1).await;
        let watcher = Watcher::new(&kube, cluster.control_plane().clone(), cluster.now()).await;
        let watcher = Arc::new(Mutex::new(watcher));
        let seeing = Arc::clone(&watcher);
        cluster.on_write(move |write| seeing.lock().unwrap().see(write));
        attend(&cluster, &watcher);
        cluster.faults().record();
        let _executor = Executor::start(&cluster, &setting);
        let mut object = setting.upgrade(UP, &setting.to);
        object["spec"]["mode"] = mode.into();
        kube.create(UPGRADES, &object).await;
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let story = Story { setting, cluster, kube, watcher, metrics };
        if says.contains("old-definition") {
            story.lacks("clusterupgrades", "soaks").await;
        }
        if says.contains("no-definition") {
            story.kube.delete(&format!("{DEFINITIONS}/{DEFINITION}")).await.unwrap();
        }
        let stop = CancellationToken::new();
        let running = tokio::spawn(replica_at(story.cluster.clone(), "a", true, metrics, stop.clone()));
        let told = tell(&story).await;
        story.metric_says_what_condition_says().await;
        stop.cancel();
        running.await.unwrap();
        let watcher = &mut story.watcher.lock().unwrap();
        if !watcher.is_busy() {
            at_rest(watcher);
        }
        let wrong =
            [std::mem::take(&mut watcher.wrong), asked_well(&story.cluster.faults().record())].concat();
        assert_eq!(wrong, Wrong::new());
        told
    });
    assert_eq!(wrong, Wrong::new());
    told
}

/// Whether `reason` is one with which an upgrade waits, does nothing or stands still.
fn waits(reason: &str) -> bool {
    UpgradePhase::WAITS.into_iter().map(UpgradePhase::reason).chain(UNSEEN_REASONS).any(|wait| wait == reason)
}

#[test]
fn an_upgrade_waits_for_its_executor_and_goes_on_by_itself() {
    let run = ends("at 0 without machines; at 60000 install machines");
    assert_eq!(said(&run), ("Completed", false, "9/9"));
    assert!(run.reasons.contains("Invalid"), "{:?}", run.reasons);
    let begun = run.calls.first().unwrap().at;
    let first = run.calls.iter().find(|call| call.line().starts_with("create nodeupgrades")).unwrap();
    assert!((first.at - begun).as_secs_f64() > 59.0, "{}", (first.at - begun).as_secs_f64());
}

#[test]
fn an_executor_that_nobody_installed_is_named() {
    let line = "spec.controlPlane names UpgradeExecutor machines, which does not exist: install it, for example with \
                kubectl apply -k config/executors/kubeadm";
    story("at 0 without machines", "Automatic", async |story| {
        let upgrade = story.is("Invalid", line).await;
        assert_eq!(condition(&upgrade, "Stalled").unwrap()["status"], "True");
        story.comes_to_a_stand().await;
    });
}

#[test]
fn an_executor_that_changes_asks_for_another_approval() {
    story("", "RequireApproval", async |story| {
        let upgrade = story.is("AwaitingApproval", "").await;
        let first = story.approve(&upgrade).await;
        story.until("a node is worked on", |_, claims| nodes_that_are(claims, "Upgrading") > 0).await;
        let other = json!({"spec": {"external": {"deadlineSeconds": 400}}});
        story.kube.merge(&format!("{CHANGERS}/machines"), &other).await.unwrap();
        let upgrade = story.is("AwaitingApproval", "").await;
        story.comes_to_a_stand().await;
        let claims = story.kube.list(CLAIMS).await;
        assert!(nodes_that_are(&claims, "Upgraded") > 0, "what was begun is finished: {claims:#?}");
        assert_ne!(story.approve(&upgrade).await, first);
        story.is("Completed", "").await;
        // That it changes again is for the upgrades to come.
        story
            .kube
            .merge(&format!("{CHANGERS}/machines"), &json!({"spec": {"external": {"deadlineSeconds": 500}}}))
            .await
            .unwrap();
        sleep(Duration::from_mins(2)).await;
        story.is("Completed", "").await;
        story.uninstall("machines").await;
        sleep(Duration::from_mins(2)).await;
        story.is("Completed", "").await;
    });
}

#[test]
fn jobs_go_on_when_their_executor_goes_and_nothing_new_opens() {
    story("at 0 jobs", "Automatic", async |story| {
        story.until("a node is worked on", |_, claims| nodes_that_are(claims, "Upgrading") > 0).await;
        story.uninstall("machines").await;
        story.is("Invalid", "spec.controlPlane names UpgradeExecutor machines, which does not exist").await;
        story.comes_to_a_stand().await;
        let claims = story.kube.list(CLAIMS).await;
        let (done, failed) = (nodes_that_are(&claims, "Upgraded"), nodes_that_are(&claims, "Failed"));
        assert!(done > 0 && done < 9 && failed == 0, "{claims:#?}");
        story.install("machines").await;
        story.is("Completed", "").await;
    });
}

#[test]
fn a_claim_that_lost_its_executor_before_its_job_says_so() {
    story("at 0 jobs", "Automatic", async |story| {
        story.until("a node drains", |_, claims| nodes_that_are(claims, "Draining") > 0).await;
        let refuses: Step = "like evenkeel-a create~jobs.batch refuse:403".parse().unwrap();
        story.arm(&[refuses]);
        let says = |claims: &[Value], line: &str| {
            let of =
                |claim: &Value| claim["status"]["message"].as_str().unwrap_or_default().starts_with(line);
            claims.iter().any(of)
        };
        story.until("its Job is refused", |_, claims| says(claims, "its Job is refused")).await;
        story.uninstall("machines").await;
        story.heal();
        let line =
            "its Job has not begun: spec.controlPlane names UpgradeExecutor machines, which does not exist";
        let upgrade = story.until(line, |_, claims| says(claims, line)).await;
        let waits = upgrade["status"]["waitingFor"].as_array().unwrap();
        assert!(waits.iter().any(|wait| wait["message"].as_str().unwrap().contains(line)), "{waits:#?}");
        story.install("machines").await;
        story.is("Completed", "").await;
    });
}

#[test]
fn without_the_definition_the_upgrade_says_so_and_nothing_moves() {
    story("at 0 no-definition; at 0 without machines; at 0 without first", "Automatic", async |story| {
        story.is("ClusterNotSeen", "the server does not serve upgradeexecutors.evenkeel.dev").await;
        story.comes_to_a_stand().await;
        let all = evenkeel::api::definitions();
        let (_, definition) = all.iter().find(|(file, _)| file.contains("upgradeexecutors")).unwrap();
        story.kube.create(DEFINITIONS, &serde_json::to_value(definition).unwrap()).await;
        sleep(Duration::from_secs(5)).await;
        story.install("machines").await;
        story.is("Completed", "").await;
    });
}

/// The definition of ClusterUpgrades, changed by `change`.
fn definition_of_upgrades(change: impl FnOnce(&mut Value)) -> Value {
    definition_of("clusterupgrades", change)
}

/// The definition of the kind of that plural, changed by `change`.
fn definition_of(plural: &str, change: impl FnOnce(&mut Value)) -> Value {
    let all = evenkeel::api::definitions();
    let (_, definition) = all.iter().find(|(file, _)| file.contains(plural)).unwrap();
    let mut definition = serde_json::to_value(definition).unwrap();
    change(&mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    definition
}

/// A newer program was here, and an older one leads again.
#[test]
fn an_upgrade_of_a_newer_program_is_left_alone_and_keeps_others_waiting() {
    story("", "Automatic", async |story| {
        let at = format!("{UPGRADES}/{UP}");
        story.until("nodes move", |_, claims| nodes_that_are(claims, "Upgraded") > 2).await;
        let newer = definition_of_upgrades(|schema| {
            let modes = &mut schema["properties"]["spec"]["properties"]["mode"]["enum"];
            modes.as_array_mut().unwrap().push(json!("Rehearse"));
        });
        let path = format!("{DEFINITIONS}/clusterupgrades.evenkeel.dev");
        story.kube.merge(&path, &newer).await.unwrap();
        story.kube.merge(&at, &json!({"spec": {"mode": "Rehearse"}})).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        let mut second = story.setting.upgrade("second", "v1.37.2");
        second["spec"]["mode"] = "Automatic".into();
        story.kube.create(UPGRADES, &second).await;
        let before = story.kube.list(CLAIMS).await;
        sleep(Duration::from_mins(10)).await;
        let claims = story.kube.list(CLAIMS).await;
        assert_eq!(claims, before, "nothing of it moves, forth or back");
        let second = story.kube.get(&format!("{UPGRADES}/second")).await.unwrap();
        let line = condition(&second, "Ready").unwrap()["message"].as_str().unwrap().to_owned();
        assert_eq!(line, "waits until ClusterUpgrade up is complete, or is deleted");
        let upgrade = story.is("Invalid", "unknown variant `Rehearse`").await;
        let message = &condition(&upgrade, "Ready").unwrap()["message"];
        let events = story.kube.list("/apis/events.k8s.io/v1/namespaces/default/events").await;
        let told = |of: &&Value| of["regarding"]["name"] == UP && of["reason"] == "Invalid";
        let told: Vec<_> = events.iter().filter(told).collect();
        assert!(told.len() == 1 && told[0]["note"] == *message, "{told:#?}");
        assert_eq!(told[0]["type"], "Warning");
        story.kube.delete(&format!("{UPGRADES}/second")).await.unwrap();
        story.kube.merge(&at, &json!({"spec": {"mode": "Automatic"}})).await.unwrap();
        story.is("Completed", "").await;
    });
}

/// Whatever it is, it may forbid what an older program would do, or remember what that would forget.
#[test]
fn an_upgrade_with_a_field_of_a_newer_program_is_left_alone() {
    for (part, path) in [("spec", ""), ("status", "/status")] {
        story("", "Automatic", async |story| {
            let at = format!("{UPGRADES}/{UP}{path}");
            story.until("nodes move", |_, claims| nodes_that_are(claims, "Upgraded") > 2).await;
            let newer = definition_of_upgrades(|schema| {
                schema["properties"][part]["properties"]["onlyOnSundays"] = json!({"type": "boolean"});
            });
            let definition = format!("{DEFINITIONS}/clusterupgrades.evenkeel.dev");
            story.kube.merge(&definition, &newer).await.unwrap();
            story.kube.merge(&at, &json!({part: {"onlyOnSundays": true}})).await.unwrap();
            sleep(Duration::from_secs(5)).await;
            let before = story.kube.list(CLAIMS).await;
            sleep(Duration::from_mins(10)).await;
            assert_eq!(story.kube.list(CLAIMS).await, before, "{part}: nothing of it moves, forth or back");
            let object = story.kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap();
            assert_eq!(object[part]["onlyOnSundays"], true, "{part}: it is kept");
            let line = format!("ClusterUpgrade up: {part}.onlyOnSundays is not known to this version");
            story.is("Invalid", &line).await;
            story.kube.merge(&at, &json!({part: {"onlyOnSundays": null}})).await.unwrap();
            story.is("Completed", "").await;
        });
    }
}

#[test]
fn a_program_that_the_definition_is_too_old_for_waits_for_a_newer_one() {
    story("at 0 old-definition", "Automatic", async |story| {
        sleep(Duration::from_mins(10)).await;
        let object = story.kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap();
        let untold = object["status"]["observedGeneration"] == -1;
        assert!(untold && story.kube.list(CLAIMS).await.is_empty(), "{object:#}");
        let path = format!("{DEFINITIONS}/clusterupgrades.evenkeel.dev");
        story.kube.merge(&path, &definition_of_upgrades(|_| ())).await.unwrap();
        story.is("Completed", "").await;
    });
}

#[test]
fn a_definition_that_becomes_older_costs_no_write_after_the_other() {
    story("", "Automatic", async |story| {
        let at = format!("{UPGRADES}/{UP}");
        story.until("a node is upgraded", |_, claims| nodes_that_are(claims, "Upgraded") > 0).await;
        story.kube.merge(&at, &json!({"spec": {"suspend": true}})).await.unwrap();
        let upgrade = story.is("Suspended", "").await;
        assert!(!upgrade["status"]["waitingFor"].is_null(), "{upgrade:#}");
        story.comes_to_a_stand().await;
        story.lacks("clusterupgrades", "waitingFor").await;
        // Something that changes the status a little: it is written anew.
        story.kube.merge(&at, &json!({"spec": {"failurePolicy": {"maxFailed": 3}}})).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        story.cluster.faults().record();
        story.turns().await;
        let calls = story.cluster.faults().record();
        let statuses = calls.iter().filter(|call| call.is_write() && call.line().contains("clusterupgrades"));
        let statuses: Vec<String> = statuses.map(Call::line).collect();
        assert!(statuses.len() < 5, "{} statuses in five minutes: {:?}", statuses.len(), statuses.first());
        story.is("Suspended", "").await;
        story.kube.merge(&at, &json!({"spec": {"suspend": false}})).await.unwrap();
        story.is("Completed", "").await;
    });
}

/// What an upgrade remembers of itself decides what is done next, so that nothing is done while it is not stored, and a person
/// is told.
#[test]
fn a_definition_of_upgrades_that_becomes_older_lets_nothing_go_on_until_it_is_mended() {
    for field in ["controlPlane", "startTime"] {
        story("", "Automatic", async |story| {
            story.until("a node drains", |_, claims| nodes_that_are(claims, "Draining") > 0).await;
            story.lacks("clusterupgrades", field).await;
            let line = format!(
                "the server drops status.{field}: its CustomResourceDefinition clusterupgrades.evenkeel.dev is of another \
                 version; install this one's with kubectl apply -k config/crd"
            );
            let told = story.is("WritesRefused", &line).await;
            assert_eq!(condition(&told, "Stalled").unwrap()["status"], "True");
            story.cluster.faults().record();
            story.turns().await;
            let calls = story.cluster.faults().record();
            let of_upgrades =
                |call: &&Call| call.agent == "evenkeel-a" && !call.resource.contains("clusterskewreports");
            let writes = calls.iter().filter(|call| call.is_write()).filter(of_upgrades);
            let (statuses, others): (Vec<String>, Vec<String>) =
                writes.map(Call::line).partition(|line| line.contains("clusterupgrades"));
            assert_eq!(others, Vec::<String>::new());
            let times = statuses.len();
            assert!((10..=61).contains(&times), "{field}: it is tried again, {times} times in five minutes");
            let after = story.kube.get(&format!("{UPGRADES}/{UP}")).await.unwrap();
            assert_eq!(condition(&after, "Ready"), condition(&told, "Ready"), "{field}: it says the same");
            let path = format!("{DEFINITIONS}/clusterupgrades.evenkeel.dev");
            story.kube.merge(&path, &definition_of("clusterupgrades", |_| ())).await.unwrap();
            story.is("Completed", "").await;
        });
    }
}

/// What a claim remembers is not lost: it waits with the state before, and its node stays as it is.
#[test]
fn a_definition_of_claims_that_becomes_older_keeps_them_where_they_are() {
    story("", "Automatic", async |story| {
        story.until("a node drains", |_, claims| nodes_that_are(claims, "Draining") > 0).await;
        story.lacks("nodeupgrades", "deadlineTime").await;
        let line = "the server does not know status.deadlineTime: its CustomResourceDefinition nodeupgrades.";
        let told = story.is("WritesRefused", line).await;
        assert_eq!(condition(&told, "Stalled").unwrap()["status"], "True");
        sleep(Duration::from_mins(10)).await;
        let claims = story.kube.list(CLAIMS).await;
        assert!(nodes_that_are(&claims, "Draining") > 0, "{claims:#?}");
        assert_eq!(nodes_that_are(&claims, "Upgrading"), 0, "{claims:#?}");
        let path = format!("{DEFINITIONS}/nodeupgrades.evenkeel.dev");
        story.kube.merge(&path, &definition_of("nodeupgrades", |_| ())).await.unwrap();
        story.is("Completed", "").await;
    });
}
