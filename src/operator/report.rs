//! The controller that keeps the `ClusterSkewReport` true.
//!
//! It looks when something changes, judges, and writes when the judgement is another one or the last one is old. What
//! stands in the report is compared, not what was last written: an edit by somebody else is repaired.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::skew::policy::Policy;
use evenkeel_core::skew::{Assessment, Standing, assess};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use kube::{Client, ResourceExt as _};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::metrics::{Controller, Distance, Instances, Metrics, Outcome, Reason, Violations};
use crate::act::elect::Leadership;
use crate::act::status::{NotWritten, create_report, write};
use crate::api::report::{self, ClusterSkewReportStatus, Context};
use crate::api::{ClusterSkewReport, conditions, decode};
use crate::observe::cache::Cache;
use crate::observe::fold::State;
use crate::observe::platform::{Platform, with_same_process};
use crate::observe::{NotReady, Observer};

/// Field manager of the report's status.
const FIELD_MANAGER: &str = "evenkeel-controller";
/// At most one status write in this time, however much changes.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// A report that says the same is written again after this, to prove that it is fresh.
const PROOF_OF_FRESHNESS: Duration = Duration::from_mins(2);
/// After a write that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// What the controller works with.
pub(super) struct Reporter<'a> {
    pub(super) observer: &'a Observer,
    pub(super) releases: &'a Catalogue,
    pub(super) reports: Cache<DynamicObject>,
    pub(super) client: Client,
    pub(super) leadership: Leadership,
    pub(super) metrics: &'a Metrics,
}

impl Reporter<'_> {
    /// Keeps the report until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut changes = self.observer.changes().subscribe();
        let mut last_write: Option<Instant> = None;
        let mut complaint = String::new();
        loop {
            changes.mark_unchanged();
            let began = Instant::now();
            let wait = match self.once(last_write).await {
                Ok(written) => {
                    complaint.clear();
                    if written {
                        last_write = Some(Instant::now());
                    }
                    self.metrics.reconciled(Controller::Report, Outcome::Ok, began.elapsed());
                    PROOF_OF_FRESHNESS
                }
                Err(problem) => {
                    let line = problem.to_string();
                    // The same trouble is told once, not at every look.
                    if line != complaint {
                        tracing::warn!(problem = line, "the report is not written");
                        complaint = line;
                    }
                    self.metrics.reconcile_failed(Controller::Report, problem.reason());
                    self.metrics.reconciled(Controller::Report, Outcome::Error, began.elapsed());
                    AFTER_FAILURE
                }
            };
            let rest = last_write.map_or(Duration::ZERO, |at| BETWEEN_WRITES.saturating_sub(at.elapsed()));
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(wait) => {}
                _ = changes.changed() => if stop.run_until_cancelled(sleep(rest)).await.is_none() {
                    return;
                },
            }
        }
    }

    /// One look; says whether the report was written.
    async fn once(&self, last_write: Option<Instant>) -> Result<bool, Problem> {
        match self.reports.state() {
            State::Synced => {}
            State::Syncing => return Err(Problem::Reports("the first list is not complete yet".to_owned())),
            State::Tainted(why) | State::Failing(why) | State::Refused(why) => {
                return Err(Problem::Reports(why.to_string()));
            }
        }
        let stored = if let Some(stored) = self.reports.get("", report::NAME) {
            stored
        } else {
            let made = create_report(&self.client, &self.leadership).await?;
            self.reports.apply_own(made.clone());
            Arc::new(made)
        };
        let object = decode::<ClusterSkewReport>(&stored).unwrap_or_else(|_| bare(&stored));
        let now = Timestamp::now();
        let before = object.status.clone().unwrap_or_default();
        let seen = self.observer.cluster(now);
        let wanted = match &seen {
            Ok((cluster, inventory)) => {
                let cluster = with_same_process(cluster.clone());
                let judged = assess(&cluster, &Policy::default());
                let judged = report::with_lifecycle(judged, self.releases, now);
                self.show(&judged);
                let missing: Vec<String> = inventory.missing.iter().map(|m| m.reason.to_string()).collect();
                let context = Context {
                    missing: &missing,
                    platform: inventory.platform.map(Platform::name),
                    hidden: &inventory.hidden(&cluster),
                    before: &before.conditions,
                    generation: object.metadata.generation,
                    nodes: cluster.nodes.len(),
                    now,
                };
                report::status(&judged, &context)
            }
            Err(not_ready) => blind(&before, not_ready, object.metadata.generation, now),
        };
        let fresh = last_write.is_some_and(|at| at.elapsed() < PROOF_OF_FRESHNESS);
        // Without having seen anything there is nothing to prove fresh.
        let same = same(&before, &wanted) && (fresh || seen.is_err());
        if !same {
            let written = write(&self.client, &self.leadership, FIELD_MANAGER, &object, &wanted).await?;
            self.reports.apply_own(written);
        }
        seen?;
        #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 fit into 52 bits")]
        self.metrics.reported(now.as_second() as f64);
        Ok(!same)
    }

    fn show(&self, judged: &Assessment) {
        let rows: Vec<_> = judged
            .rows
            .iter()
            .map(|row| {
                let minor =
                    row.version.minor().map_or_else(|| "unknown".to_owned(), |minor| minor.to_string());
                (row, row.version.to_string(), minor)
            })
            .collect();
        let instances: Vec<_> = rows
            .iter()
            .map(|(row, version, minor)| Instances {
                component: row.component,
                pool: &row.pool,
                version,
                minor,
                count: row.count as u64,
            })
            .collect();
        self.metrics.instances(&instances);
        let known = judged.rows.iter().filter_map(|row| Some((row, i64::from(row.behind?))));
        let distances: Vec<_> = known
            .map(|(row, behind)| Distance {
                component: row.component,
                pool: &row.pool,
                behind: behind.max(0),
                ahead: (-behind).max(0),
            })
            .collect();
        self.metrics.distances(&distances);
        let limit = judged.limit.map(|limit| (evenkeel_core::cluster::Component::Kubelet, i64::from(limit)));
        self.metrics.limits(limit.as_slice());
        let violations: Vec<_> = judged
            .rows
            .iter()
            .map(|row| Violations {
                component: row.component,
                pool: &row.pool,
                rule: "skew",
                severity: if row.standing == Standing::AtLimit { "AtLimit" } else { "Unsupported" },
                count: match row.standing {
                    Standing::Unsupported | Standing::AtLimit => row.count as u64,
                    _ => 0,
                },
            })
            .collect();
        self.metrics.violations(&violations);
    }
}

/// The stored object without the status that could not be read: it is written anew.
fn bare(stored: &DynamicObject) -> ClusterSkewReport {
    let mut report = ClusterSkewReport::new(&stored.name_any(), report::ClusterSkewReportSpec::default());
    report.metadata = stored.metadata.clone();
    report
}

/// What the report says when nothing can be said: the last observation with its time, and why it is not newer.
fn blind(
    before: &ClusterSkewReportStatus,
    why: &NotReady,
    generation: Option<i64>,
    now: Timestamp,
) -> ClusterSkewReportStatus {
    let line = why.to_string();
    let wanted = [
        ("Ready", "False", "CollectorFailed", line.as_str()),
        ("Reconciling", "True", "CollectorFailed", ""),
        ("Stalled", "False", "CollectorFailed", ""),
        ("SkewSupported", "Unknown", "NotObserved", "the cluster is not seen at the moment"),
        ("NextMinorAllowed", "Unknown", "NotObserved", "the cluster is not seen at the moment"),
        ("InventoryComplete", "False", "CollectorFailed", line.as_str()),
    ];
    ClusterSkewReportStatus {
        observed_generation: generation,
        supported: "Unknown".to_owned(),
        reason: line.clone(),
        next_minor: report::NextMinor { allowed: "Unknown".to_owned(), ..before.next_minor.clone() },
        conditions: conditions(&wanted, &before.conditions, generation, now),
        ..before.clone()
    }
}

/// Whether two statuses say the same, the time of looking aside.
fn same(a: &ClusterSkewReportStatus, b: &ClusterSkewReportStatus) -> bool {
    let timeless = |status: &ClusterSkewReportStatus| {
        let mut status = ClusterSkewReportStatus { last_observed_time: None, ..status.clone() };
        for condition in &mut status.conditions {
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        status
    };
    timeless(a) == timeless(b)
}

/// Why a look did not end with a true report.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    NotReady(#[from] NotReady),
    #[error("{0}")]
    NotWritten(#[from] NotWritten),
    #[error("the reports cannot be read: {0}")]
    Reports(String),
}

impl Problem {
    fn reason(&self) -> Reason {
        match self {
            Self::NotReady(_) | Self::Reports(_) => Reason::NotReady,
            Self::NotWritten(NotWritten::Lost(_)) => Reason::Conflict,
            Self::NotWritten(NotWritten::Failed(_)) => Reason::Api,
            Self::NotWritten(NotWritten::NotLeading) => Reason::LeadershipLost,
        }
    }
}
