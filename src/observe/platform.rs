//! The distributions that a cluster may be, and what each of them shows of its components.
//!
//! This module does no I/O and reads no clock. Here belongs what is known of whole platforms; how a single pod or
//! endpoint is read does not. The invariant: a platform explains why components are seen or not seen; it adds none, and
//! it never changes a version.

use std::collections::BTreeMap;
use std::fmt;

use evenkeel_core::cluster::{Cluster, Component};
use evenkeel_core::skew::{Assessment, SkewFinding, lifecycle};
use evenkeel_core::version::escape;

use super::leaders::Leading;

/// A distribution or a hosted service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Platform {
    /// kubeadm, and what is built on it (Cluster API).
    Kubeadm,
    /// k3s, which runs the kubelet, kube-proxy and, on servers, the control plane in one process.
    K3s,
    /// RKE2, whose control plane and kube-proxies are static pods that come with the kubelet.
    Rke2,
    /// k0s, whose controllers are processes on hosts that are no Nodes.
    K0s,
    /// Talos Linux, on which nothing but its own API changes a node.
    Talos,
    /// Amazon's EKS, which runs the controllers out of sight.
    Eks,
    /// Google's GKE, which runs the controllers out of sight.
    Gke,
    /// Azure's AKS, which runs the controllers out of sight.
    Aks,
    /// OpenShift and OKD, whose images of the control plane are named by digest and show no version.
    OpenShift,
}

impl Platform {
    /// Its name, as its makers write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubeadm => "kubeadm",
            Self::K3s => "k3s",
            Self::Rke2 => "RKE2",
            Self::K0s => "k0s",
            Self::Talos => "Talos",
            Self::Eks => "EKS",
            Self::Gke => "GKE",
            Self::Aks => "AKS",
            Self::OpenShift => "OpenShift",
        }
    }

    /// What a Node tells of it: by the suffix of its kubelet's version, else by its labels, its operating system or
    /// kubeadm's annotation.
    pub(super) fn of_node(
        kubelet: &str,
        labels: &BTreeMap<String, String>,
        os: &str,
        kubeadm: bool,
    ) -> Option<Self> {
        const SUFFIXES: [(&str, Platform); 5] = [
            ("+k3s", Platform::K3s),
            ("+rke2r", Platform::Rke2),
            ("+k0s", Platform::K0s),
            ("-eks-", Platform::Eks),
            ("-gke.", Platform::Gke),
        ];
        const LABELS: [(&str, Platform); 6] = [
            ("eks.amazonaws.com/nodegroup", Platform::Eks),
            ("eks.amazonaws.com/compute-type", Platform::Eks),
            ("cloud.google.com/gke-nodepool", Platform::Gke),
            ("kubernetes.azure.com/cluster", Platform::Aks),
            ("kubernetes.azure.com/agentpool", Platform::Aks),
            ("node.openshift.io/os_id", Platform::OpenShift),
        ];
        let by_suffix = SUFFIXES.iter().find(|(suffix, _)| kubelet.contains(suffix));
        let by_label = || LABELS.iter().find(|(label, _)| labels.contains_key(*label));
        by_suffix
            .or_else(by_label)
            .map(|(_, platform)| *platform)
            .or_else(|| os.starts_with("Talos").then_some(Self::Talos))
            .or_else(|| kubeadm.then_some(Self::Kubeadm))
    }

    /// Why `component` is never seen as a pod of kube-system on this platform; `None` where it can be seen.
    const fn hides(self, component: Component) -> Option<&'static str> {
        match (self, component) {
            (Self::Eks | Self::Gke | Self::Aks, c) if c.is_controller() => {
                Some("the provider runs it and does not show its version")
            }
            (Self::K0s, c) if c.is_controller() => Some(
                "it is a process on the k0s controllers, which are no Nodes; say --component to have it judged",
            ),
            (Self::K3s, Component::KubeProxy) => {
                Some("it is part of the k3s process on each node, and as old as the kubelet")
            }
            (Self::OpenShift, Component::KubeProxy) => Some(
                "the network operator runs it, or a network plugin that needs none, and moves it with the cluster",
            ),
            (Self::OpenShift, Component::KubeControllerManager | Component::KubeScheduler) => {
                Some("its images are named by digest; give the output of `oc get clusteroperators -o yaml`")
            }
            _ => None,
        }
    }

    /// How a person brings a node component to another version on this platform; `None` where upstream's
    /// instructions hold.
    const fn moves(self, component: Component) -> Option<&'static str> {
        match (self, component) {
            (Self::OpenShift, Component::KubeProxy) => {
                Some("upgrade OpenShift: its network operator moves kube-proxy with the cluster")
            }
            (Self::Rke2, Component::KubeProxy) => {
                Some("upgrade RKE2 on the node: its kube-proxy is a static pod that comes with it")
            }
            (Self::Eks, Component::KubeProxy) => {
                Some("update the kube-proxy add-on of EKS, or what else installed kube-proxy")
            }
            (Self::Gke, Component::KubeProxy) => {
                Some("upgrade the node pool: GKE moves kube-proxy with its node")
            }
            (Self::Aks, Component::KubeProxy) => Some("upgrade AKS: it moves kube-proxy with the cluster"),
            _ => None,
        }
    }

    /// Whether `component` can be seen as a pod of kube-system on this platform.
    pub(super) const fn shows(self, component: Component) -> bool {
        self.hides(component).is_none()
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `judged` with the remedies that hold on `platform`. Nothing else in it changes.
#[must_use]
pub fn advise(mut judged: Assessment, platform: Option<Platform>) -> Assessment {
    // What is too new is not upgraded.
    let is_old = |finding: &&mut SkewFinding| !lifecycle::is_about(finding) && !finding.too_new;
    for finding in judged.findings.iter_mut().filter(is_old) {
        if let Some(remedy) = platform.and_then(|platform| platform.moves(finding.component)) {
            remedy.clone_into(&mut finding.remedy);
        }
    }
    judged
}

/// The components that `cluster` shows nothing of, and why, one line each. A cloud-controller-manager is named only
/// where it is known to be there.
///
/// `leading` are controllers that lead out of sight. `pods_read` is whether kube-system's pods are known; without
/// them only the components that the platform never shows are named.
pub fn hidden(
    platform: Option<Platform>,
    cluster: &Cluster,
    leading: &[Leading],
    pods_read: bool,
) -> Vec<String> {
    let unseen = [
        Component::KubeControllerManager,
        Component::KubeScheduler,
        Component::CloudControllerManager,
        Component::KubeProxy,
    ];
    let unseen = unseen.into_iter().filter(|component| cluster.of(*component).next().is_none());
    let why = |component: Component| {
        let by_platform = platform.and_then(|platform| Some((platform, platform.hides(component)?)));
        let leads = leading.iter().find(|leading| leading.component == component);
        let leads = leads.map(|leading| format!(" ({} leads)", escape(&leading.holder)));
        let line = match (by_platform, component) {
            (Some((platform, why)), _) => format!("{component} on {platform}: {why}"),
            (None, _) if !pods_read => return None,
            (None, Component::CloudControllerManager) if leads.is_none() => return None,
            (None, Component::KubeProxy) => format!(
                "{component}: no pod of kube-system runs it; none is needed where the network plugin does its work"
            ),
            (None, _) => format!(
                "{component}: no pod of kube-system runs it; where it is a process of the host, say --component"
            ),
        };
        Some(line + &leads.unwrap_or_default())
    };
    unseen.filter_map(why).collect()
}

#[cfg(test)]
mod tests {
    use super::super::stated_versions::{self, StatedVersion};
    use super::*;

    #[test]
    fn what_to_do_about_a_kube_proxy_is_said_as_it_is_on_the_platform() {
        use evenkeel_core::skew::{assess, policy::Policy};

        let said = |component, version: &str| StatedVersion {
            component,
            name: Some("s".into()),
            version: version.parse().unwrap(),
        };
        let beside = |proxy| {
            let said = [said(Component::KubeApiserver, "v1.36.4"), said(Component::KubeProxy, proxy)];
            stated_versions::add(Cluster::default(), &said).unwrap()
        };
        let remedy_of = |proxy, platform| {
            let cluster = beside(proxy);
            let judged = advise(assess(&cluster, &Policy::default()), platform);
            let finding = judged.findings.iter().find(|f| f.component == Component::KubeProxy);
            finding.unwrap().remedy.clone()
        };
        let remedy = |platform| remedy_of("v1.32.1", platform);
        assert!(remedy(None).starts_with("set the image of the kube-proxy DaemonSet"), "{}", remedy(None));
        assert_eq!(remedy(Some(Platform::Kubeadm)), remedy(None));
        assert!(remedy(Some(Platform::OpenShift)).starts_with("upgrade OpenShift"));
        let too_new = |platform| remedy_of("v1.37.0", platform);
        assert_eq!(too_new(Some(Platform::Eks)), too_new(None), "to upgrade it makes that worse");
    }

    #[test]
    fn what_is_hidden_is_told_with_its_reason() {
        let none = Cluster::default();
        let words = |platform, pods_read| {
            let lines = hidden(platform, &none, &[], pods_read);
            lines.iter().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(None, false), [""; 0], "that no pods were read is said elsewhere");
        assert_eq!(words(None, true), ["kube-controller-manager", "kube-scheduler", "kube-proxy"]);
        assert_eq!(
            words(Some(Platform::Eks), false),
            ["kube-controller-manager on EKS", "kube-scheduler on EKS", "cloud-controller-manager on EKS"]
        );
        assert_eq!(words(Some(Platform::K3s), true).last().map(String::as_str), Some("kube-proxy on k3s"));
    }
}
