//! The kinds around pods and budgets, as the API writes them, and what is kept of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{Autoscaler, FullQuota, Owner, PodWebhook, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;

use super::super::lean::{NodeAffinity, meta};
use super::Name;

#[derive(Deserialize)]
pub(super) struct Object<Spec> {
    #[serde(default, deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Option<Spec>,
}

fn text(value: Option<&String>) -> Arc<str> {
    value.map(String::as_str).unwrap_or_default().into()
}

fn owner(reference: &OwnerReference) -> Owner {
    Owner {
        api_version: reference.api_version.as_str().into(),
        kind: reference.kind.as_str().into(),
        name: reference.name.as_str().into(),
        uid: reference.uid.as_str().into(),
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WorkloadSpec {
    replicas: Option<i32>,
    pod_failure_policy: Option<FailurePolicy>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FailurePolicy {
    rules: Option<Vec<FailureRule>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FailureRule {
    action: Option<String>,
    on_pod_conditions: Option<Vec<OnCondition>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OnCondition {
    r#type: Option<String>,
}

/// A workload of `kind`; kinds that always have a scale have one replica where none is said.
pub(super) fn workload(api_version: &str, kind: &str, object: Object<WorkloadSpec>) -> Workload {
    let Object { metadata, spec } = object;
    let spec = spec.unwrap_or_default();
    let rules = spec.pod_failure_policy.and_then(|policy| policy.rules).unwrap_or_default();
    let ignores = |rule: &FailureRule| {
        rule.action.as_deref() == Some("Ignore")
            && rule
                .on_pod_conditions
                .iter()
                .flatten()
                .any(|on| on.r#type.as_deref() == Some("DisruptionTarget"))
    };
    let scaled = matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController");
    Workload {
        this: Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: text(metadata.name.as_ref()),
            uid: text(metadata.uid.as_ref()),
        },
        namespace: text(metadata.namespace.as_ref()),
        replicas: if scaled { Some(spec.replicas.unwrap_or(1)) } else { None },
        owner: metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true)).map(owner),
        ignores_disruption: rules.iter().any(ignores),
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeSpec {
    claim_ref: Option<ClaimRef>,
    node_affinity: Option<NodeAffinity>,
}

#[derive(Deserialize)]
struct ClaimRef {
    namespace: Option<String>,
    name: Option<String>,
}

/// The claim of a volume that can be mounted on some hosts only, and those.
pub(super) fn volume(object: &Object<VolumeSpec>) -> Option<(Name, Vec<Arc<str>>)> {
    let spec = object.spec.as_ref()?;
    let claim = spec.claim_ref.as_ref()?;
    let hosts = spec.node_affinity.as_ref()?.hosts();
    let claim = (claim.namespace.as_deref()?.into(), claim.name.as_deref()?.into());
    (!hosts.is_empty()).then_some((claim, hosts))
}

#[derive(Deserialize)]
pub(super) struct Quota {
    #[serde(default, deserialize_with = "meta")]
    metadata: ObjectMeta,
    status: Option<QuotaStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct QuotaStatus {
    hard: Option<BTreeMap<String, String>>,
    used: Option<BTreeMap<String, String>>,
}

/// A quota of pods that is used up.
pub(super) fn quota(object: &Quota) -> Option<FullQuota> {
    let status = object.status.as_ref()?;
    let (hard, used) = (status.hard.as_ref()?, status.used.as_ref()?);
    ["pods", "count/pods"].into_iter().find_map(|what| {
        let number = |map: &BTreeMap<String, String>| map.get(what)?.parse::<i64>().ok();
        let (hard, used) = (number(hard)?, number(used)?);
        (used >= hard).then(|| FullQuota {
            namespace: text(object.metadata.namespace.as_ref()),
            name: text(object.metadata.name.as_ref()),
            what: format!("{what} {used} of {hard}").into(),
        })
    })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ScalerSpec {
    scale_target_ref: Option<Target>,
    min_replicas: Option<i32>,
}

#[derive(Deserialize)]
struct Target {
    kind: Option<String>,
    name: Option<String>,
}

pub(super) fn autoscaler(object: &Object<ScalerSpec>) -> Option<Autoscaler> {
    let spec = object.spec.as_ref()?;
    let target = spec.scale_target_ref.as_ref()?;
    Some(Autoscaler {
        namespace: text(object.metadata.namespace.as_ref()),
        target: (target.kind.as_deref()?.into(), target.name.as_deref()?.into()),
        min_replicas: spec.min_replicas.unwrap_or(1),
    })
}

#[derive(Deserialize)]
pub(super) struct Webhooks {
    #[serde(default, deserialize_with = "meta")]
    metadata: ObjectMeta,
    webhooks: Option<Vec<Webhook>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Webhook {
    name: Option<String>,
    failure_policy: Option<String>,
    client_config: Option<ClientConfig>,
    rules: Option<Vec<Rule>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClientConfig {
    service: Option<ClaimRef>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    api_groups: Option<Vec<String>>,
    operations: Option<Vec<String>>,
    resources: Option<Vec<String>>,
}

impl Rule {
    fn covers(&self, resources: &[&str]) -> bool {
        let any = |list: &Option<Vec<String>>, wanted: &[&str]| {
            list.iter().flatten().any(|entry| wanted.contains(&entry.as_str()))
        };
        any(&self.api_groups, &["", "*"])
            && any(&self.operations, &["CREATE", "*"])
            && any(&self.resources, resources)
    }
}

/// The webhooks of a configuration that stand in the way of a drain.
pub(super) fn webhooks(object: &Webhooks) -> Vec<PodWebhook> {
    let all = object.webhooks.iter().flatten();
    let found = all.filter(|webhook| webhook.failure_policy.as_deref() != Some("Ignore")).map(|webhook| {
        let rules = || webhook.rules.iter().flatten();
        let service = webhook.client_config.as_ref().and_then(|config| config.service.as_ref());
        PodWebhook {
            name: format!("{}/{}", text(object.metadata.name.as_ref()), text(webhook.name.as_ref())).into(),
            evictions: rules().any(|rule| rule.covers(&["pods/eviction", "pods/*", "*/*", "*/eviction"])),
            creation: rules().any(|rule| rule.covers(&["pods", "*", "*/*"])),
            service: service.and_then(|s| Some((s.namespace.as_deref()?.into(), s.name.as_deref()?.into()))),
            endpoints: None,
        }
    });
    found.filter(|webhook| webhook.evictions || webhook.creation).collect()
}

#[derive(Deserialize)]
pub(super) struct Slice {
    #[serde(default, deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoint {
    node_name: Option<String>,
    conditions: Option<EndpointConditions>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndpointConditions {
    ready: Option<bool>,
}

/// The Service of a slice, and the nodes of its ready endpoints. Absent readiness means ready.
pub(super) fn endpoints(slice: &Slice) -> Option<(Name, Vec<Arc<str>>)> {
    let service = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
    let ready = |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
    let nodes = slice.endpoints.iter().flatten().filter(ready);
    let key = (text(slice.metadata.namespace.as_ref()), service.as_str().into());
    Some((key, nodes.map(|endpoint| text(endpoint.node_name.as_ref())).collect()))
}
