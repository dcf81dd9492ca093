//! The command line: arguments, exit codes, and what a person reads.
//!
//! Nothing here decides, and what a command changes in a cluster is sent by [`crate::act`]. The invariants: standard
//! output carries data only, everything else goes to standard error; and an error is one line that says what happened,
//! to what, and what to do next.

mod absent;
mod args;
mod check;
mod connect;
#[cfg(feature = "sim")]
mod demo;
pub mod drain;
mod exit;
mod fuzzing;
mod judge;
#[cfg(not(feature = "sim"))]
mod no_demo;
mod node_labels;
mod output;
mod plan;
mod preflight;
mod releases;
mod report;
mod status;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use evenkeel_core::lease::LeaseTiming;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

#[cfg(feature = "sim")]
use self::demo::{self as demonstration, DemoArgs};
#[cfg(not(feature = "sim"))]
use self::no_demo::{self as demonstration, DemoArgs};
use crate::api::definitions;
use crate::operator::serve::EVERY_ADDRESS;
use crate::operator::{self, telemetry};
use args::{CheckArgs, ClusterArgs, ReportArgs};
use drain::{DrainArgs, UncordonArgs};
use exit::{EXIT_FAILED, EXIT_OK, EXIT_USAGE, print};
pub use fuzzing::every_form;
use plan::PlanArgs;
use preflight::{ExplainArgs, PreflightArgs};
use status::StatusArgs;

/// The default namespace of the operator's Lease: that of the Leases of kube-apiservers and their controllers.
const LEASE_NAMESPACE: &str = "kube-system";

/// Makes Kubernetes version skew visible and upgrades boring.
#[derive(Parser)]
#[command(name = "evenkeel", version, about, disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Judge a cluster by the Kubernetes version skew policy and print where it stands.
    ///
    /// Reads nodes, control-plane pods, leases and the kube-apiservers' own /version, or files that hold them; changes
    /// nothing and needs no operator. Exit code 0: inside the policy or not known to be outside; 2: outside; 1: the
    /// cluster or a file cannot be read; 64: wrong arguments.
    #[command(after_help = args::EXAMPLES)]
    Report(ReportArgs),
    /// Judge as `report` does, for scripts: print what is wrong and fail on it.
    ///
    /// Exit code 0: nothing at or above --fail-on; 2: something; 1: the cluster or a file cannot be read, or no
    /// kube-apiserver's version is known, so that nothing can be judged; 64: wrong arguments.
    #[command(after_help = args::EXAMPLES)]
    Check(CheckArgs),
    /// Say what an upgrade would do, in which order, and what is in its way, before anybody begins.
    ///
    /// Reads a cluster, or files that hold one, as `report` and `preflight` do, and changes nothing. Each finding
    /// `blocks` (nothing may begin), `stops` (it stops on its way, or leaves nodes behind) or `warns`. Exit code 0:
    /// nothing at or above --fail-on; 2: something; 1: the cluster or a file cannot be read; 64: wrong arguments.
    #[command(after_help = plan::EXAMPLES)]
    Plan(Box<PlanArgs>),
    /// Say how ClusterUpgrades stand: what each waits for, what is in flight, and which nodes are out of it and why.
    ///
    /// Reads each upgrade and its claims from a cluster, or files that hold some, and shows the operator's own words;
    /// changes nothing. Exit code 0: each is completed, at work or waits for something that ends, or there is none; 2: only
    /// a person brings one further: it is stalled, suspended, not approved, or only planned; 1: the cluster or a file cannot be read, or there is no upgrade
    /// of that name; 64: wrong arguments.
    #[command(after_help = status::EXAMPLES)]
    Status(StatusArgs),
    /// Empty nodes so that no PodDisruptionBudget is ever violated, and say what is waited for.
    ///
    /// Cordons the nodes, asks their pods to leave by the Eviction API, each as its PodDisruptionBudget allows, and
    /// waits on watches until the pods are gone. A node with a pod that must not be evicted is not touched. A drain
    /// that is started again goes on where it was. Ctrl-C stops asking pods to leave and names the nodes that are left
    /// cordoned; a second Ctrl-C quits. Exit code 0: every node is drained; 2: some are not, and the output says why;
    /// 1: the cluster cannot be read; 64: wrong arguments; 130: interrupted.
    #[command(after_help = drain::EXAMPLES)]
    Drain(Box<DrainArgs>),
    /// Make nodes schedulable again that `drain` cordoned, and no others.
    ///
    /// Exit code 0: all of them are schedulable; 2: some were cordoned by others, or changed meanwhile; 1: the cluster
    /// cannot be read; 64: wrong arguments.
    Uncordon(UncordonArgs),
    /// Say what would keep nodes from being drained, before anybody begins.
    ///
    /// Reads nodes, pods, PodDisruptionBudgets, the pods' controllers and volumes, or files that hold these; changes
    /// nothing. Each cause is `never` (it ends only when somebody changes something), `not now` (it may end by itself)
    /// or `caution` (the drain can go on, at a cost). Exit code 0: nothing at or above --fail-on; 2: something; 1: the
    /// cluster or a file cannot be read; 64: wrong arguments.
    #[command(after_help = preflight::PREFLIGHT_EXAMPLES)]
    Preflight(PreflightArgs),
    /// Say in one line why a node, a pod, a PodDisruptionBudget or a ClusterUpgrade does not move, and what would unblock it.
    ///
    /// Exit code 0: nothing that was seen is in the way, and the answer says where something was not seen; or a
    /// ClusterUpgrade goes on without a person; 2: something is in the way; 1: it does not exist or cannot be read; 64:
    /// wrong arguments.
    #[command(after_help = preflight::EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Show what Evenkeel does, on a cluster that is made up inside this program.
    ///
    /// The cluster has three kube-apiservers and some nodes, and the operator runs on it. In a terminal, keys make things
    /// happen: write an upgrade and approve it, kill a kube-apiserver, break a budget; report and upgrade follow. In a
    /// pipe, the output is a whole upgrade as a story that is the same each time. Exit code 0: it was shown; 1: it could
    /// not be shown; 64: wrong arguments.
    #[command(after_help = demonstration::EXAMPLES)]
    Demo(DemoArgs),
    /// Run the operator: keep the ClusterSkewReport true and, with --upgrades, drive ClusterUpgrades.
    ///
    /// Logs JSON lines to standard error; the environment variable `EVENKEEL_LOG` filters them (default info). A
    /// problem of the cluster does not end it: while the cluster does not answer, a permission is missing, or a
    /// CustomResourceDefinition is not installed or too old, it waits, and says so once in its log and on /readyz.
    /// SIGTERM ends it in order and hands the leadership over. Exit code 0: it was told to stop; 1: it could not begin,
    /// because of its kubeconfig or its address; 64: wrong arguments.
    Operator(OperatorArgs),
    /// Print the CustomResourceDefinitions, or write each to its own file.
    Crds {
        /// The folder to write them to.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print a script that completes commands and arguments in a shell.
    Completion {
        /// The shell that the script is for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write that of each command to its own file.
    Man {
        /// The folder to write them to.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Args)]
struct OperatorArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Drive ClusterUpgrades: cordon, drain and hand nodes to executors. Without it the operator only reports.
    #[arg(long)]
    upgrades: bool,
    /// Namespace of the leader election Lease. All installations in a cluster have to use the same one, so that only
    /// one of them leads.
    #[arg(long, env = "EVENKEEL_LEASE_NAMESPACE", default_value = LEASE_NAMESPACE, value_name = "NAMESPACE")]
    lease_namespace: String,
    /// Namespace in which executors' Jobs run. The policies and roles of config/upgrade name the default: whoever takes
    /// another one changes them too.
    #[arg(
        long,
        env = "EVENKEEL_EXECUTOR_NAMESPACE",
        default_value = "evenkeel-executors",
        value_name = "NAMESPACE"
    )]
    executor_namespace: String,
    /// Name of this replica in the leader election [default: $HOSTNAME, or evenkeel]
    #[arg(long, env = "EVENKEEL_IDENTITY", value_name = "NAME")]
    identity: Option<String>,
    /// How long a silent leader stays the leader, in seconds. A leader that cannot renew its Lease stops after two
    /// thirds of that.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(3..=3600), value_name = "SECONDS")]
    lease_duration: u16,
    /// Address of /metrics, /healthz and /readyz; [::] is every address, those of IPv4 too.
    #[arg(long, default_value_t = EVERY_ADDRESS, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Until when each minor is maintained, as JSON, instead of the data that is built in.
    #[arg(long, value_name = "FILE")]
    releases: Option<PathBuf>,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; printing can only fail when nobody reads.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { EXIT_OK });
        }
    };
    match run(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn run(command: Command) -> Result<u8, String> {
    match command {
        Command::Crds { dir } => crds(dir.as_deref()),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "evenkeel", &mut script);
            print(&String::from_utf8_lossy(&script)).map(|()| EXIT_OK)
        }
        Command::Man { dir } => man(dir.as_deref()),
        Command::Report(args) => runtime(1)?.block_on(report::run(args)),
        Command::Check(args) => runtime(1)?.block_on(check::run(args)),
        Command::Plan(args) => runtime(1)?.block_on(plan::run(*args)),
        Command::Status(args) => runtime(1)?.block_on(status::run(args)),
        Command::Drain(args) => runtime(2)?.block_on(drain::drain(*args)),
        Command::Uncordon(args) => runtime(1)?.block_on(drain::uncordon(args)),
        Command::Preflight(args) => runtime(1)?.block_on(preflight::preflight(args)),
        Command::Explain(args) => runtime(1)?.block_on(preflight::explain(args)),
        Command::Demo(args) => demonstration::run(&args),
        Command::Operator(args) => {
            telemetry::begin(std::env::var(telemetry::FILTER_VARIABLE).ok().as_deref())
                .map_err(|error| error.to_string())?;
            runtime(2)?.block_on(run_operator(args)).map(|()| EXIT_OK)
        }
    }
}

fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    built.map_err(|error| format!("cannot start: {error}"))
}

async fn run_operator(args: OperatorArgs) -> Result<(), String> {
    let config = connect::config(&args.cluster, "operator").await?;
    let host = args.identity.or_else(|| std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()));
    let options = operator::OperatorOptions {
        upgrades: args.upgrades,
        namespace: args.lease_namespace,
        // The start is part of the name: a restarted container must not take itself for its predecessor.
        identity: format!("{}_{}", host.unwrap_or_else(|| "evenkeel".to_owned()), start_id()),
        executors_namespace: args.executor_namespace,
        lease: lease_timing(args.lease_duration),
        listen: args.listen,
        releases: releases::read(args.releases.as_deref())?,
    };
    operator::run(config, options).await.map_err(|error| error.to_string())
}

/// The timing of a Lease of `seconds`, in client-go's proportions: of 15 s, 10 s to renew in and 2 s between two tries.
fn lease_timing(seconds: u16) -> LeaseTiming {
    let lease = Duration::from_secs(seconds.into());
    LeaseTiming { lease, renew_deadline: lease * 2 / 3, retry: lease * 2 / 15 }
}

/// A text that differs for each start of a process on one host: the process id and the time in nanoseconds.
fn start_id() -> String {
    format!("{}-{}", std::process::id(), jiff::Timestamp::now().as_nanosecond())
}

fn crds(dir: Option<&Path>) -> Result<u8, String> {
    let mut all = String::new();
    for (file, definition) in definitions() {
        let text =
            serde_saphyr::to_string(&definition).map_err(|error| format!("cannot write {file}: {error}"))?;
        let text = format!("# Generated by `evenkeel crds`; do not edit.\n---\n{text}");
        match dir {
            Some(dir) => {
                let path = dir.join(file);
                std::fs::write(&path, text)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            }
            None => all.push_str(&text),
        }
    }
    print(&all)?;
    Ok(EXIT_OK)
}

fn man(dir: Option<&Path>) -> Result<u8, String> {
    if let Some(dir) = dir {
        let written = clap_mangen::generate_to(Cli::command(), dir);
        return written
            .map(|()| EXIT_OK)
            .map_err(|error| format!("cannot write to {}: {error}", dir.display()));
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
    rendered.map_err(|error| format!("cannot write the manual page: {error}"))?;
    print(&String::from_utf8_lossy(&page)).map(|()| EXIT_OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two installations in two namespaces would both lead, if each had a Lease of its own.
    #[test]
    fn every_installation_stands_for_the_same_lease() {
        let cli = Cli::try_parse_from(["evenkeel", "operator"]).unwrap();
        let Command::Operator(args) = cli.command else { panic!("another command") };
        assert_eq!(args.lease_namespace, "kube-system");
        for file in ["config/default/deployment.yaml", "config/upgrade/deployment.yaml"] {
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
            assert!(!text.contains("LEASE_NAMESPACE") && !text.contains("--lease-namespace"), "{file}");
        }
    }

    /// A wider line is wrapped by the help of a narrow terminal, and is two lines when it is copied.
    #[test]
    fn an_example_can_be_copied() {
        let command = Cli::command();
        let mut lines = 0;
        for sub in command.get_subcommands() {
            let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().skip_while(|line| *line != "Examples:").skip(1) {
                lines += 1;
                assert!(line.chars().count() <= 80, "{}: {line}", sub.get_name());
                let text = line.trim();
                // Between two words of a command there is one blank, so more of them begin words for people.
                let code = text.split(" #").next().unwrap_or_default();
                assert!(
                    text.starts_with('#') || !code.trim_end().contains("  "),
                    "{}: {line}",
                    sub.get_name()
                );
            }
        }
        assert!(lines > 20, "{lines}");
    }

    #[test]
    fn the_arguments_are_sound() {
        Cli::command().debug_assert();
    }
}
