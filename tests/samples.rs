//! The samples are what the operator reads: each decodes without a field left over, and the upgrade is valid.

use std::fs;
use std::path::Path;

use evenkeel::api::{ClusterSkewReport, ClusterUpgrade, NodeUpgrade, claim_of, report, upgrade};
use evenkeel_core::upgrade::{Executor, Mode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes a sample, and makes sure that every field in it was read: a misspelt one would be dropped in silence.
fn sample<K: DeserializeOwned + Serialize>(file: &str) -> Result<K, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples").join(file);
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
    assert_eq!(files, ["clusterskewreport.yaml", "clusterupgrade.yaml", "nodeupgrade.yaml"]);
}

#[test]
fn the_report_has_its_only_name() {
    let sample: ClusterSkewReport = sample("clusterskewreport.yaml").unwrap();
    assert_eq!(sample.metadata.name.as_deref(), Some(report::NAME));
}

#[test]
fn the_upgrade_is_valid_and_waits_for_approval() {
    let sample: ClusterUpgrade = sample("clusterupgrade.yaml").unwrap();
    let upgrade = upgrade::validate(&sample).unwrap();
    assert_eq!(upgrade.version.to_string(), "v1.37.1");
    assert_eq!(
        (upgrade.mode, upgrade.approved_hash, upgrade.suspended),
        (Mode::RequireApproval, None, false)
    );
    let groups: Vec<_> = upgrade.groups.iter().map(|group| &*group.name).collect();
    assert_eq!(groups, ["canary", "workers"]);
    assert!(matches!(upgrade.executors["control-plane"], Executor::External { .. }));
    assert!(matches!(upgrade.executors["kubeadm-worker"], Executor::Job { .. }));
}

#[test]
fn the_claim_is_one_that_the_operator_could_have_written() {
    let claim = claim_of(&sample::<NodeUpgrade>("nodeupgrade.yaml").unwrap()).unwrap();
    let upgrade: ClusterUpgrade = sample("clusterupgrade.yaml").unwrap();
    assert_eq!(Some(&*claim.upgrade), upgrade.metadata.name.as_deref());
    assert_eq!(*claim.name, *format!("{}.{}.{}", claim.upgrade, claim.subject.component, claim.subject.node));
    assert_eq!(claim.subject.to.to_string(), upgrade.spec.version);
}
