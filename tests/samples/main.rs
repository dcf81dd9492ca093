//! The samples are what the operator reads: each decodes without a field left over, and the upgrade is valid.
//!
//! Here belongs what `config/samples` and `config/executors` say; what the scripts of the latter do is in `scripts`,
//! `etcd_copies`, `manifests` and `services`, what the alerts of `config/prometheus` are about in `alerts`, what Argo CD makes
//! of our objects in `health`, how the program runs in `deployment`, and what a person is told to type in `commands`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alerts;
mod commands;
mod deployment;
mod etcd_copies;
mod health;
mod manifests;
mod scripts;
mod services;

use std::fs;
use std::path::Path;
use std::process::Command;

use evenkeel::api::{
    ClusterSkewReport, ClusterUpgrade, Executors, NodeUpgrade, UpgradeExecutor, claim_of, report, upgrade,
};
use evenkeel_core::plan::Stage;
use evenkeel_core::rollout::{UpgradePhase, WaitReason};
use evenkeel_core::upgrade::{ApprovalMode, Executor, Unit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes a sample, and makes sure that every field in it was read: a misspelt one would be dropped in silence.
fn sample<K: DeserializeOwned + Serialize>(file: &str) -> Result<K, String> {
    read_whole(&format!("samples/{file}"))
}

fn read_whole<K: DeserializeOwned + Serialize>(file: &str) -> Result<K, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file);
    let text = fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
    let written: Value = serde_saphyr::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
    let read: K = serde_json::from_value(written.clone()).map_err(|error| format!("{file}: {error}"))?;
    let again = serde_json::to_value(&read).map_err(|error| format!("{file}: {error}"))?;
    lost(&written, &again, file).map_or(Ok(read), |field| Err(format!("{field} is no field")))
}

/// The first path of `written` that `read` does not have.
fn lost(written: &Value, read: &Value, path: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => written.iter().find_map(|(key, value)| {
            let path = format!("{path}: .{key}");
            read.get(key).map_or(Some(path.clone()), |found| lost(value, found, &path))
        }),
        (Value::Array(written), Value::Array(read)) => {
            written.iter().zip(read).enumerate().find_map(|(i, (a, b))| lost(a, b, &format!("{path}[{i}]")))
        }
        _ => None,
    }
}

#[test]
fn there_is_a_sample_of_each_kind_and_nothing_else() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(
        files,
        [
            "clusterskewreport.yaml",
            "clusterupgrade-full.yaml",
            "clusterupgrade.yaml",
            "nodeupgrade.yaml",
            "upgradeexecutor.yaml"
        ]
    );
}

#[test]
fn the_report_has_its_only_name() {
    let sample: ClusterSkewReport = sample("clusterskewreport.yaml").unwrap();
    assert_eq!(sample.metadata.name.as_deref(), Some(report::NAME));
}

/// The executors that `kubectl apply -k config/executors/<folder>` installs, as the files of the folder have them.
fn executors(folder: &str) -> Vec<UpgradeExecutor> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/executors").join(folder);
    let kustomization = fs::read_to_string(path.join("kustomization.yaml")).unwrap();
    let mut files: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.retain(|file| file != "kustomization.yaml");
    files.sort_unstable();
    for file in &files {
        assert!(kustomization.contains(&format!("- {file}\n")), "{folder}: {file} is not installed");
    }
    files.iter().map(|file| read_whole(&format!("executors/{folder}/{file}")).unwrap()).collect()
}

fn there(all: &[UpgradeExecutor]) -> Executors {
    let mut there = Executors::default();
    for one in all {
        there.add(&serde_json::from_value(serde_json::to_value(one).unwrap()).unwrap());
    }
    there
}

#[test]
fn the_upgrades_are_valid_and_wait_for_approval() {
    for file in ["clusterupgrade.yaml", "clusterupgrade-full.yaml"] {
        let sample: ClusterUpgrade = sample(file).unwrap();
        let executors = there(&executors("kubeadm"));
        let upgrade = upgrade::validate(&sample, &executors).unwrap();
        assert_eq!(upgrade::absent_executors(&sample, &executors), [], "{file}");
        assert_eq!(upgrade.version.to_string(), "v1.37.1");
        assert_eq!(
            (upgrade.mode, upgrade.approved_hash, upgrade.suspended),
            (ApprovalMode::RequireApproval, None, false)
        );
        assert_eq!(upgrade.control_plane.unit, Unit::Node);
        let names: Vec<&str> = upgrade.executors.keys().map(|name| &**name).collect();
        assert_eq!(names, ["kubeadm-control-plane", "kubeadm-first", "kubeadm-worker"], "{file}");
        assert!(upgrade.executors.values().all(|of| matches!(of, Executor::Job { .. })), "{file}");
    }
}

/// Flux and Argo CD put back what git sets, also when a person suspends an upgrade in a hurry.
#[test]
fn no_sample_says_whether_it_is_suspended() {
    for file in ["clusterskewreport.yaml", "clusterupgrade.yaml", "clusterupgrade-full.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples").join(file);
        let written: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert!(written["spec"].is_object() && written["spec"].get("suspend").is_none(), "{file}");
    }
}

/// How often a Job tries, and in seconds how long a pod may take to end and how long the Job waits between its tries.
const TRIES: i64 = 3;
const POD_ENDS: i64 = 30;
const BETWEEN_TRIES: i64 = 10 + 20;

/// What the platform team has to write is an image; the scripts are well-formed, and stop at the first error.
#[test]
fn every_executor_that_is_installed_is_a_job_with_a_script() {
    for folder in ["k3s", "kubeadm", "rke2"] {
        for executor in executors(folder) {
            let name = executor.metadata.name.unwrap();
            assert!(name.starts_with(folder), "{name}");
            let job = executor.spec.job.unwrap();
            let container = &job.template["spec"]["containers"][0];
            assert!(container.get("image").is_none(), "{name}: the kustomization has it");
            let command = container["command"].as_array().unwrap();
            assert_eq!(command[command.len() - 2..], ["/bin/sh", "-euc"], "{name}");
            let script = container["args"][0].as_str().unwrap();
            let read = Command::new("sh").args(["-n", "-c", script]).output().unwrap();
            assert!(read.status.success(), "{name}: {}", String::from_utf8_lossy(&read.stderr));
            // Every try ends, and its pod has the time to end, before the time of the whole is over.
            let active = job.template["spec"]["activeDeadlineSeconds"].as_i64().unwrap();
            let all = TRIES * (active + POD_ENDS) + BETWEEN_TRIES;
            assert!(all < i64::from(job.deadline_seconds), "{name}: {all} s");
        }
    }
    let external: UpgradeExecutor = sample("upgradeexecutor.yaml").unwrap();
    assert!(external.spec.external.is_some());
}

#[test]
fn the_claim_is_one_that_the_operator_could_have_written() {
    let claim = claim_of(&sample::<NodeUpgrade>("nodeupgrade.yaml").unwrap()).unwrap();
    let upgrade: ClusterUpgrade = sample("clusterupgrade.yaml").unwrap();
    assert_eq!(Some(&*claim.upgrade), upgrade.metadata.name.as_deref());
    assert_eq!(*claim.name, *format!("{}.{}.{}", claim.upgrade, claim.subject.component, claim.subject.node));
    assert_eq!(claim.subject.to.to_string(), upgrade.spec.version);
}

#[test]
fn the_page_about_upgrades_names_every_reason_once() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/upgrades.md")).unwrap();
    let (_, page) = page.split_once("## Reasons of condition Ready").unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let works = [Stage::Apiservers, Stage::Controllers, Stage::Kubelets].map(UpgradePhase::Working);
    let phases = works.into_iter().chain(UpgradePhase::WAITS).chain([UpgradePhase::Completed]);
    for reason in phases.map(UpgradePhase::reason).chain(upgrade::UNSEEN_REASONS) {
        let row = format!("| `{reason}` |");
        assert_eq!(page.lines().filter(|line| line.starts_with(&row)).count(), 1, "{reason}");
    }
}

#[test]
fn the_page_about_upgrades_names_every_other_reason_of_a_wait_and_who_ends_it() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/upgrades.md")).unwrap();
    let (_, page) = page.split_once("## Other reasons of waitingFor").unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), WaitReason::OTHERS.len());
    for reason in WaitReason::OTHERS {
        let (begins, ends) =
            (format!("| `{}` |", reason.name()), format!("| `{}` |", reason.ended_by().name()));
        let fits = |row: &&&str| row.starts_with(&begins) && row.ends_with(&ends);
        assert_eq!(rows.iter().filter(fits).count(), 1, "{reason:?}");
    }
}

/// The reasons are words in one function. A kubectl is judged by the command line alone, and is in no report.
#[test]
fn the_page_about_the_report_names_every_reason_of_its_verdict() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let (code, page) = (read("src/api/report/convert.rs"), read("docs/report.md"));
    let (_, code) = code.split_once("fn skew_reason(").unwrap();
    let (code, _) = code.split_once("\n}\n").unwrap();
    let reasons: Vec<&str> = code.split('"').skip(1).step_by(2).chain(["UnknownVersions"]).collect();
    assert!(reasons.len() > 10, "{reasons:?}");
    for reason in reasons {
        assert!(reason == "KubectlSkew" || page.contains(&format!("`{reason}`")), "{reason}");
    }
}
