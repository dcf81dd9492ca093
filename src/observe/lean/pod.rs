//! Pod: what is kept of it. Its form on the wire is in `pod_spec`, what few pods have in `pod_traits`.
//!
//! Here belongs how one pod is read; how a component shows in labels and images is in `components::image`. The
//! invariant: only a pod of kube-system is taken for a component.

use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_core::cluster::{self, Component, Phase, RunMark};
use evenkeel_core::version::Observed;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::super::components::image::image_of;
use super::super::fold::Watched;
use super::super::interner::Interner;
use super::pod_spec::{Container, PodSpec, PodStatus};
use super::pod_traits::traits;
use super::wire::{KUBEADM, MIRROR_ANNOTATION, condition, is_true, meta, text};

/// A Pod on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
pub struct Pod {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    spec: Option<PodSpec>,
    status: Option<PodStatus>,
}

/// What is kept of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// The pod as decisions read it; its node is empty while it is not bound.
    pub pod: Arc<cluster::Pod>,
    /// What it runs, if it is a pod of kube-system that runs a component of the skew policy.
    pub runs: Option<Box<Runs>>,
}

/// A component in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// By the labels and the image of its container.
    pub component: Component,
    /// Its version, by the tag of its image.
    pub version: Observed,
    /// What tells this run of the component from its other runs.
    pub mark: (RunMark, Box<str>),
    /// `status.hostIP`.
    pub host_ip: Option<IpAddr>,
    /// It is a static pod that kubeadm made.
    pub kubeadm: bool,
}

/// What tells this run of `component` from its other runs: the ID of its container; where that has none, the UID of
/// its pod and the number of restarts. For a kube-proxy it is always the latter: nobody waits for one to be
/// replaced, and there are as many as Nodes.
fn mark_of(component: Component, pod: Option<&str>, container: Option<&Container>) -> (RunMark, Box<str>) {
    /// As many digits of a container's ID as tools show.
    const SHOWN: usize = 12;
    let id = container.and_then(|container| container.id.as_deref()).and_then(|id| id.split("://").last());
    if let Some(id) = id.filter(|id| !id.is_empty() && component != Component::KubeProxy) {
        return (RunMark::Container, id.chars().take(SHOWN).collect());
    }
    let restarts = container.and_then(|container| container.restart_count).unwrap_or_default();
    (RunMark::Pod, format!("{}/{restarts}", pod.unwrap_or_default()).into())
}

/// Seconds that a Deployment gives its pods to be ready if nothing else is said (`progressDeadlineSeconds`). A pod whose
/// condition is younger was ready before, lost that, and is ready again: after its node was away, say.
const LONGEST_START: u16 = 600;

/// How many seconds after its start the pod became ready; `None` if it is not ready, or a container of it restarted.
fn ready_after(status: &PodStatus) -> Option<u16> {
    let ready =
        condition(status.conditions.as_ref(), "Ready").filter(|of| of.status.as_deref() == Some("True"))?;
    let mut containers = status.container_statuses.iter().flatten();
    if containers.any(|container| container.restart_count.unwrap_or_default() > 0) {
        return None;
    }
    let time = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
    let took = time(&ready.last_transition_time)?.duration_since(time(&status.start_time)?);
    u16::try_from(took.as_secs()).ok().filter(|seconds| *seconds <= LONGEST_START)
}

impl Watched for Pod {
    type Kept = PodSeen;
    const LISTED_ANEW: bool = false;

    fn keep(self, names: &mut Interner) -> Self::Kept {
        let spec = self.spec.unwrap_or_default();
        let status = self.status.unwrap_or_default();
        let ready_after = ready_after(&status);
        let special = traits(&self.metadata, &spec, &status).map(|traits| names.traits(traits));
        let labels = self.metadata.labels.unwrap_or_default();
        let annotations = self.metadata.annotations.unwrap_or_default();
        let mirror = annotations.contains_key(MIRROR_ANNOTATION);
        let namespace = names.text(self.metadata.namespace.as_deref().unwrap_or_default());
        let statuses = status.container_statuses.unwrap_or_default();
        let what = || image_of(&labels, mirror, &spec.containers.unwrap_or_default(), &statuses);
        let runs = (namespace.as_ref() == "kube-system").then(what).flatten();
        let runs = runs.map(|(component, version, container)| {
            Box::new(Runs {
                component,
                version,
                mark: mark_of(component, self.metadata.uid.as_deref(), container),
                host_ip: status.host_ip.and_then(|ip| ip.parse().ok()),
                kubeadm: annotations.contains_key(KUBEADM),
            })
        });
        let owner = self
            .metadata
            .owner_references
            .unwrap_or_default()
            .into_iter()
            .find(|owner| owner.controller == Some(true));
        let pod = cluster::Pod {
            namespace,
            name: text(self.metadata.name.as_deref()),
            uid: text(self.metadata.uid.as_deref()),
            node: names.text(spec.node_name.as_deref().unwrap_or_default()),
            owner: owner.map(|owner| names.owner(&owner)),
            phase: match status.phase.as_deref() {
                Some("Pending") => Phase::Pending,
                Some("Succeeded" | "Failed") => Phase::Finished,
                _ => Phase::Running,
            },
            ready: is_true(status.conditions.as_ref(), "Ready"),
            mirror,
            empty_dir: spec.volumes.unwrap_or_default().iter().any(|volume| volume.empty_dir.is_some()),
            ready_after,
            special,
            labels: names.labels(labels),
        };
        PodSeen { pod: Arc::new(pod), runs }
    }

    fn wakes(before: &Self::Kept, after: &Self::Kept) -> bool {
        before != after
    }

    fn named(kept: &mut Self::Kept, name: &Arc<str>) {
        if let Some(pod) = Arc::get_mut(&mut kept.pod) {
            pod.name = Arc::clone(name);
        }
    }

    fn uid(kept: &Self::Kept) -> Option<&str> {
        Some(&kept.pod.uid)
    }
}
