//! What admission plugins of a default server do to an object on create: they add to it, or refuse it.
//!
//! Defaults, which every write gets, never belong here, nor do the rules of a kind's own validation. The invariant:
//! what an object says already stays, except for what the plugins alone decide, such as a pod's priority.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::custom;
use super::defaults::{at, items, put};
use super::kinds::Kind;
use super::state::ApiState;
use super::status::{Failure, Outcome};

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

impl ApiState {
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
