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

/// What is wrong with the report of a whole kubeadm cluster whose control plane is on its way, with a kube-apiserver at `to`
/// and every kubelet at `from`: every component is there, each with where its version was read, and both versions show.
pub fn midway(report: &Value, from: &str, to: &str, size: Size) -> Vec<String> {
    let servers = size.control_planes;
    let nodes = servers + size.workers;
    let expected = BTreeMap::from([
        ("kube-apiserver", ("/version", servers)),
        ("kube-controller-manager", ("image", servers)),
        ("kube-scheduler", ("image", servers)),
        ("kubelet", ("nodeInfo", nodes)),
        ("kube-proxy", ("image", nodes)),
    ]);
    let found = counted(report);
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for ([component, version, source, state], count) in &found {
        let sum = counts.entry(component).or_insert((source, 0));
        sum.1 += count;
        let known = sum.0 == *source
            && [from, to].contains(version)
            && ["Supported", "Transitional"].contains(state)
            && (*component != "kubelet" || *version == from);
        if !known {
            wrong.push(format!("a {component} is {version} by {source} and {state}"));
        }
    }
    if counts != expected {
        wrong.push(format!("the rows are {counts:?} and not {expected:?}"));
    }
    let shows = |component: &str, version| found.keys().any(|key| key[0] == component && key[1] == version);
    if !shows("kube-apiserver", to) {
        wrong.push(format!("no kube-apiserver is said to run {to}"));
    }
    for (field, is) in [("platform", "kubeadm"), ("supported", "True"), ("kubelets", from)] {
        if report[field] != is {
            wrong.push(format!("{field} is {} and not {is}", report[field]));
        }
    }
    let server = if shows("kube-apiserver", from) { format!("{from}..{to}") } else { to.to_owned() };
    if report["server"] != server.as_str() {
        wrong.push(format!("the servers are {} and not {server}", report["server"]));
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
    fn a_report_midway_shows_both_versions_and_where_each_was_read() {
        let size = Size { control_planes: 1, workers: 2 };
        let row = |[component, version, source, state]: [&str; 4], count: usize| json!({"component": component, "version": version, "source": source, "state": state, "count": count});
        let report = |rows: Vec<Value>| {
            json!({"platform": "kubeadm", "supported": "True", "kubelets": "v1.36.4", "server": "v1.37.1",
                "components": rows})
        };
        let rows = vec![
            row(["kube-apiserver", "v1.37.1", "/version", "Supported"], 1),
            row(["kube-controller-manager", "v1.37.1", "image", "Supported"], 1),
            row(["kube-scheduler", "v1.36.4", "image", "Transitional"], 1),
            row(["kubelet", "v1.36.4", "nodeInfo", "Supported"], 3),
            row(["kube-proxy", "v1.36.4", "image", "Supported"], 1),
            row(["kube-proxy", "v1.36.4", "image", "Supported"], 2),
        ];
        let wrong = |change: &dyn Fn(&mut Vec<Value>)| {
            let mut rows = rows.clone();
            change(&mut rows);
            midway(&report(rows), "v1.36.4", "v1.37.1", size)
        };
        assert_eq!(wrong(&|_| {}), Vec::<String>::new());
        assert_eq!(wrong(&|rows| rows[0]["version"] = json!("v1.36.4")).len(), 2, "the old kube-apiserver");
        assert_eq!(wrong(&|rows| rows[1]["source"] = json!("")).len(), 1, "a source is not named");
        assert_eq!(wrong(&|rows| rows[2]["version"] = json!("")).len(), 1, "a version is not known");
        assert_eq!(wrong(&|rows| rows[3]["version"] = json!("v1.37.1")).len(), 1, "a kubelet is ahead");
        assert_eq!(wrong(&|rows| drop(rows.pop())).len(), 1, "a row is missing");
        assert_eq!(midway(&json!({}), "v1.36.4", "v1.37.1", size).len(), 6);
    }

    #[test]
    fn a_report_of_no_rows_is_not_even() {
        let size = Size { control_planes: 1, workers: 2 };
        assert_eq!(uneven(&json!({}), "v1.37.1", size).len(), 5);
    }
}
