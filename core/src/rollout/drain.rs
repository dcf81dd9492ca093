//! Emptying one node: which pods to ask for now, and what the others wait for.

use jiff::SignedDuration;

use super::round::Round;
use super::{Action, Blocker, PodMemory};
use crate::cluster::{Node, Pod};
use crate::disruption::{BudgetName, Class, class};

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
        let held = match class(pod, world.executors) {
            Class::Stay => continue,
            Class::Bare => Some(Held {
                budget: None,
                reason: "has no controller that would bring it back; move it by hand".to_owned(),
                lasting: true,
            }),
            Class::Terminating => stuck(round, pod),
            Class::Evict => ask(round, pod),
        };
        remaining.pods += 1;
        if let Some(Held { budget, reason, lasting }) = held {
            let pod = format!("{}/{}", pod.namespace, pod.name);
            remaining.blockers.push(Blocker { pod, budget, reason, lasting });
        }
    }
    remaining
}

/// What holds one pod back.
struct Held {
    budget: Option<BudgetName>,
    reason: String,
    lasting: bool,
}

fn stuck(round: &mut Round<'_>, pod: &Pod) -> Option<Held> {
    let since = pod.deleting?;
    let late = since.saturating_add(STUCK_AFTER).ok()?;
    if round.world.now < late {
        round.wake(late);
        return None;
    }
    let reason = format!("should have terminated by {since} and is still there");
    Some(Held { budget: None, reason, lasting: false })
}

fn ask(round: &mut Round<'_>, pod: &Pod) -> Option<Held> {
    let world = round.world;
    if let Some(until) = world.memory.throttled_until.filter(|until| *until > world.now) {
        round.wake(until);
        return None;
    }
    match world.memory.pods.get(&pod.uid) {
        Some(PodMemory::Sent) => return None,
        Some(PodMemory::NotBefore(until, why)) if *until > world.now => {
            round.wake(*until);
            return why.clone().map(|reason| Held { budget: None, reason, lasting: false });
        }
        _ => {}
    }
    match round.budgets.take(pod) {
        Ok(permit) => {
            round.actions.push(Action::Evict(permit));
            None
        }
        Err(refusal) if refusal.is_pacing() => None,
        Err(refusal) => Some(Held {
            budget: refusal.budget().cloned(),
            reason: refusal.to_string(),
            lasting: refusal.is_lasting(),
        }),
    }
}
