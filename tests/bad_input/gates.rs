//! Gates of a ClusterUpgrade on a real kube-apiserver: one whose object may not be read, one whose kind is not there, and one that
//! opens.

use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure, TestResult};
use evenkeel_testkit::operator;
use evenkeel_testkit::scenario::{kubectl, root, until};

use super::whole::{has, told};
use super::{SPEC, create, says};

const KIND: &str = r#"{
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicelevels.example.com"},
    "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "servicelevels", "singular": "servicelevel", "kind": "ServiceLevel"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
    }
}"#;
const CLOSED: &str = r#"{"apiVersion": "example.com/v1", "kind": "ServiceLevel",
    "metadata": {"name": "checkout", "namespace": "shop"},
    "status": {"conditions": [{"type": "Healthy", "status": "False"}]}}"#;

fn spec(kind: &str) -> String {
    let object =
        format!(r#"{{"apiVersion":"example.com/v1","kind":"{kind}","namespace":"shop","name":"checkout"}}"#);
    let gate = format!(r#"{{"name":"slo","object":{object},"condition":{{"type":"Healthy"}}}}"#);
    format!(r#""version":"v1.37.1",{SPEC},"gates":[{gate}]"#)
}

async fn apply(cluster: &Cluster, name: &str, object: &str) -> TestResult {
    let path = cluster.logs().join(name);
    std::fs::write(&path, object).map_err(|error| Failure::new(error.to_string()))?;
    kubectl(cluster, &["apply", "-f", &path.display().to_string()]).await.map(drop)
}

/// The operator runs, executor `x` is there, and no upgrade is.
pub async fn open_and_close(cluster: &Cluster) -> TestResult {
    apply(cluster, "kind.json", KIND).await?;
    let established = ["wait", "--for=condition=Established", "crd/servicelevels.example.com"];
    kubectl(cluster, &established).await?;
    create(cluster, "gated", &spec("ServiceLevel")).await?;
    create(cluster, "no-kind", &spec("Nothing")).await?;
    // Both are told of once they were refused a second time, 15 s later.
    let closed = "gate slo is closed (read every 15 s)";
    let forbidden = format!(
        "{closed}: ServiceLevel shop/checkout may not be read; allow it as config/gates/reader.yaml does, or take the \
         gate out of spec.gates: servicelevels.example.com \"checkout\" is forbidden"
    );
    says(cluster, "cup", "gated", "Stalled", &format!("True {forbidden}")).await?;
    says(cluster, "cup", "gated", "Ready", &format!("False {forbidden}")).await?;
    let no_kind =
        format!("True {closed}: the cluster does not serve kind Nothing of example.com/v1; install the kind");
    says(cluster, "cup", "no-kind", "Stalled", &no_kind).await?;
    let (code, status) = told(cluster.kubeconfig(), &["status", "gated", "-o", "wide"])?;
    assert_eq!(code, Some(2), "{status}");
    has(&status, &["GateUnreadable", "Person", "read every 15 s"])?;
    let waits = r#"evenkeel_upgrade_waiting{reason="GateUnreadable",upgrade="gated"} 1"#;
    has(&operator::page("/metrics").await?, &[waits])?;
    let of = ["get", "events.events.k8s.io", "--field-selector", "regarding.name=gated"];
    let events = kubectl(cluster, &[&of[..], &["-o", "jsonpath={.items[*].reason}"]].concat()).await;
    has(&events?, &["GateUnreadable"])?;
    kubectl(cluster, &["delete", "cup", "no-kind"]).await?;

    kubectl(cluster, &["create", "namespace", "shop"]).await?;
    apply(cluster, "service-level.json", CLOSED).await?;
    cluster.apply(root("config/gates/reader.yaml")).await?;
    let line = format!(
        "Unknown {closed}: condition Healthy of ServiceLevel shop/checkout is False, and must be True"
    );
    says(cluster, "cup", "gated", "Ready", &line).await?;
    let begun = kubectl(cluster, &["get", "nodeupgrades", "-o", "name"]).await?;
    assert_eq!(begun, "", "nothing was begun");
    apply(cluster, "service-level.json", &CLOSED.replace("False", "True")).await?;
    until("the gate is open, and the upgrade begins", Duration::from_secs(30), async || {
        Ok(!kubectl(cluster, &["get", "nodeupgrades", "-o", "name"]).await?.is_empty())
    })
    .await
}

/// Takes away what is left of it, while no operator runs: nobody changes the versions here.
pub async fn go(cluster: &Cluster) -> TestResult {
    let objects = kubectl(cluster, &["get", "nodeupgrades,clusterupgrades", "-o", "name"]).await?;
    for object in objects.lines() {
        kubectl(cluster, &["delete", object, "--wait=false"]).await?;
        let free = r#"{"metadata":{"finalizers":null}}"#;
        let freed = kubectl(cluster, &["patch", object, "--type=merge", "-p", free]).await;
        // One without a finalizer is gone already.
        if let Err(failure) = freed.map_err(|failure| format!("{failure:?}"))
            && !failure.contains("NotFound")
        {
            return Err(Failure::new(failure));
        }
    }
    Ok(())
}
