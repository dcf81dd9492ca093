//! The three components of a control-plane node, and the command line of each.
//!
//! Belongs here: names, ports, flags. Never here: processes. Invariant: a component listens on its node's own
//! address, so nothing depends on which node it is on but that address.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::binary::Binary;
use crate::net;
use crate::pki::Pki;
use crate::process::Flags;
use crate::release::Release;

/// What a control-plane process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// `kube-apiserver`.
    Apiserver,
    /// `kube-controller-manager`.
    ControllerManager,
    /// `kube-scheduler`.
    Scheduler,
}

/// Files and folders that command lines refer to.
pub(crate) struct Files {
    pub(crate) pki: Pki,
    pub(crate) dir: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) audit_policy: PathBuf,
    pub(crate) controller_manager_kubeconfig: PathBuf,
    pub(crate) scheduler_kubeconfig: PathBuf,
}

impl Files {
    /// The audit log of one apiserver.
    pub(crate) fn audit_log(&self, index: usize) -> PathBuf {
        self.logs.join(format!("audit-cp-{}.log", index + 1))
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }
}

impl Role {
    /// The name of the binary, of the image and of the static pod's `component` label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apiserver => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }

    pub(crate) fn binary(self, release: Release) -> Binary {
        match self {
            Self::Apiserver => Binary::Apiserver(release),
            Self::ControllerManager => Binary::ControllerManager(release),
            Self::Scheduler => Binary::Scheduler(release),
        }
    }

    pub(crate) fn address(self, index: usize) -> SocketAddr {
        let port = match self {
            Self::Apiserver => net::APISERVER_PORT,
            Self::ControllerManager => net::CONTROLLER_MANAGER_PORT,
            Self::Scheduler => net::SCHEDULER_PORT,
        };
        (net::control_plane(index), port).into()
    }

    /// Where the component says whether it works; open to everyone.
    pub(crate) fn health_path(self) -> &'static str {
        match self {
            Self::Apiserver => "/readyz",
            Self::ControllerManager | Self::Scheduler => "/healthz",
        }
    }

    pub(crate) fn args(self, index: usize, files: &Files, extra: &[String]) -> Vec<OsString> {
        let address = self.address(index);
        let flags = Flags::default()
            .set("bind-address", address.ip().to_string())
            .set("secure-port", address.port().to_string())
            .path("tls-cert-file", files.pki.serving_certificate())
            .path("tls-private-key-file", files.pki.serving_key())
            .set("profiling", "false");
        let flags = match self {
            Self::Apiserver => apiserver(flags, index, files),
            Self::ControllerManager => controller_manager(flags, files),
            Self::Scheduler => leader_elected(flags, &files.scheduler_kubeconfig),
        };
        flags.extend(extra.iter().map(String::as_str)).into_args()
    }
}

fn apiserver(flags: Flags, index: usize, files: &Files) -> Flags {
    let pki = &files.pki;
    flags
        .set("advertise-address", net::control_plane(index).to_string())
        .set("etcd-servers", format!("http://{}:{}", net::BACKSTAGE, net::ETCD_PORT))
        // Each apiserver leases its own place in the EndpointSlice, as in production.
        .set("endpoint-reconciler-type", "lease")
        .set("service-cluster-ip-range", net::SERVICE_RANGE)
        .path("cert-dir", files.dir.join(format!("cp-{}", index + 1)))
        .path("client-ca-file", pki.ca())
        .set("service-account-issuer", "https://kubernetes.default.svc.cluster.local")
        .path("service-account-key-file", pki.account_public_key())
        .path("service-account-signing-key-file", pki.account_private_key())
        .set("authorization-mode", "Node,RBAC")
        .set("enable-admission-plugins", "NodeRestriction")
        .set("allow-privileged", "true")
        .path("audit-policy-file", &files.audit_policy)
        .path("audit-log-path", files.audit_log(index))
        // Without this, SIGTERM leaves open watches alone, and the process lives until its grace is over.
        .set("shutdown-watch-termination-grace-period", "1s")
        // Rotation would cut a test's record in two; the log dies with the cluster anyway.
        .set("audit-log-maxsize", "10000")
}

fn controller_manager(flags: Flags, files: &Files) -> Flags {
    leader_elected(flags, &files.controller_manager_kubeconfig)
        .path("service-account-private-key-file", files.pki.account_private_key())
        .path("root-ca-file", files.pki.ca())
        .set("use-service-account-credentials", "true")
        .set("service-cluster-ip-range", net::SERVICE_RANGE)
        .set("controllers", "*")
        // The default of 20 requests a second makes the start of its controllers, and every test, wait.
        .set("kube-api-qps", "500")
        .set("kube-api-burst", "1000")
}

/// Leader election at about half of the usual times, so that a test does not wait for a lease to run out.
fn leader_elected(flags: Flags, kubeconfig: &Path) -> Flags {
    flags
        .path("kubeconfig", kubeconfig)
        .set("leader-elect", "true")
        .set("leader-elect-lease-duration", "8s")
        .set("leader-elect-renew-deadline", "6s")
        .set("leader-elect-retry-period", "1s")
}
