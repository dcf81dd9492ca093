//! Statuses at their longest, and where nothing can be decided.

use evenkeel_core::cluster::Component;
use evenkeel_core::disruption::preflight::Code;
use evenkeel_core::plan::{FindingCode, FindingId};
use evenkeel_core::upgrade;
use k8s_openapi::jiff::SignedDuration;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::*;
use crate::api::Executors;
use crate::api::upgrade::validate;

fn object(groups: &Value) -> ClusterUpgrade {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": { "name": "up" },
        "spec": { "version": "v1.37.1", "controlPlane": { "executor": "x" }, "nodeGroups": groups },
    });
    serde_json::from_value(object).unwrap()
}

/// What `object` means where there is an executor `x`.
fn read(object: &ClusterUpgrade) -> Upgrade {
    let executor: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "UpgradeExecutor", "metadata": { "name": "x" },
        "spec": { "external": {} },
    }))
    .unwrap();
    let mut there = Executors::default();
    there.add(&executor);
    validate(object, &there).unwrap()
}

#[test]
fn what_is_not_seen_leaves_the_rest_of_the_status_as_it_was() {
    let mut object = object(&json!([]));
    object.metadata.generation = Some(1);
    let mut before = status_of_invalid(&object, "why", Timestamp::UNIX_EPOCH);
    let paused = Condition { type_: "Paused".to_owned(), ..before.conditions[0].clone() };
    before.conditions.push(paused);
    object.status = Some(before.clone());
    object.metadata.generation = Some(2);
    for (refused, ready, stalled) in [(true, "False", "True"), (false, "Unknown", "False")] {
        let told = status_of_unseen(&object, "volumes: not allowed", refused, Timestamp::UNIX_EPOCH);
        let of = |type_: &str| told.conditions.iter().find(|of| of.type_ == type_).unwrap();
        assert_eq!((of("Ready").status.as_str(), of("Stalled").status.as_str()), (ready, stalled));
        assert_eq!(
            (of("Ready").message.as_str(), told.observed_generation),
            ("volumes: not allowed", Some(1))
        );
        assert_eq!(told.conditions.len(), before.conditions.len());
        let [only] = told.waiting_for.as_slice() else { panic!("{:?}", told.waiting_for) };
        let ended_by = if refused { "Person" } else { "Cluster" };
        assert_eq!((only.message.as_str(), only.ended_by.as_str()), ("volumes: not allowed", ended_by));
        assert_eq!(only.reason, of("Ready").reason);
    }
}

/// A plan with many hops and more findings than are shown, whose texts are `line`.
fn longest_plan(line: impl Fn(usize) -> String) -> plan::Plan {
    let name = |n: usize| format!("{n:0>253}");
    let version: KubeVersion = "v1.37.1".parse().unwrap();
    let finding = |n: usize| plan::Finding {
        id: FindingId {
            code: FindingCode::Drain(Code::OnlyReplica),
            object: Some(format!("PodDisruptionBudget/{n:0>63}/{}", name(n))),
        },
        weight: plan::Weight::Stops,
        acceptable: true,
        accepted: Some(plan::Accepted {
            until: Timestamp::UNIX_EPOCH,
            reason: line(n).into(),
            instead_of: plan::Weight::Blocks,
        }),
        hop: None,
        what: line(n),
        remedy: line(n),
        samples: Vec::new(),
        count: 1,
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
        findings: (0..5_000).map(finding).collect(),
    }
}

/// What a decision says of an upgrade where every list is longer than the status shows, and every text as long as others
/// may make it; with `planes` control-plane nodes.
fn longest(planes: usize) -> (Planned, rollout::Status, Forecast) {
    let line = |n: usize| format!("{n} {}", "\"so\" ".repeat(1_000));
    let name = |n: usize| format!("{n:0>253}");
    let version: KubeVersion = "v1.37.1".parse().unwrap();
    let about = plan::Estimate { p50: SignedDuration::from_hours(90), p90: SignedDuration::from_hours(99) };
    let waiting = |line: String| rollout::Waiting {
        reason: rollout::WaitReason::Upgrade(Phase::WaitingForWindow),
        line,
        until: Some(Timestamp::UNIX_EPOCH),
    };
    let lines = || (0..5_000).map(line).collect::<Vec<_>>();
    let plan = longest_plan(line);
    let wave = |n: usize| plan::Wave {
        group: 0,
        canary: true,
        zone: Some(format!("{n:0>63}").into()),
        at_once: 500,
        nodes: vec!["n".into(); 5_000],
    };
    let timing =
        plan::HopTiming { hop: version.minor(), least: about.p50, estimate: about, waves: vec![about; 200] };
    let forecast = Forecast {
        waves: vec![(0..200).map(wave).collect()],
        timing: plan::Timing { bounds: Vec::new(), hops: vec![timing], least: about.p50, estimate: about },
        findings: plan.findings.clone(),
    };
    let place = |n: usize| Place {
        component: Component::CloudControllerManager,
        name: name(n / 4).into(),
        node_uid: format!("{n:0>36}").into(),
    };
    let soak = |n: usize| upgrade::Soak {
        what: upgrade::Soaked::Canaries(format!("{n:0>63}").into()),
        version: version.clone(),
        done: Timestamp::UNIX_EPOCH,
    };
    let out = |n: usize| rollout::Out {
        node: name(n).into(),
        state: OutOf::Parked,
        since: Some(Timestamp::UNIX_EPOCH),
        reason: line(n),
        excepted: None,
    };
    let stage = |stage| StageProgress { stage, total: 5_000, upgraded: 0, behind: 5_000 };
    let decided = rollout::Status {
        phase: Phase::NodesParked,
        message: line(0),
        from: Some(version.clone()),
        hash: Some("0123456789ab".to_owned()),
        way: vec![version.clone(); 16],
        hop: Some(version.clone()),
        nodes_of_hops: vec![5_000; 20],
        stages: [Stage::Apiservers, Stage::Controllers, Stage::Kubelets].map(stage),
        seen: (0..planes * 4).map(place).collect(),
        away: Vec::new(),
        in_flight: 500,
        nodes_in_flight: 500,
        parked: (0..5_000).map(out).collect(),
        soaks: (0..129).map(soak).collect(),
        waits: lines().into_iter().map(waiting).collect(),
        preflight: lines(),
        started: Some(Timestamp::UNIX_EPOCH),
        completed: None,
    };
    (Planned::MustNot { plan, why: Vec::new() }, decided, forecast)
}

#[test]
fn a_status_stays_small_and_counts_what_it_leaves_out() {
    let group = |n: usize| json!({ "name": format!("{n:0>63}"), "selector": {}, "executor": "x" });
    let object = object(&(0..64).map(group).collect::<Value>());
    let upgrade = read(&object);
    // More than nine nodes of a control plane are remembered all the same: then the hard limit counts.
    for (planes, most) in [(9, 64 * 1024), (64, 256 * 1024)] {
        let (planned, decided, forecast) = longest(planes);
        let told = status((&object, &upgrade), &planned, &decided, Some(&forecast), Timestamp::UNIX_EPOCH);
        let size = serde_json::to_string(&told).unwrap().len();
        assert!(size <= most, "{planes} control-plane nodes: {size} bytes");
        assert_eq!((told.control_plane.len(), told.soaks.len()), (planes * 4, 129), "never cut");
        let plan = told.plan.unwrap();
        let whole = |shown: usize, omitted: i32| shown + usize::try_from(omitted).unwrap();
        assert_eq!(whole(told.parked.len(), told.parked_omitted), 5_000);
        assert_eq!(whole(told.waiting_for.len(), told.waiting_for_omitted), 5_000);
        assert_eq!(whole(plan.blockers.len(), plan.blockers_omitted), 5_000);
        assert_eq!(whole(plan.findings.len(), plan.findings_omitted), 5_000);
        assert_eq!(whole(plan.waves.len(), plan.waves_omitted), 200);
        assert_eq!(whole(plan.hops.len(), plan.hops_omitted), 20);
        let line = &told.waiting_for[0].message;
        assert!(line.contains('…') && line.chars().count() == 500);
        assert_eq!(told.conditions[0].message.chars().count(), 500);
    }
}
