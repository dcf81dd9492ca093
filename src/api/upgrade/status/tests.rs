//! Statuses where nothing can be decided, and who is named where not all can be. One at its longest is given to a server in
//! `tests/virtual/upgrade/bounds.rs`.

use evenkeel_core::rollout::NodeOut;
use serde_json::json;

use super::*;
use crate::api::Executors;
use crate::api::upgrade::status_schema::PastUpgrade;

fn object() -> ClusterUpgrade {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": { "name": "up" },
        "spec": { "version": "v1.37.1", "controlPlane": { "executor": "x" }, "nodeGroups": [] },
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn what_is_not_seen_leaves_the_rest_of_the_status_as_it_was() {
    let mut object = object();
    object.metadata.generation = Some(1);
    let mut before = status_of_invalid(&object, "why", None, Timestamp::UNIX_EPOCH);
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

/// Condition `Ready` is all that said that it had ended, and tells of something else then.
#[test]
fn an_upgrade_that_ended_with_exceptions_is_remembered_also_where_nothing_can_be_decided_of_the_next() {
    let mut object = object();
    let condition = json!({"type": "Ready", "status": "True", "reason": "CompletedWithExceptions", "message": "",
        "lastTransitionTime": "2026-11-02T00:00:00Z"});
    let status = json!({"plan": {"hash": "h", "from": "v1.35.4", "to": "v1.36.1"}, "startTime": "2026-11-01T00:00:00Z",
        "conditions": [condition], "progress": {"summary": "8/9", "upgraded": 8, "selected": 9}});
    object.status = Some(serde_json::from_value(status).unwrap());
    let past = |all: &[PastUpgrade]| -> Vec<(String, i32)> {
        all.iter().map(|past| (past.to.clone(), past.nodes)).collect()
    };
    let first = [("v1.36.1".to_owned(), 8)];
    // What nodes settle by is of the version that they were on their way to.
    for version in ["v1.37.1", "v1.36.1"] {
        object.spec.version = version.to_owned();
        let now = Timestamp::UNIX_EPOCH;
        for told in
            [status_of_unseen(&object, "why", false, now), status_of_invalid(&object, "why", None, now)]
        {
            assert_eq!(past(&told.history), first, "{version}");
            // It may be complete after all.
            let later = ClusterUpgrade { status: Some(told), ..object.clone() };
            let decided = rollout::UpgradeStatus {
                started: "2026-11-01T00:00:00Z".parse().ok(),
                completed: Some(now),
                hash: Some("h".to_owned()),
                ..decided(Vec::new())
            };
            assert_eq!(past(&outlook::history(&later, &decided, 9)), [(version.to_owned(), 9)]);
        }
        let goes_on = outlook::history(&object, &decided(Vec::new()), 8);
        assert_eq!(past(&goes_on), if version == "v1.37.1" { &first[..] } else { &[] });
    }
}

/// What a decision says with `parked` out of the rollout.
fn decided(parked: Vec<NodeOut>) -> rollout::UpgradeStatus {
    let stage = |stage| StageProgress { stage, total: 200, upgraded: 0, behind: 200 };
    rollout::UpgradeStatus {
        phase: UpgradePhase::NodesFailed,
        message: String::new(),
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
        parked,
        soaks: Vec::new(),
        waits: Vec::new(),
        preflight: Vec::new(),
        started: None,
        completed: None,
    }
}

/// Whoever leads next goes by what the status remembers of troubles: one that lasts, and none that is over.
#[test]
fn an_upgrade_whose_spec_is_invalid_remembers_the_troubles_that_last_while_its_nodes_settle() {
    let mut object = object();
    let remembered = |told: &ClusterUpgradeStatus| {
        let of = |trouble: &LastingTrouble| Lasting::read(&trouble.reason, &trouble.name);
        told.lasting.iter().filter_map(of).collect::<Vec<_>>()
    };
    let (over, lasts) = (Lasting::Undrainable("over".into()), Lasting::Undrainable("lasts".into()));
    object.status = Some(ClusterUpgradeStatus { lasting: vec![lasting(&over)], ..Default::default() });
    let settles = rollout::UpgradeStatus { lasting: vec![lasts.clone()], ..decided(Vec::new()) };
    let told = |settles| remembered(&status_of_invalid(&object, "why", settles, Timestamp::UNIX_EPOCH));
    assert_eq!(told(Some(&settles)), [lasts]);
    assert_eq!(told(None), [over], "nothing was looked at");
}

fn out(state: OutOf, node: &str, reason: &str) -> NodeOut {
    NodeOut { node: node.into(), state, since: None, reason: reason.to_owned(), excepted: None }
}

/// The status of an upgrade that goes on, and of one whose spec cannot be carried out while its nodes settle.
fn both(decided: &rollout::UpgradeStatus) -> [ClusterUpgradeStatus; 2] {
    let object = object();
    let executor = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "UpgradeExecutor", "metadata": {"name": "x"},
        "spec": {"external": {}}});
    let mut there = Executors::default();
    there.add(&serde_json::from_value(executor).unwrap());
    let upgrade = super::super::validate(&object, &there).unwrap();
    let plan = plan::Plan {
        from: None,
        to: upgrade.version.clone(),
        unit: upgrade.control_plane.unit,
        hops: Vec::new(),
        silent: std::collections::BTreeSet::new(),
        findings: Vec::new(),
    };
    let planned = Planned::MustNot { plan, why: Vec::new() };
    let now = Timestamp::UNIX_EPOCH;
    [
        status((&object, &upgrade), &planned, decided, None, now),
        status_of_invalid(&object, "why", Some(decided), now),
    ]
}

/// An alert and `evenkeel status` read that list.
#[test]
fn a_failed_node_is_named_before_all_others_and_a_parked_one_before_held_ones() {
    // The last character makes texts so long that the lists have to be shortened further.
    for (reason, most) in [("held", MAX_PARKED), (&*"\u{1f512}".repeat(MAX_LINE), 25)] {
        let mut parked: Vec<_> = (0..120).map(|n| out(OutOf::Held, &format!("a{n:03}"), reason)).collect();
        parked.push(out(OutOf::Parked, "b1", reason));
        parked.push(out(OutOf::Held, "b2", reason));
        parked.push(out(OutOf::Failed, "c1", reason));
        for told in both(&decided(parked.clone())) {
            let named: Vec<_> = told.parked.iter().map(|out| out.node.as_str()).collect();
            let mut expected: Vec<_> = (0..most - 2).map(|n| format!("a{n:03}")).collect();
            expected.extend(["b1".to_owned(), "c1".to_owned()]);
            assert_eq!(named, expected, "the others in the order of their names");
            assert_eq!(told.parked_omitted, 123 - i32::try_from(most).unwrap());
        }
    }
    let failed = (0..60).map(|n| out(OutOf::Failed, &format!("f{n:03}"), "failed"));
    let parked: Vec<_> = [out(OutOf::Parked, "a", "parked")].into_iter().chain(failed).collect();
    for told in both(&decided(parked)) {
        assert!(told.parked.iter().all(|out| out.state == OutOf::Failed.name()));
        assert_eq!((told.parked.len(), told.parked_omitted), (MAX_PARKED, 11));
    }
}

/// The server refuses a status whose list is longer than the definition allows.
#[test]
fn each_list_has_as_much_room_in_the_definition_as_is_written_at_most() {
    let definition = serde_json::to_value(<ClusterUpgrade as kube::CustomResourceExt>::crd()).unwrap();
    let status =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    let plan = &status["plan"]["properties"];
    for (list, most) in [
        (&status["parked"], MAX_PARKED),
        (&status["waitingFor"], MAX_LINES),
        (&status["controlPlane"], MAX_SEEN),
        (&status["lasting"], MAX_LASTING),
        (&status["soaks"], MAX_SOAKS),
        (&plan["hops"], MAX_HOPS),
        (&plan["waves"], outlook::MAX_WAVES),
    ] {
        assert_eq!(list["maxItems"], most, "{list}");
    }
}
