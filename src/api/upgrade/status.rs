//! The status of a `ClusterUpgrade`: what the core decided, and what is told where nothing can be decided.
//!
//! Here belongs only the form of it, and how much of each list it holds; reasons and lines are the core's. The invariant: it fits
//! into what an object of ours may hold, and counts what it leaves out.

use evenkeel_core::plan::{self, Planned, Stage, StageProgress};
use evenkeel_core::rollout::{self, EndedBy, Forecast, OutOf, UpgradePhase};
use evenkeel_core::upgrade::{ComponentPlace, Lasting, Upgrade};
use evenkeel_core::version::KubeVersion;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::may_begin;
use super::named::named;
use super::outlook;
use super::schema::ClusterUpgrade;
use super::status_schema::{
    ClusterUpgradeStatus, LastingTrouble, NodeProgress, ParkedNode, Plan, PlanFinding, PlanHop, PlanStage,
    SeenComponent,
};
use super::waits::WaitingFor;
use crate::api::bounds::{MAX_LINE, fitting, short};
use crate::api::conditions::{ConditionStatus, ConditionType, Kstatus, Wanted, conditions};
use crate::api::report::count;

/// How many nodes the status names as out of the rollout.
const MAX_PARKED: usize = 50;
/// How many lines a list of the status has.
const MAX_LINES: usize = 20;
/// How many control-plane components the status remembers.
const MAX_SEEN: usize = 256;
/// Most troubles that are remembered as lasting; of the others, whoever leads next finds out itself.
const MAX_LASTING: usize = 16;
/// How many soaks the status remembers: two of each group, and the control plane's.
const MAX_SOAKS: usize = 160;
/// How many hops the status shows.
const MAX_HOPS: usize = 16;

/// The status that says `decided` of `upgrade`, the core's value of `object`. `forecast` is what lies ahead of the plan, as
/// it was last reckoned.
pub fn status(
    of: (&ClusterUpgrade, &Upgrade),
    planned: &Planned,
    decided: &rollout::UpgradeStatus,
    forecast: Option<&Forecast>,
    now: Timestamp,
) -> ClusterUpgradeStatus {
    fitting(|divisor| divided(of, planned, decided, forecast, now, divisor))
}

/// The same, with lists for people of which each has at most its bound divided by `divisor`.
fn divided(
    (object, upgrade): (&ClusterUpgrade, &Upgrade),
    planned: &Planned,
    decided: &rollout::UpgradeStatus,
    forecast: Option<&Forecast>,
    now: Timestamp,
    divisor: usize,
) -> ClusterUpgradeStatus {
    let phase = decided.phase;
    let most = |bound: usize| (bound / divisor).max(1);
    let (waiting_for, waiting_for_omitted) =
        cut(&decided.waits, most(MAX_LINES), |waiting| WaitingFor::of(waiting, line_of));
    let (parked, parked_omitted) = parked_nodes(decided, most(MAX_PARKED));
    ClusterUpgradeStatus {
        observed_generation: object.metadata.generation,
        plan: plan_of((object, upgrade), planned.plan(), decided, forecast, most),
        progress: NodeProgress { eta: outlook::eta(phase, forecast), ..node_progress(decided) },
        control_plane: decided.seen.iter().take(MAX_SEEN).map(seen).collect(),
        hidden_controllers: decided.hidden.iter().map(|of| of.name().to_owned()).collect(),
        soaks: decided.soaks.iter().take(MAX_SOAKS).map(may_begin::told).collect(),
        lasting: lasting_troubles(decided),
        waiting_for,
        waiting_for_omitted,
        parked,
        parked_omitted,
        start_time: decided.started.map(Time),
        completion_time: decided.completed.map(Time),
        completed_generation: object.metadata.generation.filter(|_| decided.completed.is_some()),
        history: outlook::history(object, decided, upgraded_nodes(decided).0),
        conditions: conditions_of(object, phase, decided, now),
    }
}

impl ClusterUpgradeStatus {
    /// The generation of the spec that it says is complete, if it says so. An older release wrote it only as the one that it
    /// had looked at.
    pub(super) fn complete_at(&self) -> Option<i64> {
        self.completion_time.as_ref().and(self.completed_generation.or(self.observed_generation))
    }

    /// What of it later looks go by, and so has to be stored before anything is done; the rest is empty.
    #[must_use]
    pub fn remembered(&self) -> Self {
        let plan = self.plan.as_ref().map(|Plan { hash, from, hop, via, .. }| Plan {
            hash: hash.clone(),
            from: from.clone(),
            hop: hop.clone(),
            via: via.clone(),
            ..Plan::default()
        });
        Self {
            observed_generation: self.observed_generation,
            plan,
            control_plane: self.control_plane.clone(),
            hidden_controllers: self.hidden_controllers.clone(),
            soaks: self.soaks.clone(),
            start_time: self.start_time.clone(),
            completion_time: self.completion_time.clone(),
            ..Self::default()
        }
    }
}

/// How many nodes are upgraded, and of how many.
fn upgraded_nodes(decided: &rollout::UpgradeStatus) -> (usize, usize) {
    let nodes = decided.stages.iter().find(|s| s.stage == Stage::Kubelets);
    nodes.map_or((0, 0), |s| (s.upgraded, s.total))
}

/// How far the nodes are, without an ETA.
fn node_progress(decided: &rollout::UpgradeStatus) -> NodeProgress {
    let (upgraded, selected) = upgraded_nodes(decided);
    NodeProgress {
        summary: format!("{upgraded}/{selected}"),
        upgraded: count(upgraded),
        selected: count(selected),
        in_flight: count(decided.nodes_in_flight),
        blocked: count(decided.out(OutOf::Parked)),
        failed: count(decided.out(OutOf::Failed)),
        ..NodeProgress::default()
    }
}

/// At most `most` of the nodes that are out of the rollout, and how many are left out.
fn parked_nodes(decided: &rollout::UpgradeStatus, most: usize) -> (Vec<ParkedNode>, i32) {
    let all = &decided.parked;
    let named = named(all, most, |out| out.state.name());
    (named.into_iter().map(parked_node).collect(), count(all.len().saturating_sub(most)))
}

fn parked_node(out: &rollout::NodeOut) -> ParkedNode {
    ParkedNode {
        node: out.node.to_string(),
        state: out.state.name().to_owned(),
        since: out.since.map(Time),
        reason: line_of(&out.why()),
    }
}

/// What the status says of `plan`; `None` where it has no hash. `most` says how many entries a list may have that is
/// otherwise bound by its argument.
fn plan_of(
    (object, upgrade): (&ClusterUpgrade, &Upgrade),
    plan: &plan::Plan,
    decided: &rollout::UpgradeStatus,
    forecast: Option<&Forecast>,
    most: impl Fn(usize) -> usize,
) -> Option<Plan> {
    let (hash, from) = decided.hash.as_ref().zip(decided.from.as_ref())?;
    let stage = |s: &StageProgress| PlanStage {
        name: s.stage.name().to_owned(),
        total: count(s.total),
        upgraded: count(s.upgraded),
    };
    let (blockers, blockers_omitted) = cut(&decided.preflight, most(MAX_LINES), |line| line_of(line));
    let findings = forecast.map_or(&plan.findings, |forecast| &forecast.findings);
    let (findings, findings_omitted) = cut(findings, most(MAX_LINES), finding);
    let waves = most(outlook::MAX_WAVES);
    Some(Plan {
        hash: hash.clone(),
        from: from.to_string(),
        to: object.spec.version.clone(),
        stages: decided.stages.iter().map(stage).collect(),
        blockers,
        blockers_omitted,
        via: decided.way.iter().map(ToString::to_string).collect(),
        hop: decided.hop.as_ref().map(ToString::to_string).unwrap_or_default(),
        hops: hops(plan, decided, forecast),
        hops_omitted: count(plan.hops.len().saturating_sub(MAX_HOPS)),
        waves: forecast.map(|forecast| outlook::waves(forecast, upgrade, waves)).unwrap_or_default(),
        waves_omitted: forecast.map(|forecast| outlook::waves_omitted(forecast, waves)).unwrap_or_default(),
        estimate: forecast.map(|of| outlook::estimate(of.timing.least, of.timing.estimate)),
        findings,
        findings_omitted,
    })
}

/// The first `most` of `all`, each as `shown`, and how many are left out.
fn cut<T, S>(all: &[T], most: usize, shown: impl Fn(&T) -> S) -> (Vec<S>, i32) {
    (all.iter().take(most).map(shown).collect(), count(all.len().saturating_sub(most)))
}

/// `line`, as long as a line of the status may be.
fn line_of(line: &str) -> String {
    short(line, MAX_LINE)
}

fn hops(plan: &plan::Plan, decided: &rollout::UpgradeStatus, forecast: Option<&Forecast>) -> Vec<PlanHop> {
    let timing = |version: &KubeVersion| {
        let hops = &forecast?.timing.hops;
        hops.iter().find(|timing| timing.hop == version.minor())
    };
    let hop = |(hop, nodes): (&plan::Hop, &usize)| PlanHop {
        version: hop.version.to_string(),
        steps: count(hop.steps.len()),
        nodes: count(*nodes),
        needs: hop.needs.iter().map(ToString::to_string).collect(),
        estimate: timing(&hop.version).map(|timing| outlook::estimate(timing.least, timing.estimate)),
    };
    plan.hops.iter().zip(&decided.nodes_of_hops).take(MAX_HOPS).map(hop).collect()
}

fn finding(finding: &plan::PlanFinding) -> PlanFinding {
    PlanFinding {
        id: finding.id.to_string(),
        weight: finding.weight.name().to_owned(),
        message: line_of(&finding.to_string()),
        accepted: finding.accepted.as_ref().map(|by| line_of(&by.reason)).unwrap_or_default(),
    }
}

fn lasting_troubles(decided: &rollout::UpgradeStatus) -> Vec<LastingTrouble> {
    decided.lasting.iter().take(MAX_LASTING).map(lasting).collect()
}

fn lasting(of: &Lasting) -> LastingTrouble {
    LastingTrouble { reason: of.reason().to_owned(), name: of.name() }
}

fn seen(place: &ComponentPlace) -> SeenComponent {
    SeenComponent {
        component: place.component.name().to_owned(),
        name: place.name.to_string(),
        node_uid: place.node_uid.to_string(),
    }
}

fn conditions_of(
    object: &ClusterUpgrade,
    phase: UpgradePhase,
    decided: &rollout::UpgradeStatus,
    now: Timestamp,
) -> Vec<Condition> {
    let before = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is = |on: bool| ConditionStatus::from(on);
    let reason = phase.reason();
    let message = line_of(&decided.message);
    let stands = match phase {
        _ if phase.ready() => Kstatus::Current,
        _ if phase.stalled() => Kstatus::Failed,
        UpgradePhase::Suspended => Kstatus::Paused,
        _ => Kstatus::InProgress,
    };
    let blocked = decided.out(OutOf::Parked);
    let blocked_line = match blocked {
        1 => "1 node is parked: it could not be drained".to_owned(),
        _ => format!("{blocked} nodes are parked: they could not be drained"),
    };
    let preflight = decided.preflight.first().map(|line| line_of(line)).unwrap_or_default();
    let others = [
        (ConditionType::AwaitingApproval, is(phase == UpgradePhase::AwaitingApproval), reason, ""),
        (ConditionType::Paused, is(object.spec.suspend), reason, ""),
        (
            ConditionType::DrainBlocked,
            is(blocked > 0),
            if blocked > 0 { "NodesParked" } else { "NothingBlocked" },
            if blocked > 0 { &blocked_line } else { "" },
        ),
        (
            ConditionType::PreflightPassed,
            is(decided.preflight.is_empty()),
            if decided.preflight.is_empty() { "Passed" } else { "Blocked" },
            &preflight,
        ),
    ];
    let wanted = [&stands.conditions(reason, &message)[..], &others].concat();
    conditions(&wanted, before, object.metadata.generation, now)
}

/// The reason of condition Ready where the spec cannot be carried out: the same word as where an executor is missing.
const INVALID: &str = UpgradePhase::Invalid.reason();

/// The status of an upgrade whose spec cannot be carried out. `settles` is how its nodes are that were in flight, and which
/// troubles last, if it had begun; else everything but the reason stays as it last was.
pub fn status_of_invalid(
    object: &ClusterUpgrade,
    why: &str,
    settles: Option<&rollout::UpgradeStatus>,
    now: Timestamp,
) -> ClusterUpgradeStatus {
    fitting(|divisor| {
        let told = invalid(object, why, now);
        let Some(decided) = settles else { return told };
        let (parked, parked_omitted) = parked_nodes(decided, (MAX_PARKED / divisor).max(1));
        ClusterUpgradeStatus {
            progress: node_progress(decided),
            lasting: lasting_troubles(decided),
            parked,
            parked_omitted,
            ..told
        }
    })
}

fn invalid(object: &ClusterUpgrade, why: &str, now: Timestamp) -> ClusterUpgradeStatus {
    let before = object.status.clone().unwrap_or_default();
    let why = &line_of(why);
    let wanted = Kstatus::Failed.conditions(INVALID, why);
    let generation = object.metadata.generation;
    let conditions = conditions(&wanted, &before.conditions, generation, now);
    let waiting_for = vec![only(INVALID, EndedBy::Person, why)];
    ClusterUpgradeStatus {
        observed_generation: generation,
        completed_generation: before.complete_at(),
        waiting_for,
        waiting_for_omitted: 0,
        history: outlook::past(object),
        conditions,
        ..before
    }
}

/// Why something of the cluster cannot be seen.
#[derive(Clone, Copy)]
enum UnseenReason {
    /// It is not seen yet, or not any more.
    NotSeen,
    /// The server forbids it.
    Forbidden,
}

impl UnseenReason {
    /// The reason of condition Ready.
    const fn reason(self) -> &'static str {
        match self {
            Self::NotSeen => "ClusterNotSeen",
            Self::Forbidden => "Forbidden",
        }
    }

    const fn stands(self) -> Kstatus {
        match self {
            Self::NotSeen => Kstatus::InProgress,
            Self::Forbidden => Kstatus::Failed,
        }
    }

    const fn ended_by(self) -> EndedBy {
        match self {
            Self::NotSeen => EndedBy::Cluster,
            Self::Forbidden => EndedBy::Person,
        }
    }
}

/// The reasons of condition Ready while something of the cluster cannot be seen.
pub const UNSEEN_REASONS: [&str; 2] = [UnseenReason::NotSeen.reason(), UnseenReason::Forbidden.reason()];

/// The status of an upgrade that waits because something of the cluster cannot be seen; `line` says what. Everything
/// else in the status stays as it last was. `refused` is whether the server does not let us see it, so that only a
/// person can change that.
pub fn status_of_unseen(
    object: &ClusterUpgrade,
    line: &str,
    refused: bool,
    now: Timestamp,
) -> ClusterUpgradeStatus {
    let before = object.status.clone().unwrap_or_default();
    let unseen = if refused { UnseenReason::Forbidden } else { UnseenReason::NotSeen };
    let (reason, line) = (unseen.reason(), line_of(line));
    let wanted = unseen.stands().conditions(reason, &line);
    let conditions = beside_others(&wanted, &before.conditions, before.observed_generation, now);
    let waiting_for = vec![only(reason, unseen.ended_by(), &line)];
    let history = outlook::past(object);
    ClusterUpgradeStatus { waiting_for, waiting_for_omitted: 0, history, conditions, ..before }
}

/// The reason of condition Ready while the server drops something that has to be remembered.
const UNSTORED: &str = UpgradePhase::WritesRefused.reason();

/// `status` of an upgrade for which nothing is done, because the server dropped something of it that has to be remembered;
/// `line` says what, and what a person has to do. It is sent all the same: the server may store it by now.
pub fn status_of_unstored(
    object: &ClusterUpgrade,
    status: ClusterUpgradeStatus,
    line: &str,
    now: Timestamp,
) -> ClusterUpgradeStatus {
    let line = line_of(line);
    let before = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let wanted = Kstatus::Failed.conditions(UNSTORED, &line);
    let told = conditions(&wanted, before, status.observed_generation, now);
    let conditions = with_others(told, &status.conditions);
    let waiting_for = vec![only(UNSTORED, EndedBy::Person, &line)];
    ClusterUpgradeStatus { waiting_for, waiting_for_omitted: 0, conditions, ..status }
}

/// The conditions that `wanted` lists, and the others of `before`.
fn beside_others(
    wanted: &[Wanted<'_>],
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    with_others(conditions(wanted, before, generation, now), before)
}

/// The conditions `told`, and those of `others` that are about something else.
fn with_others(mut told: Vec<Condition>, others: &[Condition]) -> Vec<Condition> {
    let apart = |of: &&Condition| told.iter().all(|told| told.type_ != of.type_);
    let rest: Vec<_> = others.iter().filter(apart).cloned().collect();
    told.extend(rest);
    told
}

/// What is said of `stored`, an upgrade that cannot be read, for the reason `why`, and its status with that, unless it says so
/// already. All else stays as it is stored, its observedGeneration too: whoever can read it has not seen it.
pub fn status_of_unreadable(
    stored: &DynamicObject,
    why: &str,
    now: Timestamp,
) -> (ClusterUpgradeStatus, Option<Value>) {
    let why = &line_of(why);
    let mut status = stored.data["status"].clone();
    let of_stored = status["conditions"].as_array().into_iter().flatten();
    let before: Vec<Condition> =
        of_stored.filter_map(|condition| serde_json::from_value(condition.clone()).ok()).collect();
    let generation = status["observedGeneration"].as_i64();
    let conditions = beside_others(&Kstatus::Failed.conditions(INVALID, why), &before, generation, now);
    let waiting_for = vec![only(INVALID, EndedBy::Person, why)];
    let said = ClusterUpgradeStatus { waiting_for, conditions, ..ClusterUpgradeStatus::default() };
    if ConditionType::Ready.of(&before).is_some_and(|of| of.reason == INVALID && of.message == *why) {
        return (said, None);
    }
    if let Value::Object(status) = &mut status {
        status.insert("conditions".to_owned(), json!(said.conditions));
        status.insert("waitingFor".to_owned(), json!(said.waiting_for));
        status.remove("waitingForOmitted");
    } else {
        status = json!(said);
    }
    (said, Some(status))
}

/// The one thing that is waited for where nothing can be decided.
fn only(reason: &str, ended_by: EndedBy, message: &str) -> WaitingFor {
    let ended_by = ended_by.name().to_owned();
    WaitingFor { reason: reason.to_owned(), message: message.to_owned(), ended_by, until: None }
}

#[cfg(test)]
mod tests;
