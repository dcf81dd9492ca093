//! Machines that lose their power in the middle of something, and what that excuses.
//!
//! Here belongs one failure of one machine: that it came when it should, and how long it lasted. A failure excuses what is
//! lost and broken from its beginning until the node is Ready again, and for a moment after that; nothing else does.

use std::time::Duration;

use evenkeel_devcluster::control::{self, Order};
use evenkeel_devcluster::session::Session;
use evenkeel_devcluster::{Failure, TestResult};
use evenkeel_testkit::scenario::{answered, until};
use evenkeel_testkit::watched::Watched as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::cluster::Real;
use crate::{Beside, CLUSTER};

/// So many seconds a machine without power is away.
const AWAY: u64 = 10;
/// After this much of it the machine is off, and will not come back for a while.
const OFF: Duration = Duration::from_secs(3);
/// Readiness, budgets and the rules of kube-proxy follow a node that is Ready again.
const FOLLOWS: Duration = Duration::from_secs(15);
/// Whatever a machine needs to come back.
const LIMIT: Duration = Duration::from_mins(3);

/// A machine was off, or not quite back, in this time since the beginning.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    pub from: Duration,
    pub until: Duration,
}

impl Outage {
    /// Whether this may be what it did that went on from `from` to `until`.
    pub fn excuses(&self, from: Duration, until: Duration) -> bool {
        from <= self.until && self.from <= until
    }
}

/// What a machine does that must not have ended when it loses its power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Pods of the workloads are leaving it.
    Draining,
    /// The pod of an executor's Job works on it.
    Upgrading,
}

impl Busy {
    /// The pods that show it.
    async fn pods(self, real: &Real, node: &str) -> Result<Vec<Pod>, Failure> {
        let namespace = match self {
            Self::Draining => "shop",
            Self::Upgrading => "evenkeel-executors",
        };
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::namespaced(real.client(), namespace).list(&on_node).await?.items;
        Ok(pods.into_iter().filter(|pod| self.shows(pod)).collect())
    }

    fn shows(self, pod: &Pod) -> bool {
        match self {
            Self::Draining => pod.metadata.deletion_timestamp.is_some(),
            Self::Upgrading => {
                phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none() && works(pod)
            }
        }
    }

    /// Waits until the node does it.
    pub async fn begins(self, real: &Real, node: &str) -> TestResult {
        let began = tokio::time::Instant::now();
        // It lasts some seconds only.
        while !self.pods(real, node).await.is_ok_and(|pods| !pods.is_empty()) {
            if began.elapsed() > LIMIT {
                return Err(Failure::new(format!("{node} is never {self:?}")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether a container of it runs.
fn works(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let state = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    statuses.into_iter().flatten().any(state)
}

/// Takes the power of a node for some seconds while it is busy; afterwards the machine has another boot id, and no executor
/// that worked on it has ended well.
pub async fn fails(real: &Real, beside: &Beside, node: &str, busy: Busy) -> Result<Outage, Failure> {
    let before = answered(async || boot_id_if_ready(real, node).await).await?;
    let mut pods = answered(async || busy.pods(real, node).await).await?;
    let from = beside.began.elapsed();
    let socket = Session::named(&std::env::var(CLUSTER)?)?.socket();
    let order = Order::PowerCycle { node: node.to_owned(), away: AWAY };
    let ordered = tokio::task::spawn_blocking(move || control::send(&socket, &order));
    if busy == Busy::Draining {
        // The kubelet cannot say anything any more: what the API has is how it was when the power failed.
        tokio::time::sleep(OFF).await;
        pods = answered(async || busy.pods(real, node).await).await?;
        assert!(beside.began.elapsed() < from + Duration::from_secs(AWAY), "{node} was read too late");
    }
    let names: Vec<_> = pods.iter().map(Pod::name_any).collect();
    println!("       the power of {node} failed while it was {busy:?}: {names:?}");
    assert!(!pods.is_empty(), "the power of {node} failed when it was no longer {busy:?}");
    ordered.await??;
    until(&format!("{node} has another boot id and is Ready"), LIMIT, async || {
        Ok(boot_id_if_ready(real, node).await.is_ok_and(|now| now != before))
    })
    .await?;
    let back = beside.began.elapsed();
    if busy == Busy::Upgrading {
        ended_badly(real, &pods).await?;
    }
    println!("       {node} is back after {:.0} s", back.saturating_sub(from).as_secs_f64());
    Ok(Outage { from, until: back + FOLLOWS })
}

/// The pods of executors that lost their machine had not ended: then they would have ended well.
async fn ended_badly(real: &Real, pods: &[Pod]) -> TestResult {
    let api: Api<Pod> = Api::namespaced(real.client(), "evenkeel-executors");
    for pod in pods {
        let name = pod.name_any();
        let mut last = String::new();
        until(&format!("{name} has ended"), LIMIT, async || {
            last = api.get_opt(&name).await?.map_or("gone".to_owned(), |pod| phase(&pod).to_owned());
            Ok(last != "Running" && last != "Pending")
        })
        .await?;
        assert_eq!(last, "Failed", "{name} had done its work when its machine lost its power");
    }
    Ok(())
}

/// The boot id of a node; an error where it is not Ready.
async fn boot_id_if_ready(real: &Real, node: &str) -> Result<String, Failure> {
    let read = Api::<Node>::all(real.client()).get(node).await?;
    let status = read.status.unwrap_or_default();
    let ready = status.conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let boot_id = status.node_info.map(|info| info.boot_id).unwrap_or_default();
    if ready && !boot_id.is_empty() { Ok(boot_id) } else { Err(Failure::new(format!("{node} is not Ready"))) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_outage_excuses_only_what_goes_on_in_its_time() {
        let seconds = Duration::from_secs;
        let outage = Outage { from: seconds(100), until: seconds(130) };
        assert!(!outage.excuses(seconds(90), seconds(99)));
        assert!(outage.excuses(seconds(98), seconds(101)), "it was sent before and not answered any more");
        assert!(outage.excuses(seconds(130), seconds(130)));
        assert!(!outage.excuses(seconds(131), seconds(140)));
    }

    #[test]
    fn a_pod_that_has_ended_or_stays_shows_nothing() -> Result<(), serde_json::Error> {
        let pod = |metadata: Value, phase: &str, state: &str| {
            let container = json!({
                "name": "x", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {state: {"exitCode": 0}},
            });
            serde_json::from_value::<Pod>(json!({
                "metadata": metadata, "status": {"phase": phase, "containerStatuses": [container]},
            }))
        };
        let leaves = json!({"deletionTimestamp": "2026-11-21T10:00:00Z"});
        assert!(Busy::Upgrading.shows(&pod(json!({}), "Running", "running")?));
        assert!(!Busy::Upgrading.shows(&pod(json!({}), "Running", "terminated")?));
        assert!(!Busy::Upgrading.shows(&pod(json!({}), "Succeeded", "terminated")?));
        assert!(!Busy::Upgrading.shows(&pod(json!({}), "Pending", "waiting")?));
        assert!(Busy::Draining.shows(&pod(leaves, "Running", "running")?));
        assert!(!Busy::Draining.shows(&pod(json!({}), "Running", "running")?));
        Ok(())
    }
}
