//! What goes wrong on real machines while they are upgraded: operators that die, power that fails, a package manager that
//! is killed half-way, a package that does not exist.

use std::time::Duration;

use evenkeel_devcluster::control::{self, Order};
use evenkeel_devcluster::session::Session;
use evenkeel_devcluster::{Failure, TestResult};
use evenkeel_testkit::scenario::until;
use evenkeel_testkit::standin::node_upgrades;
use evenkeel_testkit::watched::Watched as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::cluster::Real;

/// Between two deaths of all operators.
const OPERATORS_LIVE: Duration = Duration::from_secs(20);
/// So many seconds a machine without power is away.
const AWAY: u64 = 10;
/// Time for the upgrade to come to where the next trouble waits for it.
const LIMIT: Duration = Duration::from_mins(12);

/// Kills every operator at once, again and again, until the future is dropped. New pods take their place.
pub async fn operators_die(real: &Real) -> std::convert::Infallible {
    let kill = ["-n", "evenkeel-system", "delete", "pods", "-l", "app.kubernetes.io/name=evenkeel"];
    let hard = ["--grace-period=0", "--force", "--wait=false"];
    loop {
        tokio::time::sleep(OPERATORS_LIVE).await;
        // Where the API is away, so are they.
        let _killed = real.kubectl(&[&kill[..], &hard].concat()).await;
    }
}

/// The package manager is killed once; then the power of one worker fails while it is drained, and that of the other while
/// its executor works.
pub async fn machines_fail(real: &Real, cluster: &str) -> TestResult {
    dpkg_is_killed().await?;
    println!("       dpkg was killed");
    let first = worker_that(real, "Draining", &[]).await?;
    power_fails(real, cluster, &first).await?;
    let second = worker_that(real, "Upgrading", &[&first]).await?;
    power_fails(real, cluster, &second).await
}

/// Kills the first process of the package manager that unpacks something, on any node: all of them can be seen from here.
async fn dpkg_is_killed() -> TestResult {
    let began = std::time::Instant::now();
    while began.elapsed() < LIMIT {
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            if command.starts_with("/usr/bin/dpkg ") && command.contains("--unpack") {
                let pid = entry.file_name().to_string_lossy().into_owned();
                let killed = tokio::process::Command::new("kill").args(["-9", &pid]).status().await?;
                if killed.success() {
                    return Ok(());
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(Failure::new("no package was ever unpacked"))
}

/// Waits for a worker whose claim is in this state; its name.
async fn worker_that(real: &Real, state: &str, except: &[&str]) -> Result<String, Failure> {
    let claims = node_upgrades(real.client());
    let mut found = None;
    until(&format!("a worker is {state}"), LIMIT, async || {
        let all = claims.list(&ListParams::default()).await?.items;
        let of_worker = all.iter().filter(|claim| claim.data["status"]["state"] == state);
        let names = of_worker.filter_map(|claim| claim.data["spec"]["nodeName"].as_str());
        found = names.filter(|name| name.starts_with("worker") && !except.contains(name)).map(str::to_owned).next();
        Ok(found.is_some())
    })
    .await?;
    found.ok_or_else(|| Failure::new("nothing was found"))
}

/// Without power for some seconds; afterwards the machine has another boot id.
async fn power_fails(real: &Real, cluster: &str, node: &str) -> TestResult {
    let boot_id = async || {
        let read = Api::<Node>::all(real.client()).get(node).await?;
        let info = read.status.as_ref().and_then(|status| status.node_info.as_ref());
        Ok::<_, Failure>(info.map(|info| info.boot_id.clone()).unwrap_or_default())
    };
    let before = boot_id().await?;
    let socket = Session::named(cluster)?.socket();
    let order = Order::PowerCycle { node: node.to_owned(), away: AWAY };
    tokio::task::spawn_blocking(move || control::send(&socket, &order)).await??;
    println!("       the power of {node} failed for {AWAY} s");
    until(&format!("{node} has another boot id"), Duration::from_mins(2), async || Ok(boot_id().await? != before)).await
}

/// The images of all static pods and the versions of all kubelets, in one line.
pub async fn what_runs(real: &Real) -> Result<String, Failure> {
    let pods = ["-n", "kube-system", "get", "pods", "-l", "tier=control-plane"];
    let images = ["-o", "jsonpath={.items[*].spec.containers[*].image}"];
    let images = real.kubectl(&[&pods[..], &images].concat()).await?;
    let nodes = Api::<Node>::all(real.client()).list(&ListParams::default()).await?;
    let kubelet = |node: &Node| {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        format!("{} {}", node.name_any(), info.map(|info| info.kubelet_version.clone()).unwrap_or_default())
    };
    let kubelets: Vec<_> = nodes.iter().map(kubelet).collect();
    Ok(format!("{images}; {}", kubelets.join(", ")))
}
