//! A cluster of real nodes: how it starts, and what is done for it while it runs.
//!
//! Belongs here: the order in which nodes are started and join, and the balancer before them. Never here: what happens
//! on one node (see `node`, `kubeadm`). Invariants: when `start` returns, every node is Ready and cluster DNS answers;
//! nothing in here outlives the namespaces.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::Client;
use kube::api::{Api, ListParams};
use tempfile::TempDir;

use crate::assets::Assets;
use crate::balancer::{Backend, Balancer, Unhealthy};
use crate::binary::Binary;
use crate::error::{Error, Result};
use crate::real::cgroups::Cgroups;
use crate::real::images::TOOLS;
use crate::real::kit::Kit;
use crate::real::kubeadm::Settings;
use crate::real::node::{BRIDGE, Node, Wanted};
use crate::release::Release;
use crate::wait::wait_for;
use crate::{clients, namespace, net};

/// Nodes get addresses of one byte; so many workers are more than any machine carries.
const MAX_WORKERS: usize = 20;

/// After so many failed probes a kube-apiserver is no longer healthy; `HAProxy`'s default.
const FALL: u32 = 3;

/// What a cluster of real nodes is to be made of.
#[derive(Debug, Clone)]
pub struct RealPlan {
    /// The name of its session.
    pub name: String,
    /// One to three.
    pub control_planes: usize,
    /// None to twenty.
    pub workers: usize,
    /// Which Kubernetes it begins with.
    pub release: Release,
    /// Further images that every node has: their names, and the program that each is made of.
    pub images: Vec<(String, PathBuf)>,
}

/// A running cluster of real nodes.
pub struct RealCluster {
    nodes: Vec<Node>,
    backends: Vec<Backend>,
    _balancer: Balancer,
    kubeconfig: PathBuf,
    dir: TempDir,
}

/// Where a node is in the network.
struct Place {
    name: String,
    address: Ipv4Addr,
    pods: String,
    control_plane: bool,
}

impl RealPlan {
    /// Does such a cluster make sense?
    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=net::MAX_CONTROL_PLANE).contains(&self.control_planes) || self.workers > MAX_WORKERS {
            return Err(Error::Usage(format!(
                "a cluster of real nodes has one to {} control planes and at most {MAX_WORKERS} workers",
                net::MAX_CONTROL_PLANE
            )));
        }
        Ok(())
    }

    fn places(&self) -> Vec<Place> {
        let place = |name: String, address: Ipv4Addr, control_plane| {
            let [.., last] = address.octets();
            Place { name, address, pods: format!("10.244.{last}.0/24"), control_plane }
        };
        let control_planes =
            (0..self.control_planes).map(|i| place(format!("cp-{}", i + 1), net::control_plane(i), true));
        // Addresses of workers begin after those of control planes, with room for more of them.
        let workers =
            (0..self.workers).map(|i| place(format!("worker-{}", i + 1), net::control_plane(10 + i), false));
        control_planes.chain(workers).collect()
    }

    /// What it consists of, for people.
    pub fn summary(&self) -> String {
        format!(
            "real nodes of {}, {} of the control plane and {} workers",
            self.release.version(),
            self.control_planes,
            self.workers
        )
    }
}

/// Runs `body` in namespaces with a network for real nodes.
pub fn in_namespace<F, Fut>(body: F) -> Result<ExitCode>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ExitCode>,
{
    namespace::enter_with(set_up, body)
}

/// Prepares the namespaces this process is in: a bridge that has the address of all control planes.
fn set_up() -> Result<()> {
    namespace::scratch()?;
    let address = format!("{}/24", net::BALANCER);
    for args in [
        &["link", "set", "lo", "up"][..],
        &["link", "add", BRIDGE, "type", "bridge"],
        &["addr", "add", &address, "dev", BRIDGE],
        &["link", "set", BRIDGE, "up"],
    ] {
        namespace::run("ip", args)?;
    }
    Ok(())
}

impl RealCluster {
    /// Starts nodes, makes a cluster of them with kubeadm, and waits until all of it is ready.
    pub async fn start(plan: &RealPlan) -> Result<Self> {
        plan.check()?;
        // The process that keeps the cluster is in the same ones, and removes them.
        let cgroups = Cgroups::of(&plan.name)?;
        let kit = Kit::ready(&Assets::from_env()?)?;
        let dir = tempfile::Builder::new()
            .prefix("devcluster-")
            .tempdir_in(namespace::SCRATCH)
            .map_err(Error::io("making a folder in", namespace::SCRATCH))?;
        let places = plan.places();
        let backends: Vec<_> = places
            .iter()
            .filter(|p| p.control_plane)
            .enumerate()
            .map(|(index, p)| Backend {
                address: (p.address, net::APISERVER_PORT).into(),
                // Until something can be asked, only the first has an apiserver.
                healthy: Arc::new(AtomicBool::new(index == 0)),
            })
            .collect();
        let balancer = Balancer::start(net::balancer(), backends.clone(), Unhealthy::Ends).await?;
        let settings = Settings::new(plan.release)?;
        let images = own_images(plan, &kit, dir.path())?;
        let nodes = dir.path().join("nodes");
        let makers = Makers { kit, cgroups, dir: nodes, places, release: plan.release, images };
        let kubeconfig = dir.path().join("admin.conf");
        let nodes = makers.make(&settings, &kubeconfig).await?;
        let cluster = Self { nodes, backends, _balancer: balancer, kubeconfig, dir };
        cluster.wait_until_ready().await?;
        Ok(cluster)
    }

    /// The administrator's kubeconfig, through the balancer.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The folder that everything of this cluster is in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The folder of a kubectl that knows this cluster's releases.
    pub fn kubectl_path(&self) -> Result<PathBuf> {
        Binary::Kubectl.path()
    }

    /// Kills a node as when its power fails, and starts it again after `away`.
    pub async fn power_cycle(&self, node: &str, away: Duration) -> Result<()> {
        let found = self.nodes.iter().find(|known| known.name == node).ok_or_else(|| {
            let names: Vec<_> = self.nodes.iter().map(|known| known.name.as_str()).collect();
            Error::Usage(format!("there is no real node {node}; there are {}", names.join(", ")))
        })?;
        found.power_cycle(away).await
    }

    /// Keeps the balancer's knowledge of control planes true, for as long as the cluster lives.
    pub async fn supervise(&self) -> Result<()> {
        let mut probes = Vec::new();
        for backend in &self.backends {
            probes.push(clients::probe(&self.kubeconfig, &format!("https://{}", backend.address)).await?);
        }
        let mut fallen = vec![0; probes.len()];
        loop {
            let rounds =
                self.backends.iter().zip(&probes).zip(&mut fallen).map(async |((backend, probe), fallen)| {
                    let answers = clients::get(probe, "/readyz").await.is_ok();
                    *fallen = if answers { 0 } else { *fallen + 1 };
                    backend.healthy.store(*fallen < FALL, Ordering::Relaxed);
                });
            futures::future::join_all(rounds).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let started = Instant::now();
        let client = clients::from_kubeconfig(&self.kubeconfig).await?;
        let limit = Duration::from_mins(3);
        wait_for("every node to be Ready", limit, async || ready_nodes(&client, self.nodes.len()).await)
            .await?;
        wait_for("cluster DNS to be available", limit, async || dns(&client).await).await?;
        println!("all {} nodes are Ready, and cluster DNS is up ({})", self.nodes.len(), since(started));
        Ok(())
    }
}

/// What is needed to make nodes.
struct Makers {
    kit: Kit,
    cgroups: Cgroups,
    dir: PathBuf,
    places: Vec<Place>,
    release: Release,
    /// Files of images that only this cluster has.
    images: Vec<PathBuf>,
}

/// Writes the images that were asked for into files below `dir`.
fn own_images(plan: &RealPlan, kit: &Kit, dir: &Path) -> Result<Vec<PathBuf>> {
    let dir = dir.join("images");
    fs::create_dir(&dir).map_err(Error::io("creating", &dir))?;
    let files = plan.images.iter().enumerate().map(|(index, (name, program))| {
        let file = dir.join(format!("{index}.tar"));
        kit.write_image(name, program, &file).map(|()| file)
    });
    files.collect()
}

impl Makers {
    /// The first control plane at once; the others are prepared meanwhile, and join when it is there.
    async fn make(&self, settings: &Settings, kubeconfig: &Path) -> Result<Vec<Node>> {
        let (first, rest) =
            self.places.split_first().ok_or_else(|| Error::Usage("no node at all".to_owned()))?;
        let first = async {
            let node = self.prepare(first).await?;
            let started = Instant::now();
            let text = settings.init(&node).await?;
            fs::write(kubeconfig, text).map_err(Error::io("writing", kubeconfig))?;
            println!("{} is a control plane ({})", node.name, since(started));
            Ok::<_, Error>(node)
        };
        let others = try_join_all(rest.iter().map(|place| self.prepare(place)));
        let (first, others) = futures::future::try_join(first, others).await?;
        let (control_planes, workers): (Vec<_>, Vec<_>) = others.into_iter().partition(|n| n.control_plane);
        // etcd takes in one member after the other.
        let one_by_one = async {
            for node in &control_planes {
                join(settings, node).await?;
            }
            Ok::<_, Error>(())
        };
        let at_once = try_join_all(workers.iter().map(|node| join(settings, node)));
        futures::future::try_join(one_by_one, at_once).await?;
        Ok(std::iter::once(first).chain(control_planes).chain(workers).collect())
    }

    /// A node with images and packages, part of nothing yet.
    async fn prepare(&self, place: &Place) -> Result<Node> {
        let started = Instant::now();
        let routes: Vec<_> = self.places.iter().map(|p| (p.address, p.pods.clone())).collect();
        let wanted = Wanted {
            name: place.name.clone(),
            address: place.address,
            control_plane: place.control_plane,
            release: self.release,
            gateway: net::BALANCER,
            routes: &routes,
            pods: place.pods.clone(),
        };
        let node = Node::start(wanted, self.dir.join(&place.name), &self.kit, &self.cgroups).await?;
        let up = since(started);
        // The images of later releases too: an upgrade finds them as if it had pulled them.
        let releases = Release::REAL.into_iter().filter(|r| *r >= self.release);
        let mut images: BTreeSet<_> =
            releases.flat_map(|r| self.kit.images_for(r, place.control_plane)).collect();
        images.extend(self.images.iter().cloned());
        node.import(&images).await?;
        let tools = node.name_by_digest(TOOLS).await?;
        let loaded = since(started);
        node.install(self.release).await?;
        println!(
            "{} runs (containerd answers after {up}, images are in after {loaded}, all {})",
            node.name,
            since(started)
        );
        if place.name == "cp-1" {
            println!("every node has the image {TOOLS}, also as {tools}");
        }
        Ok(node)
    }
}

async fn join(settings: &Settings, node: &Node) -> Result<()> {
    let started = Instant::now();
    settings.join(node).await?;
    let what = if node.control_plane { "a further control plane" } else { "a worker" };
    println!("{} is {what} ({})", node.name, since(started));
    Ok(())
}

fn since(started: Instant) -> String {
    format!("{:.1} s", started.elapsed().as_secs_f64())
}

async fn ready_nodes(client: &Client, wanted: usize) -> std::result::Result<(), String> {
    let nodes: Api<ApiNode> = Api::all(client.clone());
    let list = nodes.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
    let ready = list.iter().filter(|node| {
        let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
        conditions.is_some_and(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
    });
    let ready = ready.count();
    if ready == wanted { Ok(()) } else { Err(format!("{ready} of {wanted}")) }
}

async fn dns(client: &Client) -> std::result::Result<(), String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    let deployment = deployments.get("coredns").await.map_err(|e| e.to_string())?;
    let status = deployment.status.unwrap_or_default();
    match (status.available_replicas, status.replicas) {
        (Some(available), Some(all)) if available == all => Ok(()),
        (available, all) => Err(format!("{} of {}", available.unwrap_or(0), all.unwrap_or(0))),
    }
}
