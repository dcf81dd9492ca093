//! What stands around pods and budgets: their controllers, volumes, webhooks, quotas.
//!
//! Each reader reads only what it needs: an operator that drives upgrades reads volumes, where they are attached, and of
//! workloads the `StatefulSets` alone, which make their pods one after the other; a drain reads volumes and `StatefulSets`
//! only where they matter to one of its pods, and attachments only with `--wait-for-volumes`; `evenkeel preflight` and
//! `evenkeel plan` read everything but attachments. So each list is `None` where it was not read. The invariant: a controller
//! that is missing from a list that was read does not exist; of a list that was not read, nothing is concluded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::capacity::Capacity;
use super::name::{NamespacedName, Owner};
use super::placement::Placement;

/// What was read of a pod's and a budget's surroundings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Everything that may control pods: Deployments, `ReplicaSets`, `StatefulSets`, Jobs, and kinds not known here.
    pub workloads: Option<Workloads>,
    /// Namespace and name of each `PersistentVolumeClaim` whose volume can be mounted on some nodes only, and the
    /// values of `kubernetes.io/hostname` that its affinity allows.
    pub volumes: Option<BTreeMap<NamespacedName, Vec<Arc<str>>>>,
    /// Namespaces that are terminating.
    pub terminating: Option<Vec<Arc<str>>>,
    /// Fail-closed webhooks that see evictions, or the creation of pods.
    pub pod_webhooks: Option<Vec<PodWebhook>>,
    /// `ResourceQuotas` with no room for one more pod.
    pub full_quotas: Option<Vec<FullQuota>>,
    /// `HorizontalPodAutoscalers`: what each scales, and how far down it may go.
    pub autoscalers: Option<Vec<Autoscaler>>,
    /// What pods request and nodes offer.
    pub capacity: Option<Capacity>,
    /// What pods ask of their nodes, by the pod's UID; those that ask for nothing are not in it.
    pub placements: Option<BTreeMap<Arc<str>, Arc<Placement>>>,
    /// The claim that each `PersistentVolume` is bound to, by the volume's name.
    pub claims: Option<BTreeMap<Arc<str>, NamespacedName>>,
    /// Volumes that are attached to nodes, or about to be, or being detached.
    pub attached: Option<BTreeSet<Attachment>>,
}

/// Something that controls pods, and its scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The object itself, as a pod's owner reference would name it.
    pub this: Arc<Owner>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `spec.replicas`, where its kind has a scale.
    pub replicas: Option<i32>,
    /// What controls it in turn: a `ReplicaSet`'s Deployment.
    pub owner: Option<Arc<Owner>>,
    /// A Job that does not count a disrupted pod as a failure (`podFailurePolicy` on `DisruptionTarget`).
    pub ignores_disruption: bool,
}

/// Workloads by namespace, kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workloads {
    /// By name and kind.
    by_name: BTreeMap<(NamespacedName, Arc<str>), Workload>,
    kinds: BTreeSet<Arc<str>>,
}

impl FromIterator<Workload> for Workloads {
    fn from_iter<I: IntoIterator<Item = Workload>>(workloads: I) -> Self {
        let mut all = Self::default();
        for workload in workloads {
            let Owner { kind, name, .. } = workload.this.as_ref();
            all.kinds.insert(Arc::clone(kind));
            let name = (Arc::clone(&workload.namespace), Arc::clone(name));
            all.by_name.insert((name, Arc::clone(kind)), workload);
        }
        all
    }
}

impl Workloads {
    /// The one of `owner`'s kind, group and name in `namespace`, of whatever UID.
    fn find(&self, namespace: &Arc<str>, owner: &Owner) -> Option<&Workload> {
        let name = (Arc::clone(namespace), Arc::clone(&owner.name));
        self.by_name.get(&(name, Arc::clone(&owner.kind))).filter(|found| group(&found.this) == group(owner))
    }
}

fn group(owner: &Owner) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// A `VolumeAttachment`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attachment {
    /// `spec.nodeName`.
    pub node: Arc<str>,
    /// The `PersistentVolume`; empty for an inline volume, which is written into the pod.
    pub volume: Arc<str>,
}

/// A webhook with `failurePolicy: Fail` in the way of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWebhook {
    /// The name of its configuration, and its own name in it.
    pub name: Arc<str>,
    /// It is asked about evictions.
    pub evictions: bool,
    /// It is asked about pods that are created.
    pub creation: bool,
    /// Namespace and name of the Service that answers for it, if one does.
    pub service: Option<(Arc<str>, Arc<str>)>,
    /// The nodes of that Service's ready endpoints; `None` where they were not read.
    pub endpoints: Option<Vec<Arc<str>>>,
}

/// A quota that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullQuota {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// What is used up: `pods 10 of 10`.
    pub what: Arc<str>,
}

/// A `HorizontalPodAutoscaler`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autoscaler {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// Kind and name of what it scales.
    pub target: (Arc<str>, Arc<str>),
    /// `spec.minReplicas`.
    pub min_replicas: i32,
}

/// How many pods something wants, as the disruption controller would learn it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The UID of the object whose scale counts (for a Deployment's pods, the Deployment), and its replicas.
    Of(Arc<str>, i32),
    /// Its kind has no scale.
    None,
    /// It does not exist, or only another object of the same name does.
    Gone,
    /// Nothing was read that could say.
    Unknown,
}

impl Surroundings {
    /// The scale behind `owner`, the controller of a pod in `namespace`.
    ///
    /// A kind of which nothing was read at all is unknown: files often hold some kinds only. Source: the finders of
    /// `pkg/controller/disruption/disruption.go`: `ReplicationController`, Deployment (through its `ReplicaSet`),
    /// `ReplicaSet`, `StatefulSet`, then whatever has a `scale` subresource.
    pub fn scale(&self, namespace: &Arc<str>, owner: &Owner) -> Scale {
        // These kinds never have a scale, whatever was read.
        let kind = (group(owner), owner.kind.as_ref());
        if matches!(kind, ("apps", "DaemonSet") | ("batch", "Job" | "CronJob") | ("", "Node" | "Pod")) {
            return Scale::None;
        }
        let Some(workloads) = self.workloads.as_ref().filter(|read| read.kinds.contains(&owner.kind)) else {
            return Scale::Unknown;
        };
        let Some(found) = workloads.find(namespace, owner).filter(|found| found.this.uid == owner.uid) else {
            return Scale::Gone;
        };
        let deployment = found
            .owner
            .as_ref()
            .filter(|above| found.this.kind.as_ref() == "ReplicaSet" && above.kind.as_ref() == "Deployment");
        let counted = match deployment {
            // A Deployment that is gone leaves its ReplicaSet, which the generic lookup then finds.
            Some(above) => match workloads.find(namespace, above) {
                Some(deployment) if deployment.this.uid == above.uid => deployment,
                None if !workloads.kinds.contains(&above.kind) => return Scale::Unknown,
                _ => found,
            },
            None => found,
        };
        match counted.replicas {
            Some(replicas) => Scale::Of(Arc::clone(&counted.this.uid), replicas),
            None => Scale::None,
        }
    }

    /// The workload that `owner` names, if it was read.
    pub fn workload(&self, namespace: &Arc<str>, owner: &Owner) -> Option<&Workload> {
        self.workloads.as_ref()?.find(namespace, owner).filter(|found| found.this.uid == owner.uid)
    }

    /// Whether the controller that `owner` names is known not to exist.
    pub fn is_gone(&self, namespace: &Arc<str>, owner: &Owner) -> bool {
        let read = self.workloads.as_ref().is_some_and(|read| read.kinds.contains(&owner.kind));
        read && self.workload(namespace, owner).is_none()
    }
}
