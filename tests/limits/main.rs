//! What Evenkeel may do on a real kube-apiserver, and what the policies that it ships refuse: to itself on Nodes, to
//! everybody in the namespace of executors, to whoever may not approve an upgrade, and to upgrades that cannot be.

mod intruders;
mod refused;
mod rights;
mod rules;

use std::path::Path;
use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, TestResult, V1_37, in_namespace};
use evenkeel_testkit::golden::compare;
use evenkeel_testkit::scenario::{EXECUTOR_IMAGE, OPERATOR_USER, allow_image, install, kubectl, root, until};

const REPORTER: &str = "system:serviceaccount:evenkeel-system:evenkeel-reporter";
/// Whose token a pod in the namespace of executors could have.
const EXECUTORS: &str = "system:serviceaccount:evenkeel-executors:default";

#[test]
fn what_evenkeel_may_do() -> TestResult {
    in_namespace("what_evenkeel_may_do", async || {
        let builder = Cluster::builder().apiservers(&[V1_37]).nodes(NodeGroup::workers(1));
        let cluster = builder.start().await?;
        install(&cluster).await?;
        people(&cluster).await?;
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/limits/golden");
        compare(&golden.join("can-i.txt"), &rules::all(&cluster).await?)?;
        compare(&golden.join("can-i-by-name.txt"), &rights::by_name(&cluster).await?)?;
        on_nodes(&cluster).await?;
        in_the_namespace_of_executors(&cluster).await?;
        bounds_of_executors(&cluster).await?;
        refused::what_cannot_be(&cluster).await?;
        approvals(&cluster).await?;
        executors(&cluster).await?;
        without_discovery(&cluster).await
    })
}

/// Runs kubectl as `user`; its error must contain `refused`, or there must be none if that is empty.
async fn expect(cluster: &Cluster, user: &str, args: &[&str], refused: &str) -> TestResult {
    let output = cluster.kubectl(&[&["--as", user], args].concat()).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    let as_wanted = if refused.is_empty() {
        output.status.success()
    } else {
        !output.status.success() && said.contains(refused)
    };
    if as_wanted {
        return Ok(());
    }
    let wanted = if refused.is_empty() { "success" } else { refused };
    Err(Failure::new(format!("kubectl {} as {user}: wanted {wanted}, and it said {said:?}", args.join(" "))))
}

/// A policy that was just created is asked a moment later.
async fn soon(cluster: &Cluster, user: &str, args: &[&str], refused: &str) -> TestResult {
    until(refused, Duration::from_secs(30), async || {
        expect(cluster, user, args, refused).await.map(|()| true)
    })
    .await
}

async fn on_nodes(cluster: &Cluster) -> TestResult {
    let nodes =
        kubectl(cluster, &["get", "nodes", "-l", "!node-role.kubernetes.io/control-plane", "-o", "name"])
            .await?;
    let node = nodes.lines().next().unwrap_or_default().to_owned();
    let patch = async |patch: &str, refused: &str| {
        expect(cluster, OPERATOR_USER, &["patch", &node, "--type=merge", "-p", patch], refused).await
    };
    let label = r#"{"metadata":{"labels":{"pool":"mine"}}}"#;
    let refused = "may not change the labels";
    soon(cluster, OPERATOR_USER, &["patch", &node, "--type=merge", "-p", label], refused).await?;
    let taint = |key: &str, effect: &str| {
        serde_json::json!({"spec": {"taints": [{"key": key, "value": "x", "effect": effect}]}}).to_string()
    };
    patch(&taint("evenkeel.dev/outdated", "PreferNoSchedule"), "").await?;
    for (key, effect) in [("evenkeel.dev/outdated", "NoExecute"), ("other", "PreferNoSchedule")] {
        patch(&taint(key, effect), "unschedulable and its own taint alone").await?;
    }
    patch(r#"{"spec":{"taints":null}}"#, "").await?;
    let cordon =
        r#"{"spec":{"unschedulable":true},"metadata":{"annotations":{"evenkeel.dev/cordoned-by":"up/1"}}}"#;
    patch(cordon, "").await?;
    patch(r#"{"metadata":{"annotations":{"evenkeel.dev/hold":"x"}}}"#, "evenkeel.dev/cordoned-by alone")
        .await?;
    patch(r#"{"metadata":{"finalizers":["example.com/x"]}}"#, "may not change the labels, finalizers")
        .await?;
    patch(
        r#"{"spec":{"unschedulable":null},"metadata":{"annotations":{"evenkeel.dev/cordoned-by":null}}}"#,
        "",
    )
    .await?;
    // Nobody else is held to that.
    kubectl(cluster, &["patch", &node, "--type=merge", "-p", label]).await.map(drop)
}

/// Its pod works for an hour.
fn job(name: &str, image: &str) -> serde_json::Value {
    let annotations = serde_json::json!({"pod-complete.stage.kwok.x-k8s.io/delay": "1h"});
    let containers = serde_json::json!([{"name": "up", "image": image}]);
    serde_json::json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "evenkeel-executors"},
        "spec": {"template": {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": containers},
        }},
    })
}

/// Writes `object` into a file, for kubectl, and returns its path.
fn written(cluster: &Cluster, object: &serde_json::Value) -> Result<String, Failure> {
    let file = cluster.logs().join("object.json");
    std::fs::write(&file, object.to_string())
        .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    Ok(file.display().to_string())
}

async fn create(cluster: &Cluster, user: &str, object: &serde_json::Value, refused: &str) -> TestResult {
    let path = written(cluster, object)?;
    expect(cluster, user, &["create", "-f", &path], refused).await
}

async fn in_the_namespace_of_executors(cluster: &Cluster) -> TestResult {
    let admin = "admin";
    let groups = ["create", "clusterrolebinding", "admin", "--clusterrole=cluster-admin", "--user=admin"];
    kubectl(cluster, &groups).await?;
    create(cluster, OPERATOR_USER, &job("good", EXECUTOR_IMAGE), "").await?;
    let names = "is not one that ConfigMap evenkeel-executors/executor-images names by digest";
    let other = EXECUTOR_IMAGE.replace("upgrade-kubelet", "other");
    create(cluster, OPERATOR_USER, &job("other", &other), names).await?;
    // A tag may be another image tomorrow, so that it does not help to name it.
    allow_image(cluster, "example.test/upgrade-kubelet:1").await?;
    until("a tag is refused", Duration::from_secs(10), async || {
        create(cluster, OPERATOR_USER, &job("tag", "example.test/upgrade-kubelet:1"), names)
            .await
            .map(|()| true)
    })
    .await?;
    allow_image(cluster, EXECUTOR_IMAGE).await?;
    create(cluster, admin, &job("by-admin", EXECUTOR_IMAGE), "only Evenkeel creates Jobs").await?;
    let run = ["-n", "evenkeel-executors", "run", "x", "--image", EXECUTOR_IMAGE];
    expect(cluster, admin, &run, "only the Jobs of Evenkeel make pods").await?;
    let deployment = ["-n", "evenkeel-executors", "create", "deployment", "x", "--image", EXECUTOR_IMAGE];
    expect(cluster, admin, &deployment, "only the Jobs of Evenkeel run").await?;
    let mut pod = String::new();
    until("the Job of Evenkeel has its pod", Duration::from_secs(30), async || {
        let pods = kubectl(cluster, &["-n", "evenkeel-executors", "get", "pods", "-o", "name"]).await?;
        let good = pods.lines().filter_map(|line| line.strip_prefix("pod/"));
        pod = good.filter(|name| name.starts_with("good-")).collect();
        Ok(!pod.is_empty())
    })
    .await?;
    intruders::are_refused(cluster, &pod).await
}

/// Nothing reaches an executor over the network, it reaches nothing, and only so many run at once.
async fn bounds_of_executors(cluster: &Cluster) -> TestResult {
    let here = ["-n", "evenkeel-executors"];
    let said = async |args: &[&str]| kubectl(cluster, &[&here, args].concat()).await;
    let each = "jsonpath={range .items[*]}{.spec.podSelector} {.spec.policyTypes} {.spec.ingress}{.spec.egress}{end}";
    let policies = said(&["get", "networkpolicies", "-o", each]).await?;
    if policies != r#"{} ["Ingress","Egress"] "# {
        return Err(Failure::new(format!("not every pod is cut off: {policies}")));
    }
    let service = ["-n", "evenkeel-executors", "create", "service", "clusterip", "x", "--tcp=80"];
    expect(cluster, "admin", &service, "exceeded quota: executors").await?;
    // One executor's pod is there, so another is one too many.
    said(&["patch", "resourcequota", "executors", "--type=merge", "-p", r#"{"spec":{"hard":{"pods":"1"}}}"#])
        .await?;
    let counted = "jsonpath={.status.used.pods} of {.status.hard.pods}";
    until("the quota counts", Duration::from_mins(1), async || {
        Ok(said(&["get", "resourcequota", "executors", "-o", counted]).await? == "1 of 1")
    })
    .await?;
    create(cluster, OPERATOR_USER, &job("one-too-many", EXECUTOR_IMAGE), "").await?;
    let of_job = [
        "get",
        "events",
        "--field-selector=involvedObject.name=one-too-many",
        "-o",
        "jsonpath={.items[*].message}",
    ];
    until("its pod is refused", Duration::from_mins(1), async || {
        Ok(said(&of_job).await?.contains("exceeded quota: executors"))
    })
    .await
}

/// Whoever may write upgrades may not write executors, because that is being root on every node; Evenkeel may neither.
async fn executors(cluster: &Cluster) -> TestResult {
    let executor = |name: &str| {
        serde_json::json!({
            "apiVersion": "evenkeel.dev/v1alpha1",
            "kind": "UpgradeExecutor",
            "metadata": {"name": name},
            "spec": {"external": {}},
        })
    };
    for user in ["author", "approver", OPERATOR_USER] {
        create(cluster, user, &executor("theirs"), "forbidden").await?;
    }
    create(cluster, "platform", &executor("ours"), "").await?;
    let delete = ["delete", "upgradeexecutor", "ours"];
    expect(cluster, OPERATOR_USER, &delete, "forbidden").await?;
    expect(cluster, "platform", &delete, "").await?;
    // What is shipped is what the schema lets through, as the platform team applies it.
    create(cluster, "platform", &executor("by-hand"), "").await?;
    for folder in ["k3s", "kubeadm", "rke2"] {
        let path = root("config/executors").join(folder).display().to_string();
        expect(cluster, "platform", &["apply", "--validate=strict", "-k", &path], "").await?;
    }
    let told = kubectl(cluster, &["get", "uex"]).await?;
    let rows: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    let image = "docker.io/library/debian:13-slim@sha256:DIGEST";
    let jobs = ["k3s-agent", "k3s-server", "kubeadm-control-plane", "kubeadm-first", "kubeadm-worker"];
    let jobs = [&jobs[..], &["rke2-agent", "rke2-server"]].concat();
    let jobs: Vec<Vec<&str>> = jobs.into_iter().map(|name| vec![name, "3600", image]).collect();
    assert_eq!(rows[0], ["NAME", "DEADLINE", "IMAGE"]);
    assert_eq!(rows[1][..2], ["by-hand", "7200"]);
    assert_eq!(rows[2..], jobs, "{told}");
    Ok(())
}

/// Where nobody may ask any more what is served, Evenkeel may still ask what it needs to know.
async fn without_discovery(cluster: &Cluster) -> TestResult {
    kubectl(cluster, &["delete", "clusterrolebinding", "system:discovery"]).await?;
    let apps = "/apis/apps/v1";
    for user in ["stranger", REPORTER] {
        soon(cluster, user, &["get", "--raw", apps], "forbidden").await?;
    }
    // The kind of a gate is one of the core, or of any group.
    for path in ["/openapi/v3/apis/evenkeel.dev/v1alpha1", "/api/v1", apps] {
        expect(cluster, OPERATOR_USER, &["get", "--raw", path], "").await?;
    }
    // It is not served here, which only those are told who may ask.
    let candidates = ["get", "--raw", "/apis/coordination.k8s.io/v1beta1"];
    for user in [REPORTER, OPERATOR_USER] {
        expect(cluster, user, &candidates, "could not find the requested resource").await?;
    }
    Ok(())
}

/// Who writes upgrades, who approves them, and who writes executors.
async fn people(cluster: &Cluster) -> TestResult {
    let verbs = "--verb=get,list,create,patch,update";
    let author = ["create", "clusterrole", "author", verbs, "--resource=clusterupgrades.evenkeel.dev"];
    kubectl(cluster, &author).await?;
    for (user, role) in
        [("author", "author"), ("approver", "evenkeel-approver"), ("platform", "evenkeel-executor-admin")]
    {
        let (role, user_arg) = (format!("--clusterrole={role}"), format!("--user={user}"));
        kubectl(cluster, &["create", "clusterrolebinding", user, &role, &user_arg]).await?;
    }
    Ok(())
}

async fn approvals(cluster: &Cluster) -> TestResult {
    let upgrade = |mode: &str| {
        serde_json::json!({
            "apiVersion": "evenkeel.dev/v1alpha1",
            "kind": "ClusterUpgrade",
            "metadata": {"name": format!("to-137-{}", mode.to_lowercase())},
            "spec": {
                "version": "v1.37.1", "mode": mode,
                "controlPlane": {"executor": "x"},
            },
        })
    };
    let needs = "needs the verb approve";
    create(cluster, "author", &upgrade("Automatic"), needs).await?;
    create(cluster, "author", &upgrade("RequireApproval"), "").await?;
    let name = "clusterupgrade/to-137-requireapproval";
    let patch = async |user: &str, patch: &str, refused: &str| {
        expect(cluster, user, &["patch", name, "--type=merge", "-p", patch], refused).await
    };
    let approval = r#"{"spec":{"approval":{"planHash":"3f9c0e1b7a42d5860b1e94c7f2a8d36e"}}}"#;
    patch("author", approval, needs).await?;
    patch("author", r#"{"spec":{"mode":"Automatic"}}"#, needs).await?;
    patch("approver", approval, "").await?;
    // The author goes on writing what the approval is not about, may stop it, and may take it back.
    patch("author", r#"{"metadata":{"labels":{"team":"platform"}}}"#, "").await?;
    patch("author", r#"{"spec":{"suspend":true}}"#, "").await?;
    kept_in_git(cluster, &upgrade("RequireApproval")).await?;
    patch("author", r#"{"spec":{"approval":null}}"#, "").await?;
    // A merge removes the field. Whoever writes the object as a whole stores null, which is no approval either.
    let null = r#"[{"op":"add","path":"/spec/approval","value":null}]"#;
    for taken_back in ["one that was never given", "one that was given"] {
        expect(cluster, "author", &["patch", name, "--type=json", "-p", null], "").await?;
        let stored = kubectl(cluster, &["get", name, "-o", "json"]).await?;
        if !stored.contains(r#""approval": null"#) {
            return Err(Failure::new(format!("{taken_back}: {stored}")));
        }
        patch("author", r#"{"spec":{"suspend":true}}"#, "").await?;
        patch("author", approval, needs).await?;
        patch("approver", approval, "").await?;
    }
    patch("author", r#"{"spec":{"approval":null}}"#, "").await
}

/// What is applied from git by somebody who may not approve keeps the approval, whether it is in git or not; a new one needs
/// somebody who may. `written` is stored with an approval.
async fn kept_in_git(cluster: &Cluster, written: &serde_json::Value) -> TestResult {
    let given = "3f9c0e1b7a42d5860b1e94c7f2a8d36e";
    let is = async |hash: &str, suspended: &str| {
        let path = "jsonpath={.spec.approval.planHash} {.spec.suspend}";
        let told = kubectl(cluster, &["get", "cup", "to-137-requireapproval", "-o", path]).await?;
        if told == format!("{hash} {suspended}") { Ok(()) } else { Err(Failure::new(told)) }
    };
    let apply = async |suspend: bool, hash: Option<&str>, refused: &str| {
        let mut object = written.clone();
        object["spec"]["suspend"] = suspend.into();
        if let Some(hash) = hash {
            object["spec"]["approval"] = serde_json::json!({"planHash": hash});
        }
        let path = self::written(cluster, &object)?;
        let apply = ["apply", "--server-side", "--field-manager=git", "--force-conflicts", "-f", &path];
        expect(cluster, "author", &apply, refused).await
    };
    apply(false, None, "").await?;
    is(given, "false").await?;
    apply(true, Some(given), "").await?;
    is(given, "true").await?;
    apply(false, Some("00000000000000000000000000000000"), "setting spec.approval needs the verb approve")
        .await?;
    is(given, "true").await?;
    // Who approved still owns the approval, so that it stays when git no longer names it.
    apply(false, None, "").await?;
    is(given, "false").await
}
