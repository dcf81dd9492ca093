//! Whole upgrades of real nodes: kubelets, containerd and kubeadm, with Evenkeel as its own Deployment from its own image,
//! under its shipped roles and admission policies, with its shipped executors.
//!
//! These tests take minutes each and need root, so they are a group of their own: `make e2e-real`. On a machine that
//! cannot run real nodes they fail with the line that says what is missing.

mod binaries;
mod cluster;
mod drains;
mod executors;
mod people;
mod person;
mod power;
mod probe;
mod report;
mod story;
mod table;
mod troubles;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cluster::Real;
use evenkeel_devcluster::lab::Lab;
use evenkeel_devcluster::{Failure, TestResult};
use evenkeel_testkit::observer::{self, Observer, Seen};
use evenkeel_testkit::requests::{self, Cost, Requests};
use evenkeel_testkit::scenario::{FROM, OPERATOR_USER, TO, answered, root, until};
use evenkeel_testkit::watched::Watched as _;
use evenkeel_testkit::working::idle_evictions;
use k8s_openapi::jiff::Timestamp;
use probe::Probe;
use serde_json::Value;
use story::Story;
use table::{Figures, Left, left_workers};

/// Set within the cluster: the image for executors.
const TOOLS: &str = "EVENKEEL_TEST_TOOLS";
/// And the name of the cluster.
const CLUSTER: &str = "EVENKEEL_TEST_CLUSTER";

/// So long the upgrade of three control planes and two workers may take.
const UPGRADE_LIMIT: Duration = Duration::from_mins(15);

/// A controller of kubeadm renews its lease every two seconds.
const RENEWS_WITHIN: Duration = Duration::from_secs(6);

/// So often the status of an upgrade of five nodes may be written.
const STATUSES: usize = 100;

/// So often it may be written in a second while workers move.
const STATUSES_A_SECOND: f64 = 1.0;

/// Both workers' time in seconds in which no pod leaves and no executor works: claims, and the wait for a cordon to be seen.
const OWN_TIME: f64 = 10.0;

/// Where the pods are that a budget holds together is the scheduler's choice, and so is part of the time that they take.
const CHANCE: f64 = 1.25;

/// From the end of a worker's Job until the node is called upgraded: its kubelet has reported, and `DaemonSets` are back.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

/// Runs `body` in the network of a cluster of real nodes of its own: this process starts the cluster, and the same test
/// once more within it.
fn on_real_nodes(test: &str, nodes: [&str; 4], body: impl AsyncFnOnce(&Real) -> TestResult) -> TestResult {
    if let Ok(tools) = std::env::var(TOOLS) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        return runtime.block_on(async { body(&Real::from_env(tools).await?).await });
    }
    let program = std::env::current_exe()?;
    let devcluster =
        program.ancestors().nth(2).map(|dir| dir.join("devcluster")).filter(|path| path.is_file());
    let devcluster = devcluster.ok_or_else(|| {
        Failure::new("there is no program `devcluster`; build it with `cargo build -p evenkeel-devcluster`")
    })?;
    let lab = Lab::new(devcluster, "e2e")?;
    let image = format!("evenkeel:0.1.0={}", binary().display());
    let said = lab.run("up", &[&["--real", "--image", &image], &nodes[..]].concat())?;
    print!("{said}");
    let tools = said.lines().find_map(|line| line.split_once(", also as ")).map(|(_, name)| name.trim());
    let tools =
        tools.ok_or_else(|| Failure::new("`devcluster up` does not say which image executors can use"))?;
    let again = ["--exact", test, "--include-ignored", "--nocapture"];
    let program = program.display().to_string();
    let mut inner = lab.command("shell", &[&["--", &program], &again[..]].concat());
    let status = inner.env(TOOLS, tools).env(CLUSTER, lab.name()).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("{test} failed within its cluster ({status})")))
    }
}

/// What is beside an upgrade all the time: who asks the Service, who reads, and who checks every event.
struct Beside {
    observer: Observer,
    probe: Probe,
    story: Story,
    began: Instant,
    /// The same moment, for what tells the time.
    began_at: Timestamp,
    /// How long it took what all this was beside of.
    took: OnceLock<Duration>,
}

impl Beside {
    fn new() -> Self {
        let (began, began_at) = (Instant::now(), Timestamp::now());
        // Two workers, of which one at a time may be away.
        let observer = Observer::with_limits(&[("general", 1)]).control_plane_first();
        Self {
            observer,
            probe: Probe::new(began),
            story: Story::new(began),
            began,
            began_at,
            took: OnceLock::new(),
        }
    }

    async fn during(&self, real: &Real, body: impl AsyncFnOnce() -> TestResult) -> TestResult {
        let addresses = real.addresses().await?;
        let beside = async {
            tokio::select! {
                done = body() => {
                    self.took.get_or_init(|| self.began.elapsed());
                    done
                }
                never = self.probe.ask(&addresses, 30080) => match never {},
                never = self.story.follow(real) => match never {},
            }
        };
        self.observer.during(real, beside).await
    }

    /// When that was, since the beginning.
    fn since_beginning(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.began_at)).unwrap_or_default()
    }

    fn seconds(&self) -> f64 {
        self.took.get().copied().unwrap_or_else(|| self.began.elapsed()).as_secs_f64()
    }
}

/// The upgrade of config/samples, which begins by itself.
fn sample() -> Result<String, Failure> {
    let text = std::fs::read_to_string(root("config/samples/clusterupgrade.yaml"))?;
    let automatic = text.replace("  version: v1.37.1\n", "  version: v1.37.1\n  mode: Automatic\n");
    assert_ne!(automatic, text, "the sample names its version");
    Ok(automatic)
}

/// Waits until the upgrade's Ready condition has this reason.
async fn reaches(real: &Real, reason: &str, limit: Duration) -> TestResult {
    let path = "jsonpath={.status.conditions[?(@.type=='Ready')].reason}";
    let reached = until(&format!("the upgrade is {reason}"), limit, async || {
        Ok(real.kubectl(&["get", "clusterupgrade", "prod-137", "-o", path]).await? == reason)
    })
    .await;
    if reached.is_err() {
        for args in [
            &["get", "cup,nup,nodes", "-o", "wide"][..],
            &["get", "cup", "-o", "yaml"],
            &["get", "pods", "-A", "-o", "wide"],
            &["-n", "evenkeel-system", "logs", "-l", "app.kubernetes.io/name=evenkeel", "--tail=40"],
        ] {
            eprintln!("{}", real.kubectl(args).await.unwrap_or_else(|error| format!("{error:?}")));
        }
    }
    reached
}

/// The report as the operator wrote it and as the program makes it; printed as a person reads them.
async fn reports(real: &Real, when: &str) -> Result<[Value; 2], Failure> {
    let written = real.report().await?;
    let made = real.evenkeel(&binary(), &["report", "-o", "json"]).await?;
    let columns = real.kubectl(&["get", "clusterskewreport", "-o", "wide"]).await?;
    let text = real.evenkeel(&binary(), &["report", "-o", "wide"]).await?;
    println!("--- {when}\n{columns}{text}---");
    Ok([written, serde_json::from_str(&made)?])
}

/// The reports of a cluster in which everything runs `version`.
async fn even(real: &Real, when: &str, version: &str) -> TestResult {
    let size = real.size().await?;
    // What changes is written within a second or two.
    let is_even = async || Ok(report::uneven(&real.report().await?, version, size).is_empty());
    let _late = until("the report is even", Duration::from_secs(5), is_even).await;
    let [written, made] = reports(real, when).await?;
    assert_eq!(report::uneven(&written, version, size), Vec::<String>::new(), "the operator's report {when}");
    assert_eq!(report::uneven(&made, version, size), Vec::<String>::new(), "the program's report {when}");
    assert_eq!(report::answering(&written), size.control_planes, "{}", written["apiservers"]);
    Ok(())
}

/// The reports while the control plane is on its way: where there are several of its nodes, the controllers of one are
/// newer than the kube-apiserver of another.
async fn in_the_middle(real: &Real, several: bool) -> TestResult {
    let size = real.size().await?;
    until("the report shows the upgrade of a control-plane node", Duration::from_mins(6), async || {
        let report = real.report().await?;
        let ahead = report::window([&(Duration::ZERO, report.clone())]).ahead > 0;
        let whole = report::midway(&report, FROM, TO, size).is_empty();
        Ok(whole && if several { ahead } else { report["server"] == TO })
    })
    .await?;
    let mut read = None;
    // A component that restarts in between is not seen by the second one.
    let _late = until("both reports show all of it", Duration::from_secs(20), async || {
        let both = read.insert(reports(real, "in the middle").await?);
        Ok(both.iter().all(|report| report::midway(report, FROM, TO, size).is_empty()))
    })
    .await;
    let both = read.ok_or_else(|| Failure::new("no report could be read while a node was upgraded"))?;
    let [written, made] = &both;
    assert_eq!(report::midway(written, FROM, TO, size), Vec::<String>::new(), "the operator's report");
    assert_eq!(report::midway(made, FROM, TO, size), Vec::<String>::new(), "the program's report");
    let both = both.map(|report| (Duration::ZERO, report));
    assert_eq!(report::window(&both).wrong, Vec::<String>::new());
    Ok(())
}

fn figures(requests: &Requests, beside: &Beside) {
    println!("{requests:#?}");
    let asked = beside.probe.asked();
    assert_eq!(
        asked.too_few(Duration::from_secs_f64(beside.seconds())),
        None,
        "the Service was hardly asked"
    );
    println!(
        "by Evenkeel: {:.0} s, {} requests, {} evictions, {} refused, the Service: {}",
        beside.seconds(),
        requests.by_kind.values().sum::<usize>(),
        requests.evictions,
        requests.refused,
        asked.summary()
    );
    for line in asked.losses() {
        println!("{line}");
    }
}

#[test]
#[ignore = "real nodes: a quarter of an hour, and root; run it with `make e2e-real`"]
fn three_control_planes_and_two_workers_are_brought_even() -> TestResult {
    let nodes = ["--control-planes", "3", "--workers", "2"];
    on_real_nodes("three_control_planes_and_two_workers_are_brought_even", nodes, brought_even)
}

#[test]
#[ignore = "real nodes: minutes, and root; run it with `make e2e-real`"]
fn a_single_control_plane_is_brought_even() -> TestResult {
    let nodes = ["--control-planes", "1", "--workers", "2"];
    on_real_nodes("a_single_control_plane_is_brought_even", nodes, brought_even)
}

#[test]
#[ignore = "real nodes: minutes, and root; run it with `make e2e-real`"]
fn people_are_told_and_obeyed() -> TestResult {
    on_real_nodes(
        "people_are_told_and_obeyed",
        ["--control-planes", "1", "--workers", "2"],
        people::interfere,
    )
}

#[test]
#[ignore = "real nodes: a quarter of an hour, and root; run it with `make e2e-real`"]
fn troubles_change_nothing_in_the_end() -> TestResult {
    let nodes = ["--control-planes", "1", "--workers", "2"];
    on_real_nodes("troubles_change_nothing_in_the_end", nodes, troubles::change_nothing)
}

#[test]
#[ignore = "real nodes: half an hour, and root; run it with `make e2e-real`"]
fn troubles_change_nothing_on_three_control_planes() -> TestResult {
    let nodes = ["--control-planes", "3", "--workers", "2"];
    on_real_nodes("troubles_change_nothing_on_three_control_planes", nodes, troubles::change_nothing)
}

#[test]
#[ignore = "real nodes: minutes, and root; run it with `make e2e-real`"]
fn a_drain_is_faster_and_asks_less_than_kubectls() -> TestResult {
    let nodes = ["--control-planes", "1", "--workers", "2"];
    on_real_nodes("a_drain_is_faster_and_asks_less_than_kubectls", nodes, drains::beside_each_other)
}

#[test]
#[ignore = "real nodes: minutes, and root; run it with `make e2e-real`"]
fn executors_end_well_however_often_they_run() -> TestResult {
    let nodes = ["--control-planes", "2", "--workers", "1"];
    on_real_nodes("executors_end_well_however_often_they_run", nodes, executors::end_well)
}

#[test]
#[ignore = "real nodes: minutes, and root; run it with `make e2e-real`"]
fn executors_of_k3s_and_rke2_move_their_service() -> TestResult {
    let nodes = ["--control-planes", "1", "--workers", "1"];
    on_real_nodes("executors_of_k3s_and_rke2_move_their_service", nodes, binaries::move_their_service)
}

#[test]
#[ignore = "real nodes: minutes, and root; run it with `make e2e-real`"]
fn a_person_upgrades_by_hand() -> TestResult {
    let nodes = ["--control-planes", "1", "--workers", "2"];
    on_real_nodes("a_person_upgrades_by_hand", nodes, person::upgrades_by_hand)
}

#[test]
#[ignore = "real nodes: a quarter of an hour, and root; run it with `make e2e-real`"]
fn a_person_upgrades_three_control_planes_by_hand() -> TestResult {
    let nodes = ["--control-planes", "3", "--workers", "2"];
    on_real_nodes("a_person_upgrades_three_control_planes_by_hand", nodes, person::upgrades_by_hand)
}

/// Workloads, Evenkeel, and its first report.
async fn prepared(real: &Real) -> TestResult {
    real.workloads().await?;
    real.install().await?;
    let supported = ["wait", "--for=condition=SkewSupported", "clusterskewreport/cluster", "--timeout=5s"];
    until("the report is there", Duration::from_mins(1), async || Ok(real.kubectl(&supported).await.is_ok()))
        .await
}

async fn brought_even(real: &Real) -> TestResult {
    prepared(real).await?;
    let several = real.size().await?.control_planes > 1;
    even(real, "before", FROM).await?;

    let beside = Beside::new();
    beside
        .during(real, async || {
            real.apply_text("upgrade.yaml", &sample()?).await?;
            in_the_middle(real, several).await?;
            // Before the first node is drained: a pod takes its log along.
            warned(&answered(async || real.warnings().await).await?);
            reaches(real, "Completed", UPGRADE_LIMIT).await
        })
        .await?;
    let seconds = beside.seconds();
    println!("complete after {seconds:.0} s");
    real.kubectl(&["wait", "--for=condition=Ready", "clusterupgrade/prod-137", "--timeout=5s"]).await?;
    even(real, "after", TO).await?;
    println!("{}", real.kubectl(&["get", "cup,nup,nodes", "-o", "wide"]).await?);

    let requests = beside.observer.audit(real)?;
    figures(&requests, &beside);
    let cost = requests::of_workers(&real.audit_log()?, OPERATOR_USER);
    let cost = cost.ok_or_else(|| Failure::new("the audit log shows no claim of a worker"))?;
    let left = left_workers(&real.audit_log()?, |entry| entry.user == OPERATOR_USER);
    let evenkeel = Figures {
        who: "Evenkeel",
        seconds,
        leaving_seconds: left.seconds,
        requests: requests.by_kind.values().sum(),
        evictions: requests.evictions,
        refused: requests.refused,
        asked: beside.probe.asked(),
        violations: violations(&beside.observer.seen()).len(),
    };
    let by_hand = table::print(real.size().await?, &evenkeel)?;
    judged(real, &beside, &requests).await?;
    workers_cost_little(&cost, &left, by_hand);
    told_truly(&beside, several);
    assert!(seconds < UPGRADE_LIMIT.as_secs_f64(), "the upgrade took {seconds:.0} s");
    Ok(())
}

/// What the operator says of a kube-apiserver that is away, which may be for minutes, it says once.
fn warned(warnings: &BTreeMap<String, usize>) {
    println!("warnings so far: {warnings:#?}");
    let not_asked: Vec<_> = warnings.keys().filter(|line| line.contains("not asked")).collect();
    assert!(not_asked.is_empty(), "a kube-apiserver is asked before anything is said of it: {not_asked:#?}");
    let often: Vec<_> = warnings.iter().filter(|(_, times)| **times > 2).collect();
    assert!(often.is_empty(), "said again and again: {often:#?}");
    // Two causes: no connection, and a server that starts.
    let pods: BTreeSet<_> =
        warnings.keys().filter_map(|line| line.split_once(": ")).map(|(pod, _)| pod).collect();
    let watches = warnings.keys().filter(|line| line.contains("a watch fails")).count();
    assert!(watches <= 2 * pods.len(), "{watches} of {} operators tell of their watches", pods.len());
}

/// What is wrong. Evenkeel's own replicas are not ready while they cannot see the cluster, whoever took the kube-apiserver
/// away.
fn violations(seen: &Seen) -> Vec<String> {
    let own = |line: &&String| line.starts_with("PDB evenkeel-system/evenkeel ");
    seen.violations.iter().filter(|line| !own(line)).cloned().collect()
}

/// What has to be true of an upgrade that nobody disturbed.
async fn judged(real: &Real, beside: &Beside, requests: &Requests) -> TestResult {
    assert_eq!(observer::at_rest(real, &[]).await?, Vec::<String>::new());
    let seen = beside.observer.seen();
    assert!(seen.events > 300, "the observer saw only {} events", seen.events);
    assert!(!seen.evicted.is_empty(), "the observer saw no eviction");
    assert_eq!(violations(&seen), Vec::<String>::new());
    assert_eq!(seen.waited, Vec::<String>::new());
    assert_eq!(seen.unjudged, Vec::<String>::new());
    let idle = idle_evictions(&real.audit_log()?, OPERATOR_USER, RENEWS_WITHIN);
    assert_eq!(idle, Vec::<String>::new());
    assert!(requests.leading.writes > 0, "the audit log names no pod of the operator");
    // Once a second at most, and only what changed: waits for a component, pods that leave, states.
    let statuses = requests.of("update clusterupgrades/status");
    assert!(statuses <= STATUSES, "the upgrade's status was written {statuses} times");
    let blocked = ["get", "events", "-A", "--field-selector", "reason=DrainBlocked", "-o", "name"];
    assert_eq!(real.kubectl(&blocked).await?, "", "no drain was blocked for longer than a moment");
    let noticed = beside.story.noticed_after();
    println!("after its Job each worker was called upgraded: {noticed:?}");
    assert_eq!(noticed.len(), 2, "{noticed:?}");
    let late: Vec<_> = noticed.iter().filter(|(_, after)| **after > NOTICED_WITHIN).collect();
    assert!(late.is_empty(), "a Job was seen as running for long after its end: {late:?}");
    assert_eq!(requests.refused, 0, "evictions were refused");
    // All pods behind it end properly.
    let asked = beside.probe.asked();
    assert!(asked.lost.is_empty(), "{}", asked.summary());
    Ok(())
}

/// On such a cluster, with the same Job and 24 evictions, system-upgrade-controller took for both workers 237 requests and
/// 18 refused evictions, a person with kubectl 204 and 14. So the workloads are such that both workers take as many evictions
/// here, and everything counts that Evenkeel asked meanwhile, both of its replicas' leases and probes included. Its pods must
/// not take longer to leave than a person's, who took `by_hand` seconds.
fn workers_cost_little(cost: &Cost, left: &Left, by_hand: f64) {
    let Cost { seconds, executors, all, for_upgrade, evictions, refused, statuses, kinds, moves } = cost;
    let own = seconds - executors - left.seconds - left.late;
    println!(
        "both workers: {seconds:.0} s, of which pods left for {:.0} s, a kubelet was late for {:.0} s, executors worked for \
         {executors:.0} s, and Evenkeel took {own:.1} s itself; {all} requests, {for_upgrade} of them for the upgrade: \
         {kinds:?}; {evictions} evictions, {refused} refused",
        left.seconds, left.late
    );
    for line in moves {
        println!("{line}");
    }
    let rate = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds;
    for (resource, count) in statuses {
        println!("statuses of {resource}: {count}, {:.2} a second", rate(*count));
        let most = if resource == "clusterupgrades" { STATUSES_A_SECOND } else { STATUSES_A_SECOND / 2.0 };
        assert!(rate(*count) <= most, "the status of {resource} was written {count} times");
    }
    // Where CoreDNS and Evenkeel's own pods begin is the scheduler's choice: none of them need be on a worker.
    assert!((20..=27).contains(evictions), "both workers took {evictions} evictions");
    assert_eq!(*refused, 0, "evictions were refused");
    let leaving = left.seconds;
    assert!(
        leaving < by_hand * CHANCE,
        "the workers' pods left within {leaving:.0} s, by hand {by_hand:.0} s"
    );
    assert!(own < OWN_TIME, "for both workers Evenkeel took {own:.1} s besides");
    assert!(all * 24 < 204 * evictions, "both workers took {all} requests");
}

/// What has to be true of everything that a person could read meanwhile.
fn told_truly(beside: &Beside, several: bool) {
    let said = |what: &str| beside.story.of(what);
    let wrong: Vec<_> = said("report").into_iter().filter(|said| said.starts_with("False")).collect();
    assert!(wrong.is_empty(), "the report calls an upgrade a violation: {wrong:?}");
    let told = beside.story.told();
    let half_true: Vec<_> = told.lines.iter().filter(|(.., said)| said.contains("can never")).collect();
    assert!(half_true.is_empty(), "no budget is impossible: {half_true:?}");
    let stalled: Vec<_> = said("stalled").into_iter().filter(|said| said.starts_with("True")).collect();
    assert!(stalled.is_empty(), "nobody was needed: {stalled:?}");

    let window = report::window(&told.reports);
    println!("{} reports of {} showed controllers ahead of another node", window.ahead, told.reports.len());
    assert_eq!(window.wrong, Vec::<String>::new());
    assert!(!several || window.ahead > 0, "no report showed the window in which controllers are ahead");
    println!("{} statuses were compared with what runs", told.compared);
    assert!(told.compared > 20, "only {} statuses were compared with what runs", told.compared);
    assert_eq!(told.untrue, BTreeSet::new());
    assert_eq!(beside.story.stages_gone_back(), Vec::<String>::new());
    let restarts = || told.lines.iter().filter(|(_, what, _)| what.starts_with("restarts of "));
    assert!(restarts().count() > 1, "nobody looked at the operator's pods");
    let restarted: Vec<_> = restarts().filter(|(.., restarts)| restarts != "0").collect();
    assert!(restarted.is_empty(), "the operator's containers were restarted: {restarted:?}");
}
