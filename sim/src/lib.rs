//! A virtual Kubernetes cluster inside the process.

#![allow(
    clippy::too_many_lines,
    reason = "tables of kinds and rules in the order of the specification read best in one piece"
)]
#![allow(clippy::type_complexity, reason = "boxed streams and closures, each written once")]
#![allow(
    clippy::unused_self,
    reason = "rules of the server are methods of its state, whether or not they look at it today"
)]
#![allow(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "the field's own names for what a kind can do"
)]
#![allow(clippy::match_same_arms, reason = "one arm for each case of the specification")]

mod api;
mod clock;
mod cluster;
pub mod faults;
mod fields;
mod models;
mod random;
mod schema;
mod store;

pub use cluster::{Builder, Cluster, NodeGroup};
pub use models::{Kubelets, Times};
