//! Real nodes are what they say they are: kubelets that run containers, budgets that hold, an upgrade from within, and
//! nothing left on the machine afterwards, however the cluster ended.
//!
//! These tests take minutes and need root with `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`, cgroup v1 and a Debian, so they are a
//! group of their own: `make e2e-real`. On a machine that cannot run real nodes they fail, with the line that says what
//! is missing; they never pass without having looked.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use evenkeel_devcluster::lab::{self, said};
use evenkeel_devcluster::real::OWNER;
use evenkeel_devcluster::{Failure, TestResult, V1_36, V1_37};
use serde_json::Value;

/// A cluster of one test, and what the machine was like before it.
struct Lab {
    lab: lab::Lab,
    before: Machine,
}

/// Its commands.
impl Deref for Lab {
    type Target = lab::Lab;

    fn deref(&self) -> &lab::Lab {
        &self.lab
    }
}

impl Lab {
    fn new(name: &str) -> Result<Self, Failure> {
        Ok(Self { lab: lab::Lab::new(env!("CARGO_BIN_EXE_devcluster"), name)?, before: Machine::look()? })
    }

    fn kubectl(&self, args: &[&str]) -> Result<String, Failure> {
        self.run("shell", &[&["--", "kubectl"], args].concat())
    }

    fn json(&self, args: &[&str]) -> Result<Value, Failure> {
        Ok(serde_json::from_str(&self.kubectl(&[args, &["-o", "json"]].concat())?)?)
    }

    fn apply(&self, name: &str, text: &str) -> TestResult {
        let path = self.records().join(name);
        fs::write(&path, text)?;
        self.kubectl(&["apply", "-f", &path.display().to_string()]).map(drop)
    }

    /// Asks for the eviction of a pod; the API's answer, whatever it is.
    fn evict(&self, pod: &str) -> Result<Output, Failure> {
        let path = self.records().join("eviction.json");
        let body = format!(
            r#"{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"{pod}","namespace":"default"}}}}"#
        );
        fs::write(&path, body)?;
        let url = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
        let path = path.display().to_string();
        Ok(self.command("shell", &["--", "kubectl", "create", "--raw", &url, "-f", &path]).output()?)
    }

    /// Starts a cluster in the background and waits until a node of it runs processes.
    fn start_up(&self) -> Result<Child, Failure> {
        self.start_up_of(std::process::id())
    }

    /// The same of a cluster that ends with the process of this number.
    fn start_up_of(&self, owner: u32) -> Result<Child, Failure> {
        let child = self
            .command("up", &["--real", "--workers", "0"])
            .env(OWNER, owner.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        wait("a node to run", Duration::from_mins(2), || Ok(self.cgroup_processes() > 4))?;
        Ok(child)
    }

    /// The numbers on record: the process that keeps the cluster, and process 1 of its namespaces.
    fn processes(&self) -> Result<(u64, u64), Failure> {
        let path = self.records().join("evenkeel-devcluster").join(self.name()).join("processes.json");
        let record: Value = serde_json::from_slice(&fs::read(path)?)?;
        let pid = |key: &str| record[key]["pid"].as_u64().ok_or_else(|| Failure::new("no process on record"));
        Ok((pid("outer")?, pid("inner")?))
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        folders_called(
            Path::new("/sys/fs/cgroup"),
            &format!("evenkeel-devcluster-{}", self.name()),
            &mut found,
        );
        found
    }

    fn cgroup_processes(&self) -> usize {
        fn count(folder: &Path) -> usize {
            let own = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default().lines().count();
            let below = fs::read_dir(folder).into_iter().flatten().flatten().filter(|e| e.path().is_dir());
            own + below.map(|e| count(&e.path())).sum::<usize>()
        }
        self.cgroups().iter().map(|folder| count(folder)).max().unwrap_or(0)
    }

    /// Fails if anything of this cluster is still there.
    fn nothing_is_left(&self) -> TestResult {
        let mut left: Vec<String> = self.cgroups().iter().map(|p| p.display().to_string()).collect();
        left.extend(processes_with(self.name()));
        let records = self.records().join("evenkeel-devcluster");
        left.extend(records.exists().then(|| records.display().to_string()));
        let scratch = fs::read_dir("/dev/shm")?.flatten().map(|e| e.path().display().to_string());
        left.extend(scratch.filter(|path| path.contains("devcluster-")));
        let after = Machine::look()?;
        left.extend(after.mounts.iter().filter(|m| !self.before.mounts.contains(m)).cloned());
        left.extend(after.links.iter().filter(|l| !self.before.links.contains(l)).cloned());
        if !left.is_empty() {
            return Err(Failure::new(format!("left behind: {}", left.join(", "))));
        }
        if after.sysctls != self.before.sysctls {
            return Err(Failure::new(format!(
                "the machine's sysctls were {:?} and are {:?}",
                self.before.sysctls, after.sysctls
            )));
        }
        Ok(())
    }
}

/// What a cluster could leave on the machine, or change about it.
struct Machine {
    mounts: Vec<String>,
    links: Vec<String>,
    sysctls: BTreeMap<&'static str, String>,
}

impl Machine {
    fn look() -> Result<Self, Failure> {
        const SYSCTLS: [&str; 8] = [
            "kernel/keys/root_maxbytes",
            "kernel/keys/root_maxkeys",
            "kernel/panic",
            "kernel/panic_on_oops",
            "net/ipv4/ip_forward",
            "net/ipv4/conf/all/route_localnet",
            "vm/overcommit_memory",
            "vm/panic_on_oom",
        ];
        let mounts = fs::read_to_string("/proc/self/mounts")?.lines().map(str::to_owned).collect();
        let links = fs::read_dir("/sys/class/net")?.flatten();
        let links = links.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        let read = |name| Some((name, fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?));
        Ok(Self { mounts, links, sysctls: SYSCTLS.into_iter().filter_map(read).collect() })
    }
}

fn folders_called(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        if entry.file_name() == name {
            found.push(entry.path());
        } else {
            folders_called(&entry.path(), name, found);
        }
    }
}

fn processes_with(word: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|e| e.file_name() != own.as_str())
        .filter_map(|e| {
            Some((e.path(), String::from_utf8_lossy(&fs::read(e.path().join("cmdline")).ok()?).into_owned()))
        })
        .filter(|(_, line)| line.contains(word))
        .map(|(path, line)| format!("{}: {}", path.display(), line.replace('\0', " ")))
        .collect()
}

fn wait(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool, Failure>) -> TestResult {
    let started = Instant::now();
    let mut last = String::new();
    while started.elapsed() < limit {
        match done() {
            Ok(true) => {
                println!("{what}: after {:.1} s", started.elapsed().as_secs_f64());
                return Ok(());
            }
            Ok(false) => last.clear(),
            // The API goes away while its own node is upgraded.
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    Err(Failure::new(format!("waited {} s for {what}, in vain; {last}", limit.as_secs())))
}

fn kill(pid: u64) -> TestResult {
    said(&Command::new("kill").args(["-9", &pid.to_string()]).output()?, "kill -9").map(drop)
}

/// The names and versions of the nodes that are Ready.
fn ready(lab: &Lab) -> Result<BTreeMap<String, String>, Failure> {
    let nodes = lab.json(&["get", "nodes"])?;
    let items = nodes["items"].as_array().cloned().unwrap_or_default();
    let is_ready = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|c| c.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pair =
        |node: &Value| (text(&node["metadata"]["name"]), text(&node["status"]["nodeInfo"]["kubeletVersion"]));
    Ok(items.iter().filter(is_ready).map(pair).collect())
}

/// The containers of the workload that run, by pod.
fn containers(lab: &Lab) -> Result<BTreeMap<String, String>, Failure> {
    let pods = lab.json(&["get", "pods", "-l", "app=web"])?;
    let items = pods["items"].as_array().cloned().unwrap_or_default();
    let running = items.iter().filter(|pod| {
        pod["metadata"]["deletionTimestamp"].is_null()
            && pod["status"]["containerStatuses"][0]["ready"] == true
    });
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(running
        .map(|pod| {
            (text(&pod["metadata"]["name"]), text(&pod["status"]["containerStatuses"][0]["containerID"]))
        })
        .collect())
}

#[test]
#[ignore = "real nodes: minutes, and root; run it with `make e2e-real`"]
fn a_real_cluster_is_upgraded_from_within() -> TestResult {
    let lab = Lab::new("e2e-real")?;
    print!("{}", lab.run("up", &["--real", "--control-planes", "1", "--workers", "1"])?);
    let old = V1_36.version().to_owned();
    let both = |version: &str| {
        ["cp-1", "worker-1"]
            .map(|name| (name.to_owned(), version.to_owned()))
            .into_iter()
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(ready(&lab)?, both(&old));

    budget_holds(&lab)?;
    let before = containers(&lab)?;
    let job = |name: &str, node: &str, step: &str| {
        include_str!("upgrade-job.yaml")
            .replace("@NAME@", name)
            .replace("@NODE@", node)
            .replace("@STEP@", step)
            .replace("@TO@", V1_37.version())
    };
    // The control plane first: no kubelet may be newer than its apiserver.
    upgrade(
        &lab,
        "control-plane",
        "cp-1",
        &job("control-plane", "cp-1", &format!("apply -y {}", V1_37.version())),
    )?;
    upgrade(&lab, "worker", "worker-1", &job("worker", "worker-1", "node"))?;
    assert_eq!(ready(&lab)?, both(V1_37.version()));
    assert_eq!(containers(&lab)?, before, "an upgrade of the kubelet restarts no container");
    // The Job ran on a node whose service proxy had just been exchanged.
    services_answer(&lab)?;
    packages_are_found_again(&lab)?;

    let started = Instant::now();
    lab.run("down", &[])?;
    println!("down: after {:.1} s", started.elapsed().as_secs_f64());
    lab.nothing_is_left()
}

#[test]
#[ignore = "real nodes: minutes, and root; run it with `make e2e-real`"]
fn three_control_planes_outlive_the_loss_of_one() -> TestResult {
    let lab = Lab::new("e2e-three")?;
    print!("{}", lab.run("up", &["--real", "--control-planes", "3", "--workers", "0"])?);
    assert_eq!(ready(&lab)?.into_keys().collect::<Vec<_>>(), ["cp-1", "cp-2", "cp-3"]);
    let members = lab.json(&["get", "pods", "-n", "kube-system", "-l", "component=etcd"])?;
    assert_eq!(members["items"].as_array().map(Vec::len), Some(3));
    // Without its kubelet nobody starts the apiserver again.
    let script = "systemctl stop kubelet && pkill -9 kube-apiserver && pkill -9 etcd";
    lab.run("shell", &["--node", "cp-1", "--", "sh", "-c", script])?;
    for _ in 0..10 {
        lab.json(&["get", "nodes"])?;
    }
    wait("the lost node to be noticed", Duration::from_mins(2), || Ok(ready(&lab)?.len() == 2))?;
    lab.run("down", &[])?;
    lab.nothing_is_left()
}

/// Real kubelets end real containers, and the budget counts them until they are gone.
fn budget_holds(lab: &Lab) -> TestResult {
    lab.apply("web.yaml", include_str!("web-real.yaml"))?;
    wait("two pods to be ready", Duration::from_mins(1), || Ok(containers(lab)?.len() == 2))?;
    wait("the budget to be counted", Duration::from_secs(30), || {
        Ok(lab.json(&["get", "pdb", "web"])?["status"]["disruptionsAllowed"] == 1)
    })?;
    let pods: Vec<_> = containers(lab)?.into_keys().collect();
    said(&lab.evict(&pods[0])?, "evicting the first pod")?;
    let refused = lab.evict(&pods[1])?;
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("violate the pod's disruption budget"), "{error}");
    wait("the second eviction to be allowed", Duration::from_mins(1), || {
        Ok(lab.evict(&pods[1])?.status.success())
    })?;
    wait("two other pods to be ready", Duration::from_mins(1), || {
        let now = containers(lab)?;
        Ok(now.len() == 2 && !pods.iter().any(|old| now.contains_key(old)))
    })
}

/// The Service of the API, from both nodes, also after a service proxy has begun anew with the rules of the one before.
fn services_answer(lab: &Lab) -> TestResult {
    let answers = || {
        ["cp-1", "worker-1"].iter().try_for_each(|node| {
            let script = "timeout 3 bash -c '</dev/tcp/10.96.0.1/443'";
            lab.run("shell", &["--node", node, "--", "sh", "-c", script]).map(drop)
        })
    };
    answers()?;
    lab.kubectl(&["-n", "kube-system", "delete", "pods", "-l", "k8s-app=kube-proxy"])?;
    lab.kubectl(&["-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=60s"])?;
    // What it is going to do with old rules it does at once.
    std::thread::sleep(Duration::from_secs(3));
    answers()
}

/// Jobs may run more than once on a node.
fn packages_are_found_again(lab: &Lab) -> TestResult {
    for _ in 0..3 {
        let script = "apt-get update >/dev/null 2>&1; apt-cache madison kubelet";
        let found = lab.run("shell", &["--node", "worker-1", "--", "sh", "-c", script])?;
        assert!(found.contains(V1_37.version().trim_start_matches('v')), "{found}");
    }
    Ok(())
}

fn upgrade(lab: &Lab, name: &str, node: &str, job: &str) -> TestResult {
    lab.apply("job.yaml", job)?;
    let done = format!("{node} to run {} and its Job to be complete", V1_37.version());
    let upgraded = wait(&done, Duration::from_mins(12), || {
        let complete = lab.json(&["get", "job", name])?["status"]["succeeded"] == 1;
        Ok(complete && ready(lab)?.get(node).is_some_and(|version| version == V1_37.version()))
    });
    if upgraded.is_err() {
        println!("{}", lab.kubectl(&["logs", &format!("job/{name}"), "--tail=40"])?);
    }
    upgraded
}

#[test]
#[ignore = "real nodes: root; run it with `make e2e-real`"]
fn nothing_is_left_when_the_cluster_is_killed() -> TestResult {
    let lab = Lab::new("e2e-killed")?;
    let mut up = lab.start_up()?;
    let (_, inner) = lab.processes()?;
    kill(inner)?;
    // Whoever keeps the cluster notices by itself, and `up` says that it failed.
    assert!(!up.wait()?.success());
    lab.nothing_is_left()
}

#[test]
#[ignore = "real nodes: root; run it with `make e2e-real`"]
fn nothing_is_left_when_who_began_it_is_gone() -> TestResult {
    let lab = Lab::new("e2e-owned")?;
    let mut owner = Command::new("sleep").arg("600").spawn()?;
    let mut up = lab.start_up_of(owner.id())?;
    owner.kill()?;
    owner.wait()?;
    assert!(!up.wait()?.success());
    lab.nothing_is_left()
}

#[test]
#[ignore = "real nodes: root; run it with `make e2e-real`"]
fn nothing_is_left_when_its_keeper_is_killed_too() -> TestResult {
    let lab = Lab::new("e2e-kept")?;
    let mut up = lab.start_up()?;
    let (outer, _) = lab.processes()?;
    up.kill()?;
    up.wait()?;
    kill(outer)?;
    wait("every process to be dead", Duration::from_secs(20), || Ok(lab.cgroup_processes() == 0))?;
    assert!(!lab.cgroups().is_empty(), "nobody was there to remove the cgroups");
    lab.run("down", &[])?;
    lab.nothing_is_left()
}

/// Not in the group of the others: it needs nothing of a machine, and says what each lacks.
#[test]
fn a_machine_that_cannot_is_told_why_in_one_line() -> TestResult {
    let lab = Lab::new("e2e-cannot")?;
    let output = if fs::read_to_string("/proc/self/status")?.contains("\nUid:\t0\t") {
        let program = env!("CARGO_BIN_EXE_devcluster");
        let drop =
            ["--bounding-set", "-net_admin,-sys_admin", "--", program, "up", "--real", "--name", lab.name()];
        Command::new("setpriv").args(drop).env("XDG_RUNTIME_DIR", lab.records()).output()?
    } else {
        lab.command("up", &["--real"]).output()?
    };
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(error.contains("CAP_NET_ADMIN, CAP_SYS_ADMIN") || error.contains("root"), "{error}");
    assert_eq!(error.trim().lines().count(), 1, "{error}");
    lab.nothing_is_left()
}
