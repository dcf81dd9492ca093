//! Forgeries of order: nodes that go before others, and nodes that are half upgraded when somebody lets go of them.

use super::super::base::EXECUTORS;
use super::super::executor;
use super::*;

const NODES: &str = "/api/v1/nodes";

impl Stage {
    /// The claim of a node whose executor may work; its UID.
    async fn gives(&self, node: &str) -> String {
        self.plane_is_there().await;
        self.take(node).await;
        self.state("kubelet", node, "Upgrading", "").await;
        let claim = self.person.get(&format!("{CLAIMS}/{UP}.kubelet.{node}")).await.unwrap();
        claim["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// A Job of the claim of that UID, made by `whom`.
    async fn job(&self, whom: &Kube, claim: &str) {
        let labels = json!({"evenkeel.dev/node-upgrade": claim});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forged", "labels": labels},
            "spec": {"template": {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "registry.example/c:1"}]}}}});
        whom.create(&format!("/apis/batch/v1/namespaces/{EXECUTORS}/jobs"), &job).await;
    }
}

#[test]
fn invariant_9_a_node_is_given_back_half_upgraded() {
    let given_back = |there: bool| {
        said(async |stage| {
            stage.gives("main-1").await;
            if there {
                executor::kubelet(&stage.cluster, "main-1", TO).await;
                sleep(Duration::from_mins(1)).await;
            }
            let uncordon = json!({"metadata": {"annotations": {"evenkeel.dev/cordoned-by": null}},
                "spec": {"unschedulable": null}});
            stage.forger.merge(&format!("{NODES}/main-1"), &uncordon).await.unwrap();
        })
    };
    let words = "gives main-1 back, which an executor was given and which is at v1.36.4";
    names(9, words, &given_back(false));
    let whole = given_back(true);
    assert!(!whole.iter().any(|line| line.contains("gives main-1 back")), "{whole:#?}");
}

#[test]
fn invariant_9_a_claim_goes_before_its_job() {
    let wrong = said(async |stage| {
        let claim = stage.gives("main-1").await;
        stage.job(&stage.person, &claim).await;
        stage.forger.delete(&format!("{CLAIMS}/{UP}.kubelet.main-1")).await.unwrap();
    });
    names(9, "lets up.kubelet.main-1 go while its Job still runs", &wrong);
}

#[test]
fn invariant_9_two_executors_on_one_node() {
    let wrong = said(async |stage| {
        let claim = stage.gives("main-1").await;
        let pod = json!({"metadata": {"name": "old", "labels": {"evenkeel.dev/node-upgrade": claim}},
            "spec": {"nodeName": "main-1", "containers": [{"name": "c", "image": "registry.example/c:1"}]}});
        stage.person.create(&format!("/api/v1/namespaces/{EXECUTORS}/pods"), &pod).await;
        sleep(Duration::from_secs(10)).await;
        stage.job(&stage.forger, &claim).await;
    });
    names(9, "makes Job forged while evenkeel-executors/old of another one still runs", &wrong);
}

#[test]
fn invariant_13_a_node_before_the_group_that_its_own_depends_on() {
    let early = |unready: bool| {
        said_of("at 0 soak canary 60", async |stage| {
            stage.gives("canary-1").await;
            if unready {
                stage.cluster.kubelets().stop("canary-1");
                executor::unready(&stage.cluster, "canary-1", TO).await;
                stage.state("kubelet", "canary-1", "Upgraded", "").await;
                sleep(Duration::from_secs(10)).await;
            }
            stage.claim("kubelet", "main-1", &stage.uid_of("main-1").await).await;
        })
    };
    for unready in [false, true] {
        names(13, "claims main-1 before canary-1 of group canary", &early(unready));
    }
}

/// The first of them is all that the others wait for, whatever is left to do in the groups between.
#[test]
fn invariant_13_a_node_before_those_of_an_earlier_group_are_begun() {
    // What becomes of the nodes of the first group, and whether a group without nodes stands between the two.
    let early = |what: &'static str, between: bool| {
        said_of("at 0 soak canary 60", async |stage| {
            let upgrade = format!("{UPGRADES}/{UP}");
            let mut groups = stage.person.get(&upgrade).await.unwrap()["spec"]["nodeGroups"].clone();
            if between {
                let selector = json!({"matchLabels": {"pool": "nobody"}});
                let empty = json!({"name": "between", "selector": selector, "executor": "machines",
                    "dependsOn": ["canary"]});
                groups[1]["dependsOn"] = json!(["between"]);
                groups.as_array_mut().unwrap().insert(1, empty);
                stage.person.merge(&upgrade, &json!({"spec": {"nodeGroups": groups}})).await.unwrap();
            }
            stage.plane_is_there().await;
            for node in ["canary-1", "canary-2", "canary-3"] {
                match what {
                    "held" => {
                        let hold = json!({"metadata": {"annotations": {"evenkeel.dev/hold": ""}}});
                        stage.person.merge(&format!("{NODES}/{node}"), &hold).await.unwrap();
                    }
                    "moved" => executor::kubelet(&stage.cluster, node, TO).await,
                    _ => {}
                }
            }
            sleep(Duration::from_mins(2)).await;
            stage.claim("kubelet", "main-1", &stage.uid_of("main-1").await).await;
        })
    };
    for between in [false, true] {
        names(13, "claims main-1 before canary-1 of group canary", &early("nothing", between));
        for what in ["held", "moved"] {
            let wrong = early(what, between);
            assert!(!wrong.iter().any(|line| line.contains("before canary")), "{what} {between}: {wrong:#?}");
        }
    }
}

#[test]
fn invariant_13_a_node_of_a_small_zone_of_which_none_is_ready() {
    let wrong = said(async |stage| {
        let alone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "d"}}});
        stage.person.merge(&format!("{NODES}/main-1"), &alone).await.unwrap();
        stage.cluster.kubelets().stop("main-1");
        stage.plane_is_there().await;
        sleep(Duration::from_mins(1)).await;
        stage.claim("kubelet", "main-1", &stage.uid_of("main-1").await).await;
    });
    names(13, "1 of 1 nodes of zone", &wrong);
}
