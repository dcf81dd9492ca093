//! Whether the controllers are at work again after a step of the control plane, so that pods that leave are replaced
//! and budgets are counted.
//!
//! Here belongs only what their leases tell: that there is one, by a watch, and that it was renewed, by reads of their
//! own. The invariant: after a step that restarted static pods no pod is asked to leave, and no node is taken up,
//! before every needed controller whose lease can be seen has renewed it.

use jiff::{SignedDuration, Timestamp};

use super::action::Action;
use super::claim::{Claim, ClaimState};
use super::control_plane_whole::settles;
use super::not_opened::EVERY;
use super::round::{Round, after};
use crate::cluster::{Cluster, Component, Leader};
use crate::upgrade::{Lasting, Soak, Soaked};

/// Without these, pods that leave are not replaced, and budgets are not counted.
const NEEDED: [Component; 2] = [Component::KubeControllerManager, Component::KubeScheduler];
/// A holder renews its lease every two seconds; the leases are read so often while somebody waits for that.
const READ_EVERY: SignedDuration = SignedDuration::from_secs(2);
/// A server stores times in whole seconds.
const WHOLE_SECOND: SignedDuration = SignedDuration::from_secs(1);
/// A lease that was last renewed so long before the upgrade began was left behind by a controller that elects no leader.
const LEFT_BEHIND: SignedDuration = SignedDuration::from_hours(1);
/// A controller that is silent for so long after a step does not come back by itself, as far as anybody can say.
const HOPE_FOR: SignedDuration = SignedDuration::from_mins(15);
/// Whoever has looked for less time does not say so first: a static pod that crashes is begun again after five minutes at most.
const LOOKED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Whether `claim` restarted static pods of the control plane: its components, or the kubelet of a node of it.
fn is_step(cluster: &Cluster, claim: &Claim) -> bool {
    !claim.is_of_kubelet()
        || cluster.node(&claim.subject.node).is_some_and(|node| cluster.is_of_control_plane(node))
}

/// When the last step of the control plane was over, of those that `mine` and `soaks` tell of; `None` before the first one.
pub(super) fn last_step(
    cluster: &Cluster,
    mine: &[&Claim],
    soaks: &[Soak],
    now: Timestamp,
) -> Option<Timestamp> {
    // A time that lies ahead was written before somebody set a clock back, and says nothing.
    let later = |last: Option<Timestamp>, at: Timestamp| at <= now && last.is_none_or(|last| last < at);
    let last_of = |last: Option<Timestamp>, claim: &&Claim| match claim.state {
        // A node is looked up only where its claim may be the last: there may be hundreds.
        ClaimState::Upgraded { at } => {
            if later(last, at) && is_step(cluster, claim) {
                Some(at)
            } else {
                last
            }
        }
        // A new kubelet has begun its static pods anew when their time is over, also where its claim is not done by then.
        _ => settles(claim).filter(|at| later(last, *at)).or(last),
    };
    let unclaimed = soaks.iter().filter(|soak| soak.what == Soaked::Controllers).map(|soak| soak.done);
    mine.iter().fold(unclaimed.filter(|at| *at <= now).max(), last_of)
}

/// When the upgrade of `mine` began: at its first claim that is still there, or when its status says that it `started`. The
/// claims of an earlier hop are gone.
pub(super) fn begun(mine: &[&Claim], started: Option<Timestamp>) -> Option<Timestamp> {
    mine.iter().filter_map(|claim| claim.created).chain(started).min()
}

/// Which controller is not known to have renewed its lease since the last step of the control plane, or has given it up, in
/// one line; the leases are read until it is. `None` where each has, where none can be seen, and before the first step. Where
/// that has been so for long, this calls a person.
pub(super) fn idle(round: &mut Round<'_>) -> Option<String> {
    let now = round.world.now;
    let stepped = round.stepped?;
    // It was cut off to a whole second when it was stored: what was renewed within that second may have been before it.
    let over = after(stepped, WHOLE_SECOND);
    let begun = round.begun.unwrap_or(stepped);
    let freshness = round.world.freshness;
    // A time that lies ahead is of before somebody set the clock back, as with the steps.
    let renewed =
        |leader: &Leader| freshness.renewals.after(leader.component).filter(|at| (over..=now).contains(at));
    let silent = |leader: &&Leader| {
        let lives = after(leader.renewed, LEFT_BEHIND) > begun;
        NEEDED.contains(&leader.component) && lives && (leader.holder.is_empty() || renewed(leader).is_none())
    };
    let silent: Vec<&Leader> = round.world.cluster.leaders().iter().filter(silent).collect();
    // In the first looks of a process each of them is silent, and one that was silent for long may come last.
    let hopeless: Vec<&Leader> =
        silent.iter().copied().filter(|leader| is_hopeless(round, leader, stepped)).collect();
    let Leader { component, holder, .. } = hopeless.first().or(silent.first())?;
    read_leases(round, over, if hopeless.len() == silent.len() { EVERY } else { READ_EVERY });
    round.hope |= hopeless.is_empty();
    for leader in hopeless {
        let line = needs_a_person(leader, stepped, silent_since(leader, stepped, now));
        if !round.needs_a_person.contains(&line) {
            round.needs_a_person.push(line);
        }
    }
    Some(if holder.is_empty() {
        format!("waits until {component} works: nobody holds its lease, which its last holder gave up")
    } else {
        format!(
            "waits until {component} works: {holder} was not seen to renew its lease since the control plane was changed"
        )
    })
}

/// Whether `leader`, which was not seen to renew its lease since the step of `stepped`, was silent for so long that only a
/// person helps.
fn is_hopeless(round: &mut Round<'_>, leader: &Leader, stepped: Timestamp) -> bool {
    let since = silent_since(leader, stepped, round.world.now);
    let until = after(since, HOPE_FOR).max(after(round.world.freshness.unbroken_since, LOOKED_FOR));
    round.lasts(Lasting::ControllerIdle(leader.component), until)
}

/// Has the leases read when the step was `over`, and so often after that: a renewal between two such reads was made after the
/// step, however late a watch tells of it.
fn read_leases(round: &mut Round<'_>, over: Timestamp, every: SignedDuration) {
    let (now, read) = (round.world.now, round.world.freshness.renewals.read_at());
    // A clock that was set back says nothing of how old a read is.
    let read = read.filter(|read| *read <= now);
    let due = read.map_or(over, |read| after(read, every).max(over));
    if now < due {
        round.wake(due);
    } else if !round.actions.contains(&Action::ReadLeases) {
        round.actions.push(Action::ReadLeases);
    }
}

/// Since when nobody has worked by the lease of `leader`: since the step of the control plane, or since its last holder gave
/// it up after that.
fn silent_since(leader: &Leader, stepped: Timestamp, now: Timestamp) -> Timestamp {
    // By the holder's clock, of which a time that lies ahead says nothing.
    let given_up = Some(leader.renewed).filter(|at| leader.holder.is_empty() && *at <= now);
    given_up.map_or(stepped, |at| at.max(stepped))
}

/// What a person is told of the controller of `leader`, which has long been silent `since` then: since the step that was over
/// at `stepped`, or since it gave up its lease after that.
fn needs_a_person(leader: &Leader, stepped: Timestamp, since: Timestamp) -> String {
    let Leader { component, holder, .. } = leader;
    let lease = format!("Lease kube-system/{component}");
    let why = if holder.is_empty() {
        format!("nobody holds {lease}, which its last holder gave up")
    } else {
        format!("{holder} does not renew {lease}")
    };
    let from = if since > stepped { "" } else { " the control plane was changed at" };
    format!(
        "{component} was not seen at work since{from} {since}: {why}; bring it back, or delete the Lease if it elects no \
         leader any more"
    )
}

/// From when on the time of a drain that began in the second of `since` counts. No pod is asked to leave before the controllers
/// have taken up their work after the last step of the control plane, so that the time counts from then. Both are read from
/// the API. No drain has less than its time.
pub(super) fn counts_from(round: &Round<'_>, since: Timestamp) -> Timestamp {
    let since = after(since, WHOLE_SECOND);
    let Some(stepped) = round.stepped else { return since };
    let over = after(stepped, WHOLE_SECOND);
    // A controller whose leader changes again and again keeps no drain from its end.
    let until = round.world.now.min(after(over, HOPE_FOR));
    let needed = round.world.cluster.leaders().iter().filter(|leader| NEEDED.contains(&leader.component));
    let took_over = needed.filter_map(|leader| leader.acquired).filter(|at| over <= *at && *at <= until);
    took_over.chain([since, over]).max().unwrap_or(since)
}
