//! Emptying one node for an upgrade: what the disruption rules say, as actions and blockers.

use super::round::Round;
use super::{Action, Blocker};
use crate::cluster::Node;
use crate::disruption::{Held, Rules, empty};

/// What is left on a node.
pub(super) struct Remaining {
    /// Pods that have to leave and have not.
    pub(super) pods: usize,
    /// Those of them that something holds back, for a person.
    pub(super) blockers: Vec<Blocker>,
}

/// Asks for every pod of `node` that may go now.
pub(super) fn evict(round: &mut Round<'_>, node: &Node) -> Remaining {
    let world = round.world;
    let rules = Rules::of_upgrade(world.executors);
    let emptying = empty(world.cluster, &node.name, &rules, world.memory, &mut round.budgets, world.now);
    round.actions.extend(emptying.permits.into_iter().map(Action::Evict));
    if let Some(at) = emptying.again_at {
        round.wake(at);
    }
    let blocker = |left: &crate::disruption::Left<'_>| {
        let Held { budget, reason, lasting } = left.wait.held()?;
        Some(Blocker { pod: left.pod.full_name(), budget, reason, lasting })
    };
    Remaining { pods: emptying.left.len(), blockers: emptying.left.iter().filter_map(blocker).collect() }
}
