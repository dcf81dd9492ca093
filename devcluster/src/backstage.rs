//! What runs behind the scenes: etcd and KWOK, which are no part of the simulated cluster's own nodes.
//!
//! Belongs here: their command lines. Never here: control-plane components (see `role`). Invariant: etcd is up
//! before anything that needs it is started, because an apiserver without etcd wastes seconds in retries.

use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::assets::Assets;
use crate::binary::Binary;
use crate::error::{Error, Result};
use crate::net;
use crate::process::{Flags, Invocation, Process};
use crate::role::Files;
use crate::wait::wait_for;

/// The stages that simulated kubelets go through.
const STAGES: &str = include_str!("stages.yaml");

pub(crate) fn start_etcd(assets: &Assets, files: &Files) -> Result<Process> {
    let client = format!("http://{}:{}", net::BACKSTAGE, net::ETCD_PORT);
    let peer = format!("http://{}:{}", net::BACKSTAGE, net::ETCD_PEER_PORT);
    let args = Flags::default()
        .path("data-dir", files.dir.join("etcd"))
        .set("name", "etcd")
        .set("listen-client-urls", &client)
        .set("advertise-client-urls", &client)
        .set("listen-peer-urls", &peer)
        .set("initial-advertise-peer-urls", &peer)
        .set("initial-cluster", format!("etcd={peer}"))
        .set("log-level", "warn")
        // Nothing here survives a power cut anyway.
        .extend(["--unsafe-no-fsync"])
        .into_args();
    Process::start(&Invocation {
        program: assets.path(Binary::Etcd)?,
        args,
        hostname: None,
        log: files.log("etcd"),
    })
}

pub(crate) async fn etcd_listens(etcd: &mut Process) -> Result<()> {
    let up = wait_for("etcd to listen", Duration::from_secs(30), async || {
        if let Some(status) = etcd.ended() {
            return Ok(Err(format!("ended ({status}) before it listened")));
        }
        let connected = TcpStream::connect((net::BACKSTAGE, net::ETCD_PORT)).await;
        connected.map(|_| Ok(())).map_err(|e| e.to_string())
    });
    let what = match up.await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(what)) => what,
        Err(timeout) => timeout.to_string(),
    };
    Err(Error::Component { name: "etcd".to_owned(), what, tail: etcd.log_tail() })
}

pub(crate) fn start_kwok(assets: &Assets, files: &Files, kubeconfig: &Path) -> Result<Process> {
    let stages = files.dir.join("stages.yaml");
    std::fs::write(&stages, STAGES).map_err(Error::io("writing", &stages))?;
    let args = Flags::default()
        .path("kubeconfig", kubeconfig)
        .path("config", &stages)
        .set("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")
        // As a kubelet: a lease of 40 s, renewed every 10 s.
        .set("node-lease-duration-seconds", "40")
        .set("node-ip", net::BACKSTAGE.to_string())
        .set("cidr", "10.244.0.0/16")
        .set("v", "WARN")
        .into_args();
    Process::start(&Invocation {
        program: assets.path(Binary::Kwok)?,
        args,
        hostname: None,
        log: files.log("kwok"),
    })
}
