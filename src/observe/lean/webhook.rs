//! Admission webhooks: the two kinds of configuration, of which the same is kept.
//!
//! Here belongs what matters to an upgrade: how rules match and what happens when a webhook fails. The invariant: a
//! change of anything else, such as a CA bundle, wakes nobody.

use std::sync::Arc;

use evenkeel_core::cluster::Webhook;
use evenkeel_core::version::escape;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::super::fold::Watched;
use super::super::interner::Interner;
use super::wire::meta;

/// A `ValidatingWebhookConfiguration` on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration")]
pub struct ValidatingWebhooks {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    webhooks: Option<Vec<Hook>>,
}

/// A `MutatingWebhookConfiguration` on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration")]
pub struct MutatingWebhooks {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    webhooks: Option<Vec<Hook>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Hook {
    name: Option<String>,
    match_policy: Option<String>,
    failure_policy: Option<String>,
    rules: Option<Vec<WebhookRule>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WebhookRule {
    api_groups: Option<Vec<String>>,
    api_versions: Option<Vec<String>>,
}

impl WebhookRule {
    /// Whether a new minor of Kubernetes may bring versions that it does not list. APIs of others, such as
    /// `cert-manager.io`, come with their own software.
    fn misses_versions(&self) -> bool {
        let is_of_others = |group: &String| group.contains('.') && !group.ends_with(".k8s.io");
        let groups = self.api_groups.as_deref().unwrap_or_default();
        let of_others = !groups.is_empty() && groups.iter().all(is_of_others);
        !of_others && !self.api_versions.iter().flatten().any(|version| version == "*")
    }
}

/// What is kept of a configuration.
pub type WebhooksSeen = Arc<[Webhook]>;

/// What is kept of the webhooks of one configuration. The server always writes both policies; in a file where one is
/// absent, the API's default holds.
fn kept(metadata: &ObjectMeta, hooks: Option<Vec<Hook>>, names: &mut Interner) -> WebhooksSeen {
    let configuration = names.text(metadata.name.as_deref().unwrap_or_default());
    let hooks = hooks.unwrap_or_default().into_iter();
    hooks
        .map(|hook| Webhook {
            configuration: Arc::clone(&configuration),
            // A server checks the name; a file may hold anything.
            name: escape(hook.name.as_deref().unwrap_or_default()).into(),
            exact: hook.match_policy.as_deref() == Some("Exact"),
            lists_versions: hook.rules.iter().flatten().any(WebhookRule::misses_versions),
            fails_closed: hook.failure_policy.as_deref() != Some("Ignore"),
        })
        .collect()
}

impl Watched for ValidatingWebhooks {
    type Kept = WebhooksSeen;

    fn keep(self, names: &mut Interner) -> Self::Kept {
        kept(&self.metadata, self.webhooks, names)
    }

    /// A CA bundle that is rewritten, as happens now and then, is not kept and wakes nobody.
    fn wakes(before: &Self::Kept, after: &Self::Kept) -> bool {
        before != after
    }
}

impl Watched for MutatingWebhooks {
    type Kept = WebhooksSeen;

    fn keep(self, names: &mut Interner) -> Self::Kept {
        kept(&self.metadata, self.webhooks, names)
    }

    fn wakes(before: &Self::Kept, after: &Self::Kept) -> bool {
        before != after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_of_kubernetes_itself_come_with_a_new_minor() {
        let lists = |groups: &[&str], versions: &[&str]| {
            let hooks = serde_json::json!({"metadata": {"name": "w"}, "webhooks": [
                {"name": "v", "rules": [{"apiGroups": groups, "apiVersions": versions}]}]});
            let hooks: ValidatingWebhooks = serde_json::from_value(hooks).unwrap();
            hooks.keep(&mut Interner::default())[0].lists_versions
        };
        for (groups, expected) in [
            (&[""][..], true),
            (&["apps"], true),
            (&["*"], true),
            (&[], true),
            (&["networking.k8s.io"], true),
            (&["cert-manager.io"], false),
            (&["cert-manager.io", "acme.cert-manager.io"], false),
            (&["cert-manager.io", "apps"], true),
        ] {
            assert_eq!(lists(groups, &["v1"]), expected, "{groups:?}");
            assert!(!lists(groups, &["*"]), "{groups:?}");
        }
    }
}
