//! Which instances of which components run: the join of kube-apiserver endpoints, identity leases and kube-system's
//! pods.
//!
//! This module does no I/O and reads no clock. Here belongs how each platform shows its components; what their versions
//! mean belongs to the core. The invariants: a kube-apiserver that is restarting stays an instance, not ready and of
//! unknown version, as long as something tells which one it is; nothing is counted twice; and no version is inferred
//! from another component's, unless both are one process.

pub(super) mod image;
pub(super) mod same_process;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use evenkeel_core::cluster::{Component, Evidence, Instance, Phase, Reach, RunMark, incarnation};
use evenkeel_core::version::{Observed, Unknown};
use jiff::Timestamp;

use super::apiservers::Endpoint;
use super::lean::{LeaseSeen, NodeSeen, PodSeen, Runs};

/// What was seen of the cluster and tells of components.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// All nodes: a component is said to run on one only if it is here.
    pub nodes: &'a [&'a NodeSeen],
    /// Pods; those that run no component are passed over.
    pub pods: &'a [&'a PodSeen],
    /// The kube-apiservers' identity leases.
    pub leases: &'a [&'a LeaseSeen],
    /// The kube-apiserver endpoints with what each last answered.
    pub endpoints: &'a [Endpoint],
    /// Whether kube-apiservers could be asked. They cannot where the sources are files: then the image of its static
    /// pod says a kube-apiserver's version.
    pub asked: bool,
    /// The time now, for the freshness of leases.
    pub now: Timestamp,
}

/// Every instance of every component but the kubelets, in no particular order.
pub fn instances(seen: &Sources<'_>) -> Vec<Instance> {
    let mut found = apiservers(seen);
    let to_their_own = |rule: fn(&Runs, Component) -> bool| -> BTreeSet<&str> {
        let static_pods = running(seen).filter(|(pod, ..)| pod.pod.mirror);
        static_pods.filter(|(_, runs, of)| rule(runs, *of)).map(|(pod, ..)| &*pod.pod.node).collect()
    };
    let own = Own {
        kubeadm: to_their_own(|runs, of| of == Component::KubeApiserver && runs.kubeadm),
        rke2: to_their_own(|runs, _| runs.version.known().is_some_and(|v| v.suffix().contains("rke2"))),
    };
    // A pod that is bound to no node runs nothing yet.
    let bound = running(seen).filter(|(pod, ..)| node_of(pod).is_some());
    found.extend(bound.filter(|(.., component)| *component != Component::KubeApiserver).map(
        |(pod, runs, component)| Instance {
            component,
            name: Arc::clone(&pod.pod.name),
            node: node_of(pod),
            version: runs.version.clone(),
            evidence: Evidence::Image,
            effective: None,
            reach: own.reach(pod, component),
            incarnation: incarnation([mark(runs)]),
            ready: pod.pod.ready,
            probed: None,
        },
    ));
    let in_one_process = same_process::unseen(&found, seen.nodes);
    found.extend(in_one_process);
    found
}

/// The nodes whose static pods talk to the kube-apiserver of the same host.
struct Own<'a> {
    kubeadm: BTreeSet<&'a str>,
    rke2: BTreeSet<&'a str>,
}

impl Own<'_> {
    /// Which kube-apiservers `component` talks to. Its kubeconfig says so, a file on its host that is not read; but
    /// some distributions always write the kube-apiserver of the same host into it: kubeadm since 1.19
    /// (`localAPIEndpoint`) for kube-controller-manager and kube-scheduler, and RKE2 for every controller
    /// (127.0.0.1).
    fn reach(&self, pod: &PodSeen, component: Component) -> Reach {
        let node = &*pod.pod.node;
        let of_kubeadm = component != Component::CloudControllerManager && self.kubeadm.contains(node);
        if pod.pod.mirror && component.is_controller() && (of_kubeadm || self.rke2.contains(node)) {
            Reach::Local
        } else {
            Reach::Any
        }
    }
}

/// The pods that run a component and have not ended.
fn running<'a>(seen: &Sources<'a>) -> impl Iterator<Item = (&'a PodSeen, &'a Runs, Component)> {
    let alive = seen.pods.iter().filter(|pod| pod.pod.phase != Phase::Finished);
    alive.filter_map(|pod| {
        let runs = pod.runs.as_deref()?;
        Some((*pod, runs, runs.component))
    })
}

fn node_of(pod: &PodSeen) -> Option<Arc<str>> {
    Some(Arc::clone(&pod.pod.node)).filter(|node| !node.is_empty())
}

fn mark(runs: &Runs) -> (RunMark, &str) {
    (runs.mark.0, &runs.mark.1)
}

/// The sources that tell of kube-apiservers, besides their endpoints.
struct Traces<'a> {
    /// Static pods of kube-apiservers, with what each runs.
    pods: Vec<(&'a PodSeen, &'a Runs)>,
    /// Identity leases of hosts that are Nodes, by Node. A lease outlives its kube-apiserver by an hour. While the Node
    /// exists, an old lease stands for a kube-apiserver that died.
    leases: BTreeMap<Arc<str>, &'a LeaseSeen>,
    /// Identity leases that are renewed, of hosts that are no Nodes.
    homeless: Vec<&'a LeaseSeen>,
}

impl<'a> Traces<'a> {
    fn of(seen: &Sources<'a>) -> Self {
        let servers = running(seen).filter(|(.., component)| *component == Component::KubeApiserver);
        let pods = servers.map(|(pod, runs, _)| (pod, runs)).collect();
        let mut traces = Self { pods, leases: BTreeMap::new(), homeless: Vec::new() };
        for lease in seen.leases.iter().copied().filter(|lease| lease.identity) {
            match seen.nodes.iter().find(|node| node.is_host(&lease.hostname)) {
                Some(node) => {
                    // A host that had another name before has two leases: the newer one counts.
                    let held = traces.leases.entry(Arc::clone(&node.node.name)).or_insert(lease);
                    *held = if lease.renewed > held.renewed { lease } else { *held };
                }
                None if lease.is_fresh(seen.now) => traces.homeless.push(lease),
                None => {}
            }
        }
        traces
    }

    /// The lease of the kube-apiserver at `endpoint`: by the address that it names (since 1.36), else by its Node.
    fn lease_of(&self, endpoint: &Endpoint, node: Option<&Arc<str>>) -> Option<&'a LeaseSeen> {
        let address: Option<SocketAddr> = endpoint.address.parse().ok();
        let mut all = self.homeless.iter().chain(self.leases.values());
        let named = all.find(|lease| address.is_some() && lease.address == address);
        named.or_else(|| self.leases.get(node?)).copied()
    }

    /// The Node of which `lease` tells.
    fn node_of(&self, lease: &LeaseSeen) -> Option<&Arc<str>> {
        self.leases.iter().find(|(_, of)| of.name == lease.name).map(|(node, _)| node)
    }

    /// The marks of one run of a kube-apiserver: its build, its lease's holder, its pod's container.
    fn incarnation(&self, node: Option<&str>, lease: Option<&LeaseSeen>, build: &str) -> Arc<str> {
        let pod = self.pods.iter().find(|(pod, _)| node.is_some_and(|node| *node == *pod.pod.node));
        let holder = lease.map(|lease| (RunMark::Lease, lease.holder.as_ref()));
        incarnation(
            [(RunMark::Build, build)].into_iter().chain(holder).chain(pod.map(|(_, runs)| mark(runs))),
        )
    }
}

fn apiservers(seen: &Sources<'_>) -> Vec<Instance> {
    let traces = Traces::of(seen);
    let by_ip = addresses(seen, &traces.pods);
    let mut told = BTreeSet::new();
    let mut found: Vec<_> = seen
        .endpoints
        .iter()
        .map(|endpoint| {
            let node = ip(&endpoint.address).and_then(|ip| by_ip.get(&ip));
            let lease = traces.lease_of(endpoint, node);
            let node = node.or_else(|| traces.node_of(lease?)).cloned();
            told.extend(lease.map(|lease| Arc::clone(&lease.name)));
            Instance {
                component: Component::KubeApiserver,
                name: Arc::clone(&endpoint.address),
                version: endpoint.version.clone(),
                evidence: Evidence::Endpoint,
                effective: endpoint.effective,
                reach: Reach::Any,
                incarnation: traces.incarnation(node.as_deref(), lease, &endpoint.build),
                ready: endpoint.ready,
                probed: None,
                node,
            }
        })
        .collect();
    let all_told = told.len() == found.len();
    // An endpoint without a Node or lease may belong to any of the pods or leases: to add those would count it
    // twice.
    if found.iter().any(|instance| instance.node.is_none()) && !all_told {
        return found;
    }
    found.extend(without_endpoint(seen, &traces, &found, all_told, &told));
    found
}

/// kube-apiservers that have a pod or a lease but no endpoint: they are starting, or died. `found` are those with an
/// endpoint, `told` the leases that belong to them, and `all_told` is whether each endpoint has such a lease.
fn without_endpoint(
    seen: &Sources<'_>,
    traces: &Traces<'_>,
    found: &[Instance],
    all_told: bool,
    told: &BTreeSet<Arc<str>>,
) -> Vec<Instance> {
    let mut present: BTreeSet<_> = found.iter().filter_map(|instance| instance.node.clone()).collect();
    let absent = |name: Arc<str>, node: Option<Arc<str>>, lease: Option<&LeaseSeen>| Instance {
        component: Component::KubeApiserver,
        name,
        version: Observed::Unknown(Unknown::Unreachable),
        evidence: Evidence::Endpoint,
        effective: None,
        reach: Reach::Any,
        incarnation: traces.incarnation(node.as_deref(), lease, ""),
        ready: false,
        probed: None,
        node,
    };
    let mut more = Vec::new();
    for (pod, runs) in &traces.pods {
        let node = node_of(pod);
        if node.as_ref().is_none_or(|node| present.insert(Arc::clone(node))) {
            let lease = node.as_ref().and_then(|node| traces.leases.get(node)).copied();
            let silent = absent(Arc::clone(&pod.pod.name), node, lease);
            more.push(if seen.asked {
                silent
            } else {
                let (version, ready) = (runs.version.clone(), pod.pod.ready);
                Instance { version, evidence: Evidence::Image, ready, ..silent }
            });
        }
    }
    for (node, lease) in &traces.leases {
        if present.insert(Arc::clone(node)) {
            more.push(absent(Arc::clone(&lease.name), Some(Arc::clone(node)), Some(lease)));
        }
    }
    // A lease of a host that is no Node is one more kube-apiserver only if each endpoint has its own lease, or if there
    // is no other trace of a kube-apiserver. Otherwise it may belong to an endpoint that is already counted.
    let nothing_else = found.is_empty() && more.is_empty();
    for lease in traces.homeless.iter().filter(|lease| !told.contains(&lease.name)) {
        match lease.address {
            Some(address) if all_told => more.push(absent(address.to_string().into(), None, Some(lease))),
            _ if nothing_else => more.push(absent(Arc::clone(&lease.name), None, Some(lease))),
            _ => {}
        }
    }
    more
}

/// The Node of each endpoint's IP: the one that has it as `InternalIP`, else that of the static pod whose `hostIP`
/// it is.
fn addresses(seen: &Sources<'_>, pods: &[(&PodSeen, &Runs)]) -> BTreeMap<IpAddr, Arc<str>> {
    let wanted: BTreeSet<_> = seen.endpoints.iter().filter_map(|endpoint| ip(&endpoint.address)).collect();
    let mut found = BTreeMap::new();
    for (pod, runs) in pods {
        if let (Some(ip), Some(node)) = (runs.host_ip, node_of(pod)) {
            found.insert(ip, node);
        }
    }
    for node in seen.nodes {
        for ip in node.internal_ips.iter().filter(|ip| wanted.contains(ip)) {
            found.insert(*ip, Arc::clone(&node.node.name));
        }
    }
    found
}

/// The IP of `192.0.2.1:6443` or `[2001:db8::1]:6443`.
fn ip(address: &str) -> Option<IpAddr> {
    let (host, _) = address.rsplit_once(':')?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests;
