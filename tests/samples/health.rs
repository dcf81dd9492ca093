//! What Argo CD is to make of our objects by `config/argocd`, whose health check `scripts/check-health` runs on the same objects.
//!
//! Here belongs how each object stands, with the conditions that the operator writes of it; that the check reads them so is
//! tested there, with the Lua of Argo CD. Invariant: no object is written down by hand but one that nothing has looked at.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use evenkeel::api::upgrade::{status, status_of_invalid, status_of_unreadable, status_of_unseen, validate};
use evenkeel::api::{
    ClusterSkewReport, ClusterUpgrade, ClusterUpgradeStatus, Executors, GROUP, Kstatus, NodeUpgrade,
    conditions, definitions, report, status_of,
};
use evenkeel_core::cluster::Cluster;
use evenkeel_core::plan::{Plan, Planned, Stage, StageProgress};
use evenkeel_core::rollout::{Before, ClaimState, UpgradePhase, UpgradeStatus};
use evenkeel_core::skew::assess;
use evenkeel_core::skew::policy::Policy;
use evenkeel_core::upgrade::Unit;
use evenkeel_testkit::golden::compare;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::{executors, sample, there};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Objects, each with a name for it and with what Argo CD is to say.
#[derive(Default)]
struct Cases(String);

impl Cases {
    /// Adds `object`, of which only that is kept which a health check may read.
    fn add(&mut self, name: &str, object: &impl Serialize, (word, message): (&str, &str)) {
        let of = serde_json::to_value(object).unwrap();
        let mut object = json!({
            "apiVersion": of["apiVersion"], "kind": of["kind"],
            "metadata": {"name": of["metadata"]["name"], "generation": of["metadata"]["generation"]},
            "spec": {"suspend": of["spec"]["suspend"]},
            "status": {},
        });
        for field in ["observedGeneration", "conditions"] {
            if let Some(value) = of["status"].get(field).filter(|value| **value != json!([])) {
                object["status"][field] = value.clone();
            }
        }
        for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
            let times = ["lastTransitionTime", "observedGeneration"];
            condition.as_object_mut().unwrap().retain(|field, _| !times.contains(&field.as_str()));
        }
        let health = json!({"status": word, "message": message});
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{}", json!({"case": name, "health": health, "object": object}));
    }
}

/// The upgrade of the samples, at its third generation.
fn object() -> ClusterUpgrade {
    let mut object: ClusterUpgrade = sample("clusterupgrade.yaml").unwrap();
    object.metadata.generation = Some(3);
    object
}

/// `object` as it stands in `phase`.
fn at(phase: UpgradePhase, object: &ClusterUpgrade, there: &Executors) -> ClusterUpgradeStatus {
    let upgrade = validate(object, there).unwrap();
    let plan = Plan {
        from: None,
        to: upgrade.version.clone(),
        unit: Unit::Node,
        hops: Vec::new(),
        silent: BTreeSet::new(),
        findings: Vec::new(),
    };
    let stage = |stage| StageProgress { stage, total: 0, upgraded: 0, behind: 0 };
    let decided = UpgradeStatus {
        phase,
        message: "why".to_owned(),
        from: None,
        hash: None,
        way: Vec::new(),
        hop: None,
        nodes_of_hops: Vec::new(),
        stages: [Stage::Apiservers, Stage::Controllers, Stage::Kubelets].map(stage),
        seen: Vec::new(),
        hidden: Vec::new(),
        lasting: Vec::new(),
        away: Vec::new(),
        undrainable: Vec::new(),
        in_flight: 0,
        nodes_in_flight: 0,
        parked: Vec::new(),
        soaks: Vec::new(),
        waits: Vec::new(),
        preflight: Vec::new(),
        started: None,
        completed: None,
    };
    status((object, &upgrade), &Planned::MustNot { plan, why: Vec::new() }, &decided, None, NOW)
}

/// What Argo CD is to call an upgrade in `phase`.
fn word(phase: UpgradePhase) -> &'static str {
    match phase {
        UpgradePhase::PlanOnly | UpgradePhase::AwaitingApproval | UpgradePhase::Suspended => "Suspended",
        _ if phase.ready() => "Healthy",
        _ if phase.stalled() => "Degraded",
        _ => "Progressing",
    }
}

fn upgrades(cases: &mut Cases) {
    let there = there(&executors("kubeadm"));
    let untouched = ClusterUpgradeStatus { observed_generation: Some(-1), ..Default::default() };
    let with = |status| ClusterUpgrade { status: Some(status), ..object() };
    cases.add(
        "upgrade that nobody has looked at",
        &with(untouched),
        ("Progressing", "Evenkeel has not looked at generation 3 yet"),
    );
    let works = [Stage::Apiservers, Stage::Controllers, Stage::Kubelets].map(UpgradePhase::Working);
    for phase in works.into_iter().chain(UpgradePhase::WAITS).chain([UpgradePhase::Completed]) {
        let mut object = object();
        object.spec.suspend = phase == UpgradePhase::Suspended;
        object.status = Some(at(phase, &object, &there));
        let line = format!("{}: why", phase.reason());
        cases.add(&format!("upgrade at {}", phase.reason()), &object, (word(phase), &line));
    }
    let done = at(UpgradePhase::Completed, &object(), &there);
    let mut suspended = with(done.clone());
    suspended.spec.suspend = true;
    cases.add("complete upgrade that is suspended", &suspended, ("Healthy", "Completed: why"));
    let mut changed = with(done);
    changed.metadata.generation = Some(4);
    let unseen = ("Progressing", "Evenkeel has not looked at generation 4 yet");
    cases.add("complete upgrade with another version", &changed, unseen);

    let invalid = with(status_of_invalid(&object(), "why", None, NOW));
    cases.add("upgrade with a wrong field", &invalid, ("Degraded", "Invalid: why"));
    let working = with(at(works[2], &object(), &there));
    for (refused, word, reason) in [(false, "Progressing", "ClusterNotSeen"), (true, "Degraded", "Forbidden")]
    {
        let unseen = with(status_of_unseen(&working, "why", refused, NOW));
        cases.add(&format!("upgrade at {reason}"), &unseen, (word, &format!("{reason}: why")));
    }
    let stored = serde_json::from_value(serde_json::to_value(&working).unwrap()).unwrap();
    let (_, status) = status_of_unreadable(&stored, "why", NOW);
    let mut unreadable = serde_json::to_value(&working).unwrap();
    unreadable["status"] = status.unwrap();
    cases.add(
        "upgrade that a newer Evenkeel has looked at and this one cannot read",
        &unreadable,
        ("Degraded", "Invalid: why"),
    );
}

fn claims(cases: &mut Cases) {
    let mut object: NodeUpgrade = sample("nodeupgrade.yaml").unwrap();
    object.metadata.generation = Some(1);
    let mut untouched = serde_json::to_value(&object).unwrap();
    untouched["status"] = json!({"observedGeneration": -1});
    let unseen = ("Progressing", "Evenkeel has not looked at generation 1 yet");
    cases.add("claim that is not written yet", &untouched, unseen);
    let parked = |for_a_person| ClaimState::Parked { since: NOW, retry_at: NOW, for_a_person };
    for (state, word) in [
        (ClaimState::Claimed, "Progressing"),
        (ClaimState::Draining { since: NOW, stalled: None }, "Progressing"),
        (ClaimState::Upgrading { since: NOW, before: Before::default(), observed: None }, "Progressing"),
        (ClaimState::Upgraded { at: NOW }, "Healthy"),
        (parked(false), "Progressing"),
        (parked(true), "Degraded"),
        (ClaimState::Failed { since: NOW, before: Before::default() }, "Degraded"),
    ] {
        let line = format!("{}: why", state.name());
        object.status = Some(status_of(&object, &state, 1, "why", &[], NOW));
        cases.add(&format!("claim at {}", state.name()), &object, (word, &line));
    }
}

fn reports(cases: &mut Cases) {
    let mut object: ClusterSkewReport = sample("clusterskewreport.yaml").unwrap();
    object.metadata.generation = Some(1);
    let unseen = ("Progressing", "Evenkeel has not looked at generation 1 yet");
    cases.add("report that is not written yet", &object, unseen);
    let judged = assess(&Cluster::default(), &Policy::default());
    for (name, unready, health) in [
        ("report that is fresh", None, ("Healthy", "Fresh: the report is up to date")),
        (
            "report of which a part fails",
            Some(report::Unready::CollectorFailed),
            ("Progressing", "CollectorFailed: why"),
        ),
        (
            "report of which a part is forbidden",
            Some(report::Unready::Forbidden),
            ("Degraded", "Forbidden: why"),
        ),
        (
            "report that loses fields",
            Some(report::Unready::SchemaOutdated),
            ("Degraded", "SchemaOutdated: why"),
        ),
    ] {
        let context = report::Context {
            missing: &[],
            platform: None,
            hidden: &[],
            budgets: None,
            before: &[],
            generation: Some(1),
            nodes: 0,
            now: NOW,
            live: report::LiveFacts { unready: unready.map(|of| (of, "why")), ..Default::default() },
        };
        object.status = Some(report::status(&judged, &context));
        cases.add(name, &object, health);
    }
    for (reason, stands, word) in
        [("Pending", Kstatus::InProgress, "Progressing"), ("Suspended", Kstatus::Paused, "Suspended")]
    {
        let told = conditions(&stands.conditions(reason, "why"), &[], Some(1), NOW);
        object.status.as_mut().unwrap().conditions = told;
        cases.add(&format!("report at {reason}"), &object, (word, &format!("{reason}: why")));
    }
}

#[test]
fn argo_cd_is_tested_with_what_the_operator_writes() {
    let mut cases = Cases::default();
    upgrades(&mut cases);
    claims(&mut cases);
    reports(&mut cases);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/argocd/objects.jsonl");
    compare(&path, &cases.0).unwrap_or_else(|error| panic!("{error}"));
}

/// Executors have no conditions. A file that is an object would be applied, which takes away what Argo CD has else there.
#[test]
fn argo_cd_has_the_health_check_for_every_kind_with_conditions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/argocd/health.yaml");
    let written: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(written.as_object().unwrap().keys().collect::<Vec<_>>(), ["data"]);
    let checks = written["data"].as_object().unwrap();
    let definitions = definitions();
    let kinds = definitions.iter().map(|(_, definition)| definition).filter(|definition| {
        let schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
        schema["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"].is_object()
    });
    let key = |kind: &str| format!("resource.customizations.health.{GROUP}_{kind}");
    let wanted: BTreeSet<String> = kinds.map(|definition| key(&definition.spec.names.kind)).collect();
    assert_eq!(wanted.len(), 3);
    assert_eq!(checks.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    let texts: BTreeSet<&str> = checks.values().map(|check| check.as_str().unwrap()).collect();
    assert_eq!(texts.len(), 1, "what is checked of the first is so for all");
}
