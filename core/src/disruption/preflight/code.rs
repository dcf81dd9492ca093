//! The codes of causes: what each of them is about, and the one place that writes it as text.
//!
//! Here belong the codes alone; which of them holds is found by the other files. The invariant: the text of a code
//! never changes, because people accept findings by it and tools compare it between runs.

use std::cmp::Ordering;
use std::fmt;

/// What is in the way of a drain, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A budget's `maxUnavailable` is 0.
    LetsNoneGo,
    /// A budget's `minAvailable` is 100%.
    NeedsAll,
    /// A budget needs as many pods as there are replicas.
    NeedsEveryReplica,
    /// A budget guards the only replica.
    OnlyReplica,
    /// A budget's percentage, rounded up, is every replica.
    RoundedUp,
    /// A budget asks for nothing, or for what cannot be read.
    NoDemand,
    /// A budget asks for a share of pods that no controller has made.
    NoControllers,
    /// The disruption controller cannot compute a budget.
    NotComputable,
    /// The controller of a budget's pod does not exist.
    ControllerGone,
    /// Several budgets select one pod.
    SeveralBudgets,
    /// Too few pods of a budget are healthy now.
    TooFewHealthy,
    /// A budget needs no pod, and none is ready.
    NeverHealthy,
    /// A budget's status is older than its spec or its pods.
    StatusLags,
    /// Pods of a budget find no node.
    PodsWithoutNode,
    /// Whoever made a budget may open it again.
    MadeByOthers,
    /// A budget's status makes no sense.
    StatusBroken,
    /// A budget's policy for unready pods is not known.
    UnknownPolicy,
    /// Nothing brings a pod back, or its `DaemonSet` does at once.
    Owner,
    /// A pod's data stays on its node, or is lost.
    LocalData,
    /// A volume ties a pod to its node.
    TiedByVolume,
    /// A pod's selector or affinity allows no other node.
    NoOtherNode,
    /// A pod tolerates the cordon.
    ToleratesCordon,
    /// A pod may not be near other pods.
    KeptApart,
    /// Cordoned nodes count as places of a pod's spread.
    SpreadOverCordoned,
    /// A pod needs a port or a device of its node.
    PortOrDevice,
    /// The other nodes have too little left.
    NoRoom,
    /// A quota is used up.
    QuotaFull,
    /// A pod has a finalizer.
    Finalizer,
    /// A pod may take longer to end than the drain is given.
    LongGrace,
    /// A webhook is asked about evictions.
    EvictionWebhook,
    /// A webhook that is asked about new pods is on the drained nodes alone.
    CreationWebhook,
    /// A pod's namespace is being deleted.
    NamespaceEnds,
    /// A pod does not end.
    Stuck,
    /// A pod's owner asks other tools to leave it alone.
    OptOut,
    /// A pod is scheduled together with others.
    Gang,
    /// A pod names eviction responders.
    Responders,
    /// An eviction counts as a failure of a Job.
    JobFailure,
    /// A node is not ready.
    NodeNotReady,
    /// Somebody else cordoned or holds a node.
    NodeTaken,
    /// There is no other schedulable node, or none that is ready.
    OnlyNode,
    /// A pod is waited for until it has completed.
    Completes,
}

impl Code {
    /// Its text, such as `U3`: U is about budgets, B about pods, nodes and what is around them.
    pub const fn text(self) -> &'static str {
        match self {
            Self::LetsNoneGo => "U1",
            Self::NeedsAll => "U2",
            Self::NeedsEveryReplica => "U3",
            Self::OnlyReplica => "U4",
            Self::RoundedUp => "U5",
            Self::NoDemand => "U6",
            Self::NoControllers => "U7",
            Self::NotComputable => "U8",
            Self::ControllerGone => "U9",
            Self::SeveralBudgets => "U10",
            Self::TooFewHealthy => "U11",
            Self::NeverHealthy => "U12",
            Self::StatusLags => "U13",
            Self::PodsWithoutNode => "U14",
            Self::MadeByOthers => "U15",
            Self::StatusBroken => "U16",
            Self::UnknownPolicy => "U17",
            Self::Owner => "B1",
            Self::LocalData => "B2",
            Self::TiedByVolume => "B3",
            Self::NoOtherNode => "B4",
            Self::ToleratesCordon => "B5",
            Self::KeptApart => "B6",
            Self::SpreadOverCordoned => "B7",
            Self::PortOrDevice => "B8",
            Self::NoRoom => "B9",
            Self::QuotaFull => "B10",
            Self::Finalizer => "B11",
            Self::LongGrace => "B12",
            Self::EvictionWebhook => "B13",
            Self::CreationWebhook => "B14",
            Self::NamespaceEnds => "B15",
            Self::Stuck => "B16",
            Self::OptOut => "B17",
            Self::Gang => "B18",
            Self::Responders => "B19",
            Self::JobFailure => "B20",
            Self::NodeNotReady => "B21",
            Self::NodeTaken => "B22",
            Self::OnlyNode => "B23",
            Self::Completes => "B24",
        }
    }

    /// Whether it is about a budget, which a deletion does not ask.
    pub const fn is_of_budget(self) -> bool {
        matches!(
            self,
            Self::LetsNoneGo
                | Self::NeedsAll
                | Self::NeedsEveryReplica
                | Self::OnlyReplica
                | Self::RoundedUp
                | Self::NoDemand
                | Self::NoControllers
                | Self::NotComputable
                | Self::ControllerGone
                | Self::SeveralBudgets
                | Self::TooFewHealthy
                | Self::NeverHealthy
                | Self::StatusLags
                | Self::PodsWithoutNode
                | Self::MadeByOthers
                | Self::StatusBroken
                | Self::UnknownPolicy
        )
    }

    /// Whether a cause of it that may end by itself keeps a pod's replacement from finding a place.
    pub(super) const fn keeps_a_replacement(self) -> bool {
        matches!(
            self,
            Self::NoOtherNode | Self::KeptApart | Self::PortOrDevice | Self::NoRoom | Self::QuotaFull
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// By their text, in which they stand in every list.
impl Ord for Code {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text().cmp(other.text())
    }
}

impl PartialOrd for Code {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
