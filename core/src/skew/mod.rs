//! The Kubernetes version skew policy, and the judgement of a cluster by it.
//!
//! [`policy`] holds the rules as data and the one function that applies them to a pair; [`assess`] here applies that
//! function to a whole [`Cluster`], groups what it sees, and says what is wrong (`findings.rs`) and what is in the way
//! of the next minor (`next.rs`). [`lifecycle`] knows when maintenance ends, [`tools`] the stricter or laxer rules of
//! other programs. Nothing here says how to print or store a judgement. The invariant: adding a component never removes
//! a violation, and an unknown version never adds one; it only makes the verdict [`Verdict::Unknown`] where no
//! violation is certain.

mod census;
mod findings;
pub mod lifecycle;
mod next;
pub mod policy;
pub mod tools;

use std::sync::Arc;

use crate::cluster::{Cluster, Component, Evidence, Instance, Reach};
use crate::version::{Effective, KubeVersion, Minor, Observed, Unknown};
pub use census::Census;
use census::{Counted, Met};
pub use findings::{Finding, Severity};
pub use next::{NextMinor, blockers_of_minor, webhooks_in_the_way};
use policy::{Judgement, Policy, Rule, RuleSubject, Running, Servers};

/// How many names a row or finding shows as examples.
pub const SAMPLES: usize = 5;

/// Yes, no, or not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Certain.
    True,
    /// Certainly not.
    False,
    /// Something that decides it is not known.
    Unknown,
}

/// How a group of components stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Outside the policy.
    Unsupported,
    /// Its version is not known.
    Unknown,
    /// Inside, but the next control-plane minor would put it outside.
    AtLimit,
    /// A controller one minor behind: allowed only while an upgrade is under way (policy, "are expected to match"). Or one
    /// at the minor of the kube-apiserver of its own node, the only one it talks to, while another is still behind.
    Transitional,
    /// Inside.
    Supported,
}

impl Standing {
    /// The word for it in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unsupported => "Unsupported",
            Self::Unknown => "Unknown",
            Self::AtLimit => "AtLimit",
            Self::Transitional => "Transitional",
            Self::Supported => "Supported",
        }
    }
}

/// Components of one kind, pool and version, which was read in the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which component.
    pub component: Component,
    /// The node pool; `control-plane` for control-plane components.
    pub pool: Arc<str>,
    /// The version they run.
    pub version: Observed,
    /// Where that was read.
    pub evidence: Evidence,
    /// How many.
    pub count: usize,
    /// Minors behind what the newest apiserver behaves as (negative: ahead), where both are known.
    pub behind: Option<i32>,
    /// How many more minors the apiservers may go before these must move, where that is known and there is a rule.
    pub headroom: Option<i32>,
    /// How they stand.
    pub standing: Standing,
    /// The first few names, sorted.
    pub samples: Vec<Arc<str>>,
    judged: Option<Judged>,
}

impl Row {
    /// The rule it was judged by, where there is one for it and its version is known.
    pub fn rule(&self) -> Option<&'static Rule> {
        self.judged.and_then(|judged| judged.rule)
    }

    /// Whether its version is numbered by its makers and says nothing of Kubernetes: no rule can be applied to it.
    pub fn has_own_numbers(&self) -> bool {
        matches!(self.version, Observed::Unknown(Unknown::OwnNumber(_)))
    }

    /// Minors ahead of what the oldest apiserver that it meets behaves as, where both are known; never below 0.
    pub fn ahead(&self) -> Option<i32> {
        self.judged.map(|judged| (-judged.running.binary.behind(judged.servers.emulated)).max(0))
    }
}

/// What a row was judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Judged {
    running: Running,
    servers: Servers,
    rule: Option<&'static Rule>,
    judgement: Judgement,
}

/// The judgement of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// Oldest and newest apiserver, of those whose version is known.
    pub servers: Option<(KubeVersion, KubeVersion)>,
    /// Oldest and newest kubelet, of those whose version is known.
    pub kubelets: Option<(KubeVersion, KubeVersion)>,
    /// How many minors the oldest kubelet is behind the newest apiserver.
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
    pub findings: Vec<Finding>,
    /// The next minor.
    pub next_minor: NextMinor,
}

impl Assessment {
    /// With more findings, such as those of [`lifecycle`]. The verdict stays: only the policy decides it.
    #[must_use]
    pub fn with(mut self, more: Vec<Finding>) -> Self {
        self.findings = findings::unique(self.findings.into_iter().chain(more));
        self
    }

    /// The findings that make the cluster unsupported.
    pub fn unsupported(&self) -> impl Iterator<Item = &Finding> {
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
    // Rows that stand alike are shown by version and then by the apiservers that they meet.
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
        servers: span(cluster.of(Component::KubeApiserver).map(|i| &i.version)),
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

/// The newest minor that a kubelet may run, whichever kube-apiserver it meets: the oldest minor that one of them
/// behaves as, which is what it emulates, where it emulates (KEP-4330, "Skew"). `None` while some kube-apiserver's
/// version is not known, because that one may be older, and where there is no kube-apiserver.
pub fn kubelets_ceiling(cluster: &Cluster) -> Option<Minor> {
    let known = |server: &Instance| effective(server).map(Effective::emulation);
    let all: Option<Vec<Minor>> = cluster.of(Component::KubeApiserver).map(known).collect();
    all?.into_iter().min()
}

/// The apiservers whose version is known.
fn servers_of(cluster: &Cluster) -> Option<Servers> {
    Servers::of(cluster.of(Component::KubeApiserver).filter_map(effective))
}

/// What an apiserver is and behaves as; what it says of a binary that it does not run is passed over.
pub(crate) fn effective(server: &Instance) -> Option<Effective> {
    let binary = server.version.minor()?;
    let said = server.effective.filter(|effective| effective.binary() == binary);
    Some(said.unwrap_or(Effective::plain(binary)))
}

/// The apiservers that `instance` talks to. Where its own cannot be told, all of them: that allows least.
fn servers_own(cluster: &Cluster, instance: &Instance) -> Met {
    let node = match instance.reach {
        Reach::Local => instance.node.as_ref(),
        Reach::Any => None,
    };
    let Some(node) = node else { return Met::All };
    let own: Vec<&Instance> =
        cluster.of(Component::KubeApiserver).filter(|server| server.node.as_ref() == Some(node)).collect();
    if own.is_empty() {
        return Met::All;
    }
    let met = Servers::of(own.into_iter().filter_map(effective));
    let all = servers_of(cluster);
    // While its own does not say its version, it is judged by the others, if that finds nothing wrong: its own is not
    // known to be another than they are.
    let suits = |all: Servers| {
        instance.version.minor().is_some_and(|minor| minor <= all.emulated && minor.next() >= all.newest)
    };
    if met == all || met.is_none() && all.is_some_and(suits) { Met::All } else { Met::Own(met) }
}

/// The row of `seen`, which meets `servers`, some of `all`.
fn row(seen: &Counted<'_>, servers: Option<Servers>, all: Option<Servers>, policy: &Policy) -> Row {
    let component = seen.key.component;
    // kubeadm moves the controllers of a node with its kube-apiserver, while those of other nodes are behind.
    let ahead = all.zip(seen.version.minor()).is_some_and(|(all, minor)| minor > all.oldest);
    let judged = seen.version.minor().zip(servers).map(|(binary, servers)| {
        let running = Running { binary, emulation: seen.key.emulation };
        let (rule, judgement) = policy.judge(RuleSubject::Component(component), running, servers);
        Judged { running, servers, rule, judgement }
    });
    let standing = match judged.map(|judged| judged.judgement) {
        None | Some(Judgement::Undecided { .. }) => Standing::Unknown,
        Some(Judgement::TooOld { .. } | Judgement::TooNew { .. }) => Standing::Unsupported,
        Some(Judgement::Within { .. }) if component == Component::KubeApiserver => Standing::Supported,
        Some(Judgement::Within { behind, .. }) if component.is_controller() && (behind > 0 || ahead) => {
            Standing::Transitional
        }
        // Nobody's kubectl keeps a control plane from moving on.
        Some(Judgement::Within { .. }) if component == Component::Kubectl => Standing::Supported,
        Some(Judgement::Within { headroom: 0, .. }) if !component.is_controller() => Standing::AtLimit,
        Some(Judgement::Within { .. }) => Standing::Supported,
    };
    let headroom = match judged.map(|judged| judged.judgement) {
        Some(Judgement::Within { headroom, .. }) if component != Component::KubeApiserver => Some(headroom),
        _ => None,
    };
    Row {
        component,
        pool: Arc::clone(&seen.key.pool),
        version: seen.version.clone(),
        evidence: seen.key.evidence,
        count: seen.count,
        behind: judged.map(|judged| judged.running.binary.behind(judged.servers.newest_emulated)),
        headroom,
        standing,
        samples: seen.samples(),
        judged,
    }
}

fn span<'a>(versions: impl Iterator<Item = &'a Observed>) -> Option<(KubeVersion, KubeVersion)> {
    let known: Vec<_> = versions.filter_map(Observed::known).collect();
    let oldest = known.iter().min_by_key(|version| version.release())?;
    let newest = known.iter().max_by_key(|version| version.release())?;
    Some(((*oldest).clone(), (*newest).clone()))
}

/// `a, b, c and 17 more`.
pub fn names(count: usize, samples: &[Arc<str>]) -> String {
    let listed = samples.join(", ");
    match count.saturating_sub(samples.len()) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
