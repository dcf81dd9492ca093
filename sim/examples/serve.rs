//! A cluster for kubectl: served over TLS on this machine until it is interrupted, in real time.
//!
//! `cargo run -p evenkeel-sim --example serve -- <kubeconfig> [nodes] [version …]`, and in another terminal
//! `kubectl --kubeconfig <kubeconfig> get nodes`. Each version gets an API server of its own.

use std::path::PathBuf;

use evenkeel_sim::{Cluster, NodeGroup};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    // No option is known: nobody wants a file of the name `--help`.
    let path = args.next().filter(|path| !path.starts_with('-'));
    let path = PathBuf::from(path.ok_or("usage: serve <kubeconfig> [nodes] [version …]")?);
    let nodes: usize = args.next().map_or(Ok(3), |text| text.parse())?;
    let mut versions: Vec<String> = args.collect();
    if versions.is_empty() {
        versions.push("v1.37.1".into());
    }
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let newest = versions.first().copied().unwrap_or_default();
        let cluster = Cluster::builder().version(newest).starting_at(jiff::Timestamp::now()).start();
        cluster.add_nodes(&NodeGroup::new("worker", nodes).kubelet(newest).zones(["a", "b", "c"]));
        let served = cluster.serve(&versions).await?;
        served.write_kubeconfig(&path)?;
        for endpoint in served.endpoints() {
            println!("https://{} {}", endpoint.address, endpoint.version);
        }
        println!("kubectl --kubeconfig {} get nodes", path.display());
        tokio::signal::ctrl_c().await?;
        Ok(())
    })
}
