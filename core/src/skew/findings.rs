//! What a person should know about a judged cluster: what is wrong, what soon will be, and what to do about it.
//!
//! Here belong the words; whether something is wrong is decided by [`super::policy`] before. The invariant: a finding's
//! id names rule, component, pool and version, is unique, and stays the same as long as the finding does.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::policy::{self, Judgement, Policy, Rule, Servers, may_update_in_place};
use super::row::Row;
use super::samples::SAMPLES;
use super::verdict::Standing;
use crate::cluster::{Cluster, Component};
use crate::version::image_tag;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Outside the policy now.
    Unsupported,
    /// Inside, and in the way of the next minor.
    AtLimit,
    /// Allowed, and better changed.
    Warning,
}

impl Severity {
    /// The word for it in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unsupported => "Unsupported",
            Self::AtLimit => "AtLimit",
            Self::Warning => "Warning",
        }
    }
}

/// One thing to know, with everything it is true of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkewFinding {
    /// Stable and unique: rule, component, pool and version.
    pub id: String,
    /// Whether it is outside the policy, in the way of the next minor, or only better changed.
    pub severity: Severity,
    /// The rule that found it; its id begins the finding's.
    pub rule: &'static Rule,
    /// The component that has to move.
    pub component: Component,
    /// How many of them.
    pub count: usize,
    /// The first few names, sorted.
    pub samples: Vec<Arc<str>>,
    /// It is newer than what it talks to allows, so it is not what has to be upgraded.
    pub too_new: bool,
    /// What it is, in one line.
    pub message: String,
    /// What to do about it, in one line.
    pub remedy: String,
}

/// Everything the policy finds, by id.
pub(super) fn of(
    cluster: &Cluster,
    policy: &Policy,
    rows: &[Row],
    servers: Option<Servers>,
) -> Vec<SkewFinding> {
    let spread = servers.and_then(|servers| spread(cluster, policy, servers));
    // While kube-apiservers of two minors serve, an upgrade is under way, also where a controller meets one of them alone.
    let even = servers.is_none_or(|servers| servers.oldest == servers.newest);
    let pairs = if servers.is_none() { proxies_far_from_their_kubelet(cluster, policy) } else { Vec::new() };
    unique(spread.into_iter().chain(of_rows(rows, even)).chain(pairs))
}

/// Those of `rows`. Rows that differ only in the kube-apiservers that they meet have one together, in the words of the
/// row of which most is asked.
fn of_rows(rows: &[Row], even: bool) -> Vec<SkewFinding> {
    let mut alike: BTreeMap<String, Vec<(SkewFinding, &Row)>> = BTreeMap::new();
    for row in rows {
        if let Some(finding) = of_row(row, row.count, even) {
            alike.entry(finding.id.clone()).or_default().push((finding, row));
        }
    }
    let together = |found: Vec<(SkewFinding, &Row)>| {
        let count = found.iter().map(|(finding, _)| finding.count).sum();
        let (_, strictest) = found.iter().min_by_key(|(finding, row)| (finding.severity, row.leeway()))?;
        let told = of_row(strictest, count, even)?;
        let mut samples: Vec<_> = found.into_iter().flat_map(|(finding, _)| finding.samples).collect();
        samples.sort();
        samples.truncate(SAMPLES);
        Some(SkewFinding { samples, ..told })
    };
    alike.into_values().filter_map(together).collect()
}

/// The findings by id. Those of one id become one with their counts added up.
pub(super) fn unique(findings: impl Iterator<Item = SkewFinding>) -> Vec<SkewFinding> {
    let mut all: Vec<SkewFinding> = findings.collect();
    all.sort_by(|a, b| (&a.id, &a.message).cmp(&(&b.id, &b.message)));
    all.dedup_by(|more, first| {
        let same = more.id == first.id;
        if same {
            first.count += more.count;
            first.samples.append(&mut more.samples);
            first.samples.sort();
            first.samples.truncate(SAMPLES);
            first.severity = first.severity.min(more.severity);
        }
        same
    });
    all
}

/// What is found about `count` components like those of `row`.
fn of_row(row: &Row, count: usize, even: bool) -> Option<SkewFinding> {
    let judged = row.judged?;
    let servers = judged.servers;
    let mut rule = judged.rule?;
    let Row { component, pool, version, .. } = row;
    let who = match component {
        Component::Kubectl => format!("{component} {version}"),
        _ => format!("{count} {component} {version} in pool {pool}"),
    };
    let (severity, message, remedy) = match judged.judgement {
        Judgement::TooOld { floor } => (
            Severity::Unsupported,
            format!("{who}: too old for kube-apiserver {}, which allows {floor} or newer", servers.told()),
            format!("{} before anything else", upgrade(row, servers)),
        ),
        Judgement::TooNew { ceiling } if *component == Component::Kubectl => (
            Severity::Unsupported,
            format!("{who}: too new for kube-apiserver {}, which allows {ceiling} or older", servers.oldest),
            format!("use a kubectl of {}", servers.oldest),
        ),
        Judgement::TooNew { ceiling } if judged.running.binary <= servers.oldest => (
            Severity::Unsupported,
            format!("{who}: newer than what a kube-apiserver it can reach emulates, {ceiling}"),
            format!("end the emulation of the kube-apiservers, or take {component} back to {ceiling}"),
        ),
        Judgement::TooNew { ceiling } => (
            Severity::Unsupported,
            format!("{who}: newer than the oldest kube-apiserver it can reach, {ceiling}"),
            format!(
                "bring every kube-apiserver to {}, or take {component} back to {ceiling}",
                judged.running.binary
            ),
        ),
        Judgement::Undecided { ceiling } => (
            Severity::Warning,
            format!(
                "{who}: newer than {ceiling}, which a kube-apiserver emulates; whether it emulates that too is not visible"
            ),
            format!(
                "start {component} with --emulated-version={ceiling}, or end the emulation of the kube-apiservers"
            ),
        ),
        Judgement::Within { .. } if row.standing == Standing::AtLimit => (
            Severity::AtLimit,
            format!(
                "{who}: as old as kube-apiserver {} allows, so that it cannot go further",
                servers.told()
            ),
            format!("{} before the next minor", upgrade(row, servers)),
        ),
        Judgement::Within { behind, .. }
            if row.standing == Standing::Transitional && even && servers.oldest == servers.newest =>
        {
            rule = &policy::CONTROLLERS_MATCH;
            (
                Severity::Warning,
                format!(
                    "{who}: {behind} minor behind kube-apiserver {}, which is meant for upgrades only",
                    servers.told()
                ),
                upgrade(row, servers),
            )
        }
        Judgement::Within { .. } => return None,
    };
    Some(SkewFinding {
        id: format!("{}/{component}/{pool}/{version}", rule.id),
        severity,
        rule,
        component: *component,
        count,
        samples: row.samples.clone(),
        too_new: matches!(judged.judgement, Judgement::TooNew { .. }),
        message,
        remedy,
    })
}

/// What to do to bring the components of `row` to the oldest minor that a kube-apiserver behaves as.
fn upgrade(row: &Row, servers: Servers) -> String {
    let (component, to) = (row.component, servers.emulated);
    let crosses_minors = row.version.minor().is_none_or(|from| !may_update_in_place(from, to));
    match component {
        Component::Kubelet
            if row.version.known().is_some_and(crate::version::KubeVersion::is_virtual_kubelet) =>
        {
            format!("upgrade the virtual kubelet to a release that is built for {to}")
        }
        Component::Kubelet if crosses_minors => format!("drain and upgrade {component} to {to}"),
        Component::Kubectl => format!("use a kubectl of {to}"),
        Component::KubeProxy => {
            let tag = image_tag(&format!("v{to}.x"));
            format!("set the image of the {component} DaemonSet to a tag {tag}")
        }
        _ => format!("upgrade {component} to {to}"),
    }
}

fn spread(cluster: &Cluster, policy: &Policy, servers: Servers) -> Option<SkewFinding> {
    let rule = policy.broken_by_spread(servers.oldest, servers.newest)?;
    let distance = servers.oldest.behind(servers.newest);
    let oldest: Vec<_> = cluster
        .of(Component::KubeApiserver)
        .filter(|i| i.version.minor() == Some(servers.oldest))
        .map(|i| Arc::clone(&i.name))
        .collect();
    Some(SkewFinding {
        id: format!("{}/{}", rule.id, Component::KubeApiserver),
        severity: Severity::Unsupported,
        rule,
        component: Component::KubeApiserver,
        count: oldest.len(),
        too_new: false,
        message: format!(
            "kube-apiservers are {distance} minors apart ({} and {}); one is allowed",
            servers.oldest, servers.newest
        ),
        remedy: format!("bring the kube-apiservers at {} forward, one minor at a time", servers.oldest),
        samples: oldest.into_iter().take(SAMPLES).collect(),
    })
}

/// Rule R4, for clusters of which no kube-apiserver's version is known: see [`Policy::broken_by_pair`].
fn proxies_far_from_their_kubelet(cluster: &Cluster, policy: &Policy) -> Vec<SkewFinding> {
    let far = cluster.of(Component::KubeProxy).filter_map(|proxy| {
        let kubelet = cluster.node(proxy.node.as_deref()?)?.kubelet.minor()?;
        let rule = policy.broken_by_pair(proxy.version.minor()?, kubelet)?;
        Some(SkewFinding {
            id: format!("{}/{}/{}", rule.id, Component::KubeProxy, proxy.name),
            severity: Severity::Unsupported,
            rule,
            component: Component::KubeProxy,
            count: 1,
            samples: vec![Arc::clone(&proxy.name)],
            too_new: proxy.version.minor() > Some(kubelet),
            message: format!("kube-proxy {} is too far from its node's kubelet {kubelet}", proxy.version),
            remedy: "bring the older of the two forward".to_owned(),
        })
    });
    far.collect()
}
