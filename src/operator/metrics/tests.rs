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
