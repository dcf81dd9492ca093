//! What an upgrade waits for, as its status tells it: one reason, one line and a time each.
//!
//! Here belongs the closed set of reasons, and who or what ends each of them. The lines are written where something is
//! waited for. The invariant: a reason that is also one of the upgrade as a whole has the same name in both places.

use std::fmt;

use jiff::Timestamp;

use super::not_opened::NotOpened;
use super::upgrade_phase::UpgradePhase;
use crate::plan::Stage;

/// Who or what ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndedBy {
    /// A person, who has to change or approve something; it lasts until then.
    Person,
    /// Something in the cluster, without a person: it is looked at whenever that changes.
    Cluster,
    /// The clock alone: the wait is over at the time that stands beside it.
    Time,
}

impl EndedBy {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Person, Self::Cluster, Self::Time];

    /// The word for it in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Person => "Person",
            Self::Cluster => "Cluster",
            Self::Time => "Time",
        }
    }
}

/// Why something is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// What the condition Ready of the upgrade says, or would say if nothing else were under way.
    Upgrade(UpgradePhase),
    /// What is left of the plan must not be carried out on the cluster as it is now.
    PlanBlocked,
    /// A component of the control plane is away, not ready, or not seen.
    ComponentAway,
    /// A component of the control plane does not tell its version.
    VersionUnknown,
    /// A controller was not seen to renew its lease since the control plane was changed, or gave it up.
    ControllersIdle,
    /// What was replaced gets time to take up its work, or pods get time to arrive.
    Settling,
    /// Pods leave a node.
    PodsLeaving,
    /// Pods may not leave a node yet.
    PodsHeldBack,
    /// Volumes are detached from a node.
    VolumesDetaching,
    /// An executor works, or a new version is to be observed.
    ExecutorWorking,
    /// The server refuses the Job of an executor, or nobody may make it any more.
    JobRefused,
    /// What is known is read once more.
    ReadingAgain,
    /// As many nodes of a group are unavailable as may be.
    GroupFull,
    /// A group waits for another one, or for its canaries.
    GroupsInOrder,
    /// Nodes are not taken away at the same time.
    NodesInOrder,
    /// Pods start elsewhere first.
    PodsStarting,
    /// A node cannot be drained, which a person accepted for a time.
    NodeExcepted,
}

impl WaitReason {
    /// A step of the control plane failed.
    pub(super) const STEP_FAILED: Self = Self::Upgrade(UpgradePhase::ControlPlaneFailed);
    /// A node failed.
    pub(super) const NODE_FAILED: Self = Self::Upgrade(UpgradePhase::NodesFailed);
    /// Somebody else holds nodes back.
    pub(super) const NODES_HELD: Self = Self::Upgrade(UpgradePhase::NodesHeld);
    /// A node is parked.
    pub(super) const NODE_PARKED: Self = Self::Upgrade(UpgradePhase::NodesParked);

    /// Those that are about nodes that are out of the rollout for now, which a status names besides.
    pub const OF_NODES_THAT_ARE_OUT: [Self; 5] = [
        Self::NODE_PARKED,
        Self::NODE_FAILED,
        Self::NODES_HELD,
        Self::Upgrade(UpgradePhase::CompletedWithExceptions),
        Self::NodeExcepted,
    ];

    /// Those that are not reasons of the upgrade as a whole.
    pub const OTHERS: [Self; 16] = [
        Self::PlanBlocked,
        Self::ComponentAway,
        Self::VersionUnknown,
        Self::ControllersIdle,
        Self::Settling,
        Self::PodsLeaving,
        Self::PodsHeldBack,
        Self::VolumesDetaching,
        Self::ExecutorWorking,
        Self::JobRefused,
        Self::ReadingAgain,
        Self::GroupFull,
        Self::GroupsInOrder,
        Self::NodesInOrder,
        Self::PodsStarting,
        Self::NodeExcepted,
    ];

    /// The word for it in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Upgrade(phase) => phase.reason(),
            Self::PlanBlocked => "PlanBlocked",
            Self::ComponentAway => "ComponentAway",
            Self::VersionUnknown => "VersionUnknown",
            Self::ControllersIdle => "ControllersIdle",
            Self::Settling => "Settling",
            Self::PodsLeaving => "PodsLeaving",
            Self::PodsHeldBack => "PodsHeldBack",
            Self::VolumesDetaching => "VolumesDetaching",
            Self::ExecutorWorking => "ExecutorWorking",
            Self::JobRefused => "JobRefused",
            Self::ReadingAgain => "ReadingAgain",
            Self::GroupFull => "GroupFull",
            Self::GroupsInOrder => "GroupsInOrder",
            Self::NodesInOrder => "NodesInOrder",
            Self::PodsStarting => "PodsStarting",
            Self::NodeExcepted => "NodeExcepted",
        }
    }

    /// Who or what ends it.
    pub const fn ended_by(self) -> EndedBy {
        match self {
            Self::Upgrade(phase) if phase.stalled() => EndedBy::Person,
            Self::Upgrade(
                UpgradePhase::PlanOnly
                | UpgradePhase::AwaitingApproval
                | UpgradePhase::Suspended
                | UpgradePhase::CompletedWithExceptions,
            )
            | Self::JobRefused
            | Self::NodeExcepted => EndedBy::Person,
            Self::Upgrade(UpgradePhase::WaitingForWindow | UpgradePhase::Frozen | UpgradePhase::Soaking)
            | Self::Settling => EndedBy::Time,
            Self::Upgrade(_)
            | Self::PlanBlocked
            | Self::ComponentAway
            | Self::VersionUnknown
            | Self::ControllersIdle
            | Self::PodsLeaving
            | Self::PodsHeldBack
            | Self::VolumesDetaching
            | Self::ExecutorWorking
            | Self::ReadingAgain
            | Self::GroupFull
            | Self::GroupsInOrder
            | Self::NodesInOrder
            | Self::PodsStarting => EndedBy::Cluster,
        }
    }
}

/// Something that an upgrade waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The kind of wait, which events, metrics and conditions go by.
    pub reason: WaitReason,
    /// The same in one line, with the names of what is meant.
    pub line: String,
    /// When it is over, or looked at again, where that is known; whatever changes in the cluster is looked at at once.
    pub until: Option<Timestamp>,
    /// It is about the nodes of a whole group, which its line names.
    pub of_group: bool,
}

impl Waiting {
    pub(super) fn new(reason: WaitReason, line: impl Into<String>) -> Self {
        Self { reason, line: line.into(), until: None, of_group: false }
    }

    /// The same, over or looked at again at `until`.
    pub(super) fn until(self, until: impl Into<Option<Timestamp>>) -> Self {
        Self { until: until.into(), ..self }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl From<&NotOpened> for Waiting {
    fn from(wait: &NotOpened) -> Self {
        let reason = match wait {
            NotOpened::Trial | NotOpened::Unanswered { lasting: false, .. } | NotOpened::GateRead { .. } => {
                WaitReason::ReadingAgain
            }
            NotOpened::Seed { .. } | NotOpened::Replacements { .. } => WaitReason::PodsStarting,
            NotOpened::Job { lasting: false, .. } => WaitReason::JobRefused,
            _ => WaitReason::Upgrade(UpgradePhase::of(wait, Stage::Kubelets)),
        };
        let until = match wait {
            // The line says how often it is looked at; a status with the time of the next look would be written as often.
            NotOpened::Gate { .. } | NotOpened::Refused { .. } => None,
            _ => wait.until(),
        };
        Self { until, ..Self::new(reason, wait.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let all: Vec<WaitReason> =
            UpgradePhase::WAITS.map(WaitReason::Upgrade).into_iter().chain(WaitReason::OTHERS).collect();
        let names: BTreeSet<&str> = all.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), all.len());
        for reason in all {
            let WaitReason::Upgrade(phase) = reason else { continue };
            assert!(!phase.stalled() || reason.ended_by() == EndedBy::Person, "{phase:?}");
        }
    }
}
