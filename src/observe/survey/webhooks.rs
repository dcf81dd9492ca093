//! Admission webhooks that can stop a drain, as the API writes them.
//!
//! Here belongs which webhooks are asked about evictions and new pods, and whether one is asked about its own pods. The
//! invariant: where that is not known, it is taken to be asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{PodWebhook, Selector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::super::lean::meta;
use super::placement::LabelSelector;
use super::wire::{NamespacedName, text};

/// The label of every Namespace that has its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The labels of each Namespace that was read.
pub(super) type NamespaceLabels = BTreeMap<Arc<str>, BTreeMap<String, String>>;

/// A webhook, and the namespaces that it is asked about: all, where it does not select them.
#[derive(Clone)]
pub(super) struct WebhookSeen {
    webhook: PodWebhook,
    namespaces: Option<Selector>,
}

impl WebhookSeen {
    /// The webhook with its `endpoints`. One that is not asked about its own namespace does not keep its own replacement
    /// from being created, so it is in the way of no drain by that, unless nothing answers for it already.
    pub(super) fn settled(
        &self,
        endpoints: Option<&BTreeMap<NamespacedName, Vec<Arc<str>>>>,
        labels: &NamespaceLabels,
    ) -> PodWebhook {
        let service = self.webhook.service.as_ref();
        let excludes = service.is_some_and(|(namespace, _)| self.excludes(namespace, labels));
        let all = endpoints.zip(service);
        let endpoints = all.map(|(all, service)| all.get(service).cloned().unwrap_or_default());
        let is_down = endpoints.as_ref().is_some_and(Vec::is_empty);
        PodWebhook {
            creation: self.webhook.creation && (is_down || !excludes),
            endpoints,
            ..self.webhook.clone()
        }
    }

    /// Whether it is certainly not asked about `namespace`.
    fn excludes(&self, namespace: &Arc<str>, labels: &NamespaceLabels) -> bool {
        let Some(selector) = &self.namespaces else { return false };
        let read = labels.get(namespace);
        let keys = selector.match_labels.keys();
        let mut keys = keys.chain(selector.match_expressions.iter().map(|wanted| &wanted.key));
        if read.is_none() && keys.any(|key| key != NAME_LABEL) {
            return false;
        }
        let mut labels = read.cloned().unwrap_or_default();
        labels.insert(NAME_LABEL.to_owned(), namespace.to_string());
        !selector.matches(&labels)
    }
}

#[derive(Deserialize)]
pub(super) struct Webhooks {
    #[serde(default, deserialize_with = "meta")]
    metadata: ObjectMeta,
    webhooks: Option<Vec<WebhookEntry>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WebhookEntry {
    name: Option<String>,
    failure_policy: Option<String>,
    client_config: Option<ClientConfig>,
    namespace_selector: Option<LabelSelector>,
    rules: Option<Vec<WebhookRule>>,
}

#[derive(Deserialize)]
struct ServiceRef {
    namespace: Option<String>,
    name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClientConfig {
    service: Option<ServiceRef>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WebhookRule {
    api_groups: Option<Vec<String>>,
    operations: Option<Vec<String>>,
    resources: Option<Vec<String>>,
}

impl WebhookRule {
    fn covers(&self, resources: &[&str]) -> bool {
        let any = |list: &Option<Vec<String>>, wanted: &[&str]| {
            list.iter().flatten().any(|entry| wanted.contains(&entry.as_str()))
        };
        any(&self.api_groups, &["", "*"])
            && any(&self.operations, &["CREATE", "*"])
            && any(&self.resources, resources)
    }
}

/// The webhooks of a configuration that can stop a drain: they refuse when they do not answer, and they are asked
/// about evictions or new pods.
pub(super) fn webhooks(object: &Webhooks) -> Vec<WebhookSeen> {
    let all = object.webhooks.iter().flatten();
    let found = all.filter(|webhook| webhook.failure_policy.as_deref() != Some("Ignore")).map(|webhook| {
        let rules = || webhook.rules.iter().flatten();
        let service = webhook.client_config.as_ref().and_then(|config| config.service.as_ref());
        let webhook_seen = PodWebhook {
            name: format!("{}/{}", text(object.metadata.name.as_ref()), text(webhook.name.as_ref())).into(),
            evictions: rules().any(|rule| rule.covers(&["pods/eviction", "pods/*", "*/*", "*/eviction"])),
            creation: rules().any(|rule| rule.covers(&["pods", "*", "*/*"])),
            service: service.and_then(|s| Some((s.namespace.as_deref()?.into(), s.name.as_deref()?.into()))),
            endpoints: None,
        };
        let namespaces = webhook.namespace_selector.as_ref().map(LabelSelector::read);
        WebhookSeen { webhook: webhook_seen, namespaces }
    });
    found.filter(|seen| seen.webhook.evictions || seen.webhook.creation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_asked_about_its_own_pods_unless_it_excludes_their_namespace() {
        let kyverno = |key: &str, operator: &str, value: &str| serde_json::json!({"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]});
        let label = [("team".to_owned(), "a".to_owned())].into();
        let read: NamespaceLabels = [("kyverno".into(), label)].into();
        let unread = NamespaceLabels::new();
        for (selector, labels, asked) in [
            (serde_json::json!(null), &read, true),
            (serde_json::json!({}), &read, true),
            (kyverno(NAME_LABEL, "NotIn", "kyverno"), &read, false),
            (kyverno(NAME_LABEL, "NotIn", "kyverno"), &unread, false),
            (kyverno(NAME_LABEL, "NotIn", "kube-system"), &unread, true),
            (kyverno("team", "NotIn", "a"), &read, false),
            (kyverno("team", "In", "a"), &read, true),
            (kyverno("team", "In", "b"), &unread, true),
        ] {
            let object = serde_json::json!({"metadata": {"name": "w"}, "webhooks": [{"name": "v",
                "namespaceSelector": selector, "clientConfig": {"service": {"namespace": "kyverno", "name": "svc"}},
                "rules": [{"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}]}]});
            let found = webhooks(&Webhooks::deserialize(&object).unwrap());
            assert_eq!(found[0].settled(None, labels).creation, asked, "{selector} {labels:?}");
            let with = |nodes: &[&str]| {
                let nodes = nodes.iter().map(|node| Arc::from(*node)).collect();
                let all = [(("kyverno".into(), "svc".into()), nodes)].into();
                found[0].settled(Some(&all), labels).creation
            };
            assert_eq!(with(&["n-1"]), asked, "{selector} {labels:?}");
            assert!(with(&[]), "nothing answers, so that no pod of others can be created: {selector}");
        }
    }
}
