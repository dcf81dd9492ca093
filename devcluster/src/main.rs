//! `devcluster`: a real Kubernetes control plane on this machine, without Docker.
//!
//! Belongs here: arguments and what is printed. Never here: how anything is done. Invariant: every command says
//! what it did in a line or two, and one that fails says what to do next and exits with a status that is not 0.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use evenkeel_devcluster::control::{self, Order};
use evenkeel_devcluster::real::{self, RealCluster, RealPlan};
use evenkeel_devcluster::session::{Ready, Session};
use evenkeel_devcluster::{Cluster, Error, NodeGroup, Release, Result};

/// A real Kubernetes control plane on this machine, without Docker: etcd, kube-apiservers of chosen minors,
/// kube-controller-manager and kube-scheduler, with simulated nodes, in a private network.
#[derive(Parser)]
#[command(name = "devcluster", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the binaries that are missing, into a cache that all checkouts share
    ///
    /// Needs `go` and, for the first time, about twenty minutes and 3 GB of memory. Where `KUBEBUILDER_ASSETS` names
    /// a folder that holds a binary of the right version, that one is used instead; binaries of the older minor
    /// are looked for in a subfolder named like it, such as `1.36`.
    Build(Build),
    /// Start a cluster in the background and say how to reach it
    Up(Plan),
    /// Run a command, or a shell, where kubectl reaches the cluster
    Shell(Shell),
    /// Replace the binary of a control-plane component while the cluster runs
    Swap(Swap),
    /// Restart the kubelet of a node with another version
    Kubelet(Kubelet),
    /// Kill a real node, as when its power fails, and start it again
    PowerCycle(PowerCycle),
    /// List the clusters that are up
    Status,
    /// End a cluster; nothing is left but the cache of binaries
    Down(Name),
    /// What `up` runs in the background.
    #[command(hide = true)]
    Serve(Plan),
    /// What `up` runs around a cluster of real nodes.
    #[command(hide = true)]
    Keep(Keep),
    /// What starts a real node.
    #[command(hide = true)]
    NodeEnter { spec: PathBuf },
    /// What a real node starts with.
    #[command(hide = true)]
    NodeInit { spec: PathBuf },
}

#[derive(Args)]
struct Keep {
    #[command(flatten)]
    name: Name,
    #[arg(last = true)]
    args: Vec<OsString>,
}

#[derive(Args)]
struct Build {
    /// Build besides what real nodes are made of: another half an hour the first time, and 2.5 GB in the cache
    #[arg(long)]
    real: bool,
}

#[derive(Args)]
struct Name {
    /// Which cluster, where there are several
    #[arg(long, default_value = "dev")]
    name: String,
}

#[derive(Args)]
struct Plan {
    #[command(flatten)]
    name: Name,
    /// Minor of an apiserver, one to three times: the first is cp-1's, and so on [default: the newest, once]
    #[arg(long = "apiserver", value_name = "MINOR", value_parser = release)]
    apiservers: Vec<Release>,
    /// Minor of controller manager and scheduler [default: the oldest apiserver's]
    #[arg(long, value_name = "MINOR", value_parser = release)]
    controllers: Option<Release>,
    /// How many simulated workers
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: usize,
    /// Version that the workers' kubelets report; several share the workers evenly [default: the first apiserver's]
    #[arg(long = "kubelet", value_name = "VERSION")]
    kubelets: Vec<String>,
    /// Zones to spread the workers over, separated by commas
    #[arg(long, value_name = "ZONES", value_delimiter = ',')]
    zones: Vec<String>,
    /// Label `pool` of the workers, and the first part of their names
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// File, folder or kustomization to apply at the start
    #[arg(long = "manifest", value_name = "PATH")]
    manifests: Vec<PathBuf>,
    #[command(flatten)]
    real: RealNodes,
}

/// Real nodes instead of simulated ones.
#[derive(Args)]
struct RealNodes {
    /// Real nodes: systemd, containerd and kubelet in namespaces, made a cluster by kubeadm; needs root
    #[arg(long = "real", conflicts_with_all = ["apiservers", "controllers", "nodes", "kubelets", "zones", "pool", "manifests"])]
    asked: bool,
    /// How many real control-plane nodes, one to three
    #[arg(long, value_name = "N", default_value_t = 1, requires = "asked")]
    control_planes: usize,
    /// How many real workers
    #[arg(long, value_name = "N", default_value_t = 2, requires = "asked")]
    workers: usize,
    /// Minor that the real nodes begin with [default: the oldest, so that there is something to upgrade to]
    #[arg(long, value_name = "MINOR", value_parser = real_release, requires = "asked")]
    release: Option<Release>,
    /// A further image for every node, made of one program and the libraries that it needs
    #[arg(long = "image", value_name = "NAME=PROGRAM", value_parser = image, requires = "asked")]
    images: Vec<(String, PathBuf)>,
}

impl Plan {
    fn real(&self) -> Option<RealPlan> {
        self.real.asked.then(|| RealPlan {
            name: self.name.name.clone(),
            control_planes: self.real.control_planes,
            workers: self.real.workers,
            release: self.real.release.unwrap_or(Release::REAL[0]),
            images: self.real.images.clone(),
        })
    }
}

#[derive(Args)]
struct Shell {
    #[command(flatten)]
    name: Name,
    /// Run it on this real node instead
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// The command; without one, your shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Args)]
struct Swap {
    #[command(flatten)]
    name: Name,
    /// The static pod, for instance kube-apiserver-cp-1
    component: String,
    /// The minor to run from now on, for instance 1.37
    release: String,
}

#[derive(Args)]
struct Kubelet {
    #[command(flatten)]
    name: Name,
    /// The node
    node: String,
    /// What its kubelet reports from now on, for instance v1.37.1
    version: String,
}

#[derive(Args)]
struct PowerCycle {
    #[command(flatten)]
    name: Name,
    /// The node
    node: String,
    /// How long it is away, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    away: u64,
}

fn release(text: &str) -> std::result::Result<Release, String> {
    one_of(&Release::ALL, text)
}

fn real_release(text: &str) -> std::result::Result<Release, String> {
    one_of(&Release::REAL, text)
}

fn one_of(known: &[Release], text: &str) -> std::result::Result<Release, String> {
    let minors: Vec<_> = known.iter().map(|release| release.minor()).collect();
    let found = Release::parse(text).filter(|release| known.contains(release));
    found.ok_or_else(|| format!("use one of {}", minors.join(", ")))
}

fn image(text: &str) -> std::result::Result<(String, PathBuf), String> {
    let (name, program) = text.split_once('=').ok_or("use NAME=PROGRAM, for instance web:1=./web")?;
    // Looked for here, so that a wrong path is told at once.
    let program = std::fs::canonicalize(program).map_err(|e| format!("{program}: {e}"))?;
    Ok((name.to_owned(), program))
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("devcluster: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Build(Build { real: false }) => evenkeel_devcluster::build()?,
        Command::Build(Build { real: true }) => evenkeel_devcluster::build_real()?,
        Command::Up(plan) => up(&plan)?,
        Command::Serve(plan) => return serve(plan),
        Command::Keep(Keep { name, args }) => return real::keep(&Session::named(&name.name)?, &args),
        Command::NodeEnter { spec } => match real::enter(&spec)? {},
        Command::NodeInit { spec } => match real::init(&spec)? {},
        Command::Shell(Shell { name, node, command }) => {
            match Session::named(&name.name)?.shell(node.as_deref(), &command)? {}
        }
        Command::Swap(Swap { name, component, release }) => {
            let what = format!("{component} runs {release}");
            order(&name, &Order::Swap { component, release }, &what)?;
        }
        Command::Kubelet(Kubelet { name, node, version }) => {
            let what = format!("the kubelet of {node} reports {version}");
            order(&name, &Order::Kubelet { node, version }, &what)?;
        }
        Command::PowerCycle(PowerCycle { name, node, away }) => {
            let what = format!("{node} has started again");
            order(&name, &Order::PowerCycle { node, away }, &what)?;
        }
        Command::Status => status()?,
        Command::Down(Name { name }) => {
            let was_up = Session::named(&name)?.down()?;
            println!("cluster {name} {}", if was_up { "is down" } else { "was not up" });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn up(plan: &Plan) -> Result<()> {
    let session = &Session::named(&plan.name.name)?;
    // The same arguments for the program in the background, which only has another first word.
    let args: Vec<_> = std::iter::once("serve".into()).chain(std::env::args_os().skip(2)).collect();
    let ready = if let Some(plan) = plan.real() {
        real::check(session, &plan)?;
        evenkeel_devcluster::build_real()?;
        session.up_kept(&args)?
    } else {
        session.up(&args)?
    };
    println!("cluster {} is up after {:.1} s: {}", session.name(), ready.seconds, ready.summary);
    let name = if session.name() == "dev" { String::new() } else { format!(" --name {}", session.name()) };
    // Whatever this program was started as can be typed again from the same folder.
    let program = std::env::args().next().unwrap_or_else(|| "devcluster".to_owned());
    println!("reach it with: {program} shell{name} -- kubectl get nodes   (without a command: a shell)");
    Ok(())
}

fn serve(plan: Plan) -> Result<ExitCode> {
    match plan.real() {
        Some(plan) => real::in_namespace(async || code(serve_real_until_killed(plan).await)),
        None => evenkeel_devcluster::enter(async || code(serve_until_killed(plan).await)),
    }
}

fn code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve_real_until_killed(plan: RealPlan) -> Result<()> {
    let started = Instant::now();
    let cluster = RealCluster::start(&plan).await?;
    let kubectl = cluster.kubectl_path()?;
    let session = Session::named(&plan.name)?;
    let orders = control::listen(&session.socket())?;
    session.announce(&Ready {
        kubeconfig: cluster.kubeconfig().to_owned(),
        kubectl_dir: kubectl.parent().map(PathBuf::from).unwrap_or_default(),
        summary: plan.summary(),
        seconds: started.elapsed().as_secs_f64(),
    })?;
    tokio::try_join!(cluster.supervise(), control::serve(&cluster, &orders)).map(drop)
}

async fn serve_until_killed(plan: Plan) -> Result<()> {
    let session = Session::named(&plan.name.name)?;
    let started = Instant::now();
    let apiservers = if plan.apiservers.is_empty() { vec![Release::NEWEST] } else { plan.apiservers };
    let newest = apiservers.first().copied().unwrap_or(Release::NEWEST);
    let kubelets = if plan.kubelets.is_empty() { vec![newest.version().to_owned()] } else { plan.kubelets };
    let mut builder = Cluster::builder().apiservers(&apiservers).manifests(plan.manifests);
    if let Some(release) = plan.controllers {
        builder = builder.controllers(release);
    }
    let mut left = plan.nodes;
    for (index, kubelet) in kubelets.iter().enumerate() {
        // Evenly, and the first ones get what does not divide.
        let count = left.div_ceil(kubelets.len() - index);
        left -= count;
        let mut group = NodeGroup::workers(count).zones(plan.zones.clone()).kubelet(kubelet);
        if let Some(pool) = &plan.pool {
            group = group.pool(pool);
        }
        builder = builder.nodes(group);
    }
    let cluster = builder.start().await?;
    let versions: Vec<_> = apiservers.iter().map(|r| r.version()).collect();
    let kubectl = cluster.kubectl_path()?;
    let orders = control::listen(&session.socket())?;
    session.announce(&Ready {
        kubeconfig: cluster.kubeconfig().to_owned(),
        kubectl_dir: kubectl.parent().map(PathBuf::from).unwrap_or_default(),
        summary: format!(
            "apiservers {}; {} workers with kubelet {}",
            versions.join(" "),
            plan.nodes,
            kubelets.join(" and ")
        ),
        seconds: started.elapsed().as_secs_f64(),
    })?;
    control::serve(&cluster, &orders).await
}

fn order(name: &Name, order: &Order, what: &str) -> Result<()> {
    let session = Session::named(&name.name)?;
    if session.status().is_none() {
        return Err(Error::Usage(format!(
            "no cluster {0} is up; start it with `devcluster up --name {0}`",
            name.name
        )));
    }
    let started = Instant::now();
    control::send(&session.socket(), order)?;
    println!("{what}, after {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn status() -> Result<()> {
    let mut any = false;
    for name in Session::all() {
        let session = Session::named(&name)?;
        match session.status() {
            Some(ready) => println!("{name}: up, {}", ready.summary),
            None if session.is_running() => println!("{name}: starting"),
            None => println!("{name}: its process is gone; `devcluster down --name {name}` forgets it"),
        }
        any = true;
    }
    if !any {
        println!("no cluster is up; start one with `devcluster up`");
    }
    Ok(())
}
