//! Deployments: a ReplicaSet for every template, and a rollout from the old ones to the new one within `maxSurge` and
//! `maxUnavailable`.
//!
//! Here belong the `ReplicaSets` and their numbers; pods are made by `replicas`.

use std::time::Duration;

use std::sync::Arc;

use serde_json::{Value, json};

use super::claim;
use super::model::{Model, ModelStep};
use super::objects::{condition, find_condition, leaving, owned_by};
use super::pods::{hash, scaled};
use crate::api::ApiState;
use crate::store::Change;

/// The Deployment controller.
pub(super) struct Deployments;

const ALL: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";

fn count(object: &Value, path: &str) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or(0)
}

impl Model for Deployments {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            ALL if !change.deleted => vec![change.record.key.to_string()],
            SETS => claim::keys(change, "Deployment", ALL, state),
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(deployment) = world.get(ALL, key) else { return };
        let namespace = key.split('/').next().unwrap_or_default();
        let uid = deployment["metadata"]["uid"].as_str().unwrap_or_default();
        claim::claim(world, SETS, &deployment, |_| true);
        let sets: Vec<Arc<Value>> = world
            .list(SETS, namespace)
            .into_iter()
            .filter(|record| record.owners.iter().any(|owner| &**owner == uid))
            .map(|record| record.value())
            .collect();
        let digest = hash(&deployment["spec"]["template"]);
        let current =
            sets.iter().find(|set| set["metadata"]["labels"]["pod-template-hash"] == digest.as_str());
        if !leaving(&deployment) && deployment["spec"]["paused"] != true {
            match current {
                None => self::new_set(world, &deployment, namespace, &digest, &sets),
                Some(current) => roll(world, &deployment, namespace, current, &sets),
            }
        }
        status(world, &deployment, key, &digest, &sets);
    }
}

fn surge(deployment: &Value) -> (i64, i64) {
    let wanted = count(deployment, "/spec/replicas");
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    if deployment["spec"]["strategy"]["type"] == "Recreate" {
        return (0, wanted);
    }
    let (surge, unavailable) =
        (scaled(&rolling["maxSurge"], wanted, true), scaled(&rolling["maxUnavailable"], wanted, false));
    // If both round to zero, one pod may be unavailable; otherwise the rollout would never move.
    (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
}

fn new_set(
    world: &mut ModelStep<'_>,
    deployment: &Value,
    namespace: &str,
    digest: &str,
    sets: &[Arc<Value>],
) {
    let wanted = count(deployment, "/spec/replicas");
    let (surge, _) = surge(deployment);
    let have: i64 = sets.iter().map(|set| count(set, "/spec/replicas")).sum();
    let recreate = deployment["spec"]["strategy"]["type"] == "Recreate" && have > 0;
    let replicas = if recreate { 0 } else { wanted.min((wanted + surge - have).max(0)) };
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"]["pod-template-hash"] = digest.into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"]["pod-template-hash"] = digest.into();
    let annotation = "deployment.kubernetes.io/revision";
    let revision =
        |set: &Arc<Value>| set["metadata"]["annotations"][annotation].as_str()?.parse::<i64>().ok();
    let revision = (sets.iter().filter_map(revision).max().unwrap_or(0) + 1).to_string();
    let set = json!({
        "metadata": {
            "name": format!("{}-{digest}", deployment["metadata"]["name"].as_str().unwrap_or_default()),
            "labels": template["metadata"]["labels"],
            "annotations": {
                "deployment.kubernetes.io/desired-replicas": wanted.to_string(),
                "deployment.kubernetes.io/max-replicas": (wanted + surge).to_string(),
                "deployment.kubernetes.io/revision": revision,
            },
            "ownerReferences": owned_by(deployment),
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template,
            "minReadySeconds": deployment["spec"].get("minReadySeconds").cloned().unwrap_or(json!(0))},
    });
    // If there is one of that name already, an earlier try made it.
    let _ = world.create(SETS, Some(namespace), set);
    let key = format!("{namespace}/{}", deployment["metadata"]["name"].as_str().unwrap_or_default());
    // Written with the status, because a change of the annotations by an update of the object makes a new generation.
    let _ = world.change(ALL, &key, true, |deployment| {
        if !deployment["metadata"]["annotations"].is_object() {
            deployment["metadata"]["annotations"] = json!({});
        }
        deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = revision.into();
    });
}

fn set_replicas(world: &mut ModelStep<'_>, namespace: &str, set: &Value, replicas: i64) {
    let key = format!("{namespace}/{}", set["metadata"]["name"].as_str().unwrap_or_default());
    let _ = world.change(SETS, &key, false, |set| set["spec"]["replicas"] = replicas.into());
}

fn roll(
    world: &mut ModelStep<'_>,
    deployment: &Value,
    namespace: &str,
    current: &Value,
    sets: &[Arc<Value>],
) {
    let wanted = count(deployment, "/spec/replicas");
    let (surge, unavailable) = surge(deployment);
    let mut old: Vec<&Value> = sets
        .iter()
        .filter(|set| set["metadata"]["uid"] != current["metadata"]["uid"])
        .map(|set| &**set)
        .collect();
    old.sort_by_key(|set| set["metadata"]["creationTimestamp"].to_string());
    let mine = count(current, "/spec/replicas");
    let others: i64 = old.iter().map(|set| count(set, "/spec/replicas")).sum();
    let recreate = deployment["spec"]["strategy"]["type"] == "Recreate";
    if recreate
        && old.iter().any(|set| count(set, "/status/replicas") > 0 || count(set, "/spec/replicas") > 0)
    {
        for set in old.iter().filter(|set| count(set, "/spec/replicas") > 0) {
            set_replicas(world, namespace, set, 0);
        }
        return;
    }
    if mine > wanted {
        set_replicas(world, namespace, current, wanted);
    } else if mine < wanted {
        let room = (wanted + surge - mine - others).max(0);
        if room > 0 {
            set_replicas(world, namespace, current, wanted.min(mine + room));
        }
    }
    if others == 0 {
        return;
    }
    // As many old ones go as leave enough available; what is not available anyway goes first.
    let least = wanted - unavailable;
    let missing = mine - count(current, "/status/availableReplicas");
    let mut may_go = mine + others - least - missing;
    for set in &old {
        if may_go <= 0 {
            break;
        }
        let (has, available) = (count(set, "/spec/replicas"), count(set, "/status/availableReplicas"));
        let sick = (has - available).max(0).min(may_go);
        if sick > 0 {
            set_replicas(world, namespace, set, has - sick);
            may_go -= sick;
        }
    }
    let available: i64 = sets.iter().map(|set| count(set, "/status/availableReplicas")).sum();
    let mut may_go = available - least;
    for set in old {
        let has = count(set, "/spec/replicas").min(count(set, "/status/availableReplicas"));
        let goes = has.min(may_go);
        if goes <= 0 || has < count(set, "/spec/replicas") {
            continue;
        }
        set_replicas(world, namespace, set, has - goes);
        may_go -= goes;
    }
}

fn status(world: &mut ModelStep<'_>, deployment: &Value, key: &str, digest: &str, sets: &[Arc<Value>]) {
    let sum = |path: &str| sets.iter().map(|set| count(set, path)).sum::<i64>();
    let current = sets.iter().find(|set| set["metadata"]["labels"]["pod-template-hash"] == digest);
    let wanted = count(deployment, "/spec/replicas");
    let (_, unavailable) = surge(deployment);
    let (replicas, available) = (sum("/status/replicas"), sum("/status/availableReplicas"));
    let updated = current.map_or(0, |set| count(set, "/status/replicas"));
    let now = world.now();
    let name = current.and_then(|set| set["metadata"]["name"].as_str()).unwrap_or_default().to_owned();
    let generation = deployment["metadata"]["generation"].clone();
    let done = updated == wanted && replicas == wanted && available == wanted && current.is_some();
    let written = world.change(ALL, key, true, |deployment| {
        let mut status = json!({"observedGeneration": generation, "terminatingReplicas": sum("/status/terminatingReplicas")});
        for (name, count) in [
            ("replicas", replicas),
            ("updatedReplicas", updated),
            ("readyReplicas", sum("/status/readyReplicas")),
            ("availableReplicas", available),
            ("unavailableReplicas", (replicas.max(wanted) - available).max(0)),
        ] {
            if count > 0 {
                status[name] = count.into();
            }
        }
        status["conditions"] = deployment["status"]["conditions"].clone();
        let enough = available >= wanted - unavailable;
        let (word, reason, message) = if enough {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        let set = |status: &mut Value, kind: &str, word: &str, reason: &str, message: &str| {
            let old = find_condition(&json!({"status": status.clone()}), kind).cloned().unwrap_or_default();
            let since = if old["reason"] == reason { old["lastUpdateTime"].clone() } else { now.clone().into() };
            let wanted = json!({"type": kind, "status": word, "reason": reason, "message": message, "lastUpdateTime": since});
            condition(status, &wanted, &now);
        };
        set(&mut status, "Available", word, reason, message);
        let (reason, message) = if done {
            ("NewReplicaSetAvailable", format!("ReplicaSet \"{name}\" has successfully progressed."))
        } else {
            ("ReplicaSetUpdated", format!("ReplicaSet \"{name}\" is progressing."))
        };
        if !name.is_empty() {
            set(&mut status, "Progressing", "True", reason, &message);
        }
        deployment["status"] = status;
    });
    if written.is_err() {
        world.after(Duration::from_millis(20), key);
    }
}
