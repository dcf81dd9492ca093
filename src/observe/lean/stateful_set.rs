//! `StatefulSets`: how many pods each wants.
//!
//! They make their pods one after the other, so that fewer may exist than there will be; every other workload makes all of
//! its pods at once. The invariant: a scale that is absent is 1, which is the server's default.

use std::sync::Arc;

use evenkeel_core::cluster::{Owner, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::super::fold::Watched;
use super::super::interner::Interner;
use super::wire::{meta, text};

/// A `StatefulSet` on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::apps::v1::StatefulSet")]
pub struct StatefulSet {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    spec: Option<StatefulSetSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct StatefulSetSpec {
    replicas: Option<i32>,
}

impl Watched for StatefulSet {
    type Kept = Workload;

    fn keep(self, names: &mut Interner) -> Self::Kept {
        Workload {
            this: Arc::new(Owner {
                api_version: names.text("apps/v1"),
                kind: names.text("StatefulSet"),
                name: text(self.metadata.name.as_deref()),
                uid: text(self.metadata.uid.as_deref()),
            }),
            namespace: names.text(self.metadata.namespace.as_deref().unwrap_or_default()),
            replicas: Some(self.spec.and_then(|spec| spec.replicas).unwrap_or(1)),
            owner: None,
            ignores_disruption: false,
        }
    }
}
