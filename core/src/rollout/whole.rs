//! Whether one control-plane node may be taken away: every other one is there, with what runs on it.
//!
//! Both ways in which such a node is taken away ask here: its kubelet alone, after a drain, and its control plane as one
//! step. The invariant: what this sees as away is never joined by a second node because of us.

use jiff::{SignedDuration, Timestamp};

use super::round::{Round, Selected, after};
use super::{Action, Claim, ClaimState};
use crate::cluster::Component;

/// A new kubelet restarts the static pods of its control-plane node some time after it is Ready; until they are back,
/// nothing else is taken away.
const STATIC_PODS_SETTLE: SignedDuration = SignedDuration::from_secs(30);

/// What is said while they have this time.
pub(super) const STATIC_PODS_RETURN: &str =
    "gives the static pods of the last control-plane node time to come back";

/// Until when the static pods of the control-plane node whose kubelet was replaced last come back, by the claims of the
/// nodes that take part and by all claims of the upgrade; `None` where they had their time.
pub(super) fn static_pods_settle(
    selected: &[Selected<'_>],
    mine: &[&Claim],
    now: Timestamp,
) -> Option<Timestamp> {
    let upgraded = |claim: &Claim| match claim.state {
        ClaimState::Upgraded { at } => Some(after(at, STATIC_PODS_SETTLE)),
        _ => None,
    };
    let alone = selected.iter().filter(|selected| selected.member.node.control_plane);
    let alone = alone.filter_map(|selected| upgraded(selected.claim?));
    let moves_kubelet = |claim: &&&Claim| claim.subject.components.contains(&Component::Kubelet);
    let together = mine.iter().filter(moves_kubelet).filter_map(|claim| upgraded(claim));
    alone.chain(together).max().filter(|until| now < *until)
}

/// Whether the control-plane node `name` may be taken away. The error says why not, in words that follow its name.
pub(super) fn others_are_whole(round: &Round<'_>, name: &str) -> Result<(), String> {
    let cluster = round.world.cluster;
    let mut others = cluster.nodes().iter().filter(|other| other.control_plane && *other.name != *name);
    let away = others.find(|other| {
        let of_it = |claim: &Claim| claim.is_of_kubelet() && claim.subject.node_uid == other.uid;
        !other.ready || other.unschedulable || round.mine.iter().any(|c| of_it(c) && c.state.in_flight())
    });
    let opened = |action: &Action| match action {
        Action::Claim { subject, .. } if subject.component == Component::Kubelet => {
            cluster.node(&subject.node).is_some_and(|node| node.control_plane)
        }
        _ => false,
    };
    if let Some(other) = away {
        return Err(format!("waits: control-plane node {} is away, and they go one at a time", other.name));
    }
    if round.actions.iter().any(opened) {
        return Err("waits: control-plane nodes go one at a time".to_owned());
    }
    let mut servers = cluster.of(Component::KubeApiserver);
    if let Some(silent) = servers.find(|server| !server.ready && server.node.as_deref() != Some(name)) {
        return Err(format!("waits until kube-apiserver {} answers", silent.name));
    }
    let mut statics = cluster.nodes().iter().filter(|other| other.control_plane && *other.name != *name);
    let unready = statics.find_map(|other| {
        cluster.pods_on(&other.name).find(|pod| pod.mirror && !pod.ready && pod.deleting().is_none())
    });
    match unready {
        Some(pod) => Err(format!("waits until static pod {} is ready", pod.full_name())),
        None => Ok(()),
    }
}
