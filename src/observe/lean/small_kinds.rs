//! The kinds that need few lines each: budgets, endpoints, volume attachments, Jobs, and custom resources of any kind.
//!
//! Here belongs which fields are kept; a kind that needs more gets a file of its own. The invariant: of a budget, a
//! number that is absent permits no eviction.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use evenkeel_core::cluster::{self, Attachment, Budget, Demand, Quantity, UnhealthyPolicy};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde::Deserialize;

use super::super::fold::Watched;
use super::super::interner::Interner;
use super::wire::{Condition, condition, meta, text, time};

/// A `PodDisruptionBudget` on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::policy::v1::PodDisruptionBudget")]
pub struct PodDisruptionBudget {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    spec: Option<BudgetSpec>,
    status: Option<BudgetStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BudgetSpec {
    selector: Option<cluster::Selector>,
    unhealthy_pod_eviction_policy: Option<String>,
    min_available: Option<IntOrPercent>,
    max_unavailable: Option<IntOrPercent>,
}

/// A number, a percentage, or something that is neither.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "its minAvailable or maxUnavailable is neither a whole number nor a text")]
enum IntOrPercent {
    Number(i32),
    Text(String),
}

impl IntOrPercent {
    fn quantity(&self) -> Option<Quantity> {
        match self {
            Self::Number(number) => Some(Quantity::Count(*number)),
            Self::Text(text) => text.strip_suffix('%')?.parse().ok().map(Quantity::Percent),
        }
    }
}

/// What a spec asks for; the controller looks at `maxUnavailable` first.
fn demand(spec: &BudgetSpec) -> Demand {
    let read = |amount: &IntOrPercent, as_: fn(Quantity) -> Demand| {
        amount.quantity().map_or(Demand::Unreadable, as_)
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(amount), _) => read(amount, Demand::MaxUnavailable),
        (None, Some(amount)) => read(amount, Demand::MinAvailable),
        (None, None) => Demand::Nothing,
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BudgetStatus {
    observed_generation: Option<i64>,
    disruptions_allowed: Option<i32>,
    current_healthy: Option<i32>,
    desired_healthy: Option<i32>,
    expected_pods: Option<i32>,
    disrupted_pods: Option<BTreeMap<String, Option<String>>>,
    conditions: Option<Vec<Condition>>,
}

/// Since when a pod is disrupted. The kube-apiserver reads `null` as Go's zero time, so it becomes a time long ago.
fn disrupted_at(since: Option<&str>) -> Option<Timestamp> {
    since.map_or(Some(Timestamp::MIN), time)
}

impl Watched for PodDisruptionBudget {
    type Kept = Arc<Budget>;

    fn keep(self, names: &mut Interner) -> Self::Kept {
        let spec = self.spec.unwrap_or_default();
        let status = self.status.unwrap_or_default();
        let closed = condition(status.conditions.as_ref(), "DisruptionAllowed")
            .filter(|found| found.status.as_deref() == Some("False"));
        let failed = closed.filter(|found| found.reason.as_deref() == Some("SyncFailed"));
        let disrupted = status.disrupted_pods.unwrap_or_default();
        let mut owners = self.metadata.owner_references.unwrap_or_default().into_iter();
        let made_by = owners.find(|owner| owner.controller == Some(true));
        Arc::new(Budget {
            demand: demand(&spec),
            disrupted: disrupted
                .iter()
                .filter_map(|(pod, since)| Some((pod.as_str().into(), disrupted_at(since.as_deref())?)))
                .collect(),
            made_by: made_by.map(|owner| format!("{} {}", owner.kind, owner.name).into()),
            namespace: names.text(self.metadata.namespace.as_deref().unwrap_or_default()),
            name: text(self.metadata.name.as_deref()),
            resource_version: text(self.metadata.resource_version.as_deref()),
            selector: spec.selector,
            generation: self.metadata.generation.unwrap_or_default(),
            observed_generation: status.observed_generation.unwrap_or_default(),
            disruptions_allowed: status.disruptions_allowed.unwrap_or_default(),
            current_healthy: status.current_healthy.unwrap_or_default(),
            desired_healthy: status.desired_healthy.unwrap_or_default(),
            expected_pods: status.expected_pods.unwrap_or_default(),
            closed_since: closed.and_then(|found| time(found.last_transition_time.as_deref()?)),
            sync_failed: failed.map(|found| text(found.message.as_deref())),
            unhealthy_policy: match spec.unhealthy_pod_eviction_policy.as_deref() {
                None | Some("IfHealthyBudget") => UnhealthyPolicy::IfHealthyBudget,
                Some("AlwaysAllow") => UnhealthyPolicy::AlwaysAllow,
                Some(_) => UnhealthyPolicy::Unrecognised,
            },
        })
    }
}

/// An `EndpointSlice` on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::discovery::v1::EndpointSlice")]
pub struct EndpointSlice {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    // Go writes `null` for both when they are empty.
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    /// IP addresses: the server accepts nothing else in a slice of `addressType` IPv4 or IPv6.
    addresses: Option<Vec<IpAddr>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
}

/// What is kept of an `EndpointSlice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointsSeen {
    /// `metadata.resourceVersion`: a new one means that something happened to an endpoint.
    pub resource_version: Arc<str>,
    /// Every address with the slice's `https` port (else its first): `192.0.2.1:6443`, `[2001:db8::1]:6443`.
    pub addresses: Box<[Arc<str>]>,
}

impl Watched for EndpointSlice {
    type Kept = EndpointsSeen;

    fn keep(self, _: &mut Interner) -> Self::Kept {
        let ports = self.ports.unwrap_or_default();
        let https = ports.iter().find(|port| port.name.as_deref() == Some("https")).or(ports.first());
        let port = https.and_then(|port| port.port).unwrap_or(443);
        let addresses = self
            .endpoints
            .unwrap_or_default()
            .into_iter()
            .flat_map(|found| found.addresses.unwrap_or_default());
        EndpointsSeen {
            resource_version: text(self.metadata.resource_version.as_deref()),
            addresses: addresses.map(|ip| SocketAddr::new(ip, port).to_string().into()).collect(),
        }
    }
}

/// A `VolumeAttachment` on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::storage::v1::VolumeAttachment")]
pub struct VolumeAttachment {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    spec: Option<AttachmentSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSpec {
    node_name: Option<String>,
    source: Option<AttachmentSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSource {
    persistent_volume_name: Option<String>,
}

impl Watched for VolumeAttachment {
    type Kept = Attachment;

    fn keep(self, names: &mut Interner) -> Self::Kept {
        let spec = self.spec.unwrap_or_default();
        let volume = spec.source.and_then(|source| source.persistent_volume_name);
        Attachment {
            node: names.text(spec.node_name.as_deref().unwrap_or_default()),
            volume: text(volume.as_deref()),
        }
    }
}

/// A Job on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::batch::v1::Job")]
pub struct Job {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    status: Option<JobStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobStatus {
    active: Option<u32>,
    succeeded: Option<u32>,
    failed: Option<u32>,
    conditions: Option<Vec<Condition>>,
}

/// What is kept of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSeen {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.labels`.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The message of condition `Complete=True`.
    pub complete: Option<Arc<str>>,
    /// The message of condition `Failed=True`.
    pub failed: Option<Arc<str>>,
    /// `status.active`: pods that are pending or run.
    pub active_pods: u32,
    /// `status.succeeded`.
    pub succeeded_pods: u32,
    /// `status.failed`: each is one attempt of the Job.
    pub failed_pods: u32,
}

impl Watched for Job {
    type Kept = Arc<JobSeen>;

    fn keep(self, names: &mut Interner) -> Self::Kept {
        let status = self.status.unwrap_or_default();
        let message = |name| {
            condition(status.conditions.as_ref(), name)
                .filter(|found| found.status.as_deref() == Some("True"))
                .map(|found| text(found.message.as_deref()))
        };
        Arc::new(JobSeen {
            namespace: names.text(self.metadata.namespace.as_deref().unwrap_or_default()),
            name: text(self.metadata.name.as_deref()),
            uid: text(self.metadata.uid.as_deref()),
            complete: message("Complete"),
            failed: message("Failed"),
            active_pods: status.active.unwrap_or_default(),
            succeeded_pods: status.succeeded.unwrap_or_default(),
            failed_pods: status.failed.unwrap_or_default(),
            labels: names.labels(self.metadata.labels.unwrap_or_default()),
        })
    }

    fn uid(kept: &Self::Kept) -> Option<&str> {
        Some(&kept.uid)
    }
}

/// Custom resources are kept undecoded, so that one that cannot be decoded is named and hides no other.
impl Watched for DynamicObject {
    type Kept = Arc<DynamicObject>;

    fn keep(mut self, _: &mut Interner) -> Self::Kept {
        self.metadata.managed_fields = None;
        Arc::new(self)
    }

    fn uid(kept: &Self::Kept) -> Option<&str> {
        kept.metadata.uid.as_deref()
    }
}
