//! Real nodes: kubelet, containerd and systemd in namespaces of their own, and kubeadm that makes a cluster of them.
//!
//! Belongs here: everything that only real nodes need. Never here: the control plane of processes and simulated nodes,
//! which the rest of the crate is about. Invariants: nothing is installed on the machine and no sysctl of it changes;
//! processes, mounts, links and files die with the outer namespace, cgroups with the process that keeps it.
//!
//! Ground floor first: `machine`, `cgroups`, `archive` · `images`, `repository` · `kit` · `etc`, `inside` · `node` ·
//! `kubeadm` · `cluster` · `inner` · `keep`.

pub(crate) mod archive;
pub(crate) mod cgroups;
mod cluster;
mod etc;
mod images;
mod inner;
mod inside;
mod keep;
pub(crate) mod kit;
mod kubeadm;
mod machine;
mod node;
mod repository;

pub use cluster::{RealCluster, RealPlan, in_namespace};
pub use inner::Inner;
pub use inside::{enter, init};
pub use keep::{OWNER, check, keep};
