//! `evenkeel demo` as people meet it: the story that is piped, and kubectl in the served cluster.
//!
//! `UPDATE_EXPECT=1 cargo test --test demo` writes the stories anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use evenkeel_devcluster::Binary;

/// The program that is tested.
fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

/// Without a cluster, a terminal or a home.
fn demo(args: &[&str]) -> Command {
    // That of this build: the image's has no virtual cluster in it.
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("demo").args(args).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

fn told(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn each_scenario_is_a_story_that_is_the_same_each_time() {
    for scenario in ["upgrade", "lagging", "even", "broken"] {
        let story = told(&demo(&["--scenario", scenario]).output().unwrap());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/demo/stories/{scenario}.txt"));
        expect_test::expect_file![path].assert_eq(&story);
    }
}

#[test]
fn the_program_of_the_image_says_where_the_demonstration_is() {
    let Some(binary) = std::env::var_os("EVENKEEL_BINARY") else { return };
    let output = Command::new(binary).args(["demo", "--seed", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: this evenkeel was built without the virtual cluster"), "{said}");
    assert!(said.lines().count() == 1 && said.contains("cargo install --git"), "{said}");
}

#[test]
fn what_the_readme_shows_is_what_happens() {
    let text = |name| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let (readme, story) = (text("README.md"), text("tests/demo/stories/upgrade.txt"));
    let (_, shown) = readme.split_once("What `make demo | cat` shows").unwrap();
    let shown = shown.split("```").nth(1).unwrap();
    let lines: Vec<&str> = shown.lines().filter(|line| line.trim() != "⋮").collect();
    assert!(lines.len() > 30, "{shown}");
    for line in lines {
        assert!(story.lines().any(|told| told == line), "README.md shows what is not told: {line:?}");
    }
}

#[test]
fn wrong_arguments_are_told_in_the_usual_way() {
    for args in [["--scenario", "splendid"], ["--speed", "0"], ["--seed", "-1"]] {
        let output = demo(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert!(output.stdout.is_empty());
    }
    let output = demo(&["--serve=/nonexistent/kubeconfig"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("error: cannot write /nonexistent/kubeconfig"), "{said}");
}

/// A demonstration that kubectl is let into, until it is dropped.
struct Served {
    demo: Child,
    kubeconfig: String,
    folder: tempfile::TempDir,
}

impl Served {
    /// Minutes in seconds, so that nobody has to wait for probes and restarts.
    fn begin(scenario: &str, speed: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = demo(&["--serve", "--scenario", scenario, "--speed", speed]);
        let mut demo = command.env("TMPDIR", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
        let path = lines.find_map(|line| Some(line.trim().strip_prefix("export KUBECONFIG=")?.to_owned()));
        // Whoever does not read on must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { demo, kubeconfig: path.unwrap(), folder }
    }

    fn run(&self, program: impl AsRef<std::ffi::OsStr>, args: &str) -> (Option<i32>, String) {
        let mut command = Command::new(program);
        command.args(args.split(' ')).env_clear().env("HOME", self.folder.path());
        let output = command.env("KUBECONFIG", &self.kubeconfig).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout) + &text(output.stderr))
    }

    fn kubectl(&self, args: &str) -> String {
        let (code, said) = self.run(Binary::Kubectl.path().unwrap(), args);
        assert_eq!(code, Some(0), "kubectl {args}: {said}");
        said
    }

    fn end(mut self) -> (Option<i32>, bool) {
        let killed = Command::new("kill").args(["-INT", &self.demo.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let code = self.demo.wait().unwrap().code();
        (code, Path::new(&self.kubeconfig).exists())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.demo.kill();
        let _ = self.demo.wait();
    }
}

#[test]
fn kubectl_and_evenkeel_are_let_in() {
    let served = Served::begin("lagging", "5");
    assert_eq!(served.kubectl("get nodes --no-headers").lines().count(), 40);
    let skew = served.kubectl("get skew");
    assert!(skew.contains("v1.36.4..v1.37.1") && skew.contains("False"), "{skew}");

    // Each apiserver is asked by its own address.
    let (code, report) = served.run(binary(), "report");
    assert_eq!(code, Some(2), "{report}");
    let servers: Vec<&str> = report.lines().filter(|line| line.starts_with("kube-apiserver")).collect();
    assert_eq!(servers.len(), 2, "{report}");
    assert!(servers[0].contains("v1.36.4") && servers[1].contains("v1.37.1"), "{report}");

    // What never moves is not waited for.
    let (code, said) = served.run(binary(), "explain pdb/data/ledger");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.starts_with("never:") || said.contains("never"), "{said}");

    // A real drain, of our own and of kubectl's.
    let (code, said) = served.run(binary(), "drain general-1 --timeout 5m");
    assert_eq!(code, Some(0), "{said}");
    served.kubectl("drain general-2 --ignore-daemonsets --timeout 5m");
    let cordoned = served.kubectl("get nodes --field-selector spec.unschedulable=true -o name");
    assert_eq!(cordoned, "node/general-1\nnode/general-2\n");

    // What kubectl does, the operator sees.
    served.kubectl("delete node legacy-1 legacy-2 legacy-3");
    served.kubectl("wait clusterskewreport/cluster --for=jsonpath={.status.nodes}=37 --timeout=60s");
    served.kubectl("wait clusterskewreport/cluster --for=condition=SkewSupported --timeout=60s");

    assert_eq!(served.end(), (Some(0), false), "its kubeconfig goes with it");
}

/// As a person would: written and approved with kubectl, held up by a budget, and done when that is mended.
#[test]
fn kubectl_upgrades_the_cluster() {
    let served = Served::begin("upgrade", "40");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/src/demo/upgrade.yaml");
    served.kubectl(&format!("apply -f {manifest}"));
    served.kubectl("wait clusterupgrade/to-137 --for=condition=AwaitingApproval --timeout=30s");
    let (code, plan) = served.run(binary(), &format!("plan --upgrade {manifest}"));
    assert_eq!(code, Some(2), "a budget is in its way: {plan}");
    let hash = served.kubectl("get clusterupgrade to-137 -o jsonpath={.status.plan.hash}");
    assert!(plan.contains(&hash), "{hash} is not in\n{plan}");
    let approval = format!(r#"{{"spec":{{"approval":{{"planHash":"{hash}"}}}}}}"#);
    served.kubectl(&format!("patch clusterupgrade to-137 --type=merge -p {approval}"));
    served.kubectl("wait clusterupgrade/to-137 --for=condition=Stalled --timeout=90s");
    let waits = served.kubectl("get clusterupgrade to-137 -o jsonpath={.status.waitingFor}");
    assert!(waits.contains("PDB data/ledger can never allow an eviction"), "{waits}");
    served.kubectl(r#"patch pdb ledger -n data --type=merge -p {"spec":{"minAvailable":0}}"#);
    served.kubectl("wait clusterupgrade/to-137 --for=condition=Ready --timeout=60s");
    let nodes = served.kubectl("get nodes --no-headers");
    assert!(nodes.lines().count() == 15 && nodes.lines().all(|line| line.contains("v1.37.1")), "{nodes}");
    assert_eq!(served.end(), (Some(0), false), "its kubeconfig goes with it");
}
