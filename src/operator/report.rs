//! The controller that keeps the `ClusterSkewReport` true.
//!
//! It looks when something changes, judges, and writes when the judgement is another one or the last one is old. What
//! stands in the report is compared, not what was last written: an edit by somebody else is repaired. The invariants: at
//! most one status write a second; looking takes at most a twentieth of a processor, however much changes; and an outage
//! of a moment, such as an apiserver's restart, is waited out rather than reported.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::{Cluster, Node};
use evenkeel_core::disruption::preflight::closed;
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::skew::{Assessment, Verdict, assess};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use kube::runtime::events::EventType;
use kube::{CustomResourceExt as _, Resource as _, ResourceExt as _};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::figures;
use super::metrics::{Controller, Metrics, Reason, ReconcileOutcome};
use crate::act::status::{NotWritten, create_report, dropped, write};
use crate::act::{Authority, Effects, Events};
use crate::api::report::{self, ClusterSkewReportStatus, Context, Live, UNKNOWN_VERSIONS};
use crate::api::{ClusterSkewReport, conditions, decode};
use crate::clock::Clock;
use crate::observe::cache::Cache;
use crate::observe::fold::SyncState;
use crate::observe::platform::{Platform, advise, same_process};
use crate::observe::{Inventory, NotReady, Observer, Source, Trouble};

/// Field manager of the report's status.
const FIELD_MANAGER: &str = "evenkeel-controller";
/// At most one status write in this time, however much changes.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// After a look it rests for so many times as long as the look took: where thousands of budgets change all the time, each
/// change would be looked at by itself. A change that comes alone is looked at at once.
const RESTS: u32 = 19;
/// Longest time without a look: leases go stale without a word.
const AT_LEAST: Duration = Duration::from_secs(30);
/// After a write that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long sources may be unclear before that is what is reported. A watch that breaks with its apiserver is open again
/// within a second or two.
const PATIENCE: Duration = Duration::from_secs(10);

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
struct Memory {
    /// When a write was sent last, whatever became of it.
    last_write: Option<Instant>,
    /// What we last wrote, and the resourceVersion it became.
    written: Option<Written>,
    /// What we last wrote, whatever became of it.
    said: Option<ClusterSkewReportStatus>,
    /// What the server drops of it, in one line.
    outdated: Option<String>,
    /// Since when sources have been unclear.
    unclear: Option<Instant>,
    /// The last certain verdict.
    verdict: Option<Verdict>,
    complaint: String,
}

/// A status, and the resourceVersion it became when it was written.
type Written = (String, ClusterSkewReportStatus);

/// How a look ended.
enum Looked {
    Written,
    Same,
    /// Nothing can be said yet.
    Unclear,
}

impl Reporter<'_> {
    /// Keeps the report until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut changes = self.observer.changes().subscribe();
        let mut memory = Memory::default();
        loop {
            changes.mark_unchanged();
            let began = Instant::now();
            let (outcome, wait) = match self.once(&mut memory).await {
                Ok(Looked::Unclear) => (ReconcileOutcome::Requeue, BETWEEN_WRITES),
                Ok(_) => {
                    memory.complaint.clear();
                    (ReconcileOutcome::Ok, AT_LEAST)
                }
                Err(problem) => {
                    let line = problem.to_string();
                    // The same trouble is told once, not at every look.
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
                () = stop.cancelled() => return,
                () = sleep(wait) => {}
                _ = changes.changed() => if stop.run_until_cancelled(sleep_until(next)).await.is_none() {
                    return;
                },
            }
        }
    }

    /// One look.
    async fn once(&self, memory: &mut Memory) -> Result<Looked, Problem> {
        match self.reports.state() {
            SyncState::Synced => {}
            SyncState::Syncing if memory.is_patient(true) => return Ok(Looked::Unclear),
            SyncState::Syncing => {
                return Err(Problem::Reports("the first list is not complete yet".to_owned()));
            }
            SyncState::Tainted(why) | SyncState::Failing(why) | SyncState::Refused(why) => {
                return Err(Problem::Reports(why.to_string()));
            }
        }
        let now = self.clock.now();
        let seen = self.observer.cluster(now);
        let unclear = match &seen {
            Ok((_, inventory)) => !inventory.is_settled(),
            Err(_) => true,
        };
        if memory.is_patient(unclear) {
            return Ok(Looked::Unclear);
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
        // What nobody has touched since is what we wrote, whatever the server made of it.
        let version = object.resource_version();
        let untouched = memory.written.take().filter(|(written, _)| version.as_ref() == Some(written));
        let before = untouched.as_ref().map(|(_, ours)| ours.clone());
        // Without having seen anything the last word stays; it has to be ours, and not what somebody put in its place.
        let before = before.or_else(|| memory.said.clone().filter(|_| seen.is_err()));
        let before = before.unwrap_or_else(|| object.status.clone().unwrap_or_default());
        let (wanted, judged) = match &seen {
            Ok(seen) => {
                let (wanted, judged) = self.judge(&object, &before, seen, memory.outdated.as_deref(), now);
                (wanted, Some(judged))
            }
            Err(not_ready) => (blind(&before, not_ready, object.metadata.generation, now), None),
        };
        let done = self.say(memory, &object, (untouched, &before), (wanted, seen.is_err())).await;
        // After the report: whoever waits for it does not wait for these.
        if let Some(judged) = judged {
            figures::show(self.metrics, &judged, &object.spec.policy.policy(), self.releases);
        }
        seen?;
        let looked = done?;
        #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 fit into 52 bits")]
        self.metrics.reported(report::NAME, now.as_second() as f64);
        Ok(looked)
    }

    /// Writes `wanted` into the report, unless that says it already and not long ago.
    async fn say(
        &self,
        memory: &mut Memory,
        object: &ClusterSkewReport,
        (untouched, before): (Option<Written>, &ClusterSkewReportStatus),
        (wanted, is_blind): (ClusterSkewReportStatus, bool),
    ) -> Result<Looked, Problem> {
        if object.spec.suspend {
            return Ok(Looked::Same);
        }
        let period = Duration::from_secs(object.spec.refresh_period_seconds.into());
        // What somebody has written to since is written anew, at the latest now.
        let fresh = memory.last_write.is_some_and(|at| at.elapsed() < period && untouched.is_some());
        // Without having seen anything there is nothing to prove fresh.
        let repaired = untouched.is_some() || memory.said.is_none();
        if same(before, &wanted) && (fresh || is_blind && repaired) {
            memory.written = untouched;
            return Ok(Looked::Same);
        }
        self.write(memory, object, &wanted).await?;
        self.announce(memory, object, before, &wanted);
        Ok(Looked::Written)
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
        let more = same_process(cluster);
        let other;
        let cluster: &Cluster = if keys.is_empty() && more.is_empty() {
            cluster
        } else {
            let mut all = cluster.as_ref().clone();
            all.set_instances([cluster.instances(), &more].concat());
            other = with_pools(all, keys);
            &other
        };
        let policy = object.spec.policy.policy();
        let judged = advise(assess(cluster, &policy), inventory.platform);
        let judged = report::with_lifecycle(judged, self.releases, now);
        let unseen = inventory.unseen();
        let judged = report::with_gaps(
            judged,
            unseen.map(|missing| missing.reason.as_ref()),
            inventory.reason(Source::Webhooks),
        );
        let missing: Vec<String> = inventory.missing.iter().map(|m| m.reason.to_string()).collect();
        let leading: Vec<String> = inventory.leading.iter().map(ToString::to_string).collect();
        let unready = unseen.map(|missing| {
            let refused = missing.trouble == Trouble::Refused;
            (if refused { "Forbidden" } else { "CollectorFailed" }, missing.reason.as_ref())
        });
        let unready = outdated.map(|line| ("SchemaOutdated", line)).or(unready);
        let live = Live {
            leading: &leading,
            servers: &self.observer.servers(cluster),
            before: &before.apiservers,
            policy: object.spec.policy,
            unready,
        };
        // What was not read is not none.
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
        memory: &mut Memory,
        object: &ClusterSkewReport,
        wanted: &ClusterSkewReportStatus,
    ) -> Result<(), NotWritten> {
        memory.last_write = Some(Instant::now());
        let told = serde_json::to_value(wanted).map_err(|error| NotWritten::Failed(error.to_string()))?;
        let written = write(&self.effects, &self.authority, FIELD_MANAGER, object, &told).await?;
        self.reports.apply_own(written.clone());
        let outdated = dropped(&written, &told).map(|field| {
            format!(
                "the server drops {field}: its CustomResourceDefinition {} is of another version; install this one's with kubectl apply -k config/crd",
                ClusterSkewReport::crd_name()
            )
        });
        if let Some(line) = outdated.as_ref().filter(|_| memory.outdated.is_none()) {
            tracing::warn!(problem = line, "the report is not whole");
        }
        memory.outdated = outdated;
        memory.said = Some(wanted.clone());
        memory.written = written.resource_version().map(|version| (version, wanted.clone()));
        Ok(())
    }

    /// An event where the verdict is certain, and another than the last certain one.
    fn announce(
        &self,
        memory: &mut Memory,
        object: &ClusterSkewReport,
        before: &ClusterSkewReportStatus,
        wanted: &ClusterSkewReportStatus,
    ) {
        let verdict = |status: &ClusterSkewReportStatus| match status.supported.as_str() {
            "True" => Some(Verdict::True),
            "False" => Some(Verdict::False),
            _ => None,
        };
        // A process before this one may have seen the verdict go from certain to unknown.
        let unsure =
            before.conditions.iter().any(|c| c.type_ == "SkewSupported" && c.reason == UNKNOWN_VERSIONS);
        let last = memory.verdict.or_else(|| verdict(before)).or(unsure.then_some(Verdict::False));
        let Some(now) = verdict(wanted) else {
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
        // Beside the work: an apiserver that is slow to take an event must not hold up the next look.
        tokio::spawn(async move { events.publish(type_, reason, "Report", note, None, &regarding).await });
    }
}

impl Memory {
    /// Whether to wait and see, given whether sources are unclear now.
    fn is_patient(&mut self, unclear: bool) -> bool {
        self.unclear = if unclear { self.unclear.or_else(|| Some(Instant::now())) } else { None };
        self.unclear.is_some_and(|since| since.elapsed() < PATIENCE)
    }
}

/// When the next look may begin, given when this one began and ended and when a write was sent last. A look that waits for
/// the answer to its write is not charged for that: the pause between writes is longer.
fn not_before(began: Instant, ended: Instant, last_write: Option<Instant>) -> Instant {
    match last_write {
        Some(write) if write >= began => write + BETWEEN_WRITES,
        _ => {
            let rested = ended + (ended - began) * RESTS;
            last_write.map_or(rested, |write| rested.max(write + BETWEEN_WRITES))
        }
    }
}

/// `cluster` with the pools that the labels `keys` name.
fn with_pools(mut cluster: Cluster, keys: &[String]) -> Cluster {
    for seen in cluster.nodes().to_vec() {
        if let Some(pool) = keys.iter().find_map(|key| seen.labels.get(key)) {
            cluster.set_node(Node { pool: pool.as_str().into(), ..seen.as_ref().clone() });
        }
    }
    cluster
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
    let reason = if why.is_pending() { "Pending" } else { "CollectorFailed" };
    let mut line = why.to_string();
    if let Some(last) = &before.last_observed_time {
        // Writing to a String cannot fail.
        let _ = write!(line, "; what is below was seen at {}", last.0);
    }
    let unseen = "the cluster is not seen at the moment";
    let wanted = [
        ("Ready", if why.is_pending() { "Unknown" } else { "False" }, reason, line.as_str()),
        ("Reconciling", "True", reason, "looking again until everything is seen"),
        ("Stalled", "False", reason, "nothing needs a person yet"),
        ("SkewSupported", "Unknown", "NotObserved", unseen),
        ("NextMinorAllowed", "Unknown", "NotObserved", unseen),
        ("InventoryComplete", "False", reason, line.as_str()),
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

#[cfg(test)]
mod tests {
    use super::*;

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
