//! `ClusterSkewReport`: where the cluster stands, written by the operator.

use std::collections::BTreeSet;
use std::sync::Arc;

use evenkeel_core::cluster::Component;
use evenkeel_core::skew::lifecycle::{self, Catalogue};
use evenkeel_core::skew::policy::Policy;
use evenkeel_core::skew::{Assessment, Standing, Verdict, names};
use evenkeel_core::version::{Minor, Observed};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions;

/// The report's only name.
pub const NAME: &str = "cluster";
const MAX_ROWS: usize = 256;
const MAX_FINDINGS: usize = 100;
const MAX_APISERVERS: usize = 16;
/// Longest message of an apiserver, in characters.
const MAX_MESSAGE: usize = 256;

/// The reason of `SkewSupported` while versions that would decide it are not known.
pub const UNKNOWN_VERSIONS: &str = "UnknownVersions";

/// How often a report that says the same is written again, in seconds, where nothing else is asked for.
pub const REFRESH_SECONDS: u32 = 120;

/// Where the cluster stands by the Kubernetes version skew policy. There is one, named `cluster`; the operator makes
/// it and writes its status.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "ClusterSkewReport",
    plural = "clusterskewreports",
    shortname = "skew",
    category = "upgrades",
    doc = "Where the cluster stands by the Kubernetes version skew policy. There is one, named `cluster`; the operator makes it and writes its status.",
    status = "ClusterSkewReportStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'").message("there is one report, and it must be named `cluster`"),
    printcolumn(name = "Server", type_ = "string", json_path = ".status.server", description = "Oldest kube-apiserver, or oldest..newest where they differ"),
    printcolumn(name = "Kubelets", type_ = "string", json_path = ".status.kubelets", description = "Oldest..newest kubelet"),
    printcolumn(name = "Behind", type_ = "integer", json_path = ".status.minorsBehind", description = "Minors the oldest kubelet is behind the newest kube-apiserver"),
    printcolumn(name = "Limit", type_ = "integer", json_path = ".status.minorsBehindLimit", description = "Minors it may be behind"),
    printcolumn(name = "Supported", type_ = "string", json_path = ".status.supported", description = "Whether every component is inside the version skew policy"),
    printcolumn(name = "Violations", type_ = "integer", json_path = ".status.violations", description = "Components outside the policy"),
    printcolumn(name = "Next Minor", type_ = "string", json_path = ".status.nextMinor.allowed", description = "Whether every kube-apiserver may go to the next minor now"),
    printcolumn(name = "Updated", type_ = "date", json_path = ".status.lastObservedTime", description = "When the cluster was last looked at"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes", priority = 1, description = "Nodes"),
    printcolumn(name = "Pools", type_ = "integer", json_path = ".status.pools", priority = 1, description = "Node pools"),
    printcolumn(name = "Components", type_ = "integer", json_path = ".status.instances", priority = 1, description = "Running components that were seen, kubelets included"),
    printcolumn(name = "Unknown", type_ = "integer", json_path = ".status.unknown", priority = 1, description = "Components whose version is not known"),
    printcolumn(name = "Emulated", type_ = "string", json_path = ".status.emulated", priority = 1, description = "Minor that the kube-apiservers emulate, where it is not their own"),
    printcolumn(name = "Policy", type_ = "string", json_path = ".status.policy", priority = 1, description = "The rules it is judged by"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1, description = "Why it is supported or not")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSkewReportSpec {
    /// Whether the report stays as it is: it is not written while this is true. By default false.
    #[serde(default)]
    pub suspend: bool,
    /// How often the report is written when nothing changes, in seconds, to prove that it is fresh; 30 to 3600. What
    /// changes is written within a second or two in any case. By default 120.
    #[serde(default = "refresh_seconds")]
    #[schemars(range(min = 30, max = 3600))]
    pub refresh_period_seconds: u32,
    /// The rules to judge by. `Kubernetes` is the version skew policy of kubernetes.io; `KubernetesStrict` also takes its
    /// prerequisites by the letter: before the next minor no kubelet may be three minors behind that. By default
    /// `Kubernetes`.
    #[serde(default)]
    pub policy: PolicyName,
    /// Labels of Nodes whose value names the pool, the first that a Node has; for example `example.com/pool`. Nodes
    /// with none of them are put in a pool by the well-known labels of EKS, GKE, AKS, Karpenter and others, and
    /// otherwise into `control-plane` or `default`.
    #[serde(default)]
    #[schemars(length(max = 8), inner(length(min = 1, max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub pool_label_keys: Vec<String>,
}

impl Default for ClusterSkewReportSpec {
    fn default() -> Self {
        Self {
            suspend: false,
            refresh_period_seconds: REFRESH_SECONDS,
            policy: PolicyName::default(),
            pool_label_keys: Vec::new(),
        }
    }
}

const fn refresh_seconds() -> u32 {
    REFRESH_SECONDS
}

/// The rules to judge by.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyName {
    /// The version skew policy of kubernetes.io.
    #[default]
    Kubernetes,
    /// The same, with its prerequisites of an upgrade by the letter.
    KubernetesStrict,
}

impl PolicyName {
    /// The rules.
    pub fn policy(self) -> Policy {
        match self {
            Self::Kubernetes => Policy::default(),
            Self::KubernetesStrict => Policy::strict(),
        }
    }
}

/// What was observed, and how the policy judges it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSkewReportStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the cluster was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observed_time: Option<Time>,
    /// Oldest kube-apiserver, or `oldest..newest` where they differ.
    #[serde(default)]
    pub server: String,
    /// `oldest..newest` kubelet.
    #[serde(default)]
    pub kubelets: String,
    /// Minors that the oldest kubelet is behind the newest kube-apiserver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minors_behind: Option<i32>,
    /// Minors that it may be behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minors_behind_limit: Option<i32>,
    /// Whether every component is inside the policy: `True`, `False`, or `Unknown` where a version is not known.
    #[serde(default)]
    pub supported: String,
    /// Why, in one line.
    #[serde(default)]
    pub reason: String,
    /// How many components are outside the policy.
    #[serde(default)]
    pub violations: i32,
    /// How many components run an unknown version.
    #[serde(default)]
    pub unknown: i32,
    /// How many Nodes were seen.
    #[serde(default)]
    pub nodes: i32,
    /// The platform that the cluster was recognised as: `kubeadm`, `k3s`, `RKE2`, `k0s`, `Talos`, `EKS`, `GKE`, `AKS` or
    /// `OpenShift`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// Components that are not seen because of how the platform runs them, one line each. They are not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub hidden: Vec<String>,
    /// How many pools they are in.
    #[serde(default)]
    pub pools: i32,
    /// How many running components were seen, kubelets included.
    #[serde(default)]
    pub instances: i32,
    /// The minor that the kube-apiservers behave as (`--emulated-version`), where it is not their own; the oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// The rules it was judged by, as `spec.policy` names them.
    #[serde(default)]
    pub policy: String,
    /// Every kube-apiserver by itself: those that do not answer come first.
    #[serde(default)]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub apiservers: Vec<Apiserver>,
    /// What is needed before every kube-apiserver may go to the next minor.
    #[serde(default)]
    pub next_minor: NextMinor,
    /// Everything that runs, grouped by component, pool and version; the worst first within a component.
    #[serde(default)]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub components: Vec<Row>,
    /// Everything that is wrong or soon will be, with what to do; the worst first.
    #[serde(default)]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub findings: Vec<Finding>,
    /// What the lists above leave out.
    #[serde(default)]
    pub omitted: Omitted,
    /// `Ready` (the report is fresh), `SkewSupported`, `NextMinorAllowed`, `InventoryComplete`, `Reconciling`, `Stalled`.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The next minor.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NextMinor {
    /// That minor, such as `1.38`.
    #[serde(default)]
    pub version: String,
    /// Whether every kube-apiserver may go there now: `True`, `False` or `Unknown`.
    #[serde(default)]
    pub allowed: String,
    /// What stands in the way, one line each.
    #[serde(default)]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub blockers: Vec<String>,
}

/// One kube-apiserver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Apiserver {
    /// Its address, such as `192.0.2.1:6443`; its pod's or lease's name while the cluster lists no address for it.
    pub name: String,
    /// The Node it runs on, where that is visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What it answers to `/version`, or `unknown`.
    pub version: String,
    /// The minor it emulates, where that is not its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Whether it answered when it was last asked.
    pub reachable: bool,
    /// Since when it has been reachable, or not, as far as this report goes back.
    pub since: Time,
    /// Why it is not reachable.
    #[serde(default)]
    pub message: String,
}

/// Components of one kind, pool and version.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Which component.
    pub component: String,
    /// The node pool, or `control-plane`.
    pub pool: String,
    /// The version, or `unknown`.
    pub version: String,
    /// Where it was read: `/version`, `/version (one for all)`, `image`, `nodeInfo`, `nodeInfo (same process)`,
    /// `LeaseCandidate`, `ClusterOperator` or `given`; for a version that is not known, why it is not.
    #[serde(default)]
    pub source: String,
    /// How many run it.
    pub count: i32,
    /// Minors behind the newest kube-apiserver; negative when ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minors_behind: Option<i32>,
    /// How many more minors the kube-apiservers may go before these must move; at 0 they block the next minor. Absent
    /// for kube-apiservers and where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<i32>,
    /// `Supported`, `Transitional`, `AtLimit`, `Unknown` or `Unsupported`.
    pub state: String,
    /// The first few names.
    #[serde(default)]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub samples: Vec<String>,
}

/// One thing to know, and what to do about it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Stable: rule, component, pool and version.
    pub id: String,
    /// `Unsupported` (outside the policy), `AtLimit` (blocks the next minor) or `Warning`.
    #[serde(default)]
    pub severity: String,
    /// Where the rule comes from.
    pub source: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// How many components it is about.
    pub count: i32,
    /// The first few names.
    #[serde(default)]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub samples: Vec<String>,
}

/// What was left out of bounded lists.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Omitted {
    /// Rows of `components`.
    #[serde(default)]
    pub components: i32,
    /// Entries of `findings`.
    #[serde(default)]
    pub findings: i32,
    /// Lines of `nextMinor.blockers`.
    #[serde(default)]
    pub blockers: i32,
    /// Entries of `apiservers`.
    #[serde(default)]
    pub apiservers: i32,
}

/// What the report needs to know besides the judgement.
pub struct Context<'a> {
    /// Sources that could not be read, one line each.
    pub missing: &'a [String],
    /// The platform's name, if it was recognised.
    pub platform: Option<&'static str>,
    /// Components that cannot be seen there, one line each.
    pub hidden: &'a [String],
    /// The conditions before.
    pub before: &'a [Condition],
    /// `metadata.generation` of the report.
    pub generation: Option<i64>,
    /// How many Nodes there are.
    pub nodes: usize,
    /// The time.
    pub now: Timestamp,
    /// What only a look at a living cluster tells.
    pub live: Live<'a>,
}

/// What only a look at a living cluster tells.
#[derive(Clone, Copy, Default)]
pub struct Live<'a> {
    /// Controllers that work where they cannot be seen, one line each.
    pub leading: &'a [String],
    /// The kube-apiservers.
    pub servers: &'a [Server],
    /// The `apiservers` before.
    pub before: &'a [Apiserver],
    /// The rules.
    pub policy: PolicyName,
    /// Why the report is not to be relied on, as reason and message of `Ready`.
    pub unready: Option<(&'static str, &'a str)>,
}

/// One kube-apiserver, as it was seen.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address or name.
    pub name: Arc<str>,
    /// Its Node.
    pub node: Option<Arc<str>>,
    /// Its version.
    pub version: Observed,
    /// What it emulates, where it says so.
    pub emulation: Option<Minor>,
    /// Why it does not answer; `None` when it does.
    pub error: Option<Arc<str>>,
}

/// `judged`, as far as it can be said without what was not seen: `unseen` is why components may be missing, `webhooks`
/// why it is not known what stands before the next minor.
pub fn with_gaps(mut judged: Assessment, unseen: Option<&str>, webhooks: Option<&str>) -> Assessment {
    if unseen.is_some() && judged.supported == Verdict::True {
        judged.supported = Verdict::Unknown;
    }
    if let Some(why) = unseen.or(webhooks) {
        if judged.next_minor.allowed == Verdict::True {
            judged.next_minor.allowed = Verdict::Unknown;
        }
        judged.next_minor.blockers.push(format!("not everything could be read: {why}"));
    }
    judged
}

/// `judged` with what is past its end of life, near it, or behind the latest patch at that time, by `releases`.
pub fn with_lifecycle(judged: Assessment, releases: &Catalogue, now: Timestamp) -> Assessment {
    let today = now.to_zoned(TimeZone::UTC).date();
    let more = lifecycle::findings(&judged, releases, today);
    judged.with(more)
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
        ([], []) => ("True", "AllSourcesRead", "every source was read".to_owned()),
        ([], leading) => ("False", "ControlPlaneHidden", leading.join("; ")),
        (missing, _) => ("False", "SourcesMissing", missing.join("; ")),
    };
    let ready = match live.unready {
        None => ("Ready", "True", "Fresh", "the report is up to date"),
        Some((reason, message)) => ("Ready", "False", reason, message),
    };
    let wanted = [
        ready,
        ("Reconciling", "False", "Fresh", "nothing is outstanding"),
        ("Stalled", "False", "Fresh", "nothing needs a person"),
        ("SkewSupported", word(judged.supported), skew_reason(judged), &reason),
        ("NextMinorAllowed", word(next.allowed), next_reason(judged), blockers),
        ("InventoryComplete", complete, why, &inventory),
    ];
    let emulated = live.servers.iter().filter_map(other_minor).min();
    let servers = apiservers(live, context.now);
    let pools: BTreeSet<_> =
        judged.rows.iter().filter(|row| row.component == Component::Kubelet).map(|row| &row.pool).collect();
    ClusterSkewReportStatus {
        observed_generation: context.generation,
        last_observed_time: Some(Time(context.now)),
        server: span(&judged.servers),
        kubelets: span(&judged.kubelets),
        minors_behind: judged.behind,
        minors_behind_limit: judged.limit,
        supported: word(judged.supported).to_owned(),
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
            allowed: word(next.allowed).to_owned(),
            blockers: next.blockers.iter().take(MAX_FINDINGS).cloned().collect(),
        },
        components: judged.rows.iter().take(MAX_ROWS).map(row).collect(),
        findings: worst.iter().take(MAX_FINDINGS).map(|found| finding(found)).collect(),
        omitted: Omitted {
            components: count(judged.rows.len().saturating_sub(MAX_ROWS)),
            findings: count(judged.findings.len().saturating_sub(MAX_FINDINGS)),
            blockers: count(next.blockers.len().saturating_sub(MAX_FINDINGS)),
            apiservers: count(servers.len().saturating_sub(MAX_APISERVERS)),
        },
        apiservers: servers.into_iter().take(MAX_APISERVERS).collect(),
        conditions: conditions(&wanted, context.before, context.generation, context.now),
        reason,
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

fn finding(finding: &evenkeel_core::skew::Finding) -> Finding {
    Finding {
        id: finding.id.clone(),
        severity: finding.severity.name().to_owned(),
        source: finding.rule.source.to_owned(),
        message: finding.message.clone(),
        remedy: finding.remedy.clone(),
        count: count(finding.count),
        samples: finding.samples.iter().map(ToString::to_string).collect(),
    }
}

/// What it emulates, where that is not its own minor.
fn other_minor(server: &Server) -> Option<Minor> {
    server.emulation.filter(|emulated| server.version.minor() != Some(*emulated))
}

/// Those that do not answer first. One that stays as it was keeps the time since when, also under another name on the
/// same Node: an apiserver that died loses its address after a while.
fn apiservers(live: &Live<'_>, now: Timestamp) -> Vec<Apiserver> {
    let since = |server: &Server| {
        let same = |before: &&Apiserver| match (&server.node, &before.node) {
            (Some(node), Some(before)) => **node == **before,
            _ => *server.name == before.name,
        };
        let before = live.before.iter().find(same).filter(|b| b.reachable == server.error.is_none());
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
            reachable: server.error.is_none(),
            since: since(server),
            message: server.error.as_deref().unwrap_or_default().chars().take(MAX_MESSAGE).collect(),
        })
        .collect();
    all.sort_by(|a, b| (a.reachable, &a.name).cmp(&(b.reachable, &b.name)));
    all
}

fn reason(judged: &Assessment, missing: &[String]) -> String {
    let wrong: Vec<_> = judged.unsupported().collect();
    match (judged.supported, wrong.split_first()) {
        (Verdict::False, Some((first, []))) => {
            format!("{} ({})", first.message, names(first.count, &first.samples))
        }
        (Verdict::False, Some((first, [_]))) => format!("{} (and 1 more finding)", first.message),
        (Verdict::False, Some((first, more))) => {
            format!("{} (and {} more findings)", first.message, more.len())
        }
        (Verdict::True, _) => "every component is inside the version skew policy".to_owned(),
        _ if judged.unknown == 1 => "the version of 1 component is not known".to_owned(),
        _ if judged.unknown > 0 => format!("the version of {} components is not known", judged.unknown),
        _ if judged.servers.is_none() && missing.is_empty() => {
            "no kube-apiserver's version is known".to_owned()
        }
        _ => "not everything could be read".to_owned(),
    }
}

/// The reason of `SkewSupported`: what is wrong with the first component, in upgrade order, that is outside.
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

/// The word for a verdict, as conditions spell it.
pub fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::True => "True",
        Verdict::False => "False",
        Verdict::Unknown => "Unknown",
    }
}

/// A count as the API's integers hold it.
pub fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
