//! What a claim stores, and how others read it.

use serde_json::{Value, json};

use super::*;

/// What a claim of several components remembers is read back as it was; one of an earlier release has one component.
#[test]
fn what_moves_together_is_stored_and_read() {
    let plane = vec![Component::KubeApiserver, Component::KubeScheduler];
    for components in [Vec::new(), plane] {
        let subject = Subject {
            component: Component::KubeApiserver,
            components: components.clone(),
            node: "cp-1".into(),
            node_uid: "uid".into(),
            from: "v1.36.4".into(),
            to: "v1.37.1".parse().unwrap(),
            executor: "x".into(),
        };
        let parts = components.iter().map(|of| (*of, format!("container={of}").into())).collect();
        let asked = AskedExecutor { job: components.is_empty(), until: Timestamp::UNIX_EPOCH };
        let not_ready = vec!["a/b".into()];
        let static_pods = vec!["kube-system/etcd-cp-1".into()];
        let before = Before { parts, not_ready, static_pods, asked: Some(asked), ..Before::default() };
        let since = Timestamp::UNIX_EPOCH;
        let failed = ClaimState::Failed { since, before: before.clone() };
        for state in [ClaimState::Upgrading { since, before, observed: Some(since) }, failed] {
            let mut object = NodeUpgrade::new("up.x.cp-1", spec_of("up", "uid", &subject));
            object.status = Some(status_of(&object, &state, 1, "", &[], Timestamp::UNIX_EPOCH));
            let text = serde_json::to_value(&object).unwrap();
            assert_eq!(text["spec"].get("components").is_some(), !components.is_empty());
            let read = claim_of(&serde_json::from_value(text).unwrap()).unwrap();
            assert_eq!((read.subject, read.state), (subject.clone(), state));
        }
    }
}

/// What kstatus computes, by cli-utils `pkg/kstatus/status/generic.go`.
fn kstatus(object: &Value) -> &'static str {
    let observed = object["status"]["observedGeneration"].as_i64();
    if observed.is_some_and(|observed| Some(observed) != object["metadata"]["generation"].as_i64()) {
        return "InProgress";
    }
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is = |of: &Value, kind: &str| of["type"] == kind && of["status"] == "True";
    let first = conditions.iter().find_map(|of| match of {
        of if is(of, "Reconciling") => Some("InProgress"),
        of if is(of, "Stalled") => Some("Failed"),
        _ => None,
    });
    let ready = conditions.iter().find(|of| of["type"] == "Ready");
    let by_ready = || ready.is_none_or(|ready| ready["status"] == "True");
    first.unwrap_or_else(|| if by_ready() { "Current" } else { "InProgress" })
}

fn claim() -> NodeUpgrade {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade",
        "metadata": {"name": "up.kubelet.n-1", "generation": 1},
        "spec": {"upgradeName": "up", "component": "kubelet", "nodeName": "n-1", "fromVersion": "v1.36.4",
                 "toVersion": "v1.37.1", "executor": "x"},
    });
    serde_json::from_value(object).unwrap()
}

/// `object` as a server stores and returns it: with the default of its status.
fn stored(object: &NodeUpgrade) -> Value {
    let definition =
        crate::api::definitions().into_iter().find(|(_, of)| of.spec.names.kind == "NodeUpgrade");
    let definition = serde_json::to_value(definition.unwrap().1).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut object = serde_json::to_value(object).unwrap();
    if object["status"].is_null() {
        object["status"] = schema["properties"]["status"]["default"].clone();
    }
    object
}

#[test]
fn kstatus_reads_from_a_claim_how_it_stands() {
    let at = Timestamp::UNIX_EPOCH;
    let parked = |for_a_person| ClaimState::Parked { since: at, retry_at: at, for_a_person };
    for (state, read, statuses) in [
        (ClaimState::Claimed, "InProgress", ["Unknown", "True", "False"]),
        (ClaimState::Draining { since: at, stalled: None }, "InProgress", ["Unknown", "True", "False"]),
        (ClaimState::Draining { since: at, stalled: Some(at) }, "InProgress", ["Unknown", "True", "False"]),
        (
            ClaimState::Upgrading { since: at, before: Before::default(), observed: None },
            "InProgress",
            ["Unknown", "True", "False"],
        ),
        (ClaimState::Upgraded { at }, "Current", ["True", "False", "False"]),
        (parked(false), "InProgress", ["Unknown", "True", "False"]),
        (parked(true), "Failed", ["False", "False", "True"]),
        (ClaimState::Failed { since: at, before: Before::default() }, "Failed", ["False", "False", "True"]),
    ] {
        let mut object = claim();
        assert_eq!(kstatus(&stored(&object)), "InProgress", "nothing is written of it");
        object.status = Some(status_of(&object, &state, 1, "why", &[], at));
        let told = stored(&object);
        assert_eq!(kstatus(&told), read, "{state:?}");
        let conditions = &object.status.as_ref().unwrap().conditions;
        let kinds = [ConditionType::Ready, ConditionType::Reconciling, ConditionType::Stalled];
        let of = kinds.map(|kind| kind.of(conditions).unwrap());
        assert_eq!(of.map(|of| of.status.as_str()), statuses, "{state:?}");
        assert!(of.iter().all(|of| of.reason == state.name() && of.observed_generation == Some(1)));
        let why = |says: bool| if says { "why" } else { "" };
        assert_eq!(of.map(|of| of.message.as_str()), ["why", "", why(read == "Failed")], "{state:?}");
        let known = claim_of(&serde_json::from_value(told).unwrap()).unwrap();
        assert_eq!(known.state, state);
        object.metadata.generation = Some(2);
        assert_eq!(kstatus(&stored(&object)), "InProgress", "what is written is about an earlier one");
    }
}

/// The time of a condition is when it became so, not when its status was last written.
#[test]
fn a_condition_of_a_claim_keeps_the_time_at_which_it_became_so() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let mut object = claim();
    let mut times = Vec::new();
    for (second, state) in [
        (1, ClaimState::Draining { since: at(1), stalled: None }),
        (2, ClaimState::Upgrading { since: at(2), before: Before::default(), observed: None }),
        (3, ClaimState::Failed { since: at(3), before: Before::default() }),
        (4, ClaimState::Upgraded { at: at(4) }),
    ] {
        object.status = Some(status_of(&object, &state, 1, "", &[], at(second)));
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        times.push(conditions.map(|of| of.last_transition_time.0.as_second()).collect::<Vec<_>>());
    }
    assert_eq!(times, [[1, 1, 1], [1, 1, 1], [3, 3, 3], [4, 3, 4]], "Ready, Reconciling, Stalled");
}

/// What became of a Job is told as long as the claim is there, and never of another attempt.
#[test]
fn how_a_job_ended_is_kept_when_the_job_is_gone() {
    let mut object = claim();
    object.metadata.uid = Some("uid".to_owned());
    let failed = JobState::Failed("Job has reached the specified backoff limit".to_owned());
    let kept = job_result(&object, 1, Some(&failed)).unwrap();
    assert_eq!((kept.name.as_str(), kept.result.as_str()), ("evenkeel-uid-1", "Failed"));
    assert_eq!(kept.message, "Job has reached the specified backoff limit");
    object.status = Some(NodeUpgradeStatus { job: Some(kept.clone()), ..NodeUpgradeStatus::default() });
    assert_eq!(job_result(&object, 1, None), Some(kept));
    assert_eq!(job_result(&object, 2, None), None);
    let second = job_result(&object, 2, Some(&JobState::Complete)).unwrap();
    assert_eq!((second.name.as_str(), second.result.as_str()), ("evenkeel-uid-2", "Complete"));
}
