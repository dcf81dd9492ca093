//! The judgement of a whole cluster.
//!
//! Here belongs what is said of all groups together: the verdict, the extremes, and everything found. One group is
//! judged in `row.rs`. The invariant: only the policy decides the verdict; what else is known changes nothing about it.

use super::census::{Census, span};
use super::findings::{self, Severity, SkewFinding};
use super::next::{self, NextMinor};
use super::policy::{Policy, RuleSubject};
use super::row::{Row, row};
use super::servers::servers_of;
use super::verdict::{Standing, Verdict};
use crate::cluster::{Cluster, Component};
use crate::version::KubeVersion;

/// The judgement of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// Oldest and newest kube-apiserver, of those whose version is known.
    pub servers: Option<(KubeVersion, KubeVersion)>,
    /// Oldest and newest kubelet, of those whose version is known.
    pub kubelets: Option<(KubeVersion, KubeVersion)>,
    /// How many minors the oldest kubelet is behind the newest kube-apiserver.
    pub behind: Option<i32>,
    /// How many minors it may be behind, by the policy.
    pub limit: Option<i32>,
    /// Whether every pair is inside the policy.
    pub supported: Verdict,
    /// How many components are outside the policy.
    pub violations: usize,
    /// How many components run an unknown version. Those that their makers number as they like are not among them: it
    /// is not visible, and never will be, and the policy cannot be about it.
    pub unknown: usize,
    /// Everything seen, grouped, worst first.
    pub rows: Vec<Row>,
    /// Everything that a person should know, grouped and ordered by id, which is unique.
    pub findings: Vec<SkewFinding>,
    /// Whether the control plane may go one minor further, and what stands in the way.
    pub next_minor: NextMinor,
}

impl Assessment {
    /// With more findings, such as those of [`super::lifecycle`]. The verdict stays: only the policy decides it.
    #[must_use]
    pub fn with(mut self, more: Vec<SkewFinding>) -> Self {
        self.findings = findings::unique(self.findings.into_iter().chain(more));
        self
    }

    /// The findings that make the cluster unsupported.
    pub fn unsupported(&self) -> impl Iterator<Item = &SkewFinding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Unsupported)
    }
}

/// Judges `cluster` by `policy`.
pub fn assess(cluster: &Cluster, policy: &Policy) -> Assessment {
    assess_counted(&Census::of(cluster), cluster, policy)
}

/// Judges `cluster` by `policy`, where there is a `census` of it already: no node is walked over.
pub fn assess_counted(census: &Census, cluster: &Cluster, policy: &Policy) -> Assessment {
    let servers = servers_of(cluster);
    let kubelets = census.kubelets(cluster);
    let mut counted: Vec<_> = census.groups(cluster).map(|group| (group.met(servers), group)).collect();
    // Rows that stand alike are shown by version and then by the kube-apiservers that they meet.
    counted.sort_by(|(met, group), (other_met, other)| {
        (group.key.kind(), met, group.key.emulation).cmp(&(other.key.kind(), other_met, other.key.emulation))
    });
    let mut rows: Vec<Row> =
        counted.into_iter().map(|(met, group)| row(&group, met, servers, policy)).collect();
    let findings = findings::of(cluster, policy, &rows, servers);
    if findings.iter().any(|f| f.component == Component::KubeApiserver && f.severity == Severity::Unsupported)
    {
        rows.iter_mut().filter(|r| r.component == Component::KubeApiserver).for_each(|r| {
            r.standing = Standing::Unsupported;
        });
    }
    let unknown = rows.iter().filter(|r| r.standing == Standing::Unknown && !r.has_own_numbers());
    let unknown = unknown.map(|r| r.count).sum();
    let violations = || findings.iter().filter(|finding| finding.severity == Severity::Unsupported);
    let supported = match (violations().next(), unknown, servers) {
        (Some(_), _, _) => Verdict::False,
        (None, 0, Some(_)) => Verdict::True,
        (None, _, _) => Verdict::Unknown,
    };
    rows.sort_by(|a, b| (a.component, a.standing, &a.pool).cmp(&(b.component, b.standing, &b.pool)));
    let oldest = kubelets.as_ref().map(|(oldest, _)| oldest.minor());
    Assessment {
        servers: span(
            &cluster.of(Component::KubeApiserver).filter_map(|i| i.version.known()).collect::<Vec<_>>(),
        ),
        behind: oldest.zip(servers).map(|(oldest, servers)| oldest.behind(servers.newest_emulated)),
        limit: oldest
            .and_then(|oldest| policy.rule(RuleSubject::Component(Component::Kubelet), oldest))
            .map(|rule| i32::from(rule.max_older)),
        kubelets,
        supported,
        violations: violations().map(|f| f.count).sum(),
        unknown,
        next_minor: next::minor(cluster, policy, &rows, servers),
        rows,
        findings,
    }
}
