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
    api_versions: Option<Vec<String>>,
}

/// What is kept of a configuration.
pub type WebhooksSeen = Arc<[Webhook]>;

/// What is kept of the webhooks of one configuration. The server always writes both policies; in a file where one is
/// absent, the API's default holds.
fn kept(metadata: &ObjectMeta, hooks: Option<Vec<Hook>>, names: &mut Interner) -> WebhooksSeen {
    let configuration = names.text(metadata.name.as_deref().unwrap_or_default());
    let hooks = hooks.unwrap_or_default().into_iter();
    let lists = |rule: &WebhookRule| !rule.api_versions.iter().flatten().any(|version| version == "*");
    hooks
        .map(|hook| Webhook {
            configuration: Arc::clone(&configuration),
            // A server checks the name; a file may hold anything.
            name: escape(hook.name.as_deref().unwrap_or_default()).into(),
            exact: hook.match_policy.as_deref() == Some("Exact"),
            lists_versions: hook.rules.iter().flatten().any(lists),
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
