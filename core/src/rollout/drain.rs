//! Emptying one node: which pods to ask for now, and what the others wait for.

use jiff::SignedDuration;

use super::decide::Round;
use super::{Action, Blocker, PodMemory};
use crate::cluster::{Node, Pod};
use crate::disruption::{Class, class};

/// What is left on a node.
pub(super) struct Remaining {
    /// Pods that have to leave and have not.
    pub(super) pods: usize,
    /// Those of them that something holds back, for a person.
    pub(super) blockers: Vec<Blocker>,
}

/// How long past the end of its grace period a pod is called stuck rather than terminating.
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Asks for every pod of `node` that may go now.
pub(super) fn evict(round: &mut Round<'_>, node: &Node) -> Remaining {
    let world = round.world;
    let mut remaining = Remaining { pods: 0, blockers: Vec::new() };
    for pod in world.cluster.pods_on(&node.name) {
        let reason = match class(pod, world.executors) {
            Class::Stay => continue,
            Class::Bare => {
                Some((None, "has no controller that would bring it back; move it by hand".to_owned()))
            }
            Class::Terminating => stuck(round, pod).map(|reason| (None, reason)),
            Class::Evict => ask(round, pod),
        };
        remaining.pods += 1;
        if let Some((budget, reason)) = reason {
            let pod = format!("{}/{}", pod.namespace, pod.name);
            remaining.blockers.push(Blocker { pod, budget, reason });
        }
    }
    remaining
}

type Held = Option<(Option<crate::disruption::BudgetName>, String)>;

fn stuck(round: &mut Round<'_>, pod: &Pod) -> Option<String> {
    let since = pod.deleting?;
    let late = since.saturating_add(STUCK_AFTER).ok()?;
    if round.world.now < late {
        round.wake(late);
        return None;
    }
    Some(format!("should have terminated by {since} and is still there"))
}

fn ask(round: &mut Round<'_>, pod: &Pod) -> Held {
    let world = round.world;
    if let Some(until) = world.memory.throttled_until.filter(|until| *until > world.now) {
        round.wake(until);
        return None;
    }
    match world.memory.pods.get(&pod.uid) {
        Some(PodMemory::Sent) => return None,
        Some(PodMemory::NotBefore(until, why)) if *until > world.now => {
            round.wake(*until);
            return why.clone().map(|why| (None, why));
        }
        _ => {}
    }
    match round.budgets.take(pod) {
        Ok(permit) => {
            round.actions.push(Action::Evict(permit));
            None
        }
        Err(refusal) if refusal.is_pacing() => None,
        Err(refusal) => Some((refusal.budget().cloned(), refusal.to_string())),
    }
}
