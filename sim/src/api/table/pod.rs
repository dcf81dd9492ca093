//! A pod's row: its phase as people see it, which depends on its containers.
//!
//! Here belongs what a person reads of a pod; what a kubelet writes is in the models. The invariant: the row says what
//! kubectl says of the same pod.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cell::{count, items, or, text};
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

/// What the containers of a pod come to.
struct Progress {
    status: String,
    ready: usize,
    restarts: Restarts,
    /// Those of sidecars alone.
    sidecars: Restarts,
}

impl Progress {
    /// Before any container is looked at.
    fn of(pod: &Value) -> Self {
        let gated = items(pod, "/status/conditions")
            .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
        let said = or(text(pod, "/status/reason"), text(pod, "/status/phase"));
        Self {
            status: if gated { "SchedulingGated" } else { said }.to_owned(),
            ready: 0,
            restarts: Restarts::default(),
            sidecars: Restarts::default(),
        }
    }

    /// Goes through the init containers, up to the first that keeps the pod initializing. Returns whether there is one.
    fn initialize(&mut self, pod: &Value, inits: &[&Value]) -> bool {
        for (at, container) in items(pod, "/status/initContainerStatuses").enumerate() {
            self.restarts.add(container);
            let lasting = is_sidecar(inits, &container["name"]);
            if lasting {
                self.sidecars.add(container);
            }
            let state = &container["state"];
            let waits = text(state, "/waiting/reason");
            self.status = match state.get("terminated").filter(|ended| !ended.is_null()) {
                Some(ended) if count(ended, "/exitCode") == 0 => continue,
                _ if lasting && container["started"] == true => {
                    self.ready += usize::from(container["ready"] == true);
                    continue;
                }
                Some(ended) => format!("Init:{}", ending(ended)),
                None if !waits.is_empty() && waits != "PodInitializing" => format!("Init:{waits}"),
                None => format!("Init:{at}/{}", inits.len()),
            };
            return true;
        }
        false
    }

    /// Goes through the containers proper. Of the init containers only sidecars count then.
    fn run(&mut self, pod: &Value) {
        self.restarts = std::mem::take(&mut self.sidecars);
        let (mut running, mut failed) = (false, String::new());
        for container in items(pod, "/status/containerStatuses").rev() {
            self.restarts.add(container);
            let state = &container["state"];
            if !text(state, "/waiting/reason").is_empty() {
                text(state, "/waiting/reason").clone_into(&mut self.status);
            } else if let Some(ended) = state.get("terminated").filter(|ended| !ended.is_null()) {
                self.status = ending(ended);
                if count(ended, "/exitCode") != 0 {
                    failed.clone_from(&self.status);
                }
            } else if container["ready"] == true && state.get("running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            if running && crate::record::ready(pod) {
                self.status = "Running".into();
            } else if !failed.is_empty() {
                self.status = failed;
            } else if running {
                self.status = "NotReady".into();
            }
        }
    }
}

fn is_sidecar(inits: &[&Value], name: &Value) -> bool {
    inits.iter().any(|init| init["name"] == *name && init["restartPolicy"] == "Always")
}

/// The status of a pod that is being deleted, whatever its containers do.
fn leaving(pod: &Value) -> Option<&'static str> {
    pod["metadata"].get("deletionTimestamp")?;
    if text(pod, "/status/reason") == "NodeLost" {
        return Some("Unknown");
    }
    (!matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")).then_some("Terminating")
}

/// How many of a pod's readiness gates are passed.
fn gates(pod: &Value) -> String {
    let gates: Vec<&Value> = items(pod, "/spec/readinessGates").collect();
    let passed = gates.iter().filter(|gate| is_true(pod, text(gate, "/conditionType"))).count();
    if gates.is_empty() { "<none>".to_owned() } else { format!("{passed}/{}", gates.len()) }
}

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let inits: Vec<&Value> = items(pod, "/spec/initContainers").collect();
    let sidecars = inits.iter().filter(|init| is_sidecar(&inits, &init["name"])).count();
    let total = items(pod, "/spec/containers").count() + sidecars;
    let mut progress = Progress::of(pod);
    let initializing = progress.initialize(pod, &inits);
    if !initializing || is_true(pod, "Initialized") {
        progress.run(pod);
    }
    let Progress { status, ready, restarts, .. } = progress;
    vec![
        pod["metadata"]["name"].clone(),
        format!("{ready}/{total}").into(),
        leaving(pod).map_or(status, str::to_owned).into(),
        restarts.shown(now).into(),
        age::since(text(pod, "/metadata/creationTimestamp"), now).into(),
        or(text(pod, "/status/podIPs/0/ip"), "<none>").into(),
        or(text(pod, "/spec/nodeName"), "<none>").into(),
        or(text(pod, "/status/nominatedNodeName"), "<none>").into(),
        gates(pod).into(),
    ]
}
