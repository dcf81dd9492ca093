//! The kinds around pods and budgets, as the API writes them, and what is kept of each.
//!
//! Here belong field names and the API's defaults; what follows for a drain is the core's. Every field is optional,
//! so that an object of an older or newer server is read rather than refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{Amounts, Autoscaler, FullQuota, Owner, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::lean::meta;
use super::placement::Affinity;
use super::quantity::thousandths;

/// Namespace and name.
pub(super) type NamespacedName = (Arc<str>, Arc<str>);

#[derive(Deserialize)]
pub(super) struct Object<Spec> {
    #[serde(default, deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Option<Spec>,
}

pub(super) fn text(value: Option<&String>) -> Arc<str> {
    value.map(String::as_str).unwrap_or_default().into()
}

fn owner(reference: &OwnerReference) -> Arc<Owner> {
    Arc::new(Owner {
        api_version: reference.api_version.as_str().into(),
        kind: reference.kind.as_str().into(),
        name: reference.name.as_str().into(),
        uid: reference.uid.as_str().into(),
    })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WorkloadSpec {
    replicas: Option<i32>,
    pod_failure_policy: Option<PodFailurePolicy>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodFailurePolicy {
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
        this: Arc::new(Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: text(metadata.name.as_ref()),
            uid: text(metadata.uid.as_ref()),
        }),
        namespace: text(metadata.namespace.as_ref()),
        replicas: if scaled { Some(spec.replicas.unwrap_or(1)) } else { None },
        owner: metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true)).map(owner),
        ignores_disruption: rules.iter().any(ignores),
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RoomSpec {
    containers: Option<Vec<Asking>>,
    init_containers: Option<Vec<Asking>>,
    overhead: Option<Resources>,
    /// Those of the whole pod (KEP-2837), which count instead of its containers'.
    resources: Option<Requests>,
    pub(super) node_selector: Option<BTreeMap<String, String>>,
    pub(super) affinity: Option<Affinity>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Asking {
    resources: Option<Requests>,
    restart_policy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requests {
    requests: Option<Resources>,
}

#[derive(Default, Deserialize)]
struct Resources(BTreeMap<String, ResourceAmount>);

/// An amount of a resource. The API writes it as text; a file that a person wrote may hold a number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an amount of a resource in it is neither a number nor a text")]
enum ResourceAmount {
    Text(String),
    Number(serde_json::Number),
}

impl Resources {
    fn amounts(&self) -> Amounts {
        let of = |(resource, amount): (&String, &ResourceAmount)| {
            let amount = match amount {
                ResourceAmount::Text(text) => thousandths(text),
                ResourceAmount::Number(number) => thousandths(&number.to_string()),
            };
            (Arc::from(resource.as_str()), amount.unwrap_or(0))
        };
        self.0.iter().map(of).collect()
    }
}

impl Asking {
    fn amounts(&self) -> Amounts {
        let requests = self.resources.as_ref().and_then(|of| of.requests.as_ref());
        requests.map(Resources::amounts).unwrap_or_default()
    }
}

/// What a pod requests of its node (`PodRequests` of `k8s.io/component-helpers/resource`). It is the larger of two
/// amounts: all containers and sidecars together, or the most that one init container needs beside the sidecars
/// before it. Requests of the pod as a whole replace that amount, resource by resource. The overhead is added.
pub(super) fn requests(spec: &RoomSpec) -> Amounts {
    let (mut sidecars, mut begins) = (Amounts::default(), Amounts::default());
    for container in spec.init_containers.iter().flatten() {
        let mut beside = sidecars.clone();
        beside.add(&container.amounts());
        begins.raise(&beside);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = beside;
        }
    }
    let mut all = sidecars;
    spec.containers.iter().flatten().for_each(|container| all.add(&container.amounts()));
    all.raise(&begins);
    if let Some(own) = spec.resources.as_ref().and_then(|of| of.requests.as_ref()) {
        own.amounts().iter().for_each(|(resource, amount)| all.set(Arc::clone(resource), amount));
    }
    if let Some(overhead) = &spec.overhead {
        all.add(&overhead.amounts());
    }
    all
}

#[derive(Deserialize)]
pub(super) struct Offering {
    #[serde(default, deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    status: Option<OfferingStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OfferingStatus {
    allocatable: Option<Resources>,
}

/// What a node offers; `None` if it does not say.
pub(super) fn offers(node: &Offering) -> Option<Amounts> {
    Some(node.status.as_ref()?.allocatable.as_ref()?.amounts())
}

#[derive(Deserialize)]
pub(super) struct Quota {
    #[serde(default, deserialize_with = "meta")]
    metadata: ObjectMeta,
    spec: Option<QuotaSpec>,
    status: Option<QuotaStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct QuotaSpec {
    scopes: Option<Vec<IgnoredAny>>,
    scope_selector: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct QuotaStatus {
    hard: Option<BTreeMap<String, String>>,
    used: Option<BTreeMap<String, String>>,
}

/// A `ResourceQuota` that limits pods and is used up; `None` for any other. One with scopes is about some pods only, and
/// which those are is not looked for.
pub(super) fn quota(object: &Quota) -> Option<FullQuota> {
    let has_scopes = |spec: &QuotaSpec| {
        spec.scope_selector.is_some() || spec.scopes.as_ref().is_some_and(|all| !all.is_empty())
    };
    if object.spec.as_ref().is_some_and(has_scopes) {
        return None;
    }
    let status = object.status.as_ref()?;
    let (hard, used) = (status.hard.as_ref()?, status.used.as_ref()?);
    ["pods", "count/pods"].into_iter().find_map(|what| {
        let (hard, used) = (hard.get(what)?, used.get(what)?);
        (thousandths(used)? >= thousandths(hard)?).then(|| FullQuota {
            namespace: text(object.metadata.namespace.as_ref()),
            name: text(object.metadata.name.as_ref()),
            what: format!("{what} {used} of {hard}").into(),
        })
    })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ScalerSpec {
    scale_target_ref: Option<ScaleTarget>,
    min_replicas: Option<i32>,
}

#[derive(Deserialize)]
struct ScaleTarget {
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

/// The Service of a slice, and the nodes of its ready endpoints. An endpoint that does not say whether it is ready
/// is ready.
pub(super) fn endpoints(slice: &Slice) -> Option<(NamespacedName, Vec<Arc<str>>)> {
    let service = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
    let ready = |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
    let nodes = slice.endpoints.iter().flatten().filter(ready);
    let key = (text(slice.metadata.namespace.as_ref()), service.as_str().into());
    Some((key, nodes.map(|endpoint| text(endpoint.node_name.as_ref())).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_full_for_every_pod_or_is_not_told() {
        let told = |hard: &str, used: &str, spec: serde_json::Value| {
            let object = serde_json::json!({"metadata": {"name": "q", "namespace": "shop"}, "spec": spec,
                "status": {"hard": {"pods": hard}, "used": {"pods": used}}});
            quota(&Quota::deserialize(object).unwrap()).map(|full| full.what.to_string())
        };
        let none = || serde_json::json!({});
        assert_eq!(told("10", "10", none()).as_deref(), Some("pods 10 of 10"));
        assert_eq!(told("10", "9", none()), None);
        assert_eq!(told("1k", "1k", none()).as_deref(), Some("pods 1k of 1k"));
        assert_eq!(told("1k", "999", none()), None);
        assert_eq!(told("2", "2", serde_json::json!({"scopes": ["Terminating"]})), None);
        assert_eq!(told("2", "2", serde_json::json!({"scopeSelector": {"matchExpressions": []}})), None);
        assert_eq!(told("2", "2", serde_json::json!({"scopes": []})).as_deref(), Some("pods 2 of 2"));
    }

    fn requested(spec: &serde_json::Value) -> (i64, i64) {
        let amounts = requests(&RoomSpec::deserialize(spec).unwrap());
        (amounts.of("cpu"), amounts.of("memory") / 1000)
    }

    #[test]
    fn a_pod_requests_the_most_it_needs_at_any_time() {
        let of = |cpu: &str| serde_json::json!({"resources": {"requests": {"cpu": cpu, "memory": "1Ki"}}});
        let sidecar = |cpu: &str| {
            let mut sidecar = of(cpu);
            sidecar["restartPolicy"] = "Always".into();
            sidecar
        };
        let pod = |init: &[serde_json::Value]| serde_json::json!({"containers": [of("1"), of("500m")], "initContainers": init});
        assert_eq!(requested(&pod(&[])), (1500, 2048));
        assert_eq!(requested(&pod(&[of("1"), of("2")])), (2000, 2048), "one after the other");
        assert_eq!(requested(&pod(&[sidecar("100m"), of("1")])), (1600, 3072), "beside the containers");
        assert_eq!(requested(&pod(&[sidecar("100m"), of("2")])), (2100, 3072), "beside what begins");
        let mut whole = pod(&[]);
        whole["resources"] = serde_json::json!({"requests": {"cpu": 2}});
        whole["overhead"] = serde_json::json!({"cpu": "10m", "memory": "1Ki"});
        assert_eq!(requested(&whole), (2010, 3072), "of the whole pod, and its overhead");
        assert_eq!(requested(&serde_json::json!({})), (0, 0));
    }
}
