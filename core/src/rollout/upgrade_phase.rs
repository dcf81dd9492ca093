//! The phase of an upgrade as a whole: one of a closed set, which is the reason of its condition Ready.
//!
//! Here belong the name of each phase and whether only a person ends it. Which one an upgrade is in is decided in
//! `status`.

use super::not_opened::NotOpened;
use crate::plan::Stage;
use crate::upgrade::calendar::Shut;

/// Where the upgrade is as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradePhase {
    /// The plan is shown and nothing is done.
    PlanOnly,
    /// The plan waits for `approval.planHash`.
    AwaitingApproval,
    /// `spec.suspend` is set: what is in flight settles, and nothing begins.
    Suspended,
    /// Another upgrade is under way.
    Queued,
    /// It names an executor that is not there; the operator says the same of a spec that it cannot read or carry out.
    Invalid,
    /// Nothing more can move without a person: it must not be started, or carried on, on this cluster.
    PreflightFailed,
    /// Under way.
    Working(Stage),
    /// Nothing is in flight, and the next window is waited for.
    WaitingForWindow,
    /// Nothing is in flight, and nothing new is begun in a freeze.
    Frozen,
    /// Nothing is in flight, and what was done last is watched for a while.
    Soaking,
    /// Nothing is in flight, and the object of a gate is not as it has to be.
    GateClosed,
    /// Nothing is in flight, and nothing new is begun in a zone of which too many nodes are not ready.
    ZoneDisrupted,
    /// Somebody deleted it; what is in flight settles.
    Deleting,
    /// Nothing more can move without a person: a control-plane component failed.
    ControlPlaneFailed,
    /// Nothing more can move without a person: a control-plane component went back after it was upgraded, a controller
    /// leads where nothing shows its version, or one is away or silent for long that everything else waits for.
    ControlPlaneHeld,
    /// Nothing more can move without a person: nodes failed.
    NodesFailed,
    /// Nothing more can move without a person: a node could not be drained, and the upgrade was told to stop then.
    NodesHalted,
    /// Nothing more can move without a person: nodes cannot be drained.
    NodesParked,
    /// Nothing more can move without a person: as many nodes failed or are parked as may.
    FailurePolicy,
    /// Nothing more can move without a person: the object of a gate cannot be read.
    GateUnreadable,
    /// Nothing more can move without a person: no window is long enough.
    NoWindowFits,
    /// Nothing more can move without a person: the machines of a zone have long been silent.
    ZoneGone,
    /// Nothing more can move without a person: the server refuses what has to be written.
    WritesRefused,
    /// Nothing more can move without a person: nodes are held or cordoned by someone else.
    NodesHeld,
    /// Done, but for nodes that cannot be drained, which a person accepted for a time: they go on when they can.
    CompletedWithExceptions,
    /// Done.
    Completed,
}

impl UpgradePhase {
    /// Those in which it waits, does nothing or stands still: all but [`Self::Working`] and [`Self::Completed`].
    pub const WAITS: [Self; 24] = [
        Self::PlanOnly,
        Self::AwaitingApproval,
        Self::Suspended,
        Self::Queued,
        Self::Invalid,
        Self::PreflightFailed,
        Self::WaitingForWindow,
        Self::Frozen,
        Self::Soaking,
        Self::GateClosed,
        Self::ZoneDisrupted,
        Self::Deleting,
        Self::ControlPlaneFailed,
        Self::ControlPlaneHeld,
        Self::NodesFailed,
        Self::NodesHalted,
        Self::NodesParked,
        Self::FailurePolicy,
        Self::GateUnreadable,
        Self::NoWindowFits,
        Self::ZoneGone,
        Self::WritesRefused,
        Self::NodesHeld,
        Self::CompletedWithExceptions,
    ];

    /// The reason of condition `Ready`, which is also the STAGE column.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::PlanOnly => "PlanOnly",
            Self::AwaitingApproval => "AwaitingApproval",
            Self::Suspended => "Suspended",
            Self::Queued => "Queued",
            Self::Invalid => "Invalid",
            Self::PreflightFailed => "PreflightFailed",
            Self::Working(stage) => stage.name(),
            Self::WaitingForWindow => "WaitingForWindow",
            Self::Frozen => "Frozen",
            Self::Soaking => "Soaking",
            Self::GateClosed => "GateClosed",
            Self::ZoneDisrupted => "ZoneDisrupted",
            Self::FailurePolicy => "FailurePolicy",
            Self::GateUnreadable => "GateUnreadable",
            Self::NoWindowFits => "NoWindowFits",
            Self::ZoneGone => "ZoneGone",
            Self::Deleting => "Deleting",
            Self::ControlPlaneFailed => "ControlPlaneFailed",
            Self::ControlPlaneHeld => "ControlPlaneHeld",
            Self::NodesFailed => "NodesFailed",
            Self::NodesHalted => "NodesHalted",
            Self::NodesParked => "NodesParked",
            Self::WritesRefused => "WritesRefused",
            Self::NodesHeld => "NodesHeld",
            Self::CompletedWithExceptions => "CompletedWithExceptions",
            Self::Completed => "Completed",
        }
    }

    /// kstatus: whether there is nothing that anybody has to do or to wait for.
    pub const fn ready(self) -> bool {
        matches!(self, Self::Completed | Self::CompletedWithExceptions)
    }

    /// kstatus: whether only a person can bring it further.
    pub const fn stalled(self) -> bool {
        matches!(
            self,
            Self::Invalid
                | Self::PreflightFailed
                | Self::ControlPlaneFailed
                | Self::ControlPlaneHeld
                | Self::NodesFailed
                | Self::NodesHalted
                | Self::NodesParked
                | Self::NodesHeld
                | Self::FailurePolicy
                | Self::GateUnreadable
                | Self::NoWindowFits
                | Self::ZoneGone
                | Self::WritesRefused
        )
    }

    /// Where an upgrade is of which nothing is in flight, and which `wait` alone keeps from opening something.
    pub(super) const fn of(wait: &NotOpened, stage: Stage) -> Self {
        match wait {
            NotOpened::Trial
            | NotOpened::Unanswered { lasting: false, .. }
            | NotOpened::GateRead { .. }
            | NotOpened::Seed { .. }
            | NotOpened::Replacements { .. }
            | NotOpened::Job { lasting: false, .. } => Self::Working(stage),
            NotOpened::Gate { lasting: true, .. } => Self::GateUnreadable,
            NotOpened::Gate { .. } => Self::GateClosed,
            NotOpened::Failures { .. } => Self::FailurePolicy,
            NotOpened::Refused { .. } | NotOpened::Job { .. } | NotOpened::Unanswered { .. } => {
                Self::WritesRefused
            }
            NotOpened::Shut { opens: None, .. } => Self::NoWindowFits,
            NotOpened::Shut { shut: Shut::Window | Shut::Closes(_), .. } => Self::WaitingForWindow,
            NotOpened::Shut { shut: Shut::Frozen(_) | Shut::Freezes(..), .. } => Self::Frozen,
            NotOpened::Soak { .. } => Self::Soaking,
            NotOpened::Zone { lasting: true, .. } | NotOpened::AllZones { lasting: true, .. } => {
                Self::ZoneGone
            }
            NotOpened::Zone { .. } | NotOpened::AllZones { .. } => Self::ZoneDisrupted,
        }
    }
}
