//! What goes wrong on real machines while they are upgraded: operators that die or stand still, power that fails, a package
//! manager that is killed half-way, a package that does not exist.
//!
//! Here belong the troubles and the upgrade that has them; who watches it meanwhile is in `main`. Every trouble is seen to
//! have happened: one that never came fails the test.

use std::time::{Duration, Instant};

use evenkeel_devcluster::control::{self, Order};
use evenkeel_devcluster::session::Session;
use evenkeel_devcluster::{Failure, TestResult};
use evenkeel_testkit::observer;
use evenkeel_testkit::scenario::until;
use evenkeel_testkit::watched::Watched as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::cluster::Real;
use crate::{Beside, CLUSTER, figures, prepared, reaches, sample};

/// A version that no package has.
const MISSING: &str = "v1.37.9";
/// Between two deaths of all operators.
const OPERATORS_LIVE: Duration = Duration::from_secs(20);
/// So long the leader stands still: longer than its lease lasts, and shorter than its liveness probe takes to notice.
const FROZEN: Duration = Duration::from_secs(19);
/// So many seconds a machine without power is away.
const AWAY: u64 = 10;
/// Time for the upgrade to come to where the next trouble waits for it.
const LIMIT: Duration = Duration::from_mins(25);

/// A version that no package has while the leader stands still, a kubeadm that refuses the right one, then nothing in its
/// way but that operators die and machines fail.
pub async fn change_nothing(real: &Real) -> TestResult {
    prepared(real).await?;
    let cluster = std::env::var(CLUSTER)?;
    let beside = Beside::new();
    beside
        .during(real, async || {
            package_is_missing(real).await?;
            kubeadm_refuses(real).await?;
            // What failed is tried again when a person says so.
            real.kubectl(&["delete", "nodeupgrades", "--all"]).await?;
            let all = async {
                let failed = machines_fail(real, &cluster);
                let complete = reaches(real, "Completed", Duration::from_mins(35));
                tokio::try_join!(failed, complete).map(drop)
            };
            tokio::select! {
                done = all => done,
                never = operators_die(real) => match never {},
            }
        })
        .await?;
    println!("complete after {:.0} s", beside.seconds());
    println!("{}", real.kubectl(&["get", "cup,nup,nodes", "-o", "wide"]).await?);
    let requests = beside.observer.audit(real)?;
    figures(&requests, &beside);
    assert_eq!(observer::at_rest(real, &[]).await?, Vec::<String>::new());
    // A machine without power takes its pods along, whatever their budgets say.
    let violations = beside.observer.seen().violations.into_iter().filter(|line| !line.starts_with("PDB "));
    assert_eq!(violations.collect::<Vec<_>>(), Vec::<String>::new());
    let deaths = requests.leading.changes;
    assert!(deaths > 5, "the lease changed hands only {deaths} times");
    Ok(())
}

/// The upgrade to a version that no package has fails with the executor's last words and changes nothing, also when the
/// leader stands still meanwhile and comes back after another pod has taken over.
async fn package_is_missing(real: &Real) -> TestResult {
    let before = what_runs(real).await?;
    real.apply_text("upgrade.yaml", &sample()?.replace("v1.37.1", MISSING)).await?;
    real.claimed("kube-apiserver", &["Upgrading"], LIMIT).await?;
    let frozen = real.leader().await?;
    stands_still(&frozen).await?;
    println!("       {frozen} stood still for {} s", FROZEN.as_secs());
    fails(real, "E: Version '1.37.9-*' for 'kubeadm' was not found").await?;
    assert_ne!(real.leader().await?, frozen, "nobody took over from the one that stood still");
    assert_eq!(what_runs(real).await?, before, "nothing was changed");
    Ok(())
}

/// The upgrade to the right version fails with kubeadm's last words while kubeadm lacks its configuration, and everything
/// runs on untouched.
async fn kubeadm_refuses(real: &Real) -> TestResult {
    let before = what_runs(real).await?;
    let taken = real.take_kubeadm_config().await?;
    let right = r#"{"spec":{"version":"v1.37.1"}}"#;
    real.kubectl(&["patch", "clusterupgrade", "prod-137", "--type=merge", "-p", right]).await?;
    real.kubectl(&["delete", "nodeupgrades", "--all"]).await?;
    fails(real, "kubeadm-config").await?;
    assert_eq!(what_runs(real).await?, before, "nothing was changed");
    real.apply_text("kubeadm-config.json", &taken).await
}

/// Waits until the first control-plane node has failed, with these words of its executor where a person looks: in its
/// NodeUpgrade and in the upgrade's line.
async fn fails(real: &Real, words: &str) -> TestResult {
    let failed = real.claimed("kube-apiserver", &["Failed"], LIMIT).await?;
    println!("       {}: {}", failed.node, failed.message);
    reaches(real, "ControlPlaneFailed", Duration::from_mins(1)).await?;
    let line = ["get", "cup", "prod-137", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].message}"];
    let line = real.kubectl(&line).await?;
    println!("       {line}");
    for (said, of) in [(&failed.message, "NodeUpgrade"), (&line, "ClusterUpgrade")] {
        assert!(said.contains(words), "the {of} lacks {words:?}: {said:?}");
        assert!(said.contains(&failed.node), "the {of} lacks {}: {said:?}", failed.node);
        assert_eq!(said.lines().count(), 1, "{said:?}");
    }
    Ok(())
}

/// Stops the operator of this pod where it is, for longer than its lease lasts.
async fn stands_still(pod: &str) -> TestResult {
    let identity = format!("EVENKEEL_IDENTITY={pod}");
    let found = processes(|process| {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == identity.as_bytes())
    })?;
    let [pid] = found.as_slice() else {
        return Err(Failure::new(format!("not one process has {identity}: {found:?}")));
    };
    signal("-STOP", pid).await?;
    tokio::time::sleep(FROZEN).await;
    signal("-CONT", pid).await
}

/// Kills every operator at once, again and again, until the future is dropped. New pods take their place.
async fn operators_die(real: &Real) -> std::convert::Infallible {
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
async fn machines_fail(real: &Real, cluster: &str) -> TestResult {
    dpkg_is_killed().await?;
    println!("       dpkg was killed");
    let first = worker_that(real, "Draining", "").await?;
    power_fails(real, cluster, &first).await?;
    let second = worker_that(real, "Upgrading", &first).await?;
    power_fails(real, cluster, &second).await
}

/// Kills the first process of the package manager that unpacks something, on any node: all of them can be seen from here.
async fn dpkg_is_killed() -> TestResult {
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        let unpacks = processes(|process| {
            let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            command.starts_with("/usr/bin/dpkg ") && command.contains("--unpack")
        })?;
        if let Some(pid) = unpacks.first()
            && signal("-KILL", pid).await.is_ok()
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(Failure::new("no package was ever unpacked"))
}

/// The numbers of the processes whose folder in /proc is as it has to be.
fn processes(is: impl Fn(&std::path::Path) -> bool) -> Result<Vec<String>, Failure> {
    let folders = std::fs::read_dir("/proc")?.flatten().filter(|entry| is(&entry.path()));
    Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

async fn signal(signal: &str, pid: &str) -> TestResult {
    let sent = tokio::process::Command::new("kill").args([signal, pid]).output().await?;
    evenkeel_devcluster::lab::said(&sent, &format!("kill {signal} {pid}")).map(drop)
}

/// Waits for a worker, another one than `except`, whose claim is in this state; its name.
async fn worker_that(real: &Real, state: &str, except: &str) -> Result<String, Failure> {
    let mut found = None;
    until(&format!("a worker is {state}"), LIMIT, async || {
        let claims = real.claims().await?.into_iter().filter(|claim| claim.state == state);
        found = claims.map(|claim| claim.node).find(|node| node.starts_with("worker") && node != except);
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
    until(&format!("{node} has another boot id"), Duration::from_mins(2), async || {
        Ok(boot_id().await? != before)
    })
    .await
}

/// The images of all static pods and the versions of all kubelets, in one line.
async fn what_runs(real: &Real) -> Result<String, Failure> {
    let pods = ["-n", "kube-system", "get", "pods", "-l", "tier=control-plane"];
    let images = ["-o", "jsonpath={.items[*].spec.containers[*].image}"];
    let images = real.kubectl(&[&pods[..], &images].concat()).await?;
    let nodes = Api::<Node>::all(real.client()).list(&ListParams::default()).await?;
    let kubelet = |node: &Node| {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let version = info.map(|info| info.kubelet_version.clone()).unwrap_or_default();
        format!("{} {version}", node.name_any())
    };
    let kubelets: Vec<_> = nodes.iter().map(kubelet).collect();
    Ok(format!("{images}; {}", kubelets.join(", ")))
}
