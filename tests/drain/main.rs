//! The drain command on a real control plane: the real disruption controller, eviction handler and scheduler, simulated
//! kubelets. A watcher beside each test sees whether a budget ever falls below what it needs, and the audit log tells
//! what was asked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail where it stands")]

mod asks;
mod cases;
mod compare;
mod many;
mod numbers;
mod outage;
mod watcher;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use evenkeel_devcluster::{AuditEntry, Cluster, Failure, NodeGroup, TestResult, in_namespace};
use tokio::process::{Child, Command};

use watcher::Watcher;

/// The program that is tested.
fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

const USER: &str = "system:serviceaccount:ops:drainer";
const MARK: &str = "drain:";

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drain").join(file)
}

/// Somebody who may drain and has no other right, by the roles that are shipped.
async fn with_drainer(cluster: &Cluster) -> TestResult {
    cluster.apply(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/drain")).await?;
    Ok(cluster.apply(here("drainer.yaml")).await?)
}

/// A cluster with workloads, all of them healthy, and who drains it.
struct Scene {
    cluster: Cluster,
    kubeconfig: PathBuf,
}

impl Scene {
    async fn begin(workers: usize, manifest: &str) -> Result<Self, Failure> {
        let group = NodeGroup::workers(workers).pool("w").label("hard", "no");
        let cluster = Cluster::builder().nodes(group).start().await?;
        with_drainer(&cluster).await?;
        cluster.apply(here(manifest)).await?;
        let kubeconfig = cluster.service_account_kubeconfig("ops", "drainer").await?;
        Ok(Self { cluster, kubeconfig })
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String, Failure> {
        let output = self.cluster.kubectl(args).await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!("kubectl {}: {}", args.join(" "), error.trim())))
    }

    /// `kubectl` with `manifest` as its file.
    async fn with_file(&self, name: &str, manifest: &str, args: &[&str]) -> Result<String, Failure> {
        let file = self.cluster.logs().join(name);
        std::fs::write(&file, manifest).map_err(|error| Failure::new(error.to_string()))?;
        let file = file.display().to_string();
        self.kubectl(&[args, &["-f", &file]].concat()).await
    }

    async fn until(
        &self,
        what: &str,
        seconds: u64,
        mut probe: impl AsyncFnMut() -> Result<bool, Failure>,
    ) -> TestResult {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            if probe().await.unwrap_or(false) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(Failure::new(format!("not within {seconds} s: {what}")))
    }

    /// Every pod of `namespace` is ready and every budget of it whole.
    async fn settled(&self, namespace: &str, pods: usize) -> TestResult {
        self.until(&format!("{pods} pods of {namespace} are ready"), 60, async || {
            let ready = r#"{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{" "}{end}"#;
            let path = format!("jsonpath={ready}");
            let all = self.kubectl(&["get", "pods", "-n", namespace, "-o", &path]).await?;
            let numbers = "jsonpath={range .items[*]}{.status.currentHealthy}={.status.expectedPods} {end}";
            let budgets = self.kubectl(&["get", "pdb", "-n", namespace, "-o", numbers]).await?;
            let whole = budgets
                .split_whitespace()
                .all(|pair| pair.split_once('=').is_some_and(|(a, b)| a == b && a != "0"));
            Ok(all.split_whitespace().filter(|ready| *ready == "True").count() == pods && whole)
        })
        .await
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).arg("--kubeconfig").arg(&self.kubeconfig).env_remove("KUBECONFIG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn run(&self, args: &[&str]) -> Result<Ran, Failure> {
        let begun = Instant::now();
        let output = self.command(args).output().await;
        let output = output.map_err(|error| Failure::new(format!("{}: {error}", binary().display())))?;
        Ok(Ran::of(&output, begun.elapsed()))
    }

    fn start(&self, args: &[&str]) -> Result<Child, Failure> {
        self.command(args).spawn().map_err(|error| Failure::new(format!("{}: {error}", binary().display())))
    }

    /// What the drainer asked for.
    fn requests(&self) -> Result<Vec<AuditEntry>, Failure> {
        let log = self.cluster.audit_log()?;
        Ok(log.into_iter().filter(|entry| entry.user == USER).collect())
    }

    async fn on_node(&self, namespace: &str, node: &str) -> Result<Vec<String>, Failure> {
        let selector = format!("spec.nodeName={node}");
        let path = "jsonpath={range .items[*]}{.metadata.name} {end}";
        let all = self
            .kubectl(&["get", "pods", "-n", namespace, "--field-selector", &selector, "-o", path])
            .await?;
        Ok(all.split_whitespace().map(str::to_owned).collect())
    }

    async fn cordons(&self) -> Result<String, Failure> {
        let path = r#"jsonpath={range .items[?(@.spec.unschedulable==true)]}{.metadata.name} {end}"#;
        self.kubectl(&["get", "nodes", "-o", path]).await
    }
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
    took: Duration,
}

impl Ran {
    fn of(output: &Output, took: Duration) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr), took }
    }
}

fn evictions(requests: &[AuditEntry], accepted: bool) -> Vec<&AuditEntry> {
    let all = requests.iter().filter(|entry| entry.subresource == "eviction");
    all.filter(|entry| (entry.code < 300) == accepted).collect()
}

/// No pod was evicted twice. A StatefulSet's pod comes back under its name, so those are not looked at.
fn nothing_twice(requests: &[AuditEntry]) {
    let evicted = evictions(requests, true);
    let mut names: Vec<_> = evicted.iter().map(|entry| &entry.name).collect();
    names.retain(|name| !name.starts_with("db-"));
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "no pod was evicted twice");
}

/// Runs `body` with a watcher beside it, which must not have seen a budget fall.
async fn watched(scene: &Scene, body: impl AsyncFnOnce() -> TestResult) -> TestResult {
    let watcher = Watcher::default();
    let client = scene.cluster.client();
    tokio::select! {
        done = body() => done?,
        ended = watcher.watch(client) => ended?,
    }
    let seen = watcher.seen();
    assert!(seen.events > 20, "the watcher saw only {} events", seen.events);
    assert_eq!(seen.fallen, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_node_is_drained_and_no_budget_falls() -> TestResult {
    in_namespace("a_node_is_drained_and_no_budget_falls", async || {
        let scene = Scene::begin(4, "workloads.yaml").await?;
        scene.settled("shop", 15 + 5).await?;
        watched(&scene, async || {
            let pods = scene.on_node("shop", "w-1").await?.len() - 1;
            let ran = scene.run(&["drain", "w-1"]).await?;
            println!("{}", ran.out);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert!(ran.out.contains("node/w-1: drained in "), "{ran:?}");
            assert_eq!(scene.on_node("shop", "w-1").await?.len(), 1, "the DaemonSet's");
            let requests = scene.requests()?;
            assert_eq!(evictions(&requests, true).len(), pods);
            assert_eq!(evictions(&requests, false).len(), 0, "no eviction that a budget had to refuse");
            let writes = requests.iter().filter(|entry| entry.is_write()).count();
            assert_eq!(writes, pods + 1, "an eviction for each pod and the cordon");
            let reads = requests.iter().filter(|entry| entry.verb == "get" || entry.verb == "list").count();
            assert!(reads <= 2, "{reads} reads");
            println!("{pods} pods: {writes} writes, {reads} reads, {:.1} s", ran.took.as_secs_f64());

            // What was cordoned by us is given back, and nothing else.
            scene.kubectl(&["cordon", "w-2"]).await?;
            let ran = scene.run(&["uncordon", "w-1", "w-2"]).await?;
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(ran.out.contains("node/w-2: cordoned by somebody else"), "{ran:?}");
            assert_eq!(scene.cordons().await?, "w-2 ");
            let mark =
                scene.kubectl(&["get", "node", "w-1", "-o", "jsonpath={.metadata.annotations}"]).await?;
            assert!(!mark.contains(MARK), "{mark}");
            Ok(())
        })
        .await
    })
}

#[test]
fn several_nodes_at_once_and_no_budget_falls() -> TestResult {
    in_namespace("several_nodes_at_once_and_no_budget_falls", async || {
        let scene = Scene::begin(6, "workloads.yaml").await?;
        scene.settled("shop", 15 + 7).await?;
        watched(&scene, async || {
            let ran =
                scene.run(&["drain", "w-1", "w-2", "w-3", "--concurrency", "3", "--node-conditions"]).await?;
            println!("{}", ran.out);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let requests = scene.requests()?;
            let refused = evictions(&requests, false).len();
            assert!(refused <= 1, "{refused} evictions were refused");
            assert_eq!(scene.cordons().await?, "w-1 w-2 w-3 ");
            let conditions = async || {
                let of = |name| format!(r#"{{.status.conditions[?(@.type=="{name}")].status}}"#);
                let path = format!("jsonpath={} {}", of("DrainInProgress"), of("Drained"));
                scene.kubectl(&["get", "node", "w-2", "-o", &path]).await
            };
            assert_eq!(conditions().await?, "False True");
            let ran = scene.run(&["uncordon", "w-1", "w-2", "w-3", "--node-conditions"]).await?;
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert_eq!(conditions().await?, "False False");
            Ok(())
        })
        .await
    })
}

#[test]
fn what_never_ends_is_told_with_its_reason() -> TestResult {
    in_namespace("what_never_ends_is_told_with_its_reason", async || {
        let scene = Scene::begin(2, "hard.yaml").await?;
        scene.kubectl(&["label", "node", "w-1", "hard=yes", "--overwrite"]).await?;
        scene
            .until("the pods of hard run", 30, async || Ok(scene.on_node("hard", "w-1").await?.len() == 4))
            .await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        // Another node may take what moves.
        scene.kubectl(&["label", "node", "w-2", "hard=yes", "--overwrite"]).await?;
        let ran = scene.run(&["drain", "w-1", "--timeout", "25s", "--uncordon-on-failure"]).await?;
        println!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        for reason in [
            "PDB hard/never can never allow an eviction: it needs 1 healthy of 1 (1 healthy now)",
            "more than one PDB selects it (hard/twice-a, hard/twice-b), which the eviction API refuses",
            "its eviction is denied: ",
            "not drained within 25 s: ",
        ] {
            assert!(ran.out.contains(reason), "no `{reason}` in {ran:?}");
        }
        let left = scene.on_node("hard", "w-1").await?;
        assert!(!left.iter().any(|pod| pod.starts_with("free-")), "what may leave has left: {left:?}");
        assert_eq!(scene.cordons().await?, "", "given back");
        let requests = scene.requests()?;
        let refused = evictions(&requests, false).len();
        assert!(refused <= 2, "{refused} evictions were sent in vain: nothing is hammered");
        Ok(())
    })
}

#[test]
fn killed_and_started_again_it_goes_on() -> TestResult {
    in_namespace("killed_and_started_again_it_goes_on", async || {
        let scene = Scene::begin(4, "workloads.yaml").await?;
        scene.settled("shop", 15 + 5).await?;
        watched(&scene, async || {
            for pause in [150, 300, 600, 1200] {
                let mut child = scene.start(&["drain", "w-1", "w-2"])?;
                tokio::time::sleep(Duration::from_millis(pause)).await;
                child.kill().await.map_err(|error| Failure::new(error.to_string()))?;
            }
            let ran = scene.run(&["drain", "w-1", "w-2"]).await?;
            println!("{}", ran.out);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            nothing_twice(&scene.requests()?);
            let ran = scene.run(&["uncordon", "w-1", "w-2"]).await?;
            assert_eq!(
                (ran.code, scene.cordons().await?),
                (Some(0), String::new()),
                "no cordon is forgotten"
            );
            Ok(())
        })
        .await
    })
}

#[test]
fn a_person_who_uncordons_is_respected_and_ctrl_c_says_what_is_left() -> TestResult {
    in_namespace("a_person_who_uncordons_is_respected_and_ctrl_c_says_what_is_left", async || {
        let scene = Scene::begin(2, "hard.yaml").await?;
        scene.kubectl(&["label", "node", "w-1", "hard=yes", "--overwrite"]).await?;
        scene
            .until("the pods of hard run", 30, async || Ok(scene.on_node("hard", "w-1").await?.len() == 4))
            .await?;
        let child = scene.start(&["drain", "w-1"])?;
        scene.until("w-1 is cordoned", 10, async || Ok(scene.cordons().await? == "w-1 ")).await?;
        scene.kubectl(&["uncordon", "w-1"]).await?;
        let output = child.wait_with_output().await.map_err(|error| Failure::new(error.to_string()))?;
        let ran = Ran::of(&output, Duration::ZERO);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.out.contains("was uncordoned by someone else while it drained"), "{ran:?}");
        let marks = scene.kubectl(&["get", "node", "w-1", "-o", "jsonpath={.metadata.annotations}"]).await?;
        assert!(!marks.contains(MARK), "{marks}");

        let child = scene.start(&["drain", "w-1"])?;
        scene.until("w-1 is cordoned", 10, async || Ok(scene.cordons().await? == "w-1 ")).await?;
        let id = child.id().unwrap_or_default().to_string();
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .await
            .map_err(|error| Failure::new(error.to_string()))?;
        let output = child.wait_with_output().await.map_err(|error| Failure::new(error.to_string()))?;
        let ran = Ran::of(&output, Duration::ZERO);
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert!(ran.err.contains("to undo: evenkeel uncordon w-1"), "{ran:?}");
        Ok(())
    })
}

#[test]
fn the_watcher_sees_a_budget_fall() -> TestResult {
    in_namespace("the_watcher_sees_a_budget_fall", async || {
        let scene = Scene::begin(2, "workloads.yaml").await?;
        scene.settled("shop", 15 + 3).await?;
        let watcher = Watcher::default();
        let body = async {
            scene.until("the watcher has seen the pods", 10, async || Ok(watcher.seen().events > 20)).await?;
            scene.kubectl(&["delete", "pods", "-n", "shop", "-l", "app=cart", "--wait=false"]).await?;
            let fell = "PDB shop/cart: ";
            scene
                .until(fell, 10, async || Ok(watcher.seen().fallen.iter().any(|line| line.starts_with(fell))))
                .await
        };
        tokio::select! {
            done = body => done,
            ended = watcher.watch(scene.cluster.client()) => ended,
        }
    })
}
