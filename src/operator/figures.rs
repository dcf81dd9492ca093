//! Turns a judgement of the cluster into rows of metrics.
//!
//! Here belongs which rows a judgement gives; names and labels belong to [`super::metrics`]. The invariant: the
//! number of series is bounded, whatever versions and pools the nodes report.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::cluster::Component;
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::skew::policy::{Policy, RuleSubject};
use evenkeel_core::skew::{Assessment, Row, Standing};
use evenkeel_core::version::Minor;
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{Span, Timestamp};

use super::metrics::{Distance, EndOfLife, Instances, Metrics, Violations};

/// How many rows have a series with their own version. The instances of all further rows are counted under [`OTHER`],
/// so that kubelets which report made-up versions cannot add series without end.
const MAX_VERSIONS: usize = 200;
/// How many pools have series of their own. The nodes of all further pools are shown as one pool, [`OTHER`]: a kubelet
/// may set the label that names its pool.
const MAX_POOLS: usize = 100;
const OTHER: &str = "other";

/// Sets the metrics from `judged`, which was judged by `policy`; `releases` says when the maintenance of a minor ends.
pub(super) fn show(metrics: &Metrics, judged: &Assessment, policy: &Policy, releases: &Catalogue) {
    let pools = Pools::of(&judged.rows);
    instances(metrics, &judged.rows, &pools);
    distances(metrics, &judged.rows, &pools);
    violations(metrics, &judged.rows, &pools);
    limits(metrics, judged, policy);
    ends(metrics, &judged.rows, releases);
}

/// The pools of nodes that are shown by name.
struct Pools<'a>(BTreeSet<&'a str>);

impl<'a> Pools<'a> {
    /// The largest pools, so that a few nodes with made-up pools keep no real one from being named; of pools of one
    /// size the first by name.
    fn of(rows: &'a [Row]) -> Self {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for row in rows.iter().filter(|row| Self::is_of_nodes(row)) {
            *sizes.entry(&row.pool).or_default() += row.count;
        }
        let mut pools: Vec<_> = sizes.into_iter().collect();
        // The sort is stable: pools of one size stay in the order of their names.
        pools.sort_by_key(|(_, size)| Reverse(*size));
        Self(pools.into_iter().take(MAX_POOLS).map(|(pool, _)| pool).collect())
    }

    /// The name under which the pool of `row` is shown.
    fn shown(&self, row: &'a Row) -> &'a str {
        if Self::is_of_nodes(row) && !self.0.contains(&*row.pool) { OTHER } else { &row.pool }
    }

    /// Whether nodes say which pool it is. Every other component has a pool of our own naming.
    fn is_of_nodes(row: &Row) -> bool {
        matches!(row.component, Component::Kubelet | Component::KubeProxy)
    }
}

fn instances<'a>(metrics: &Metrics, rows: &'a [Row], pools: &Pools<'a>) {
    let mut counts: BTreeMap<(Component, &str, String, String), u64> = BTreeMap::new();
    for (n, row) in rows.iter().enumerate() {
        let minor = row.version.minor().map_or_else(|| "unknown".to_owned(), |minor| minor.to_string());
        let (version, minor) = if n < MAX_VERSIONS {
            (row.version.to_string(), minor)
        } else {
            (OTHER.to_owned(), OTHER.to_owned())
        };
        *counts.entry((row.component, pools.shown(row), version, minor)).or_default() += row.count as u64;
    }
    let shown: Vec<_> = counts
        .iter()
        .map(|((component, pool, version, minor), count)| Instances {
            component: *component,
            pool,
            version,
            minor,
            count: *count,
        })
        .collect();
    metrics.instances(&shown);
}

fn distances<'a>(metrics: &Metrics, rows: &'a [Row], pools: &Pools<'a>) {
    let mut most: BTreeMap<(Component, &str), (i64, i64)> = BTreeMap::new();
    for row in rows {
        let Some(behind) = row.behind else { continue };
        let (all_behind, all_ahead) = most.entry((row.component, pools.shown(row))).or_default();
        *all_behind = (*all_behind).max(behind.into());
        // Nobody is paged for what is not decided.
        let ahead = row.ahead().unwrap_or(0);
        *all_ahead = (*all_ahead).max(ahead.into());
    }
    let shown: Vec<_> = most
        .into_iter()
        .map(|((component, pool), (behind, ahead))| Distance { component, pool, behind, ahead })
        .collect();
    metrics.distances(&shown);
}

fn violations<'a>(metrics: &Metrics, rows: &'a [Row], pools: &Pools<'a>) {
    let mut counts: BTreeMap<(Component, &str, &str, &str), u64> = BTreeMap::new();
    for row in rows {
        let Some(rule) = row.rule() else { continue };
        let pool = pools.shown(row);
        // A rule that is kept has a row with 0, so that an alert on it does not lose its series.
        for (severity, standing) in [("Unsupported", Standing::Unsupported), ("AtLimit", Standing::AtLimit)] {
            let count = if row.standing == standing { row.count as u64 } else { 0 };
            *counts.entry((row.component, pool, rule.id, severity)).or_default() += count;
        }
        if row.standing == Standing::Transitional {
            *counts.entry((row.component, pool, rule.id, "Warning")).or_default() += row.count as u64;
        }
    }
    let shown: Vec<_> = counts
        .into_iter()
        .map(|((component, pool, rule, severity), count)| Violations {
            component,
            pool,
            rule,
            severity,
            count,
        })
        .collect();
    metrics.violations(&shown);
}

/// Shows the narrowest limit in force for each component: among the minors that it runs, else at the newest
/// kube-apiserver's minor.
fn limits(metrics: &Metrics, judged: &Assessment, policy: &Policy) {
    let server = judged.servers.as_ref().map(|(_, newest)| newest.minor());
    let limit = |component: Component, minor: Minor| {
        policy.rule(RuleSubject::Component(component), minor).map(|rule| i64::from(rule.max_older))
    };
    let of = |component: Component| {
        let rows = judged.rows.iter().filter(|row| row.component == component);
        let running = rows.filter_map(|row| limit(component, row.version.minor()?)).min();
        running.or_else(|| limit(component, server?)).map(|limit| (component, limit))
    };
    let shown: Vec<_> = Component::ALL
        .into_iter()
        .filter(|component| *component != Component::Kubectl)
        .filter_map(of)
        .collect();
    metrics.limits(&shown);
}

fn ends(metrics: &Metrics, rows: &[Row], releases: &Catalogue) {
    // A minor that the release data does not know has no row.
    let minors = rows.iter().filter_map(|row| row.version.minor());
    let ends: BTreeMap<String, i64> = minors
        .filter_map(|minor| Some((minor.to_string(), end_of(releases.life(minor)?.end_of_life)?.as_second())))
        .collect();
    let shown: Vec<_> =
        ends.iter().map(|(minor, unix_seconds)| EndOfLife { minor, unix_seconds: *unix_seconds }).collect();
    metrics.end_of_life(&shown);
}

/// The moment at which `day` ends, in UTC.
fn end_of(day: Date) -> Option<Timestamp> {
    let next = day.checked_add(Span::new().days(1)).ok()?;
    Some(next.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evenkeel_core::cluster::{Cluster, Evidence, Instance, Node, Parts, Reach};
    use evenkeel_core::skew::assess;
    use evenkeel_core::version::{Effective, Floors, Observed};

    use super::super::metrics::Build;
    use super::*;
    use crate::observe::PodScope;

    fn instance(component: Component, name: &str, version: &str) -> Instance {
        Instance {
            component,
            name: name.into(),
            node: None,
            version: Observed::from_report(version),
            evidence: Evidence::Image,
            effective: None,
            reach: Reach::Any,
            incarnation: "".into(),
            ready: true,
            probed: None,
        }
    }

    fn node(name: &str, kubelet: &str) -> Node {
        Node {
            name: name.into(),
            uid: name.into(),
            resource_version: "1".into(),
            pool: "general".into(),
            labels: Arc::default(),
            kubelet: Observed::from_report(kubelet),
            evidence: Evidence::Kubelet,
            ready: true,
            heartbeat: None,
            not_ready_since: None,
            unschedulable: false,
            cordoned_by: None,
            held: false,
            control_plane: false,
            etcd: false,
            taints: "".into(),
            outdated_for: None,
        }
    }

    fn text(cluster: &Cluster) -> String {
        let metrics =
            Metrics::new(&Build { version: "0", revision: "0", rust_version: "0" }, PodScope::KubeSystem)
                .unwrap();
        show(
            &metrics,
            &assess(cluster, &Policy::default()),
            &Policy::default(),
            &Catalogue::shipped().unwrap(),
        );
        metrics.text().unwrap()
    }

    /// Every series that alerts read, for a cluster in the middle of an upgrade with one kubelet too old, one too new and
    /// one that says nothing.
    #[test]
    fn a_judgement_as_metrics() {
        let cluster = Parts {
            instances: vec![
                instance(Component::KubeApiserver, "a", "v1.37.1"),
                instance(Component::KubeApiserver, "b", "v1.36.4"),
                instance(Component::KubeScheduler, "s", "v1.36.4"),
            ],
            nodes: [node("n1", "v1.33.1"), node("n2", "v1.37.1"), node("n3", "?"), node("n4", "v1.34.9")]
                .map(Arc::new)
                .into(),
            ..Parts::default()
        }
        .seal();
        let text = text(&cluster);
        let ours = |line: &&str| {
            ["component", "violations", "kubernetes"]
                .iter()
                .any(|name| line.strip_prefix("evenkeel_").is_some_and(|rest| rest.starts_with(name)))
        };
        let mut shown = String::new();
        for line in text.lines().filter(ours) {
            shown.push_str(line.trim_start_matches("evenkeel_"));
            shown.push('\n');
        }
        expect_test::expect![[r#"
            component_instances{component="kube-apiserver",minor="1.36",pool="control-plane",version="v1.36.4"} 1
            component_instances{component="kube-apiserver",minor="1.37",pool="control-plane",version="v1.37.1"} 1
            component_instances{component="kube-scheduler",minor="1.36",pool="control-plane",version="v1.36.4"} 1
            component_instances{component="kubelet",minor="1.33",pool="general",version="v1.33.1"} 1
            component_instances{component="kubelet",minor="1.34",pool="general",version="v1.34.9"} 1
            component_instances{component="kubelet",minor="1.37",pool="general",version="v1.37.1"} 1
            component_instances{component="kubelet",minor="unknown",pool="general",version="unknown"} 1
            component_minor_versions_ahead{component="kube-apiserver",pool="control-plane"} 0
            component_minor_versions_ahead{component="kube-scheduler",pool="control-plane"} 0
            component_minor_versions_ahead{component="kubelet",pool="general"} 1
            component_minor_versions_behind{component="kube-apiserver",pool="control-plane"} 1
            component_minor_versions_behind{component="kube-scheduler",pool="control-plane"} 1
            component_minor_versions_behind{component="kubelet",pool="general"} 4
            component_minor_versions_behind_limit{component="cloud-controller-manager"} 1
            component_minor_versions_behind_limit{component="kube-apiserver"} 1
            component_minor_versions_behind_limit{component="kube-controller-manager"} 1
            component_minor_versions_behind_limit{component="kube-proxy"} 3
            component_minor_versions_behind_limit{component="kube-scheduler"} 1
            component_minor_versions_behind_limit{component="kubelet"} 3
            kubernetes_minor_eol_timestamp_seconds{minor="1.33"} 1782691200
            kubernetes_minor_eol_timestamp_seconds{minor="1.34"} 1793145600
            kubernetes_minor_eol_timestamp_seconds{minor="1.36"} 1814227200
            kubernetes_minor_eol_timestamp_seconds{minor="1.37"} 1824768000
            violations{component="kube-apiserver",pool="control-plane",rule="R1",severity="AtLimit"} 0
            violations{component="kube-apiserver",pool="control-plane",rule="R1",severity="Unsupported"} 0
            violations{component="kube-scheduler",pool="control-plane",rule="R6",severity="AtLimit"} 0
            violations{component="kube-scheduler",pool="control-plane",rule="R6",severity="Unsupported"} 0
            violations{component="kube-scheduler",pool="control-plane",rule="R6",severity="Warning"} 1
            violations{component="kubelet",pool="general",rule="R2",severity="AtLimit"} 1
            violations{component="kubelet",pool="general",rule="R2",severity="Unsupported"} 2
        "#]].assert_eq(&shown);
    }

    /// The alert on what is newer than a kube-apiserver is critical, and says "never supported".
    #[test]
    fn nothing_is_ahead_of_an_emulating_apiserver_that_is_supported_or_not_decided() {
        let minor = |minor| Minor::new(1, minor);
        let ahead = |controllers_emulate: Option<u16>, kubelet: &str| {
            let emulates = |to| Effective::new(minor(37), minor(to), None, Floors::of(minor(37)));
            let server =
                Instance { effective: emulates(36), ..instance(Component::KubeApiserver, "a", "v1.37.1") };
            let scheduler = Instance {
                effective: controllers_emulate.and_then(emulates),
                ..instance(Component::KubeScheduler, "s", "v1.37.1")
            };
            let cluster = Parts {
                instances: vec![server, scheduler],
                nodes: vec![node("n1", kubelet).into()],
                ..Parts::default()
            };
            let text = text(&cluster.seal());
            let of = |component: &str| {
                sum(&text, &format!("evenkeel_component_minor_versions_ahead{{component=\"{component}\""))
            };
            (of("kube-scheduler"), of("kubelet"))
        };
        assert_eq!(ahead(Some(36), "v1.36.4"), (0, 0), "they emulate the same");
        assert_eq!(ahead(None, "v1.36.4"), (0, 0), "it may emulate 1.36, and does not say");
        assert_eq!(ahead(Some(37), "v1.37.1"), (1, 1));
    }

    #[test]
    fn made_up_versions_make_no_series() {
        let nodes = (0..5000).map(|n| node(&format!("n{n:04}"), &format!("v1.36.4-x{n}")).into()).collect();
        let cluster = Parts {
            instances: vec![instance(Component::KubeApiserver, "a", "v1.37.1")],
            nodes,
            ..Parts::default()
        }
        .seal();
        let text = text(&cluster);
        let series = text.lines().filter(|line| line.starts_with("evenkeel_component_instances{")).count();
        assert!(series <= MAX_VERSIONS + 1, "{series} series");
        assert_eq!(sum(&text, "evenkeel_component_instances{component=\"kubelet\""), 5000, "none is lost");
    }

    /// Whoever has a kubelet's credentials may relabel its node.
    #[test]
    fn made_up_pools_make_no_series() {
        // Every second one is too old, and the made-up pools come first by name.
        let real = (0..40).map(|n| Node { pool: "real".into(), ..node(&format!("r{n:04}"), "v1.33.1") });
        let made_up = (0..5000).map(|n| {
            let kubelet = if n % 2 == 0 { "v1.33.1" } else { "v1.36.4" };
            Node { pool: format!("a{n:04}").into(), ..node(&format!("n{n:04}"), kubelet) }
        });
        let cluster = Parts {
            instances: vec![instance(Component::KubeApiserver, "a", "v1.37.1")],
            nodes: real.chain(made_up).map(Arc::new).collect(),
            ..Parts::default()
        }
        .seal();
        let text = text(&cluster);
        let mut pools: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, labels)) = line.split_once('{') else { continue };
            let pool = labels.split_once("pool=\"").and_then(|(_, pool)| pool.split('"').next());
            pools.entry(name).or_default().extend(pool);
        }
        pools.retain(|_, pools| !pools.is_empty());
        assert_eq!(pools.len(), 4, "{:?}", pools.keys());
        for (name, pools) in pools {
            let kept = ["control-plane", "real", "a0000", OTHER].iter().all(|pool| pools.contains(pool));
            assert!(kept && pools.len() == MAX_POOLS + 2, "{name}: {pools:?}");
        }
        assert_eq!(sum(&text, "evenkeel_component_instances{component=\"kubelet\""), 5040, "none is lost");
        let broken =
            "evenkeel_violations{component=\"kubelet\",pool=\"other\",rule=\"R2\",severity=\"Unsupported\"";
        let other = (5000 - (MAX_POOLS - 1)) / 2;
        assert_eq!(sum(&text, broken), other, "none of those that break a rule is lost");
        let behind = "evenkeel_component_minor_versions_behind{component=\"kubelet\",pool=\"other\"";
        assert_eq!(sum(&text, behind), 4, "the worst of them");
    }

    /// The sum of all series that begin with `series`.
    fn sum(text: &str, series: &str) -> usize {
        let of = |line: &str| line.strip_prefix(series)?.rsplit_once(' ')?.1.parse::<usize>().ok();
        text.lines().filter_map(of).sum()
    }
}
