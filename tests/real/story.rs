//! What a person who watches an upgrade reads, line by line: printed as it happens, and judged afterwards.
//!
//! Every state that the API has is read, however short it lasts, and what is said of versions is compared at once with
//! what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::select_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;

use evenkeel_testkit::watched::Watched as _;

use crate::cluster::Real;
use crate::report::Reports;
use crate::truth;

/// What was said, in order: when, of what, and which words.
pub type Lines = Vec<(Duration, String, String)>;

/// What STAGE shows of an upgrade that nothing keeps from going on, in order.
const STAGES: [&str; 4] = ["UpgradingApiservers", "UpgradingControllers", "UpgradingNodes", "Completed"];

/// So long a kubelet or a kube-apiserver may take to say what it runs.
const PATIENCE: Duration = Duration::from_secs(3);

/// Everything that was read so far.
#[derive(Clone, Default)]
pub struct Told {
    pub lines: Lines,
    before: BTreeMap<String, String>,
    pub reports: Reports,
    /// How often what was said of versions was compared with what ran.
    pub compared: usize,
    /// What was said of versions and was not so.
    pub untrue: BTreeSet<String>,
}

#[derive(Clone)]
pub struct Story {
    told: Arc<Mutex<Told>>,
    began: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Report,
    Upgrade,
    Claim,
    /// Of the operator itself.
    Pod,
    /// Of an executor.
    Job,
}

impl Kind {
    fn api(self, real: &Real) -> Api<DynamicObject> {
        let ours = |kind| {
            let kind = GroupVersionKind::gvk("evenkeel.dev", "v1alpha1", kind);
            Api::all_with(real.client(), &ApiResource::from_gvk(&kind))
        };
        match self {
            Self::Report => ours("ClusterSkewReport"),
            Self::Upgrade => ours("ClusterUpgrade"),
            Self::Claim => ours("NodeUpgrade"),
            Self::Pod => {
                Api::namespaced_with(real.client(), "evenkeel-system", &ApiResource::erase::<Pod>(&()))
            }
            Self::Job => {
                Api::namespaced_with(real.client(), "evenkeel-executors", &ApiResource::erase::<Job>(&()))
            }
        }
    }

    /// What a person reads of such an object: of what, and which words.
    fn lines(self, object: &DynamicObject) -> Vec<(String, String)> {
        let status = &object.data["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |what: &str, said: String| (what.to_owned(), said);
        match self {
            Self::Report => vec![line("report", condition(status, "SkewSupported").join(" "))],
            Self::Upgrade => {
                let [ready, reason, message] = condition(status, "Ready");
                vec![
                    line("stage", reason.clone()),
                    line("upgrade", format!("{ready} {reason}: {message}")),
                    line("stalled", condition(status, "Stalled").join(" ")),
                    line("progress", text(&status["progress"]["summary"])),
                    line("parked", parked(status)),
                ]
            }
            Self::Claim => {
                // While it moves, its message is the upgrade's.
                let state = text(&status["state"]);
                let why = if ["Failed", "Parked"].contains(&state.as_str()) {
                    text(&status["message"])
                } else {
                    String::new()
                };
                vec![line(&object.name_any(), format!("{state} {why}").trim().to_owned())]
            }
            Self::Pod => {
                let containers = status["containerStatuses"].as_array().into_iter().flatten();
                let restarts: u64 = containers.filter_map(|c| c["restartCount"].as_u64()).sum();
                vec![line(&format!("restarts of {}", object.name_any()), restarts.to_string())]
            }
            Self::Job => {
                let claim = object.annotations().get("evenkeel.dev/node-upgrade-name");
                let said = condition(status, "Complete")[0].clone();
                vec![line(&format!("Job of {}", claim.map_or("nobody", String::as_str)), said)]
            }
        }
    }
}

/// The nodes that are out of the upgrade, each with its state and reason.
fn parked(status: &Value) -> String {
    let nodes = status["parked"].as_array().into_iter().flatten();
    let each = nodes.map(|node| format!("{} {}: {}", node["node"], node["state"], node["reason"]));
    each.collect::<Vec<_>>().join("; ")
}

impl Story {
    pub fn new(began: Instant) -> Self {
        Self { told: Arc::default(), began }
    }

    pub fn told(&self) -> Told {
        self.told.lock().map(|told| told.clone()).unwrap_or_default()
    }

    /// Everything that was said of `what`, in order.
    pub fn of(&self, what: &str) -> Vec<String> {
        self.told().lines.into_iter().filter(|(_, of, _)| of == what).map(|(.., said)| said).collect()
    }

    /// Reads until the future is dropped.
    pub async fn follow(&self, real: &Real) -> std::convert::Infallible {
        let kinds = [Kind::Report, Kind::Upgrade, Kind::Claim, Kind::Pod, Kind::Job];
        let watches = kinds.map(|kind| {
            watcher(kind.api(real), watcher::Config::default()).map(move |event| (kind, event)).boxed()
        });
        let mut events = select_all(watches);
        while let Some((kind, event)) = events.next().await {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    self.reads(kind, &object);
                    self.compares(real, kind, &object.data["status"]).await;
                }
                Ok(_) => {}
                // The API goes away while its own nodes are upgraded: then nobody reads anything.
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        std::future::pending().await
    }

    /// Prints and keeps what is new.
    fn reads(&self, kind: Kind, object: &DynamicObject) {
        let Ok(mut told) = self.told.lock() else { return };
        let at = self.began.elapsed();
        for (what, said) in kind.lines(object) {
            if told.before.get(&what).map_or("", String::as_str) != said {
                println!("{:>5.0} s  {what}: {said}", at.as_secs_f64());
                told.lines.push((at, what.clone(), said.clone()));
                told.before.insert(what, said);
            }
        }
        if kind == Kind::Report {
            told.reports.push((at, object.data["status"].clone()));
        }
    }

    /// Holds what is said of versions against what runs; not for long, because the next line waits.
    async fn compares(&self, real: &Real, kind: Kind, status: &Value) {
        let asked = async {
            match kind {
                Kind::Report => truth::report(real, status).await,
                Kind::Upgrade => truth::upgrade(real, status).await,
                Kind::Claim | Kind::Pod | Kind::Job => None,
            }
        };
        let untrue = tokio::time::timeout(PATIENCE, asked).await;
        if let (Ok(Some(untrue)), Ok(mut told)) = (untrue, self.told.lock()) {
            told.compared += 1;
            told.untrue.extend(untrue);
        }
    }

    /// How long after its Job was complete each worker was called upgraded.
    pub fn noticed_after(&self) -> BTreeMap<String, Duration> {
        let told = self.told();
        let when = |of: &str, is: &str| {
            let mut lines = told.lines.iter();
            lines.find(|(_, what, said)| what == of && said == is).map(|(at, ..)| *at)
        };
        let claims = told.lines.iter().filter(|(_, what, _)| what.contains(".kubelet.worker"));
        let noticed = claims.filter_map(|(_, claim, _)| {
            let complete = when(&format!("Job of {claim}"), "True")?;
            Some((claim.clone(), when(claim, "Upgraded")?.saturating_sub(complete)))
        });
        noticed.collect()
    }

    /// What STAGE showed that it must not have: another stage than those of an upgrade that goes on, or an earlier one
    /// after a later one.
    pub fn stages_gone_back(&self) -> Vec<String> {
        gone_back(&self.of("stage"))
    }
}

fn gone_back(stages: &[String]) -> Vec<String> {
    let rank = |stage: &String| STAGES.iter().position(|known| known == stage);
    let strange = stages.iter().filter(|stage| rank(stage).is_none());
    let strange = strange.map(|stage| format!("STAGE showed {stage}"));
    let back = stages.windows(2).filter_map(|pair| match pair {
        [before, after] if rank(after) < rank(before) => Some(format!("STAGE showed {after} after {before}")),
        _ => None,
    });
    strange.chain(back).collect()
}

/// Status, reason and message of a condition.
fn condition(status: &Value, kind: &str) -> [String; 3] {
    let conditions = status["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|c| c["type"] == kind));
    ["status", "reason", "message"]
        .map(|field| found.and_then(|c| c[field].as_str()).unwrap_or_default().to_owned())
}

#[test]
fn a_stage_that_goes_back_is_seen() {
    let gone_back = |stages: &[&str]| gone_back(&stages.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(gone_back(&STAGES), Vec::<String>::new());
    assert_eq!(gone_back(&["UpgradingNodes", "UpgradingApiservers", "Completed"]).len(), 1);
    assert_eq!(gone_back(&["UpgradingApiservers", "NodesFailed", "Completed"]).len(), 2);
}
