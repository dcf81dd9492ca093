//! Which programs there are, and what each of them is compiled from.
//!
//! Belongs here: the list of binaries, their recipes and their cache keys. Never here: finding them (see `assets`),
//! compiling them (see `build`) or running them. Invariant: a key changes as soon as anything that goes into the
//! build does, and not before: binaries that take half an hour to build are never built twice.

use std::path::{Path, PathBuf};

use crate::digest::digest;
use crate::release::{Module, Release, required};

/// One program that a development cluster runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binary {
    /// The store of all state.
    Etcd,
    /// The simulator of nodes and of the pods on them.
    Kwok,
    /// The API server of a release.
    Apiserver(Release),
    /// The controller manager of a release.
    ControllerManager(Release),
    /// The scheduler of a release.
    Scheduler(Release),
    /// The command line client of the newest release.
    Kubectl,
    /// The kubelet of a release, for real nodes.
    Kubelet(Release),
    /// What makes a real cluster of a release, and upgrades it.
    Kubeadm(Release),
    /// The service proxy of a release.
    KubeProxy(Release),
    /// The container runtime of real nodes.
    Containerd,
    /// The parent of each pod's containers; it outlives the runtime.
    ContainerdShim,
    /// The runtime's own client, which imports images.
    Ctr,
    /// What starts a container.
    Runc,
    /// Cluster DNS.
    Coredns,
    /// A network plugin of real nodes.
    Cni(Plugin),
}

/// The network plugins that a real node needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    /// Connects pods to a bridge of their node.
    Bridge,
    /// Gives out addresses from the node's range.
    HostLocal,
    /// Sets up the loopback device of a pod.
    Loopback,
    /// Ports of the node that lead to a pod.
    Portmap,
}

impl Plugin {
    /// Every plugin.
    pub const ALL: [Self; 4] = [Self::Bridge, Self::HostLocal, Self::Loopback, Self::Portmap];

    fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::HostLocal => "host-local",
            Self::Loopback => "loopback",
            Self::Portmap => "portmap",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Bridge => "plugins/main/bridge",
            Self::HostLocal => "plugins/ipam/host-local",
            Self::Loopback => "plugins/main/loopback",
            Self::Portmap => "plugins/meta/portmap",
        }
    }
}

/// The files of a module under `modules/`.
macro_rules! module {
    ($folder:literal, $source:literal) => {
        Module {
            go_mod: include_str!(concat!("../modules/", $folder, "/go.mod")),
            go_sum: include_str!(concat!("../modules/", $folder, "/go.sum")),
            source: ($source, include_str!(concat!("../modules/", $folder, "/", $source))),
        }
    };
}

const KUBERNETES: &str = "k8s.io/kubernetes";
const CONTAINERD: &str = "github.com/containerd/containerd/v2";
const RUNC: &str = "github.com/opencontainers/runc";
const CNI: &str = "github.com/containernetworking/plugins";
const COREDNS: &str = "github.com/coredns/coredns";

impl Binary {
    /// Every binary of a cluster with simulated nodes, small ones first so that a build shows progress early.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Etcd, Self::Kwok];
        for release in Release::ALL.into_iter().rev() {
            all.push(Self::Apiserver(release));
            all.push(Self::ControllerManager(release));
            all.push(Self::Scheduler(release));
        }
        all.push(Self::Kubectl);
        all
    }

    /// What real nodes need besides.
    pub fn of_real_nodes() -> Vec<Self> {
        let mut all: Vec<_> = Plugin::ALL.map(Self::Cni).into();
        all.extend([Self::Runc, Self::Containerd, Self::ContainerdShim, Self::Ctr]);
        for release in Release::REAL {
            all.extend([Self::Kubelet(release), Self::Kubeadm(release), Self::KubeProxy(release)]);
        }
        all.push(Self::Coredns);
        all
    }

    /// The file name, the same as upstream's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Kwok => "kwok",
            Self::Apiserver(_) => "kube-apiserver",
            Self::ControllerManager(_) => "kube-controller-manager",
            Self::Scheduler(_) => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kubelet(_) => "kubelet",
            Self::Kubeadm(_) => "kubeadm",
            Self::KubeProxy(_) => "kube-proxy",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Runc => "runc",
            Self::Coredns => "coredns",
            Self::Cni(plugin) => plugin.name(),
        }
    }

    /// The version, from the module that it is built from.
    pub fn version(self) -> &'static str {
        let module = match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::Kwok => "sigs.k8s.io/kwok",
            Self::Containerd | Self::ContainerdShim | Self::Ctr => CONTAINERD,
            Self::Runc => RUNC,
            Self::Coredns => COREDNS,
            Self::Cni(_) => CNI,
            _ => KUBERNETES,
        };
        required(self.module().go_mod, module).unwrap_or("v0.0.0")
    }

    /// Name and version, as progress and errors print it.
    pub fn label(self) -> String {
        format!("{} {}", self.name(), self.version())
    }

    /// Which Kubernetes release it belongs to, if it is part of Kubernetes.
    pub(crate) fn release(self) -> Option<Release> {
        match self {
            Self::Apiserver(r)
            | Self::ControllerManager(r)
            | Self::Scheduler(r)
            | Self::Kubelet(r)
            | Self::Kubeadm(r)
            | Self::KubeProxy(r) => Some(r),
            Self::Kubectl => Some(Release::NEWEST),
            _ => None,
        }
    }

    pub(crate) fn module(self) -> Module {
        match self {
            Self::Etcd => module!("etcd", "main.go"),
            Self::Kwok => module!("kwok", "tools.go"),
            Self::Apiserver(r) | Self::ControllerManager(r) | Self::Scheduler(r) => r.module(),
            Self::Kubectl => Release::NEWEST.module(),
            // Modules of their own, so that what they need changes nothing about the control plane's binaries.
            Self::Kubelet(r) | Self::Kubeadm(r) | Self::KubeProxy(r) => match r {
                // It is not one of [`Release::REAL`], so nobody asks for these.
                Release::V1_35 => r.module(),
                Release::V1_36 => module!("nodes-1.36", "tools.go"),
                Release::V1_37 => module!("nodes-1.37", "tools.go"),
            },
            Self::Containerd | Self::ContainerdShim | Self::Ctr => module!("containerd", "tools.go"),
            Self::Runc => module!("runc", "tools.go"),
            Self::Coredns => module!("coredns", "tools.go"),
            Self::Cni(_) => module!("cni-plugins", "tools.go"),
        }
    }

    /// What `go build` is asked to compile.
    pub(crate) fn package(self) -> String {
        match self {
            Self::Etcd => ".".to_owned(),
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok".to_owned(),
            Self::Containerd | Self::ContainerdShim | Self::Ctr => {
                format!("{CONTAINERD}/cmd/{}", self.name())
            }
            Self::Runc => RUNC.to_owned(),
            Self::Coredns => COREDNS.to_owned(),
            Self::Cni(plugin) => format!("{CNI}/{}", plugin.package()),
            _ => format!("{KUBERNETES}/cmd/{}", self.name()),
        }
    }

    /// Is it partly written in C? Such a binary is linked statically, because the libraries it needs are not the
    /// machine's own.
    pub(crate) fn has_c(self) -> bool {
        self == Self::Runc
    }

    /// The build tags, separated by commas.
    pub(crate) fn tags(self) -> &'static str {
        match self {
            // kubeadm's static pods ask for the runtime's default seccomp profile.
            Self::Runc => "netgo,osusergo,seccomp",
            _ => "",
        }
    }

    /// The linker flags. Versions are stamped here; without it `/version` would say `v0.0.0-master`.
    pub(crate) fn ldflags(self) -> String {
        if self.has_c() {
            return "-s -w -linkmode external -extldflags -static".to_owned();
        }
        if matches!(self, Self::Containerd | Self::ContainerdShim | Self::Ctr) {
            return format!("-s -w -X {CONTAINERD}/version.Version={}", self.version());
        }
        let Some(release) = self.release() else {
            return "-s -w".to_owned();
        };
        let (major, minor) = release.minor().split_once('.').unwrap_or(("1", "0"));
        let stamps = [
            ("gitVersion", release.version()),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitCommit", "devcluster"),
            ("gitTreeState", "clean"),
            // Fixed, so that building twice gives the same bytes.
            ("buildDate", "2026-01-01T00:00:00Z"),
        ];
        let mut flags = "-s -w".to_owned();
        // The first is what a component says of itself, the second what its clients call themselves.
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            for (name, value) in stamps {
                for part in [" -X ", package, ".", name, "=", value] {
                    flags.push_str(part);
                }
            }
        }
        flags
    }

    /// The folder name in the cache: readable, and different as soon as anything that goes into the build is.
    pub(crate) fn key(self) -> String {
        let module = self.module();
        let (package, ldflags) = (self.package(), self.ldflags());
        let mut parts = vec![module.go_mod, module.go_sum, module.source.1, &package, &ldflags];
        // Left out where there are none: keys of other binaries stay what they were.
        if !self.tags().is_empty() {
            parts.push(self.tags());
        }
        format!("{}-{}-{}", self.name(), self.version(), digest(&parts, 6))
    }

    /// Where the built binary is kept.
    pub(crate) fn cached(self, cache: &Path) -> PathBuf {
        cache.join(self.key()).join(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn every() -> Vec<Binary> {
        Binary::all().into_iter().chain(Binary::of_real_nodes()).collect()
    }

    #[test]
    fn keys_differ_between_binaries_and_are_stable() {
        let keys: BTreeSet<_> = every().into_iter().map(Binary::key).collect();
        assert_eq!(keys.len(), every().len());
        assert_eq!(Binary::Etcd.key(), Binary::Etcd.key());
        assert!(Binary::Etcd.key().starts_with("etcd-v3."));
    }

    #[test]
    fn the_version_is_stamped_into_kubernetes_binaries_only() {
        let flags = Binary::Apiserver(Release::V1_36).ldflags();
        assert!(flags.contains(&format!("gitVersion={}", Release::V1_36.version())), "{flags}");
        assert!(flags.contains("gitMinor=36"), "{flags}");
        assert!(!Binary::Etcd.ldflags().contains("-X"));
    }

    #[test]
    fn a_real_node_runs_the_same_patch_as_the_control_plane() {
        for release in Release::REAL {
            assert_eq!(Binary::Kubelet(release).version(), Binary::Apiserver(release).version());
        }
    }

    #[test]
    fn every_version_is_found_in_its_module() {
        for binary in every() {
            assert_ne!(binary.version(), "v0.0.0", "{binary:?}");
        }
    }
}
