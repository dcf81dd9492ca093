//! `ClusterSkewReport`: where the cluster stands, written by the operator.

use evenkeel_core::skew::lifecycle::{self, Catalogue};
use evenkeel_core::skew::{Assessment, Verdict, names};
use evenkeel_core::version::Observed;
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

/// Where the cluster stands by the Kubernetes version skew policy. There is one, named `cluster`; the operator makes
/// it and writes its status.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
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
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes", priority = 1),
    printcolumn(name = "Unknown", type_ = "integer", json_path = ".status.unknown", priority = 1, description = "Components whose version is not known"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSkewReportSpec {}

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
    /// What is needed before every kube-apiserver may go to the next minor.
    #[serde(default)]
    pub next_minor: NextMinor,
    /// Everything that runs, grouped by component, pool and version; the worst first within a component.
    #[serde(default)]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub components: Vec<Row>,
    /// Everything that is wrong or soon will be, with what to do; the worst first.
    #[serde(default)]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
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
    let reason = reason(judged);
    let mut worst: Vec<_> = judged.findings.iter().collect();
    // A list that is cut must not lose what is worst; the sort keeps the order by id within a severity.
    worst.sort_by_key(|finding| finding.severity);
    let next = &judged.next_minor;
    let blockers = next.blockers.first().map_or("nothing stands in its way", String::as_str);
    let inventory = context.missing.join("; ");
    let wanted = [
        ("Ready", "True", "Fresh", "the report is up to date"),
        ("Reconciling", "False", "Fresh", ""),
        ("Stalled", "False", "Fresh", ""),
        ("SkewSupported", word(judged.supported), skew_reason(judged), &reason),
        (
            "NextMinorAllowed",
            word(next.allowed),
            if next.allowed == Verdict::True { "Allowed" } else { "Blocked" },
            blockers,
        ),
        if context.missing.is_empty() {
            ("InventoryComplete", "True", "AllSourcesRead", "")
        } else {
            ("InventoryComplete", "False", "SourcesMissing", &inventory)
        },
    ];
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
        },
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

fn reason(judged: &Assessment) -> String {
    let wrong: Vec<_> = judged.unsupported().collect();
    match (judged.supported, wrong.split_first()) {
        (Verdict::False, Some((first, []))) => {
            format!("{} ({})", first.message, names(first.count, &first.samples))
        }
        (Verdict::False, Some((first, more))) => {
            format!("{} (and {} more findings)", first.message, more.len())
        }
        (Verdict::True, _) => "every component is inside the version skew policy".to_owned(),
        _ => format!("the version of {} components is not known", judged.unknown),
    }
}

fn skew_reason(judged: &Assessment) -> &'static str {
    match judged.supported {
        Verdict::True => "AllSupported",
        Verdict::Unknown => "UnknownVersions",
        Verdict::False => "PolicyViolated",
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
