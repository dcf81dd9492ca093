//! What somebody tries who has the role `edit` in the namespace of executors, or all rights in the cluster: to run something
//! there, to change what runs, and to get into it. Each of its pods is root on a node, so all of it is refused.

use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure, TestResult};
use evenkeel_testkit::scenario::{EXECUTOR_IMAGE, OPERATOR_USER, kubectl, until};
use serde_json::{Value, json};

use super::{create, expect, job, written};

/// Has the role `edit` in the namespace of executors, and no other.
const EDITOR: &str = "editor";
/// Has it, too, and may write executors.
const PLATFORM: &str = "platform";
/// May do everything that a role can grant.
const ADMIN: &str = "admin";

/// `pod` is one of an executor.
pub async fn are_refused(cluster: &Cluster, pod: &str) -> TestResult {
    for user in [EDITOR, PLATFORM] {
        let (name, user) = (format!("edit-{user}"), format!("--user={user}"));
        let edit = ["-n", "evenkeel-executors", "create", "rolebinding", &name, "--clusterrole=edit", &user];
        kubectl(cluster, &edit).await?;
    }
    images(cluster).await?;
    until("the editor may edit", Duration::from_secs(10), async || {
        let get = ["-n", "evenkeel-executors", "get", "pods"];
        Ok(expect(cluster, EDITOR, &get, "").await.is_ok())
    })
    .await?;
    for user in [EDITOR, ADMIN] {
        others(cluster, user).await?;
        changes(cluster, user, pod).await?;
    }
    doors(cluster, pod).await
}

/// Every image of a Job has to be one that is named, wherever in it the image is.
async fn images(cluster: &Cluster) -> TestResult {
    let names = "is not one that ConfigMap evenkeel-executors/executor-images names by digest";
    let other = EXECUTOR_IMAGE.replace("upgrade-kubelet", "other");
    let refused = format!("image {other} {names}");
    let init = |image: &str| json!({"initContainers": [{"name": "before", "image": image}]});
    let volume = |volume: Value| json!({"volumes": [{"name": "files", "image": volume}]});
    let cases = [
        (init(EXECUTOR_IMAGE), ""),
        (init(&other), &refused),
        (volume(json!({"reference": EXECUTOR_IMAGE})), ""),
        (volume(json!({"reference": other})), &refused),
        (volume(json!({"reference": "example.test/upgrade-kubelet:1"})), names),
        (json!({"volumes": [{"name": "files", "emptyDir": {}}]}), ""),
    ];
    for (fields, refused) in cases {
        let mut job = job("tried", EXECUTOR_IMAGE);
        for (field, value) in fields.as_object().into_iter().flatten() {
            job["spec"]["template"]["spec"][field] = value.clone();
        }
        let path = written(cluster, &job)?;
        expect(cluster, OPERATOR_USER, &["create", "--dry-run=server", "-f", &path], refused).await?;
    }
    Ok(())
}

/// Everything that makes pods, with the image that is named.
async fn others(cluster: &Cluster, user: &str) -> TestResult {
    let labels = json!({"app": "x"});
    let containers = json!([{"name": "x", "image": EXECUTOR_IMAGE}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let selected = json!({"selector": {"matchLabels": labels}, "template": template});
    let only = "in this namespace only the Jobs of Evenkeel run";
    for (version, kind, spec, refused) in [
        ("apps/v1", "DaemonSet", selected.clone(), only),
        ("apps/v1", "Deployment", selected.clone(), only),
        ("apps/v1", "ReplicaSet", selected.clone(), only),
        ("apps/v1", "StatefulSet", selected, only),
        ("v1", "ReplicationController", json!({"selector": labels, "template": template}), only),
        (
            "batch/v1",
            "CronJob",
            json!({"schedule": "* * * * *", "jobTemplate": {"spec": job("x", EXECUTOR_IMAGE)["spec"]}}),
            only,
        ),
        ("batch/v1", "Job", job("x", EXECUTOR_IMAGE)["spec"].clone(), "only Evenkeel creates Jobs"),
        ("v1", "Pod", json!({"containers": containers}), "only the Jobs of Evenkeel make pods"),
    ] {
        let object = json!({
            "apiVersion": version, "kind": kind, "spec": spec,
            "metadata": {"name": "x", "namespace": "evenkeel-executors"},
        });
        create(cluster, user, &object, refused).await?;
    }
    Ok(())
}

/// What an executor's pod runs stays what it is.
async fn changes(cluster: &Cluster, user: &str, pod: &str) -> TestResult {
    let patch = async |patch: &str, refused: &str| {
        let patch = ["-n", "evenkeel-executors", "patch", "pod", pod, "--type=strategic", "-p", patch];
        expect(cluster, user, &patch, refused).await
    };
    let image = json!({"spec": {"containers": [{"name": "up", "image": "example.test/other:1"}]}});
    let refused = "what a pod of an executor runs does not change";
    patch(&image.to_string(), refused).await?;
    patch(r#"{"spec":{"activeDeadlineSeconds":5}}"#, refused).await?;
    patch(r#"{"metadata":{"labels":{"seen":"yes"}}}"#, "").await?;
    let debug = ["-n", "evenkeel-executors", "debug", pod, "--image", EXECUTOR_IMAGE, "--", "sh"];
    // `edit` itself does not let anybody add a container to a pod.
    let refused = if user == ADMIN { "in this namespace only the Jobs of Evenkeel run" } else { "forbidden" };
    expect(cluster, user, &debug, refused).await
}

/// The ways into a pod are open to whoever may write executors, who is root on every node anyway, and to nobody
/// else.
async fn doors(cluster: &Cluster, pod: &str) -> TestResult {
    let refused = "whoever gets into a pod of an executor is root on its node";
    let of_pod = format!("/api/v1/namespaces/evenkeel-executors/pods/{pod}");
    let doors = ["exec?command=id&stdout=true", "attach?stdout=true", "portforward?ports=80", "proxy/"];
    for door in doors {
        let path = format!("{of_pod}/{door}");
        let ask = ["get", "--raw", &path];
        expect(cluster, EDITOR, &ask, refused).await?;
        let output = cluster.kubectl(&[&["--as", PLATFORM], &ask[..]].concat()).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("forbidden") {
            return Err(Failure::new(format!("{door} is closed to {PLATFORM}: {said}")));
        }
    }
    // As a person does it.
    until("the pod runs", Duration::from_secs(30), async || {
        let phase = ["-n", "evenkeel-executors", "get", "pod", pod, "-o", "jsonpath={.status.phase}"];
        Ok(kubectl(cluster, &phase).await? == "Running")
    })
    .await?;
    for way in ["exec", "attach"] {
        let command: &[&str] = if way == "exec" { &["--", "id"] } else { &[] };
        let way = [&["-n", "evenkeel-executors", way, pod], command].concat();
        expect(cluster, EDITOR, &way, refused).await?;
    }
    let elsewhere = ["get", "--raw", "/api/v1/namespaces/default/pods/none/exec?command=id&stdout=true"];
    expect(cluster, ADMIN, &elsewhere, "not found").await
}
