//! Bad input on a real control plane: one clear line, the documented condition, and everything else goes on.

use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, Role, TestResult, V1_36, V1_37, in_namespace};
use serde_json::Value;

use crate::replica::{Replica, USER};
use crate::{SOON, report, says};
use evenkeel_testkit::scenario::{kubectl, root, until};

async fn condition(cluster: &Cluster, kind: &str, wanted: &str) -> TestResult {
    says(cluster, &format!("{{.status.conditions[?(@.type=='{kind}')]['status','reason']}}"), wanted).await
}

async fn message(cluster: &Cluster, kind: &str) -> Result<String, Failure> {
    let path = format!("jsonpath={{.status.conditions[?(@.type=='{kind}')].message}}");
    kubectl(cluster, &["get", "skew", "cluster", "-o", &path]).await
}

#[test]
fn bad_input_is_told_in_one_line() -> TestResult {
    in_namespace("bad::bad_input_is_told_in_one_line", async || {
        // Coordinated leader election, which is off by default; and the first of two steps of an upgrade.
        let gate = "--feature-gates=CoordinatedLeaderElection=true";
        let cluster = Cluster::builder()
            .apiservers(&[V1_37])
            .controllers(V1_36)
            .control_plane_kubelet("v1.36.4")
            .extra_arg(Role::Apiserver, "--emulated-version=1.36")
            .extra_arg(Role::Apiserver, "--runtime-config=coordination.k8s.io/v1beta1=true")
            .extra_arg(Role::Apiserver, gate)
            .extra_arg(Role::ControllerManager, gate)
            .extra_arg(Role::Scheduler, gate)
            .nodes(NodeGroup::workers(2).kubelet("v1.36.4"))
            .manifests([root("config/default")])
            .start()
            .await?;
        let mut replica = Replica::new(&cluster, "replica", 8081).await?;
        replica.start()?;
        let told = everything(&cluster, &mut replica).await;
        if told.is_err() {
            eprintln!("{}", replica.log());
        }
        told
    })
}

async fn everything(cluster: &Cluster, replica: &mut Replica) -> TestResult {
    condition(cluster, "SkewSupported", "True AllSupported").await?;
    says(cluster, "{.status.server} {.status.emulated}", "v1.37.1 1.36").await?;
    objects(cluster, replica).await?;
    permissions(cluster, replica).await?;
    candidates(cluster, replica).await?;
    definitions(cluster, replica).await?;
    credentials(cluster, replica).await
}

/// What a kubelet that means harm may write, and an object that is not what it should be.
async fn objects(cluster: &Cluster, replica: &Replica) -> TestResult {
    // The server takes a negative number here.
    let harm = r#"{"status":{"containerStatuses":[{"name":"kube-scheduler","image":"x","imageID":"","ready":true,"restartCount":-7}]}}"#;
    let pod = "kube-scheduler-cp-1";
    kubectl(
        cluster,
        &["-n", "kube-system", "patch", "pod", pod, "--subresource=status", "--type=merge", "-p", harm],
    )
    .await?;
    // A version of a megabyte, with everything in it that a terminal, a page or a table minds.
    let version = "v1.36.4\u{1b}[2J<script>\u{202e}\n".repeat(40_000);
    let path = cluster.logs().join("harm.json");
    let patch = serde_json::json!({"status": {"nodeInfo": {"kubeletVersion": version}}}).to_string();
    std::fs::write(&path, patch).map_err(|error| Failure::new(error.to_string()))?;
    let file = path.display().to_string();
    let patch =
        ["patch", "node", "worker-1", "--subresource=status", "--type=strategic", "--patch-file", &file];
    kubectl(cluster, &patch).await?;
    condition(cluster, "SkewSupported", "Unknown UnknownVersions").await?;
    says(cluster, "{.status.unknown} {.status.supported}", "1 Unknown").await?;
    let text = report(cluster).await?.to_string();
    assert!(text.len() < 20_000, "{} bytes", text.len());
    assert!(!text.contains("<script") && !text.contains("u001b") && !text.contains('\u{202e}'), "{text}");
    condition(cluster, "InventoryComplete", "True AllSourcesRead").await?;
    let page = replica.page("/metrics").await?;
    assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
    cluster.restart_kubelet("worker-1", "v1.36.4").await?;
    condition(cluster, "SkewSupported", "True AllSupported").await
}

/// What may not be read is named, and everything else goes on.
async fn permissions(cluster: &Cluster, replica: &mut Replica) -> TestResult {
    for (resource, ready, supported) in [
        ("nodes", "False Forbidden", "Unknown UnknownVersions"),
        ("validatingwebhookconfigurations", "True Fresh", "True AllSupported"),
    ] {
        replica.kill().await?;
        let rules = rules(cluster).await?;
        let fewer: Vec<_> =
            rules.iter().filter(|rule| !rule.to_string().contains(resource)).cloned().collect();
        assert_eq!(fewer.len() + 1, rules.len(), "{resource} has a rule of its own");
        set_rules(cluster, &fewer).await?;
        replica.start()?;
        condition(cluster, "InventoryComplete", "False SourcesMissing").await?;
        condition(cluster, "Ready", ready).await?;
        condition(cluster, "SkewSupported", supported).await?;
        let line = message(cluster, "InventoryComplete").await?;
        assert!(line.contains("grant the verbs list and watch on") && line.contains(resource), "{line}");
        assert!(!report(cluster).await?["status"]["components"].as_array().is_some_and(Vec::is_empty));
        assert!(replica.page("/readyz").await?.contains(resource), "it is not ready, and says why");
        set_rules(cluster, &rules).await?;
        condition(cluster, "InventoryComplete", "True AllSourcesRead").await?;
        condition(cluster, "SkewSupported", "True AllSupported").await?;
    }
    Ok(())
}

/// Controllers whose pods may not be read are known by the candidates for their leases.
async fn candidates(cluster: &Cluster, replica: &mut Replica) -> TestResult {
    replica.kill().await?;
    let role = ["-n", "kube-system", "patch", "role", "evenkeel-reporter", "--type=json", "-p"];
    let none = r#"[{"op":"replace","path":"/rules/0/verbs","value":["get"]}]"#;
    kubectl(cluster, &[&role[..], &[none]].concat()).await?;
    replica.start()?;
    condition(cluster, "InventoryComplete", "False SourcesMissing").await?;
    let row = |name: &str| format!("{{.status.components[?(@.component=='{name}')]['version','samples']}}");
    says(cluster, &row("kube-controller-manager"), r#"v1.36.4 ["cp-1"]"#).await?;
    says(cluster, &row("kube-scheduler"), r#"v1.36.4 ["cp-1"]"#).await?;
    let back = r#"[{"op":"replace","path":"/rules/0/verbs","value":["list","watch"]}]"#;
    kubectl(cluster, &[&role[..], &[back]].concat()).await?;
    condition(cluster, "InventoryComplete", "True AllSourcesRead").await
}

async fn rules(cluster: &Cluster) -> Result<Vec<Value>, Failure> {
    let role = kubectl(cluster, &["get", "clusterrole", "evenkeel-reporter", "-o", "json"]).await?;
    let role: Value = serde_json::from_str(&role).map_err(|error| Failure::new(error.to_string()))?;
    Ok(role["rules"].as_array().cloned().unwrap_or_default())
}

async fn set_rules(cluster: &Cluster, rules: &[Value]) -> TestResult {
    let patch = serde_json::json!([{"op": "replace", "path": "/rules", "value": rules}]).to_string();
    kubectl(cluster, &["patch", "clusterrole", "evenkeel-reporter", "--type=json", "-p", &patch]).await?;
    Ok(())
}

/// A definition of an older version, and none.
async fn definitions(cluster: &Cluster, replica: &Replica) -> TestResult {
    let name = "clusterskewreports.evenkeel.dev";
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    let remove = format!(
        r#"[{{"op":"remove","path":"{status}/apiservers"}},{{"op":"remove","path":"{status}/pools"}}]"#
    );
    kubectl(cluster, &["patch", "crd", name, "--type=json", "-p", &remove]).await?;
    // What is stored is only cut when it is written.
    kubectl(cluster, &["annotate", "skew", "cluster", "look=again"]).await?;
    condition(cluster, "Ready", "False SchemaOutdated").await?;
    condition(cluster, "Stalled", "True SchemaOutdated").await?;
    let line = message(cluster, "Ready").await?;
    assert!(
        line.contains("the server drops status.") && line.contains("kubectl apply -k config/crd"),
        "{line}"
    );
    let writes = || -> Result<usize, Failure> {
        let log = cluster.audit_log()?;
        Ok(log.iter().filter(|e| e.user == USER && e.is_write() && e.subresource == "status").count())
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = writes()?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(writes()? - before <= 1, "it is not written again and again: {}", writes()? - before);
    let newest = root("config/crd").display().to_string();
    kubectl(cluster, &["apply", "--server-side", "--force-conflicts", "-k", &newest]).await?;
    kubectl(cluster, &["annotate", "skew", "cluster", "look-"]).await?;
    condition(cluster, "Ready", "True Fresh").await?;

    kubectl(cluster, &["delete", "crd", name]).await?;
    until("the log names it", SOON, async || {
        Ok(replica.log().lines().any(|line| line.contains("is its CustomResourceDefinition installed?")))
    })
    .await?;
    cluster.apply(root("config/crd")).await?;
    until("there is a report again", Duration::from_mins(1), async || {
        Ok(report(cluster).await?["status"]["supported"] == "True")
    })
    .await
}

/// The service account is gone, and its token with it.
async fn credentials(cluster: &Cluster, replica: &mut Replica) -> TestResult {
    let (namespace, account) = (crate::replica::NAMESPACE, crate::replica::SERVICE_ACCOUNT);
    kubectl(cluster, &["-n", namespace, "delete", "serviceaccount", account]).await?;
    until("it stands for election again", Duration::from_mins(1), async || {
        let log = replica.log();
        Ok(log.contains("the leadership was lost") && log.contains("HTTP 401"))
    })
    .await?;
    assert!(replica.page("/healthz").await?.starts_with("HTTP/1.1 200"), "it is alive, and does not lead");
    assert!(replica.log().contains("cannot write the leader election lease"), "{}", replica.log());
    replica.kill().await?;
    replica.start()?;
    until("it says what it waits for", Duration::from_secs(30), async || {
        Ok(replica.page("/readyz").await.is_ok_and(|page| page.contains("HTTP 401")))
    })
    .await?;
    assert!(replica.page("/healthz").await?.starts_with("HTTP/1.1 200"), "it waits, alive");
    replica.kill().await?;
    Ok(())
}
