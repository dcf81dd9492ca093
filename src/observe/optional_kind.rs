//! A watch of a kind that a cluster may not serve, such as one behind a feature gate.
//!
//! Whether the kind is served is asked at the start and then every ten minutes until it is; only then is it watched.
//! The invariant: a kind that is not served does not count as missing, and one that is served and cannot be read does.

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

    /// The watch of the kind; `None` while the server does not serve it, or does not any more.
    pub(super) fn served(&self) -> Option<&Cache<K>> {
        self.0.get().filter(|cache| !matches!(cache.state(), SyncState::Failing { code: Some(404), .. }))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::super::lean::LeaseCandidate;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_refused_is_served_and_one_that_went_is_not() {
        for (code, served) in [(403, true), (404, false)] {
            let service = tower::service_fn(move |request: http::Request<Body>| async move {
                let asks = request.uri().path().ends_with("/v1beta1");
                let kind = json!({"name": "leasecandidates", "singularName": "", "namespaced": true,
                    "kind": "LeaseCandidate", "verbs": ["list", "watch"]});
                let kinds = json!({"groupVersion": "coordination.k8s.io/v1beta1", "resources": [kind]});
                let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"});
                let (code, answer) = if asks { (200, kinds) } else { (code, status) };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).unwrap())
            });
            let shared = Shared::until(CancellationToken::new());
            let client = Client::new(service, "default");
            let kind = OptionalKind::<LeaseCandidate>::watch(&client, "kube-system", &shared);
            while !kind.0.get().is_some_and(|cache| cache.state().fails()) {
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(kind.served().is_some(), served, "{code}");
        }
    }
}
