//! What the observer asks of the cluster because of an event.
//!
//! Every answer comes from the component, the Node or the pod itself. Where the API is away for a moment it is asked again;
//! what is said of the answer carries the time of the event.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Release, Role};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::Observer;
use super::done::lacking;
use super::nodes::{MARK, kubelet, node_ready};
use super::notes::Question;
use super::steps::time;
use crate::scenario::TO;
use crate::standin::node_upgrades;
use crate::watched::{Component, Watched};

/// So long an apiserver takes to come back.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks until there is an answer.
async fn answered<T, E>(ask: impl AsyncFn() -> Result<T, E>) -> Option<T> {
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(_) if began.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(200)).await,
            Err(_) => return None,
        }
    }
}

impl Observer {
    pub(super) async fn ask(&self, cluster: &impl Watched, question: Question, at: Timestamp) {
        let wrong = match question {
            Question::KubeletMay { node, version } => {
                kubelet_may(&cluster.components().await, &node, &version)
            }
            Question::ControllerMay { component, node, runs } => {
                controller_may(&cluster.asked_by_controllers_of(&node).await, &component, runs)
            }
            Question::ClaimExists { node, mark } => claim_exists(cluster, &node, &mark).await,
            Question::Upgraded { claim, component, node, to, said } => {
                let mut wrong = if component == "kubelet" {
                    kubelet_is_upgraded(cluster, &node).await
                } else {
                    component_is_upgraded(cluster, &component, &node, &to).await
                };
                wrong.extend(self.parts_lack(cluster, &claim, &component, &node, said).await);
                wrong
            }
            Question::Completed { said } => is_complete(cluster, said).await,
        };
        for line in wrong {
            self.note(at, line);
        }
    }

    /// What the node of a claim lacked when it was called upgraded. Its parts may restart for the next step by the time that
    /// the API answers: then nobody knows.
    async fn parts_lack(
        &self,
        cluster: &impl Watched,
        claim: &str,
        component: &str,
        node: &str,
        said: Timestamp,
    ) -> Vec<String> {
        let lacks = lacks(cluster, node, said).await.into_iter();
        let lacks: Vec<_> =
            lacks.map(|what| format!("{component} on {node} is called upgraded: {what}")).collect();
        if !lacks.is_empty() && next_began(cluster, claim, node, said).await {
            if let Ok(mut seen) = self.seen.lock() {
                seen.unjudged.extend(lacks);
            }
            return Vec::new();
        }
        lacks
    }
}

pub(super) fn kubelet_may(components: &[Component], node: &str, version: &str) -> Vec<String> {
    let runs = Release::parse(version);
    let wrong = |component: &Component| {
        let name = &component.name;
        // What the kubelet takes along when it restarts runs what it ran; so does a controller that restarts by itself.
        let excused = component.node == node || component.role != Role::Apiserver;
        let last = component.last.filter(|_| excused);
        match component.release.clone().or_else(|error| last.ok_or(error)) {
            Ok(release) if runs.is_some_and(|runs| runs <= release) => None,
            Ok(release) => {
                Some(format!("kubelet on {node} is {version} while {name} is {}", release.version()))
            }
            Err(error) => Some(format!("kubelet on {node} moved while {name} was gone: {error}")),
        }
    };
    components.iter().filter_map(wrong).collect()
}

pub(super) fn controller_may(servers: &[Component], component: &str, runs: Release) -> Vec<String> {
    let older = |server: &&Component| {
        let release = server.release.clone().ok().or(server.last);
        server.role == Role::Apiserver && release.is_some_and(|release| release < runs)
    };
    let line = |server: &Component| format!("{component} is {runs} while {} is not", server.name);
    servers.iter().filter(older).map(line).collect()
}

async fn claim_exists(cluster: &impl Watched, node: &str, mark: &str) -> Vec<String> {
    let (name, uid) = mark.split_once('/').unwrap_or((mark, ""));
    let claims = node_upgrades(cluster.client());
    let claim = answered(async || claims.get_opt(name).await).await.flatten();
    if claim.is_some_and(|claim| claim.uid().as_deref() == Some(uid)) {
        return Vec::new();
    }
    vec![format!("node {node} was cordoned for {mark}, which does not exist")]
}

/// Its node reports the target, is Ready and schedulable again.
async fn kubelet_is_upgraded(cluster: &impl Watched, name: &str) -> Vec<String> {
    let nodes: Api<Node> = Api::all(cluster.client());
    let Some(node) = answered(async || nodes.get(name).await).await else {
        return vec![format!("{name} is called upgraded and cannot be read")];
    };
    if kubelet(&node) == TO && node_ready(&node) && !node.annotations().contains_key(MARK) {
        return Vec::new();
    }
    vec![format!("{name} is called upgraded: {}, ready {}", kubelet(&node), node_ready(&node))]
}

/// The component of its node runs the target by now, and no kube-apiserver is more than one minor from another.
async fn component_is_upgraded(cluster: &impl Watched, component: &str, node: &str, to: &str) -> Vec<String> {
    let name = format!("{component}-{node}");
    let all = answered(async || {
        let all = cluster.components().await;
        let found = all.iter().find(|found| found.name == name);
        let runs = found.map(|found| found.release.clone());
        runs.ok_or("it is not there".to_owned())?.map(|runs| (runs, all))
    });
    let Some((runs, all)) = all.await else {
        return vec![format!("{name} is called upgraded and says nothing")];
    };
    let mut wrong = Vec::new();
    if Release::parse(to).is_none_or(|to| runs < to) {
        wrong.push(format!("{name} is called upgraded to {to}: {}", runs.version()));
    }
    let servers = all.iter().filter(|component| component.role == Role::Apiserver);
    let minors = servers.filter_map(|server| Some(server.release.as_ref().ok()?.minor()));
    let minors: BTreeSet<u32> = minors.filter_map(|minor| minor.rsplit('.').next()?.parse().ok()).collect();
    if let (Some(least), Some(most)) = (minors.first(), minors.last())
        && most - least > 1
    {
        wrong.push(format!("kube-apiservers of 1.{least} and 1.{most} run side by side"));
    }
    wrong
}

/// What a node lacked at `said`.
async fn lacks(cluster: &impl Watched, node: &str, said: Timestamp) -> Vec<String> {
    match answered(async || cluster.parts(node).await).await {
        Some(parts) => lacking(&parts, said),
        None => vec![format!("the static pods of {node} cannot be read")],
    }
}

/// Whether another claim of the node was given to its executor after `said`.
async fn next_began(cluster: &impl Watched, claim: &str, node: &str, said: Timestamp) -> bool {
    let claims = node_upgrades(cluster.client());
    let claims = answered(async || claims.list(&ListParams::default()).await).await;
    claims.into_iter().flatten().any(|other| {
        let since = time(other.data["status"]["since"].as_str());
        other.uid().as_deref() != Some(claim)
            && other.data["spec"]["nodeName"] == node
            && ["Upgrading", "Upgraded"].iter().any(|state| other.data["status"]["state"] == *state)
            && since.is_some_and(|since| since >= said)
    })
}

async fn is_complete(cluster: &impl Watched, said: Timestamp) -> Vec<String> {
    let nodes: Api<Node> = Api::all(cluster.client());
    let Some(nodes) = answered(async || nodes.list(&ListParams::default()).await).await else {
        return vec!["the upgrade is called complete, and no node can be read".to_owned()];
    };
    let mut wrong = Vec::new();
    for node in nodes.items.iter().map(Node::name_any) {
        let lacks = lacks(cluster, &node, said).await;
        wrong.extend(lacks.into_iter().map(|what| format!("the upgrade is called complete: {what}")));
    }
    wrong
}
