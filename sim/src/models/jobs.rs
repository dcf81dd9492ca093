//! Jobs: pods until enough of them have succeeded, or too many have failed.
//!
//! Here belong the pods and the conditions of a Job; what a pod does is its kubelet's. The invariant: a Job that is
//! complete or failed makes no more pods.

use std::time::Duration;

use serde_json::{Value, json};

use super::claim;
use super::model::{Model, ModelStep};
use super::objects::{condition, find_condition, leaving};
use super::pods::{self, Pod};
use crate::api::ApiState;
use crate::record::Phase;
use crate::store::Change;

/// The Job controller.
pub(super) struct Jobs;

const JOBS: &str = "jobs.batch";

impl Model for Jobs {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            JOBS if !change.deleted => vec![change.record.key.to_string()],
            "pods" => claim::keys(change, "Job", JOBS, state),
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(job) = world.get(JOBS, key) else { return };
        let over = ["Complete", "Failed"]
            .iter()
            .any(|kind| find_condition(&job, kind).is_some_and(|found| found["status"] == "True"));
        if over || leaving(&job) {
            return;
        }
        let namespace = key.split('/').next().unwrap_or_default();
        claim::claim(world, "pods", &job, |_| true);
        let all = pods::of(world, namespace, job["metadata"]["uid"].as_str().unwrap_or_default());
        let count = |phase: Phase| all.iter().filter(|pod| pod.0.phase == phase).count();
        let (succeeded, failed) = (count(Phase::Succeeded), count(Phase::Failed));
        let active: Vec<&Pod> = all.iter().filter(|pod| pod.active()).collect();
        let number = |name: &str| job["spec"][name].as_u64().and_then(|number| usize::try_from(number).ok());
        let parallel = number("parallelism").unwrap_or(1);
        let completions = number("completions");
        let suspended = job["spec"]["suspend"] == true;
        let limit = number("backoffLimit").unwrap_or(6);
        let done = match completions {
            Some(completions) => succeeded >= completions,
            None => succeeded > 0 && active.is_empty(),
        };
        let lost = failed > limit;
        let wanted = match completions {
            _ if suspended || done || lost => 0,
            Some(completions) => parallel.min(completions.saturating_sub(succeeded)),
            None if succeeded > 0 => active.len(),
            None => parallel,
        };
        let mut running = active.len();
        for _ in active.len()..wanted {
            let mut pod = pods::from_template(&job, &job["spec"]["template"]);
            pod["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
            if world.create("pods", Some(namespace), pod).is_err() {
                world.after(Duration::from_secs(1), key);
                break;
            }
            running += 1;
        }
        for pod in active.iter().skip(wanted) {
            pods::delete(world, pod);
            running -= 1;
        }
        let now = world.now();
        let ready = active.iter().filter(|pod| pod.ready()).count();
        let _ = world.change(JOBS, key, true, |job| {
            let status = &mut job["status"];
            if status["startTime"].is_null() && !suspended {
                status["startTime"] = now.clone().into();
            }
            for (name, count) in [("active", running), ("succeeded", succeeded), ("failed", failed)] {
                if count > 0 {
                    status[name] = count.into();
                } else if let Some(status) = status.as_object_mut() {
                    status.remove(name);
                }
            }
            status["ready"] = ready.into();
            status["terminating"] = all.iter().filter(|pod| pod.leaving()).count().into();
            conclude(status, (suspended, done, lost), &now);
        });
    }
}

/// Writes to the `status` of a Job that it is suspended, done or lost, as far as it is, at the time `now`.
fn conclude(status: &mut Value, (suspended, done, lost): (bool, bool, bool), now: &str) {
    let mut say = |kind: &str, word: &str, reason: &str, message: &str| {
        let wanted =
            json!({"type": kind, "status": word, "reason": reason, "message": message, "lastProbeTime": now});
        let old = find_condition(&json!({"status": status.clone()}), kind).cloned();
        if old.is_none_or(|old: Value| old["status"] != word) {
            condition(status, &wanted, now);
        }
    };
    if suspended {
        say("Suspended", "True", "JobSuspended", "Job suspended");
    }
    if done {
        say("SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods");
        say("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods");
    } else if lost {
        say("FailureTarget", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit");
        say("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if done {
        status["completionTime"] = now.into();
    }
}
