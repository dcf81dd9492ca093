//! Whether every kube-apiserver may go to the next minor, and what exactly stands in the way.
//!
//! While the kube-apiservers go over one by one, both minors serve, so every other component must be allowed by both:
//! that is the policy's own rule for HA clusters, and it contains the page's preconditions (controllers exactly at
//! the current minor, kubelets at most three behind the target). The invariant: a target that is let through leaves
//! no pair outside the policy in any order in which the kube-apiservers go.

use super::policy::{self, Judgement, Policy, RuleSubject, Servers};
use super::row::Row;
use super::samples::sample_names;
use super::verdict::Verdict;
use crate::cluster::{Cluster, Component, Webhook};
use crate::version::Minor;

/// Whether every kube-apiserver may go to the next minor now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextMinor {
    /// That minor, when the current one is known.
    pub minor: Option<Minor>,
    /// Whether it may be started.
    pub allowed: Verdict,
    /// Why not, one line each, in a fixed order.
    pub blockers: Vec<String>,
}

pub(super) fn minor(cluster: &Cluster, policy: &Policy, rows: &[Row], servers: Option<Servers>) -> NextMinor {
    let Some(servers) = servers else {
        return NextMinor { minor: None, allowed: Verdict::Unknown, blockers: no_server() };
    };
    let minor = servers.newest.next();
    let unknown = unknown(rows);
    let mut lines = if servers.oldest == servers.newest {
        blockers(cluster, policy, rows, Some(servers), minor)
    } else {
        vec![format!(
            "kube-apiservers are at {} and {}: finish that upgrade first",
            servers.oldest, servers.newest
        )]
    };
    let allowed = match (lines.is_empty(), unknown.is_empty()) {
        (true, true) => Verdict::True,
        (true, false) => Verdict::Unknown,
        (false, _) => Verdict::False,
    };
    lines.extend(unknown);
    NextMinor { minor: Some(minor), allowed, blockers: lines }
}

/// Whose version would have to be known to say that nothing is in the way, one line each. Controllers are not among
/// them: one of unknown version is itself in the way.
fn unknown(rows: &[Row]) -> Vec<String> {
    let unknown = |component| {
        rows.iter().filter(move |row| row.component == component && row.version.known().is_none())
    };
    let mut lines = Vec::new();
    if unknown(Component::KubeApiserver).next().is_some() {
        lines.push("a kube-apiserver does not say its version".to_owned());
    }
    for component in [Component::Kubelet, Component::KubeProxy] {
        lines.extend(unknown(component).map(|row| {
            let (count, names) = (row.count, sample_names(row.count, &row.samples));
            format!("{count} {component} in pool {}: version not known ({names})", row.pool)
        }));
    }
    lines
}

fn no_server() -> Vec<String> {
    vec!["no kube-apiserver's version is known".to_owned()]
}

pub(super) fn blockers(
    cluster: &Cluster,
    policy: &Policy,
    rows: &[Row],
    servers: Option<Servers>,
    target: Minor,
) -> Vec<String> {
    let Some(servers) = servers else { return no_server() };
    let mut lines = Vec::new();
    if policy.broken_by_spread(servers.oldest, servers.newest.max(target)).is_some() {
        lines.push(format!(
            "kube-apiservers are at {}; {target} is more than one minor away and minors must not be skipped",
            servers.oldest
        ));
    }
    let another_minor = target > servers.newest;
    if another_minor && servers.emulates() {
        lines.push(format!(
            "kube-apiservers are {} and still emulate {}: complete that upgrade first",
            servers.oldest, servers.emulated
        ));
    }
    let others =
        rows.iter().filter(|row| !matches!(row.component, Component::KubeApiserver | Component::Kubectl));
    lines.extend(others.filter_map(|row| in_the_way(policy, row, servers, target)));
    if another_minor {
        lines.extend(webhooks(cluster));
    }
    lines
}

/// Why the components of `row` keep the kube-apiservers from `target`.
fn in_the_way(policy: &Policy, row: &Row, all: Servers, target: Minor) -> Option<String> {
    let who = format!(
        "{} {} {} ({})",
        row.count,
        row.component,
        row.version,
        sample_names(row.count, &row.samples)
    );
    let Some(judged) = row.judged else {
        // A node that says nothing certain about itself must not stop the control plane of everyone else; it is
        // listed as unknown in the report and left alone by the rollout.
        let node = row.component == Component::Kubelet || row.component == Component::KubeProxy;
        let never = node || row.has_own_numbers();
        return (!never).then(|| format!("{who}: version unknown, must be {} first", all.oldest));
    };
    let during = judged.servers.during(target);
    match policy.judge(RuleSubject::Component(row.component), judged.running, during).1 {
        Judgement::TooOld { floor } => {
            Some(format!("{who} would be too old: must be {floor} or newer first"))
        }
        Judgement::TooNew { ceiling } if judged.running.binary <= judged.servers.oldest => {
            Some(format!("{who} is newer than what a kube-apiserver emulates ({ceiling})"))
        }
        Judgement::TooNew { ceiling } => {
            Some(format!("{who} is newer than the oldest kube-apiserver ({ceiling})"))
        }
        Judgement::Undecided { ceiling } => {
            Some(format!("{who} may be newer than what the kube-apiservers emulate ({ceiling})"))
        }
        Judgement::Within { .. } => {
            let limit = policy::KUBELETS_BEFORE_UPGRADE.max_older;
            let late = row.component == Component::Kubelet
                && judged.running.binary.behind(target) > i32::from(limit);
            (policy.strict && late)
                .then(|| format!("{who}: the prerequisites ask for {} or newer first", target.back(limit)))
        }
    }
}

/// Rule O5. A webhook that matches exactly the versions it lists is not called for an object of a new version, and one
/// that fails closed refuses what it does not understand.
pub fn webhooks_in_the_way(cluster: &Cluster) -> impl Iterator<Item = &Webhook> {
    cluster.webhooks().iter().filter(|w| w.exact && w.lists_versions && w.fails_closed)
}

fn webhooks(cluster: &Cluster) -> impl Iterator<Item = String> {
    webhooks_in_the_way(cluster).map(|webhook| {
        format!(
            "webhook {} of {} fails closed and matches only the API versions it lists: set matchPolicy to \
             Equivalent ({})",
            webhook.name,
            webhook.configuration,
            policy::WEBHOOKS_BEFORE_UPGRADE.source
        )
    })
}
