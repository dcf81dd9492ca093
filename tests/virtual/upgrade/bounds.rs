//! A status at its longest: of 5,000 nodes, with every list beyond its bound, every text as long as others may make it, and
//! ten upgrades before this one. It fits into what an object of ours may hold, and a server takes it.
//!
//! Here belongs what the status is made of. What a status shows of it is not decided here.

use evenkeel::api::Executors;
use evenkeel::api::upgrade::{ClusterUpgrade, ClusterUpgradeStatus, PastUpgrade, status, validate};
use evenkeel_core::cluster::Component;
use evenkeel_core::disruption::preflight;
use evenkeel_core::plan::{self, Planned, Stage, StageProgress};
use evenkeel_core::rollout::{self, Forecast, OutOf, UpgradePhase};
use evenkeel_core::upgrade::{self, ComponentPlace};
use evenkeel_core::version::KubeVersion;
use evenkeel_sim::Cluster;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::super::campaign::{Wrong, virtually};
use super::super::kube_api::Kube;
use super::base::UPGRADES;

const NODES: usize = 5_000;
/// The most that an object of ours may have, and with more than nine nodes of a control plane, all of which are remembered.
const MOST: [usize; 2] = [64 * 1024, 256 * 1024];
/// How many upgrades are remembered.
const PAST: usize = 10;

fn line(n: usize) -> String {
    format!("{n} {}", "\"so\" ".repeat(1_000))
}

fn name(n: usize) -> String {
    format!("{n:0>253}")
}

/// The longest version that a person may ask for.
fn target() -> KubeVersion {
    format!("v1.37.1-{}", "x".repeat(56)).parse().unwrap()
}

/// As many versions as there can be on the way, each as long as may be: it is known for every minor before the target.
fn way() -> Vec<KubeVersion> {
    let of = |minor| format!("v1.{minor}.10-{}", "x".repeat(55)).parse().unwrap();
    let known: Vec<KubeVersion> = (10..37).map(of).collect();
    let (named, recorded) = known.split_at(13);
    let upgrade = upgrade::Upgrade { via: named.to_vec(), ..upgrade::Upgrade::to(target()) };
    plan::on_the_way(&upgrade, &"v1.9.0".parse().unwrap(), recorded, None)
}

/// An upgrade with as many groups as may be, that was complete ten times for versions as long as may be.
fn object() -> ClusterUpgrade {
    let groups: Vec<Value> =
        (0..64).map(|n| json!({"name": format!("{n:0>63}"), "selector": {}, "executor": "x"})).collect();
    let object = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {"name": "up"},
        "spec": {"version": target().to_string(), "controlPlane": {"executor": "x"}, "nodeGroups": groups}});
    let mut object: ClusterUpgrade = serde_json::from_value(object).unwrap();
    let past = |n: usize| PastUpgrade {
        from: target().to_string(),
        to: target().to_string(),
        plan_hash: "0123456789abcdef0123456789abcdef".to_owned(),
        start_time: Time(Timestamp::from_second(n as i64).unwrap()),
        completion_time: Time(Timestamp::MAX),
        nodes: NODES as i32,
    };
    object.status =
        Some(ClusterUpgradeStatus { history: (0..PAST).map(past).collect(), ..Default::default() });
    object
}

fn plan_of() -> plan::Plan {
    let version = target();
    let accepted = |n: usize| plan::Accepted {
        until: Timestamp::UNIX_EPOCH,
        reason: line(n).into(),
        instead_of: plan::Weight::Blocks,
    };
    let finding = |n: usize| plan::PlanFinding {
        passing: false,
        id: plan::FindingId {
            code: plan::FindingCode::Drain(preflight::Code::LetsNoneGo),
            object: Some(format!("PodDisruptionBudget/{n:0>63}/{}", name(n))),
        },
        weight: plan::Weight::Stops,
        acceptable: true,
        accepted: Some(accepted(n)),
        hop: Some(version.minor()),
        what: line(n),
        remedy: line(n),
        samples: (0..5).map(|n| name(n).into()).collect(),
        count: NODES,
    };
    let need = plan::Need { component: Component::KubeProxy, least: version.minor() };
    let hop = |_| plan::Hop {
        version: version.clone(),
        picked: plan::Picked::Target,
        needs: vec![need.clone(); 2],
        steps: Vec::new(),
        kubelets: plan::Pass::All,
    };
    plan::Plan {
        from: Some(version.clone()),
        to: version.clone(),
        unit: upgrade::Unit::Component,
        hops: (0..20).map(hop).collect(),
        silent: std::collections::BTreeSet::new(),
        findings: (0..NODES).map(finding).collect(),
    }
}

fn ahead(plan: &plan::Plan) -> Forecast {
    let about = plan::Estimate { p50: SignedDuration::from_hours(90), p90: SignedDuration::from_hours(99) };
    let wave = |n: usize| plan::Wave {
        group: 0,
        canary: true,
        zone: Some(format!("{n:0>63}").into()),
        at_once: 500,
        nodes: vec!["n".into(); NODES],
    };
    let timing =
        plan::HopTiming { hop: target().minor(), least: about.p50, estimate: about, waves: vec![about; 200] };
    Forecast {
        waves: vec![(0..200).map(wave).collect()],
        timing: plan::PlanTiming {
            bounds: Vec::new(),
            hops: vec![timing],
            least: about.p50,
            estimate: about,
            until_done: Some(about.p90),
        },
        findings: plan.findings.clone(),
    }
}

/// What a decision says whose nodes are all parked, where everything soaks and everything is waited for; with `planes` nodes of
/// a control plane.
fn decided(planes: usize, completed: Option<Timestamp>) -> rollout::UpgradeStatus {
    let version = target();
    let waiting = |n: usize| rollout::Waiting {
        reason: rollout::WaitReason::Upgrade(UpgradePhase::WaitingForWindow),
        line: line(n),
        until: Some(Timestamp::UNIX_EPOCH),
        of_group: false,
    };
    let place = |n: usize| ComponentPlace {
        component: Component::CloudControllerManager,
        name: name(n / 4).into(),
        node_uid: format!("{n:0>36}").into(),
    };
    let soak = |n: usize| upgrade::Soak {
        what: upgrade::Soaked::Canaries(format!("{n:0>63}").into()),
        version: version.clone(),
        done: Timestamp::UNIX_EPOCH,
    };
    let out = |n: usize| rollout::NodeOut {
        node: name(n).into(),
        state: OutOf::Parked,
        since: Some(Timestamp::UNIX_EPOCH),
        reason: line(n),
        excepted: None,
    };
    let pod_away = |n: usize| upgrade::Lasting::StaticPodAway(format!("{n:0>63}/{}", name(n)).into());
    let stage = |stage| StageProgress { stage, total: NODES, upgraded: 0, behind: NODES };
    rollout::UpgradeStatus {
        phase: UpgradePhase::NodesParked,
        message: line(0),
        from: Some(version.clone()),
        hash: Some("0123456789abcdef0123456789abcdef".to_owned()),
        way: way(),
        hop: Some(version.clone()),
        nodes_of_hops: vec![NODES; 20],
        stages: [Stage::Apiservers, Stage::Controllers, Stage::Kubelets].map(stage),
        seen: (0..planes * 4).map(place).collect(),
        hidden: Component::ALL.to_vec(),
        away: Vec::new(),
        lasting: (0..NODES).map(pod_away).collect(),
        undrainable: Vec::new(),
        in_flight: 500,
        nodes_in_flight: 500,
        parked: (0..NODES).map(out).collect(),
        soaks: (0..129).map(soak).collect(),
        waits: (0..NODES).map(waiting).collect(),
        preflight: (0..NODES).map(line).collect(),
        started: Some(Timestamp::MAX),
        completed,
    }
}

/// The status of `object` with everything at its bound.
fn told(object: &ClusterUpgrade, planes: usize, completed: Option<Timestamp>) -> ClusterUpgradeStatus {
    let executor = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "UpgradeExecutor", "metadata": {"name": "x"},
        "spec": {"external": {}}});
    let mut there = Executors::default();
    there.add(&serde_json::from_value(executor).unwrap());
    let upgrade = validate(object, &there).unwrap();
    let plan = plan_of();
    let forecast = ahead(&plan);
    let planned = Planned::MustNot { plan, why: Vec::new() };
    status((object, &upgrade), &planned, &decided(planes, completed), Some(&forecast), Timestamp::MAX)
}

/// It is small, and says how much of each list it leaves out.
fn counts(told: &ClusterUpgradeStatus, planes: usize, most: usize) {
    let size = serde_json::to_string(told).unwrap().len();
    assert!(size <= most, "{planes} control-plane nodes: {size} bytes");
    let never_cut = (told.control_plane.len(), told.soaks.len(), told.history.len());
    assert_eq!(never_cut, (planes * 4, 129, PAST), "never cut");
    let plan = told.plan.as_ref().unwrap();
    let whole = |shown: usize, omitted: i32| (shown > 0).then(|| shown + usize::try_from(omitted).unwrap());
    assert_eq!(whole(plan.findings.len(), plan.findings_omitted), Some(NODES));
    assert_eq!(whole(plan.blockers.len(), plan.blockers_omitted), Some(NODES));
    assert_eq!(whole(plan.waves.len(), plan.waves_omitted), Some(200));
    assert_eq!(whole(plan.hops.len(), plan.hops_omitted), Some(20));
    assert_eq!(whole(told.parked.len(), told.parked_omitted), Some(NODES));
    assert_eq!(whole(told.waiting_for.len(), told.waiting_for_omitted), Some(NODES));
    let first = &told.waiting_for[0].message;
    assert!(first.contains('…') && first.chars().count() == 500);
    assert_eq!(told.conditions[0].message.chars().count(), 500);
}

#[test]
fn a_status_of_many_control_plane_nodes_keeps_all_of_them() {
    counts(&told(&object(), 64, None), 64, MOST[1]);
}

#[test]
fn a_status_with_everything_at_its_bound_is_small_and_a_server_takes_it() {
    let mut object = object();
    // While it goes on, and as soon as it is complete for the eleventh time.
    for completed in [None, Some(Timestamp::MAX)] {
        let told = told(&object, 9, completed);
        counts(&told, 9, MOST[0]);
        assert_eq!(told.history[0].start_time.0.as_second(), i64::from(completed.is_some()));
        object.status = Some(told);
        let sent = serde_json::to_value(&object).unwrap();
        let ((), wrong) = virtually(async || {
            let cluster = Cluster::builder().seed(1).version("v1.37.1").start();
            let kube = Kube(cluster.client_of("evenkeel-a"));
            kube.install().await;
            let made = kube.create(UPGRADES, &sent).await;
            let mut whole = sent.clone();
            whole["metadata"] = made["metadata"].clone();
            let path = format!("{UPGRADES}/up/status");
            let stored = kube.send("PUT", &path, "application/json", &whole).await.unwrap();
            assert_eq!(stored["status"], sent["status"], "a server keeps all of it");
        });
        assert_eq!(wrong, Wrong::new());
    }
}
