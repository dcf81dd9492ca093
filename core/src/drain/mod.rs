//! A node's way from schedulable to empty, and several nodes at once.
//!
//! [`NodeDrain`] takes one cordoned node a step further, [`Batch`] says which nodes may be open at the same time,
//! [`DrainPolicy`] is what differs between one drain and another. The command `evenkeel drain` ([`decide`]) and the
//! rollout both stand on them; nothing else empties a node. What a single pod may do is decided in
//! [`crate::disruption`]. The invariants: pods are asked to leave only while their node is seen cordoned; a node is
//! called empty only when it was empty after the settling time; and two open nodes never wait for each other's pods.

mod batch;
mod conditions;
mod deleted;
mod emptying;
mod in_line;
mod node;
mod not_drained;
mod policy;
mod refused_patches;
mod request;
mod unseen;
mod volumes;

pub use batch::{Batch, NotAdmitted};
pub use conditions::DrainConditions;
pub use emptying::{Emptying, PodHeld, PodLeft, PodWait, ask_pods, first_wait, pods_held, pods_left};
pub use in_line::InLine;
pub use node::{DrainAsks, DrainStep, DrainView, Forced, GivenUp, NodeDrain, yields};
pub use not_drained::NotDrained;
pub use policy::{DrainMode, DrainOptions, DrainPolicy, OnTimeout, SETTLE, STALLED};
pub use refused_patches::RefusedPatches;
pub use request::{
    DrainAction, DrainDecision, DrainRequest, DrainWorld, NodeState, TOGETHER, decide, refusal,
};
pub use unseen::DrainUnseen;
