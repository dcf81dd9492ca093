//! A watch of a kind that a cluster may not serve, such as one behind a feature gate.
//!
//! Whether the kind is served is asked at the start and then every ten minutes until it is; only then is it watched.
//! The invariant: a kind that is not served does not count as missing.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::{Api, Client};
use tokio::time::sleep;

use super::cache::{Cache, RetryPace, Select, Shared};
use super::fold::{SyncState, Watched};
use crate::clients::{PROBE_TIMEOUT, within};

/// The time between two questions whether the kind is served: feature gates change when a kube-apiserver is restarted.
const AGAIN: Duration = Duration::from_mins(10);

/// The objects of a kind, if the cluster serves it.
#[derive(Debug)]
pub(super) struct OptionalKind<K: Watched>(Arc<OnceLock<Cache<K>>>);

impl<K> OptionalKind<K>
where
    K: Watched<DynamicType = ()> + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    /// Watches the kind in `namespace` from when it is served, on the current tokio runtime, until `shared.stop`.
    pub(super) fn watch(client: &Client, namespace: &'static str, shared: &Shared) -> Self {
        let cache = Arc::new(OnceLock::new());
        let (client, served, of_cache) = (client.clone(), Arc::clone(&cache), shared.clone());
        let ask = async move {
            loop {
                let version = K::api_version(&());
                let kinds = within(PROBE_TIMEOUT, client.list_api_group_resources(&version)).await;
                if kinds.is_ok_and(|list| list.resources.iter().any(|found| found.name == K::plural(&()))) {
                    let api = Api::namespaced(client, namespace);
                    let cache = Cache::spawn(api, &(), Select::default(), RetryPace::default(), &of_cache);
                    // Nobody else sets it.
                    let _ = served.set(cache);
                    return;
                }
                sleep(AGAIN).await;
            }
        };
        let stop = shared.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(ask).await });
        Self(cache)
    }

    /// Every object; none while the kind is not served or its cache cannot be relied on.
    pub(super) fn list(&self) -> Vec<K::Kept> {
        let synced = self.0.get().filter(|cache| cache.state() == SyncState::Synced);
        synced.map(Cache::list).unwrap_or_default()
    }
}
