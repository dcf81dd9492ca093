//! A virtual Kubernetes cluster inside the process, for the tests of anything that uses `kube`.
//!
//! A [`Cluster`] is an API server behind `kube::Client`, with what runs in a cluster: controllers of workloads, budgets,
//! namespaces and garbage, a scheduler, kubelets. Its time is tokio's: on a paused runtime hours pass in seconds, and one
//! seed gives one history, byte for byte. [`faults`] say what goes wrong, with which request or which watch event.
//! Custom resources are served once their CustomResourceDefinition is created, as in a real cluster.
//!
//! ```
//! use std::time::Duration;
//! use evenkeel_sim::{Cluster, NodeGroup};
//! use k8s_openapi::api::core::v1::Node;
//! use kube::Api;
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
//! runtime.block_on(async {
//!     let cluster = Cluster::builder().seed(1).start();
//!     cluster.add_nodes(&NodeGroup::new("worker", 3));
//!     tokio::time::sleep(Duration::from_secs(30)).await;
//!     let nodes: Api<Node> = Api::all(cluster.client());
//!     nodes.cordon("worker-2").await?;
//!     let node = nodes.get("worker-2").await?;
//!     assert_eq!(node.spec.and_then(|spec| spec.unschedulable), Some(true));
//!     Ok::<_, kube::Error>(())
//! })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! What is served and done is held against a real control plane: the same cases are sent to both. This crate implements
//! budgets and evictions by itself, from what Kubernetes does, so that a program under test can be checked against it.
//!
//! The modules, from the ground floor up, are `random`, `clock`, `signal`, `program`, `labels`, `heartbeat`, `record`,
//! `by_key`, `index`, `kind_history`, `journal`, `store`, `observed_write`, `schema`, `fields` · `faults` · `api` ·
//! `models` · `cluster` · `serve` · `pace` · `crowd`. `api` uses two things of `models`: how a condition is set, and
//! which apiservers run.

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
mod by_key;
mod clock;
mod cluster;
mod crowd;
pub mod faults;
mod fields;
mod heartbeat;
mod index;
mod journal;
mod kind_history;
mod labels;
mod models;
mod observed_write;
mod pace;
mod program;
mod random;
mod record;
mod schema;
pub mod serve;
mod signal;
mod store;

pub use cluster::{Builder, Cluster, NodeGroup, Process};
pub use crowd::crowd;
pub use models::{COMPONENTS, ControlPlane, Deed, Kubelets, Times};
pub use observed_write::Write;
pub use pace::Pace;
pub use random::{Random, Spread};
pub use schema::milli;
