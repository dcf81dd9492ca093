//! The ids of findings: the rule that each is about and its object, and the one place that writes them as text.
//!
//! Here belong the ids alone; which of the findings hold is found by other files. The invariant: the text of an id
//! never changes, because people accept findings by it and tools compare it between runs.

use std::cmp::Ordering;
use std::fmt;

use crate::disruption::preflight;
use crate::skew::policy::WEBHOOKS_BEFORE_UPGRADE;

/// What a finding of a plan is about, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingCode {
    /// An acceptance of a risk does nothing.
    Acceptance,
    /// One process is the control plane and the kubelet of a node, and would move in several steps.
    OneProcess,
    /// No Node is visible for a kube-apiserver that is to move with its node.
    NoNode,
    /// Controllers that may talk to any kube-apiserver would be newer than one.
    ControllersOfAny,
    /// Nothing of the plan moves a cloud-controller-manager.
    CloudStays,
    /// A kubelet would move with its control plane, and is not the upgrade's to move.
    KubeletStays,
    /// The target is older than what runs.
    Downgrade,
    /// An executor is not there.
    NoExecutor,
    /// The server would refuse the Job of an executor.
    JobRefused,
    /// A Job would have to run where there is no Node.
    JobNowhere,
    /// A Job would have to install a version of which only the minor is named.
    JobNeedsRelease,
    /// Nothing shows the version of a controller that leads.
    HiddenController,
    /// Kube-apiservers behave as an older minor.
    Emulation,
    /// A node's kubelet says no version that can be read.
    KubeletUnknown,
    /// No group selects a node.
    NodeUnselected,
    /// A person holds a node.
    NodeHeld,
    /// Somebody cordoned a node.
    NodeCordoned,
    /// A node has been silent for long.
    NodeSilent,
    /// A node is newer than the target.
    NodeNewer,
    /// Something else makes nodes, at the old version.
    NodesMadeByOthers,
    /// A group has no nodes.
    GroupEmpty,
    /// A webhook would not see what a newer kube-apiserver sends.
    Webhook,
    /// Kubelets that do not move would be too old.
    KubeletTooOld,
    /// Instances of kube-proxy would be too old.
    ProxyTooOld,
    /// Instances of cloud-controller-manager would be too old.
    CloudTooOld,
    /// There is one kube-apiserver.
    OnlyServer,
    /// Controllers are newer for a while than other nodes' kube-apiservers.
    ControllersAhead,
    /// The version of a component is not known.
    VersionUnknown,
    /// No release of a minor on the way is known.
    NoRelease,
    /// The target names no build of the cluster's distribution.
    NoBuild,
    /// Nothing says which of two builds is newer.
    BuildsAlike,
    /// The images of nodes may have no such patch.
    PatchOfImages,
    /// The target is more minors ahead than an upgrade goes over.
    TooFar,
    /// A version that a person names for the way is not on it.
    NotOnTheWay,
    /// Something is in the way of a drain.
    Drain(preflight::Code),
}

impl FindingCode {
    /// Its text, such as `C4`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Acceptance => "A1",
            Self::OneProcess => "C1",
            Self::NoNode => "C2",
            Self::ControllersOfAny => "C3",
            Self::KubeletStays => "C4",
            Self::CloudStays => "C5",
            Self::Downgrade => "D1",
            Self::NoExecutor => "E1",
            Self::JobRefused => "E2",
            Self::JobNowhere => "E3",
            Self::JobNeedsRelease => "E4",
            Self::HiddenController => "H1",
            Self::Emulation => "KEP-4330",
            Self::KubeletUnknown => "N1",
            Self::NodeUnselected => "N2",
            Self::NodeHeld => "N3",
            Self::NodeCordoned => "N4",
            Self::NodeSilent => "N5",
            Self::NodeNewer => "N6",
            Self::NodesMadeByOthers => "N7",
            Self::GroupEmpty => "N8",
            Self::Webhook => WEBHOOKS_BEFORE_UPGRADE.id,
            Self::KubeletTooOld => "R2",
            Self::ProxyTooOld => "R3",
            Self::CloudTooOld => "R7",
            Self::OnlyServer => "S1",
            Self::ControllersAhead => "S2",
            Self::VersionUnknown => "V1",
            Self::NoRelease => "V2",
            Self::NoBuild => "V3",
            Self::BuildsAlike => "V4",
            Self::PatchOfImages => "V5",
            Self::TooFar => "V6",
            Self::NotOnTheWay => "V7",
            Self::Drain(code) => code.text(),
        }
    }

    /// The id of a finding about `object`.
    pub(crate) fn of(self, object: impl fmt::Display) -> FindingId {
        FindingId { code: self, object: Some(object.to_string()) }
    }
}

/// What a finding is about: the same in every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingId {
    /// Its rule.
    pub code: FindingCode,
    /// The object, such as `PodDisruptionBudget/shop/cart`; `None` for a finding about nothing in particular.
    pub object: Option<String>,
}

impl FindingId {
    /// Whether `text`, which a person wrote, is this id.
    pub fn is(&self, text: &str) -> bool {
        text.strip_prefix(self.code.text()).is_some_and(|rest| match &self.object {
            Some(object) => rest.strip_prefix('/') == Some(object),
            None => rest.is_empty(),
        })
    }
}

impl From<FindingCode> for FindingId {
    fn from(code: FindingCode) -> Self {
        Self { code, object: None }
    }
}

impl fmt::Display for FindingId {
    /// `C4`, or `U1/PodDisruptionBudget/shop/cart`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.text())?;
        self.object.as_ref().map_or(Ok(()), |object| write!(f, "/{object}"))
    }
}

/// By their text, in which they stand in every list: no code holds a character that comes before `/`.
impl Ord for FindingId {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.code.text(), &self.object).cmp(&(other.code.text(), &other.object))
    }
}

impl PartialOrd for FindingId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Component;
    use crate::skew::policy::{Policy, RuleSubject};

    fn ids() -> Vec<FindingId> {
        let of = |code: FindingCode| [code.into(), code.of(""), code.of("a"), code.of("a/b"), code.of("B")];
        let codes = [
            FindingCode::VersionUnknown,
            FindingCode::Emulation,
            FindingCode::Drain(preflight::Code::LetsNoneGo),
            FindingCode::Drain(preflight::Code::TooFewHealthy),
            FindingCode::Drain(preflight::Code::NeedsAll),
        ];
        codes.into_iter().flat_map(of).collect()
    }

    #[test]
    fn an_id_is_its_own_text_and_no_other() {
        for id in ids() {
            for other in ids() {
                assert_eq!(id.is(&other.to_string()), id == other, "{id} and {other}");
            }
        }
        let plain = FindingId::from(FindingCode::VersionUnknown);
        assert!(["", "V", "V1/", "V1a", " V1", "v1", "V1/a"].iter().all(|text| !plain.is(text)));
    }

    #[test]
    fn ids_are_in_the_order_of_their_texts() {
        for id in ids() {
            for other in ids() {
                assert_eq!(id.cmp(&other), id.to_string().cmp(&other.to_string()), "{id} and {other}");
            }
        }
    }

    #[test]
    fn codes_of_the_skew_policy_are_its_own() {
        let now = crate::version::Minor::new(1, 36);
        for (code, component) in [
            (FindingCode::KubeletTooOld, Component::Kubelet),
            (FindingCode::ProxyTooOld, Component::KubeProxy),
            (FindingCode::CloudTooOld, Component::CloudControllerManager),
        ] {
            let rule = Policy::default().rule(RuleSubject::Component(component), now);
            assert_eq!(rule.map(|rule| rule.id), Some(code.text()));
        }
    }
}
