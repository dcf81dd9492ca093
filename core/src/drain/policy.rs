//! What differs between one drain and another: which pods, how long, and what then.

use jiff::SignedDuration;

use crate::disruption::Rules;

/// How long a node must have been cordoned before it is called empty. A scheduler that keeps up has seen the cordon by
/// then, and what it bound before has arrived.
pub const SETTLE: SignedDuration = SignedDuration::from_secs(5);

/// A node on which nothing can move without a person is given up after this long.
pub const STALLED: SignedDuration = SignedDuration::from_secs(30);

/// What to do with a node that is not drained in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTimeout {
    /// Leave it, and go on with the others.
    Park,
    /// Begin nothing more and ask no more pod to leave.
    Halt,
    /// Delete what is left, past its budgets, with at least a second of grace.
    Force,
}

/// How nodes are drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which pods leave, and which stay.
    pub rules: Rules,
    /// How long the drain of a node may take, from when it began; `None`: as long as it needs.
    pub timeout: Option<SignedDuration>,
    /// What happens to a node that takes longer.
    pub on_timeout: OnTimeout,
    /// A node is not called drained before it has been cordoned for so long; see [`SETTLE`].
    pub settle: SignedDuration,
    /// A node is drained only when the volumes of the pods that left are detached from it.
    pub await_volumes: bool,
}

impl Policy {
    /// That of an upgrade, whose executors' Jobs run in the namespace `executors`.
    pub fn of_upgrade(executors: &str, timeout: SignedDuration) -> Self {
        Self {
            rules: Rules::of_upgrade(executors),
            timeout: Some(timeout),
            on_timeout: OnTimeout::Park,
            settle: SETTLE,
            await_volumes: false,
        }
    }
}
