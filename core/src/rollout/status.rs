//! How an upgrade stands, for people and GitOps tools. It says only what was observed.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Action, Claim, State, World};
use crate::cluster::Component;
use crate::plan::{Mode, Stage, StageProgress, Upgrade, current_stage};
use crate::version::KubeVersion;

/// Where the upgrade is as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The plan is shown and nothing is done.
    PlanOnly,
    /// The plan waits for `approval.planHash`.
    AwaitingApproval,
    /// A person suspended it.
    Suspended,
    /// Another upgrade is under way.
    Queued,
    /// It must not be started on this cluster.
    PreflightFailed,
    /// Under way.
    Working(Stage),
    /// Nothing more can move without a person: a control-plane component failed.
    ControlPlaneFailed,
    /// Nothing more can move without a person: nodes failed.
    NodesFailed,
    /// Nothing more can move without a person: nodes cannot be drained.
    NodesParked,
    /// Nothing more can move without a person: nodes are held or cordoned by someone else.
    NodesHeld,
    /// Done.
    Completed,
}

impl Phase {
    /// The reason of condition `Ready`, which is also the STAGE column.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::PlanOnly => "PlanOnly",
            Self::AwaitingApproval => "AwaitingApproval",
            Self::Suspended => "Suspended",
            Self::Queued => "Queued",
            Self::PreflightFailed => "PreflightFailed",
            Self::Working(stage) => stage.name(),
            Self::ControlPlaneFailed => "ControlPlaneFailed",
            Self::NodesFailed => "NodesFailed",
            Self::NodesParked => "NodesParked",
            Self::NodesHeld => "NodesHeld",
            Self::Completed => "Completed",
        }
    }

    /// kstatus: whether only a person can bring it further.
    pub const fn stalled(self) -> bool {
        matches!(
            self,
            Self::PreflightFailed
                | Self::ControlPlaneFailed
                | Self::NodesFailed
                | Self::NodesParked
                | Self::NodesHeld
        )
    }
}

/// A node that is out of the rollout for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The node.
    pub node: Arc<str>,
    /// `Parked`, `Failed` or `Held`.
    pub state: &'static str,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
    /// Why, in one line.
    pub reason: String,
}

/// How an upgrade stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// As a whole.
    pub phase: Phase,
    /// One line for it.
    pub message: String,
    /// Where it comes from.
    pub from: Option<KubeVersion>,
    /// The plan's hash.
    pub hash: Option<String>,
    /// Each stage, in order.
    pub stages: [StageProgress; 3],
    /// Nodes under way.
    pub in_flight: usize,
    /// Nodes out of the rollout for now, by name.
    pub parked: Vec<Parked>,
    /// What it waits for, the most telling first.
    pub waits: Vec<String>,
    /// Why it must not be started.
    pub preflight: Vec<String>,
    /// When work began.
    pub started: Option<Timestamp>,
    /// When it was complete.
    pub completed: Option<Timestamp>,
}

impl Status {
    /// Nodes parked because their drain is blocked.
    pub fn blocked(&self) -> usize {
        self.parked.iter().filter(|p| p.state == "Parked").count()
    }

    /// Nodes whose executor failed.
    pub fn failed(&self) -> usize {
        self.parked.iter().filter(|p| p.state == "Failed").count()
    }
}

/// What a round of deciding found out besides its actions.
#[derive(Default)]
pub(super) struct Outlook {
    pub(super) from: Option<KubeVersion>,
    pub(super) hash: Option<String>,
    pub(super) approved: bool,
    pub(super) preflight: Vec<String>,
    pub(super) waits: Vec<String>,
    pub(super) held: Vec<(Arc<str>, &'static str)>,
    pub(super) hope: bool,
}

pub(super) fn status(
    upgrade: &Upgrade,
    world: World<'_>,
    mine: &[&Claim],
    stages: &[StageProgress; 3],
    outlook: Outlook,
    actions: &[Action],
) -> Status {
    let opens = actions.iter().any(|action| matches!(action, Action::Claim { .. }));
    let in_flight = mine.iter().filter(|claim| claim.state.in_flight()).count();
    let phase = phase(upgrade, mine, stages, &outlook, opens || in_flight > 0);
    let mut parked: Vec<Parked> = mine
        .iter()
        .filter(|claim| claim.subject.component == Component::Kubelet)
        .filter_map(|claim| match claim.state {
            State::Parked { since, .. } | State::Failed { since } => Some(Parked {
                node: claim.subject.node.clone(),
                state: claim.state.name(),
                since: Some(since),
                reason: claim.message.clone(),
            }),
            _ => None,
        })
        .collect();
    let held = outlook.held.into_iter();
    parked.extend(held.map(|(node, why)| Parked {
        node,
        state: "Held",
        since: None,
        reason: why.to_owned(),
    }));
    parked.sort_by(|a, b| a.node.cmp(&b.node));
    let started = upgrade.started.or((opens || !mine.is_empty()).then_some(world.now));
    Status {
        phase,
        message: message(upgrade, phase, stages, &outlook.preflight, &outlook.waits, &parked),
        from: outlook.from,
        hash: outlook.hash,
        stages: *stages,
        in_flight,
        parked,
        waits: outlook.waits,
        preflight: outlook.preflight,
        started,
        completed: upgrade.completed.or((phase == Phase::Completed).then_some(world.now)),
    }
}

fn phase(
    upgrade: &Upgrade,
    mine: &[&Claim],
    stages: &[StageProgress; 3],
    outlook: &Outlook,
    moving: bool,
) -> Phase {
    let Some(stage) = current_stage(stages) else {
        return if moving { Phase::Working(Stage::Kubelets) } else { Phase::Completed };
    };
    let failed = |kubelet: bool| {
        let of = |c: &&&Claim| (c.subject.component == Component::Kubelet) == kubelet;
        mine.iter().filter(of).any(|c| matches!(c.state, State::Failed { .. }))
    };
    if upgrade.completed.is_some() {
        Phase::Completed
    } else if upgrade.started.is_none() && mine.is_empty() && !outlook.preflight.is_empty() {
        Phase::PreflightFailed
    } else if upgrade.mode == Mode::PlanOnly {
        Phase::PlanOnly
    } else if upgrade.suspended {
        Phase::Suspended
    } else if !outlook.approved {
        Phase::AwaitingApproval
    } else if upgrade.queued_behind.is_some() {
        Phase::Queued
    } else if moving {
        Phase::Working(stage)
    } else if failed(false) {
        Phase::ControlPlaneFailed
    } else if stage < Stage::Kubelets || !outlook.preflight.is_empty() || outlook.hope {
        Phase::Working(stage)
    } else if failed(true) {
        Phase::NodesFailed
    } else if mine.iter().any(|c| matches!(c.state, State::Parked { .. })) {
        Phase::NodesParked
    } else if !outlook.held.is_empty() {
        Phase::NodesHeld
    } else {
        Phase::Working(stage)
    }
}

fn message(
    upgrade: &Upgrade,
    phase: Phase,
    stages: &[StageProgress; 3],
    preflight: &[String],
    waits: &[String],
    parked: &[Parked],
) -> String {
    let of = |stage: Stage| {
        let progress = stages.iter().find(|p| p.stage == stage);
        progress.map_or_else(String::new, |p| format!("{} of {}", p.upgraded, p.total))
    };
    let first = |lines: &[String]| lines.first().cloned().unwrap_or_default();
    match phase {
        Phase::Completed => format!("every selected component runs {}", upgrade.version),
        Phase::PlanOnly => "mode is PlanOnly: the plan is shown, nothing is done".to_owned(),
        Phase::AwaitingApproval => "set spec.approval.planHash to status.plan.hash to begin".to_owned(),
        Phase::Suspended => "suspended by spec.suspend".to_owned(),
        Phase::Queued => {
            let other = upgrade.queued_behind.as_deref().unwrap_or_default();
            format!("waits until ClusterUpgrade {other} is complete, or is deleted")
        }
        Phase::PreflightFailed => first(preflight),
        Phase::Working(_) if !waits.is_empty() => first(waits),
        Phase::Working(_) if !preflight.is_empty() => first(preflight),
        Phase::Working(Stage::Apiservers) => format!("{} kube-apiservers done", of(Stage::Apiservers)),
        Phase::Working(Stage::Controllers) => format!("{} controllers done", of(Stage::Controllers)),
        Phase::Working(Stage::Kubelets) => format!("{} nodes done", of(Stage::Kubelets)),
        Phase::ControlPlaneFailed => first(waits),
        Phase::NodesFailed | Phase::NodesParked | Phase::NodesHeld => {
            let state = match phase {
                Phase::NodesFailed => "Failed",
                Phase::NodesParked => "Parked",
                _ => "Held",
            };
            let mut those = parked.iter().filter(|p| p.state == state);
            let first = those.next().map(|p| format!("{}: {}", p.node, p.reason)).unwrap_or_default();
            match those.count() {
                0 => first,
                more => format!("{first} (and {more} more nodes)"),
            }
        }
    }
}
