//! Which series there are.

use super::*;

pub(super) fn metrics() -> Metrics {
    Metrics::new(&Build { version: "0.1.0", revision: "abc", rust_version: "1.95" }, PodScope::KubeSystem)
        .unwrap()
}

#[test]
fn known_series_exist_from_the_start() {
    let text = metrics().text().unwrap();
    for line in [
        "evenkeel_leader 0",
        r#"evenkeel_evictions_total{result="refused_pdb"} 0"#,
        r#"evenkeel_collector_errors_total{source="pdbs"} 0"#,
        r#"evenkeel_reconcile_errors_total{controller="report",reason="conflict"} 0"#,
        r#"evenkeel_reconcile_duration_seconds_count{controller="upgrade",result="ok"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    for never in [r#"reason="invalid""#, r#"reason="connection""#, r#"controller="upgrade",result="requeue""#]
    {
        assert!(!text.contains(never), "nothing ever counts {never}");
    }
}

#[test]
fn series_that_vanish_are_removed() {
    let metrics = metrics();
    let row = |version, count| Instances {
        component: Component::Kubelet,
        pool: "workers",
        version,
        minor: "1.36",
        count,
    };
    metrics.instances(&[row("v1.36.3", 2), row("v1.36.4", 1)]);
    metrics.instances(&[row("v1.36.4", 3)]);
    let text = metrics.text().unwrap();
    let shown: Vec<_> =
        text.lines().filter(|line| line.starts_with("evenkeel_component_instances{")).collect();
    assert_eq!(
        shown,
        [
            r#"evenkeel_component_instances{component="kubelet",minor="1.36",pool="workers",version="v1.36.4"} 3"#
        ]
    );
}

/// What a former leader saw is old, and the next one shows another cluster: an alert would see both at once.
#[test]
fn what_the_leader_alone_shows_goes_with_its_leadership() {
    let metrics = metrics();
    let fresh = metrics.text().unwrap();
    metrics.leader(true);
    let (component, pool, upgrade) = (Component::KubeApiserver, "control-plane", "up");
    metrics.instances(&[Instances { component, pool, version: "v1.36.4", minor: "1.36", count: 1 }]);
    metrics.distances(&[Distance { component, pool, behind: 1, ahead: 0 }]);
    metrics.limits(&[(component, 1)]);
    metrics.violations(&[Violations { component, pool, rule: "R1", severity: "AtLimit", count: 1 }]);
    metrics.end_of_life(&[EndOfLife { minor: "1.36", unix_seconds: 1_814_227_200 }]);
    let upgrades = metrics.upgrades();
    upgrades.show_nodes(&[UpgradeNodes { upgrade, state: "Pending", count: 1 }]);
    upgrades.show_waiting(&[(upgrade, "Frozen")]);
    upgrades.show_waiting_for(&[(upgrade, &["Frozen".to_owned()])]);
    upgrades.show_blocked(&[BlockedNode { upgrade, node: "n-1", state: "Parked" }]);
    upgrades.show_omitted(&[(upgrade, 1)]);
    // What was done and written stays so, whoever leads now: a counter that fell would count it twice.
    metrics.evicted(Eviction::Evicted);
    metrics.reported(crate::api::report::NAME, 60.0);
    metrics.leader(false);
    let text = metrics.text().unwrap();
    let series = |text: &str| text.lines().filter(|line| line.starts_with("evenkeel_")).count();
    let changed: Vec<_> =
        text.lines().filter(|line| line.starts_with("evenkeel_") && !fresh.contains(line)).collect();
    assert_eq!(
        changed,
        [
            r#"evenkeel_evictions_total{result="evicted"} 1"#,
            r#"evenkeel_report_last_success_timestamp_seconds{report="cluster"} 60"#
        ]
    );
    assert_eq!(series(&text), series(&fresh), "no series of the process is missing");
}
