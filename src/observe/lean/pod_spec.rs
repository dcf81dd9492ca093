//! The spec and status of a Pod on the wire: only the fields that a decision reads.
//!
//! Here belongs what a field says by itself, such as which hosts an affinity allows. The invariant: what may be absent
//! or null on the wire is optional here, so a pod of an older or newer server is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::Selector;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::wire::{Condition, HOSTNAME_LABEL};

const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

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
    pub(super) host_port: Option<u16>,
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

    /// The zones that it allows, if it allows no others; else empty. Volume drivers have labels of their own for the
    /// same zones (`topology.ebs.csi.aws.com/zone`).
    pub(in super::super) fn zones(&self) -> Vec<Arc<str>> {
        self.values(|term| values(term.match_expressions.as_ref(), |key| key.ends_with("/zone")))
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
