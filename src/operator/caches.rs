//! What the controllers watch beside the cluster: the objects that are theirs or a person's, and the Jobs of executors.
//!
//! Here belongs which of them are watched, and what is said when one cannot be relied on. The invariant: whatever a
//! controller waits for is named in `/readyz` in the same words.

use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

use crate::api::{ClusterSkewReport, ClusterUpgrade, NodeUpgrade, UpgradeExecutor};
use crate::observe::cache::{Cache, RetryPace, Select, Shared};
use crate::observe::fold::Unseen;
use crate::observe::lean::{EXECUTOR_LABEL, Job};

/// What the controllers watch. A clone is another handle on the same.
#[derive(Clone)]
pub(super) struct ControllerCaches {
    /// The `ClusterSkewReports`.
    pub(super) reports: Cache<DynamicObject>,
    /// What only upgrades need; `None` where the operator only reports.
    pub(super) upgrades: Option<UpgradeCaches>,
}

/// What the driver of upgrades watches.
#[derive(Clone)]
pub(super) struct UpgradeCaches {
    /// The `ClusterUpgrades`.
    pub(super) upgrades: Cache<DynamicObject>,
    /// The `NodeUpgrades`.
    pub(super) claims: Cache<DynamicObject>,
    /// The `UpgradeExecutors`.
    pub(super) executors: Cache<DynamicObject>,
    /// The Jobs of executors.
    pub(super) jobs: Cache<Job>,
}

impl ControllerCaches {
    /// Starts the watches with `read`, until `shared.stop`; those of upgrades too, if there is a namespace of
    /// executors' Jobs.
    pub(super) fn start(read: &Client, executors_namespace: Option<&str>, shared: &Shared) -> Self {
        let custom = |resource: ApiResource| {
            let api: Api<DynamicObject> = Api::all_with(read.clone(), &resource);
            Cache::spawn(api, &resource, Select::default(), RetryPace::default(), shared)
        };
        let jobs = |namespace: &str| {
            let select = Select { labels: Some(EXECUTOR_LABEL.to_owned()), ..Select::default() };
            let api = Api::namespaced(read.clone(), namespace);
            Cache::spawn(api, &(), select, RetryPace::default(), shared)
        };
        Self {
            reports: custom(ApiResource::erase::<ClusterSkewReport>(&())),
            upgrades: executors_namespace.map(|namespace| UpgradeCaches {
                upgrades: custom(ApiResource::erase::<ClusterUpgrade>(&())),
                claims: custom(ApiResource::erase::<NodeUpgrade>(&())),
                executors: custom(ApiResource::erase::<UpgradeExecutor>(&())),
                jobs: jobs(namespace),
            }),
        }
    }

    /// Why a controller cannot work, one for each of the watches that cannot be relied on.
    pub(super) fn unseen(&self) -> Vec<Unseen> {
        let reports = self.reports.state().seen(|| syncing("ClusterSkewReports")).err();
        let upgrades = self.upgrades.iter().flat_map(UpgradeCaches::unseen);
        reports.into_iter().chain(upgrades).collect()
    }
}

impl UpgradeCaches {
    /// Why nothing is decided about upgrades, one for each of the watches that cannot be relied on.
    pub(super) fn unseen(&self) -> Vec<Unseen> {
        let states = [
            ("ClusterUpgrades", self.upgrades.state()),
            ("NodeUpgrades", self.claims.state()),
            ("UpgradeExecutors", self.executors.state()),
            ("Jobs", self.jobs.state()),
        ];
        states.into_iter().filter_map(|(what, state)| state.seen(|| syncing(what)).err()).collect()
    }
}

fn syncing(what: &str) -> String {
    format!("{what}: the first list is not complete yet")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use kube::client::Body;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A server that lists nothing in answer to a watch that begins with a list, and refuses Jobs; other watches hang.
    fn client() -> Client {
        let service = tower::service_fn(|request: http::Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default();
            let (code, answer) = if request.uri().path().contains("/jobs") {
                (403, json!({"kind": "Status", "status": "Failure", "code": 403, "message": "not yours"}))
            } else if query.contains("sendInitialEvents=true") {
                let end =
                    json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
                let mark = json!({"apiVersion": "v1", "kind": "X", "metadata": end});
                (200, json!({"type": "BOOKMARK", "object": mark}))
            } else {
                return std::future::pending().await;
            };
            let answer = Body::from(format!("{answer}\n").into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).unwrap())
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_controller_waits_for_is_named_where_it_is_needed() {
        let shared = Shared::until(CancellationToken::new());
        let drives = ControllerCaches::start(&client(), Some("evenkeel"), &shared);
        let reports = ControllerCaches::start(&client(), None, &shared);
        let lines = |caches: &ControllerCaches| -> Vec<String> {
            caches.unseen().into_iter().map(|unseen| unseen.line).collect()
        };
        let kinds = ["ClusterSkewReports", "ClusterUpgrades", "NodeUpgrades", "UpgradeExecutors", "Jobs"];
        assert_eq!(lines(&drives), kinds.map(syncing));
        assert_eq!(lines(&reports), [syncing(kinds[0])]);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let refused =
            "Job: grant the verbs list and watch on jobs.batch to the service account: not yours (HTTP 403)";
        assert_eq!(lines(&drives), [refused]);
        assert_eq!(lines(&reports), [""; 0], "no executor is begun there");
    }
}
