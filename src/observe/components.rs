//! Which instances of which components run: the join of apiserver endpoints, identity leases and kube-system's pods.
//!
//! Pure. Here belongs how each platform shows its components (policy reference section 6); what their versions mean
//! belongs to the core. The invariants: an apiserver that is restarting stays an instance, not ready and of unknown
//! version; nothing is counted twice; and no version is inferred from another component's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_core::cluster::{Component, Evidence, Instance, Reach};
use evenkeel_core::version::{Observed, Unknown};
use jiff::Timestamp;

use super::apiservers::Endpoint;
use super::lean::{Container, LeaseSeen, NodeSeen, PodSeen, Runs};

/// What the pod of `labels` and containers runs: component, version by image tag, container restarts.
///
/// `mirror` is whether it is a static pod.
pub(super) fn image_of(
    labels: &BTreeMap<String, String>,
    mirror: bool,
    spec: &[Container],
    status: &[Container],
) -> Option<(Component, Observed, i64)> {
    let labelled = ["component", "k8s-app"]
        .iter()
        .find_map(|label| Component::from_name(labels.get(*label)?))
        .filter(|component| !matches!(component, Component::Kubelet | Component::Kubectl));
    let named = |container: &&Container, component: Component| {
        container.name.as_deref() == Some(component.name()) || runs(container) == Some(component)
    };
    let (component, container) = match labelled {
        Some(component) => (component, spec.iter().find(|c| named(c, component)).or(spec.first())?),
        None => spec.iter().find_map(|c| Some((runs(c)?, c)))?,
    };
    let running = status.iter().find(|running| running.name == container.name);
    // The status names the image that runs, but some runtimes give it by digest only.
    let image = |container: &Container| Observed::from_image(container.image.as_deref().unwrap_or_default());
    let version = match running.map(image) {
        Some(version @ Observed::Known(_)) => version,
        _ => image(container),
    };
    // Cloud providers number their images as they like (hcloud v1.8.1, alicloud v0.1.0); only images that carry the
    // component's own name, and those of a distribution's static pods, follow Kubernetes' versions.
    let own_numbers =
        component == Component::CloudControllerManager && !mirror && runs(container) != Some(component);
    let version = if own_numbers { Observed::Unknown(Unknown::NotReported) } else { version };
    Some((component, version, running.and_then(|running| running.restart_count).unwrap_or_default()))
}

/// Images that hold every component; which one runs, the container says.
const ALL_IN_ONE: [&str; 3] = ["hyperkube", "hardened-kubernetes", "kubernetes"];

/// The component that a container runs, by its image's name; for an image that holds them all by its command, else by
/// its own name.
fn runs(container: &Container) -> Option<Component> {
    let image = image_name(container);
    let (name, architecture) = image.rsplit_once('-').unwrap_or((image, ""));
    let one_architecture = ["amd64", "arm64", "arm", "ppc64le", "s390x"].contains(&architecture);
    let name = if one_architecture { name } else { image };
    let found = if ALL_IN_ONE.contains(&name) {
        let command = container.command.iter().flatten().take(2);
        let mut programs = command.map(|word| word.rsplit('/').next().unwrap_or_default());
        programs.find_map(Component::from_name).or_else(|| Component::from_name(container.name.as_deref()?))
    } else {
        Component::from_name(name)
    };
    // Nobody's policy is about a pod that runs kubectl, and kubelets are Nodes.
    found.filter(|found| !matches!(found, Component::Kubectl | Component::Kubelet))
}

/// The last path element of the image, without tag and digest.
fn image_name(container: &Container) -> &str {
    let image = container.image.as_deref().unwrap_or_default();
    let name = image.split('@').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    name.split(':').next().unwrap_or_default()
}

/// What was seen, as far as components are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// All nodes.
    pub nodes: &'a [&'a NodeSeen],
    /// Pods; those that run no component are passed over.
    pub pods: &'a [&'a PodSeen],
    /// The apiservers' identity leases.
    pub leases: &'a [&'a LeaseSeen],
    /// The apiserver endpoints with what each last answered.
    pub endpoints: &'a [Endpoint],
    /// Whether apiservers could be asked. Where nobody can be, as with a file, a static pod's image says its version.
    pub asked: bool,
    /// The time now, for the freshness of leases.
    pub now: Timestamp,
}

/// Every instance of every component but the kubelets, in no particular order.
pub fn instances(seen: &Sources<'_>) -> Vec<Instance> {
    let mut found = apiservers(seen);
    found.extend(running(seen).filter(|(_, runs)| runs.component != Component::KubeApiserver).map(
        |(pod, runs)| Instance {
            component: runs.component,
            name: Arc::clone(&pod.pod.name),
            node: node_of(pod),
            version: runs.version.clone(),
            evidence: Evidence::Image,
            effective: None,
            // Which address a controller uses stands in a kubeconfig on its host, which nobody here reads.
            reach: Reach::Any,
            incarnation: incarnation(pod, runs),
            ready: pod.pod.ready,
        },
    ));
    found
}

/// The pods that run a component and have not ended.
fn running<'a>(seen: &Sources<'a>) -> impl Iterator<Item = (&'a PodSeen, &'a Runs)> {
    let ended = evenkeel_core::cluster::Phase::Finished;
    seen.pods
        .iter()
        .filter(move |pod| pod.pod.phase != ended)
        .filter_map(|pod| Some((*pod, pod.runs.as_deref()?)))
}

fn node_of(pod: &PodSeen) -> Option<Arc<str>> {
    Some(Arc::clone(&pod.pod.node)).filter(|node| !node.is_empty())
}

fn incarnation(pod: &PodSeen, runs: &Runs) -> Arc<str> {
    format!("{}/{}", pod.pod.uid, runs.restarts).into()
}

fn apiservers(seen: &Sources<'_>) -> Vec<Instance> {
    let pods: Vec<_> = running(seen).filter(|(_, runs)| runs.component == Component::KubeApiserver).collect();
    let mut leases: BTreeMap<Arc<str>, &LeaseSeen> = BTreeMap::new();
    let mut homeless = Vec::new();
    for lease in seen.leases.iter().copied().filter(|lease| lease.identity) {
        match seen.nodes.iter().find(|node| node.is_host(&lease.hostname)) {
            // A lease outlives its apiserver by an hour. While its host is there, that is one that died.
            Some(node) => _ = leases.insert(Arc::clone(&node.node.name), lease),
            None if lease.is_fresh(seen.now) => homeless.push(lease),
            None => {}
        }
    }
    let by_ip = addresses(seen, &pods);
    let incarnation_on = |node: &str| {
        // A lease that is not renewed is that of the process before.
        let lease = leases.get(node).filter(|lease| lease.is_fresh(seen.now));
        lease.map(|lease| Arc::clone(&lease.holder)).or_else(|| {
            pods.iter()
                .find(|(pod, _)| pod.pod.node.as_ref() == node)
                .map(|(pod, runs)| incarnation(pod, runs))
        })
    };
    let mut found: Vec<_> = seen
        .endpoints
        .iter()
        .map(|endpoint| {
            let node = ip(&endpoint.address).and_then(|ip| by_ip.get(&ip).cloned());
            Instance {
                component: Component::KubeApiserver,
                name: Arc::clone(&endpoint.address),
                version: endpoint.version.clone(),
                evidence: Evidence::Endpoint,
                effective: endpoint.effective,
                reach: Reach::Any,
                incarnation: node.as_deref().and_then(incarnation_on).unwrap_or_default(),
                ready: endpoint.reachable,
                node,
            }
        })
        .collect();
    // An endpoint that is on no known node may be any of the pods or leases: adding those would count it twice.
    if found.iter().any(|instance| instance.node.is_none()) {
        return found;
    }
    let mut present: BTreeSet<_> = found.iter().filter_map(|instance| instance.node.clone()).collect();
    let absent = |name: &Arc<str>, node: Option<Arc<str>>, incarnation: Arc<str>| Instance {
        component: Component::KubeApiserver,
        name: Arc::clone(name),
        node,
        version: Observed::Unknown(Unknown::Unreachable),
        evidence: Evidence::Endpoint,
        effective: None,
        reach: Reach::Any,
        incarnation,
        ready: false,
    };
    for (pod, runs) in &pods {
        let node = node_of(pod);
        if node.as_ref().is_none_or(|node| present.insert(Arc::clone(node))) {
            let lease = node.as_ref().and_then(|node| leases.get(node));
            let lease = lease.filter(|lease| lease.is_fresh(seen.now));
            let incarnation = lease.map_or_else(|| incarnation(pod, runs), |lease| Arc::clone(&lease.holder));
            let silent = absent(&pod.pod.name, node, incarnation);
            found.push(if seen.asked {
                silent
            } else {
                Instance {
                    version: runs.version.clone(),
                    evidence: Evidence::Image,
                    ready: pod.pod.ready,
                    ..silent
                }
            });
        }
    }
    for (node, lease) in &leases {
        if present.insert(Arc::clone(node)) {
            found.push(absent(&lease.name, Some(Arc::clone(node)), Arc::clone(&lease.holder)));
        }
    }
    // Leases of hosts that are no nodes tell something only where nothing else does.
    if found.is_empty() {
        found.extend(homeless.iter().map(|lease| absent(&lease.name, None, Arc::clone(&lease.holder))));
    }
    found
}

/// The node of each address an endpoint has: by `InternalIP`, else by the host address of an apiserver's static pod.
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
