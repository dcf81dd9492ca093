//! From a spec to the core's value, and back from what was recorded.

use kube::core::DynamicObject;

use super::*;
use serde_json::json;

fn object(groups: &serde_json::Value) -> ClusterUpgrade {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": { "name": "up" },
        "spec": {
            "version": "v1.37.1", "controlPlane": { "executor": "x" }, "nodeGroups": groups,
        },
    });
    serde_json::from_value(object).unwrap()
}

fn executor(name: &str, spec: &serde_json::Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "UpgradeExecutor", "metadata": { "name": name }, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// What `object` means where there is an executor `x`, and one that nobody names.
fn read(object: &ClusterUpgrade) -> Result<Upgrade, Invalid> {
    let mut there = Executors::default();
    there.add(&executor("x", &json!({ "external": {} })));
    there.add(&executor("unnamed", &json!({ "job": { "template": {} } })));
    validate(object, &there)
}

#[test]
fn a_completed_upgrade_is_history_until_its_plan_changes() {
    let group = |name: &str| json!({ "name": name, "selector": {}, "executor": "x" });
    let mut done = object(&json!([group("a")]));
    let from = "v1.36.4".parse().unwrap();
    let hash = plan::hash(&read(&done).unwrap(), &from, &[]);
    done.status = Some(ClusterUpgradeStatus {
        plan: Some(Plan { hash, from: from.to_string(), to: "v1.37.1".to_owned(), ..Default::default() }),
        completion_time: Some(Time(Timestamp::UNIX_EPOCH)),
        ..Default::default()
    });
    let of = |object: &ClusterUpgrade| progress(object, &read(object).unwrap());
    let completed = |object: &ClusterUpgrade| of(object).completed.is_some();
    assert!(completed(&done));
    let mut suspended = done.clone();
    suspended.spec.suspend = true;
    assert!(completed(&suspended), "suspending what is complete begins nothing");
    let wider = ClusterUpgrade { status: done.status.clone(), ..object(&json!([group("a"), group("b")])) };
    assert!(!completed(&wider), "another group is another plan");
    let mut further = done.clone();
    further.spec.version = "v1.37.2".to_owned();
    assert!(!completed(&further) && of(&further).from.is_none(), "another version begins anew");
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

#[test]
fn what_is_written_of_groups_ways_and_risks() {
    let group = |name: &str, before: &[&str]| json!({ "name": name, "selector": {}, "executor": "x", "dependsOn": before });
    let told = |groups: serde_json::Value| {
        read(&object(&groups)).map_or_else(|why| why.to_string(), |_| "good".to_owned())
    };
    assert_eq!(told(json!([group("a", &["b"]), group("b", &[])])), "good");
    assert_eq!(
        told(json!([group("a", &["b"]), group("b", &["a"])])),
        "nodeGroups a: dependsOn leads back to the group itself"
    );
    let line = "nodeGroups a: dependsOn names c, which is no group of this upgrade";
    assert_eq!(told(json!([group("a", &["c"])])), line);

    let mut some = object(&json!([]));
    some.spec.version = "v1.38.1".to_owned();
    some.spec.via = vec!["v1.37.2".to_owned()];
    let risk = |until: &str| AcceptedRisk {
        finding: "O5/a/b".to_owned(),
        until: until.to_owned(),
        reason: "tried".to_owned(),
    };
    some.spec.accepted_risks = vec![risk("2026-12-01"), risk("2026-12-01T10:00:00Z")];
    let upgrade = read(&some).unwrap();
    assert_eq!(upgrade.via, ["v1.37.2".parse().unwrap()]);
    let ends: Vec<String> = upgrade.accepted.iter().map(|risk| risk.until.to_string()).collect();
    assert_eq!(ends, ["2026-12-02T00:00:00Z", "2026-12-01T10:00:00Z"], "a day counts to its end");
    some.spec.accepted_risks = vec![risk("soon")];
    let line = "acceptedRisks O5/a/b: until soon is no day and no time; write it like 2026-12-01";
    assert_eq!(read(&some).unwrap_err().to_string(), line);
    some.spec.accepted_risks.clear();
    some.spec.via = vec!["v1.37.2".to_owned(), "v1.37.3".to_owned()];
    let line = "spec.via names two versions of 1.37; name one";
    assert_eq!(read(&some).unwrap_err().to_string(), line);
}

#[test]
fn what_is_recorded_of_the_plan_is_read_again() {
    let mut some = object(&json!([]));
    some.spec.version = "v1.38.1".to_owned();
    some.status = Some(ClusterUpgradeStatus {
        plan: Some(Plan {
            hash: "0".to_owned(),
            from: "v1.36.4".to_owned(),
            to: "v1.38.1".to_owned(),
            via: vec!["v1.37.2".to_owned()],
            hop: "v1.37.2".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    });
    let progress = progress(&some, &read(&some).unwrap());
    let shown = |versions: &[KubeVersion]| versions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&progress.via), ["v1.37.2"]);
    assert_eq!(progress.hop.as_ref().map(ToString::to_string).as_deref(), Some("v1.37.2"));
}

#[test]
fn an_upgrade_has_the_executors_that_it_names_and_no_other() {
    let group = json!([{ "name": "a", "selector": {}, "executor": "y" }]);
    let upgrade = read(&object(&group)).unwrap();
    let names: Vec<&str> = upgrade.executors.keys().map(|name| &**name).collect();
    assert_eq!(names, ["x", "y"]);
    let line = "spec.nodeGroups a names UpgradeExecutor y, which does not exist: install it, for example with kubectl \
                apply -k config/executors/kubeadm";
    assert_eq!(upgrade.absent().as_deref(), Some(line));
    assert_eq!(read(&object(&json!([]))).unwrap().absent(), None);
}

/// What a person approves covers what the executors are, and only of those that it names.
#[test]
fn the_hash_covers_what_an_executor_is() {
    let group = object(&json!([{ "name": "a", "selector": {}, "executor": "y" }]));
    let hash = |executors: &[(&str, serde_json::Value)]| {
        let mut there = Executors::default();
        for (name, spec) in executors {
            there.add(&executor(name, spec));
        }
        plan::hash(&validate(&group, &there).unwrap(), &"v1.36.4".parse().unwrap(), &[])
    };
    let job = |image: &str, seconds: i64| {
        let template = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
        json!({ "job": { "template": template, "deadlineSeconds": seconds } })
    };
    let x = ("x", json!({ "external": {} }));
    let of = |y: serde_json::Value| hash(&[x.clone(), ("y", y)]);
    let first = of(job("a@sha256:1", 60));
    assert_eq!(hash(&[("z", json!({ "external": {} })), ("y", job("a@sha256:1", 60)), x.clone()]), first);
    let mut others =
        vec![of(job("a@sha256:2", 60)), of(job("a@sha256:1", 61)), of(json!({ "external": {} }))];
    others.extend([hash(std::slice::from_ref(&x)), hash(&[("y", job("a@sha256:1", 60))])]);
    assert!(!others.contains(&first), "{first}: {others:?}");
}

/// An executor is changed or taken away for the upgrades to come; those that are complete stay so.
#[test]
fn what_becomes_of_an_executor_begins_no_completed_upgrade_anew() {
    let mut done = object(&json!([]));
    done.metadata.generation = Some(3);
    done.status = Some(ClusterUpgradeStatus {
        observed_generation: Some(3),
        plan: Some(Plan {
            hash: "of another".to_owned(),
            from: "v1.36.4".to_owned(),
            to: "v1.37.1".to_owned(),
            ..Default::default()
        }),
        completion_time: Some(Time(Timestamp::UNIX_EPOCH)),
        ..Default::default()
    });
    let completed = |object: &ClusterUpgrade| {
        let upgrade = validate(object, &Executors::default()).unwrap();
        progress(object, &upgrade).completed.is_some()
    };
    assert!(completed(&done));
    done.metadata.generation = Some(4);
    assert!(!completed(&done), "somebody changed the upgrade itself");
}

#[test]
fn what_moves_together_and_who_moves_the_first_is_read() {
    let plane = |plane: serde_json::Value| {
        let mut upgrade = object(&json!([]));
        upgrade.spec.control_plane = serde_json::from_value(plane).unwrap();
        read(&upgrade).map(|upgrade| upgrade.control_plane)
    };
    let plain = plane(json!({ "executor": "x" })).unwrap();
    assert_eq!((plain.unit, plain.first_executor), (upgrade::Unit::Component, None));
    let whole = plane(json!({ "executor": "x", "unit": "Node", "firstExecutor": "x" })).unwrap();
    assert_eq!((whole.unit, whole.first_executor.as_deref()), (upgrade::Unit::Node, Some("x")));
    let unknown = plane(json!({ "executor": "x", "unit": "Node", "firstExecutor": "y" })).unwrap();
    assert_eq!(unknown.first_executor.as_deref(), Some("y"), "it may come");
    let alone = plane(json!({ "executor": "x", "firstExecutor": "x" })).unwrap_err();
    assert_eq!(alone, Invalid::FirstExecutor);
}

/// A plan with many hops and more findings than are shown, whose texts are `line`.
fn longest_plan(line: impl Fn(usize) -> String) -> plan::Plan {
    let name = |n: usize| format!("{n:0>253}");
    let version: KubeVersion = "v1.37.1".parse().unwrap();
    let finding = |n: usize| plan::Finding {
        id: format!("U4/PodDisruptionBudget/{n:0>63}/{}", name(n)),
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
    let object = object(&(0..64).map(group).collect::<serde_json::Value>());
    let upgrade = read(&object).unwrap();
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
        assert!(line.ends_with('…') && line.chars().count() == 500);
        assert_eq!(told.conditions[0].message.chars().count(), 500);
    }
}
