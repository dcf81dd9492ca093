//! One skew report of real nodes, held against what the cluster is made of.
//!
//! The status of the ClusterSkewReport and what `evenkeel report -o json` prints have the same shape, so both are judged
//! here alike. Nothing here asks the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_devcluster::Release;
use serde_json::Value;

/// How many nodes a cluster has.
#[derive(Clone, Copy)]
pub struct Size {
    pub control_planes: usize,
    pub workers: usize,
}

/// Reports in the order in which they were written, and when each was.
pub type Reports = Vec<(Duration, Value)>;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    report["components"].as_array().into_iter().flatten()
}

/// How many instances there are of which component and version, where each was read and how it stands. Pools are left out.
fn counted(report: &Value) -> BTreeMap<[&str; 4], usize> {
    let mut found = BTreeMap::new();
    for row in rows(report) {
        let key = ["component", "version", "source", "state"].map(|field| text(&row[field]));
        let count = row["count"].as_u64().and_then(|count| usize::try_from(count).ok());
        *found.entry(key).or_default() += count.unwrap_or_default();
    }
    found
}

/// What is wrong with the report of a whole kubeadm cluster in which everything runs `version`.
pub fn uneven(report: &Value, version: &str, size: Size) -> Vec<String> {
    let servers = size.control_planes;
    let nodes = servers + size.workers;
    let expected = BTreeMap::from([
        (["kube-apiserver", version, "/version", "Supported"], servers),
        (["kube-controller-manager", version, "image", "Supported"], servers),
        (["kube-scheduler", version, "image", "Supported"], servers),
        (["kubelet", version, "nodeInfo", "Supported"], nodes),
        (["kube-proxy", version, "image", "Supported"], nodes),
    ]);
    let mut wrong = Vec::new();
    let found = counted(report);
    if found != expected {
        wrong.push(format!("the rows are {found:?} and not {expected:?}"));
    }
    for (field, is) in
        [("platform", "kubeadm"), ("supported", "True"), ("server", version), ("kubelets", version)]
    {
        if report[field] != is {
            wrong.push(format!("{field} is {} and not {is}", report[field]));
        }
    }
    if !report["hidden"].is_null() {
        wrong.push(format!("something is said to be hidden: {}", report["hidden"]));
    }
    wrong
}

/// How many kube-apiservers are said to answer, each with the node that it runs on. Only the operator's report says that.
pub fn answering(report: &Value) -> usize {
    let answers = |server: &&Value| server["reachable"] == true && server["node"].is_string();
    report["apiservers"].as_array().into_iter().flatten().filter(answers).count()
}

/// What reports said while nodes of the control plane were upgraded one after the other.
#[derive(Default)]
pub struct Window {
    /// How many of them showed a controller that was newer than a kube-apiserver of another node.
    pub ahead: usize,
    /// One line for each report that called such a controller anything but Transitional, or anything a violation.
    pub wrong: Vec<String>,
}

/// Judges reports of an upgrade that keeps to kubeadm's way, in which nothing ever leaves the policy.
pub fn window<'a>(reports: impl IntoIterator<Item = &'a (Duration, Value)>) -> Window {
    let mut window = Window::default();
    for (at, report) in reports {
        let at = at.as_secs();
        if report["supported"] == "False" || report["violations"] != 0 {
            let (count, reason) = (&report["violations"], text(&report["reason"]));
            window.wrong.push(format!("{at} s: {count} violations: {reason}"));
        }
        let release = |row: &Value| Release::parse(text(&row["version"]));
        let of = |names: &'static [&str]| rows(report).filter(|row| names.contains(&text(&row["component"])));
        let oldest = of(&["kube-apiserver"]).filter_map(release).min();
        let controllers = of(&["kube-controller-manager", "kube-scheduler"]);
        let ahead: Vec<_> = controllers.filter(|row| oldest.is_some() && release(row) > oldest).collect();
        window.ahead += usize::from(!ahead.is_empty());
        for row in ahead.into_iter().filter(|row| row["state"] != "Transitional") {
            let (component, state) = (text(&row["component"]), text(&row["state"]));
            window.wrong.push(format!("{at} s: {component} is ahead of a kube-apiserver and called {state}"));
        }
    }
    window
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(state: &str, violations: usize) -> (Duration, Value) {
        let row =
            |component, version, state| json!({"component": component, "version": version, "state": state});
        let rows = [
            row("kube-apiserver", "v1.36.4", "Supported"),
            row("kube-apiserver", "v1.37.1", "Supported"),
            row("kube-scheduler", "v1.37.1", state),
        ];
        (Duration::ZERO, json!({"supported": "True", "violations": violations, "components": rows}))
    }

    #[test]
    fn a_controller_that_is_ahead_has_to_be_called_transitional() {
        let window = |state, violations| {
            let Window { ahead, wrong } = super::window([&report(state, violations)]);
            (ahead, wrong.len())
        };
        assert_eq!(window("Transitional", 0), (1, 0));
        assert_eq!(window("Supported", 0), (1, 1));
        assert_eq!(window("Unsupported", 1), (1, 2));
    }

    #[test]
    fn a_report_of_no_rows_is_not_even() {
        let size = Size { control_planes: 1, workers: 2 };
        assert_eq!(uneven(&json!({}), "v1.37.1", size).len(), 5);
    }
}
