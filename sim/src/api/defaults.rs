//! What the server fills in at every write: the defaults of each built-in kind.
//!
//! What depends on another object, on chance or on the time never belongs here, nor does what only a new object gets;
//! both are in `admission`. The invariant: an object that is filled in once more stays as it is.

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use crate::schema::milli;

/// Sets a field, unless it is there.
pub(super) fn put(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry(name).or_insert_with(|| value.into());
    }
}

/// The object in this field, which is made if the field holds none.
pub(super) fn at<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    if !object[name].is_object() {
        object[name] = json!({});
    }
    &mut object[name]
}

pub(super) fn items<'a>(object: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The defaults of a built-in kind.
pub(crate) fn fill(kind: &Kind, object: &mut Value, minor: u32) {
    if kind.custom.is_some() {
        return;
    }
    match kind.kind.as_str() {
        "Pod" => pod(object),
        "Deployment" => deployment(at(object, "spec")),
        "PodTemplate" => template(at(object, "template")),
        "ReplicaSet" => replica_set(at(object, "spec")),
        "ReplicationController" => replication_controller(object),
        "HorizontalPodAutoscaler" => autoscaler(at(object, "spec")),
        "StatefulSet" => stateful_set(at(object, "spec"), minor),
        "DaemonSet" => daemon_set(object),
        "Job" => job(object),
        "Namespace" => namespace(object),
        "PersistentVolume" => volume(object),
        "PersistentVolumeClaim" => volume_claim(object),
        "Secret" => put(object, "type", "Opaque"),
        "Node" => node(object),
        "Service" => service(at(object, "spec")),
        "EndpointSlice" => endpoint_slice(object),
        "PriorityClass" => put(object, "preemptionPolicy", "PreemptLowerPriority"),
        "StorageClass" => storage_class(object),
        "ValidatingWebhookConfiguration" => webhooks(object, false),
        "MutatingWebhookConfiguration" => webhooks(object, true),
        "CustomResourceDefinition" => definition(object),
        _ => {}
    }
}

fn deployment(spec: &mut Value) {
    put(spec, "replicas", 1);
    put(spec, "revisionHistoryLimit", 10);
    put(spec, "progressDeadlineSeconds", 600);
    let strategy = at(spec, "strategy");
    put(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = at(strategy, "rollingUpdate");
        put(rolling, "maxUnavailable", "25%");
        put(rolling, "maxSurge", "25%");
    }
    template(&mut spec["template"]);
}

fn replica_set(spec: &mut Value) {
    put(spec, "replicas", 1);
    template(&mut spec["template"]);
}

fn replication_controller(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        for (part, field) in [("spec", "selector"), ("metadata", "labels")] {
            if at(object, part)[field].as_object().is_none_or(Map::is_empty) {
                object[part][field] = labels.clone();
            }
        }
    }
    replica_set(at(object, "spec"));
}

fn stateful_set(spec: &mut Value, minor: u32) {
    put(spec, "replicas", 1);
    put(spec, "revisionHistoryLimit", 10);
    put(spec, "podManagementPolicy", "OrderedReady");
    let strategy = at(spec, "updateStrategy");
    put(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        put(at(strategy, "rollingUpdate"), "partition", 0);
        if minor >= 37 {
            put(at(strategy, "rollingUpdate"), "maxUnavailable", 1);
        }
    }
    let retention = at(spec, "persistentVolumeClaimRetentionPolicy");
    put(retention, "whenDeleted", "Retain");
    put(retention, "whenScaled", "Retain");
    template(&mut spec["template"]);
}

fn daemon_set(object: &mut Value) {
    let spec = at(object, "spec");
    put(spec, "revisionHistoryLimit", 10);
    let strategy = at(spec, "updateStrategy");
    put(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = at(strategy, "rollingUpdate");
        put(rolling, "maxUnavailable", 1);
        put(rolling, "maxSurge", 0);
    }
    let annotations = at(at(object, "metadata"), "annotations");
    put(annotations, "deprecated.daemonset.template.generation", "1");
    template(&mut object["spec"]["template"]);
}

fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    at(at(object, "metadata"), "labels")["kubernetes.io/metadata.name"] = name;
    put(at(object, "status"), "phase", "Active");
}

fn volume(object: &mut Value) {
    put(at(object, "spec"), "persistentVolumeReclaimPolicy", "Retain");
    put(&mut object["spec"], "volumeMode", "Filesystem");
    put(at(object, "status"), "phase", "Pending");
}

fn volume_claim(object: &mut Value) {
    put(at(object, "spec"), "volumeMode", "Filesystem");
    put(at(object, "status"), "phase", "Pending");
}

fn service(spec: &mut Value) {
    put(spec, "type", "ClusterIP");
    put(spec, "sessionAffinity", "None");
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        put(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        put(spec, "allocateLoadBalancerNodePorts", true);
    }
    if kind != "ExternalName" {
        put(spec, "internalTrafficPolicy", "Cluster");
    }
    for port in items(spec, "ports") {
        put(port, "protocol", "TCP");
        if port["targetPort"].is_null() || port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
}

fn endpoint_slice(object: &mut Value) {
    for port in items(object, "ports") {
        put(port, "name", "");
        put(port, "protocol", "TCP");
    }
}

fn storage_class(object: &mut Value) {
    put(object, "reclaimPolicy", "Delete");
    put(object, "volumeBindingMode", "Immediate");
}

fn webhooks(object: &mut Value, mutating: bool) {
    for webhook in items(object, "webhooks") {
        put(webhook, "failurePolicy", "Fail");
        put(webhook, "matchPolicy", "Equivalent");
        put(webhook, "namespaceSelector", json!({}));
        put(webhook, "objectSelector", json!({}));
        put(webhook, "timeoutSeconds", 10);
        if mutating {
            put(webhook, "reinvocationPolicy", "Never");
        }
        if webhook["clientConfig"]["service"].is_object() {
            put(&mut webhook["clientConfig"]["service"], "port", 443);
        }
        for rule in items(webhook, "rules") {
            put(rule, "scope", "*");
        }
    }
}

fn autoscaler(spec: &mut Value) {
    put(spec, "minReplicas", 1);
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        spec["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    }
    if spec["behavior"].is_object() {
        let up = at(&mut spec["behavior"], "scaleUp");
        put(up, "stabilizationWindowSeconds", 0);
        put(up, "selectPolicy", "Max");
        put(
            up,
            "policies",
            json!([{"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15}]),
        );
        let down = at(&mut spec["behavior"], "scaleDown");
        put(down, "selectPolicy", "Max");
        put(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}

fn definition(object: &mut Value) {
    let spec = at(object, "spec");
    put(at(spec, "conversion"), "strategy", "None");
    let names = at(spec, "names");
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    put(names, "singular", kind.to_lowercase());
    put(names, "listKind", format!("{kind}List"));
}

fn job(object: &mut Value) {
    let spec = at(object, "spec");
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        put(spec, "completions", 1);
    }
    put(spec, "parallelism", 1);
    put(spec, "backoffLimit", 6);
    put(spec, "completionMode", "NonIndexed");
    put(spec, "suspend", false);
    put(spec, "manualSelector", false);
    put(spec, "podReplacementPolicy", "TerminatingOrFailed");
    template(&mut spec["template"]);
}

fn node(object: &mut Value) {
    let status = at(object, "status");
    let capacity = status["capacity"].clone();
    if capacity.is_object() && status["allocatable"].is_null() {
        status["allocatable"] = capacity;
    }
    let endpoints = at(status, "daemonEndpoints");
    put(at(endpoints, "kubeletEndpoint"), "Port", 0);
    let blank = [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ];
    let info = at(status, "nodeInfo");
    for name in blank {
        put(info, name, "");
    }
}

/// A pod template.
fn template(object: &mut Value) {
    if object.is_object() {
        pod_spec(at(object, "spec"));
    }
}

fn pod(object: &mut Value) {
    let spec = at(object, "spec");
    put(spec, "enableServiceLinks", true);
    pod_spec(spec);
    // Only a pod, not a template: limits are also requests.
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            let limits = container["resources"]["limits"].clone();
            for (name, limit) in limits.as_object().into_iter().flatten() {
                put(at(&mut container["resources"], "requests"), name, limit.clone());
            }
        }
    }
    let class = quality(&object["spec"]);
    let status = at(object, "status");
    put(status, "phase", "Pending");
    put(status, "qosClass", class);
}

fn pod_spec(spec: &mut Value) {
    put(spec, "restartPolicy", "Always");
    put(spec, "terminationGracePeriodSeconds", 30);
    put(spec, "dnsPolicy", "ClusterFirst");
    put(spec, "securityContext", json!({}));
    put(spec, "schedulerName", "default-scheduler");
    if let Some(account) = spec.get("serviceAccountName").or(spec.get("serviceAccount")).cloned() {
        put(spec, "serviceAccountName", account.clone());
        put(spec, "serviceAccount", account);
    }
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            put(container, "resources", json!({}));
            put(container, "terminationMessagePath", "/dev/termination-log");
            put(container, "terminationMessagePolicy", "File");
            let image = container["image"].as_str().unwrap_or_default();
            let tag = image.rsplit('/').next().unwrap_or_default();
            let latest = !image.contains('@') && (!tag.contains(':') || tag.ends_with(":latest"));
            put(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
            for port in items(container, "ports") {
                put(port, "protocol", "TCP");
            }
            for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
                if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
                    put(probe, "timeoutSeconds", 1);
                    put(probe, "periodSeconds", 10);
                    put(probe, "successThreshold", 1);
                    put(probe, "failureThreshold", 3);
                    if probe["httpGet"].is_object() {
                        put(&mut probe["httpGet"], "scheme", "HTTP");
                        put(&mut probe["httpGet"], "path", "/");
                    }
                }
            }
        }
    }
    for volume in items(spec, "volumes") {
        for source in ["configMap", "secret", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(source).filter(|source| source.is_object()) {
                put(source, "defaultMode", 420);
            }
        }
        if let Some(path) = volume.get_mut("hostPath").filter(|path| path.is_object()) {
            put(path, "type", "");
        }
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`.
fn quality(spec: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    for container in
        spec["containers"].as_array().into_iter().chain(spec["initContainers"].as_array()).flatten()
    {
        let amount = |of: &str, name: &str| {
            container["resources"][of][name].as_str().and_then(milli).filter(|amount| *amount > 0)
        };
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount("requests", name), amount("limits", name));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
