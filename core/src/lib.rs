//! Every decision Evenkeel makes, as pure functions over values.
//!
//! Nothing here knows a Kubernetes client, an async runtime, a clock or randomness; `Cargo.toml` is what keeps it so.
//! The operator, the command line and the tests call the same functions: there is one implementation of each rule. The
//! list begins with the ground floor; a module uses only modules above it in this list.
//!
//! * [`text`]: text that others wrote, made safe to show.
//! * `time`: sums of moments and lengths of time.
//! * [`version`]: what a version string means, and when none is known.
//! * [`cluster`]: the model everything is decided from; made complete and sorted, then changed object by object.
//! * [`skew`]: the Kubernetes version skew policy as data, and the judgement of a cluster by it.
//! * [`disruption`]: which pods a drain moves, what a PodDisruptionBudget allows, what an eviction's answer means.
//! * [`drain`]: one node's way from schedulable to empty, and several at once.
//! * [`upgrade`]: what a person wants, and how far it is.
//! * [`plan`]: what an upgrade will do, in which order, and what stands in its way before it starts.
//! * [`rollout`]: the upgrade state machine: `decide(planned, upgrade, progress, world)`.
//! * [`lease`]: who leads, by client-go's timing rules.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod cluster;
pub mod disruption;
pub mod drain;
#[cfg(test)]
mod fixture;
pub mod lease;
pub mod plan;
pub mod rollout;
pub mod skew;
pub mod text;
mod time;
#[cfg(test)]
mod toy;
pub mod upgrade;
pub mod version;
