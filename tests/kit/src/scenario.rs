//! The cluster of the upgrade tests and of the demo: three apiservers, twelve workers in three zones, and eighty pods
//! under budgets that are fine, tight and impossible.

use std::path::Path;
use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, TestResult, V1_36};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::ListParams;
use tokio::time::Instant;

/// Where the cluster begins and where it goes.
pub const FROM: &str = "v1.36.4";
pub const TO: &str = "v1.37.1";
pub const WORKERS: usize = 12;
/// Nodes of the workers' group that may be unavailable at once.
pub const MAX_UNAVAILABLE: usize = 4;
/// Workloads' pods that a drain moves; the DaemonSet adds one on each worker, which makes 80 in all.
pub const MOVABLE: usize = 68;

pub const SERVICE_ACCOUNT: &str = "evenkeel-upgrader";
pub const NAMESPACE: &str = "evenkeel-system";
/// The audit log's name of the operator.
pub const OPERATOR_USER: &str = "system:serviceaccount:evenkeel-system:evenkeel-upgrader";

/// The image of the executor in `tests/upgrade/upgrade.yaml`.
pub const EXECUTOR_IMAGE: &str =
    "example.test/upgrade-kubelet@sha256:a5a0693ed6293d3b3e6e4d133d14017107c932d1f49e8006af04e8afc8680c08";

/// So long a read that fails is made again. Whoever needs its answer sooner looks at the clock.
const ASKS_AGAIN: Duration = Duration::from_secs(6);

pub fn root(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// What each test of a whole upgrade begins with: the cluster with Evenkeel and the workloads on it.
pub async fn prepared() -> Result<Cluster, Failure> {
    let cluster = cluster().await?;
    install(&cluster).await?;
    workloads(&cluster, WORKERS).await?;
    Ok(cluster)
}

/// Starts the cluster, without Evenkeel and without workloads.
pub async fn cluster() -> Result<Cluster, Failure> {
    let workers = NodeGroup::workers(WORKERS).zones(["a", "b", "c"]).kubelet(FROM).pool("general");
    Ok(Cluster::builder().apiservers(&[V1_36, V1_36, V1_36]).nodes(workers).start().await?)
}

/// Installs Evenkeel as its README says: definitions, roles, Deployment.
pub async fn install(cluster: &Cluster) -> TestResult {
    cluster.apply(root("config/upgrade")).await?;
    for crd in ["clusterskewreports", "clusterupgrades", "nodeupgrades", "upgradeexecutors"] {
        let wait =
            ["wait", "--for=condition=Established", "--timeout=30s", &format!("crd/{crd}.evenkeel.dev")];
        kubectl(cluster, &wait).await?;
    }
    allow_image(cluster, EXECUTOR_IMAGE).await
}

/// What the platform team does before an executor may run.
pub async fn allow_image(cluster: &Cluster, image: &str) -> TestResult {
    let patch = format!(r#"{{"data":{{"upgrade":"{image}"}}}}"#);
    let args =
        ["-n", "evenkeel-executors", "patch", "configmap", "executor-images", "--type=merge", "-p", &patch];
    kubectl(cluster, &args).await.map(drop)
}

/// Starts the workloads and waits until every pod is Ready and every budget computed.
pub async fn workloads(cluster: &Cluster, workers: usize) -> TestResult {
    cluster.apply(root("tests/upgrade/workloads.yaml")).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), "shop");
    until("every pod is ready and every budget computed", Duration::from_mins(2), async || {
        let pods = pods.list(&ListParams::default()).await?.items;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let budgets = budgets.list(&ListParams::default()).await?.items;
        let computed = budgets.iter().all(|budget| {
            let status = budget.status.as_ref();
            let healthy = status.and_then(|s| s.current_healthy).unwrap_or_default();
            healthy > 0 && Some(healthy) == status.and_then(|s| s.expected_pods)
        });
        Ok(ready == MOVABLE + workers && computed)
    })
    .await
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// kubectl as admin; its standard output.
pub async fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String, Failure> {
    let output = cluster.kubectl(args).await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("kubectl {}: {}", args.join(" "), error.trim())))
}

/// What `read` answers. It is asked again for a while when it fails: a kube-apiserver that is replaced breaks off what it
/// was asked, and another one answers, or the same one later. In the end its last error.
pub async fn answered<T>(read: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
    let started = Instant::now();
    loop {
        match read().await {
            Err(_) if started.elapsed() < ASKS_AGAIN => tokio::time::sleep(Duration::from_millis(100)).await,
            answer => return answer,
        }
    }
}

/// Waits until `probe` is true. An error is "not yet": apiservers come and go here.
pub async fn until(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<bool, Failure>,
) -> TestResult {
    let started = Instant::now();
    let mut last = String::new();
    loop {
        match probe().await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(failure) => last = format!(" ({failure:?})"),
        }
        if started.elapsed() > limit {
            let seconds = limit.as_secs();
            return Err(Failure::new(format!("after {seconds} s, still not: {what}{last}")));
        }
        // Each probe may be a kubectl, which takes its share of the processor: who waits long need not know at once.
        let pause = (started.elapsed() / 20).clamp(Duration::from_millis(100), Duration::from_secs(1));
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_read_that_breaks_off_is_made_again() -> TestResult {
        let asked = Cell::new(0);
        let breaks_off_once = async || {
            asked.set(asked.get() + 1);
            if asked.get() == 1 { Err(Failure::new("connection closed")) } else { Ok("Ready") }
        };
        assert_eq!(answered(breaks_off_once).await?, "Ready");
        assert_eq!(asked.get(), 2);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_never_comes_fails_in_the_end() {
        let began = Instant::now();
        let told = answered(async || Err::<(), _>(Failure::new("connection refused"))).await;
        assert!(format!("{told:?}").contains("connection refused"), "{told:?}");
        let took = began.elapsed();
        assert!((ASKS_AGAIN..ASKS_AGAIN + Duration::from_secs(1)).contains(&took), "{took:?}");
    }
}
