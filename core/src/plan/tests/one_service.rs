//! What the report says while a plan is carried out whose control-plane nodes move as a whole, as those of k3s and RKE2.

use super::*;
use crate::skew::{Assessment, Standing, assess};
use crate::version::Observed;

/// Servers of k3s, each with its kubelet and controllers in one process, and an agent.
fn k3s(servers: &[&str], agent: &str) -> Cluster {
    let mut cluster = stacked(servers, &[agent]);
    cluster.change_instances(|instance| {
        instance.evidence = match instance.component {
            Component::KubeApiserver => Evidence::Endpoint,
            _ => Evidence::SameProcess,
        };
    });
    for (number, server) in servers.iter().enumerate() {
        cluster.set_node(Node { control_plane: true, ..node(&format!("cp-{}", number + 1), server) });
    }
    cluster
}

/// Servers of RKE2 and an agent. On each the kube-proxy is a static pod of the service that is the kubelet.
fn rke2_servers(servers: &[&str], agent: &str) -> Cluster {
    let mut cluster = stacked(servers, &[agent]);
    for (number, server) in servers.iter().enumerate() {
        let name = format!("cp-{}", number + 1);
        cluster.set_node(Node { control_plane: true, ..node(&name, server) });
        let proxy = format!("kube-proxy-{name}@{name}");
        cluster.add_instance(instance(Component::KubeProxy, &proxy, server));
    }
    cluster.add_instance(instance(Component::KubeProxy, "kube-proxy-n-1@n-1", agent));
    cluster
}

/// The service of `node` is replaced: everything of it that is seen runs `version`.
fn replace(cluster: &mut Cluster, node: &str, version: &str) {
    cluster.change_node(node, |node| node.kubelet = Observed::from_report(version));
    cluster.change_instances(|instance| {
        if instance.node.as_deref() == Some(node) {
            instance.version = Observed::from_report(version);
        }
    });
}

/// The cluster after each step of the plan, and after each kubelet.
fn states(mut cluster: Cluster, upgrade: &Upgrade) -> Vec<Cluster> {
    let plan = checked(made(&cluster, upgrade), &cluster, upgrade).unwrap();
    let mut states = Vec::new();
    for hop in &plan.hops {
        let version = hop.version.to_string();
        let steps = hop.steps.iter().map(|step| step.place.to_string());
        let late = |node: &Node| match hop.kubelets {
            Pass::Before(minor) => node.kubelet.minor().unwrap() < minor,
            Pass::All => !node.control_plane,
        };
        let workers = cluster.nodes().iter().filter(|node| late(node)).map(|node| node.name.to_string());
        for node in steps.chain(workers.collect::<Vec<_>>()) {
            replace(&mut cluster, &node, &version);
            states.push(cluster.clone());
        }
    }
    states
}

fn standing(judged: &Assessment, component: Component, name: &str) -> Standing {
    let of = |row: &&crate::skew::Row| {
        row.component == component && row.samples.iter().any(|sample| **sample == *name)
    };
    judged.rows.iter().find(of).unwrap().standing
}

/// Finding S2 promises it of the controllers, and what one service moves with them is no worse.
#[test]
fn no_report_calls_anything_unsupported_while_nodes_of_one_service_go_one_by_one() {
    let three = |version| [version; 3];
    let way = |upgrade: Upgrade, versions: &[&str]| Upgrade {
        via: versions.iter().map(|version| version.parse().unwrap()).collect(),
        ..upgrade
    };
    for (cluster, upgrade) in [
        (k3s(&three("v1.36.4+k3s1"), "v1.36.4+k3s1"), by_node("v1.37.1+k3s1")),
        (k3s(&three("v1.35.4+k3s1"), "v1.33.4+k3s1"), way(by_node("v1.37.1+k3s1"), &["v1.36.4+k3s1"])),
        (rke2_servers(&three("v1.36.4+rke2r1"), "v1.36.4+rke2r1"), by_node("v1.37.1+rke2r1")),
        (
            rke2_servers(&three("v1.35.4+rke2r1"), "v1.33.8+rke2r1"),
            way(by_node("v1.37.1+rke2r1"), &["v1.36.4+rke2r1"]),
        ),
        (rke2("v1.36.4+rke2r1", "v1.36.4+rke2r1", "v1.36.4+rke2r1"), by_node("v1.37.1+rke2r1")),
    ] {
        let (mut ahead, proxies) = (0, cluster.of(Component::KubeProxy).next().is_some());
        let several = cluster.of(Component::KubeApiserver).count() > 1;
        for state in states(cluster, &upgrade) {
            let judged = assess(&state, &Policy::default());
            let wrong: Vec<_> = judged.unsupported().map(|finding| &finding.message).collect();
            assert!(wrong.is_empty(), "{wrong:#?}");
            let minors = |name| state.node(name).unwrap().kubelet.minor();
            if several && minors("cp-1") > minors("cp-3") {
                ahead += 1;
                for component in Component::ALL.into_iter().filter(|component| component.is_controller()) {
                    if state.of(component).next().is_some() {
                        assert_eq!(standing(&judged, component, "cp-1"), Standing::Transitional);
                    }
                }
                assert_eq!(standing(&judged, Component::Kubelet, "cp-1"), Standing::Transitional);
                if proxies {
                    let proxy = standing(&judged, Component::KubeProxy, "kube-proxy-cp-1@cp-1");
                    assert_eq!(proxy, Standing::Transitional);
                }
            }
        }
        assert_eq!(ahead > 0, several, "the middle of the upgrade was seen");
    }
}

/// It talks to the kube-apiservers through a load balancer of its own, which knows all of them.
#[test]
fn an_agent_that_is_newer_than_the_oldest_server_is_unsupported() {
    for (mut cluster, version) in [
        (k3s(&["v1.36.4+k3s1"; 3], "v1.36.4+k3s1"), "v1.37.1+k3s1"),
        (rke2_servers(&["v1.36.4+rke2r1"; 3], "v1.36.4+rke2r1"), "v1.37.1+rke2r1"),
    ] {
        replace(&mut cluster, "cp-1", version);
        replace(&mut cluster, "n-1", version);
        let judged = assess(&cluster, &Policy::default());
        let wrong: Vec<_> = judged.unsupported().flat_map(|finding| finding.samples.clone()).collect();
        let proxies = cluster.of(Component::KubeProxy).any(|proxy| proxy.node.as_deref() == Some("n-1"));
        assert_eq!(wrong.len(), 1 + usize::from(proxies), "{wrong:?}");
        assert!(wrong.iter().all(|name| name.ends_with("n-1")), "{wrong:?}");
        assert_eq!(standing(&judged, Component::Kubelet, "n-1"), Standing::Unsupported);
        assert_eq!(standing(&judged, Component::Kubelet, "cp-1"), Standing::Transitional);
    }
}
