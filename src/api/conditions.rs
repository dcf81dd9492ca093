//! Conditions as kstatus, `kubectl wait` and the health check for Argo CD (`config/argocd`) read them.
//!
//! Here belong the words of conditions, and how one is written and found; which ones are true is the caller's to say. The
//! invariants: no other file spells the type or the status of a condition of ours; a condition's lastTransitionTime changes
//! only when its status changes.

use evenkeel_core::skew::Verdict;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// What a condition of an object of ours is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the schema of each status says which it has and what for")]
pub enum ConditionType {
    Ready,
    Reconciling,
    Stalled,
    AwaitingApproval,
    Paused,
    DrainBlocked,
    PreflightPassed,
    SkewSupported,
    NextMinorAllowed,
    InventoryComplete,
}

impl ConditionType {
    /// Its `type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::AwaitingApproval => "AwaitingApproval",
            Self::Paused => "Paused",
            Self::DrainBlocked => "DrainBlocked",
            Self::PreflightPassed => "PreflightPassed",
            Self::SkewSupported => "SkewSupported",
            Self::NextMinorAllowed => "NextMinorAllowed",
            Self::InventoryComplete => "InventoryComplete",
        }
    }

    /// The one of this type in `conditions`.
    pub fn of(self, conditions: &[Condition]) -> Option<&Condition> {
        conditions.iter().find(|of| of.type_ == self.name())
    }

    /// Whether the one of this type in `conditions` is `True`.
    pub fn holds(self, conditions: &[Condition]) -> bool {
        self.of(conditions).is_some_and(|of| ConditionStatus::True.is(&of.status))
    }
}

/// Whether a condition is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    /// Its `status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether `status` says this.
    pub fn is(self, status: &str) -> bool {
        status == self.name()
    }
}

impl From<bool> for ConditionStatus {
    fn from(is: bool) -> Self {
        if is { Self::True } else { Self::False }
    }
}

impl From<Verdict> for ConditionStatus {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::True => Self::True,
            Verdict::False => Self::False,
            Verdict::Unknown => Self::Unknown,
        }
    }
}

/// A condition as it has to be, without its times: type, status, reason and message.
pub type Wanted<'a> = (ConditionType, ConditionStatus, &'a str, &'a str);

/// What kstatus makes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kstatus {
    /// There is nothing that anybody has to do or to wait for.
    Current,
    /// It goes on by itself.
    InProgress,
    /// It is not done, and was told not to go on. kstatus has no word for it, and says that it is in progress.
    Paused,
    /// Only a person can bring it further.
    Failed,
}

impl Kstatus {
    /// `Ready`, `Reconciling` and `Stalled`, from which kstatus reads this. Of the latter two never both are `True`: kstatus
    /// would believe the first.
    pub fn conditions<'a>(self, reason: &'a str, message: &'a str) -> [Wanted<'a>; 3] {
        let ready = match self {
            Self::Current => ConditionStatus::True,
            Self::Failed => ConditionStatus::False,
            Self::InProgress | Self::Paused => ConditionStatus::Unknown,
        };
        let failed = self == Self::Failed;
        [
            (ConditionType::Ready, ready, reason, message),
            (ConditionType::Reconciling, (self == Self::InProgress).into(), reason, ""),
            (ConditionType::Stalled, failed.into(), reason, if failed { message } else { "" }),
        ]
    }
}

/// The conditions that `wanted` lists. A condition whose status is the same in `before` keeps its lastTransitionTime; any
/// other one gets `now`.
///
/// Every wanted condition is returned, in the order of `wanted`: tools do not agree on what an absent condition
/// means.
pub fn conditions(
    wanted: &[Wanted<'_>],
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let condition = |(type_, status, reason, message): &Wanted<'_>| {
        let same = type_.of(before).filter(|was| status.is(&was.status));
        Condition {
            type_: type_.name().to_owned(),
            status: status.name().to_owned(),
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            observed_generation: generation,
            last_transition_time: same.map_or(Time(now), |was| was.last_transition_time.clone()),
        }
    };
    wanted.iter().map(condition).collect()
}
