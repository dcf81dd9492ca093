//! Soaks: a part of the upgrade that is done is watched for a while before the next part begins.
//!
//! Here belongs since when each part is done; that is stored in the upgrade's status, because claims are deleted. The
//! invariants: a soak counts from when everything of it was first seen to be done. A soak that is under way begins anew
//! when something of it is not done any more. A soak that is over stays over. Only the soak of the controllers differs:
//! it is stored only while a controller runs of which no claim says since when, and it begins anew whenever the control
//! plane was not done in between.

use jiff::{SignedDuration, Timestamp};

use super::claim::ClaimState;
use super::group::{Members, members};
use super::not_opened::NotOpened;
use super::presence::name_of;
use super::round::{Round, after};
use super::whose_turn::{given_back, nodes_behind};
use crate::cluster::{Component, Instance};
use crate::upgrade::{Soak, Soaked};

/// How long a replaced controller may take to win its lease and fill its caches. An eviction that the disruption
/// controller does not see leaves the budget of a pod that returns under its old name short for two minutes
/// (`disruptedPods`, `pkg/controller/disruption`).
pub(super) const CONTROLLERS_SETTLE: SignedDuration = SignedDuration::from_secs(15);

/// What soaks or has soaked, as of now.
pub(super) fn follow(round: &Round<'_>) -> Vec<Soak> {
    let mut soaks = Vec::new();
    let plane = round.upgrade.control_plane.soak;
    if !plane.is_zero() {
        let done = round.control_plane_is_done() && !round.went_back;
        soaks.extend(one(round, Soaked::ControlPlane, plane, done));
    }
    if round.control_plane_is_done() && one_is_unclaimed(round) {
        soaks.extend(one(round, Soaked::Controllers, CONTROLLERS_SETTLE, true));
    }
    if round.upgrade.groups.iter().all(|group| group.soak.is_zero()) {
        return soaks;
    }
    for of in members(round).iter().filter(|of| !of.group.soak.is_zero()) {
        let (name, length) = (&of.group.name, of.group.soak);
        soaks.extend(one(round, Soaked::Group(name.clone()), length, is_done(round, of)));
        if of.group.canary > 0 {
            let done = given_back(of, &round.upgrade.version) >= of.group.canary;
            soaks.extend(one(round, Soaked::Canaries(name.clone()), length, done));
        }
    }
    soaks
}

/// Whether a controller is seen of which no claim says since when it runs: somebody else moved it, or deleted its claim.
fn one_is_unclaimed(round: &Round<'_>) -> bool {
    let is_claimed = |instance: &Instance| {
        round.mine.iter().any(|claim| {
            matches!(claim.state, ClaimState::Upgraded { .. })
                && claim.subject.node == *name_of(instance)
                && claim.subject.moves().contains(&instance.component)
        })
    };
    let controllers = Component::ALL.into_iter().filter(|component| component.is_controller());
    controllers.flat_map(|component| round.world.cluster.of(component)).any(|seen| !is_claimed(seen))
}

/// Whether nobody has to wait for a node of `members` any more. Of a group without a node at the target nothing soaks.
fn is_done(round: &Round<'_>, members: &Members<'_>) -> bool {
    let there = members.nodes.iter().any(|node| node.member.at_target == Some(true));
    there && nodes_behind(round, members).next().is_none()
}

fn one(round: &Round<'_>, what: Soaked, length: SignedDuration, done: bool) -> Option<Soak> {
    let version = &round.upgrade.version;
    let mut before = round.progress.soaks.iter().filter(|soak| soak.what == what && soak.version == *version);
    let before = before.find(|soak| done || after(soak.done, length) <= round.world.now);
    let begins = || Soak { what, version: version.clone(), done: whole_second(round.world.now) };
    before.cloned().or_else(|| done.then(begins))
}

/// `at`, or the next second: what is stored has no parts of a second.
fn whole_second(at: Timestamp) -> Timestamp {
    let up = i64::from(at.subsec_nanosecond() > 0);
    Timestamp::from_second(at.as_second() + up).unwrap_or(at)
}

/// Whom whatever comes after `what`, which soaks for `length`, has to wait for.
pub(super) fn soaks(round: &Round<'_>, what: &Soaked, length: SignedDuration) -> Result<(), NotOpened> {
    let soak = round.soaks.iter().find(|soak| soak.what == *what);
    match soak.map(|soak| after(soak.done, length)).filter(|until| round.world.now < *until) {
        Some(until) => Err(NotOpened::Soak { what: what.clone(), until }),
        None => Ok(()),
    }
}
