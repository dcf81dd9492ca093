//! The spec and status of a Pod on the wire: only the fields that a decision reads.
//!
//! Here belongs what a field says by itself, such as which hosts an affinity allows. The invariant: what may be absent
//! or null on the wire is optional here, so a pod of an older or newer server is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{HostPort, Selector, VolumeZones};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::wire::{Condition, HOSTNAME_LABEL};

const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// How the labels end by which drivers of local disks tell nodes apart: that of `TopoLVM`, two of `OpenEBS`, that of LINSTOR.
const NODES_OWN: [&str; 4] = ["/node", "/nodename", "/nodeid", "/hostname"];

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
    pub(super) volumes: Option<Vec<Volume>>,
    pub(super) containers: Option<Vec<Container>>,
    pub(super) node_selector: Option<BTreeMap<String, String>>,
    pub(super) affinity: Option<Affinity>,
    pub(super) tolerations: Option<Vec<Toleration>>,
    pub(super) topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    pub(super) termination_grace_period_seconds: Option<i64>,
    pub(super) priority_class_name: Option<String>,
    pub(super) scheduling_group: Option<IgnoredAny>,
    pub(super) resource_claims: Option<Vec<IgnoredAny>>,
    pub(super) eviction_responders: Option<Vec<IgnoredAny>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Volume {
    pub(super) name: Option<String>,
    pub(super) empty_dir: Option<IgnoredAny>,
    pub(super) host_path: Option<IgnoredAny>,
    pub(super) persistent_volume_claim: Option<PersistentVolumeClaimSource>,
    pub(super) ephemeral: Option<IgnoredAny>,
}

impl Volume {
    /// The name of the claim that Kubernetes makes for it, if it is a generic ephemeral volume of the pod `pod`.
    pub(super) fn own_claim(&self, pod: &str) -> Option<Arc<str>> {
        self.ephemeral.as_ref()?;
        Some(format!("{pod}-{}", self.name.as_deref()?).into())
    }
}

/// A container of a pod: from its spec, or from its status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in super::super) struct Container {
    pub(in super::super) name: Option<String>,
    pub(in super::super) image: Option<String>,
    /// The server takes any number here, a negative one too.
    pub(in super::super) restart_count: Option<i64>,
    /// In a status: `containerd://` and 64 digits, another one for each run.
    #[serde(rename = "containerID")]
    pub(in super::super) id: Option<String>,
    pub(in super::super) command: Option<Vec<String>>,
    pub(super) ports: Option<Vec<ContainerPort>>,
    pub(super) state: Option<ContainerState>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) phase: Option<String>,
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) init_container_statuses: Option<Vec<Container>>,
    pub(super) container_statuses: Option<Vec<Container>>,
    pub(super) start_time: Option<String>,
    #[serde(rename = "hostIP")]
    pub(super) host_ip: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PersistentVolumeClaimSource {
    pub(super) claim_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerPort {
    host_port: Option<u16>,
    protocol: Option<String>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
}

impl ContainerPort {
    /// The port of the node that it takes, if it takes one.
    pub(super) fn of_host(&self) -> Option<HostPort> {
        let address = self.host_ip.as_deref().filter(|address| !matches!(*address, "" | "0.0.0.0"));
        Some(HostPort {
            port: self.host_port.filter(|port| *port > 0)?,
            protocol: self.protocol.as_deref().filter(|of| !of.is_empty()).unwrap_or("TCP").into(),
            address: address.map(Into::into),
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    pub(super) waiting: Option<ContainerWaiting>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub(super) exit_code: i64,
    pub(super) message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerWaiting {
    pub(super) reason: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Toleration {
    pub(super) key: Option<String>,
    pub(super) operator: Option<String>,
    pub(super) value: Option<String>,
    pub(super) effect: Option<String>,
}

impl Toleration {
    /// Whether this tolerates the taint of a cordon, which has no value.
    pub(super) fn of_cordon(&self) -> bool {
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let exists = self.operator.as_deref() == Some("Exists");
        filled(&self.effect).is_none_or(|effect| effect == "NoSchedule")
            && match filled(&self.key) {
                None => exists,
                Some(key) => key == CORDON_TAINT && (exists || filled(&self.value).is_none()),
            }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TopologySpreadConstraint {
    pub(super) when_unsatisfiable: Option<String>,
    pub(super) node_taints_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Affinity {
    pub(super) node_affinity: Option<NodeAffinity>,
    pub(super) pod_anti_affinity: Option<PodAntiAffinity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct NodeAffinity {
    // A PersistentVolume calls it `required`.
    #[serde(alias = "required", rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeSelector {
    pub(super) node_selector_terms: Option<Vec<NodeSelectorTerm>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeSelectorTerm {
    pub(super) match_expressions: Option<Vec<NodeSelectorRequirement>>,
    pub(super) match_fields: Option<Vec<NodeSelectorRequirement>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSelectorRequirement {
    pub(super) key: Option<String>,
    pub(super) operator: Option<String>,
    pub(super) values: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodAntiAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<Vec<PodAffinityTerm>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodAffinityTerm {
    pub(super) topology_key: Option<String>,
    pub(super) label_selector: Option<Selector>,
}

impl NodeAffinity {
    /// The hosts that it allows, if it allows no others; else empty. One term that holds is enough, so each has to
    /// name hosts.
    pub(in super::super) fn hosts(&self) -> Vec<Arc<str>> {
        self.values(|term| {
            let by_label = values(term.match_expressions.as_ref(), |key| key == HOSTNAME_LABEL);
            by_label.or_else(|| values(term.match_fields.as_ref(), |key| key == "metadata.name"))
        })
    }

    /// The hosts on which a volume with this affinity can be mounted, if on no others; else empty. Drivers of local
    /// disks have labels of their own for a node (`topology.topolvm.io/node`).
    pub(super) fn hosts_of_volume(&self) -> Vec<Arc<str>> {
        let hosts = self.hosts();
        if !hosts.is_empty() {
            return hosts;
        }
        let is_of_node = |key: &str| NODES_OWN.iter().any(|end| key.ends_with(end));
        self.values(|term| values(term.match_expressions.as_ref(), is_of_node))
    }

    /// The zones in which a volume with this affinity can be mounted, if in no others. Drivers have labels of their own
    /// for zones (`topology.ebs.csi.aws.com/zone`). A volume of no zone has an empty value there and is tied to none.
    pub(super) fn zones_of_volume(&self) -> Option<VolumeZones> {
        let all = self.required.iter().flat_map(|terms| terms.node_selector_terms.iter().flatten());
        let mut keys = all.flat_map(|term| term.match_expressions.iter().flatten());
        let label = keys.find_map(|one| one.key.as_deref().filter(|key| key.ends_with("/zone")))?;
        let zones = self.values(|term| values(term.match_expressions.as_ref(), |key| key == label));
        let is_tied = !zones.is_empty() && zones.iter().all(|zone| !zone.is_empty());
        is_tied.then(|| VolumeZones { label: label.into(), zones })
    }

    fn values(&self, named: impl Fn(&NodeSelectorTerm) -> Option<Vec<String>>) -> Vec<Arc<str>> {
        let terms = self.required.iter().flat_map(|terms| terms.node_selector_terms.iter().flatten());
        let all: Option<Vec<Vec<String>>> = terms.map(named).collect();
        let mut values: Vec<Arc<str>> = all.into_iter().flatten().flatten().map(Into::into).collect();
        values.sort();
        values.dedup();
        values
    }
}

/// The values that a requirement with such a key allows.
fn values(list: Option<&Vec<NodeSelectorRequirement>>, is_key: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let found = list?.iter().find(|requirement| {
        requirement.key.as_deref().is_some_and(&is_key) && requirement.operator.as_deref() == Some("In")
    });
    found.and_then(|requirement| requirement.values.clone())
}
