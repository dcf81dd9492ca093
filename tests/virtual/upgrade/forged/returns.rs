//! Forgeries of what has to be over, or back at work, before anything more is taken away or given back.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{PODS, Stage, TO, UP, Wrong, names, said, said_of};
use crate::upgrade::base::{CHANGERS, EXECUTORS};

const SCHEDULER: &str = "kube-scheduler";
/// How long the processes take that begin anew.
const LATE: Duration = Duration::from_mins(2);

impl Stage {
    /// Every kube-scheduler ends, and begins anew five seconds later.
    async fn schedulers_begin_anew(&self) {
        let plane = self.cluster.control_plane();
        plane.set_late(LATE);
        for node in plane.nodes() {
            self.cluster.take_component(&node, SCHEDULER);
        }
        sleep(Duration::from_secs(5)).await;
        for node in plane.nodes() {
            self.cluster.run_component(&node, SCHEDULER, true);
        }
    }

    async fn evicts_a_pod_of(&self, node: &str) {
        let on_it =
            |pod: &Value| pod["spec"]["nodeName"] == node && pod["metadata"]["labels"]["app"] == "web";
        let pod = self.person.list(PODS).await.into_iter().find(on_it).expect("a pod on each node");
        let (name, uid) = (pod["metadata"]["name"].as_str().unwrap(), &pod["metadata"]["uid"]);
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": {"preconditions": {"uid": uid}}});
        self.forger.create(&format!("{PODS}/{name}/eviction"), &eviction).await;
    }

    /// Gives a node to a Job, which takes five seconds at least.
    async fn begins_a_job(&self, component: &str, node: &str) {
        let claim = self.person.get(&format!("{}/{UP}.{component}.{node}", super::CLAIMS)).await.unwrap();
        self.state(component, node, "Upgrading", "").await;
        let template = json!({"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "registry.example/c:1"}]}});
        let spec = json!({"spec": {"external": null, "job": {"deadlineSeconds": 300, "template": template}}});
        self.person.merge(&format!("{CHANGERS}/machines"), &spec).await.unwrap();
        let job = json!({"metadata": {"name": format!("{component}-{node}"),
            "labels": {"evenkeel.dev/node-upgrade": claim["metadata"]["uid"]}}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "nodeName": node, "containers": [{"name": "c", "image": "registry.example/c:1"}]}}}});
        self.forger.create(&format!("/apis/batch/v1/namespaces/{EXECUTORS}/jobs"), &job).await;
        sleep(Duration::from_secs(1)).await;
    }
}

fn has(words: &str, wrong: &Wrong) -> bool {
    wrong.iter().any(|line| line.contains(words))
}

#[test]
fn invariant_2_pods_leave_before_the_controllers_are_at_work_again() {
    let after = |seconds: u64, evicts: bool| {
        said(async |stage| {
            stage.plane_is_there().await;
            stage.take("main-1").await;
            stage.claim(SCHEDULER, "cp-3", "").await;
            stage.schedulers_begin_anew().await;
            stage.state(SCHEDULER, "cp-3", "Upgraded", "").await;
            sleep(Duration::from_secs(seconds)).await;
            if evicts {
                stage.evicts_a_pod_of("main-1").await;
            } else {
                stage.claim("kubelet", "main-3", &stage.uid_of("main-3").await).await;
            }
        })
    };
    let since = "while no kube-scheduler has been at work since the control plane was changed";
    names(2, &format!("claims main-3 {since}"), &after(100, false));
    names(2, &format!("evicts a pod of main-1 {since}"), &after(100, true));
    for evicts in [false, true] {
        let later = after(140, evicts);
        assert!(!has("at work since", &later), "{later:#?}");
    }
}

#[test]
fn invariant_2_pods_leave_while_a_new_kubelet_has_begun_the_controllers_anew() {
    let of = |state: &'static str| {
        said(async |stage| {
            stage.plane_is_there().await;
            stage.take("cp-1").await;
            stage.take("main-1").await;
            stage.state("kubelet", "cp-1", state, "").await;
            sleep(Duration::from_secs(10)).await;
            stage.schedulers_begin_anew().await;
            sleep(Duration::from_secs(20)).await;
            stage.evicts_a_pod_of("main-1").await;
        })
    };
    names(2, "evicts a pod of main-1 while no kube-scheduler has been at work", &of("Upgrading"));
    assert!(!has("at work since", &of("Draining")), "they began anew for another reason");
}

#[test]
fn invariant_9_a_node_is_given_back_while_its_job_runs() {
    let back = |seconds: u64, state: Option<&'static str>| {
        said_of("at 0 jobs", async |stage| {
            stage.plane_is_there().await;
            stage.take("main-1").await;
            stage.begins_a_job("kubelet", "main-1").await;
            stage.cluster.claim_version("main-1", TO);
            sleep(Duration::from_secs(seconds)).await;
            if let Some(state) = state {
                return stage.state("kubelet", "main-1", state, "").await;
            }
            let given_back = json!({"metadata": {"annotations": {"evenkeel.dev/cordoned-by": null}},
                "spec": {"unschedulable": null}});
            stage.forger.merge("/api/v1/nodes/main-1", &given_back).await.unwrap();
        })
    };
    names(9, "gives main-1 back while its Job still runs", &back(1, None));
    names(9, "its Job still runs", &back(1, Some("Upgraded")));
    assert!(!has("Job", &back(60, None)) && !has("Job", &back(60, Some("Upgraded"))));
}

/// A claim owns its Job, so that the server kills it with the claim.
#[test]
fn invariant_6_and_9_a_node_is_handed_over_whose_claim_stays_or_whose_job_runs() {
    let gone = |seconds: u64, deleted: bool| {
        said_of("at 0 jobs", async |stage| {
            stage.plane_is_there().await;
            stage.take("main-1").await;
            stage.begins_a_job("kubelet", "main-1").await;
            stage.state("kubelet", "main-1", "Failed", "it hangs").await;
            let claim = format!("{}/{UP}.kubelet.main-1", super::CLAIMS);
            let finalizers = json!({"metadata": {"finalizers": ["example.com/kept"]}});
            stage.forger.merge(&claim, &finalizers).await.unwrap();
            if deleted {
                _ = stage.person.delete(&claim).await;
            }
            sleep(Duration::from_secs(seconds)).await;
            let handed_over = json!({"metadata": {"annotations": {"evenkeel.dev/cordoned-by": null}}});
            stage.forger.merge("/api/v1/nodes/main-1", &handed_over).await.unwrap();
            if deleted {
                let none = json!({"metadata": {"finalizers": null}});
                stage.forger.merge(&claim, &none).await.unwrap();
            }
        })
    };
    names(6, "changes the mark of main-1", &gone(60, false));
    let early = gone(1, true);
    names(9, "hands main-1 over while its Job still runs", &early);
    names(9, "lets up.kubelet.main-1 go while its Job still runs", &early);
    let late = gone(60, true);
    assert!(!has("mark", &late) && !has("Job", &late), "{late:#?}");
}

#[test]
fn invariant_5_another_control_plane_node_while_a_job_runs() {
    let next = |component: &'static str, seconds: u64| {
        said_of("at 0 jobs", async |stage| {
            stage.plane_is_there().await;
            for node in ["cp-1", "cp-2"] {
                stage.claim(component, node, &stage.uid_of(node).await).await;
            }
            stage.begins_a_job(component, "cp-1").await;
            sleep(Duration::from_secs(seconds)).await;
            if component == "kubelet" {
                let claim = stage.person.get(&format!("{}/{UP}.kubelet.cp-2", super::CLAIMS)).await.unwrap();
                let uid = claim["metadata"]["uid"].as_str().unwrap();
                stage.cordon("cp-2", &format!("{UP}.kubelet.cp-2/{uid}")).await;
            } else {
                stage.state(component, "cp-2", "Upgrading", "").await;
            }
        })
    };
    names(5, "cordons cp-2 while the Job of up.kubelet.cp-1 still runs", &next("kubelet", 1));
    let of_plane = "upgrades the control plane of cp-2 while the Job of up.kube-scheduler.cp-1 still runs";
    names(5, of_plane, &next(SCHEDULER, 1));
    for component in ["kubelet", SCHEDULER] {
        assert!(!has("Job", &next(component, 60)), "{component}");
    }
}
