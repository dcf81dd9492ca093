//! Kubelets and kube-proxies of nodes whose kube-apiserver is one service with them, and of others that look alike.

use super::*;
use crate::cluster::{Evidence, Node};
use crate::fixture::node;

/// Two servers, of which the first is at 1.37 with all that moves with it, and the second at 1.36.
fn halfway(builds: [&str; 2]) -> Cluster {
    let mut cluster = cluster(&[], "v1.0.0", &[]);
    let mut instances = Vec::new();
    for (name, version) in ["cp-1", "cp-2"].into_iter().zip(builds) {
        for component in [Component::KubeApiserver, Component::KubeScheduler] {
            let there = instance(component, name, version);
            instances.push(crate::cluster::Instance { reach: Reach::Local, ..there });
        }
        instances.push(instance(Component::KubeProxy, &format!("kube-proxy-{name}@{name}"), version));
        cluster.set_node(Node { control_plane: true, ..node(name, version) });
    }
    cluster.set_instances(instances);
    cluster
}

/// The components that are called unsupported.
fn unsupported(cluster: &Cluster) -> Vec<Component> {
    assess(cluster, &Policy::default()).unsupported().map(|finding| finding.component).collect()
}

fn standing(cluster: &Cluster, component: Component, version: &str) -> Standing {
    let rows = assess(cluster, &Policy::default()).rows;
    rows.iter().find(|row| row.component == component && row.version.to_string() == version).unwrap().standing
}

const RKE2: [&str; 2] = ["v1.37.1+rke2r1", "v1.36.4+rke2r1"];
const K3S: [&str; 2] = ["v1.37.1+k3s1", "v1.36.4+k3s1"];

/// The same of k3s, whose kube-proxy is in the process, too, and shown by nothing.
fn k3s() -> Cluster {
    let mut k3s = halfway(K3S);
    let shown = k3s.instances().iter().filter(|instance| instance.component != Component::KubeProxy);
    let shown = shown.cloned().collect();
    k3s.set_instances(shown);
    k3s
}

#[test]
fn what_is_one_service_with_a_kube_apiserver_is_compared_with_that_one() {
    let rke2 = halfway(RKE2);
    assert_eq!(unsupported(&rke2), []);
    for component in [Component::Kubelet, Component::KubeProxy] {
        assert_eq!(standing(&rke2, component, RKE2[0]), Standing::Transitional, "{component}");
        assert_eq!(standing(&rke2, component, RKE2[1]), Standing::Supported, "{component}");
    }
    let k3s = k3s();
    assert_eq!(unsupported(&k3s), []);
    assert_eq!(standing(&k3s, Component::Kubelet, K3S[0]), Standing::Transitional);
    // Of a build that tells nothing, where the process is told by the observer.
    let mut other = halfway(["v1.37.1", "v1.36.4"]);
    other.change_instances(|instance| {
        if instance.component != Component::KubeApiserver {
            instance.evidence = Evidence::SameProcess;
        }
    });
    assert_eq!(unsupported(&other), []);
}

#[test]
fn a_kubelet_of_kubeadm_is_compared_with_its_own_kube_apiserver_since_that_is_what_it_talks_to() {
    let kubeadm = halfway(["v1.37.1", "v1.36.4"]);
    assert_eq!(standing(&kubeadm, Component::Kubelet, "v1.37.1"), Standing::Transitional);
    assert_eq!(kubelets_ceiling(&kubeadm), Some(Minor::new(1, 36)), "for upgrades the oldest counts");
    let mut ahead = kubeadm;
    ahead.change_node("cp-2", |node| node.kubelet = Observed::from_report("v1.37.1"));
    let judged = assess(&ahead, &Policy::default());
    let kubelets = judged.unsupported().filter(|finding| finding.component == Component::Kubelet);
    let names: Vec<_> = kubelets.flat_map(|finding| finding.samples.clone()).collect();
    assert_eq!(names, ["cp-2".into()], "its own is older");
    // Before 1.35 it was a choice.
    assert!(!unsupported(&halfway(["v1.35.1", "v1.34.4"])).contains(&Component::Kubelet));
    assert!(unsupported(&halfway(["v1.34.1", "v1.33.4"])).contains(&Component::Kubelet));
}

/// The kube-apiserver is told by the kubelet of the same process.
#[test]
fn the_kube_apiservers_of_k3s_are_compared_with_one_another() {
    let judged = assess(&k3s(), &Policy::default());
    let behind = |version: &str| {
        let is = |row: &&Row| row.component == Component::KubeApiserver && row.version.to_string() == version;
        judged.rows.iter().find(is).unwrap().behind
    };
    assert_eq!([behind(K3S[0]), behind(K3S[1])], [Some(0), Some(1)]);
}

#[test]
fn a_kubelet_that_is_newer_than_its_own_kube_apiserver_is_unsupported() {
    for (mut cluster, builds) in [(halfway(RKE2), RKE2), (k3s(), K3S)] {
        cluster.change_node("cp-2", |node| node.kubelet = Observed::from_report(builds[0]));
        assert_eq!(unsupported(&cluster), [Component::Kubelet], "{builds:?}");
        let judged = assess(&cluster, &Policy::default());
        let names: Vec<_> = judged.unsupported().flat_map(|finding| finding.samples.clone()).collect();
        assert_eq!(names, ["cp-2".into()], "{builds:?}");
    }
}

/// RKE2 replaces it as a static pod, and meanwhile it does not answer.
#[test]
fn what_is_one_service_with_a_silent_kube_apiserver_is_not_called_unsupported() {
    let mut rke2 = halfway(RKE2);
    rke2.change_instances(|instance| {
        if instance.component == Component::KubeApiserver && &*instance.name == "cp-1" {
            instance.version = Observed::from_report("");
        }
    });
    assert_eq!(unsupported(&rke2), []);
    for component in [Component::Kubelet, Component::KubeProxy] {
        assert_eq!(standing(&rke2, component, RKE2[0]), Standing::Unknown, "{component}");
        assert_eq!(standing(&rke2, component, RKE2[1]), Standing::Supported, "{component}");
    }
}

#[test]
fn what_may_talk_to_any_kube_apiserver_is_compared_with_all() {
    // kubeadm leaves kube-proxy to a DaemonSet.
    let kubeadm = halfway(["v1.37.1", "v1.36.4"]);
    assert_eq!(unsupported(&kubeadm), [Component::KubeProxy]);
    // Somebody else's control plane, of which it is not known whom its parts talk to.
    let mut unknown = kubeadm;
    unknown.change_instances(|instance| instance.reach = Reach::Any);
    assert!(unsupported(&unknown).contains(&Component::Kubelet));
    // A kube-proxy of somebody else on a server of RKE2, and one of RKE2's images on a server of kubeadm.
    for (builds, build) in [(RKE2, "v1.37.1"), (["v1.37.1", "v1.36.4"], RKE2[0])] {
        let mut cluster = halfway(builds);
        cluster.change_instances(|instance| {
            if &*instance.name == "kube-proxy-cp-1@cp-1" {
                instance.version = Observed::from_report(build);
            }
        });
        assert!(unsupported(&cluster).contains(&Component::KubeProxy), "{build} beside {builds:?}");
    }
    // A server of k3s that was started without a kube-apiserver finds those of the others by a load balancer.
    let mut without = k3s();
    without.change_instances(|instance| match (instance.component, &*instance.name) {
        (Component::KubeApiserver, "cp-1") => instance.node = Some("cp-3".into()),
        (Component::KubeScheduler, "cp-1") => instance.evidence = Evidence::SameProcess,
        _ => {}
    });
    assert!(unsupported(&without).contains(&Component::Kubelet));
}
