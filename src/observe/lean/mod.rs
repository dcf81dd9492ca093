//! The kinds that are watched: as the API sends them, and what is kept of each.
//!
//! Here belong field names and nothing that judges them. Every field is optional on the wire, so that an object of an
//! older or newer server is read rather than refused; what is absent becomes the value that permits least. The
//! invariant: managedFields, and annotations other than those named here, are never even parsed.

mod lease;
mod node;
mod others;
mod pod;
mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{CORDON_ANNOTATION, HOLD_ANNOTATION};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

pub use lease::{CandidateSeen, Lease, LeaseCandidate, LeaseSeen};
pub use node::{Node, NodeSeen};
pub use others::{EndpointSlice, EndpointsSeen, Job, JobSeen, PodDisruptionBudget};
pub(super) use pod::Container;
pub use pod::{EXECUTOR_LABEL, Pod, PodSeen, Runs};
pub use webhook::{MutatingWebhooks, ValidatingWebhooks, WebhooksSeen};

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Stands for any annotation that only kubeadm writes: on a Node, or on an apiserver's static pod.
const KUBEADM: &str = "kubeadm";
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// `metadata`, without what no decision reads.
fn meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        deletion_timestamp: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<Annotations>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    #[derive(Deserialize)]
    struct Annotations {
        #[serde(rename = "evenkeel.dev/cordoned-by")]
        cordoned_by: Option<String>,
        #[serde(rename = "evenkeel.dev/hold")]
        hold: Option<String>,
        #[serde(rename = "kubernetes.io/config.mirror")]
        mirror: Option<String>,
        #[serde(rename = "kubeadm.alpha.kubernetes.io/cri-socket")]
        kubeadm_node: Option<IgnoredAny>,
        #[serde(rename = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint")]
        kubeadm_server: Option<IgnoredAny>,
    }
    let meta = Meta::deserialize(deserializer)?;
    let annotations = meta.annotations.map(|found| {
        [
            (CORDON_ANNOTATION, found.cordoned_by),
            (HOLD_ANNOTATION, found.hold),
            (MIRROR_ANNOTATION, found.mirror),
            (KUBEADM, found.kubeadm_node.or(found.kubeadm_server).map(|_| String::new())),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    });
    Ok(ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        deletion_timestamp: meta.deletion_timestamp.as_deref().and_then(time).map(Time),
        labels: meta.labels,
        annotations,
        owner_references: meta.owner_references,
        ..ObjectMeta::default()
    })
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn text(value: Option<&str>) -> Arc<str> {
    value.unwrap_or_default().into()
}

/// A condition of any kind of object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    r#type: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    last_heartbeat_time: Option<String>,
}

fn condition<'a>(conditions: Option<&'a Vec<Condition>>, name: &str) -> Option<&'a Condition> {
    conditions?.iter().find(|condition| condition.r#type.as_deref() == Some(name))
}

fn is_true(conditions: Option<&Vec<Condition>>, name: &str) -> bool {
    condition(conditions, name).is_some_and(|condition| condition.status.as_deref() == Some("True"))
}

#[cfg(test)]
mod tests;
