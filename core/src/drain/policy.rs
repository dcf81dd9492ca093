//! What differs between one drain and another: which pods leave, how long it may take, and what follows when it takes
//! longer.
//!
//! Here belong the settings and the times that all drains share; what they mean for a node is in `node`. The invariant:
//! a drain of an upgrade and one that a person began go by the same values.

use jiff::SignedDuration;

use crate::disruption::{PodRule, Rules};
use crate::version::Minor;

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
pub struct DrainPolicy {
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

/// Before which changes of its kubelet a node is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainMode {
    /// Before each.
    #[default]
    Always,
    /// Before a change of the minor. Where only the patch changes, the node is cordoned and its pods stay.
    MinorOnly,
}

/// What a person wants of the drains of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainOptions {
    /// How long the drain of a node may take.
    pub timeout: SignedDuration,
    /// What happens to a node that takes longer.
    pub on_timeout: OnTimeout,
    /// Before which changes of its kubelet a node is drained.
    pub mode: DrainMode,
    /// Pods with an `emptyDir` stand in the way, because an eviction destroys its data.
    pub refuse_empty_dir: bool,
    /// Pods that nothing would bring back are evicted; otherwise they stand in the way.
    pub evict_bare: bool,
    /// A node is drained only when the volumes of the pods that left are detached from it.
    pub await_volumes: bool,
    /// What is done with some pods; the first rule that selects a pod decides.
    pub pods: Vec<PodRule>,
}

impl DrainOptions {
    /// What a person means who says no more than how long the drain of a node may take.
    pub const fn new(timeout: SignedDuration) -> Self {
        Self {
            timeout,
            on_timeout: OnTimeout::Park,
            mode: DrainMode::Always,
            refuse_empty_dir: false,
            evict_bare: false,
            await_volumes: false,
            pods: Vec::new(),
        }
    }

    /// Whether pods leave a node before its kubelet goes from one minor to another. What is not known counts as another
    /// minor.
    pub fn empties(&self, from: Option<Minor>, to: Minor) -> bool {
        self.mode == DrainMode::Always || from != Some(to)
    }

    /// Which pods leave a node, where the upgrade's executors' Jobs run in the namespace `executors`.
    pub fn rules(&self, executors: &str) -> Rules {
        Rules {
            executors: Some(executors.into()),
            evict_bare: self.evict_bare,
            refuse_empty_dir: self.refuse_empty_dir,
            pods: self.pods.clone(),
            ..Rules::default()
        }
    }

    /// How nodes are drained, where the upgrade's executors' Jobs run in the namespace `executors`.
    pub fn policy(&self, executors: &str) -> DrainPolicy {
        DrainPolicy {
            rules: self.rules(executors),
            timeout: Some(self.timeout),
            on_timeout: self.on_timeout,
            settle: SETTLE,
            await_volumes: self.await_volumes,
        }
    }
}
