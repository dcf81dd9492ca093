//! The controller that keeps the `ClusterSkewReport` true.
//!
//! It looks when something changes, judges, and writes when the judgement is another one or the last write is old. It
//! compares with the report as it is stored, so an edit by somebody else is repaired. The invariants: at most one
//! status write a second; looking takes at most a twentieth of a processor, however much changes; and a short outage,
//! such as a kube-apiserver's restart, is waited out and not reported.

mod last_seen;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::{Cluster, Component, Node};
use evenkeel_core::disruption::preflight::closed;
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::skew::{Assessment, Verdict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use kube::core::DynamicObject;
use kube::runtime::events::EventType;
use kube::{CustomResourceExt as _, Resource as _, ResourceExt as _};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::figures;
use super::metrics::{Controller, Metrics, Reason, ReconcileOutcome};
use crate::act::status::{NotWritten, create_report, dropped, write};
use crate::act::{Authority, Effects, Events};
use crate::api::report::{self, ClusterSkewReportStatus, Context, LiveFacts, Unready};
use crate::api::{ClusterSkewReport, decode};
use crate::clock::Clock;
use crate::judgement::{Basis, judge};
use crate::observe::cache::Cache;
use crate::observe::fold::SyncState;
use crate::observe::leaders::Leading;
use crate::observe::platform::Platform;
use crate::observe::{Inventory, NotReady, Observer, Source, Trouble};

/// Field manager of the report's status.
const FIELD_MANAGER: &str = "evenkeel-controller";
/// At most one status write in this time, however much changes.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// The controller rests after a look for this many times the look's own duration, so that thousands of budgets that
/// change all the time do not cause a look each. The first change after such a rest causes a look at once.
const RESTS: u32 = 19;
/// Longest time without a look: a Lease that nobody renews goes stale without a change in the API.
const AT_LEAST: Duration = Duration::from_secs(30);
/// How long to wait before the next look after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long sources may be unclear before the report says so. A watch that breaks with its kube-apiserver is open again
/// within a second or two.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long a static pod may be away while it is replaced: on two cores, kubeadm's were for up to 110 s.
const MOMENT: Duration = Duration::from_mins(2);

/// What the controller works with.
pub(super) struct Reporter<'a> {
    pub(super) observer: &'a Observer,
    pub(super) releases: &'a Catalogue,
    pub(super) reports: Cache<DynamicObject>,
    pub(super) effects: Effects,
    pub(super) authority: Authority,
    pub(super) metrics: &'a Metrics,
    pub(super) clock: Clock,
}

/// What it remembers between two looks; losing it costs a write or an event.
#[derive(Default)]
struct ReportMemory {
    /// When a write was last sent, whether it succeeded or not.
    last_write: Option<Instant>,
    /// The status that we last wrote and its resourceVersion, while nobody has changed the report since.
    written: Option<WrittenReport>,
    /// The status that we last wrote, even if somebody has changed the report since.
    said: Option<ClusterSkewReportStatus>,
    /// The first field of it that the server dropped, and what to do, in one line.
    outdated: Option<String>,
    /// Since when sources have been unclear.
    unclear: Option<Instant>,
    /// When each controller last led in sight.
    in_sight: BTreeMap<Component, Instant>,
    /// The last certain verdict.
    verdict: Option<Verdict>,
    complaint: String,
}

/// The resourceVersion of the report after a write, and the status that was written.
type WrittenReport = (String, ClusterSkewReportStatus);

/// What became of the report in one look.
enum ReportOutcome {
    Written,
    Same,
    /// Nothing can be said yet.
    Unclear,
}

impl Reporter<'_> {
    /// Keeps the report until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut changes = self.observer.changes().subscribe();
        let mut memory = ReportMemory::default();
        loop {
            changes.mark_unchanged();
            let began = Instant::now();
            let (outcome, wait) = match self.once(&mut memory).await {
                Ok(ReportOutcome::Unclear) => (ReconcileOutcome::Requeue, BETWEEN_WRITES),
                Ok(_) => {
                    memory.complaint.clear();
                    (ReconcileOutcome::Ok, AT_LEAST)
                }
                Err(problem) => {
                    let line = problem.to_string();
                    // The log names the same problem once, not at every look.
                    if line != memory.complaint {
                        tracing::warn!(problem = line, "the report is not written");
                        memory.complaint = line;
                    }
                    self.metrics.reconcile_failed(Controller::Report, problem.reason());
                    (ReconcileOutcome::Error, AFTER_FAILURE)
                }
            };
            self.metrics.reconciled(Controller::Report, outcome, began.elapsed());
            let next = not_before(began, Instant::now(), memory.last_write);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(wait) => {}
                _ = changes.changed() => if stop.run_until_cancelled(sleep_until(next)).await.is_none() {
                    return;
                },
            }
        }
    }

    /// One look: judges the cluster, and writes the report where it changed.
    async fn once(&self, memory: &mut ReportMemory) -> Result<ReportOutcome, Problem> {
        match self.reports.state() {
            SyncState::Synced => {}
            SyncState::Syncing if memory.is_patient(true) => return Ok(ReportOutcome::Unclear),
            SyncState::Syncing => {
                return Err(Problem::Reports("the first list is not complete yet".to_owned()));
            }
            SyncState::Tainted(why) | SyncState::Failing { why, .. } | SyncState::Refused(why) => {
                return Err(Problem::Reports(why.to_string()));
            }
        }
        let now = self.clock.now();
        let mut seen = self.observer.cluster(now);
        if let Ok((_, inventory)) = &mut seen {
            memory.forgive_moments(&mut inventory.leading);
        }
        let unclear = match &seen {
            Ok((_, inventory)) => !inventory.is_settled(),
            Err(_) => true,
        };
        if memory.is_patient(unclear) {
            return Ok(ReportOutcome::Unclear);
        }
        let stored = if let Some(stored) = self.reports.get("", report::NAME) {
            stored
        } else {
            memory.last_write = Some(Instant::now());
            let made = create_report(&self.effects, &self.authority).await?;
            self.reports.apply_own(made.clone());
            Arc::new(made)
        };
        let object = decode::<ClusterSkewReport>(&stored).unwrap_or_else(|_| bare(&stored));
        // A report with the resourceVersion of our last write counts as what we wrote, even if the server dropped
        // fields.
        let version = object.resource_version();
        let untouched = memory.written.take().filter(|(written, _)| version.as_ref() == Some(written));
        let before = untouched.as_ref().map(|(_, ours)| ours.clone());
        let (suspended, generation) = (object.spec.suspend, object.metadata.generation);
        // Without an observation of now the last one stays: the one that we wrote, and not another's edit of it.
        let is_old = suspended || seen.is_err();
        let before = before.or_else(|| memory.said.clone().filter(|_| is_old));
        let before = before.unwrap_or_else(|| object.status.clone().unwrap_or_default());
        let (wanted, judged) = match &seen {
            Ok(seen) => {
                let (wanted, judged) = self.judge(&object, &before, seen, memory.outdated.as_deref(), now);
                (wanted, Some(judged))
            }
            Err(not_ready) => (last_seen::while_unseen(&before, not_ready, generation, now), None),
        };
        let wanted = if suspended { last_seen::while_suspended(&before, generation, now) } else { wanted };
        let done = self.say(memory, &object, (untouched, &before), (wanted, is_old)).await;
        // The metrics come after the report, so that nobody who waits for the report waits for them too.
        if let Some(judged) = judged {
            figures::show(self.metrics, &judged, &object.spec.policy.policy(), self.releases);
        }
        seen?;
        let outcome = done?;
        // What a suspended report says of the cluster grows old, of which an alert tells.
        if !suspended {
            #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 fit into 52 bits")]
            self.metrics.reported(report::NAME, now.as_second() as f64);
        }
        Ok(outcome)
    }

    /// Writes `wanted` into the report, unless the report says the same already and was written within its refresh
    /// period. Of what `is_old` there is no refreshing.
    async fn say(
        &self,
        memory: &mut ReportMemory,
        object: &ClusterSkewReport,
        (untouched, before): (Option<WrittenReport>, &ClusterSkewReportStatus),
        (wanted, is_old): (ClusterSkewReportStatus, bool),
    ) -> Result<ReportOutcome, Problem> {
        let period = Duration::from_secs(object.spec.refresh_period_seconds.into());
        // A report that somebody else has changed since our last write is written again.
        let fresh = memory.last_write.is_some_and(|at| at.elapsed() < period && untouched.is_some());
        // A write of what is old would prove nothing fresh; it only repairs what somebody else changed.
        let repaired = untouched.is_some() || memory.said.is_none();
        if same(before, &wanted) && (fresh || is_old && repaired) {
            memory.written = untouched;
            return Ok(ReportOutcome::Same);
        }
        self.write(memory, object, &wanted).await?;
        self.announce(memory, object, before, &wanted);
        Ok(ReportOutcome::Written)
    }

    /// What the report is to say of `cluster`.
    fn judge(
        &self,
        object: &ClusterSkewReport,
        before: &ClusterSkewReportStatus,
        (cluster, inventory): &(Arc<Cluster>, Inventory),
        outdated: Option<&str>,
        now: Timestamp,
    ) -> (ClusterSkewReportStatus, Assessment) {
        let keys = &object.spec.pool_label_keys;
        let other;
        let cluster: &Cluster = if keys.is_empty() {
            cluster
        } else {
            other = with_pools(cluster.as_ref().clone(), keys);
            &other
        };
        let policy = object.spec.policy.policy();
        let unseen = inventory.unseen();
        let basis = Basis {
            policy: &policy,
            platform: inventory.platform,
            releases: self.releases,
            today: Some(now.to_zoned(TimeZone::UTC).date()),
            unseen: unseen.map(|missing| missing.reason.as_ref()),
            webhooks: inventory.reason(Source::Webhooks),
        };
        let judged = judge(cluster, &basis);
        let missing: Vec<String> = inventory.missing.iter().map(|m| m.reason.to_string()).collect();
        let leading: Vec<String> = inventory.leading.iter().map(ToString::to_string).collect();
        let unready = unseen.map(|missing| {
            let refused = missing.trouble == Trouble::Refused;
            (if refused { Unready::Forbidden } else { Unready::CollectorFailed }, missing.reason.as_ref())
        });
        let unready = outdated.map(|line| (Unready::SchemaOutdated, line)).or(unready);
        let live = LiveFacts {
            leading: &leading,
            servers: &self.observer.servers(cluster),
            before: &before.apiservers,
            policy: object.spec.policy,
            unready,
        };
        // Budgets that were not read are unknown, which is not the same as none.
        let budgets = inventory.reason(Source::Budgets).is_none().then(|| closed(cluster, now));
        let context = Context {
            missing: &missing,
            platform: inventory.platform.map(Platform::name),
            hidden: &inventory.hidden(cluster),
            budgets: budgets.as_deref(),
            before: &before.conditions,
            generation: object.metadata.generation,
            nodes: cluster.nodes().len(),
            now,
            live,
        };
        (report::status(&judged, &context), judged)
    }

    async fn write(
        &self,
        memory: &mut ReportMemory,
        object: &ClusterSkewReport,
        wanted: &ClusterSkewReportStatus,
    ) -> Result<(), NotWritten> {
        memory.last_write = Some(Instant::now());
        let told = serde_json::to_value(wanted).map_err(|error| NotWritten::Failed(error.to_string()))?;
        let written = write::<ClusterSkewReport>(
            &self.effects,
            &self.authority,
            FIELD_MANAGER,
            &object.metadata,
            &told,
        )
        .await?;
        self.reports.apply_own(written.clone());
        let outdated = dropped(&written, &told, ClusterSkewReport::crd_name());
        if let Some(line) = outdated.as_ref().filter(|_| memory.outdated.is_none()) {
            tracing::warn!(problem = line, "the report is not whole");
        }
        memory.outdated = outdated;
        memory.said = Some(wanted.clone());
        memory.written = written.resource_version().map(|version| (version, wanted.clone()));
        Ok(())
    }

    /// Publishes an event when the verdict is certain and differs from the last certain one.
    fn announce(
        &self,
        memory: &mut ReportMemory,
        object: &ClusterSkewReport,
        before: &ClusterSkewReportStatus,
        wanted: &ClusterSkewReportStatus,
    ) {
        // A former leader may have seen the verdict become unknown.
        let last = memory.verdict.or_else(|| report::last_certain(before));
        let verdict = Verdict::read(&wanted.supported);
        let Some(now) = verdict.filter(|verdict| *verdict != Verdict::Unknown) else {
            memory.verdict = last;
            return;
        };
        memory.verdict = Some(now);
        let (type_, reason) = match (last, now) {
            (Some(Verdict::False), Verdict::True) => (EventType::Normal, "SkewResolved"),
            (last, Verdict::False) if last != Some(Verdict::False) => (EventType::Warning, "SkewUnsupported"),
            _ => return,
        };
        let (events, regarding) =
            (Events::new(self.effects.clone(), self.authority.clone()), object.object_ref(&()));
        let note = wanted.reason.clone();
        // A task of its own: a kube-apiserver that is slow to take an event must not delay the next look.
        tokio::spawn(async move { events.publish(type_, reason, "Report", note, None, &regarding).await });
    }
}

impl ReportMemory {
    /// Whether to wait before anything is reported, given whether sources are unclear now.
    fn is_patient(&mut self, unclear: bool) -> bool {
        self.unclear = if unclear { self.unclear.or_else(|| Some(Instant::now())) } else { None };
        self.unclear.is_some_and(|since| since.elapsed() < PATIENCE)
    }

    /// Takes those out of `leading` that led in sight a moment ago: while a static pod is replaced its lease outlives its
    /// copy in the API.
    fn forgive_moments(&mut self, leading: &mut Vec<Leading>) {
        let now = Instant::now();
        let hidden = |component: Component| leading.iter().any(|hidden| hidden.component == component);
        for component in Component::ALL.into_iter().filter(|component| !hidden(*component)) {
            self.in_sight.insert(component, now);
        }
        leading.retain(|hidden| self.in_sight.get(&hidden.component).is_none_or(|at| at.elapsed() >= MOMENT));
    }
}

/// When the next look may begin, given when this one began and ended and when a write was last sent. After a look that
/// wrote, only [`BETWEEN_WRITES`] counts: most of its duration was the wait for the server's answer.
fn not_before(began: Instant, ended: Instant, last_write: Option<Instant>) -> Instant {
    match last_write {
        Some(write) if write >= began => write + BETWEEN_WRITES,
        _ => {
            let rested = ended + (ended - began) * RESTS;
            last_write.map_or(rested, |write| rested.max(write + BETWEEN_WRITES))
        }
    }
}

/// `cluster`, with each node in the pool that the first of its labels in `keys` names.
fn with_pools(mut cluster: Cluster, keys: &[String]) -> Cluster {
    for seen in cluster.nodes().to_vec() {
        if let Some(pool) = keys.iter().find_map(|key| seen.labels.get(key)) {
            cluster.set_node(Node { pool: pool.as_str().into(), ..seen.as_ref().clone() });
        }
    }
    cluster
}

/// The stored report with its metadata only: its spec or status could not be read. The spec is the default, and the
/// status is written anew.
fn bare(stored: &DynamicObject) -> ClusterSkewReport {
    let mut report = ClusterSkewReport::new(&stored.name_any(), report::ClusterSkewReportSpec::default());
    report.metadata = stored.metadata.clone();
    report
}

/// Whether two statuses say the same, apart from when it was observed and when conditions changed.
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

/// Why a look did not end with a report that is up to date.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_led_in_sight_a_moment_ago_is_not_hidden() {
        let mut memory = ReportMemory::default();
        let mut told = |hidden: &[Component]| {
            let of = |component: &Component| Leading { component: *component, holder: "cp-1_a".into() };
            let mut leading: Vec<_> = hidden.iter().map(of).collect();
            memory.forgive_moments(&mut leading);
            leading.into_iter().map(|hidden| hidden.component).collect::<Vec<_>>()
        };
        let (manager, scheduler) = (Component::KubeControllerManager, Component::KubeScheduler);
        assert_eq!(told(&[manager]), [manager], "nobody has ever seen it");
        assert_eq!(told(&[manager, scheduler]), [manager], "its static pod is replaced");
        tokio::time::sleep(MOMENT).await;
        assert_eq!(told(&[scheduler]), [scheduler], "it does not come back");
        assert_eq!(told(&[]), []);
        assert_eq!(told(&[scheduler, manager]), []);
    }

    #[test]
    fn it_rests_after_each_look_and_longer_after_a_write() {
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        for (began, ended, last_write, next) in [
            (0, 0, None, 0),
            (0, 3, None, 60),
            (5_000, 5_003, Some(0), 5_060),
            (500, 503, Some(0), 1_000),
            // Most of this look was the answer to its write.
            (5_000, 5_900, Some(5_003), 6_003),
        ] {
            assert_eq!(not_before(at(began), at(ended), last_write.map(at)), at(next), "{began}");
        }
    }
}
