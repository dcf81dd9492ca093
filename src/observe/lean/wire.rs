//! What several kinds have in common on the wire: metadata without what no decision reads, and conditions.
//!
//! The invariant: annotations that are not named here are never parsed; of managedFields only the managers that own
//! a Node's `spec.unschedulable` are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{CORDON_ANNOTATION, HOLD_ANNOTATION};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

pub(super) const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// The key that stands for any annotation that only kubeadm writes, on a Node or on a kube-apiserver's static pod.
pub(super) const KUBEADM: &str = "kubeadm";
/// Annotations by which other tools are asked to leave a pod alone.
pub(super) const OPT_OUTS: [&str; 3] = [
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
];
/// Annotation on the identity lease of a kube-apiserver: `192.0.2.1:6443`, by which its peers find it.
pub(super) const PEER_ADDRESS: &str = "kubernetes.io/peer-advertise-address";
pub(super) const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// `metadata`, without what no decision reads.
pub(in super::super) fn meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    meta_and::<D, IgnoredAny>(deserializer).map(|(meta, _)| meta)
}

/// The same, and `metadata.managedFields` read as `M`.
pub(super) fn meta_and<'de, D, M>(deserializer: D) -> Result<(ObjectMeta, Option<M>), D::Error>
where
    D: Deserializer<'de>,
    M: Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta<M> {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<String>,
        deletion_timestamp: Option<String>,
        finalizers: Option<Vec<String>>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<Annotations>,
        owner_references: Option<Vec<OwnerReference>>,
        managed_fields: Option<M>,
    }
    #[derive(Deserialize)]
    struct Annotations {
        #[serde(rename = "evenkeel.dev/cordoned-by")]
        cordoned_by: Option<String>,
        #[serde(rename = "evenkeel.dev/hold")]
        hold: Option<String>,
        #[serde(rename = "kubernetes.io/config.mirror")]
        mirror: Option<String>,
        #[serde(rename = "kubernetes.io/peer-advertise-address")]
        peer_address: Option<String>,
        #[serde(rename = "kubeadm.alpha.kubernetes.io/cri-socket")]
        kubeadm_node: Option<IgnoredAny>,
        #[serde(rename = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint")]
        kubeadm_server: Option<IgnoredAny>,
        #[serde(rename = "karpenter.sh/do-not-disrupt")]
        do_not_disrupt: Option<String>,
        #[serde(rename = "cluster-autoscaler.kubernetes.io/safe-to-evict")]
        safe_to_evict: Option<String>,
        #[serde(rename = "descheduler.alpha.kubernetes.io/prefer-no-eviction")]
        prefer_no_eviction: Option<String>,
    }
    let meta = Meta::deserialize(deserializer)?;
    let annotations = meta.annotations.map(|found| {
        [
            (CORDON_ANNOTATION, found.cordoned_by),
            (HOLD_ANNOTATION, found.hold),
            (MIRROR_ANNOTATION, found.mirror),
            (PEER_ADDRESS, found.peer_address),
            (KUBEADM, found.kubeadm_node.or(found.kubeadm_server).map(|_| String::new())),
            (OPT_OUTS[0], found.do_not_disrupt),
            (OPT_OUTS[1], found.safe_to_evict),
            (OPT_OUTS[2], found.prefer_no_eviction),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    });
    let managed_fields = meta.managed_fields;
    let meta = ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        finalizers: meta.finalizers.filter(|finalizers| !finalizers.is_empty()),
        creation_timestamp: meta.creation_timestamp.as_deref().and_then(time).map(Time),
        deletion_timestamp: meta.deletion_timestamp.as_deref().and_then(time).map(Time),
        labels: meta.labels,
        annotations,
        owner_references: meta.owner_references,
        ..ObjectMeta::default()
    };
    Ok((meta, managed_fields))
}

pub(super) fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

pub(super) fn text(value: Option<&str>) -> Arc<str> {
    value.unwrap_or_default().into()
}

/// A condition of any kind of object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    pub(super) r#type: Option<String>,
    pub(super) status: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) last_heartbeat_time: Option<String>,
    pub(super) last_transition_time: Option<String>,
}

pub(super) fn condition<'a>(conditions: Option<&'a Vec<Condition>>, name: &str) -> Option<&'a Condition> {
    conditions?.iter().find(|condition| condition.r#type.as_deref() == Some(name))
}

pub(super) fn is_true(conditions: Option<&Vec<Condition>>, name: &str) -> bool {
    condition(conditions, name).is_some_and(|condition| condition.status.as_deref() == Some("True"))
}
