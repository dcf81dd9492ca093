//! A running component other than a kubelet, as far as it is seen.
//!
//! Here belong plain values; how one run of it is told from the next is in `incarnation.rs`. The invariant: what is not
//! visible is `None` or left out, and is never filled in with a guess.

use std::sync::Arc;

use jiff::Timestamp;

use super::component::Component;
use super::evidence::Evidence;
use crate::version::{Effective, Observed};

/// Which kube-apiservers a component talks to. The policy compares it with exactly those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Any of them, through a load balancer or a virtual address. Also used where the reach is not known, because it
    /// allows least.
    #[default]
    Any,
    /// The one on its own node and no other.
    Local,
}

/// One running component other than a kubelet: a kube-apiserver endpoint, a static pod, a kube-proxy pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Any but a kubelet, which is a part of its [`Node`](super::Node).
    pub component: Component,
    /// What it is called in the cluster: `192.0.2.1:6443` for a kube-apiserver endpoint, else the pod's name.
    pub name: Arc<str>,
    /// The Node it runs on, when that is visible.
    pub node: Option<Arc<str>>,
    /// The version it runs, as far as seen.
    pub version: Observed,
    /// Where the version was read.
    pub evidence: Evidence,
    /// What it says it emulates (KEP-4330), where it says so: a kube-apiserver of 1.33 or later does in `/version`.
    pub effective: Option<Effective>,
    /// Which kube-apiservers it talks to.
    pub reach: Reach,
    /// What is seen of this run of the process: each [`RunMark`](super::RunMark) with its value. Compare two of them
    /// with [`Instance::replaced_since`], never for equality: a mark that is not visible at the moment is left out.
    ///
    /// It promises: where `replaced_since` is true, another process runs. After an upgrade it is true, even if
    /// neither Node nor static pod is visible: a kube-apiserver at its own address names its build, a container has
    /// an ID, a lease has a holder. It does not promise to notice a process that was only restarted, in the same
    /// version, where neither a container nor a lease of its own is visible. It promises nothing for an address that
    /// stands for several processes (a load balancer); on a self-managed control plane such an address is never
    /// [`Evidence::Endpoint`].
    pub incarnation: Arc<str>,
    /// Whether it answered `/readyz` with 200 when it was last asked (kube-apiserver), or its pod is Ready (others).
    pub ready: bool,
    /// When a kube-apiserver last answered that question at its own address, with whatever code. It is asked twice a
    /// minute while it is ready, so `ready` may be that old. `None` where nobody asks.
    pub probed: Option<Timestamp>,
}
