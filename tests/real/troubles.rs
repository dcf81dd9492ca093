//! What goes wrong on real machines while they are upgraded: operators that die or stand still, power that fails, a package
//! manager that is killed half-way, a package that does not exist.
//!
//! Here belong the troubles and the upgrade that has them; who watches it meanwhile is in `main`. Every trouble is seen to
//! have happened: one that never came fails the test.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Failure, TestResult};
use evenkeel_testkit::observer::{self, Noted};
use evenkeel_testkit::scenario::{OPERATOR_USER, until};
use evenkeel_testkit::watched::Watched as _;
use evenkeel_testkit::working::idle_evictions;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::cluster::Real;
use crate::power::{self, Busy, Outage};
use crate::probe::PATIENCE;
use crate::{Beside, RENEWS_WITHIN, figures, prepared, reaches, report, sample};

/// A version that no package has.
const MISSING: &str = "v1.37.9";
/// Between two deaths of all operators.
const OPERATORS_LIVE: Duration = Duration::from_secs(20);
/// So long the leader stands still: longer than its lease lasts, and shorter than its liveness probe takes to notice.
const FROZEN: Duration = Duration::from_secs(19);
/// After so long without an answer nobody can tell whether a kill was one.
const ANSWERS: Duration = Duration::from_secs(15);
/// On average they are killed at least this often, also where the only kube-apiserver is away for two minutes.
const KILLED_WITHIN: Duration = Duration::from_mins(1);
/// So many requests may be lost while no machine is off: two seconds' worth of them. Once, all of 1.4 s were, while every
/// operator was killed and the control plane was upgraded.
const LOST_BESIDE: usize = 40;
/// Time for the upgrade to come to where the next trouble waits for it.
const LIMIT: Duration = Duration::from_mins(25);

/// A version that no package has while the leader stands still, a kubeadm that refuses the right one, then nothing in its
/// way but that operators die and machines fail.
pub async fn change_nothing(real: &Real) -> TestResult {
    prepared(real).await?;
    let several = real.size().await?.control_planes > 1;
    let beside = Beside::new();
    let mut outages = Vec::new();
    let mut kills = Kills::default();
    beside
        .during(real, async || {
            package_is_missing(real).await?;
            kubeadm_refuses(real).await?;
            // What failed is tried again when a person says so.
            real.kubectl(&["delete", "nodeupgrades", "--all"]).await?;
            let all = async {
                let failed = machines_fail(real, &beside, several);
                let complete = reaches(real, "Completed", Duration::from_mins(35));
                tokio::try_join!(failed, complete).map(|(outages, ())| outages)
            };
            let began = Instant::now();
            outages = tokio::select! {
                done = all => done?,
                never = kills.go_on(real) => match never {},
            };
            kills.lasted = began.elapsed();
            Ok(())
        })
        .await?;
    println!("complete after {:.0} s", beside.seconds());
    println!("{}", real.kubectl(&["get", "cup,nup,nodes", "-o", "wide"]).await?);
    judged(real, &beside, &outages).await?;
    kills.judged();
    Ok(())
}

/// What has to be true however many machines failed; what a failed machine does itself is excused for its time.
async fn judged(real: &Real, beside: &Beside, outages: &[Outage]) -> TestResult {
    let requests = beside.observer.audit(real)?;
    figures(&requests, beside);
    assert_eq!(observer::at_rest(real, &[]).await?, Vec::<String>::new());
    let deaths = requests.leading.changes;
    assert!(deaths > 5, "the lease changed hands only {deaths} times");
    println!("without power: {outages:?}");

    let seen = beside.observer.seen();
    let since = |noted: &Noted| beside.since_beginning(noted.at);
    assert_eq!(inexcusable(&seen.noted, since, outages), Vec::<String>::new());
    assert_eq!(inexcusable(&seen.waits, since, outages), Vec::<String>::new());
    assert_eq!(seen.unjudged, Vec::<String>::new());
    let idle = idle_evictions(&real.audit_log()?, OPERATOR_USER, RENEWS_WITHIN);
    assert_eq!(idle, Vec::<String>::new());

    let told = beside.story.told();
    println!("{} statuses were compared with what runs", told.compared);
    assert!(told.compared > 20, "only {} statuses were compared with what runs", told.compared);
    assert_eq!(told.untrue, BTreeSet::new());
    let violations = beside.story.of("report").into_iter().filter(|said| said.starts_with("False"));
    assert_eq!(violations.collect::<Vec<_>>(), Vec::<String>::new(), "the report calls troubles a violation");
    assert_eq!(report::window(&told.reports).wrong, Vec::<String>::new());

    let lost = beside.probe.asked().lost;
    let excused = |at: &Duration| outages.iter().any(|outage| outage.excuses(*at, *at + PATIENCE));
    let inexcusable: Vec<_> = lost.iter().filter(|(at, ..)| !excused(at)).collect();
    println!("{} of {} requests were lost while no machine was off", inexcusable.len(), lost.len());
    assert!(inexcusable.len() <= LOST_BESIDE, "{inexcusable:#?}");
    Ok(())
}

/// What no outage excuses. A machine without power takes its pods along, whatever their budgets say; and Evenkeel's own
/// budget cannot hold against whoever kills all of its pods.
fn inexcusable(noted: &[Noted], since: impl Fn(&Noted) -> Duration, outages: &[Outage]) -> Vec<String> {
    let excused = |noted: &&Noted| {
        let at = since(noted);
        let off = || outages.iter().any(|outage| outage.excuses(at, at));
        noted.line.starts_with("PDB evenkeel-system/evenkeel ") || (noted.line.starts_with("PDB ") && off())
    };
    let line = |noted: &Noted| format!("{:.0} s: {}", since(noted).as_secs_f64(), noted.line);
    noted.iter().filter(|noted| !excused(noted)).map(line).collect()
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

/// Every death of all operators.
#[derive(Default)]
struct Kills {
    lasted: Duration,
    /// How many pods each took.
    took: Vec<usize>,
    /// Pods that were killed and lived on.
    survivors: Vec<String>,
}

impl Kills {
    /// Kills every operator at once, again and again, until the future is dropped. New pods take their place.
    async fn go_on(&mut self, real: &Real) -> std::convert::Infallible {
        let kill = ["-n", "evenkeel-system", "delete", "pods", "-l", "app.kubernetes.io/name=evenkeel"];
        let hard = ["--grace-period=0", "--force", "--wait=false"];
        loop {
            tokio::time::sleep(OPERATORS_LIVE).await;
            // Where the API is away, so are they.
            let Ok(before) = lives(real).await else { continue };
            let killed = real.kubectl(&[&kill[..], &hard].concat()).await;
            if killed.is_err() || before.is_empty() {
                continue;
            }
            let began = Instant::now();
            while began.elapsed() < ANSWERS {
                if let Ok(after) = lives(real).await {
                    self.survivors.extend(before.intersection(&after).cloned());
                    self.took.push(before.len());
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }

    fn judged(&self) {
        println!("all operators were killed {} times in {:.0} s", self.took.len(), self.lasted.as_secs_f64());
        assert_eq!(self.survivors, Vec::<String>::new(), "operators were killed and lived on");
        let due = self.lasted.as_secs() / KILLED_WITHIN.as_secs();
        let took = u64::try_from(self.took.len()).unwrap_or_default();
        assert!(took > 5 && took >= due, "operators were killed {took} times: {:?}", self.took);
    }
}

/// Every life of an operator: its pod's UID, and which start of its container it is.
async fn lives(real: &Real) -> Result<BTreeSet<String>, Failure> {
    let pods: Api<Pod> = Api::namespaced(real.client(), "evenkeel-system");
    let own = ListParams::default().labels("app.kubernetes.io/name=evenkeel");
    let life = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let restarts: i32 = statuses.into_iter().flatten().map(|status| status.restart_count).sum();
        format!("{} {} {restarts}", pod.name_any(), pod.uid().unwrap_or_default())
    };
    Ok(pods.list(&own).await?.iter().map(life).collect())
}

/// The package manager is killed once; where there are several control-plane nodes, the power of another one fails when
/// kubeadm has begun to replace its static pods; then the power of one worker fails while it is drained, and that of the
/// other while its executor works.
async fn machines_fail(real: &Real, beside: &Beside, several: bool) -> Result<Vec<Outage>, Failure> {
    let mut outages = Vec::new();
    dpkg_is_killed().await?;
    println!("       dpkg was killed");
    if several {
        let broken = given(real, "kube-apiserver", "Upgrading", "").await?;
        let node = given(real, "kube-apiserver", "Upgrading", &broken).await?;
        Busy::Upgrading.begins(real, &node).await?;
        kubeadm_replaces(real, &node).await?;
        outages.push(power::fails(real, beside, &node, Busy::Upgrading).await?);
    }
    let first = given(real, "kubelet", "Draining", "").await?;
    Busy::Draining.begins(real, &first).await?;
    outages.push(power::fails(real, beside, &first, Busy::Draining).await?);
    let second = given(real, "kubelet", "Upgrading", &first).await?;
    Busy::Upgrading.begins(real, &second).await?;
    outages.push(power::fails(real, beside, &second, Busy::Upgrading).await?);
    Ok(outages)
}

/// Waits until kubeadm has changed a manifest of a static pod on this node.
async fn kubeadm_replaces(real: &Real, node: &str) -> TestResult {
    let manifests = async || -> Result<String, Failure> {
        let look = "sha256sum /etc/kubernetes/manifests/*";
        crate::executors::on_node(real, node, look).await
    };
    let before = manifests().await?;
    until(&format!("kubeadm replaces a static pod of {node}"), LIMIT, async || {
        Ok(manifests().await? != before)
    })
    .await
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

/// Waits for a claim in this state, of a worker where it is one of a kubelet, and of another node than `except`; the node.
async fn given(real: &Real, component: &str, state: &str, except: &str) -> Result<String, Failure> {
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        let claims = real.claims().await.unwrap_or_default().into_iter();
        let mut nodes =
            claims.filter(|c| c.component == component && c.state == state).map(|claim| claim.node);
        let is = |node: &String| node != except && (component != "kubelet" || node.starts_with("worker"));
        if let Some(node) = nodes.find(is) {
            return Ok(node);
        }
        // What comes next lasts some seconds only.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(Failure::new(format!("the {component} of no node but {except:?} is ever {state}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_breaks_before_a_machine_fails_is_not_excused() {
        let noted =
            |line: &str| vec![Noted { at: k8s_openapi::jiff::Timestamp::UNIX_EPOCH, line: line.to_owned() }];
        let outages = [Outage { from: Duration::from_secs(100), until: Duration::from_secs(130) }];
        let left = |line: &str, second| inexcusable(&noted(line), |_| Duration::from_secs(second), &outages);
        assert_eq!(left("PDB shop/web is violated", 110), Vec::<String>::new());
        assert_eq!(left("PDB shop/web is violated", 99), ["99 s: PDB shop/web is violated"]);
        assert_eq!(left("PDB shop/web is violated", 131).len(), 1);
        assert_eq!(left("worker-1 is called upgraded: v1.36.4, ready true", 110).len(), 1);
        assert_eq!(left("PDB evenkeel-system/evenkeel is violated", 10), Vec::<String>::new());
    }

    #[test]
    fn a_kill_that_nobody_died_of_fails() {
        let judged = |took: usize, survivors: &[&str]| {
            let survivors = survivors.iter().map(ToString::to_string).collect();
            let kills = Kills { lasted: Duration::from_mins(10), took: vec![2; took], survivors };
            std::panic::catch_unwind(|| kills.judged()).is_ok()
        };
        assert!(judged(20, &[]));
        assert!(!judged(20, &["evenkeel-1 uid 0"]));
        assert!(!judged(9, &[]), "not even once a minute");
    }
}
