//! What has lasted for so long that a person is called, as it is stored.
//!
//! Here belong only its names; how long is long is decided by the rollout. The invariant: what is written is read as the same,
//! and what a later release may write is passed over.

use std::sync::Arc;

use crate::cluster::Component;

/// Something that may end by itself, and that a person is called for once it has lasted. How long it has is counted by the
/// process that looks. Whoever leads after it takes its word from the status, for as long as it is still so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lasting {
    /// What is left of the plan must not be carried out on the cluster as it is.
    PlanBlocked,
    /// A node cannot be drained, at which the upgrade halts.
    Undrainable(Arc<str>),
    /// A controller does not renew its lease.
    ControllerIdle(Component),
    /// A component of the control plane is away: which one, and its Node, or its own name where no Node is visible.
    ComponentAway(Component, Arc<str>),
    /// A static pod of a control-plane node is not ready, as `namespace/name`.
    StaticPodAway(Arc<str>),
}

impl Lasting {
    /// The word for it in a status.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::PlanBlocked => "PlanBlocked",
            Self::Undrainable(_) => "Undrainable",
            Self::ControllerIdle(_) => "ControllerIdle",
            Self::ComponentAway(..) => "ComponentAway",
            Self::StaticPodAway(_) => "StaticPodAway",
        }
    }

    /// What it is about, which is empty for the plan.
    pub fn name(&self) -> String {
        match self {
            Self::PlanBlocked => String::new(),
            Self::Undrainable(name) | Self::StaticPodAway(name) => name.to_string(),
            Self::ControllerIdle(component) => component.to_string(),
            Self::ComponentAway(component, name) => format!("{component}/{name}"),
        }
    }

    /// Reads what [`Lasting::reason`] and [`Lasting::name`] wrote; `None` for anything else.
    pub fn read(reason: &str, name: &str) -> Option<Self> {
        Some(match reason {
            "PlanBlocked" => Self::PlanBlocked,
            "Undrainable" => Self::Undrainable(name.into()),
            "ControllerIdle" => Self::ControllerIdle(Component::from_name(name)?),
            "ComponentAway" => {
                let (component, name) = name.split_once('/')?;
                Self::ComponentAway(Component::from_name(component)?, name.into())
            }
            "StaticPodAway" => Self::StaticPodAway(name.into()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for lasting in [
            Lasting::PlanBlocked,
            Lasting::Undrainable("n-1".into()),
            Lasting::ControllerIdle(Component::KubeScheduler),
            Lasting::ComponentAway(Component::KubeApiserver, "10.0.0.1:6443".into()),
            Lasting::StaticPodAway("kube-system/etcd-cp-1".into()),
        ] {
            assert_eq!(Lasting::read(lasting.reason(), &lasting.name()), Some(lasting));
        }
        for (reason, name) in
            [("Later", "x"), ("ControllerIdle", "kube-later"), ("ComponentAway", "kube-scheduler")]
        {
            assert_eq!(Lasting::read(reason, name), None, "{reason} {name}");
        }
    }
}
