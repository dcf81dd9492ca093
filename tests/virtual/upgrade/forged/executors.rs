//! Forgeries of executors that are taken for each other.

use serde_json::json;

use super::super::base::EXECUTORS;
use super::{Wrong, names, said_of};

#[test]
fn invariant_13_a_node_is_for_the_executor_of_another_one() {
    // A claim of a node for the executor of the control plane.
    let claimed = |begins: &str| {
        said_of(begins, async |stage| {
            stage.plane_is_there().await;
            let uid = stage.uid_of("main-1").await;
            stage.claim("kubelet", "main-1", &uid).await;
        })
    };
    assert_eq!(claimed(""), Wrong::new(), "it is theirs, too");
    let words = "up.kubelet.main-1 is for executor machines, and not for [\"rest-workers\"]";
    names(13, words, &claimed("at 0 own-executors"));
}

#[test]
fn invariant_13_a_job_of_another_executor() {
    let made = |container: &'static str| {
        said_of("at 0 jobs; at 0 own-executors", async |stage| {
            let uid = stage.claim("kube-apiserver", "cp-1", "").await;
            stage.state("kube-apiserver", "cp-1", "Upgrading", "").await;
            let labels = json!({"evenkeel.dev/node-upgrade": uid});
            let template = json!({"spec": {"restartPolicy": "Never",
                "containers": [{"name": container, "image": "registry.example/c:1"}]}});
            let job = json!({"metadata": {"name": "up-1", "labels": labels}, "spec": {"template": template}});
            stage.forger.create(&format!("/apis/batch/v1/namespaces/{EXECUTORS}/jobs"), &job).await;
        })
    };
    names(13, "makes a Job of rest-workers for cp-1, whose executor is machines", &made("rest-workers"));
    let right = made("machines");
    assert!(!right.iter().any(|line| line.contains("makes a Job")), "{right:#?}");
}
