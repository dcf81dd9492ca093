//! `EndpointSlices`: where the pods of a Service are.
//!
//! Here belongs one slice for each Service that selects pods; nothing sends traffic by it.

use serde_json::{Value, json};

use super::model::{Model, ModelStep};
use super::objects::{leaving, owned_by};
use crate::api::ApiState;
use crate::labels::LabelSelector;
use crate::store::Change;

/// The EndpointSlice controller; one slice for each Service.
pub(super) struct Endpoints;

const SLICES: &str = "endpointslices.discovery.k8s.io";

impl Model for Endpoints {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String> {
        match resource {
            "services" => vec![change.record.key.to_string()],
            "pods" => {
                let services = state.store.within("services", change.record.namespace());
                services
                    .filter(|service| {
                        let selector = service.selector.as_ref();
                        selector.is_some_and(|selector| selector.matches(&change.record.labels))
                    })
                    .map(|service| service.key.to_string())
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, key: &str, world: &mut ModelStep<'_>) {
        let Some(service) = world.get("services", key) else { return };
        if service["spec"]["selector"].as_object().is_none_or(serde_json::Map::is_empty) {
            return;
        }
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let selector = LabelSelector::map(&service["spec"]["selector"]);
        let mut endpoints = Vec::new();
        for record in world.state.store.labeled_pods(namespace, &selector) {
            let pod = record.value();
            let Some(address) = pod["status"]["podIP"].as_str() else { continue };
            if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
                continue;
            }
            let (ready, terminating) = (crate::record::ready(&pod), leaving(&pod));
            endpoints.push(json!({
                "addresses": [address], "nodeName": pod["spec"]["nodeName"],
                "conditions": {"ready": ready && !terminating, "serving": ready, "terminating": terminating},
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": record.name(), "uid": &*record.uid},
            }));
        }
        let ports: Vec<Value> = service["spec"]["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| json!({"name": port["name"].as_str().unwrap_or_default(), "port": port["targetPort"].as_i64(), "protocol": port["protocol"]}))
            .collect();
        let found = world
            .list(SLICES, namespace)
            .into_iter()
            .find(|slice| slice.labels.get("kubernetes.io/service-name").is_some_and(|of| of == name));
        let _ = if let Some(slice) = found {
            world.change(SLICES, &slice.key, false, |slice| {
                slice["endpoints"] = endpoints.into();
                slice["ports"] = ports.into();
            })
        } else {
            let labels = json!({"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
            let slice = json!({"metadata": {"generateName": format!("{name}-"), "labels": labels, "ownerReferences": owned_by(&service)},
                "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
            world.create(SLICES, Some(namespace), slice).map(drop)
        };
    }
}
