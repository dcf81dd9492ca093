//! A large cluster for a program that is measured: workers a minor behind their control plane, with thirty pods each,
//! served over TLS on this machine until it is interrupted, in real time.
//!
//! `cargo run --release -p evenkeel-sim --example crowd -- <kubeconfig> [nodes] [replicas]`; 5,000 nodes, and a
//! budget for every 50 pods, if nothing is said. The kubeconfig is written when everything is there. `make bench-memory` uses it.

use std::path::PathBuf;

use evenkeel_sim::{Cluster, NodeGroup, crowd};

/// Where its three apiservers listen, on this machine.
const NETWORK: [u8; 3] = [127, 10, 37];

/// The C library's own takes three times as long and twice the memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().ok_or("name the file to write the kubeconfig to")?);
    let nodes: usize = args.next().map_or(Ok(5000), |text| text.parse())?;
    let replicas: usize = args.next().map_or(Ok(50), |text| text.parse())?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let cluster = Cluster::builder()
            .version("v1.37.1")
            .network(NETWORK)
            .starting_at(jiff::Timestamp::now())
            .start();
        cluster.add_control_plane(&NodeGroup::new("cp", 3).kubelet("v1.37.1"), "v1.37.1");
        cluster.add_nodes(&NodeGroup::new("worker", nodes).kubelet("v1.36.4").zones(["a", "b", "c"]));
        cluster.load(crowd(nodes, replicas));
        let served = cluster.serve_control_plane().await?;
        served.write_kubeconfig(&path)?;
        tokio::signal::ctrl_c().await?;
        Ok(())
    })
}
