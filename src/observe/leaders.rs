//! What the leader election leases of kube-system tell of controllers: that one works, and sometimes its version.
//!
//! This module does no I/O and reads no clock. A lease names its holder but no version; under coordinated leader
//! election the holder's `LeaseCandidate` names the version too. The invariants: a controller that is seen in a pod is
//! not counted again; a candidate is believed only while it holds the lease, because the object outlives its process;
//! and a controller that leads out of sight is named, also where others of its kind are seen.

use std::fmt;
use std::sync::Arc;

use evenkeel_core::cluster::{Component, Evidence, Instance, Leader, Reach, RunMark, incarnation};
use evenkeel_core::version::escape;

use super::components::Sources;
use super::lean::{CandidateSeen, LeaseSeen, NodeSeen, PodSeen};

/// A controller that leads where nothing here can see it, as on managed control planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leading {
    /// A controller, by the name of its lease.
    pub component: Component,
    /// Who holds its lease.
    pub holder: Arc<str>,
}

impl fmt::Display for Leading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is led by {}, which cannot be seen from here", self.component, escape(&self.holder))
    }
}

/// Who leads each controller that has a lease, also where the lease is not renewed any more, or nobody holds it.
pub fn leaders(leases: &[&LeaseSeen], nodes: &[&NodeSeen]) -> Vec<Leader> {
    let controllers = Component::ALL.into_iter().filter(|component| component.is_controller());
    controllers
        .filter_map(|component| {
            let lease = lease_of(leases, component)?;
            Some(Leader {
                component,
                holder: Arc::clone(&lease.holder),
                node: node_of(lease, nodes).cloned(),
                acquired: lease.acquired,
                renewed: lease.renewed?,
            })
        })
        .collect()
}

/// The lease of `component`.
fn lease_of<'a>(leases: &[&'a LeaseSeen], component: Component) -> Option<&'a LeaseSeen> {
    let mut leases = leases.iter().copied();
    leases.find(|lease| !lease.identity && *lease.name == *component.name())
}

/// The host that the holder of `lease` names: `<host name>_<UUID of the process>`, by client-go's convention.
fn host(lease: &LeaseSeen) -> &str {
    lease.holder.rsplit_once('_').map_or(lease.holder.as_ref(), |(host, _)| host)
}

fn node_of<'a>(lease: &LeaseSeen, nodes: &[&'a NodeSeen]) -> Option<&'a Arc<str>> {
    nodes.iter().find(|node| node.is_host(host(lease))).map(|node| &node.node.name)
}

/// Adds to `instances`, which were found in `sources`, what its leases tell, and returns the controllers that stay hidden.
pub fn add(
    instances: &mut Vec<Instance>,
    candidates: &[CandidateSeen],
    sources: &Sources<'_>,
) -> Vec<Leading> {
    let Sources { nodes, pods, leases, now, .. } = *sources;
    let controllers = Component::ALL.into_iter().filter(|component| component.is_controller());
    let mut hidden = Vec::new();
    for component in controllers {
        let leads = |lease: &&LeaseSeen| !lease.holder.is_empty() && lease.is_fresh(now);
        let Some(lease) = lease_of(leases, component).filter(leads) else { continue };
        let node = node_of(lease, nodes);
        let candidate = candidates
            .iter()
            .find(|candidate| candidate.name == lease.holder && candidate.lease == lease.name)
            .filter(|candidate| candidate.version.known().is_some());
        let seen = instances.iter().any(|instance| instance.component == component);
        let runs = |pod: &&&PodSeen| pod.runs.as_ref().is_some_and(|runs| runs.component == component);
        let roams = || pods.iter().filter(runs).any(|seen| seen.pod.roams());
        let here = instances.iter_mut().find(|instance| {
            instance.component == component && node.is_some() && instance.node.as_ref() == node
        });
        match (here, candidate) {
            (Some(instance), Some(candidate)) if instance.version.minor() == candidate.version.minor() => {
                instance.effective = candidate.effective;
            }
            (Some(_), _) => {}
            (None, Some(candidate)) => instances.push(Instance {
                component,
                name: host(lease).into(),
                node: node.cloned(),
                version: candidate.version.clone(),
                evidence: Evidence::Candidate,
                effective: candidate.effective,
                reach: Reach::Any,
                incarnation: incarnation([
                    (RunMark::Lease, lease.holder.as_ref()),
                    (RunMark::Build, candidate.version.to_string().as_str()),
                ]),
                ready: true,
                probed: None,
            }),
            // The holder may be an instance that is seen: a host does not always have the name of its Node. And of a pod
            // that may be made anew anywhere, the lease names for a while the node that it has left.
            (None, None) if seen && (node.is_none() || roams()) => {}
            (None, None) => hidden.push(Leading { component, holder: Arc::clone(&lease.holder) }),
        }
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::super::fold::Watched;
    use super::super::interner::Interner;
    use super::super::lean::{Lease, LeaseCandidate, Node, Pod};
    use super::*;
    use crate::observe::components::instances;
    use serde_json::{Value, json};

    fn keep<K: Watched>(object: Value) -> K::Kept {
        serde_json::from_value::<K>(object).unwrap().keep(&mut Interner::default())
    }

    /// What is seen where `cp-1` and `cp-2` are nodes, a kube-controller-manager v1.37.1 runs on `cp-1` in a pod of an
    /// `owner` of that kind if there is one, its lease is held by `holder` since `renewed`, and `cp-1_a` is a candidate
    /// of 1.37.1 that emulates 1.36.
    fn seen(owner: Option<&str>, holder: &str, renewed: &str, candidate: bool) -> (Vec<String>, Vec<String>) {
        let [node, other] = ["cp-1", "cp-2"].map(|name| keep::<Node>(json!({"metadata": {"name": name}})));
        let lease = keep::<Lease>(json!({
            "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "renewTime": renewed},
        }));
        let runs = keep::<Pod>(json!({
            "metadata": {
                "name": "kube-controller-manager-cp-1", "namespace": "kube-system",
                "annotations": if owner == Some("Node") { json!({"kubernetes.io/config.mirror": "x"}) } else { json!({}) },
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": owner.unwrap_or_default(), "name": "x", "uid": "x", "controller": true}],
            },
            "spec": {"nodeName": "cp-1", "containers": [
                {"name": "kube-controller-manager", "image": "kube-controller-manager:v1.37.1"}]},
        }));
        let candidates = keep::<LeaseCandidate>(json!({
            "metadata": {"name": "cp-1_a", "namespace": "kube-system"},
            "spec": {"leaseName": "kube-controller-manager", "binaryVersion": "1.37.1", "emulationVersion": "1.36"},
        }));
        let now = "2026-11-20T12:00:00Z".parse().unwrap();
        let sources = Sources {
            nodes: &[&node, &other],
            pods: if owner.is_some() { &[&runs] } else { &[] },
            leases: &[&lease],
            endpoints: &[],
            asked: true,
            now,
        };
        let mut found = instances(&sources);
        let candidates = if candidate { vec![candidates] } else { Vec::new() };
        let hidden = add(&mut found, &candidates, &sources);
        let shown = found.iter().map(|i| {
            let emulates = i.effective.map_or_else(|| "-".to_owned(), |e| e.emulation().to_string());
            format!("{} {} {} {emulates}", i.name, i.node.as_deref().unwrap_or("-"), i.version)
        });
        (shown.collect(), hidden.iter().map(|h| format!("{} {}", h.component, h.holder)).collect())
    }

    #[test]
    fn who_leads_and_when_it_last_said_so() {
        let node = keep::<Node>(json!({"metadata": {"name": "cp-1"}}));
        let lease = |name: &str, holder: &str, renewed: &str| {
            keep::<Lease>(json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": {
                "holderIdentity": holder, "acquireTime": "2026-11-20T10:00:00Z", "renewTime": renewed}}))
        };
        let leases = [
            lease("kube-scheduler", "ip-10-0-0-1_b", "2026-11-20T08:00:00.000000Z"),
            lease("kube-controller-manager", "cp-1_a", "2026-11-20T11:59:58.500000Z"),
            // Its last holder gave it up; an election of something else.
            lease("cloud-controller-manager", "", "2026-11-20T11:59:58.000000Z"),
            lease("csi-attacher", "cp-1_c", "2026-11-20T11:59:58.000000Z"),
        ];
        let found = leaders(&leases.iter().collect::<Vec<_>>(), &[&node]);
        let shown: Vec<_> = found
            .iter()
            .map(|l| {
                let (node, since) = (l.node.as_deref().unwrap_or("-"), l.acquired.unwrap());
                format!("{} {} on {node} since {since}, renewed {}", l.component, l.holder, l.renewed)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "kube-controller-manager cp-1_a on cp-1 since 2026-11-20T10:00:00Z, renewed 2026-11-20T11:59:58.5Z",
                "kube-scheduler ip-10-0-0-1_b on - since 2026-11-20T10:00:00Z, renewed 2026-11-20T08:00:00Z",
                "cloud-controller-manager  on - since 2026-11-20T10:00:00Z, renewed 2026-11-20T11:59:58Z",
            ]
        );
        let renewed = LeaseSeen { renewed: "2026-11-20T12:00:00Z".parse().ok(), ..leases[1].clone() };
        assert!(!Lease::wakes(&leases[1], &renewed), "each second another time");
        let taken = LeaseSeen { holder: "cp-2_d".into(), ..leases[1].clone() };
        assert!(Lease::wakes(&leases[1], &taken));
    }

    #[test]
    fn controllers_by_their_leases() {
        const FRESH: &str = "2026-11-20T11:59:58.000000Z";
        const STALE: &str = "2026-11-20T11:00:00.000000Z";
        let (pod, hidden) = ("kube-controller-manager-cp-1 cp-1 v1.37.1", "kube-controller-manager");
        let with = |emulates: &str| vec![format!("{pod} {emulates}")];
        let fixed = Some("Node");
        for ((runs, holder, renewed, candidate), instances, unseen) in [
            ((fixed, "cp-1_a", FRESH, false), with("-"), vec![]),
            ((fixed, "cp-1_a", FRESH, true), with("1.36"), vec![]),
            // The candidate of a process that is gone.
            ((fixed, "cp-1_b", FRESH, true), with("-"), vec![]),
            ((fixed, "elsewhere_a", FRESH, false), with("-"), vec![]),
            // A process of the host, beside the static pod of the other one.
            ((fixed, "cp-2_a", FRESH, false), with("-"), vec![format!("{hidden} cp-2_a")]),
            ((Some("DaemonSet"), "cp-2_a", FRESH, false), with("-"), vec![format!("{hidden} cp-2_a")]),
            // It was evicted from there, and its successor waits for the lease.
            ((Some("ReplicaSet"), "cp-2_a", FRESH, false), with("-"), vec![]),
            ((fixed, "cp-2_a", STALE, false), with("-"), vec![]),
            ((None, "cp-1_a", FRESH, true), vec!["cp-1 cp-1 v1.37.1 1.36".to_owned()], vec![]),
            ((None, "ip-10-0-0-1_a", FRESH, false), vec![], vec![format!("{hidden} ip-10-0-0-1_a")]),
            ((None, "cp-1_a", STALE, false), vec![], vec![]),
            ((None, "", FRESH, false), vec![], vec![]),
        ] {
            let found = seen(runs, holder, renewed, candidate);
            assert_eq!(found, (instances, unseen), "{runs:?} {holder} {renewed} {candidate}");
        }
    }
}
