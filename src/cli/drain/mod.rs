//! `evenkeel drain` and `evenkeel uncordon`: arguments, exit codes, and the uncordon, which needs no loop.
//!
//! Nothing here decides: the core does ([`evenkeel_core::drain`]). `draining` carries decisions out, `reread` lists the
//! pods of a node afresh, `rehearse` is the dry run, `narrate` and `conclusion` say what happened, and `display` writes
//! it. [`run`] is a drain without a command line.

mod conclusion;
mod display;
mod draining;
mod interrupt;
mod kept;
mod leaving;
mod narrate;
mod rehearse;
mod reread;
mod waited;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use evenkeel_core::cluster::{Node, NodeRef};
use evenkeel_core::disruption::{CordonMark, Rules};
use evenkeel_core::drain::{DrainPolicy, DrainRequest, OnTimeout};
use evenkeel_core::version::escape;
use futures::Stream;
use jiff::SignedDuration;
use kube::api::ListParams;
use kube::{Api, Client};

use super::absent::absent;
use super::args::ClusterArgs;
use super::connect;
use super::exit::{EXIT_FINDINGS, EXIT_OK};
use super::node_labels::NodeLabels;
use super::preflight::{PodArgs, time};
use crate::act::{Authority, Effects, NotDone, node};
use crate::clients::{effects_client, one_line, read_client};
use crate::clock::Clock;
use crate::observe::fold::Watched as _;
use crate::observe::interner::Interner;
use crate::observe::lean;
use display::{DrainForm, DrainTold, Event, Teller};
use draining::Draining;
use interrupt::interrupts;

/// How many pods a page has when the pods of a node are listed.
const PAGE: u32 = 500;

/// How often an uncordon is tried while others change the Node.
const UNCORDON_TRIES: usize = 5;

pub(super) const EXAMPLES: &str = "\
Examples:
  evenkeel drain n-1
  evenkeel drain -l pool=web --concurrency 4 --uncordon-on-failure
  evenkeel drain n-1 --dry-run=server
  evenkeel drain n-1 -o jsonl | jq .";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// Drain.
    None,
    /// Say what would be done, by what the cluster shows; send no request that writes.
    Client,
    /// Ask the server for each request whether it would accept it.
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum After {
    /// Give this node up, and go on with the others.
    Park,
    /// Begin no other node, and ask no more pod to leave.
    Halt,
    /// Delete the pods that are left, against their PodDisruptionBudgets.
    Force,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PodOrder {
    /// All pods of a node at once.
    Together,
    /// Pods of the priority classes system-cluster-critical and system-node-critical after all others.
    CriticalLast,
}

#[derive(Args)]
pub(super) struct DrainArgs {
    /// The nodes to drain.
    #[arg(value_name = "NODE", required_unless_present = "selector", conflicts_with = "selector")]
    nodes: Vec<String>,
    /// The nodes with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<NodeLabels>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    pods: PodArgs,
    /// Only say what would be done: by what the cluster shows (client), or by asking the server (server).
    #[arg(long, value_enum, default_value_t = DryRun::None, value_name = "WHO", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: DryRun,
    /// The grace period of every pod, in seconds; -1 keeps each pod's own, and 0 counts as 1.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(-1..=86400), allow_negative_numbers = true, default_value_t = -1)]
    grace_period: i64,
    /// How long each node may take; 0 sets no limit. After 30 seconds a node is given up that the API server does not let
    /// you cordon, and one that no pod can leave without a person's help, after a minute where it is the API server that
    /// does not let you evict them; but these have all of their time where the pods are deleted at the end of it
    /// (--on-timeout=force). While the API server shows nothing, the drain waits, until the time of all nodes that are
    /// being emptied is over, or the server has refused for two minutes.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = time)]
    timeout: SignedDuration,
    /// What to do with a node that is not drained in time.
    #[arg(long, value_enum, default_value_t = After::Park, value_name = "WHAT")]
    on_timeout: After,
    /// Do not wait for pods that have been terminating for longer than this; 0 waits for all.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = time)]
    skip_wait_for_delete_timeout: SignedDuration,
    /// How many nodes are emptied at the same time. All nodes are cordoned at the start.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    concurrency: u16,
    /// How long a node must have been cordoned before it is called drained: until the scheduler has seen the cordon, it
    /// may still put pods on the node. With 0, one look at the empty node is enough, as for kubectl.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = time)]
    settle: SignedDuration,
    /// Make nodes that are not drained schedulable again, also after an interrupt, where this command cordoned them, or an
    /// earlier one of the same user on the same machine.
    #[arg(long)]
    uncordon_on_failure: bool,
    /// Write into the conditions `DrainInProgress` and `Drained` of each node how its drain stands (KEP-5683).
    #[arg(long)]
    node_conditions: bool,
    /// Call a node drained only when the volumes of the pods that left are detached from it, as before a machine is
    /// rebooted or replaced; a restart of its kubelet does not need that.
    #[arg(long)]
    wait_for_volumes: bool,
    /// In which order the pods of a node leave.
    #[arg(long, value_enum, default_value_t = PodOrder::Together, value_name = "ORDER")]
    order: PodOrder,
    /// How many pods a page has when the pods of a node are listed.
    #[arg(long, default_value_t = PAGE, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk_size: u32,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = DrainForm::Text)]
    output: DrainForm,
}

impl DrainArgs {
    fn rules(&self) -> Rules {
        let skip = Some(self.skip_wait_for_delete_timeout).filter(|time| !time.is_zero());
        Rules {
            skip_deleting_after: skip,
            critical_last: self.order == PodOrder::CriticalLast,
            ..self.pods.rules()
        }
    }
}

#[derive(Args)]
pub(super) struct UncordonArgs {
    /// The nodes to make schedulable.
    #[arg(value_name = "NODE", required_unless_present = "selector", conflicts_with = "selector")]
    nodes: Vec<String>,
    /// The nodes with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<NodeLabels>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Clear the conditions `DrainInProgress` and `Drained`, which `drain` wrote with the same flag.
    #[arg(long)]
    node_conditions: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = DrainForm::Text)]
    output: DrainForm,
}

/// Who runs this command, for the mark of a cordon: `user@host` from the environment, or what there is of it.
fn who() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = of("USER").or_else(|| of("LOGNAME")).unwrap_or_else(|| "somebody".to_owned());
    match of("HOSTNAME") {
        Some(host) => format!("{user}@{host}"),
        None => user,
    }
}

pub(super) async fn drain(args: DrainArgs) -> Result<u8, String> {
    let config = connect::config(&args.cluster, "drain").await?;
    let read = read_client(&config).map_err(|error| one_line(&error))?;
    let effects = Effects::new(effects_client(&config).map_err(|error| one_line(&error))?);
    let clock = Clock::default();
    let names = nodes(&read, &args.nodes, args.selector.as_ref()).await;
    let names = names.map_err(|line| connect::told(&config, line))?;
    let request = DrainRequest {
        nodes: names,
        concurrency: args.concurrency.into(),
        policy: DrainPolicy {
            rules: args.rules(),
            timeout: Some(args.timeout).filter(|timeout| !timeout.is_zero()),
            on_timeout: match args.on_timeout {
                After::Park => OnTimeout::Park,
                After::Halt => OnTimeout::Halt,
                After::Force => OnTimeout::Force,
            },
            settle: args.settle,
            await_volumes: args.wait_for_volumes,
        },
        give_back: args.uncordon_on_failure,
        mark: CordonMark::of_drain(clock.now(), &who()),
        stopped: None,
    };
    let teller = Teller::new(args.output, clock.clone());
    let grace = (args.grace_period >= 0).then_some(args.grace_period.max(1));
    let drain = Draining::begin(&read, effects, clock, request, teller, grace, args.chunk_size).await?;
    let drain = drain.with_conditions(args.node_conditions);
    match args.dry_run {
        DryRun::None => drain.run(interrupts()).await,
        DryRun::Client => drain.rehearse(false).await,
        DryRun::Server => drain.rehearse(true).await,
    }
}

/// Drains as `request` says, with these clients and by this clock, until it is done or somebody `interrupts`. A line for each
/// event goes to `out`; warnings, and which nodes are left cordoned, go to `notes`. Returns the exit code of the command.
///
/// # Errors
/// One line, when a watch does not show what the drain needs, a node does not exist, or `out` cannot be written.
pub async fn run(
    read: &Client,
    effects: Client,
    clock: Clock,
    request: DrainRequest,
    interrupts: impl Stream<Item = ()>,
    out: Box<dyn Write + Send + Sync>,
    notes: Box<dyn Write + Send + Sync>,
) -> Result<u8, String> {
    let teller = Teller::to(DrainForm::Text, out, notes, clock.clone());
    let effects = Effects::new(effects);
    Draining::begin(read, effects, clock, request, teller, None, PAGE).await?.run(interrupts).await
}

/// The names of the nodes to drain, each once. Names that a person gives are taken without a request to the server.
async fn nodes(
    client: &Client,
    names: &[String],
    selector: Option<&NodeLabels>,
) -> Result<Vec<Arc<str>>, String> {
    let Some(selector) = selector else {
        let mut all: Vec<Arc<str>> = Vec::new();
        for name in names {
            let name: Arc<str> = name.strip_prefix("node/").unwrap_or(name).into();
            if !all.contains(&name) {
                all.push(name);
            }
        }
        return Ok(all);
    };
    let found: Vec<Arc<str>> =
        listed(client, Some(selector)).await?.into_values().map(|node| node.name.clone()).collect();
    if found.is_empty() { Err(selector.absent()) } else { Ok(found) }
}

async fn listed(
    client: &Client,
    selector: Option<&NodeLabels>,
) -> Result<BTreeMap<Arc<str>, Arc<Node>>, String> {
    let api: Api<lean::Node> = Api::all(client.clone());
    let mut names = Interner::default();
    let list = api.list(&ListParams::default()).await;
    let list = list.map_err(|error| format!("cannot list nodes: {}", one_line(&error)))?;
    let nodes = list.items.into_iter().map(|node| node.keep(&mut names).node.clone());
    let selected = nodes.filter(|node| selector.is_none_or(|labels| labels.are_on(node)));
    Ok(selected.map(|node| (node.name.clone(), node)).collect())
}

/// Takes our cordon and its mark off `node`. Where a controller writes to the Node at the same moment (the taint of the
/// cordon, for example), it reads the Node and tries again, as long as that is the same Node with the same mark.
async fn taken_off(read: &Client, effects: &Effects, node: &Node) -> Result<(), NotDone> {
    let api: Api<lean::Node> = Api::all(read.clone());
    let mut at = NodeRef {
        name: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
    };
    let mut tries = 1;
    loop {
        match node::uncordon(effects, &Authority::Person, &at, false).await {
            Err(error) if error.code() == Some(409) && tries < UNCORDON_TRIES => {
                let now = api.get(&node.name).await?.keep(&mut Interner::default()).node.clone();
                if (&now.uid, &now.cordoned_by) != (&node.uid, &node.cordoned_by) {
                    return Err(error);
                }
                at.resource_version = now.resource_version.clone();
                tries += 1;
            }
            sent => return sent.map(drop),
        }
    }
}

/// What was `found` of these names, each once. The error is one line that names all that are not there.
fn named<'n, T>(found: &'n BTreeMap<Arc<str>, T>, names: &[String]) -> Result<Vec<&'n T>, String> {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    let names = names.iter().map(|name| name.strip_prefix("node/").unwrap_or(name));
    for name in names.filter(|name| seen.insert(*name)) {
        match found.get(name) {
            Some(node) => known.push(node),
            None => unknown.push(escape(name)),
        }
    }
    if unknown.is_empty() {
        return Ok(known);
    }
    let why = absent(&format!("node {}", unknown.join(" or ")), "kubectl get nodes");
    Err(format!("{why}; no node was changed"))
}

/// Makes nodes schedulable again that a drain of ours cordoned, and no other.
pub(super) async fn uncordon(args: UncordonArgs) -> Result<u8, String> {
    let config = connect::config(&args.cluster, "uncordon").await?;
    let read = read_client(&config).map_err(|error| one_line(&error))?;
    let effects = Effects::new(effects_client(&config).map_err(|error| one_line(&error))?);
    let listed = listed(&read, args.selector.as_ref()).await;
    let found = listed.map_err(|line| connect::told(&config, line))?;
    let wanted = if args.nodes.is_empty() { found.values().collect() } else { named(&found, &args.nodes)? };
    if let Some(labels) = args.selector.filter(|_| wanted.is_empty()) {
        return Err(labels.absent());
    }
    let clock = Clock::default();
    let mut teller = Teller::new(args.output, clock.clone());
    let mut left = 0;
    for node in wanted {
        let name = &node.name;
        let say = |what: &'static str, line: String| Event::of_node(name, what, line);
        let event = match node.cordoned_by.as_deref().and_then(CordonMark::read) {
            Some(CordonMark::Drain { since, by }) => match taken_off(&read, &effects, node).await {
                Ok(()) if args.node_conditions => {
                    let cleared = [("DrainInProgress", false), ("Drained", false)];
                    let who = &Authority::Person;
                    match node::conditions(&effects, who, &node.name, &node.uid, &cleared, clock.now()).await
                    {
                        Ok(()) => say("uncordoned", "uncordoned, and its conditions cleared".to_owned()),
                        Err(error) => {
                            left += 1;
                            let line = error.line();
                            say("uncordoned", format!("uncordoned; its conditions are not cleared: {line}"))
                        }
                    }
                }
                Ok(()) if !node.unschedulable => say(
                    "schedulable",
                    "is schedulable already; what our drain had left on it is taken away".to_owned(),
                ),
                Ok(()) => {
                    say("uncordoned", format!("uncordoned; {} had drained it since {since}", escape(by)))
                }
                Err(error) => {
                    left += 1;
                    say("failed", format!("not uncordoned: {}; run this again", error.line()))
                }
            },
            Some(CordonMark::Upgrade { claim, .. }) => {
                left += 1;
                let claim = escape(claim);
                say(
                    "left",
                    format!("cordoned by NodeUpgrade {claim}; suspend its ClusterUpgrade to get it back"),
                )
            }
            None if node.unschedulable => {
                left += 1;
                say("left", format!("cordoned by somebody else; if it is yours, kubectl uncordon {name}"))
            }
            None => say("schedulable", "is schedulable already".to_owned()),
        };
        teller.tell(event)?;
    }
    teller.end(&DrainTold::default())?;
    Ok(if left > 0 { EXIT_FINDINGS } else { EXIT_OK })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_before_the_first_node_is_uncordoned() {
        let found: BTreeMap<Arc<str>, u8> = [("a".into(), 1), ("b".into(), 2)].into();
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            named(&found, &names).map(|nodes| nodes.into_iter().copied().collect::<Vec<_>>())
        };
        assert_eq!(named(&["b", "node/a", "b"]), Ok(vec![2, 1]));
        let unknown =
            "there is no node gone or away; kubectl get nodes says which there are; no node was changed";
        assert_eq!(named(&["a", "gone", "b", "node/away"]), Err(unknown.to_owned()));
    }
}
