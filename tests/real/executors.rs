//! The shipped executors' scripts on real nodes, without an operator: run twice, killed on their way and run again, and with
//! a kubeadm that refuses.
//!
//! A script runs as its Job runs it, in the host's namespaces. After whatever happened, running it once more ends well; and
//! where kubeadm refuses, what ran before runs on.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Failure, TestResult, lab};
use evenkeel_testkit::scenario::{TO, root, until};
use serde_json::Value;
use tokio::process::Command;

use crate::cluster::Real;

/// What the kubelet runs as static pods.
const MANIFESTS: &str = "sha256sum /etc/kubernetes/manifests/*";

/// One run of a script, `kubeadm upgrade` included.
const LIMIT: Duration = Duration::from_mins(8);

pub async fn end_well(real: &Real) -> TestResult {
    let first = script("kubeadm/first")?;
    killed_while_it_unpacks(real, "cp-1", &first, "kubeadm").await?;
    refuses(real, &first).await?;
    killed_while_kubeadm_works(real, "cp-1", &first).await?;
    ends_well_twice(real, "cp-1", &first).await?;
    assert_eq!(real.apiserver_version("cp-1").await.as_deref(), Some(TO));

    let further = script("kubeadm/control-plane")?;
    killed_while_it_unpacks(real, "cp-2", &further, "kubeadm").await?;
    killed_while_kubeadm_works(real, "cp-2", &further).await?;
    ends_well_twice(real, "cp-2", &further).await?;
    assert_eq!(real.apiserver_version("cp-2").await.as_deref(), Some(TO));

    let worker = script("kubeadm/worker")?;
    killed_while_it_unpacks(real, "worker-1", &worker, "kubelet").await?;
    ends_well_twice(real, "worker-1", &worker).await?;
    until("the kubelet of worker-1 is upgraded", Duration::from_mins(1), async || {
        Ok(real.kubelets_at(TO).await? == 1)
    })
    .await
}

/// The script of a shipped executor, by its folder and name.
pub fn script(name: &str) -> Result<String, Failure> {
    let text = std::fs::read_to_string(root(&format!("config/executors/{name}.yaml")))?;
    let executor: Value = serde_saphyr::from_str(&text)?;
    let script = executor["spec"]["job"]["template"]["spec"]["containers"][0]["args"][0].as_str();
    script.map(str::to_owned).ok_or_else(|| Failure::new(format!("{name}.yaml has no script")))
}

/// Runs the script on a node as its Job does.
pub fn job(real: &Real, node: &str, script: &str, version: &str) -> Result<Command, Failure> {
    let mut command = real.on_node(node)?;
    command.args([&format!("EVENKEEL_TO={version}"), "/bin/sh", "-euc", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

pub async fn run(real: &Real, node: &str, script: &str, version: &str) -> Result<Output, Failure> {
    // kubeadm names a folder by the second, and no Job begins so soon after another one.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let began = Instant::now();
    let output = tokio::time::timeout(LIMIT, job(real, node, script, version)?.output()).await??;
    println!("       {node}: {} after {:.0} s", output.status, began.elapsed().as_secs_f64());
    Ok(output)
}

/// What a node runs and has installed: whatever an upgrade changes.
async fn state(real: &Real, node: &str) -> Result<String, Failure> {
    let look = "sha256sum /etc/kubernetes/manifests/*\n\
                kubelet --version\n\
                systemctl show kubelet --property=MainPID,ActiveState\n\
                ctr --namespace k8s.io tasks list --quiet | sort";
    on_node(real, node, look).await
}

pub async fn on_node(real: &Real, node: &str, script: &str) -> Result<String, Failure> {
    let output = real.on_node(node)?.args(["/bin/sh", "-euc", script]).stdin(Stdio::null()).output().await?;
    lab::said(&output, script)
}

/// kubeadm refuses while the cluster lacks its configuration: the script fails with kubeadm's last words, and everything on
/// the node runs on untouched.
async fn refuses(real: &Real, script: &str) -> TestResult {
    let taken = real.take_kubeadm_config().await?;
    let before = state(real, "cp-1").await?;
    let output = run(real, "cp-1", script, TO).await?;
    assert!(!output.status.success(), "kubeadm upgraded a cluster without its configuration");
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<_> = said.lines().rev().take(5).collect();
    assert!(last.iter().any(|line| line.contains("kubeadm-config")), "its last words are {last:#?}");
    assert_eq!(state(real, "cp-1").await?, before, "something was changed");
    real.apply_text("kubeadm-config.json", &taken).await
}

/// Kills the package manager while it unpacks this package, and so the script.
async fn killed_while_it_unpacks(real: &Real, node: &str, script: &str, package: &str) -> TestResult {
    let mut child = job(real, node, script, TO)?.spawn()?;
    let unpacks = format!("pkill -KILL -f '^/usr/bin/dpkg .*--unpack.*{package}_'");
    while on_node(real, node, &unpacks).await.is_err() {
        if let Some(ended) = child.try_wait()? {
            return Err(Failure::new(format!("the script ended ({ended}) before {package} was unpacked")));
        }
    }
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await??;
    assert!(!output.status.success(), "the script of a dpkg that was killed ended well");
    let half =
        on_node(real, node, "dpkg --audit; dpkg-query -W -f '${Package} ${Status}\\n' kubeadm kubelet")
            .await?;
    println!("       {node} after dpkg was killed: {half}");
    Ok(())
}

/// Kills kubeadm, and so the script, when it has begun to replace static pods: some of them run the new version then.
async fn killed_while_kubeadm_works(real: &Real, node: &str, script: &str) -> TestResult {
    // kubeadm names a folder by the second, and no Job begins so soon after another one.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = on_node(real, node, MANIFESTS).await?;
    let mut child = job(real, node, script, TO)?.spawn()?;
    while on_node(real, node, MANIFESTS).await? == before {
        if let Some(ended) = child.try_wait()? {
            return Err(Failure::new(format!("the script ended ({ended}) before a static pod was replaced")));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    on_node(real, node, "pkill -KILL -f '^([^ ]*/)?kubeadm upgrade '").await?;
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await??;
    assert!(!output.status.success(), "the script of a kubeadm that was killed ended well");
    println!("       {node}: kubeadm was killed after the first static pod was replaced");
    Ok(())
}

/// The script ends well, and once more without changing anything but the kubelet's process.
async fn ends_well_twice(real: &Real, node: &str, script: &str) -> TestResult {
    let mut states = Vec::new();
    for _ in 0..2 {
        let output = run(real, node, script, TO).await?;
        lab::said(&output, "the script of the executor")?;
        let held = on_node(real, node, "apt-mark showhold").await?;
        assert_eq!(
            held.split_whitespace().collect::<Vec<_>>(),
            ["kubeadm", "kubelet"],
            "{node} holds {held:?}"
        );
        let files = "sha256sum /etc/kubernetes/manifests/* 2>/dev/null || true; kubelet --version; kubeadm version -o short";
        states.push(on_node(real, node, files).await?);
    }
    assert_eq!(states.first(), states.last(), "the second run changed {node}");
    assert!(
        states.iter().all(|state| state.lines().any(|line| line == TO)),
        "kubeadm is not {TO}: {states:?}"
    );
    Ok(())
}
