//! A replica of the operator on a virtual cluster: it is started again whenever it ends, as a kubelet does with a pod.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use evenkeel::clients::Clients;
use evenkeel::clock::Clock;
use evenkeel::operator::{OperatorOptions, operate};
use evenkeel_core::lease::LeaseTiming;
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_sim::{Cluster, Process};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Runs the replica called `evenkeel-<name>` until `stop`; with `upgrades` it drives `ClusterUpgrade`s too.
pub async fn replica(cluster: Cluster, name: &'static str, upgrades: bool, stop: CancellationToken) {
    replica_at(cluster, name, upgrades, ([127, 0, 0, 1], 0).into(), stop).await;
}

/// The same, which shows its metrics at this address.
pub async fn replica_at(
    cluster: Cluster,
    name: &'static str,
    upgrades: bool,
    listen: SocketAddr,
    stop: CancellationToken,
) {
    let mut start = 0;
    while !stop.is_cancelled() {
        start += 1;
        let process = cluster.process(&format!("evenkeel-{name}"));
        let ended = CancellationToken::new();
        let options = OperatorOptions { listen, ..options(name, start, upgrades) };
        let run = operate(clients(&process), options, clock(&cluster), ended.clone());
        let crashed = async {
            while !process.is_dead() {
                let known = cluster.faults().crashes();
                if process.is_dead() {
                    return;
                }
                cluster.faults().crashed(known).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = crashed => {}
            _ = run => {}
        }
        sleep(Duration::from_secs(2)).await;
    }
}

pub fn clients(process: &Process) -> Clients {
    let probed = process.clone();
    Clients {
        read: process.client(),
        effects: process.client(),
        election: process.client_as(&format!("{}-lease", process.agent())),
        connect: Arc::new(move |address| Ok(probed.client_at(address))),
    }
}

pub fn options(name: &str, start: u32, upgrades: bool) -> OperatorOptions {
    let seconds = Duration::from_secs;
    OperatorOptions {
        upgrades,
        namespace: "kube-system".to_owned(),
        identity: format!("{name}_{start}"),
        executors_namespace: "evenkeel-executors".to_owned(),
        lease: LeaseTiming { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) },
        listen: ([127, 0, 0, 1], 0).into(),
        releases: Catalogue::shipped().unwrap(),
    }
}

pub fn clock(cluster: &Cluster) -> Clock {
    let cluster = cluster.clone();
    Clock::new(move || cluster.now())
}

/// The page of metrics at `address`. The virtual clock stands still meanwhile.
pub async fn page(address: SocketAddr) -> String {
    let ask = move || {
        let mut server = TcpStream::connect(address).unwrap();
        server.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        server.read_to_string(&mut page).unwrap();
        page
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}
