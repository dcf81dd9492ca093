//! Each invariant can fail: somebody who calls himself the operator breaks it, and the watcher says so by its number.

mod approval;
mod blind;
mod daemons;
mod delayed;
mod executors;
mod parking;
mod plane;
mod returns;
mod risks;
mod rules;
mod statuses;
mod taints;
mod turns;
mod waits;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_sim::Cluster;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::campaign::{Wrong, virtually};
use super::super::kube_api::Kube;
use super::super::script::Step;
use super::base::{self, CLAIMS, FROM, Setting, TO, UPGRADES};
use super::people;
use super::watcher::Watcher;
use super::watcher::faults::attend;
use super::watcher::rest::{asked_well, at_rest};
use super::{UP, end};

mod order;

const PODS: &str = "/api/v1/namespaces/shop/pods";

/// A cluster, a person and somebody who writes as the operator does.
struct Stage {
    cluster: Cluster,
    person: Kube,
    forger: Kube,
    watcher: Arc<Mutex<Watcher>>,
}

impl Stage {
    async fn begin(begins: &str) -> Self {
        // Every node is selected, so that those of the control plane can be taken too.
        let steps: Vec<Step> = begins.split_terminator("; ").map(|step| step.parse().unwrap()).collect();
        let mut setting = Setting { everything: true, ..Setting::of(&steps) };
        let (cluster, person) = base::start(&setting, 1).await;
        setting.begins = cluster.now();
        let watcher = Watcher::new(&person, cluster.control_plane().clone(), cluster.now()).await;
        let watcher = Arc::new(Mutex::new(watcher));
        let seeing = Arc::clone(&watcher);
        cluster.on_write(move |write| seeing.lock().unwrap().see(write));
        attend(&cluster, &watcher);
        person.create(UPGRADES, &setting.upgrade(UP, TO)).await;
        let forger = Kube(cluster.client_of("evenkeel-a"));
        Self { cluster, person, forger, watcher }
    }

    /// The whole control plane is at the target, for long enough that everybody knows.
    async fn plane_is_there(&self) {
        for node in self.cluster.control_plane().nodes() {
            for component in evenkeel_sim::COMPONENTS {
                self.cluster.replace_component(&node, component, TO);
            }
        }
        sleep(Duration::from_secs(50)).await;
    }

    async fn uid_of(&self, node: &str) -> String {
        let node = self.person.get(&format!("/api/v1/nodes/{node}")).await.unwrap();
        node["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Records a claim; its UID.
    async fn claim(&self, component: &str, node: &str, node_uid: &str) -> String {
        let claim = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade",
            "metadata": {"name": format!("{UP}.{component}.{node}")}, "spec": {"upgradeName": UP, "component": component,
            "nodeName": node, "nodeUID": node_uid, "fromVersion": FROM, "toVersion": TO, "executor": "machines"}});
        let made = self.forger.create(CLAIMS, &claim).await;
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn state(&self, component: &str, node: &str, state: &str, message: &str) {
        let path = format!("{CLAIMS}/{UP}.{component}.{node}/status");
        let status =
            json!({"state": state, "message": message, "attempt": 1, "since": "2026-01-01T00:00:00Z"});
        self.forger.merge(&path, &json!({"status": status})).await.unwrap();
    }

    async fn cordon(&self, node: &str, mark: &str) {
        let patch = json!({"metadata": {"annotations": {"evenkeel.dev/cordoned-by": mark}},
            "spec": {"unschedulable": true}});
        self.forger.merge(&format!("/api/v1/nodes/{node}"), &patch).await.unwrap();
    }

    /// A claim, and its cordon.
    async fn take(&self, node: &str) {
        let uid = self.claim("kubelet", node, &self.uid_of(node).await).await;
        self.cordon(node, &format!("{UP}.kubelet.{node}/{uid}")).await;
    }

    async fn pods_of(&self, app: &str) -> Vec<Value> {
        let all = self.person.list(PODS).await.into_iter();
        all.filter(|pod| pod["metadata"]["labels"]["app"] == app).collect()
    }

    fn wrong(&self) -> Wrong {
        self.watcher.lock().unwrap().wrong.clone()
    }
}

/// What the watcher said of `forgery`, by invariant.
fn said(forgery: impl AsyncFnOnce(&Stage)) -> Wrong {
    said_of("", forgery)
}

/// The same of an upgrade that begins with these steps of a script.
fn said_of(begins: &str, forgery: impl AsyncFnOnce(&Stage)) -> Wrong {
    let (wrong, panics) = virtually(async || {
        let stage = Stage::begin(begins).await;
        assert!(stage.wrong().is_empty(), "{:?}", stage.wrong());
        forgery(&stage).await;
        let mut watcher = stage.watcher.lock().unwrap();
        at_rest(&mut watcher);
        std::mem::take(&mut watcher.wrong)
    });
    assert!(panics.is_empty(), "{panics:?}");
    wrong
}

#[track_caller]
fn only(invariant: u8, wrong: &Wrong) {
    let of = |line: &&String| line.contains(&format!("invariant {invariant}:"));
    assert!(!wrong.is_empty() && wrong.iter().all(|line| of(&line)), "{wrong:#?}");
}

#[track_caller]
fn also(invariant: u8, wrong: &Wrong) {
    assert!(wrong.iter().any(|line| line.contains(&format!("invariant {invariant}:"))), "{wrong:#?}");
}

/// Of an invariant that has several checks the one that says `words` failed.
#[track_caller]
fn names(invariant: u8, words: &str, wrong: &Wrong) {
    let found =
        wrong.iter().any(|line| line.contains(&format!("invariant {invariant}:")) && line.contains(words));
    assert!(found, "{wrong:#?}");
}

#[test]
fn invariant_1_a_pair_outside_of_the_policy() {
    // A controller before the apiservers.
    only(
        1,
        &said(async |stage| {
            stage.claim("kube-scheduler", "cp-1", "").await;
            stage.state("kube-scheduler", "cp-1", "Upgrading", "").await;
        }),
    );
}

#[test]
fn invariant_2_a_kubelet_before_the_control_plane() {
    let early = |missing: &'static str| {
        said(async |stage| {
            stage.plane_is_there().await;
            match missing {
                "version" => stage.cluster.replace_component("cp-2", "kube-scheduler", FROM),
                "away" => _ = stage.cluster.take_component("cp-2", "kube-controller-manager"),
                _ => {
                    stage.claim("kube-apiserver", "cp-3", "").await;
                    stage.state("kube-apiserver", "cp-3", "Upgrading", "").await;
                }
            }
            sleep(Duration::from_secs(50)).await;
            stage.take("main-1").await;
            stage.state("kubelet", "main-1", "Parked", "x").await;
        })
    };
    for missing in ["version", "away", "claim"] {
        also(2, &early(missing));
    }
}

#[test]
fn invariant_2_a_kubelet_before_the_replaced_controllers_have_begun() {
    let after = |seconds: u64| {
        said(async |stage| {
            stage.plane_is_there().await;
            stage.cluster.replace_component("cp-2", "kube-scheduler", "v1.37.2");
            sleep(Duration::from_secs(seconds)).await;
            stage.claim("kubelet", "main-1", &stage.uid_of("main-1").await).await;
        })
    };
    names(2, "kube-scheduler on cp-2 has only just begun", &after(3));
    assert!(after(20).is_empty());
}

#[test]
fn invariant_3_a_pod_is_deleted_or_asked_without_its_uid() {
    also(
        3,
        &said(async |stage| {
            let pod = stage.pods_of("web").await.remove(0);
            let name = pod["metadata"]["name"].as_str().unwrap();
            stage.forger.delete(&format!("{PODS}/{name}")).await.unwrap();
        }),
    );
    let (wrong, _) = virtually(async || {
        let stage = Stage::begin("").await;
        stage.cluster.faults().record();
        let pod = stage.pods_of("web").await.remove(0);
        let name = pod["metadata"]["name"].as_str().unwrap();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        stage.forger.create(&format!("{PODS}/{name}/eviction"), &eviction).await;
        asked_well(&stage.cluster.faults().record())
    });
    only(3, &wrong);
}

#[test]
fn a_request_that_no_role_allows() {
    let (wrong, _) = virtually(async || {
        let stage = Stage::begin("").await;
        stage.cluster.faults().record();
        stage.forger.list("/api/v1/namespaces/shop/secrets").await;
        asked_well(&stage.cluster.faults().record())
    });
    assert_eq!(wrong, ["no shipped role allows: list secrets shop"]);
}

#[test]
fn invariant_3_a_deletion_before_the_deadline_or_of_a_node_that_does_not_drain() {
    let deletes = |state: &'static str, after: u64, on_timeout: &'static str| {
        said(async |stage| {
            let spec = json!({"drain": {"timeoutSeconds": 60, "onTimeout": on_timeout}});
            stage.person.merge(&format!("{UPGRADES}/{UP}"), &json!({"spec": spec})).await.unwrap();
            stage.plane_is_there().await;
            stage.take("main-1").await;
            stage.state("kubelet", "main-1", state, "").await;
            sleep(Duration::from_secs(after)).await;
            let on_it = |pod: &Value| {
                pod["spec"]["nodeName"] == "main-1" && pod["metadata"]["labels"]["app"] != "logs"
            };
            let pod = stage.person.list(PODS).await.into_iter().find(on_it).unwrap();
            let name = pod["metadata"]["name"].as_str().unwrap();
            stage.forger.delete(&format!("{PODS}/{name}")).await.unwrap();
        })
    };
    let deleted =
        |wrong: &Wrong| wrong.iter().any(|line| line.contains("invariant 3:") && line.contains("deletes"));
    assert!(deleted(&deletes("Draining", 40, "Force")), "too early");
    assert!(deleted(&deletes("Draining", 61, "Park")), "nobody said so");
    assert!(deleted(&deletes("Claimed", 61, "Force")), "it does not drain");
    let in_time = deletes("Draining", 61, "Force");
    assert!(!deleted(&in_time), "{in_time:#?}");
}

#[test]
fn invariant_3_an_executor_works_while_a_scheduler_still_binds_pods() {
    let bound_after = |seconds: u64| {
        said(async |stage| {
            stage.plane_is_there().await;
            stage.take("main-1").await;
            stage.state("kubelet", "main-1", "Upgrading", "").await;
            sleep(Duration::from_secs(seconds)).await;
            let pod = json!({"metadata": {"name": "late"}, "spec": {"nodeName": "main-1",
                "containers": [{"name": "c", "image": "registry.example/c:1"}]}});
            stage.person.create(PODS, &pod).await;
        })
    };
    names(3, "shop/late still arrives", &bound_after(2));
    let later = bound_after(6);
    assert!(!later.iter().any(|line| line.contains("still arrives")), "{later:#?}");
}

#[test]
fn invariant_3_an_executor_works_while_a_volume_is_attached() {
    let attached = |begins: &str| {
        said_of(begins, async |stage| {
            stage.plane_is_there().await;
            people::attach(&stage.person, "main-1").await;
            stage.take("main-1").await;
            stage.state("kubelet", "main-1", "Upgrading", "").await;
        })
    };
    let words = "upgrades main-1 while a volume is attached to it";
    names(3, words, &attached("at 0 detach"));
    let ignored = attached("");
    assert!(!ignored.iter().any(|line| line.contains(words)), "{ignored:#?}");
}

#[test]
fn invariant_4_a_budget_is_broken_or_hammered() {
    also(
        4,
        &said(async |stage| {
            for pod in stage.pods_of("cart").await.iter().take(2) {
                let name = pod["metadata"]["name"].as_str().unwrap();
                stage.forger.delete(&format!("{PODS}/{name}")).await.unwrap();
            }
        }),
    );
    let (wrong, _) = virtually(async || {
        let stage = Stage::begin("").await;
        stage.cluster.faults().record();
        let pod = stage.pods_of("cart").await.remove(0);
        let (name, uid) = (pod["metadata"]["name"].as_str().unwrap(), &pod["metadata"]["uid"]);
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": {"preconditions": {"uid": uid}}});
        for _ in 0..9 {
            let path = format!("{PODS}/{name}/eviction");
            let _ = stage.forger.send("POST", &path, "application/json", &eviction).await;
        }
        asked_well(&stage.cluster.faults().record())
    });
    only(4, &wrong);
}

#[test]
fn invariant_5_more_nodes_than_the_group_may_lose() {
    also(
        5,
        &said(async |stage| {
            stage.plane_is_there().await;
            stage.take("canary-1").await;
            stage.take("canary-2").await;
        }),
    );
}

#[test]
fn invariant_5_static_pods_restart_beside_a_node_that_is_out() {
    // The kubelet of cp-1 is replaced, and restarts the static pods before or after cp-2 is taken.
    let restarts_beside = |seconds: u64| {
        said(async |stage| {
            stage.plane_is_there().await;
            let kubelet = super::executor::kubelet(&stage.cluster, "cp-1", TO);
            let other = async {
                sleep(Duration::from_secs(seconds)).await;
                stage.take("cp-2").await;
            };
            tokio::join!(kubelet, other);
        })
    };
    names(5, "cp-2 is out while", &restarts_beside(6));
    let afterwards = restarts_beside(60);
    assert!(!afterwards.iter().any(|line| line.contains("is out while")), "{afterwards:#?}");
}

#[test]
fn invariant_6_a_cordon_before_its_claim_and_an_uncordon_that_is_not_ours() {
    also(
        6,
        &said(async |stage| {
            stage.plane_is_there().await;
            stage.cordon("main-1", "up.kubelet.main-1/no-such-uid").await;
        }),
    );
    only(
        6,
        &said(async |stage| {
            let path = "/api/v1/nodes/main-1";
            stage.person.merge(path, &json!({"spec": {"unschedulable": true}})).await.unwrap();
            sleep(Duration::from_secs(5)).await;
            stage.forger.merge(path, &json!({"spec": {"unschedulable": null}})).await.unwrap();
        }),
    );
}

#[test]
fn invariant_7_a_node_that_is_left_cordoned_and_named_nowhere() {
    only(
        7,
        &said(async |stage| {
            stage.plane_is_there().await;
            stage.take("main-1").await;
        }),
    );
}

#[test]
fn invariant_8_another_node_under_the_same_name() {
    also(
        8,
        &said(async |stage| {
            stage.plane_is_there().await;
            let uid = stage.claim("kubelet", "main-1", "the-one-before").await;
            stage.cordon("main-1", &format!("{UP}.kubelet.main-1/{uid}")).await;
        }),
    );
}

#[test]
fn invariant_9_upgraded_because_somebody_said_so() {
    only(
        9,
        &said(async |stage| {
            stage.plane_is_there().await;
            stage.claim("kubelet", "main-1", &stage.uid_of("main-1").await).await;
            stage.state("kubelet", "main-1", "Upgraded", "").await;
        }),
    );
    only(
        9,
        &said(async |stage| {
            sleep(Duration::from_secs(50)).await;
            stage.claim("kube-apiserver", "cp-1", "").await;
            stage.state("kube-apiserver", "cp-1", "Upgraded", "").await;
        }),
    );
}

#[test]
fn invariant_10_somebody_writes_who_lost_the_lease() {
    only(
        10,
        &said(async |stage| {
            let lease = json!({"metadata": {"name": "evenkeel"}, "spec": {"holderIdentity": "b_1"}});
            let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
            stage.person.create(leases, &lease).await;
            stage.claim("kube-apiserver", "cp-1", "").await;
        }),
    );
}

#[test]
fn invariant_12_stuck_without_a_reason() {
    only(
        12,
        &said(async |stage| {
            stage.plane_is_there().await;
            stage.claim("kubelet", "main-1", &stage.uid_of("main-1").await).await;
            stage.state("kubelet", "main-1", "Parked", "").await;
        }),
    );
}

#[test]
fn invariant_12_two_nodes_that_wait_for_each_other() {
    // Each has a pod of both budgets, and each budget lets one go.
    let wrong = said(async |stage| {
        stage.plane_is_there().await;
        stage.take("main-1").await;
        stage.take("main-2").await;
    });
    for budget in ["vault-p", "vault-q"] {
        names(12, &format!("both wait for shop/{budget}"), &wrong);
    }
    let apart = said(async |stage| {
        stage.plane_is_there().await;
        stage.take("main-1").await;
        stage.take("main-3").await;
    });
    assert!(!apart.iter().any(|line| line.contains("both wait for")), "{apart:#?}");
}

#[test]
fn invariant_13_a_new_node_although_suspended() {
    only(
        13,
        &said(async |stage| {
            stage.plane_is_there().await;
            let path = format!("{UPGRADES}/{UP}");
            stage.person.merge(&path, &json!({"spec": {"suspend": true}})).await.unwrap();
            sleep(Duration::from_secs(10)).await;
            stage.claim("kubelet", "main-1", &stage.uid_of("main-1").await).await;
        }),
    );
}

#[test]
fn invariant_14_another_end() {
    let (ends, _) = virtually(async || {
        let stage = Stage::begin("").await;
        let one = end(&stage.cluster, &stage.person).await;
        let path = "/api/v1/nodes/main-1";
        stage.person.merge(path, &json!({"spec": {"unschedulable": true}})).await.unwrap();
        (one, end(&stage.cluster, &stage.person).await)
    });
    assert_ne!(ends.0, ends.1);
}
