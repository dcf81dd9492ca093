//! The admission webhooks that the next minor is asked about.
//!
//! Here belongs what a new API version depends on; webhooks that see evictions and pods are in `surroundings.rs`.

use std::sync::Arc;

/// An admission webhook, as far as it may stand in the way of a new minor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Webhook {
    /// The `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
    pub configuration: Arc<str>,
    /// The webhook's name in that configuration.
    pub name: Arc<str>,
    /// `matchPolicy: Exact`: it sees only the API versions that its rules list.
    pub exact: bool,
    /// Some rule of it lists API versions of Kubernetes instead of `*`.
    pub lists_versions: bool,
    /// `failurePolicy: Fail`: what it cannot answer is refused.
    pub fails_closed: bool,
}
