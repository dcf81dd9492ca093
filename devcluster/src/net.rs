//! The addresses of a development cluster.
//!
//! Belongs here: which address and port everything listens on. Never here: sockets. Invariant: every address
//! is from the documentation range 192.0.2.0/24 and exists only on the loopback device of a private network
//! namespace, so no two clusters and no real network can ever meet. (Loopback addresses themselves would be
//! refused in an `EndpointSlice`.)

use std::net::{Ipv4Addr, SocketAddr};

/// How many control-plane nodes a cluster can have.
pub(crate) const MAX_CONTROL_PLANE: usize = 3;

/// The stable address in front of all apiservers, which kubeconfigs point at.
pub(crate) const BALANCER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

/// Where etcd and KWOK listen: not part of any node.
pub(crate) const BACKSTAGE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);

pub(crate) const APISERVER_PORT: u16 = 6443;
pub(crate) const CONTROLLER_MANAGER_PORT: u16 = 10257;
pub(crate) const SCHEDULER_PORT: u16 = 10259;
pub(crate) const ETCD_PORT: u16 = 2379;
pub(crate) const ETCD_PEER_PORT: u16 = 2380;

/// The services of the cluster get their virtual addresses from here; the first one is the apiserver's.
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/16";
pub(crate) const SERVICE_APISERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The address of control-plane node `index` (from 0).
pub(crate) fn control_plane(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, u8::try_from(index + 1).unwrap_or(u8::MAX))
}

/// Every address that the loopback device must have.
pub(crate) fn all() -> Vec<Ipv4Addr> {
    (0..MAX_CONTROL_PLANE).map(control_plane).chain([BALANCER, BACKSTAGE]).collect()
}

pub(crate) fn balancer() -> SocketAddr {
    (BALANCER, APISERVER_PORT).into()
}

/// The URL that clients use.
pub(crate) fn server_url() -> String {
    format!("https://{}", balancer())
}
