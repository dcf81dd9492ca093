//! The Kubernetes version skew policy, and the judgement of a cluster by it.
//!
//! [`policy`] holds the rules as data and the one function that applies them to a pair; [`assess`] here applies that
//! function to a whole [`Cluster`] and groups what it finds. Nothing here says how to print or store a judgement.
//! The invariant: adding a component never removes a violation, and an unknown version never adds one; it only makes
//! the verdict [`Verdict::Unknown`] where no violation is certain.

pub mod policy;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{Cluster, Component, Instance};
use crate::version::{KubeVersion, Minor, Observed};
use policy::{Judgement, Rule, Servers, judge};

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
    /// A controller one minor behind: allowed only while an upgrade is under way (policy, "are expected to match").
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

/// Components of one kind, pool and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which component.
    pub component: Component,
    /// The node pool; `control-plane` for control-plane components.
    pub pool: Arc<str>,
    /// The version they run.
    pub version: Observed,
    /// How many.
    pub count: usize,
    /// Minors behind the newest apiserver (negative: ahead), where both are known.
    pub behind: Option<i32>,
    /// How they stand.
    pub standing: Standing,
    /// The first few names, sorted.
    pub samples: Vec<Arc<str>>,
}

/// One thing that is wrong, with everything it is wrong for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable: rule, component, pool and version.
    pub id: String,
    /// The rule that is broken.
    pub rule: &'static Rule,
    /// Which component breaks it.
    pub component: Component,
    /// How many of them.
    pub count: usize,
    /// The first few names, sorted.
    pub samples: Vec<Arc<str>>,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do about it, in one line.
    pub remedy: String,
}

/// Whether every apiserver may go to the next minor now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextMinor {
    /// That minor, when the current one is known.
    pub minor: Option<Minor>,
    /// Whether it may be started.
    pub allowed: Verdict,
    /// Why not, one line each, in a fixed order.
    pub blockers: Vec<String>,
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
    /// How many it may be.
    pub limit: Option<i32>,
    /// Whether every pair is inside the policy.
    pub supported: Verdict,
    /// How many components are outside it.
    pub violations: usize,
    /// How many components run an unknown version.
    pub unknown: usize,
    /// Everything seen, grouped, worst first.
    pub rows: Vec<Row>,
    /// Everything wrong, grouped, in rule order.
    pub findings: Vec<Finding>,
    /// The next minor.
    pub next_minor: NextMinor,
}

/// Judges `cluster` by the version skew policy.
pub fn assess(cluster: &Cluster) -> Assessment {
    let servers = Servers::of(cluster);
    let kubelets = span(cluster.nodes.iter().map(|node| &node.kubelet));
    let mut rows: BTreeMap<(Component, Arc<str>, String), Row> = BTreeMap::new();
    for seen in everything(cluster) {
        let key = (seen.component, Arc::clone(&seen.pool), seen.version.to_string());
        let row = rows.entry(key).or_insert_with(|| row(&seen, servers));
        row.count += 1;
        if row.samples.len() < SAMPLES {
            row.samples.push(Arc::clone(seen.name));
        }
    }
    let mut findings: Vec<Finding> = servers.and_then(|s| spread(cluster, s)).into_iter().collect();
    findings.extend(rows.values().filter_map(|row| broken_rule(row, servers)));
    findings.extend(proxies_far_from_their_kubelet(cluster, servers));
    findings.sort_by(|a, b| a.id.cmp(&b.id));
    let mut rows: Vec<Row> = rows.into_values().collect();
    if findings.iter().any(|f| f.component == Component::KubeApiserver) {
        rows.iter_mut().filter(|r| r.component == Component::KubeApiserver).for_each(|r| {
            r.standing = Standing::Unsupported;
        });
    }
    let unknown = rows.iter().filter(|r| r.standing == Standing::Unknown).map(|r| r.count).sum();
    let supported = match (findings.is_empty(), unknown, servers) {
        (false, _, _) => Verdict::False,
        (true, 0, Some(_)) => Verdict::True,
        (true, _, _) => Verdict::Unknown,
    };
    rows.sort_by(|a, b| (a.component, a.standing, &a.pool).cmp(&(b.component, b.standing, &b.pool)));
    let oldest = kubelets.as_ref().map(|(oldest, _)| oldest.minor());
    Assessment {
        servers: span(cluster.of(Component::KubeApiserver).map(|i| &i.version)),
        behind: oldest.zip(servers).map(|(oldest, servers)| oldest.behind(servers.newest)),
        limit: oldest
            .and_then(|oldest| policy::rule(Component::Kubelet, oldest))
            .map(|rule| i32::from(rule.max_older)),
        kubelets,
        supported,
        violations: findings.iter().map(|f| f.count).sum(),
        unknown,
        next_minor: next_minor(&rows, servers),
        rows,
        findings,
    }
}

/// What stands in the way of taking every apiserver to `target`, one line each; empty when nothing does.
///
/// While the apiservers go over one by one, both minors serve, so every other component must be allowed by both: that
/// is the policy's own rule for HA clusters, and it contains the page's preconditions (controllers exactly at the
/// current minor, kubelets at most three behind the target).
pub fn blockers_of_minor(cluster: &Cluster, target: Minor) -> Vec<String> {
    let assessment = assess(cluster);
    blockers(&assessment.rows, Servers::of(cluster), target)
}

fn blockers(rows: &[Row], servers: Option<Servers>, target: Minor) -> Vec<String> {
    let Some(servers) = servers else {
        return vec!["no kube-apiserver's version is known".to_owned()];
    };
    let during = Servers { oldest: servers.oldest, newest: servers.newest.max(target) };
    let mut lines = Vec::new();
    if during.newest.behind(during.oldest) < -1 {
        lines.push(format!(
            "kube-apiservers are at {}; {target} is more than one minor away and minors must not be skipped",
            servers.oldest
        ));
    }
    for row in rows.iter().filter(|row| row.component != Component::KubeApiserver) {
        let who =
            format!("{} {} {} ({})", row.count, row.component, row.version, names(row.count, &row.samples));
        match row.version.minor() {
            // A node that says nothing certain about itself must not stop the control plane of everyone else; it
            // is listed as unknown in the report and left alone by the rollout.
            None if row.component == Component::Kubelet || row.component == Component::KubeProxy => {}
            None => lines.push(format!("{who}: version unknown, must be {} first", servers.oldest)),
            Some(minor) => match judge(row.component, minor, during).1 {
                Judgement::TooOld { floor } => {
                    lines.push(format!("{who} would be too old: must be {floor} or newer first"));
                }
                Judgement::TooNew { ceiling } => {
                    lines.push(format!("{who} is newer than the oldest kube-apiserver ({ceiling})"));
                }
                Judgement::Within { .. } => {}
            },
        }
    }
    lines
}

fn next_minor(rows: &[Row], servers: Option<Servers>) -> NextMinor {
    let Some(servers) = servers else {
        let blockers = vec!["no kube-apiserver's version is known".to_owned()];
        return NextMinor { minor: None, allowed: Verdict::Unknown, blockers };
    };
    let minor = servers.newest.next();
    let mut lines = Vec::new();
    let unknown_server =
        rows.iter().any(|r| r.component == Component::KubeApiserver && r.version.known().is_none());
    if servers.oldest == servers.newest {
        lines = blockers(rows, Some(servers), minor);
    } else {
        lines.push(format!(
            "kube-apiservers are at {} and {}: finish that upgrade first",
            servers.oldest, servers.newest
        ));
    }
    let allowed = match (lines.is_empty(), unknown_server) {
        (true, false) => Verdict::True,
        (true, true) => Verdict::Unknown,
        (false, _) => Verdict::False,
    };
    if unknown_server {
        lines.push("a kube-apiserver does not say its version".to_owned());
    }
    NextMinor { minor: Some(minor), allowed, blockers: lines }
}

/// One component as [`assess`] walks over them.
struct Seen<'a> {
    component: Component,
    name: &'a Arc<str>,
    pool: Arc<str>,
    version: &'a Observed,
}

fn everything(cluster: &Cluster) -> impl Iterator<Item = Seen<'_>> {
    let control_plane: Arc<str> = "control-plane".into();
    let instances = cluster.instances.iter().map(move |instance| Seen {
        component: instance.component,
        name: &instance.name,
        pool: match instance.component {
            Component::KubeProxy => pool_of(cluster, instance),
            _ => Arc::clone(&control_plane),
        },
        version: &instance.version,
    });
    instances.chain(cluster.nodes.iter().map(|node| Seen {
        component: Component::Kubelet,
        name: &node.name,
        pool: Arc::clone(&node.pool),
        version: &node.kubelet,
    }))
}

fn pool_of(cluster: &Cluster, instance: &Instance) -> Arc<str> {
    let node = instance.node.as_deref().and_then(|name| cluster.node(name));
    node.map_or_else(|| "unknown".into(), |node| Arc::clone(&node.pool))
}

fn row(seen: &Seen<'_>, servers: Option<Servers>) -> Row {
    let standing = match (seen.version.minor(), servers) {
        (Some(minor), Some(servers)) => match judge(seen.component, minor, servers).1 {
            Judgement::TooOld { .. } | Judgement::TooNew { .. } => Standing::Unsupported,
            Judgement::Within { .. } if seen.component == Component::KubeApiserver => Standing::Supported,
            Judgement::Within { behind, .. } if seen.component.is_controller() && behind > 0 => {
                Standing::Transitional
            }
            Judgement::Within { headroom: 0, .. } if !seen.component.is_controller() => Standing::AtLimit,
            Judgement::Within { .. } => Standing::Supported,
        },
        _ => Standing::Unknown,
    };
    Row {
        component: seen.component,
        pool: Arc::clone(&seen.pool),
        version: seen.version.clone(),
        count: 0,
        behind: seen.version.minor().zip(servers).map(|(minor, servers)| minor.behind(servers.newest)),
        standing,
        samples: Vec::new(),
    }
}

fn broken_rule(row: &Row, servers: Option<Servers>) -> Option<Finding> {
    let (minor, servers) = row.version.minor().zip(servers)?;
    let (rule, judgement) = judge(row.component, minor, servers);
    let who = format!("{} {} {} in pool {}", row.count, row.component, row.version, row.pool);
    let (message, remedy) = match judgement {
        Judgement::Within { .. } => return None,
        Judgement::TooOld { floor } => (
            format!("{who}: too old for kube-apiserver {}, which allows {floor} or newer", servers.newest),
            format!("upgrade {} to {} before anything else", row.component, servers.oldest),
        ),
        Judgement::TooNew { ceiling } => (
            format!("{who}: newer than the oldest kube-apiserver it can reach, {ceiling}"),
            format!("bring every kube-apiserver to {minor}, or take {} back to {ceiling}", row.component),
        ),
    };
    Some(Finding {
        id: format!("{}/{}/{}/{}", rule?.id, row.component, row.pool, row.version),
        rule: rule?,
        component: row.component,
        count: row.count,
        samples: row.samples.clone(),
        message,
        remedy,
    })
}

fn spread(cluster: &Cluster, servers: Servers) -> Option<Finding> {
    let distance = servers.oldest.behind(servers.newest);
    if distance <= i32::from(policy::APISERVER_SPREAD.max_older) {
        return None;
    }
    let oldest: Vec<_> = cluster
        .of(Component::KubeApiserver)
        .filter(|i| i.version.minor() == Some(servers.oldest))
        .map(|i| Arc::clone(&i.name))
        .collect();
    Some(Finding {
        id: format!("{}/{}", policy::APISERVER_SPREAD.id, Component::KubeApiserver),
        rule: &policy::APISERVER_SPREAD,
        component: Component::KubeApiserver,
        count: oldest.len(),
        message: format!(
            "kube-apiservers are {distance} minors apart ({} and {}); one is allowed",
            servers.oldest, servers.newest
        ),
        remedy: format!("bring the kube-apiservers at {} forward, one minor at a time", servers.oldest),
        samples: oldest.into_iter().take(SAMPLES).collect(),
    })
}

/// Rule R4. It adds information only where no apiserver's version is known: whenever kubelet and kube-proxy are both
/// allowed by the apiservers, the pair is allowed too.
fn proxies_far_from_their_kubelet(cluster: &Cluster, servers: Option<Servers>) -> Vec<Finding> {
    if servers.is_some() {
        return Vec::new();
    }
    let far = cluster.of(Component::KubeProxy).filter_map(|proxy| {
        let kubelet = cluster.node(proxy.node.as_deref()?)?.kubelet.minor()?;
        let rule = policy::pair_rule(proxy.version.minor()?, kubelet)?;
        Some(Finding {
            id: format!("{}/{}/{}", rule.id, Component::KubeProxy, proxy.name),
            rule,
            component: Component::KubeProxy,
            count: 1,
            samples: vec![Arc::clone(&proxy.name)],
            message: format!("kube-proxy {} is too far from its node's kubelet {kubelet}", proxy.version),
            remedy: "bring the older of the two forward".to_owned(),
        })
    });
    far.collect()
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
