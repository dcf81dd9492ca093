//! Pods, budgets and owners as the cases of drains describe them.

use std::sync::Arc;

use evenkeel_core::cluster::{
    Budget, Demand, Disrupted, Owner, Phase, Pod, Selector, Surroundings, Traits, UnhealthyPolicy, Workload,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub const NODE: &str = "node";

pub fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

pub fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub fn owner(api_version: &str, kind: &str, name: &str) -> Arc<Owner> {
    Arc::new(Owner {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: format!("uid-{kind}-{name}").into(),
    })
}

pub fn pod(name: &str) -> Pod {
    Pod {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        node: NODE.into(),
        labels: Arc::default(),
        owner: None,
        phase: Phase::Running,
        ready: true,
        mirror: false,
        empty_dir: false,
        ready_after: None,
        special: None,
    }
}

pub fn budget(allowed: i32, current: i32, desired: i32) -> Budget {
    Budget {
        namespace: "default".into(),
        name: "pdb".into(),
        resource_version: "1".into(),
        selector: Some(Selector::default()),
        generation: 1,
        observed_generation: 1,
        disruptions_allowed: allowed,
        current_healthy: current,
        desired_healthy: desired,
        expected_pods: 3,
        sync_failed: None,
        closed_since: None,
        unhealthy_policy: UnhealthyPolicy::IfHealthyBudget,
        demand: Demand::Nothing,
        disrupted: Disrupted::new(),
        made_by: None,
    }
}

pub fn number(value: &Value, key: &str) -> Option<i32> {
    value.get(key)?.as_i64()?.try_into().ok()
}

pub fn phase(text: Option<&str>) -> Phase {
    match text {
        Some("Pending") => Phase::Pending,
        Some("Succeeded" | "Failed") => Phase::Finished,
        _ => Phase::Running,
    }
}

/// What a pod on its way out has that others have not.
pub fn leaving(at: Timestamp) -> Arc<Traits> {
    Arc::new(Traits { deleting: Some(at), ..Traits::default() })
}

/// A pod as a case of kubectl or Cluster API describes it.
pub fn described(value: &Value) -> Pod {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let controller = text("controller").map(|text| match text.split(' ').next().unwrap_or_default() {
        "Job" => owner("batch/v1", "Job", "job"),
        kind => owner("apps/v1", kind, "owner"),
    });
    let volumes = value.get("volumes").and_then(Value::as_array);
    let age = value.get("deletion_age_s").and_then(Value::as_i64).filter(|age| *age > 0);
    let label = text("label").and_then(|label| label.split_once('='));
    Pod {
        owner: controller.or_else(|| {
            // Cluster API's cases leave the controller away where it is not what they are about.
            value.get("controller").is_none().then(|| owner("apps/v1", "ReplicaSet", "owner"))
        }),
        phase: phase(text("phase")),
        empty_dir: volumes.is_some_and(|list| list.iter().any(|volume| volume == "emptyDir")),
        mirror: text("annotation") == Some("kubernetes.io/config.mirror"),
        special: age.map(|age| leaving(ago(age))),
        labels: Arc::new(label.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect()),
        ..pod("bar")
    }
}

pub fn with_daemon_set() -> Surroundings {
    let set = Workload {
        this: owner("apps/v1", "DaemonSet", "owner"),
        namespace: "default".into(),
        replicas: None,
        owner: None,
        ignores_disruption: false,
    };
    let others = ["ReplicaSet", "Deployment"]
        .map(|kind| Workload { this: owner("apps/v1", kind, "owner"), ..set.clone() });
    let job = Workload { this: owner("batch/v1", "Job", "job"), ..set.clone() };
    Surroundings {
        workloads: Some([vec![set, job], others.to_vec()].concat().into_iter().collect()),
        ..Surroundings::default()
    }
}
