//! How upgrades stand, as one document from which every form of the output is made.
//!
//! The invariant: every line is as the operator wrote it, but for characters that would act on a terminal.

use evenkeel_core::plan::Weight;
use evenkeel_core::rollout::{EndedBy, UpgradePhase, WaitReason};
use evenkeel_core::text::harmless;
use kube::{Resource as _, ResourceExt as _};
use serde::Serialize;

use super::read::StoredUpgrades;
use crate::api::upgrade::{PlanFinding, WaitingFor};
use crate::api::{
    BadClaim, ClusterUpgrade, ClusterUpgradeStatus, ConditionStatus, ConditionType, NodeUpgrade, claim_of,
};

/// What is said of an upgrade of which the operator has said nothing yet.
const UNTOLD: &str = "no operator has looked at it yet; install one that drives upgrades (kubectl apply -k config/upgrade), or \
                      read in the log of the one that is there what it waits for";

/// How the upgrades of a cluster stand.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UpgradesDocument {
    api_version: &'static str,
    kind: &'static str,
    pub(super) upgrades: Vec<UpgradeRow>,
    /// Where it was read: titles and lines.
    #[serde(skip)]
    pub(super) about: Vec<(&'static str, String)>,
    /// What could not be read, one line each.
    pub(super) not_seen: Vec<String>,
}

/// How one upgrade stands.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UpgradeRow {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) to: String,
    /// The reason of condition Ready, which is the column STAGE.
    pub(super) stage: String,
    /// The message of condition Ready.
    pub(super) message: String,
    /// The status of condition Ready.
    pub(super) ready: String,
    /// Whether condition Stalled holds: something is wrong, and only a person can mend it.
    pub(super) stalled: bool,
    /// Whether only a person brings it further: it is stalled, or waits for the word of one.
    pub(super) needs_person: bool,
    /// Whether the status is about the spec as it is now.
    pub(super) current: bool,
    /// What an approval names.
    pub(super) plan_hash: String,
    /// The findings of the plan that block it or stop it on its way, the gravest first.
    pub(super) findings: Vec<FindingRow>,
    /// How many more findings the plan has than the status names, whatever their weight is.
    pub(super) findings_omitted: i32,
    pub(super) upgraded: i32,
    pub(super) selected: i32,
    pub(super) parked: i32,
    pub(super) failed: i32,
    /// How many nodes are claimed, draining or being upgraded, which is the column IN FLIGHT. Steps of the control plane
    /// are among what moves, and are none of these.
    pub(super) nodes_in_flight: i32,
    pub(super) eta: String,
    pub(super) waiting_for: Vec<WaitingRow>,
    pub(super) waiting_for_omitted: i32,
    pub(super) in_flight: Vec<Flight>,
    /// Nodes that are out of the rollout for now.
    pub(super) out: Vec<NodeOut>,
    pub(super) out_omitted: i32,
}

/// What stands in the way of a plan.
#[derive(Serialize)]
pub(super) struct FindingRow {
    pub(super) id: String,
    /// `blocks` or `stops`.
    pub(super) weight: String,
    pub(super) message: String,
}

impl FindingRow {
    /// `stops: … [U4/PodDisruptionBudget/shop/ledger]`.
    pub(super) fn line(&self) -> String {
        format!("{}: {} [{}]", self.weight, self.message, self.id)
    }
}

/// Something that is waited for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WaitingRow {
    pub(super) reason: String,
    pub(super) message: String,
    /// `Person`, `Cluster` or `Time`; empty where an older operator wrote the line alone.
    pub(super) ended_by: String,
    pub(super) until: Option<String>,
}

/// Something that moves.
#[derive(Serialize)]
pub(super) struct Flight {
    pub(super) node: String,
    pub(super) component: String,
    pub(super) state: String,
    pub(super) since: Option<String>,
    pub(super) message: String,
}

/// A node that is out of the rollout for now.
#[derive(Serialize)]
pub(super) struct NodeOut {
    pub(super) node: String,
    pub(super) state: String,
    pub(super) since: Option<String>,
    pub(super) reason: String,
}

impl UpgradeRow {
    /// `WaitingForWindow: no window is open; opens …`
    pub(super) fn line(&self) -> String {
        let Self { stage, message, .. } = self;
        match (stage.as_str(), message.as_str()) {
            ("", message) => message.to_owned(),
            (stage, "") => stage.to_owned(),
            (stage, message) => format!("{stage}: {message}"),
        }
    }

    /// What it waits for besides what condition Ready says, and besides nodes that are out, which are named with their
    /// reasons elsewhere.
    pub(super) fn other_waits(&self) -> impl Iterator<Item = &WaitingRow> {
        let names_nodes =
            |of: &WaitingRow| WaitReason::OF_NODES_THAT_ARE_OUT.iter().any(|known| known.name() == of.reason);
        let of_out = move |of: &WaitingRow| !self.out.is_empty() && names_nodes(of);
        self.waiting_for.iter().filter(move |of| !self.says(&of.message) && !of_out(of))
    }

    /// Whether condition Ready says `line`, alone or with what it means for the upgrade. The line of node `p-1` is not that
    /// of `cp-1`.
    fn says(&self, line: &str) -> bool {
        format!(" {} ", self.message).contains(&format!(" {line} "))
    }

    /// What stands in the way of its plan, besides what its stage says.
    pub(super) fn other_findings(&self) -> impl Iterator<Item = &FindingRow> {
        self.findings.iter().filter(|finding| !self.says(&finding.message))
    }

    /// What stands in the way of its plan, what it waits for and which nodes are out, one line each, without what
    /// condition Ready says already.
    pub(super) fn details(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        if self.needs_person {
            lines.extend(self.other_findings().map(FindingRow::line));
            lines.extend(omitted(self.findings_omitted, "finding"));
        }
        lines.extend(self.other_waits().map(|of| of.message.clone()));
        lines.extend(omitted(self.waiting_for_omitted, "line"));
        let out = self.out.iter().filter(|out| !self.says(&format!("{}: {}", out.node, out.reason)));
        lines.extend(out.map(|out| format!("{} ({}): {}", out.node, out.state, out.reason)));
        lines.extend(omitted(self.out_omitted, "node"));
        lines
    }
}

/// `and 3 more nodes that its status does not name`, if there are any.
pub(super) fn omitted(count: i32, one: &str) -> Option<String> {
    let (s, it) = if count == 1 { ("", "it is") } else { ("s", "they are") };
    (count > 0).then(|| format!("and {count} more {one}{s}; {it} not in its status"))
}

/// What `stored` says of the upgrade called `name`, or of all, by name.
pub(super) fn document(stored: &StoredUpgrades, name: Option<&str>) -> UpgradesDocument {
    let wanted = |upgrade: &&ClusterUpgrade| name.is_none_or(|name| upgrade.name_any() == name);
    let mut not_seen: Vec<_> = stored.not_seen.iter().map(|line| harmless(line)).collect();
    let mut standing = |upgrade| standing(upgrade, &stored.claims, &mut not_seen);
    let mut upgrades: Vec<_> = stored.upgrades.iter().filter(wanted).map(&mut standing).collect();
    upgrades.sort_by(|a, b| a.name.cmp(&b.name));
    UpgradesDocument {
        api_version: "cli.evenkeel.dev/v1alpha1",
        kind: "UpgradeStatus",
        upgrades,
        about: stored.about.clone(),
        not_seen,
    }
}

/// How `upgrade` stands. Those of `claims` that are its own and cannot be understood are named in `not_seen`.
fn standing(upgrade: &ClusterUpgrade, claims: &[NodeUpgrade], not_seen: &mut Vec<String>) -> UpgradeRow {
    let status = upgrade.status.clone().unwrap_or_default();
    let ready = ConditionType::Ready.of(&status.conditions);
    let plan = status.plan.clone().unwrap_or_default();
    let mine = |claim: &&NodeUpgrade| {
        let spec = &claim.spec;
        spec.upgrade_name == upgrade.name_any() && upgrade.uid().is_none_or(|uid| spec.upgrade_uid == uid)
    };
    let mut seen = |claim| {
        flight(claim).unwrap_or_else(|why| {
            not_seen.push(harmless(&why.to_string()));
            None
        })
    };
    let mut in_flight: Vec<Flight> = claims.iter().filter(mine).filter_map(&mut seen).collect();
    in_flight.sort_by(|a, b| (&a.node, &a.component).cmp(&(&b.node, &b.component)));
    let out = status.parked.iter().map(|out| NodeOut {
        node: harmless(&out.node),
        state: harmless(&out.state),
        since: out.since.as_ref().map(|time| time.0.to_string()),
        reason: harmless(&out.reason),
    });
    let progress = &status.progress;
    UpgradeRow {
        name: harmless(&upgrade.name_any()),
        from: harmless(&plan.from),
        to: harmless(&upgrade.spec.version),
        stage: harmless(ready.map_or("", |of| &of.reason)),
        message: harmless(ready.map_or(UNTOLD, |of| &of.message)),
        ready: harmless(ready.map_or(ConditionStatus::Unknown.name(), |of| &of.status)),
        stalled: ConditionType::Stalled.holds(&status.conditions),
        needs_person: needs_person(&status),
        current: status.observed_generation == upgrade.meta().generation,
        plan_hash: harmless(&plan.hash),
        findings: findings(&plan.findings),
        findings_omitted: plan.findings_omitted,
        upgraded: progress.upgraded,
        selected: progress.selected,
        parked: progress.blocked,
        failed: progress.failed,
        nodes_in_flight: progress.in_flight,
        eta: harmless(&progress.eta),
        waiting_for: status.waiting_for.iter().map(waiting).collect(),
        waiting_for_omitted: status.waiting_for_omitted,
        in_flight,
        out: out.collect(),
        out_omitted: status.parked_omitted,
    }
}

/// Whether only a person brings the upgrade further: it is stalled, or what condition Ready waits for is ended by a person.
/// What else it waits for does not count, because the rest goes on meanwhile.
fn needs_person(status: &ClusterUpgradeStatus) -> bool {
    let conditions = &status.conditions;
    let Some(ready) = ConditionType::Ready.of(conditions) else { return false };
    if ConditionStatus::True.is(&ready.status) {
        return false;
    }
    let told = status.waiting_for.iter().find(|of| of.reason == ready.reason && !of.ended_by.is_empty());
    let ends = match told {
        Some(of) => of.ended_by == EndedBy::Person.name(),
        // An older operator did not write who ends it.
        None => UpgradePhase::WAITS.iter().any(|phase| {
            phase.reason() == ready.reason && WaitReason::Upgrade(*phase).ended_by() == EndedBy::Person
        }),
    };
    ends || ConditionType::Stalled.holds(conditions)
}

/// Those of `all` that block or stop the plan, the gravest first.
fn findings(all: &[PlanFinding]) -> Vec<FindingRow> {
    let of = |weight: Weight| all.iter().filter(move |finding| finding.weight == weight.name());
    let row = |finding: &PlanFinding| FindingRow {
        id: harmless(&finding.id),
        weight: harmless(&finding.weight),
        message: harmless(&finding.message),
    };
    of(Weight::Blocks).chain(of(Weight::Stops)).map(row).collect()
}

fn waiting(of: &WaitingFor) -> WaitingRow {
    WaitingRow {
        reason: harmless(&of.reason),
        message: harmless(&of.message),
        ended_by: harmless(&of.ended_by),
        until: of.until.as_ref().map(|time| time.0.to_string()),
    }
}

/// What moves by `claim`, if something does.
///
/// # Errors
/// [`BadClaim`] when `claim` cannot be understood, so that something may move by it.
fn flight(claim: &NodeUpgrade) -> Result<Option<Flight>, BadClaim> {
    let read = claim_of(claim)?;
    if !read.state.in_flight() {
        return Ok(None);
    }
    let since = claim.status.as_ref().and_then(|status| status.since.as_ref());
    let together = &read.subject.components;
    Ok(Some(Flight {
        node: harmless(&read.subject.node),
        component: match together.as_slice() {
            [] => read.subject.component.name().to_owned(),
            _ => "the control plane".to_owned(),
        },
        state: read.state.name().to_owned(),
        since: since.map(|time| time.0.to_string()),
        message: harmless(&read.message),
    }))
}
