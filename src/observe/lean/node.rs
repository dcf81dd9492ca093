//! Node: its form on the wire, and what is kept of it.
//!
//! Here belongs which labels name a role or a pool; what follows from them is the core's. The invariant: the mark of a
//! cordon is kept only while the cordon is the one that it was written with, by managedFields.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_core::cluster::{self, CORDON_ANNOTATION, HOLD_ANNOTATION, OUTDATED_TAINT};
use evenkeel_core::disruption::CordonMark;
use evenkeel_core::version::{KubeVersion, Observed};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::super::fold::Watched;
use super::super::interner::{Detail, Interner};
use super::super::platform::Platform;
use super::wire::{Condition, HOSTNAME_LABEL, KUBEADM, condition, is_true, meta_and, text, time};

/// The prefix of labels that name a Node's role.
const ROLE: &str = "node-role.kubernetes.io/";

/// The labels of a control-plane node: since 1.20, before 1.20, and of RKE1.
const CONTROL_PLANE_LABELS: [&str; 3] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",
];

/// The label of a node that a member of etcd runs on, of RKE1, RKE2 and k3s. It may be the only one that names a role.
const ETCD_LABEL: &str = "node-role.kubernetes.io/etcd";

/// The label of a control-plane node and its value in old clusters (kops, `kube-up`).
const OLD_ROLE: (&str, &str) = ("kubernetes.io/role", "master");

/// What a virtual kubelet's Node is labelled with.
const VIRTUAL_LABEL: (&str, &str) = ("type", "virtual-kubelet");

/// Where the makers of node pools write the pool's name, in the order in which they are believed.
const POOL_LABELS: [&str; 10] = [
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
    "doks.digitalocean.com/node-pool",
    "lke.linode.com/pool-id",
    "node.cluster.x-k8s.io/pool",
    "pool",
];

type Labels = BTreeMap<String, String>;

/// A Node on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
pub struct Node {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta_of_node")]
    pub metadata: ObjectMeta,
    spec: Option<NodeSpec>,
    status: Option<NodeStatus>,
}

/// `metadata` without what no decision reads; of managedFields it keeps only the managers that own
/// `spec.unschedulable`.
fn meta_of_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Owner {
        manager: Option<String>,
        #[serde(rename = "fieldsV1")]
        fields: Option<Fields>,
    }
    #[derive(Deserialize)]
    struct Fields {
        #[serde(rename = "f:spec")]
        spec: Option<OfSpec>,
    }
    #[derive(Deserialize)]
    struct OfSpec {
        #[serde(rename = "f:unschedulable")]
        unschedulable: Option<IgnoredAny>,
    }
    let (mut meta, owners) = meta_and::<D, Vec<Owner>>(deserializer)?;
    let cordons = |owner: &Owner| owner.fields.as_ref()?.spec.as_ref()?.unschedulable.as_ref().map(drop);
    let owners = owners.into_iter().flatten().filter(|owner| cordons(owner).is_some());
    let owners =
        owners.map(|owner| ManagedFieldsEntry { manager: owner.manager, ..ManagedFieldsEntry::default() });
    meta.managed_fields = Some(owners.collect()).filter(|owners: &Vec<_>| !owners.is_empty());
    Ok(meta)
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeSpec {
    unschedulable: Option<bool>,
    /// As they are, because a write of one of them has to repeat the others.
    taints: Option<Vec<Value>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    addresses: Option<Vec<Address>>,
    conditions: Option<Vec<Condition>>,
    node_info: Option<NodeInfo>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    r#type: Option<String>,
    address: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: Option<String>,
    os_image: Option<String>,
}

/// What is kept of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// As decisions read it; shared with every model that was made from it.
    pub node: Arc<cluster::Node>,
    /// Its addresses of type `InternalIP` that can be parsed.
    pub internal_ips: Box<[IpAddr]>,
    /// The platform that its labels, version or system tell of; `None` of most nodes.
    pub platform: Option<Platform>,
    /// Label `kubernetes.io/hostname`, where that is not the name.
    pub hostname: Option<Box<str>>,
}

impl NodeSeen {
    /// Whether `hostname` (as a kube-apiserver's identity lease gives it) is this node's.
    pub fn is_host(&self, hostname: &str) -> bool {
        self.node.name.as_ref() == hostname || self.hostname.as_deref() == Some(hostname)
    }
}

fn is_control_plane(labels: &Labels) -> bool {
    CONTROL_PLANE_LABELS.iter().any(|label| labels.contains_key(*label)) || has(labels, OLD_ROLE)
}

fn has(labels: &Labels, (label, value): (&str, &str)) -> bool {
    labels.get(label).is_some_and(|found| found == value)
}

/// The name of the pool that is shown for a Node. OpenShift has roles instead of pools; a Node may have `worker`
/// beside another role, which is then shown.
fn pool<'a>(
    labels: &'a Labels,
    platform: Option<Platform>,
    control_plane: bool,
    kubelet: &Observed,
) -> &'a str {
    if let Some(named) = POOL_LABELS.iter().find_map(|label| labels.get(*label)) {
        return named;
    }
    if has(labels, VIRTUAL_LABEL) || kubelet.known().is_some_and(KubeVersion::is_virtual_kubelet) {
        return "virtual-kubelet";
    }
    if control_plane {
        return "control-plane";
    }
    let roles = || labels.keys().filter_map(|label| label.strip_prefix(ROLE)).filter(|role| !role.is_empty());
    match platform {
        Some(Platform::OpenShift) => roles().find(|role| *role != "worker").or_else(|| roles().next()),
        _ => None,
    }
    .unwrap_or("default")
}

/// The value of our taint among `taints`.
fn outdated_for(taints: &[Value]) -> Option<Arc<str>> {
    let ours = |taint: &&Value| taint["key"] == OUTDATED_TAINT && taint["effect"] == "PreferNoSchedule";
    Some(taints.iter().find(ours)?["value"].as_str().unwrap_or_default().into())
}

impl Watched for Node {
    type Kept = Arc<NodeSeen>;
    const LISTED_ANEW: bool = false;

    /// A Node of a busy cluster has 10 kB and more, so pages are smaller than usual.
    const PAGE: Option<u32> = Some(250);

    fn keep(self, names: &mut Interner) -> Self::Kept {
        let mut labels = self.metadata.labels.unwrap_or_default();
        let hostname = match names.detail() {
            Detail::Decisions => labels.get(HOSTNAME_LABEL).cloned(),
            Detail::Report => labels.remove(HOSTNAME_LABEL),
        };
        let hostname = hostname.filter(|hostname| self.metadata.name.as_ref() != Some(hostname));
        let annotations = self.metadata.annotations.unwrap_or_default();
        let (control_plane, etcd) = (is_control_plane(&labels), labels.contains_key(ETCD_LABEL));
        let owners = self.metadata.managed_fields.iter().flatten();
        let is_current =
            CordonMark::is_current(owners.map(|owner| owner.manager.as_deref().unwrap_or_default()));
        let mark = annotations.get(CORDON_ANNOTATION).filter(|_| is_current);
        let status = self.status.unwrap_or_default();
        let info = status.node_info.unwrap_or_default();
        let kubelet = info.kubelet_version.as_deref().unwrap_or_default();
        let os = info.os_image.as_deref().unwrap_or_default();
        let kubeadm = annotations.contains_key(KUBEADM);
        let platform = Platform::of_node(kubelet, &labels, os, kubeadm);
        let kubelet = Observed::from_report(kubelet);
        let pool = pool(&labels, platform, control_plane, &kubelet);
        let ready = condition(status.conditions.as_ref(), "Ready");
        let is_ready = is_true(status.conditions.as_ref(), "Ready");
        let internal_ips = status.addresses.unwrap_or_default().into_iter();
        let spec = self.spec.unwrap_or_default();
        // A report says nothing of taints.
        let taints = spec.taints.filter(|_| names.detail() == Detail::Decisions).unwrap_or_default();
        let outdated_for = outdated_for(&taints);
        let taints = if taints.is_empty() { String::new() } else { Value::from(taints).to_string() };
        Arc::new(NodeSeen {
            platform,
            hostname: hostname.map(String::into_boxed_str),
            internal_ips: internal_ips
                .filter(|address| address.r#type.as_deref() == Some("InternalIP"))
                .filter_map(|address| address.address?.parse().ok())
                .collect(),
            node: Arc::new(cluster::Node {
                name: text(self.metadata.name.as_deref()),
                uid: text(self.metadata.uid.as_deref()),
                resource_version: text(self.metadata.resource_version.as_deref()),
                pool: names.text(pool),
                kubelet,
                evidence: cluster::Evidence::Kubelet,
                ready: is_ready,
                heartbeat: ready.and_then(|ready| time(ready.last_heartbeat_time.as_deref()?)),
                not_ready_since: ready
                    .filter(|_| !is_ready)
                    .and_then(|ready| time(ready.last_transition_time.as_deref()?)),
                unschedulable: spec.unschedulable.unwrap_or_default(),
                cordoned_by: mark.map(|mark| mark.as_str().into()),
                held: annotations.contains_key(HOLD_ANNOTATION),
                control_plane,
                etcd,
                taints: names.text(&taints),
                outdated_for,
                labels: names.labels(labels),
            }),
        })
    }

    fn wakes(before: &Self::Kept, after: &Self::Kept) -> bool {
        let (old, new) = (&before.node, &after.node);
        let but_for_the_heartbeat =
            |node: &cluster::Node| (node.ready, node.unschedulable, node.held, node.control_plane, node.etcd);
        but_for_the_heartbeat(old) != but_for_the_heartbeat(new)
            || (&old.uid, &old.pool, &old.kubelet, &old.cordoned_by)
                != (&new.uid, &new.pool, &new.kubelet, &new.cordoned_by)
            || (&old.labels, &old.outdated_for) != (&new.labels, &new.outdated_for)
            || (&before.internal_ips, &before.hostname) != (&after.internal_ips, &after.hostname)
    }

    fn uid(kept: &Self::Kept) -> Option<&str> {
        Some(&kept.node.uid)
    }
}
