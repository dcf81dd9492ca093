//! What is said of versions, held against the kubelets and kube-apiservers themselves.
//!
//! Versions only go up here, so what was observed when a line was written is still so when it is read: whatever is said to
//! be at the target has to be there. Nothing here trusts an object of Evenkeel.

use evenkeel_testkit::scenario::TO;
use serde_json::Value;

use crate::cluster::Real;

/// What the status of a ClusterUpgrade says of versions and is not so; `None` where it says nothing of them, or where nobody
/// can be asked.
pub async fn upgrade(real: &Real, status: &Value) -> Option<Vec<String>> {
    let said = status["progress"]["upgraded"].as_u64()?;
    let there = real.kubelets_at(TO).await.ok()?;
    let untrue =
        (said > there).then(|| format!("{said} nodes are said to be upgraded, and {there} run {TO}"));
    Some(untrue.into_iter().collect())
}

/// The same of the status of a ClusterSkewReport.
pub async fn report(real: &Real, status: &Value) -> Option<Vec<String>> {
    let rows = status["components"].as_array()?;
    let of_kubelets = rows.iter().filter(|row| row["component"] == "kubelet" && row["version"] == TO);
    let said: u64 = of_kubelets.filter_map(|row| row["count"].as_u64()).sum();
    let there = real.kubelets_at(TO).await.ok()?;
    let mut untrue = Vec::new();
    if said > there {
        untrue.push(format!("the report says that {said} kubelets run {TO}, and {there} do"));
    }
    for server in status["apiservers"].as_array()?.iter().filter(|server| server["version"] == TO) {
        let node = server["node"].as_str().unwrap_or_default();
        // One that does not answer may be what the report says.
        if let Some(answer) = real.apiserver_version(node).await.filter(|answer| answer != TO) {
            untrue.push(format!(
                "the report says that the kube-apiserver of {node} runs {TO}, and it runs {answer}"
            ));
        }
    }
    Some(untrue)
}
