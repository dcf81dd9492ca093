//! Where an API server of a served cluster is.
//!
//! Sockets never belong here, nor does how a program gets there.

use std::net::SocketAddr;

/// One API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The version that it plays, such as `v1.37.1`.
    pub version: String,
    /// Where it listens.
    pub address: SocketAddr,
}
