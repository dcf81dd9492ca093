//! The life of a pod on its node: its images are pulled, its containers start, become ready, run to an end or go on,
//! and are ended in time when the pod is deleted.
//!
//! When a kubelet begins never belongs here, nor does what it says of its node. The invariant: a pod has at most one
//! timer that counts, the one for its next step.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::model::ModelStep;
use super::super::objects::condition;
use super::{Deed, KubeletModel};
use crate::api::Deletion;
use crate::random::Spread;
use crate::record::{Phase, Record};

/// How long after a failed pull an image is tried again.
const PULL_AGAIN: Duration = Duration::from_secs(20);

fn images(pod: &Value) -> Vec<String> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.filter_map(|container| Some(container["image"].as_str()?.to_owned())).collect()
}

impl KubeletModel {
    /// One step of a pod's life. `due` says that the time that was drawn for it is over.
    pub(super) fn pod(&mut self, key: &str, due: bool, world: &mut ModelStep<'_>) {
        let Some(record) = world.record("pods", key) else { return };
        let Some(node) = record.node.clone() else { return };
        // A pod that runs and is to go on is left alone.
        if !record.leaving && record.ready && record.phase == Phase::Running && record.restarts {
            return;
        }
        if !world.state.store.get("nodes", &node).is_some_and(|_| self.kubelets.runs(&node)) {
            self.timed.remove(key);
            return;
        }
        if !record.leaving && record.phase.finished() {
            return;
        }
        if record.leaving && due && self.timed.get(key) == Some(&"end") {
            self.timed.remove(key);
            let how = Deletion { grace: Some(0), uid: Some(record.uid.to_string()), ..Deletion::default() };
            let _ = world.delete("pods", key, &how);
            return;
        }
        let pod = record.value();
        if !record.leaving && self.is_stopped(&node, &pod) {
            return;
        }
        let Some((next, time)) = self.next_step(&record, &node, &pod) else { return };
        // The step may be another one by now: another pod of the node may have got the image meanwhile.
        let planned = self.timed.get(key) == Some(&next);
        if !due || !planned {
            if !planned {
                self.timed.insert(key.to_owned(), next);
                let time = time.draw(world.random);
                world.after(time, format!("due|{key}"));
            }
            return;
        }
        self.timed.remove(key);
        let now = world.now();
        let failed = match next {
            "pull" => return self.pull(key, &node, &pod, world),
            "finish" => match self.run_program(key, &node, &pod, &now, world) {
                Some(failed) => failed,
                None => return,
            },
            _ => false,
        };
        let (host, address) = self.kubelets.with(|fleet| {
            fleet.pods += u32::from(next == "start");
            (fleet.nodes.get(&*node).map_or(0, |kubelet| kubelet.address), fleet.pods)
        });
        let _ = world.change("pods", key, true, |pod| step(pod, next, &now, (host, address), failed));
    }

    /// The next step of a pod's life and how long it takes; `None` if nothing is to come.
    fn next_step(&self, record: &Record, node: &str, pod: &Value) -> Option<(&'static str, Spread)> {
        let times = self.kubelets.with(|fleet| fleet.times.clone());
        if record.leaving {
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
            let time = if record.phase.finished() {
                Spread::fixed(Duration::ZERO)
            } else {
                times.terminate.at_most(Duration::from_secs(grace))
            };
            Some(("end", time))
        } else if record.phase == Phase::Pending && self.lacks(node, pod) {
            Some(("pull", times.pull))
        } else if record.phase == Phase::Pending {
            Some(("start", times.start))
        } else if !record.ready
            && !pod["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter().any(|found| found["type"] == "Ready" && found["reason"].is_string())
            })
        {
            Some(("ready", times.ready))
        } else if !record.restarts {
            Some(("finish", times.job))
        } else {
            None
        }
    }

    /// Does what the program says of a pod whose time is over. Returns whether the pod ends badly; `None` if it has
    /// ended by this, or goes on.
    fn run_program(
        &mut self,
        key: &str,
        node: &str,
        pod: &Value,
        now: &str,
        world: &mut ModelStep<'_>,
    ) -> Option<bool> {
        let program = self.kubelets.with(|fleet| fleet.program.clone());
        match program.map_or(Deed::Succeed, |program| program(pod)) {
            Deed::Succeed => Some(false),
            Deed::Fail => Some(true),
            Deed::Hang => None,
            Deed::GoOn(time) => {
                self.timed.insert(key.to_owned(), "finish");
                world.after(time, format!("due|{key}"));
                None
            }
            Deed::Kubelet(version) => {
                // The pod ends before its kubelet does, so that the kubelet finds it ended when it is back.
                self.finish_first(key, now, world);
                self.kubelets.stop(node);
                let time = self.kubelets.restart_time(world.random);
                world.after(time, format!("back|{node}|{version}"));
                None
            }
            Deed::EndKubelet => {
                self.finish_first(key, now, world);
                self.kubelets.stop(node);
                None
            }
            Deed::Component(component, version) => {
                self.control.set(world.state, node, component, &version, true);
                Some(false)
            }
        }
    }

    /// Whether it is the static pod of a component that does not run: it does not become ready.
    fn is_stopped(&self, node: &str, pod: &Value) -> bool {
        let mirror = pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some();
        let component = pod["spec"]["containers"][0]["name"].as_str().filter(|_| mirror);
        let found = component.and_then(|component| self.control.component(node, component));
        found.is_some_and(|(_, runs)| !runs)
    }

    fn finish_first(&self, key: &str, now: &str, world: &mut ModelStep<'_>) {
        let _ = world.change("pods", key, true, |pod| step(pod, "finish", now, (0, 0), false));
    }

    /// Whether the node lacks an image of the pod.
    fn lacks(&self, node: &str, pod: &Value) -> bool {
        self.kubelets.with(|fleet| {
            let found = fleet.nodes.get(node);
            images(pod).iter().any(|image| !found.is_some_and(|kubelet| kubelet.images.contains(image)))
        })
    }

    /// Gets the images of a pod; if one is missing, says so in the pod's status and tries again later.
    fn pull(&mut self, key: &str, node: &str, pod: &Value, world: &mut ModelStep<'_>) {
        let missing = self.kubelets.with(|fleet| {
            let missing = images(pod).into_iter().find(|image| fleet.missing.contains(image));
            if missing.is_none() {
                fleet.nodes.entry(node.into()).or_default().images.extend(images(pod));
            }
            missing
        });
        let Some(image) = missing else { return self.pod(key, false, world) };
        let _ = world.change("pods", key, true, |pod| {
            let state = json!({"waiting": {"reason": "ImagePullBackOff", "message": format!("Back-off pulling image {image:?}")}});
            let all = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
            let status = all.iter().map(|container| {
                json!({"name": container["name"], "image": container["image"], "imageID": "", "lastState": {},
                    "ready": false, "restartCount": 0, "started": false, "state": state})
            });
            pod["status"]["containerStatuses"] = status.collect::<Vec<Value>>().into();
        });
        self.timed.insert(key.to_owned(), "pull");
        world.after(PULL_AGAIN, format!("due|{key}"));
    }
}

/// What a kubelet keeps of the end of a container that failed and was told to keep its log's end.
fn last_words(pod: &Value) -> Value {
    let container = &pod["spec"]["containers"][0];
    if container["terminationMessagePolicy"] != "FallbackToLogsOnError" {
        return Value::Null;
    }
    format!("{} does not manage it\nerror: exit status 1\n", container["name"].as_str().unwrap_or_default())
        .into()
}

fn step(pod: &mut Value, next: &str, now: &str, (host, address): (u32, u32), failed: bool) {
    let names: Vec<(String, String)> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| {
            let text = |name: &str| container[name].as_str().unwrap_or_default().to_owned();
            (text("name"), text("image"))
        })
        .collect();
    let finished = next == "finish";
    let ready = next == "ready";
    let state = if finished {
        let (code, reason) = if failed { (1, "Error") } else { (0, "Completed") };
        let mut ended = json!({"exitCode": code, "reason": reason, "startedAt": pod["status"]["startTime"], "finishedAt": now});
        if failed && !last_words(pod).is_null() {
            ended["message"] = last_words(pod);
        }
        json!({"terminated": ended})
    } else {
        json!({"running": {"startedAt": now}})
    };
    let status = &mut pod["status"];
    status["phase"] = match (finished, failed) {
        (true, true) => "Failed".into(),
        (true, false) => "Succeeded".into(),
        (false, _) => "Running".into(),
    };
    if next == "start" {
        let host = format!("10.128.{}.{}", host / 250, host % 250 + 1);
        let ip = format!("10.244.{}.{}", address / 250 % 250, address % 250 + 1);
        status["startTime"] = now.into();
        status["hostIP"] = host.clone().into();
        status["hostIPs"] = json!([{"ip": host}]);
        status["podIP"] = ip.clone().into();
        status["podIPs"] = json!([{"ip": ip}]);
    }
    status["containerStatuses"] = names
        .iter()
        .map(|(name, image)| {
            json!({"name": name, "image": image, "imageID": "", "lastState": {}, "ready": ready, "restartCount": 0,
                "started": !finished, "state": state})
        })
        .collect::<Vec<Value>>()
        .into();
    let word = if ready { "True" } else { "False" };
    for (kind, word) in [
        ("PodReadyToStartContainers", "True"),
        ("Initialized", "True"),
        ("ContainersReady", word),
        ("Ready", word),
    ] {
        let mut wanted = json!({"type": kind, "status": word, "lastProbeTime": null});
        if finished && word == "False" {
            wanted["reason"] = if failed { "PodFailed".into() } else { "PodCompleted".into() };
        }
        condition(status, &wanted, now);
    }
}
