//! Evenkeel: what watches a Kubernetes cluster and acts on it, around the decisions of `evenkeel-core`.
//!
//! Everything that touches a network, a clock or a terminal lives in this package; no rule does. A module uses only
//! modules above it in this list.
//!
//! * [`api`]: the custom resources; schema, printer columns, and the way between them and the core's values.
//! * [`clock`]: what time it is, where a decision depends on it.
//! * [`clients`]: the Kubernetes clients, and how their errors are told.
//! * [`observe`]: one watch per kind folded into lean types, kube-apiserver probing, component discovery, the model.
//! * `judgement`: the one judgement of a cluster, for the operator's report and the command line.
//! * [`act`]: the core's actions as API writes with preconditions, and the leadership that they need.
//! * `drive`: the loop that the operator's upgrades and a drain share.
//! * [`operator`]: the controllers, health and metrics endpoints, logs, shutdown.
//! * `demo` (cargo feature `sim`): a virtual cluster inside this process, with the operator running on it.
//! * [`cli`]: arguments and what a person reads.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod act;
pub mod api;
pub mod cli;
pub mod clients;
pub mod clock;
#[cfg(feature = "sim")]
pub mod demo;
mod drive;
mod judgement;
pub mod observe;
pub mod operator;
