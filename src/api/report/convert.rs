//! From a judgement to the status that says it, in a report and in what the command line prints.
//!
//! Nothing is judged here: verdicts, standings and lines come from the core. The invariants: every list is cut to the
//! bound that the schema gives, the worst stay, and what is left out is counted; and what was not read is absent or
//! `Unknown`, never zero.

use std::collections::BTreeSet;
use std::sync::Arc;

use evenkeel_core::cluster::Component;
#[cfg(doc)]
use evenkeel_core::disruption::preflight;
use evenkeel_core::disruption::preflight::{Cause, Outlook};
use evenkeel_core::skew::{Assessment, Standing, Verdict, sample_names};
use evenkeel_core::version::{Minor, Observed};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::super::bounds::short;
use super::super::conditions::{ConditionStatus, ConditionType, Kstatus, Wanted, conditions};
use super::schema::{
    Apiserver, BlockingBudget, ClusterSkewReportStatus, NextMinor, Omitted, PolicyName, Row, SkewFinding,
};

const MAX_ROWS: usize = 256;
const MAX_FINDINGS: usize = 100;
const MAX_APISERVERS: usize = 16;
const MAX_BUDGETS: usize = 20;
/// Longest message of a kube-apiserver or a budget, in characters.
const MAX_MESSAGE: usize = 256;

/// The reason of [`ConditionType::SkewSupported`] while versions that would decide it are not known.
const UNKNOWN_VERSIONS: &str = "UnknownVersions";

/// What a status needs besides the judgement.
pub struct Context<'a> {
    /// Sources that could not be read, one line each.
    pub missing: &'a [String],
    /// The platform's name, if it was recognised.
    pub platform: Option<&'static str>,
    /// Components that cannot be seen there, one line each.
    pub hidden: &'a [String],
    /// The budgets that allow no eviction, as [`preflight::closed`] orders them; `None` where budgets were not read.
    pub budgets: Option<&'a [Cause]>,
    /// The conditions of the last status: they keep the times of their last transitions.
    pub before: &'a [Condition],
    /// `metadata.generation` of the report.
    pub generation: Option<i64>,
    /// How many Nodes there are.
    pub nodes: usize,
    /// The time now.
    pub now: Timestamp,
    /// What only a look at a living cluster tells.
    pub live: LiveFacts<'a>,
}

/// What only a look at a living cluster tells.
#[derive(Clone, Copy, Default)]
pub struct LiveFacts<'a> {
    /// Controllers that work where they cannot be seen, one line each.
    pub leading: &'a [String],
    /// Every kube-apiserver that is known, answering or not.
    pub servers: &'a [Server],
    /// The `apiservers` of the last status: they keep their `since`.
    pub before: &'a [Apiserver],
    /// The policy by which the report was judged.
    pub policy: PolicyName,
    /// Why the report is not to be relied on, and that in one line.
    pub unready: Option<(Unready, &'a str)>,
}

/// Why a report is not to be relied on, though the cluster is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// Something that is needed has failed for a while; it is asked again and again.
    CollectorFailed,
    /// Something that is needed may not be read, until a person allows it.
    Forbidden,
    /// The server drops a field of the report, until a person installs the definition of this release.
    SchemaOutdated,
}

impl Unready {
    /// The reason of condition `Ready`.
    const fn reason(self) -> &'static str {
        match self {
            Self::CollectorFailed => "CollectorFailed",
            Self::Forbidden => "Forbidden",
            Self::SchemaOutdated => "SchemaOutdated",
        }
    }

    /// Whether only a person can end it.
    const fn needs_a_person(self) -> bool {
        matches!(self, Self::Forbidden | Self::SchemaOutdated)
    }
}

/// One kube-apiserver, as it was seen.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address, or its name where it has no address.
    pub name: Arc<str>,
    /// The Node that it runs on, where that is visible.
    pub node: Option<Arc<str>>,
    /// What it last said of itself; unknown while it does not answer.
    pub version: Observed,
    /// What it emulates, where it says so.
    pub emulation: Option<Minor>,
    /// It answers `/version`.
    pub reachable: bool,
    /// Why it does not answer, or is not ready; `None` when it is.
    pub error: Option<Arc<str>>,
}

/// The status that says `judged`.
pub fn status(judged: &Assessment, context: &Context<'_>) -> ClusterSkewReportStatus {
    let span = |versions: &Option<(_, _)>| match versions {
        None => "unknown".to_owned(),
        Some((oldest, newest)) if oldest == newest => format!("{oldest}"),
        Some((oldest, newest)) => format!("{oldest}..{newest}"),
    };
    let live = &context.live;
    let reason = reason(judged, context.missing);
    let mut worst: Vec<_> = judged.findings.iter().collect();
    // A list that is cut must not lose what is worst; the sort keeps the order by id within a severity.
    worst.sort_by_key(|finding| finding.severity);
    let next = &judged.next_minor;
    let blockers = next.blockers.first().map_or("nothing stands in its way", String::as_str);
    let (complete, why, inventory) = match (context.missing, live.leading) {
        ([], []) => (ConditionStatus::True, "AllSourcesRead", "every source was read".to_owned()),
        ([], leading) => (ConditionStatus::False, "ControlPlaneHidden", leading.join("; ")),
        (missing, _) => (ConditionStatus::False, "SourcesMissing", missing.join("; ")),
    };
    let [ready, reconciling, stalled] = about_the_report(live);
    let wanted = [
        ready,
        reconciling,
        stalled,
        (ConditionType::SkewSupported, judged.supported.into(), skew_reason(judged), &reason),
        (ConditionType::NextMinorAllowed, next.allowed.into(), next_reason(judged), blockers),
        (ConditionType::InventoryComplete, complete, why, &inventory),
    ];
    let emulated = live.servers.iter().filter_map(other_minor).min();
    let servers = apiservers(live, context.now);
    let closed = |outlook| {
        let of = |causes: &[Cause]| count(causes.iter().filter(|cause| cause.outlook == outlook).count());
        context.budgets.map(of)
    };
    let budgets = context.budgets.unwrap_or_default();
    let pools: BTreeSet<_> =
        judged.rows.iter().filter(|row| row.component == Component::Kubelet).map(|row| &row.pool).collect();
    ClusterSkewReportStatus {
        observed_generation: context.generation,
        last_observed_time: Some(Time(context.now)),
        server: span(&judged.servers),
        kubelets: span(&judged.kubelets),
        minors_behind: judged.behind,
        minors_behind_limit: judged.limit,
        supported: judged.supported.name().to_owned(),
        violations: count(judged.violations),
        unknown: count(judged.unknown),
        nodes: count(context.nodes),
        platform: context.platform.unwrap_or_default().to_owned(),
        hidden: context.hidden.to_vec(),
        pools: count(pools.len()),
        instances: count(judged.rows.iter().map(|row| row.count).sum()),
        emulated: emulated.map(|minor| minor.to_string()),
        policy: format!("{:?}", live.policy),
        next_minor: NextMinor {
            version: next.minor.map(|minor| minor.to_string()).unwrap_or_default(),
            allowed: next.allowed.name().to_owned(),
            blockers: next.blockers.iter().take(MAX_FINDINGS).cloned().collect(),
            budgets: budgets.iter().take(MAX_BUDGETS).map(blocking).collect(),
            budgets_never: closed(Outlook::Never),
            budgets_not_now: closed(Outlook::NotNow),
        },
        components: judged.rows.iter().take(MAX_ROWS).map(row).collect(),
        findings: worst.iter().take(MAX_FINDINGS).map(|found| finding(found)).collect(),
        omitted: Omitted {
            components: count(judged.rows.len().saturating_sub(MAX_ROWS)),
            findings: count(judged.findings.len().saturating_sub(MAX_FINDINGS)),
            blockers: count(next.blockers.len().saturating_sub(MAX_FINDINGS)),
            budgets: count(budgets.len().saturating_sub(MAX_BUDGETS)),
            apiservers: count(servers.len().saturating_sub(MAX_APISERVERS)),
        },
        apiservers: servers.into_iter().take(MAX_APISERVERS).collect(),
        conditions: conditions(&wanted, context.before, context.generation, context.now),
        reason,
    }
}

/// The conditions that are about the report itself, for kstatus.
fn about_the_report<'a>(live: &LiveFacts<'a>) -> [Wanted<'a>; 3] {
    match live.unready {
        Some((why, message)) if why.needs_a_person() => Kstatus::Failed.conditions(why.reason(), message),
        unready => {
            let fresh = (ConditionStatus::True, "Fresh", "the report is up to date");
            let (status, reason, message) =
                unready.map_or(fresh, |(why, message)| (ConditionStatus::False, why.reason(), message));
            [
                (ConditionType::Ready, status, reason, message),
                (ConditionType::Reconciling, ConditionStatus::False, "Fresh", "nothing is outstanding"),
                (ConditionType::Stalled, ConditionStatus::False, "Fresh", "nothing needs a person"),
            ]
        }
    }
}

fn row(row: &evenkeel_core::skew::Row) -> Row {
    Row {
        component: row.component.to_string(),
        pool: row.pool.to_string(),
        version: row.version.to_string(),
        source: source(row),
        count: count(row.count),
        minors_behind: row.behind,
        headroom: row.headroom,
        state: row.standing.name().to_owned(),
        samples: row.samples.iter().map(ToString::to_string).collect(),
    }
}

/// Where the version of a row was read, or why it is not known.
pub fn source(row: &evenkeel_core::skew::Row) -> String {
    match &row.version {
        Observed::Known(_) => row.evidence.name().to_owned(),
        // Versions that are not known are one row, so the reason may not be everyone's.
        Observed::Unknown(why) if row.count == 1 => why.to_string(),
        Observed::Unknown(why) => format!("the first: {why}"),
    }
}

fn finding(finding: &evenkeel_core::skew::SkewFinding) -> SkewFinding {
    SkewFinding {
        id: finding.id.clone(),
        severity: finding.severity.name().to_owned(),
        source: finding.rule.source.to_owned(),
        message: finding.message.clone(),
        remedy: finding.remedy.clone(),
        count: count(finding.count),
        samples: finding.samples.iter().map(ToString::to_string).collect(),
    }
}

fn blocking(cause: &Cause) -> BlockingBudget {
    // The spec's and the server's own words may be long: the controller's message names each pod it does not know.
    BlockingBudget {
        namespace: cause.object.namespace.to_string(),
        name: cause.object.name.to_string(),
        outlook: if cause.outlook == Outlook::Never { "Never" } else { "NotNow" }.to_owned(),
        message: short(&cause.what, MAX_MESSAGE),
        remedy: short(&cause.remedy, MAX_MESSAGE),
    }
}

/// The minor that `server` emulates, if that is not its own minor.
fn other_minor(server: &Server) -> Option<Minor> {
    server.emulation.filter(|emulated| server.version.minor() != Some(*emulated))
}

/// The kube-apiservers: first those that do not answer, then those that are not ready, then the others. One that is as
/// reachable as before keeps its `since`. It is found by its Node, else by its name, because a kube-apiserver that died
/// loses its address after a while.
fn apiservers(live: &LiveFacts<'_>, now: Timestamp) -> Vec<Apiserver> {
    let since = |server: &Server| {
        let same = |before: &&Apiserver| match (&server.node, &before.node) {
            (Some(node), Some(before)) => **node == **before,
            _ => *server.name == before.name,
        };
        let before = live.before.iter().find(same).filter(|b| b.reachable == server.reachable);
        before.map_or(Time(now), |before| before.since.clone())
    };
    let mut all: Vec<_> = live
        .servers
        .iter()
        .map(|server| Apiserver {
            name: server.name.to_string(),
            node: server.node.as_deref().map(str::to_owned),
            version: server.version.to_string(),
            emulated: other_minor(server).map(|minor| minor.to_string()),
            reachable: server.reachable,
            since: since(server),
            message: short(server.error.as_deref().unwrap_or_default(), MAX_MESSAGE),
        })
        .collect();
    let key = |server: &Apiserver| (server.reachable, server.message.is_empty());
    all.sort_by(|a, b| (key(a), &a.name).cmp(&(key(b), &b.name)));
    all
}

fn reason(judged: &Assessment, missing: &[String]) -> String {
    let wrong: Vec<_> = judged.unsupported().collect();
    match (judged.supported, wrong.split_first()) {
        (Verdict::False, Some((first, []))) => {
            format!("{} ({})", first.message, sample_names(first.count, &first.samples))
        }
        (Verdict::False, Some((first, [_]))) => format!("{} (and 1 more finding)", first.message),
        (Verdict::False, Some((first, more))) => {
            format!("{} (and {} more findings)", first.message, more.len())
        }
        (Verdict::True, _) if judged.rows.iter().any(evenkeel_core::skew::Row::has_own_numbers) => {
            "every component that has a version of Kubernetes is inside the version skew policy".to_owned()
        }
        (Verdict::True, _) => "every component is inside the version skew policy".to_owned(),
        _ if judged.servers.is_none() && missing.is_empty() => {
            "no kube-apiserver's version is known".to_owned()
        }
        _ => unknown(judged).unwrap_or_else(|| "not everything could be read".to_owned()),
    }
}

/// Whose versions are not known, by name where they are few; `None` where all are.
fn unknown(judged: &Assessment) -> Option<String> {
    let rows = judged.rows.iter().filter(|row| !row.has_own_numbers());
    let mut rows = rows.filter(|row| matches!(row.version, Observed::Unknown(_)));
    let first = rows.next()?;
    let named = format!("{} ({})", first.component, sample_names(first.count, &first.samples));
    Some(match rows.map(|row| row.count).sum() {
        0 => format!("the version of {named} is not known"),
        more => format!("the versions of {named} and {more} more are not known"),
    })
}

/// The reason of [`ConditionType::SkewSupported`]: what is wrong with the first component, in upgrade order, that is outside.
fn skew_reason(judged: &Assessment) -> &'static str {
    let worst = judged.rows.iter().find(|row| row.standing == Standing::Unsupported);
    let newer = worst.and_then(evenkeel_core::skew::Row::ahead).is_some_and(|ahead| ahead > 0);
    match (judged.supported, worst.map(|row| row.component)) {
        (Verdict::True, _) => "AllSupported",
        (Verdict::Unknown, _) => UNKNOWN_VERSIONS,
        (Verdict::False, None) => "PolicyViolated",
        (Verdict::False, Some(component)) => match (component, newer) {
            (Component::KubeApiserver, _) => "APIServerSpreadTooWide",
            (Component::KubeControllerManager, true) => "ControllerManagerNewer",
            (Component::KubeControllerManager, false) => "ControllerManagerTooOld",
            (Component::KubeScheduler, true) => "SchedulerNewer",
            (Component::KubeScheduler, false) => "SchedulerTooOld",
            (Component::CloudControllerManager, true) => "CloudControllerManagerNewer",
            (Component::CloudControllerManager, false) => "CloudControllerManagerTooOld",
            (Component::Kubelet, true) => "KubeletNewerThanAPIServer",
            (Component::Kubelet, false) => "KubeletTooOld",
            (Component::KubeProxy, _) => "KubeProxySkew",
            (Component::Kubectl, _) => "KubectlSkew",
        },
    }
}

/// The reason of `NextMinorAllowed`.
fn next_reason(judged: &Assessment) -> &'static str {
    let kubelets = judged.rows.iter().filter(|row| row.component == Component::Kubelet);
    let minors = judged.servers.as_ref().map(|(oldest, newest)| (oldest.minor(), newest.minor()));
    match judged.next_minor.allowed {
        Verdict::True => "Allowed",
        Verdict::Unknown => "NotEvaluated",
        Verdict::False if minors.is_some_and(|(oldest, newest)| oldest != newest) => "UpgradeInProgress",
        Verdict::False if kubelets.into_iter().any(|row| row.headroom == Some(0)) => "KubeletAtLimit",
        Verdict::False => "Blocked",
    }
}

/// The last verdict that was certain, as far as `status` tells. One that became unknown is taken to have been no.
pub fn last_certain(status: &ClusterSkewReportStatus) -> Option<Verdict> {
    let certain = Verdict::read(&status.supported).filter(|verdict| *verdict != Verdict::Unknown);
    let supported = ConditionType::SkewSupported.of(&status.conditions);
    let became_unknown = supported.is_some_and(|of| of.reason == UNKNOWN_VERSIONS);
    certain.or_else(|| became_unknown.then_some(Verdict::False))
}

/// `count` as an integer of the API; at most [`i32::MAX`].
pub fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use evenkeel_core::cluster::{Evidence, Instance, Parts, Reach};
    use evenkeel_core::skew::{assess, policy::Policy};

    use super::*;

    /// The reason of a report on components of which some run a version that nobody knows.
    fn said(components: &[(Component, &str, &str)], missing: &[String]) -> String {
        let instances = components.iter().map(|(component, name, version)| Instance {
            component: *component,
            name: (*name).into(),
            node: None,
            version: Observed::from_report(version),
            evidence: Evidence::Image,
            effective: None,
            reach: Reach::Any,
            incarnation: "".into(),
            ready: true,
            probed: None,
        });
        let cluster = Parts { instances: instances.collect(), ..Parts::default() }.seal();
        reason(&assess(&cluster, &Policy::default()), missing)
    }

    #[test]
    fn what_is_not_known_is_named() {
        use Component::{KubeApiserver, KubeControllerManager, KubeScheduler};

        let server = (KubeApiserver, "192.0.2.1:6443", "v1.37.1");
        let scheduler = |version| (KubeScheduler, "kube-scheduler-cp-1", version);
        let manager = |version| (KubeControllerManager, "kube-controller-manager-cp-1", version);
        for (components, expected) in [
            (
                [server, scheduler("?"), manager("v1.37.1")],
                "the version of kube-scheduler (kube-scheduler-cp-1) is not known",
            ),
            (
                [server, scheduler("?"), manager("?")],
                "the versions of kube-controller-manager (kube-controller-manager-cp-1) and 1 more are not known",
            ),
            (
                [scheduler("v1.37.1"), manager("v1.37.1"), (KubeApiserver, "192.0.2.1:6443", "?")],
                "no kube-apiserver's version is known",
            ),
            (
                [server, scheduler("v1.37.1"), manager("v1.37.1")],
                "every component is inside the version skew policy",
            ),
        ] {
            assert_eq!(said(&components, &[]), expected);
        }
        assert_eq!(said(&[scheduler("v1.37.1")], &["Node: away".to_owned()]), "not everything could be read");
    }

    #[test]
    fn what_only_a_person_mends_is_stalled() {
        let judged = assess(&Parts::default().seal(), &Policy::default());
        let told = |unready| {
            let context = Context {
                missing: &[],
                platform: None,
                hidden: &[],
                budgets: None,
                before: &[],
                generation: Some(1),
                nodes: 0,
                now: Timestamp::UNIX_EPOCH,
                live: LiveFacts { unready, ..LiveFacts::default() },
            };
            let conditions = status(&judged, &context).conditions;
            [ConditionType::Ready, ConditionType::Reconciling, ConditionType::Stalled].map(|type_| {
                let of = type_.of(&conditions).unwrap();
                format!("{} {}: {}", of.status, of.reason, of.message)
            })
        };
        for (why, reason) in [(Unready::Forbidden, "Forbidden"), (Unready::SchemaOutdated, "SchemaOutdated")]
        {
            let because = |status: &str| format!("{status} {reason}: why");
            let expected = [because("False"), format!("False {reason}: "), because("True")];
            assert_eq!(told(Some((why, "why"))), expected);
        }
        let still = ["False Fresh: nothing is outstanding", "False Fresh: nothing needs a person"];
        assert_eq!(told(Some((Unready::CollectorFailed, "why")))[1..], still, "it is asked again");
        assert_eq!(told(None)[1..], still);
    }
}
