//! `evenkeel preflight` and `evenkeel explain`: what would keep nodes from being drained, and why one thing does not
//! move.
//!
//! Nothing here judges: each command looks at the cluster once and shows what the core says.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use evenkeel_core::cluster::{Cluster, Node, Selector};
use evenkeel_core::disruption::Rules;
use evenkeel_core::disruption::preflight::{Cause, ObjectKind, Question, bounds, causes, explain};
use evenkeel_core::version::escape;
use jiff::{SignedDuration, Timestamp};

use super::absent::{absent, absent_node, unreadable};
use super::args::{FormArgs, WhereArgs};
use super::connect;
use super::exit::{EXIT_FINDINGS, EXIT_OK, print};
use super::node_labels::NodeLabels;
use super::output;
use super::output::causes::{CauseReport, FailOnOutlook, render};
use super::status;
use crate::clients::{one_line, read_client};
use crate::observe::files::shown_path;
use crate::observe::survey::Survey;

pub(super) const PREFLIGHT_EXAMPLES: &str = "\
Examples:
  evenkeel preflight     # every node of the cluster that kubectl means
  evenkeel preflight -l pool=web --fail-on not-now
  kubectl get nodes,pods,pdb,deploy,rs,sts,ds,jobs,pvc,pv -A -o json |
    evenkeel preflight -f -";
pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  evenkeel explain node/n-1
  evenkeel explain pod/shop/cart-7d5f9
  evenkeel explain pdb/shop/cart -f dump.json
  evenkeel explain cup/prod-137";

/// Which pods a drain evicts; the person who drains decides.
#[derive(Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(super) struct PodArgs {
    /// Evict also pods that no controller would create again.
    #[arg(long)]
    pub(super) force: bool,
    /// Leave pods of `DaemonSets` where they are; with `false`, such a pod keeps its node from being drained.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) ignore_daemonsets: bool,
    /// Evict pods with an emptyDir volume, whose data is lost; with `false`, such a pod keeps its node from being
    /// drained.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) delete_emptydir_data: bool,
    /// Evict only pods with these labels.
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    pub(super) pod_selector: Option<Selector>,
    /// Honour the label cluster.x-k8s.io/drain=skip|wait-completed on pods.
    #[arg(long)]
    pub(super) respect_drain_labels: bool,
}

impl PodArgs {
    pub(super) fn rules(&self) -> Rules {
        Rules {
            evict_bare: self.force,
            refuse_empty_dir: !self.delete_emptydir_data,
            refuse_daemon_sets: !self.ignore_daemonsets,
            evict_finished: true,
            cluster_api_labels: self.respect_drain_labels,
            only: self.pod_selector.clone(),
            ..Rules::default()
        }
    }
}

#[derive(Args)]
pub(super) struct PreflightArgs {
    /// The nodes to look at [default: all]
    #[arg(value_name = "NODE", conflicts_with = "selector")]
    nodes: Vec<String>,
    /// The nodes with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<NodeLabels>,
    #[command(flatten)]
    place: WhereArgs,
    #[command(flatten)]
    pods: PodArgs,
    /// How long a node may take to drain; pods that may take longer to terminate are named.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = time)]
    timeout: SignedDuration,
    /// How long a replacement pod takes until it is ready; the least time of a drain is computed from it.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = time)]
    replacement_time: SignedDuration,
    /// Fail on causes with this outlook, and on everything graver.
    #[arg(long, value_enum, default_value_t = FailOnOutlook::Never, value_name = "OUTLOOK")]
    fail_on: FailOnOutlook,
    #[command(flatten)]
    form: FormArgs,
}

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// node/NAME, pod/NAMESPACE/NAME, pdb/NAMESPACE/NAME or clusterupgrade/NAME (short: cup)
    #[arg(value_name = "WHAT", value_parser = what)]
    what: AskedObject,
    #[command(flatten)]
    place: WhereArgs,
    #[command(flatten)]
    pods: PodArgs,
    #[command(flatten)]
    form: FormArgs,
}

/// The object that a person asks about.
#[derive(Clone, Debug)]
enum AskedObject {
    OfDrain(DrainObject),
    Upgrade(String),
}

/// What a drain has to do with.
#[derive(Clone, Debug)]
enum DrainObject {
    Node(String),
    Pod(String, String),
    Budget(String, String),
}

fn what(text: &str) -> Result<AskedObject, String> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        ["node" | "nodes" | "no", name] => Ok(AskedObject::OfDrain(DrainObject::Node((*name).to_owned()))),
        ["pod" | "pods" | "po", namespace, name] => {
            Ok(AskedObject::OfDrain(DrainObject::Pod((*namespace).to_owned(), (*name).to_owned())))
        }
        ["pdb" | "poddisruptionbudget", namespace, name] => {
            Ok(AskedObject::OfDrain(DrainObject::Budget((*namespace).to_owned(), (*name).to_owned())))
        }
        ["clusterupgrade" | "clusterupgrades" | "cup", name] => Ok(AskedObject::Upgrade((*name).to_owned())),
        _ => Err("say node/NAME, pod/NAMESPACE/NAME, pdb/NAMESPACE/NAME or clusterupgrade/NAME".to_owned()),
    }
}

fn selector(text: &str) -> Result<Selector, String> {
    text.parse::<Selector>().map_err(|error| error.to_string())
}

/// `90s`, `30m`, `1h`, `1h30m`, or seconds; `0` is no time at all.
pub(super) fn time(text: &str) -> Result<SignedDuration, String> {
    let say = || "say a duration such as 90s, 30m or 1h30m".to_owned();
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(SignedDuration::from_secs(seconds.into()));
    }
    let (mut total, mut digits) = (0_i64, String::new());
    for c in text.chars() {
        let unit = match c {
            '0'..='9' if digits.len() < 9 => {
                digits.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return Err(say()),
        };
        total += digits.parse::<i64>().map_err(|_| say())? * unit;
        digits.clear();
    }
    if digits.is_empty() && !text.is_empty() { Ok(SignedDuration::from_secs(total)) } else { Err(say()) }
}

/// The cluster, or the cluster in some files, as it was surveyed at `now`.
struct Surveyed {
    cluster: Cluster,
    subject: Vec<(&'static str, String)>,
    /// What was read; it knows which file an object came from.
    survey: Survey,
    now: Timestamp,
}

impl Surveyed {
    /// The file of each cause's object, by the cause's id.
    fn places(&self, causes: &[Cause]) -> BTreeMap<String, String> {
        let place = |cause: &Cause| Some((cause.id(), self.survey.place_of(cause)?.to_owned()));
        causes.iter().filter_map(place).collect()
    }
}

impl Surveyed {
    /// Why nothing can be said of `thing`, which the cluster lacks: it is not there, or cannot be read.
    fn without(&self, thing: &DrainObject) -> String {
        let (what, kind, all, namespace, name) = match thing {
            DrainObject::Node(name) => ("node", ObjectKind::Node, "nodes", "", name),
            DrainObject::Pod(namespace, name) => ("pod", ObjectKind::Pod, "pods", namespace.as_str(), name),
            DrainObject::Budget(namespace, name) => {
                ("pdb", ObjectKind::Budget, "pdb", namespace.as_str(), name)
            }
        };
        let why = self.survey.unread(kind, namespace, name);
        let (namespace, name) = (escape(namespace), escape(name));
        let (what, among) = match namespace.as_str() {
            "" => (format!("{what} {name}"), String::new()),
            _ => (format!("{what} {namespace}/{name}"), format!(" -n {namespace}")),
        };
        let of_budget = matches!(thing, DrainObject::Budget(..));
        match why {
            None if of_budget && self.survey.unseen_budgets().anywhere.is_some() => {
                format!(
                    "no {what} is in the files, nor any other; add the output of `kubectl get pdb -A -o json`"
                )
            }
            Some(why) => unreadable(&what, why, &format!("kubectl get {all} {name}{among} -o yaml")),
            None => absent(&what, &format!("kubectl get {all}{among}")),
        }
    }
}

async fn survey(place: &WhereArgs, command: &str) -> Result<Surveyed, String> {
    if !place.files.is_empty() {
        let survey = Survey::of_files(&place.files)?;
        let names: Vec<_> = place.files.iter().map(|path| shown_path(path)).collect();
        // Files show the cluster as it was when they were written, so that time counts as now.
        let now = survey.taken().unwrap_or_else(Timestamp::now);
        let mut subject = vec![("Files", names.join(", "))];
        subject.extend(survey.unused.iter().map(|line| ("Unused", line.clone())));
        return Ok(Surveyed { cluster: survey.cluster(), subject, survey, now });
    }
    let config = connect::config(&place.cluster, command).await?;
    let client = read_client(&config).map_err(|error| one_line(&error))?;
    let survey = Survey::of_cluster(&client).await.map_err(|line| connect::told(&config, line))?;
    let subject = vec![("Cluster", config.cluster_url.to_string())];
    Ok(Surveyed { cluster: survey.cluster(), subject, survey, now: Timestamp::now() })
}

/// The nodes with these names; without names, those that `selector` selects, or all.
fn choose<'a>(
    cluster: &'a Cluster,
    names: &[String],
    selector: Option<&NodeLabels>,
) -> Result<Vec<&'a Node>, String> {
    if names.is_empty() {
        let selected = |node: &&Node| selector.is_none_or(|labels| labels.are_on(node));
        let nodes: Vec<_> = cluster.nodes().iter().map(AsRef::as_ref).filter(selected).collect();
        return if nodes.is_empty() {
            Err(selector.map_or_else(
                || "there is no node; kubectl get nodes says which there are".to_owned(),
                NodeLabels::absent,
            ))
        } else {
            Ok(nodes)
        };
    }
    let find = |name: &String| {
        let name = name.strip_prefix("node/").unwrap_or(name);
        cluster.node(name).ok_or_else(|| absent_node(name))
    };
    names.iter().map(find).collect()
}

pub(super) async fn preflight(args: PreflightArgs) -> Result<u8, String> {
    let seen = survey(&args.place, "preflight").await?;
    let rules = args.pods.rules();
    let nodes = choose(&seen.cluster, &args.nodes, args.selector.as_ref())?;
    let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
    let few: Vec<_> = names.iter().take(5).cloned().collect();
    let all = seen.cluster.nodes().len();
    let mut subject = vec![(
        "Nodes",
        format!("{} of {all}: {}", names.len(), evenkeel_core::skew::sample_names(names.len(), &few)),
    )];
    subject.extend(seen.subject.iter().cloned());
    let question = Question {
        cluster: &seen.cluster,
        nodes,
        at_once: 1,
        rules: &rules,
        timeout: Some(args.timeout).filter(|timeout| !timeout.is_zero()),
        now: seen.now,
    };
    let causes = causes(&question);
    let report = CauseReport {
        kind: "Preflight",
        line: None,
        subject,
        places: seen.places(&causes),
        causes,
        bounds: bounds(&question, args.replacement_time),
        slot: args.replacement_time,
        details: Vec::new(),
        missing: seen.survey.missing(),
        fail_on: args.fail_on,
        stopped: false,
    };
    let failed = report.failed();
    print(&render(report, args.form.output, output::paint(args.form.color))?)?;
    Ok(if failed { EXIT_FINDINGS } else { EXIT_OK })
}

pub(super) async fn explain(args: ExplainArgs) -> Result<u8, String> {
    let thing = match &args.what {
        // Nothing of a drain has to be read for it.
        AskedObject::Upgrade(name) => return status::explain(&args.place, &args.form, name).await,
        AskedObject::OfDrain(thing) => thing,
    };
    let seen = survey(&args.place, "explain").await?;
    let rules = args.pods.rules();
    let cluster = &seen.cluster;
    let question =
        Question { cluster, nodes: Vec::new(), at_once: 1, rules: &rules, timeout: None, now: seen.now };
    let unseen = seen.survey.unseen_budgets();
    let mut subject = Vec::new();
    let explanation = match thing {
        DrainObject::Node(name) => {
            let node = cluster.node(name).ok_or_else(|| seen.without(thing))?;
            subject.push(("Object", format!("node/{}", node.name)));
            if node.unschedulable {
                let by = node.cordoned_by.as_deref().map_or("somebody else".to_owned(), escape);
                subject.push(("Cordoned", format!("by {by}")));
            }
            explain::node(&question, node, &unseen)
        }
        DrainObject::Pod(namespace, name) => {
            let found = cluster.pod(namespace, name);
            let pod = found.ok_or_else(|| seen.without(thing))?;
            subject.push(("Object", format!("pod/{}/{}", pod.namespace, pod.name)));
            subject.push(("Node", pod.node.to_string()));
            explain::pod(&question, pod, &unseen)
        }
        DrainObject::Budget(namespace, name) => {
            let found = cluster.budget(namespace, name);
            let budget = found.ok_or_else(|| seen.without(thing))?;
            subject.push(("Object", format!("pdb/{}/{}", budget.namespace, budget.name)));
            explain::budget(&question, budget)
        }
    };
    subject.extend(seen.subject.iter().cloned());
    let report = CauseReport {
        kind: "Explanation",
        line: Some(explanation.line),
        subject,
        places: seen.places(&explanation.causes),
        causes: explanation.causes,
        bounds: Vec::new(),
        slot: SignedDuration::from_mins(1),
        details: explanation.details,
        missing: seen.survey.missing(),
        fail_on: FailOnOutlook::NotNow,
        stopped: false,
    };
    let failed = report.failed();
    print(&render(report, args.form.output, output::paint(args.form.color))?)?;
    Ok(if failed { EXIT_FINDINGS } else { EXIT_OK })
}
