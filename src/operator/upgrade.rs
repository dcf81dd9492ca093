//! The controller that drives `ClusterUpgrade`s: look, decide, act, look again.
//!
//! The core decides which upgrade has its turn and what is done for it, and the API remembers what matters. The
//! invariant: evictions run beside the loop, because one may take seconds; every other write is finished before the
//! next decision, so that a decision always sees the claims that exist.

mod announced;
mod complaints;
mod driving;
mod dropped;
mod figures;
mod foretell;
mod read_upgrade;
mod retries;
mod stored;
mod taken;
mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::Cluster;
use evenkeel_core::disruption::Sent;
use evenkeel_core::rollout::{
    Action, Claim, Freshness, Gates, JobState, Jobs, RefusedWrites, UnreadableClaim, World, abandoned,
    decide, deleted_unreadable, orphans, planned, unavoided,
};
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::upgrade::GateObject;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::time::Instant;

use self::announced::Announced;
use self::complaints::Complaints;
use self::dropped::DroppedStatuses;
use self::figures::counts;
use self::foretell::Forecasts;
use self::read_upgrade::{DecidableUpgrade, ReadUpgrade};
use self::retries::{RetriedRequest, Retries};
use self::unseen::UnseenSince;
use super::caches::UpgradeCaches;
use super::decoded::Decoded;
use super::metrics::{Controller, Metrics, Reason, UpgradeNodes};
use crate::act::status::{NotWritten, write};
use crate::act::{ATTEMPT_LABEL, Authority, Effects, Evictions, FIELD_MANAGER, Hands, Known};
use crate::api::{ClusterUpgrade, ClusterUpgradeStatus, ConditionType, Executors, upgrade};
use crate::clock::Clock;
use crate::observe::fold::Unseen;
use crate::observe::lean::EXECUTOR_LABEL;
use crate::observe::{Observer, Trouble};

/// At most one decision in this time: what changes together is seen together.
const BETWEEN_DECISIONS: Duration = Duration::from_millis(50);
/// At most one status write per upgrade in this time, where another reason is to be told.
const BETWEEN_REASONS: Duration = Duration::from_secs(1);
/// The same where only counts and lines are.
const BETWEEN_LINES: Duration = Duration::from_secs(5);
/// Longest time without a look.
const AT_LEAST: Duration = Duration::from_mins(1);

/// What the controller works with.
pub(super) struct Driver<'a> {
    pub(super) observer: &'a Observer,
    pub(super) caches: &'a UpgradeCaches,
    pub(super) effects: Effects,
    pub(super) authority: Authority,
    pub(super) hands: Hands,
    pub(super) executors_namespace: &'a str,
    /// What is known of releases, for the minors on the way of an upgrade.
    pub(super) releases: &'a Catalogue,
    pub(super) metrics: &'a Metrics,
    pub(super) clock: Clock,
}

/// What is kept between two looks; losing it is safe.
#[derive(Default)]
struct UpgradesKept {
    claims: Decoded<Result<Claim, String>>,
    upgrades: Decoded<Result<ReadUpgrade, String>>,
    /// What the upgrades were read with.
    executors: Executors,
    sent: Sent,
    evictions: Evictions,
    status_written: BTreeMap<String, Instant>,
    dropped: DroppedStatuses,
    forecasts: Forecasts,
    announced: Announced,
    complaint: String,
    complaints: Complaints,
    /// Since when something has been out of sight.
    unseen: Option<UnseenSince>,
    /// The lines about ClusterUpgrades that cannot be read, which the log has already.
    unread_upgrades: Vec<String>,
    /// The same of `NodeUpgrades`, and of those that others keep.
    unread_claims: Vec<String>,
    /// UIDs of claims that are deleted and without our finalizer, and that others keep.
    released: BTreeSet<String>,
    /// What the server says to executors' Jobs.
    jobs: Jobs,
    refused: RefusedWrites,
    freshness: Freshness,
    /// What was last read of the objects of gates.
    gates: Gates,
    /// Whether the last look saw everything.
    sees: bool,
    /// Whether a write of this look failed or lost a race, or a status was not written.
    failed: bool,
    /// When to look again even if nothing changes, because a write failed or waits for its turn.
    again: Option<Instant>,
    retries: Retries,
}

/// What came of a look that saw everything.
struct CompleteLook {
    /// When to look again even if nothing changes.
    again_at: Option<Timestamp>,
    /// Whether a write failed or lost a race, or a status was not written.
    failed: bool,
}

/// What became of a status.
struct Told {
    /// Everything is stored of it that has to be stored before any action is taken.
    is_stored: bool,
    /// The resourceVersion of the upgrade with it, where it was written now.
    version: Option<String>,
}

impl Driver<'_> {
    /// One look at everything; says when to look again, and whether a write failed.
    async fn once(&self, kept: &mut UpgradesKept) -> Result<CompleteLook, Unseen> {
        kept.failed = false;
        self.synced()?;
        let now = self.clock.now();
        let (cluster, inventory) = self.observer.cluster(now).map_err(|not_ready| Unseen {
            line: not_ready.to_string(),
            refused: false,
            code: None,
        })?;
        // A report can do without some sources; a drain cannot. Without pods every node would look drained, without
        // budgets every pod free to go, without webhooks none in the way, without volumes no pod tied to its node,
        // without their attachments every volume detached, and without StatefulSets no pod still to be made.
        if let Some(missing) = inventory.missing.first() {
            let refused = missing.trouble == Trouble::Refused;
            return Err(Unseen { line: missing.reason.to_string(), refused, code: None });
        }
        if !std::mem::replace(&mut kept.sees, true) {
            kept.freshness.unbroken_since = now;
        }
        let (claims, unreadable) = self.claims(kept);
        kept.freshness.forget(&claims);
        kept.complain(&unreadable);
        self.jobs(kept);
        kept.jobs.see_pods(&cluster, &claims, self.executors_namespace, now);
        let hidden: Vec<_> = inventory.leading.iter().map(|l| (l.component, l.to_string())).collect();
        kept.refused.forget(&claims, now);
        let (jobs, freshness, gates) = (kept.jobs.clone(), kept.freshness.clone(), kept.gates.clone());
        let refused = kept.refused.clone();
        let memory = kept.sent.memory(&cluster, now);
        let world = World {
            cluster: &cluster,
            claims: &claims,
            unreadable: &unreadable,
            jobs: &jobs,
            hidden: &hidden,
            absent_executors: &[],
            refused: &refused,
            freshness: &freshness,
            gates: &gates,
            memory: &memory,
            executors: self.executors_namespace,
            now,
        };
        let mut look_at = None;
        let (mut rows, mut away, mut blocked, mut undrainable) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (upgrades, mut queue) = self.upgrades(kept, &claims, now).await;
        forget_gates(kept, &upgrades);
        for DecidableUpgrade { object, intent, mut progress, invalid } in upgrades {
            progress.queued_behind = queue.ahead_of(&intent, &progress);
            let absent_executors = &upgrade::absent_executors(&object, &kept.executors);
            let world = World { absent_executors, ..world };
            let planned = planned(&intent, &progress, world, self.releases);
            let decision = decide(&planned, &intent, &progress, world);
            queue.decided(&intent, &decision.status);
            look_at = [look_at, decision.again_at].into_iter().flatten().min();
            if decision.status.completed.is_none() {
                away.extend_from_slice(&decision.status.away);
                undrainable.extend_from_slice(&decision.status.undrainable);
            }
            blocked.extend((!decision.status.preflight.is_empty()).then(|| intent.uid.clone()));
            rows.push((object.name_any(), counts(&decision.status)));
            let status = if let Some(why) = invalid.filter(|_| !progress.ending) {
                upgrade::status_of_invalid(&object, &why, Some(&decision.status), now)
            } else {
                let forecast = kept.forecasts.of(planned.plan(), &intent, &decision.status, world);
                upgrade::status((&object, &intent), &planned, &decision.status, forecast.as_ref(), now)
            };
            self.tell_and_act(kept, object, status, decision.actions).await;
        }
        kept.freshness.absences.see(away, now);
        kept.freshness.blocked.see(blocked, now);
        kept.freshness.undrainable.see(undrainable, now);
        self.clean_up(kept, &cluster, &claims, &unreadable).await;
        self.show_nodes(&rows);
        let again_at = [look_at, kept.sent.next()].into_iter().flatten().min();
        Ok(CompleteLook { again_at, failed: kept.failed })
    }

    /// Shows how many nodes of each upgrade are in which state, of what `rows` say.
    fn show_nodes(&self, rows: &[(String, Vec<(&'static str, u64)>)]) {
        let rows = rows.iter().flat_map(|(upgrade, counts)| {
            counts.iter().map(move |(state, count)| UpgradeNodes { upgrade, state, count: *count })
        });
        self.metrics.upgrades().show_nodes(&rows.collect::<Vec<_>>());
    }

    /// Counts a failure of this look.
    fn fails(&self, kept: &mut UpgradesKept, reason: Reason) {
        kept.failed = true;
        self.metrics.reconcile_failed(Controller::Upgrade, reason);
    }

    /// Updates from the watch which Jobs of executors exist, and drops refusals that are over.
    fn jobs(&self, kept: &mut UpgradesKept) {
        let jobs = self.caches.jobs.list();
        let of = jobs.iter().filter_map(|job| {
            let claim: Arc<str> = job.labels.get(EXECUTOR_LABEL)?.as_str().into();
            let attempt = job.labels.get(ATTEMPT_LABEL)?.parse().ok()?;
            let state = match (&job.complete, &job.failed) {
                (Some(_), _) => JobState::Complete,
                (None, Some(message)) => JobState::Failed(message.to_string()),
                (None, None) => JobState::Running,
            };
            Some(((claim, attempt), state))
        });
        kept.jobs.made = of.collect();
        let made = &kept.jobs.made;
        kept.jobs.refused.retain(|claim, _| !made.keys().any(|(of, _)| of == claim));
    }

    /// Says in `object` how it stands, and carries `actions` out. The plan and the start time are state: the status has to hold
    /// them before any action is taken.
    async fn tell_and_act(
        &self,
        kept: &mut UpgradesKept,
        mut object: ClusterUpgrade,
        status: ClusterUpgradeStatus,
        actions: Vec<Action>,
    ) {
        kept.dropped.decided(&object, &status);
        let told = self.tell(kept, &object, status).await;
        if told.is_stored {
            // What is written to the upgrade next is written to it as it is now.
            object.metadata.resource_version = told.version.or(object.metadata.resource_version);
            self.act(kept, object, actions).await;
        }
    }

    /// Carries `actions` out, but for writes that did not come through just now: evictions beside the loop, everything else before the
    /// next decision.
    async fn act(&self, kept: &mut UpgradesKept, object: ClusterUpgrade, actions: Vec<Action>) {
        let mut writes = FuturesUnordered::new();
        for action in actions {
            if action == Action::AskApiservers {
                // This only reads, so it needs no leadership.
                self.observer.ask_apiservers_now();
            } else if let Some(action) = kept.evictions.take(action) {
                let retried = RetriedRequest::of(&action, &object.name_any());
                if retried.as_ref().is_some_and(|retried| kept.has_to_wait(retried)) {
                    continue;
                }
                let (known, object) = (self.known_of(&action), &object);
                writes.push(async move { (retried, self.hands.perform(object, action, known).await) });
            }
        }
        kept.evictions.send(&self.hands, &mut kept.sent, self.clock.now());
        while let Some((retried, outcome)) = writes.next().await {
            self.take(kept, retried, outcome);
        }
    }

    /// What is known of the objects of `action` before it is carried out.
    fn known_of(&self, action: &Action) -> Known {
        match action {
            Action::Record { claim, .. } => {
                Known { claim: self.caches.claims.get("", claim), ..Known::default() }
            }
            Action::Reread { node, .. } => {
                let seen = self.observer.nodes.get("", node);
                Known { node: seen.map(|seen| Arc::clone(&seen.node.uid)), ..Known::default() }
            }
            _ => Known::default(),
        }
    }

    /// Releases claims whose upgrade is gone, and those that nobody can read and somebody deleted, and gives back nodes
    /// whose claim is gone.
    async fn clean_up(
        &self,
        kept: &mut UpgradesKept,
        cluster: &Cluster,
        claims: &[Claim],
        unreadable: &[UnreadableClaim],
    ) {
        let upgrades: Vec<_> =
            self.caches.upgrades.list().iter().filter_map(|upgrade| upgrade.uid()).collect();
        let without = claims
            .iter()
            .filter(|claim| claim.ending && upgrades.iter().all(|uid| **uid != *claim.upgrade_uid));
        let mut actions = abandoned(cluster, &kept.jobs, without);
        actions.extend(deleted_unreadable(cluster, &kept.jobs, unreadable));
        actions.extend(unavoided(cluster, &upgrades));
        for action in actions {
            let retried = RetriedRequest::of(&action, "");
            if retried.as_ref().is_none_or(|retried| !kept.has_to_wait(retried)) {
                let outcome = self.hands.perform_without_upgrade(action).await;
                self.take(kept, retried, outcome);
            }
        }
        let known = |name: &str| unreadable.iter().any(|bad| *bad.name == *name);
        for action in orphans(cluster, claims, known) {
            let retried = RetriedRequest::of(&action, "").filter(|retried| !kept.has_to_wait(retried));
            let (Action::ReleaseOrphan { node, mark }, Some(retried)) = (action, retried) else { continue };
            tracing::info!(node = &*node.name, mark, "giving back a node whose claim was deleted");
            let outcome = self.hands.release_orphan(&node, &mark).await;
            self.take(kept, Some(retried), outcome);
        }
    }

    /// Writes `status` if it differs from the stored one. A part that has to be stored before any action is not stored where it
    /// was not written, or where the server dropped it, which the status then says instead.
    async fn tell(
        &self,
        kept: &mut UpgradesKept,
        object: &ClusterUpgrade,
        status: ClusterUpgradeStatus,
    ) -> Told {
        let name = object.name_any();
        let before = object.status.as_ref();
        let same = before.is_some_and(|before| before.remembered() == status.remembered());
        let status = kept.dropped.told(object, status, self.clock.now());
        kept.announced.stands(&name, &status);
        let cut = kept.dropped.is_kept_of(object, &status);
        if before == Some(&status) || cut && same {
            return Told { is_stored: true, version: None };
        }
        let untold = Told { is_stored: same, version: None };
        let reason = |s: &ClusterUpgradeStatus| Some(ConditionType::Ready.of(&s.conditions)?.reason.clone());
        let goes_on = before.is_some_and(|before| reason(before) == reason(&status));
        let pause = if goes_on || cut { BETWEEN_LINES } else { BETWEEN_REASONS };
        let due = kept.status_written.get(&name).map(|at| *at + pause);
        let can_wait = same || cut || kept.dropped.is_unstored(object);
        if let Some(due) = due.filter(|due| can_wait && *due > Instant::now()) {
            kept.looks_by(due);
            return untold;
        }
        let retried = RetriedRequest::Status(name.clone());
        if kept.has_to_wait(&retried) {
            return untold;
        }
        kept.status_written.insert(name, Instant::now());
        let of = &object.metadata;
        match write::<ClusterUpgrade>(&self.effects, &self.authority, FIELD_MANAGER, of, &status).await {
            Ok(written) => {
                kept.complaints.answered();
                kept.retries.over(&retried);
                kept.announced.announce(&self.hands, before, &written, &status);
                let version = written.resource_version();
                let is_stored = kept.dropped.note(&written, status);
                self.caches.upgrades.apply_own(written);
                if !is_stored {
                    // It is sent again: a person may install the definition that has the field.
                    self.fails(kept, Reason::Api);
                    kept.looks_by(Instant::now() + BETWEEN_LINES);
                }
                return Told { is_stored, version };
            }
            Err(error) => self.not_written(kept, retried, error),
        }
        untold
    }

    /// Takes note that the status of `retried` was not written.
    fn not_written(&self, kept: &mut UpgradesKept, retried: RetriedRequest, error: NotWritten) {
        match error {
            NotWritten::NotLeading => self.fails(kept, Reason::LeadershipLost),
            NotWritten::Lost(line) => self.lost(kept, Some(retried), &line),
            NotWritten::Failed(line) => {
                kept.complaints.failed(&line, "a status was not written");
                self.failed(kept, Some(retried));
            }
        }
    }
}

/// Forgets what was read of objects that no gate names any more.
fn forget_gates(kept: &mut UpgradesKept, upgrades: &[DecidableUpgrade]) {
    let named = |object: &GateObject| {
        let mut all = upgrades.iter().flat_map(|of| &of.intent.gates);
        all.any(|gate| gate.object == *object)
    };
    kept.gates.retain(named);
}
