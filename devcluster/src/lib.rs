//! A real Kubernetes control plane for development and tests, without Docker.
//!
//! etcd, one to three kube-apiservers of chosen minors, kube-controller-manager, kube-scheduler and KWOK's
//! simulated nodes, built from their published Go modules, run in a private network and process namespace. It
//! knows Kubernetes and nothing of the program that is tested on it: that dependency would make a test agree
//! with what it tests.
//!
//! ```no_run
//! use evenkeel_devcluster::{Cluster, NodeGroup, TestResult, V1_36, V1_37, in_namespace};
//!
//! #[test]
//! fn an_apiserver_can_be_upgraded() -> TestResult {
//!     in_namespace("an_apiserver_can_be_upgraded", async || {
//!         let cluster = Cluster::builder()
//!             .apiservers(&[V1_36, V1_36, V1_36])
//!             .nodes(NodeGroup::workers(6).zones(["a", "b", "c"]).kubelet("v1.36.4").pool("general"))
//!             .start()
//!             .await?;
//!         cluster.apiserver(0).swap(V1_37).await?;
//!         let version = cluster.apiserver(0).client().await?.apiserver_version().await?;
//!         assert_eq!(version.git_version, V1_37.version());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Ground floor first: `error`, `wait`, `digest`, `release`, `net`, `proc` · `binary` · `assets`, `debian`, `build`, `namespace`, `process`, `pki`,
//! `clients`, `audit`, `balancer` · `role`, `static_pods`, `nodes`, `kubelets`, `backstage` · `component` · `cluster`,
//! `drive` · `session`, `control` · `real` · `lab`.

#![allow(clippy::missing_errors_doc, reason = "an `Error` says itself what happened and what to do next")]

mod assets;
mod audit;
mod backstage;
mod balancer;
mod binary;
mod build;
mod clients;
mod cluster;
mod component;
pub mod control;
mod debian;
mod digest;
mod drive;
mod error;
mod kubelets;
pub mod lab;
mod namespace;
mod net;
mod nodes;
mod pki;
mod proc;
mod process;
pub mod real;
mod release;
mod role;
pub mod session;
mod static_pods;
mod wait;

pub use assets::cache_dir;
pub use audit::{AuditEntry, HARNESS};
pub use binary::{Binary, Plugin};
pub use build::{build, build_real};
pub use cluster::{Builder, Cluster};
pub use drive::Handle;
pub use error::{Error, Failure, Result, TestResult};
pub use namespace::{enter, in_namespace};
pub use nodes::NodeGroup;
pub use release::{Release, V1_35, V1_36, V1_37};
pub use role::Role;
