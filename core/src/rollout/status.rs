//! How an upgrade stands, for people and GitOps tools.
//!
//! Here belongs what one round is summed up to: the phase, its message and what is waited for. It decides nothing about
//! nodes. The invariant: it says only what was observed, and of several things the one that a person most has to know.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::absence::Away;
use super::action::Action;
use super::blocked::Blockage;
use super::claim::{Claim, ClaimState};
use super::hold_reason::{Exception, Hold, NodeOut, OutOf};
use super::not_opened::NotOpened;
use super::upgrade_phase::UpgradePhase;
use super::waiting::{WaitReason, Waiting};
use super::world::World;
use crate::cluster::Component;
use crate::plan::{Stage, StageProgress};
use crate::upgrade::{ApprovalMode, ComponentPlace, Lasting, Progress, Soak, Upgrade};
use crate::version::KubeVersion;

/// How an upgrade stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeStatus {
    /// The one word for the whole upgrade.
    pub phase: UpgradePhase,
    /// One line for it.
    pub message: String,
    /// What the oldest kube-apiserver ran when the plan was first made; `None` where none is known.
    pub from: Option<KubeVersion>,
    /// What a person approves; `None` while `from` is not known.
    pub hash: Option<String>,
    /// The versions of the minors on the way, for the next look to remember.
    pub way: Vec<KubeVersion>,
    /// The version of the hop that is carried out, for the next look to remember.
    pub hop: Option<KubeVersion>,
    /// How many nodes are left to move in each hop of the plan.
    pub nodes_of_hops: Vec<usize>,
    /// Each stage of the current hop, in order.
    pub stages: [StageProgress; 3],
    /// The control-plane components to expect from now on, in order.
    pub seen: Vec<ComponentPlace>,
    /// The controllers that lead, or led, out of sight, for the next look to remember.
    pub hidden: Vec<Component>,
    /// Components of the control plane that are away, for the next look to remember since when.
    pub away: Vec<Away>,
    /// What has lasted so long that a person is called, for the next look to remember.
    pub lasting: Vec<Lasting>,
    /// Nodes at which the upgrade halts and that cannot be drained, by UID, for the next look to remember since when.
    pub undrainable: Vec<Arc<str>>,
    /// Claims under way, of components and of nodes.
    pub in_flight: usize,
    /// Those of them that are about a kubelet, and so about a node.
    pub nodes_in_flight: usize,
    /// Nodes out of the rollout for now, by name.
    pub parked: Vec<NodeOut>,
    /// What soaks or has soaked, for the next look to remember.
    pub soaks: Vec<Soak>,
    /// What it waits for, the most telling first.
    pub waits: Vec<Waiting>,
    /// Why the plan must not be carried out, one line each; empty when it may.
    pub preflight: Vec<String>,
    /// When work began.
    pub started: Option<Timestamp>,
    /// When everything was first seen at the target; `None` while it is under way.
    pub completed: Option<Timestamp>,
}

impl UpgradeStatus {
    /// How many nodes are out of the rollout in this way.
    pub fn out(&self, state: OutOf) -> usize {
        self.parked.iter().filter(|out| out.state == state).count()
    }
}

/// What a round of deciding found out besides its actions.
#[derive(Default)]
pub(super) struct RoundNotes {
    pub(super) from: Option<KubeVersion>,
    pub(super) hash: Option<String>,
    pub(super) way: Vec<KubeVersion>,
    pub(super) hop: Option<KubeVersion>,
    pub(super) nodes_of_hops: Vec<usize>,
    pub(super) approved: bool,
    pub(super) seen: Vec<ComponentPlace>,
    pub(super) hidden: Vec<Component>,
    pub(super) away: Vec<Away>,
    pub(super) lasting: Vec<Lasting>,
    pub(super) undrainable: Vec<Arc<str>>,
    pub(super) preflight: Vec<String>,
    pub(super) waits: Vec<Waiting>,
    pub(super) held: Vec<(Arc<str>, Hold)>,
    /// Nodes that may stay behind.
    pub(super) excepted: BTreeMap<Arc<str>, Exception>,
    pub(super) out: Vec<NodeOut>,
    pub(super) hope: bool,
    pub(super) soaks: Vec<Soak>,
    pub(super) held_back: Vec<NotOpened>,
    /// How many claims in flight only a person can bring further: the server refuses their write, or they wait for a control
    /// plane that needs a person.
    pub(super) stuck: usize,
    pub(super) control_plane_held: bool,
    /// How long the plan has been blocked since the upgrade began, if it is.
    pub(super) blockage: Blockage,
    pub(super) halted: Option<String>,
}

pub(super) fn status(
    upgrade: &Upgrade,
    progress: &Progress,
    world: World<'_>,
    mine: &[&Claim],
    (stages, stage): ([StageProgress; 3], Option<Stage>),
    mut notes: RoundNotes,
    actions: &[Action],
) -> UpgradeStatus {
    let opens = actions.iter().any(|action| matches!(action, Action::Claim { .. } | Action::Protect));
    let tries = actions.iter().any(|action| matches!(action, Action::TryJob { .. }));
    let in_flight = mine.iter().filter(|claim| claim.state.in_flight()).count();
    let nodes_in_flight =
        mine.iter().filter(|claim| claim.is_of_kubelet() && claim.state.in_flight()).count();
    let parked = out(mine, &notes);
    let busy = opens || tries || in_flight > 0;
    // Whoever leads anew tries every Job; that alone brings nothing further.
    let moving = opens || in_flight > notes.stuck;
    let phase = phase(upgrade, progress, world, mine, (&stages, stage), (&notes, &parked), (busy, moving));
    // It began when it was first going to touch something; trying a Job touches nothing.
    let started = progress.started.or((opens || !mine.is_empty()).then_some(world.now));
    // What the condition says is waited for before whatever else is.
    notes.waits.sort_by_key(|waiting| waiting.reason != WaitReason::Upgrade(phase));
    let message = message(upgrade, progress, world, phase, &stages, &notes, &parked);
    let waits = waits(std::mem::take(&mut notes.waits), phase, &message, &notes.preflight);
    UpgradeStatus {
        phase,
        message,
        from: notes.from,
        hash: notes.hash,
        way: notes.way,
        hop: notes.hop,
        nodes_of_hops: notes.nodes_of_hops,
        stages,
        seen: notes.seen,
        hidden: notes.hidden,
        away: notes.away,
        lasting: notes.lasting,
        undrainable: notes.undrainable,
        in_flight,
        nodes_in_flight,
        parked,
        soaks: notes.soaks,
        waits,
        // What is done is refused nothing, whatever cannot be seen now.
        preflight: if phase == UpgradePhase::Completed { Vec::new() } else { notes.preflight },
        started,
        completed: progress.completed.or((phase == UpgradePhase::Completed).then_some(world.now)),
    }
}

/// Where the upgrade stands: the first of these that is so. `busy` is whether anything of it is under way, `moving` whether that
/// is brought further without a person.
fn phase(
    upgrade: &Upgrade,
    progress: &Progress,
    world: World<'_>,
    mine: &[&Claim],
    (stages, stage): (&[StageProgress; 3], Option<Stage>),
    (notes, parked): (&RoundNotes, &[NodeOut]),
    (busy, moving): (bool, bool),
) -> UpgradePhase {
    let failed = |kubelet: bool| {
        let of = |c: &&&Claim| c.is_of_kubelet() == kubelet;
        mine.iter().filter(of).any(|c| matches!(c.state, ClaimState::Failed { .. }))
    };
    let never_began = progress.started.is_none() && mine.is_empty();
    let refused = notes.held_back.iter().any(|wait| matches!(wait, NotOpened::Refused { .. }));
    if progress.ending {
        if refused && !moving { UpgradePhase::WritesRefused } else { UpgradePhase::Deleting }
    } else if progress.completed.is_some() {
        UpgradePhase::Completed
    } else if !world.absent_executors.is_empty() {
        UpgradePhase::Invalid
    } else if never_began && progress.queued_behind.is_none() && notes.blockage == Blockage::ForLong {
        UpgradePhase::PreflightFailed
    } else if let Some(phase) = waits_for_a_word(upgrade, progress, notes, stage, (busy, moving)) {
        phase
    } else if moving {
        UpgradePhase::Working(works_at(stage, stages, mine))
    } else if failed(false) {
        UpgradePhase::ControlPlaneFailed
    } else if notes.control_plane_held {
        UpgradePhase::ControlPlaneHeld
    } else if notes.halted.is_some() {
        UpgradePhase::NodesHalted
    } else if notes.blockage == Blockage::ForLong {
        UpgradePhase::PreflightFailed
    } else if let Some(wait) = soonest(notes) {
        UpgradePhase::of(wait, stage.unwrap_or(Stage::Kubelets))
    } else if stage.is_none_or(|stage| stage < Stage::Kubelets) || !notes.preflight.is_empty() || notes.hope {
        UpgradePhase::Working(stage.unwrap_or(Stage::Kubelets))
    } else if only_exceptions_are_left(stages, parked) {
        UpgradePhase::CompletedWithExceptions
    } else if failed(true) {
        UpgradePhase::NodesFailed
    } else if parked.iter().any(|out| out.state == OutOf::Parked && out.excepted.is_none()) {
        UpgradePhase::NodesParked
    } else if !notes.held.is_empty() || notes.waits.iter().any(|wait| wait.reason == WaitReason::NODES_HELD) {
        UpgradePhase::NodesHeld
    } else {
        UpgradePhase::Working(Stage::Kubelets)
    }
}

/// What a person reads who approved the plan of `approved`, where the plan's hash is `hash` now.
pub fn another_is_approved(approved: &str, hash: &str) -> String {
    format!(
        "another plan is approved ({approved}): to approve this one, set spec.approval.planHash to \"{hash}\""
    )
}

/// Whether every node that is not at the target may stay behind.
fn only_exceptions_are_left(stages: &[StageProgress; 3], parked: &[NodeOut]) -> bool {
    let behind: usize = stages.iter().map(|stage| stage.total.saturating_sub(stage.upgraded)).sum();
    behind > 0 && behind == parked.iter().filter(|out| out.excepted.is_some()).count()
}

/// What `waits` besides is waited for: what condition Ready says, and what blocks the rest of the plan.
fn waits(mut waits: Vec<Waiting>, phase: UpgradePhase, message: &str, preflight: &[String]) -> Vec<Waiting> {
    let reason = WaitReason::Upgrade(phase);
    if let Some(first) = waits.first_mut().filter(|waiting| waiting.reason == reason) {
        // The condition may tell of more than one node.
        message.clone_into(&mut first.line);
        return waits;
    }
    match phase {
        UpgradePhase::Completed => {}
        UpgradePhase::Working(_) if !waits.is_empty() => {}
        UpgradePhase::Working(_) => {
            let blocked = |line: &String| Waiting::new(WaitReason::PlanBlocked, line.clone());
            waits.extend(preflight.iter().map(blocked));
        }
        _ => waits.insert(0, Waiting::new(reason, message)),
    }
    waits
}

/// What keeps everything from being opened, and ends first; what a person has to end comes last. While some node may go on
/// by itself, a person is not called for the others.
fn soonest(notes: &RoundNotes) -> Option<&NotOpened> {
    let stalled = |wait: &NotOpened| UpgradePhase::of(wait, Stage::Kubelets).stalled();
    let told = notes.held_back.iter().filter(|wait| !(notes.hope && wait.is_of_a_part() && stalled(wait)));
    told.min_by_key(|wait| (stalled(wait), wait.until().unwrap_or(Timestamp::MAX)))
}

/// The phase of an upgrade that a person or another upgrade has to let go on, or that is done.
fn waits_for_a_word(
    upgrade: &Upgrade,
    progress: &Progress,
    notes: &RoundNotes,
    stage: Option<Stage>,
    (busy, moving): (bool, bool),
) -> Option<UpgradePhase> {
    if stage.is_none() && !notes.control_plane_held && notes.preflight.is_empty() {
        // What is in flight and does not move waits for what is told below.
        let stands = (!busy).then_some(UpgradePhase::Completed);
        return if moving { Some(UpgradePhase::Working(Stage::Kubelets)) } else { stands };
    }
    if upgrade.mode == ApprovalMode::PlanOnly {
        Some(UpgradePhase::PlanOnly)
    } else if upgrade.suspended {
        Some(UpgradePhase::Suspended)
    } else if !notes.approved {
        Some(UpgradePhase::AwaitingApproval)
    } else if progress.queued_behind.is_some() {
        Some(UpgradePhase::Queued)
    } else {
        None
    }
}

/// The stage that it works at: that of the nodes while one of them is in flight and the control plane has nothing left to
/// do, though a part of it is away. The static pods of a control-plane node are, when its kubelet is replaced.
fn works_at(stage: Option<Stage>, stages: &[StageProgress; 3], mine: &[&Claim]) -> Stage {
    let of_nodes = mine.iter().any(|claim| claim.is_of_kubelet() && claim.state.in_flight());
    let of_plane = mine.iter().any(|claim| !claim.is_of_kubelet() && claim.state.unfinished());
    let left = stages.iter().any(|progress| progress.stage < Stage::Kubelets && !progress.done());
    if of_nodes && !of_plane && !left { Stage::Kubelets } else { stage.unwrap_or(Stage::Kubelets) }
}

/// The nodes that are out of the rollout for now, by name.
fn out(mine: &[&Claim], notes: &RoundNotes) -> Vec<NodeOut> {
    // What a person, or its machine, keeps a parked node from is not what its last drain met.
    let is_held = |node: &str| notes.held.iter().any(|(held, _)| **held == *node);
    let of_claim = |claim: &&Claim| {
        let (state, since) = match claim.state {
            ClaimState::Parked { since, .. } if !is_held(&claim.subject.node) => (OutOf::Parked, since),
            ClaimState::Failed { since, .. } => (OutOf::Failed, since),
            _ => return None,
        };
        let (node, reason) = (claim.subject.node.clone(), claim.message.clone());
        let excepted = notes.excepted.get(&node).cloned();
        Some(NodeOut { node, state, since: Some(since), reason, excepted })
    };
    let mut all: Vec<NodeOut> =
        mine.iter().filter(|claim| claim.is_of_kubelet()).filter_map(of_claim).collect();
    let held = notes.held.iter().map(|(node, why)| NodeOut {
        node: node.clone(),
        state: OutOf::Held,
        since: None,
        reason: why.to_string(),
        excepted: None,
    });
    let others: Vec<NodeOut> = notes.out.iter().cloned().chain(held).collect();
    for other in others {
        if all.iter().all(|out| out.node != other.node) {
            all.push(other);
        }
    }
    all.sort_by(|a, b| a.node.cmp(&b.node));
    all
}

/// What a completed upgrade to `version` says. Nothing is done any more about what changed since; what cannot be seen for a
/// while did not change.
fn completed(version: &KubeVersion, stages: &[StageProgress; 3]) -> String {
    if stages.iter().all(|stage| stage.behind == 0) {
        return format!("every selected component runs {version}");
    }
    format!("every selected component ran {version} when the upgrade was complete; not all of them do now")
}

fn message(
    upgrade: &Upgrade,
    progress: &Progress,
    world: World<'_>,
    phase: UpgradePhase,
    stages: &[StageProgress; 3],
    notes: &RoundNotes,
    parked: &[NodeOut],
) -> String {
    let of = |stage: Stage| {
        let progress = stages.iter().find(|p| p.stage == stage);
        progress.map_or_else(String::new, |p| format!("{} of {}", p.upgraded, p.total))
    };
    let first = |waits: &[Waiting]| waits.first().map(|waiting| waiting.line.clone()).unwrap_or_default();
    let refused = || notes.preflight.first().cloned().unwrap_or_default();
    let excepted = phase == UpgradePhase::CompletedWithExceptions;
    // What is waited for first names the first of them, where it is about one of them.
    let waited = || notes.waits.first().filter(|waiting| waiting.reason == WaitReason::Upgrade(phase));
    let nodes = |state: OutOf| {
        let mut those = parked.iter().filter(|p| p.state == state && p.excepted.is_some() == excepted);
        let first = those.next().map(ToString::to_string).unwrap_or_default();
        if let Some(Waiting { line, .. }) = waited().filter(|waiting| waiting.of_group) {
            return line.clone();
        }
        let first = waited().map_or(first, |waiting| waiting.line.clone());
        match those.count() {
            0 => first,
            1 => format!("{first} (and 1 more node)"),
            more => format!("{first} (and {more} more nodes)"),
        }
    };
    match phase {
        UpgradePhase::Completed => completed(&upgrade.version, stages),
        UpgradePhase::CompletedWithExceptions => {
            let (done, version) = (of(Stage::Kubelets), &upgrade.version);
            format!("{done} nodes run {version}; what is left may stay behind: {}", nodes(OutOf::Parked))
        }
        UpgradePhase::PlanOnly => {
            "mode is PlanOnly: the plan is shown, nothing is done; to have it carried out, set spec.mode to \
                                   RequireApproval or Automatic"
                .to_owned()
        }
        UpgradePhase::AwaitingApproval => match (&upgrade.approved_hash, &notes.hash) {
            (Some(approved), Some(hash)) => another_is_approved(approved, hash),
            (None, Some(hash)) => format!("to approve this plan, set spec.approval.planHash to \"{hash}\""),
            (_, None) => "its plan cannot be approved yet, because it has no hash".to_owned(),
        },
        UpgradePhase::Suspended => "suspended by spec.suspend; set it to false to go on".to_owned(),
        UpgradePhase::Queued => {
            let other = progress.queued_behind.as_deref().unwrap_or_default();
            format!("waits until ClusterUpgrade {other} is complete, or is deleted")
        }
        UpgradePhase::Deleting if notes.waits.is_empty() => "was deleted; gives its nodes back".to_owned(),
        UpgradePhase::Deleting => format!("was deleted; {}", first(&notes.waits)),
        UpgradePhase::Invalid => world.absent_executors.first().map(ToString::to_string).unwrap_or_default(),
        UpgradePhase::PreflightFailed => refused(),
        UpgradePhase::Working(_) if !notes.waits.is_empty() => first(&notes.waits),
        UpgradePhase::Working(_) if !notes.preflight.is_empty() => refused(),
        UpgradePhase::Working(Stage::Apiservers) => format!("{} kube-apiservers done", of(Stage::Apiservers)),
        UpgradePhase::Working(Stage::Controllers) => format!("{} controllers done", of(Stage::Controllers)),
        UpgradePhase::Working(Stage::Kubelets) => format!("{} nodes done", of(Stage::Kubelets)),
        UpgradePhase::WaitingForWindow
        | UpgradePhase::Frozen
        | UpgradePhase::Soaking
        | UpgradePhase::GateClosed
        | UpgradePhase::ZoneDisrupted
        | UpgradePhase::FailurePolicy
        | UpgradePhase::GateUnreadable
        | UpgradePhase::NoWindowFits
        | UpgradePhase::ZoneGone
        | UpgradePhase::WritesRefused => soonest(notes).map(ToString::to_string).unwrap_or_default(),
        UpgradePhase::ControlPlaneFailed | UpgradePhase::ControlPlaneHeld | UpgradePhase::NodesHalted => {
            first(&notes.waits)
        }
        UpgradePhase::NodesFailed => nodes(OutOf::Failed),
        UpgradePhase::NodesParked => nodes(OutOf::Parked),
        UpgradePhase::NodesHeld => nodes(OutOf::Held),
    }
}
