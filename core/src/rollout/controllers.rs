//! Whether the controllers are at work again after a step of the control plane, so that pods that leave are replaced and
//! budgets are counted.
//!
//! Here belongs only what their leases tell. The invariant: after a step that restarted static pods no pod is asked to
//! leave, and no node is taken up, before every needed controller whose lease can be seen has renewed it.

use jiff::{SignedDuration, Timestamp};

use super::claim::{Claim, ClaimState};
use super::control_plane_whole::settles;
use super::round::{Round, after};
use crate::cluster::{Cluster, Component, Leader};

/// Without these, pods that leave are not replaced, and budgets are not counted.
const NEEDED: [Component; 2] = [Component::KubeControllerManager, Component::KubeScheduler];
/// A holder renews its lease every two seconds.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(2);
/// A server stores times in whole seconds.
const WHOLE_SECOND: SignedDuration = SignedDuration::from_secs(1);
/// A lease that was last renewed so long before the upgrade began was left behind by a controller that elects no leader.
const LEFT_BEHIND: SignedDuration = SignedDuration::from_hours(1);
/// A controller that is silent for so long after a step does not come back by itself, as far as anybody can say.
const HOPE_FOR: SignedDuration = SignedDuration::from_mins(15);

/// Whether `claim` restarted static pods of the control plane: its components, or the kubelet of a node of it.
fn is_step(cluster: &Cluster, claim: &Claim) -> bool {
    !claim.is_of_kubelet() || cluster.node(&claim.subject.node).is_some_and(|node| node.control_plane)
}

/// Which controller has not renewed its lease since the last step of the control plane, in one line. `None` where each has,
/// where none can be seen, and before the first step.
pub(super) fn idle(round: &mut Round<'_>) -> Option<String> {
    let (cluster, now) = (round.world.cluster, round.world.now);
    // A new kubelet has begun its static pods anew when their time is over, also where its claim is not done by then.
    let ended = |claim: &&Claim| match claim.state {
        ClaimState::Upgraded { at } if is_step(cluster, claim) => Some(at),
        _ => settles(claim),
    };
    // A time that lies ahead was written before somebody set a clock back, and says nothing.
    let stepped: Timestamp = round.mine.iter().filter_map(ended).filter(|at| *at <= now).max()?;
    // It was cut off to a whole second when it was stored: what was renewed within that second may have been before it.
    let over = after(stepped, WHOLE_SECOND);
    let begun = round.mine.iter().filter_map(|claim| claim.created).min().unwrap_or(stepped);
    let silent = |leader: &&Leader| {
        let lives = after(leader.renewed, LEFT_BEHIND) > begun;
        let renewed = round.world.freshness.renewals.after(leader.component);
        NEEDED.contains(&leader.component) && lives && renewed.is_none_or(|at| at < over)
    };
    let leader = cluster.leaders().iter().find(silent)?;
    let Leader { component, holder, .. } = leader;
    let line = match round.world.freshness.renewals.after(*component) {
        Some(_) => format!(
            "waits until {component} works: {holder} has not renewed its lease since the control plane was changed"
        ),
        None if holder.is_empty() => {
            format!("waits until {component} works: nobody holds its lease, which its last holder gave up")
        }
        // Whoever leads anew has not looked for long enough to say that it is silent.
        None => format!("looks whether {component} works: waits until {holder} renews its lease"),
    };
    let hopeless = after(stepped, HOPE_FOR);
    round.hope |= now < hopeless;
    round.wake(after(now, LOOK_AGAIN));
    Some(line)
}
