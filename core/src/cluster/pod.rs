//! A pod, as far as a decision reads it.
//!
//! Here belong plain values; what a drain does with a pod is decided in [`crate::disruption`]. What few pods have lies
//! apart, in [`Traits`], because a cluster has very many pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::name::Owner;

/// `status.phase` as far as a drain cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started; the eviction handler asks no budget for it.
    Pending,
    /// Running, or a phase that is not known here.
    Running,
    /// `Succeeded` or `Failed`: it never blocks.
    Finished,
}

/// A pod, on a node or waiting for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`: the precondition of its eviction.
    pub uid: Arc<str>,
    /// `spec.nodeName`.
    pub node: Arc<str>,
    /// `metadata.labels`, for budgets' selectors.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Its controller, if it has one; the pods of one workload share it.
    pub owner: Option<Arc<Owner>>,
    /// `status.phase`.
    pub phase: Phase,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// It carries `kubernetes.io/config.mirror`: it is a static pod's copy in the API.
    pub mirror: bool,
    /// It has a volume of type `emptyDir`, whose data an eviction destroys.
    pub empty_dir: bool,
    /// The seconds from when its kubelet took it up until it was ready; `None` while it is not ready, or when a
    /// container has started again since.
    pub ready_after: Option<u16>,
    /// What few pods have; see [`Pod::traits`].
    pub special: Option<Arc<Traits>>,
}

impl Pod {
    /// What few pods have.
    pub fn traits(&self) -> &Traits {
        self.special.as_deref().unwrap_or(Traits::NONE)
    }

    /// `metadata.deletionTimestamp`, which already contains the grace period.
    pub fn deleting(&self) -> Option<Timestamp> {
        self.traits().deleting
    }

    /// Whether it may be made anew on any node: its controller is a Deployment, or the like. A static pod and a `DaemonSet`'s come
    /// back where they were.
    pub fn roams(&self) -> bool {
        !self.mirror && self.owner.as_ref().is_some_and(|owner| *owner.kind != *"DaemonSet")
    }

    /// Whether it neither has finished nor is on its way out.
    pub fn stays(&self) -> bool {
        self.phase != Phase::Finished && self.deleting().is_none()
    }

    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A port of its node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// `hostPort`.
    pub port: u16,
    /// `protocol`: `TCP` where the pod does not say it.
    pub protocol: Arc<str>,
    /// `hostIP`; `None` for every address of the node.
    pub address: Option<Arc<str>>,
}

impl HostPort {
    /// Whether a node has not both, as the scheduler's plugin `NodePorts` has it.
    pub fn collides(&self, other: &Self) -> bool {
        let apart =
            self.address.as_ref().zip(other.address.as_ref()).is_some_and(|(own, their)| own != their);
        self.port == other.port && self.protocol == other.protocol && !apart
    }
}

/// What only some pods have, and only a drain asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the pod, read on its own")]
pub struct Traits {
    /// `metadata.deletionTimestamp`, which already contains the grace period.
    pub deleting: Option<Timestamp>,
    /// Label `evenkeel.dev/node-upgrade`: it is an executor's own pod and is not drained.
    pub executor_of: Option<Arc<str>>,
    /// Names of the `PersistentVolumeClaims` it mounts, but for its own.
    pub claims: Vec<Arc<str>>,
    /// Names of those that are made for it alone, for its generic ephemeral volumes. They go with it, so that its
    /// replacement is tied to no volume.
    pub own_claims: Vec<Arc<str>>,
    /// It mounts a directory of the node.
    pub host_path: bool,
    /// The values of `kubernetes.io/hostname` (or names of Nodes) that its node selector and affinity allow.
    pub hosts: Vec<Arc<str>>,
    /// It tolerates `node.kubernetes.io/unschedulable:NoSchedule`: a cordon does not keep it away.
    pub tolerates_cordon: bool,
    /// It must not share a node with pods of its kind (required anti-affinity on `kubernetes.io/hostname`).
    pub alone_on_host: bool,
    /// It has `topologySpreadConstraints` with `DoNotSchedule` that count cordoned nodes.
    pub spread_counts_cordoned: bool,
    /// Ports of the node it takes.
    pub host_ports: Vec<HostPort>,
    /// It has devices by `spec.resourceClaims`.
    pub device_claims: bool,
    /// Finalizers that keep the pod after its kubelet let it go. The Job controller's own is left out.
    pub finalizers: Vec<Arc<str>>,
    /// `spec.terminationGracePeriodSeconds`, where it is not [`Traits::USUAL_GRACE`].
    pub grace: Option<i64>,
    /// Annotations by which other tools were asked to leave it alone, `key=value`.
    pub opt_outs: Vec<Arc<str>>,
    /// Its priority class is one of the system's two.
    pub critical: bool,
    /// It belongs to a group that is scheduled together.
    pub gang: bool,
    /// It names eviction responders.
    pub responders: bool,
    /// Why the scheduler finds no place for it.
    pub unschedulable: Option<Arc<str>>,
    /// Why a container of it does not run: `CrashLoopBackOff`.
    pub waiting: Option<Arc<str>>,
    /// What a container of it said when it failed; of an executor's pod alone.
    pub last_words: Option<Arc<str>>,
    /// `metadata.creationTimestamp`, while it is not ready and nobody deletes it.
    pub starting_since: Option<Timestamp>,
}

impl Traits {
    /// How long a pod may take to terminate that does not say it, in seconds (`DefaultTerminationGracePeriodSeconds` of the
    /// Kubernetes API).
    pub const USUAL_GRACE: i64 = 30;

    /// The traits of a pod that has none of them.
    pub const NONE: &'static Self = &Self {
        deleting: None,
        executor_of: None,
        claims: Vec::new(),
        own_claims: Vec::new(),
        host_path: false,
        hosts: Vec::new(),
        tolerates_cordon: false,
        alone_on_host: false,
        spread_counts_cordoned: false,
        host_ports: Vec::new(),
        device_claims: false,
        finalizers: Vec::new(),
        grace: None,
        opt_outs: Vec::new(),
        critical: false,
        gang: false,
        responders: false,
        unschedulable: None,
        waiting: None,
        last_words: None,
        starting_since: None,
    };

    /// Names of all `PersistentVolumeClaims` that it mounts.
    pub fn mounted(&self) -> impl Iterator<Item = &Arc<str>> {
        self.claims.iter().chain(&self.own_claims)
    }
}
