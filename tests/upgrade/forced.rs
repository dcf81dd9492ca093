//! A drain that may be forced: pods past the end of its time are deleted, by whoever has the right to, and no others.

use std::time::Duration;

use evenkeel_devcluster::{AuditEntry, Cluster, Failure, TestResult, in_namespace};
use evenkeel_testkit::observer::{self, Observer};
use evenkeel_testkit::scenario::{OPERATOR_USER, kubectl, root, until};

use super::{field, on_five_workers, reaches, settled};

/// Deletions of pods that the operator asked for.
fn deletions(cluster: &Cluster) -> Result<Vec<AuditEntry>, Failure> {
    let ours = |entry: &AuditEntry| {
        entry.user == OPERATOR_USER && entry.resource == "pods" && entry.verb.starts_with("delete")
    };
    Ok(cluster.audit_log()?.into_iter().filter(ours).collect())
}

#[test]
fn a_drain_is_forced_by_whoever_may_delete_pods() -> TestResult {
    in_namespace("forced::a_drain_is_forced_by_whoever_may_delete_pods", async || {
        on_five_workers(forced).await
    })
}

async fn forced(cluster: &Cluster, observer: &Observer) -> TestResult {
    let file = root("tests/upgrade/upgrade.yaml");
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", file.display()));
    let upgrade = std::fs::read_to_string(&file).map_err(failed)?;
    // What can leave in time has the time to.
    let (parks, forces) =
        ("{timeoutSeconds: 25, onTimeout: Park}", "{timeoutSeconds: 90, onTimeout: Force, volumes: Detach}");
    let forces = upgrade.replace(parks, forces).replace("maxUnavailable: 4", "maxUnavailable: 2");
    assert!(forces.contains("Force") && forces.contains("maxUnavailable: 2"), "{forces}");
    let own = cluster.logs().join("forces.yaml");
    std::fs::write(&own, forces).map_err(failed)?;
    cluster.apply(own).await?;

    // As Evenkeel is installed it may not delete a pod, whatever the upgrade says.
    let role = "onTimeout Force needs ClusterRole evenkeel-upgrader-force";
    until("a node is parked", Duration::from_mins(6), async || {
        Ok(field(cluster, "{.status.parked[*].reason}").await?.contains(role))
    })
    .await?;
    let refused = deletions(cluster)?;
    assert!(!refused.is_empty() && refused.iter().all(|entry| entry.code == 403), "{refused:#?}");
    assert_eq!(observer.seen().violations, Vec::<String>::new());

    cluster.apply(root("config/force")).await?;
    let node = field(cluster, "{.status.parked[*].node}").await?;
    kubectl(cluster, &["delete", "nodeupgrade", &format!("to-137.kubelet.{node}")]).await?;
    reaches(cluster, "Completed", Duration::from_mins(5)).await?;
    settled(cluster).await?;
    assert_eq!(observer::at_rest(cluster, &[]).await?, Vec::<String>::new());

    let all = deletions(cluster)?;
    assert!(all.iter().all(|entry| (&*entry.namespace, &*entry.name) == ("shop", "ledger-0")), "{all:#?}");
    let done: Vec<_> = all.iter().filter(|entry| entry.code < 300).collect();
    assert_eq!(done.len(), 1, "{all:#?}");
    // Its node was cordoned for as long as a drain may last, of which whole seconds are stored.
    let cordoned = cluster.audit_log()?.into_iter().filter(|entry| {
        (&*entry.user, &*entry.resource, &*entry.verb) == (OPERATOR_USER, "nodes", "patch")
            && (entry.name == node && entry.received < done[0].received)
    });
    let cordoned = cordoned.map(|entry| entry.received).max();
    let waited = cordoned.map(|at| done[0].received.duration_since(at).as_secs());
    assert!(waited.is_some_and(|seconds| seconds >= 89), "{waited:?}");
    // The budget of that pod, and no other one, is violated.
    let wrong = observer.seen().violations;
    assert!(!wrong.is_empty() && wrong.iter().all(|line| line.contains("ledger")), "{wrong:#?}");
    Ok(())
}
