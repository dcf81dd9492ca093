//! A pod's row: its phase as people see it, which depends on its containers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, count, items, or, text};
use crate::clock;

/// The conditions of a row whose pod has ended.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let said = |reason: &str, message: &str| json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]);
    match text(pod, "/status/phase") {
        "Succeeded" => Some(said("Succeeded", "The pod has completed successfully.")),
        "Failed" => Some(said("Failed", "The pod failed.")),
        _ => None,
    }
}

/// Restarts, with the time of the last.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += count(container, "/restartCount");
        let ended = clock::read(text(container, "/lastState/terminated/finishedAt"));
        self.last = self.last.max(ended);
    }

    fn shown(&self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count > 0 => {
                format!("{} ({} ago)", self.count, age::shown(now.duration_since(last)))
            }
            _ => self.count.to_string(),
        }
    }
}

/// Why a container has ended: its reason, signal or exit code.
fn ending(terminated: &Value) -> String {
    match (text(terminated, "/reason"), count(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", count(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_true(pod: &Value, condition: &str) -> bool {
    items(pod, "/status/conditions").any(|found| found["type"] == condition && found["status"] == "True")
}

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let phase = text(pod, "/status/phase");
    let mut status = or(text(pod, "/status/reason"), phase).to_owned();
    if items(pod, "/status/conditions")
        .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated")
    {
        status = "SchedulingGated".into();
    }
    let inits: Vec<&Value> = items(pod, "/spec/initContainers").collect();
    let sidecar =
        |name: &Value| inits.iter().any(|init| init["name"] == *name && init["restartPolicy"] == "Always");
    let total =
        items(pod, "/spec/containers").count() + inits.iter().filter(|init| sidecar(&init["name"])).count();
    let (mut ready, mut restarts, mut sidecars) = (0, Restarts::default(), Restarts::default());
    let mut initializing = false;
    for (at, container) in items(pod, "/status/initContainerStatuses").enumerate() {
        restarts.add(container);
        let lasting = sidecar(&container["name"]);
        if lasting {
            sidecars.add(container);
        }
        let state = &container["state"];
        let waits = text(state, "/waiting/reason");
        status = match state.get("terminated").filter(|ended| !ended.is_null()) {
            Some(ended) if count(ended, "/exitCode") == 0 => continue,
            _ if lasting && container["started"] == true => {
                ready += usize::from(container["ready"] == true);
                continue;
            }
            Some(ended) => format!("Init:{}", ending(ended)),
            None if !waits.is_empty() && waits != "PodInitializing" => format!("Init:{waits}"),
            None => format!("Init:{at}/{}", inits.len()),
        };
        initializing = true;
        break;
    }
    if !initializing || is_true(pod, "Initialized") {
        restarts = sidecars;
        let (mut running, mut failed) = (false, String::new());
        for container in items(pod, "/status/containerStatuses").rev() {
            restarts.add(container);
            let state = &container["state"];
            if !text(state, "/waiting/reason").is_empty() {
                text(state, "/waiting/reason").clone_into(&mut status);
            } else if let Some(ended) = state.get("terminated").filter(|ended| !ended.is_null()) {
                status = ending(ended);
                if count(ended, "/exitCode") != 0 {
                    failed.clone_from(&status);
                }
            } else if container["ready"] == true && state.get("running").is_some() {
                running = true;
                ready += 1;
            }
        }
        if status == "Completed" {
            if running && crate::record::ready(pod) {
                status = "Running".into();
            } else if !failed.is_empty() {
                status = failed;
            } else if running {
                status = "NotReady".into();
            }
        }
    }
    if pod["metadata"].get("deletionTimestamp").is_some() {
        if text(pod, "/status/reason") == "NodeLost" {
            status = "Unknown".into();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            status = "Terminating".into();
        }
    }
    let gates: Vec<&Value> = items(pod, "/spec/readinessGates").collect();
    let passed = gates.iter().filter(|gate| is_true(pod, text(gate, "/conditionType"))).count();
    let gates = if gates.is_empty() { "<none>".to_owned() } else { format!("{passed}/{}", gates.len()) };
    vec![
        pod["metadata"]["name"].clone(),
        format!("{ready}/{total}").into(),
        status.into(),
        restarts.shown(now).into(),
        age::since(text(pod, "/metadata/creationTimestamp"), now).into(),
        or(text(pod, "/status/podIPs/0/ip"), "<none>").into(),
        or(text(pod, "/spec/nodeName"), "<none>").into(),
        or(text(pod, "/status/nominatedNodeName"), "<none>").into(),
        gates.into(),
    ]
}
