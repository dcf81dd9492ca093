//! The real kubectl on a virtual cluster that is served over TLS.
//!
//! A file of `cases/` is a session as a person would see it: `$ kubectl …` and what it prints. `& kubectl …` begins a
//! command that goes on, and `$ end` ends it and shows what it has printed until then; `$ sleep <seconds>` waits.
//! `UPDATE_EXPECT=1` writes the sessions anew. What differs from run to run by nature is replaced: UIDs, times, ages,
//! generated names, ports, and the width of columns.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod plain;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use evenkeel_devcluster::Binary;
use evenkeel_sim::serve::Served;
use evenkeel_sim::{Cluster, NodeGroup};
use tokio::process::{Child, Command};

/// Runs the session in a cluster of three workers, served as 1.37 and as 1.36.
fn session(name: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::builder().seed(1).starting_at(jiff::Timestamp::now()).start();
        cluster.add_nodes(&NodeGroup::new("worker", 3).zones(["a", "b", "c"]));
        let served = cluster.serve(&["v1.37.1", "v1.36.4"]).await.unwrap();
        let shell = Shell::new(&served);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kubectl/cases/{name}.txt"));
        let wanted = std::fs::read_to_string(&path).unwrap();
        let mut got = String::new();
        let mut begun = None;
        for line in wanted.lines() {
            // Only headings and commands are read; the rest is written anew.
            if line.starts_with("# ") {
                let _ = writeln!(got, "{}{line}", if got.is_empty() { "" } else { "\n" });
            } else if let Some(command) = line.strip_prefix("& ") {
                let _ = writeln!(got, "{line}");
                begun = Some(shell.start(command));
            } else if line == "$ end" {
                let child: Child = begun.take().expect("a command that goes on");
                let _ = writeln!(got, "{line}{}", shell.end(child).await);
            } else if let Some(seconds) = line.strip_prefix("$ sleep ") {
                let _ = writeln!(got, "{line}");
                tokio::time::sleep(Duration::from_secs_f64(seconds.parse().unwrap())).await;
            } else if let Some(command) = line.strip_prefix("$ ") {
                let _ = writeln!(got, "{line}{}", shell.run(command).await);
            }
        }
        expect_test::expect_file![path].assert_eq(&got);
    });
}

/// Where commands run.
struct Shell {
    kubectl: PathBuf,
    home: tempfile::TempDir,
}

impl Shell {
    fn new(served: &Served) -> Self {
        let kubectl = Binary::Kubectl.path().unwrap();
        let home = tempfile::tempdir().unwrap();
        served.write_kubeconfig(&home.path().join("config")).unwrap();
        Self { kubectl, home }
    }

    fn start(&self, command: &str) -> Child {
        let words: Vec<String> = words(command);
        let (program, args) = words.split_first().expect("a command");
        assert_eq!(program, "kubectl");
        Command::new(&self.kubectl)
            .args(args)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl/manifests"))
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    async fn run(&self, command: &str) -> String {
        let ended = tokio::time::timeout(Duration::from_mins(1), self.start(command).wait_with_output());
        let output = ended.await.unwrap_or_else(|_| panic!("{command}: has not ended")).unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            let _ = writeln!(text, "(exit {})", output.status.code().unwrap_or(-1));
        }
        plain::plain(&text)
    }

    async fn end(&self, mut child: Child) -> String {
        child.start_kill().unwrap();
        let output = child.wait_with_output().await.unwrap();
        plain::plain(&String::from_utf8_lossy(&output.stdout))
    }
}

/// A command's words; single quotes keep blanks together.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in command.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().expect("a word").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn kubectl_reads() {
    session("read");
}

#[test]
fn kubectl_changes() {
    session("change");
}

#[test]
fn kubectl_drains() {
    session("drain");
}

#[test]
fn kubectl_knows_custom_resources() {
    session("custom");
}

#[tokio::test]
async fn nobody_comes_in_without_the_certificate() {
    let cluster = Cluster::builder().start();
    let served = cluster.serve(&["v1.37.1"]).await.unwrap();
    let mut config = kube::config::Kubeconfig::from_yaml(served.kubeconfig()).unwrap();
    for user in &mut config.auth_infos {
        user.auth_info = Some(kube::config::AuthInfo::default());
    }
    let config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    assert!(client.apiserver_version().await.is_err());
}
