//! What the server fills in: defaults of each built-in kind, and what its admission plugins add.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::status::{Failure, Outcome};
use super::{State, custom};
use crate::schema::milli;

/// Sets a field, unless it is there.
fn put(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry(name).or_insert_with(|| value.into());
    }
}

/// The object in this field, which is made if the field holds none.
fn at<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    if !object[name].is_object() {
        object[name] = json!({});
    }
    &mut object[name]
}

fn items<'a>(object: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The defaults of a built-in kind.
pub(crate) fn fill(kind: &Kind, object: &mut Value, minor: u32) {
    if kind.custom.is_some() {
        return;
    }
    match kind.kind.as_str() {
        "Pod" => pod(object),
        "Deployment" => {
            let spec = at(object, "spec");
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
        "PodTemplate" => template(at(object, "template")),
        "ReplicaSet" => {
            let spec = at(object, "spec");
            put(spec, "replicas", 1);
            template(&mut spec["template"]);
        }
        "ReplicationController" => {
            let labels = object["spec"]["template"]["metadata"]["labels"].clone();
            if labels.is_object() {
                for (part, field) in [("spec", "selector"), ("metadata", "labels")] {
                    if at(object, part)[field].as_object().is_none_or(Map::is_empty) {
                        object[part][field] = labels.clone();
                    }
                }
            }
            let spec = at(object, "spec");
            put(spec, "replicas", 1);
            template(&mut spec["template"]);
        }
        "HorizontalPodAutoscaler" => autoscaler(at(object, "spec")),
        "StatefulSet" => {
            let spec = at(object, "spec");
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
        "DaemonSet" => {
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
        "Job" => job(object),
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            at(at(object, "metadata"), "labels")["kubernetes.io/metadata.name"] = name;
            put(at(object, "status"), "phase", "Active");
        }
        "PersistentVolume" => {
            put(at(object, "spec"), "persistentVolumeReclaimPolicy", "Retain");
            put(&mut object["spec"], "volumeMode", "Filesystem");
            put(at(object, "status"), "phase", "Pending");
        }
        "PersistentVolumeClaim" => {
            put(at(object, "spec"), "volumeMode", "Filesystem");
            put(at(object, "status"), "phase", "Pending");
        }
        "Secret" => put(object, "type", "Opaque"),
        "Node" => node(object),
        "Service" => {
            let spec = at(object, "spec");
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
        "EndpointSlice" => {
            for port in items(object, "ports") {
                put(port, "name", "");
                put(port, "protocol", "TCP");
            }
        }
        "PriorityClass" => put(object, "preemptionPolicy", "PreemptLowerPriority"),
        "StorageClass" => {
            put(object, "reclaimPolicy", "Delete");
            put(object, "volumeBindingMode", "Immediate");
        }
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let mutating = kind.kind.starts_with('M');
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
        "CustomResourceDefinition" => definition(object),
        _ => {}
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

/// The labels and the selector by which a job knows its pods.
fn job_selector(object: &mut Value) {
    let uid = object["metadata"]["uid"].clone();
    let name = object["metadata"]["name"].clone();
    let spec = at(object, "spec");
    if spec["manualSelector"] == false && spec["selector"].is_null() && uid.is_string() {
        spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        let metadata = at(at(spec, "template"), "metadata");
        let labels = at(metadata, "labels");
        for prefix in ["", "batch.kubernetes.io/"] {
            labels[format!("{prefix}controller-uid")] = uid.clone();
            labels[format!("{prefix}job-name")] = name.clone();
        }
    }
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if object["metadata"]["labels"].as_object().is_none_or(Map::is_empty) && labels.is_object() {
        object["metadata"]["labels"] = labels;
    }
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

impl State {
    /// What admission plugins of a default server do on create.
    pub(crate) fn admit(&mut self, kind: &Arc<Kind>, object: &mut Value) -> Outcome<()> {
        if kind.custom.is_some() {
            return Ok(());
        }
        match kind.kind.as_str() {
            "Pod" => self.admit_pod(object),
            "Service" => {
                self.admit_service(object);
                Ok(())
            }
            "Job" => {
                job_selector(object);
                Ok(())
            }
            "Namespace" => {
                put(at(object, "spec"), "finalizers", json!(["kubernetes"]));
                Ok(())
            }
            "CustomResourceDefinition" => {
                let now = self.now();
                custom::established(object, &now);
                Ok(())
            }
            "Node" => {
                // A node is not ready until its kubelet says so.
                let taints =
                    at(object, "spec").get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
                let key = "node.kubernetes.io/not-ready";
                if !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == "NoSchedule") {
                    let mut taints = taints;
                    taints.push(json!({"key": key, "effect": "NoSchedule"}));
                    object["spec"]["taints"] = taints.into();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn admit_pod(&mut self, object: &mut Value) -> Outcome<()> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let mirror = object["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some();
        if !mirror {
            self.service_account(object, &namespace)?;
        }
        self.say_where(object);
        let spec = at(object, "spec");
        let class = spec["priorityClassName"].as_str().map(str::to_owned);
        let (priority, preempts) = match class.as_deref() {
            None => (0, "PreemptLowerPriority".to_owned()),
            Some("system-node-critical") => (2_000_001_000, "PreemptLowerPriority".to_owned()),
            Some("system-cluster-critical") => (2_000_000_000, "PreemptLowerPriority".to_owned()),
            Some(name) => {
                if let Some(class) = self.store.get("priorityclasses.scheduling.k8s.io", name) {
                    let class = class.value();
                    let policy =
                        class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority").to_owned();
                    (class["value"].as_i64().unwrap_or(0), policy)
                } else {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let why = format!("no PriorityClass with name {} was found", class.unwrap_or_default());
                    return Err(Failure::forbidden(
                        super::status::Named { group: "", kind: "pods", name },
                        why,
                    ));
                }
            }
        };
        spec["priority"] = priority.into();
        put(spec, "preemptionPolicy", preempts);
        let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            let tolerated = tolerations.iter().any(|toleration| {
                let for_key = toleration["key"].as_str().is_none_or(|found| found == key);
                for_key && toleration["effect"].as_str().is_none_or(|effect| effect == "NoExecute")
            });
            if !tolerated {
                tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
        spec["tolerations"] = tolerations.into();
        Ok(())
    }

    fn service_account(&mut self, object: &mut Value, namespace: &str) -> Outcome<()> {
        let pod = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let spec = at(object, "spec");
        put(spec, "serviceAccountName", "default");
        let account = spec["serviceAccountName"].as_str().unwrap_or_default().to_owned();
        put(spec, "serviceAccount", account.clone());
        let found = self.store.get("serviceaccounts", &format!("{namespace}/{account}"));
        if found.is_none() {
            let named = super::status::Named { group: "", kind: "pods", name: &pod };
            let why = format!(
                "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
            );
            return Err(Failure::forbidden(named, why));
        }
        let automatic = spec["automountServiceAccountToken"]
            .as_bool()
            .or_else(|| found.and_then(|found| found.value()["automountServiceAccountToken"].as_bool()));
        if automatic == Some(false) {
            return Ok(());
        }
        let path = "/var/run/secrets/kubernetes.io/serviceaccount";
        let mounted = |container: &Value| {
            container["volumeMounts"].as_array().into_iter().flatten().any(|mount| mount["mountPath"] == path)
        };
        let lists = ["initContainers", "containers"];
        let all = lists.iter().flat_map(|list| spec[*list].as_array().into_iter().flatten()).all(mounted);
        if all {
            return Ok(());
        }
        let name = format!("kube-api-access-{}", self.random.suffix(5));
        for list in lists {
            for container in items(spec, list).filter(|container| !mounted(container)) {
                let mount = json!({"name": name, "readOnly": true, "mountPath": path});
                match container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
                    Some(mounts) => mounts.push(mount),
                    None => container["volumeMounts"] = json!([mount]),
                }
            }
        }
        let volume = json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}});
        match spec.get_mut("volumes").and_then(Value::as_array_mut) {
            Some(volumes) => volumes.push(volume),
            None => spec["volumes"] = json!([volume]),
        }
        Ok(())
    }
}
