//! Snapshot files instead of watches: what `kubectl get`, `kubectl cluster-info dump`, must-gather and their like
//! write, read into the same lean types and joined by the same [`components::instances`].
//!
//! Here belongs what was found in which file; what a component's pod or version means does not. The invariants: what
//! could not be read is named and never silently left out; files that hold no Node make no [`Cluster`]; and no text
//! of a file is shown before it was made harmless.

mod input;
mod objects;

use std::path::{Path, PathBuf};

use evenkeel_core::cluster::{Cluster, Component, Parts, Webhook};
use evenkeel_core::version::Observed;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::answer::Answer;
use super::components::{self, Sources};
use super::fold::{Fold, Interner, Watched as _};
use super::given;
use super::lean::{Node, Pod, PodDisruptionBudget};
use super::platform::{self, Platform, with_same_process};
use input::Input;
use objects::{Bad, Found, Kind, item, parse};

/// How many lines there are at most about objects that cannot be read; the rest is counted.
const MAX_FAULTS: usize = 10;

/// Nothing can be said about these files; one line that says why and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// What was read and what was passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files that were read.
    pub files: usize,
    /// Nodes.
    pub nodes: usize,
    /// Pods of kube-system.
    pub pods: usize,
    /// Answers of a kube-apiserver to `/version`.
    pub versions: usize,
    /// Configurations of admission webhooks.
    pub webhooks: usize,
    /// PodDisruptionBudgets.
    pub budgets: usize,
    /// OpenShift's `ClusterOperators` of components.
    pub operators: usize,
    /// Objects of other kinds, and pods of other namespaces.
    pub other_objects: usize,
    /// Files of folders that are neither JSON nor YAML.
    pub other_files: usize,
}

/// The objects of some files.
#[derive(Default)]
pub struct Snapshot {
    nodes: Fold<Node>,
    pods: Fold<Pod>,
    servers: Vec<(String, Answer)>,
    webhooks: Vec<Webhook>,
    budgets: Fold<PodDisruptionBudget>,
    /// What OpenShift's operators rolled out.
    operators: Vec<(Component, Observed)>,
    counts: Counts,
    /// Nodes that are there with more than one UID.
    re_created: usize,
    faults: Vec<String>,
    more_faults: usize,
    /// A `kubectl version` that did not reach the server.
    without_server: Option<String>,
}

impl Snapshot {
    /// Reads files, folders (and what is in them) and `-` for standard input.
    ///
    /// # Errors
    /// When something that was named cannot be read, or no Node is in any of it. A broken file inside a folder is
    /// listed as missing instead: a dump is often cut off somewhere.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Unreadable> {
        let mut snapshot = Self::default();
        snapshot.nodes.list_begins();
        snapshot.pods.list_begins();
        snapshot.budgets.list_begins();
        let (inputs, other_files) = input::find(paths).map_err(Unreadable)?;
        snapshot.counts.other_files = other_files;
        for input in inputs {
            let read = input.source().and_then(|source| {
                let mut sink = |found| snapshot.add(found, &input);
                parse(source, &mut sink)
            });
            snapshot.counts.files += 1;
            match read {
                Err(why) if input.named => return Err(Unreadable(format!("{}: {why}", input.name))),
                Err(why) => snapshot.fault(format!("{}: {why}", input.name)),
                Ok(()) => {}
            }
        }
        snapshot.nodes.list_ends("");
        snapshot.pods.list_ends("");
        snapshot.budgets.list_ends("");
        if snapshot.nodes.is_empty() { Err(snapshot.nothing(paths)) } else { Ok(snapshot) }
    }

    fn nothing(&self, paths: &[PathBuf]) -> Unreadable {
        let given: Vec<_> = paths.iter().map(|path| input::shown(path)).collect();
        let found = if self.pods.len() + self.counts.versions > 0 { "no Node" } else { "nothing recognised" };
        let fault = self.faults.first().map(|fault| format!(" ({fault})")).unwrap_or_default();
        Unreadable(format!(
            "{found} in {}{fault}: give the output of `kubectl get nodes -o yaml`, or a folder that holds it",
            given.join(", ")
        ))
    }

    fn add(&mut self, found: Found, input: &Input) {
        match found {
            Found::Node(node) => self.node(*node),
            Found::Pod(pod) => _ = self.pods.listed(*pod),
            Found::Budget(budget) => _ = self.budgets.listed(*budget),
            Found::Webhooks(webhooks) => {
                self.webhooks.extend(webhooks.keep(&mut Interner::default()).iter().cloned());
                self.counts.webhooks += 1;
            }
            Found::Version(answer) => {
                self.servers.push((input.name.clone(), answer));
                self.counts.versions += 1;
            }
            Found::Operator(component, version) => {
                self.operators.push((component, version));
                self.counts.operators += 1;
            }
            Found::NoServer => self.without_server = Some(input.name.clone()),
            Found::Other(count) => self.counts.other_objects += count,
            Found::Bad(bad) => self.bad(bad, input),
            Found::CutOff => {
                self.fault(format!("{}: its list ends without a kind; the file may be cut off", input.name));
            }
        }
    }

    fn node(&mut self, node: Node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let held = self.nodes.get("", name).map_or("", |seen| seen.node.uid.as_ref());
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        if !held.is_empty() && !uid.is_empty() && held != uid {
            self.re_created += 1;
        }
        self.nodes.listed(node);
    }

    /// A Node that cannot be read is still a Node: it is in the model, with a kubelet that is not known.
    fn bad(&mut self, bad: Bad, input: &Input) {
        let place = item(bad.item, &input.name);
        if bad.kind == Kind::Node {
            let name = bad.name.clone().unwrap_or_else(|| format!("({place})"));
            if let Ok(node) = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})) {
                self.nodes.listed(node);
            }
        }
        let name = bad.name.map(|name| format!(" {name}")).unwrap_or_default();
        self.fault(format!("{place}: {}{name} cannot be read: {}", bad.kind, bad.why));
    }

    fn fault(&mut self, line: String) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(line);
        } else {
            self.more_faults += 1;
        }
    }

    /// What was read and what was passed over.
    pub fn counts(&self) -> Counts {
        let (nodes, pods, budgets) = (self.nodes.len(), self.pods.len(), self.budgets.len());
        Counts { nodes, pods, budgets, ..self.counts }
    }

    /// About when the snapshot was made: the newest heartbeat of its nodes.
    pub fn taken(&self) -> Option<Timestamp> {
        self.nodes.values().filter_map(|seen| seen.node.heartbeat).max()
    }

    /// The cluster in the files, sorted.
    pub fn cluster(&self) -> Cluster {
        let nodes: Vec<_> = self.nodes.values().map(AsRef::as_ref).collect();
        let pods: Vec<_> = self.pods.values().collect();
        let seen = Sources {
            nodes: &nodes,
            pods: &pods,
            // Who serves now is not in a file: leases end within the minute, and endpoints cannot be asked.
            leases: &[],
            endpoints: &[],
            asked: false,
            now: Timestamp::UNIX_EPOCH,
        };
        let mut cluster = Parts {
            instances: components::instances(&seen),
            nodes: nodes.iter().map(|seen| seen.node.clone()).collect(),
            webhooks: self.webhooks.clone(),
            budgets: self.budgets.values().map(|budget| budget.as_ref().clone()).collect(),
            ..Parts::default()
        }
        .seal();
        for (file, version) in &self.servers {
            given::front_door(&mut cluster, file, version);
        }
        for (component, version) in &self.operators {
            given::rolled_out(&mut cluster, *component, version);
        }
        with_same_process(cluster)
    }

    /// Which platform it is of.
    pub fn platform(&self) -> Option<Platform> {
        let nodes: Vec<_> = self.nodes.values().map(AsRef::as_ref).collect();
        platform::recognise(&nodes, &self.pods.values().collect::<Vec<_>>())
    }

    /// What `cluster` (the one of these files, with what a person added) shows nothing of, and why, one line each.
    pub fn hidden(&self, cluster: &Cluster) -> Vec<String> {
        platform::hidden(self.platform(), cluster, &[], !self.pods.is_empty())
    }

    /// What `cluster` (the one of these files, with what a person added) was made without, one line each.
    pub fn missing(&self, cluster: &Cluster) -> Vec<String> {
        let mut lines = self.faults.clone();
        if self.more_faults > 0 {
            lines.push(format!("{} more objects or files cannot be read", self.more_faults));
        }
        if self.re_created > 0 {
            lines.push(format!(
                "Nodes of one name with different UIDs: {}; the newest of each counts (are these files of one cluster?)",
                self.re_created
            ));
        }
        let servers = || cluster.of(Component::KubeApiserver);
        if servers().all(|server| server.version.known().is_none()) {
            let why = match &self.without_server {
                Some(file) => format!("{file} names no server: kubectl did not reach it"),
                None => "no kube-apiserver's version is in the files".to_owned(),
            };
            lines.push(format!(
                "{why}; add the output of `kubectl version -o json`, or say --apiserver-version v1.36.4"
            ));
        }
        let others =
            cluster.instances().iter().any(|instance| instance.component != Component::KubeApiserver);
        let shown = |component| self.platform().is_none_or(|platform| platform.shows(component));
        if self.pods.is_empty() && !others && shown(Component::KubeProxy) {
            let controllers = if shown(Component::KubeScheduler) { "controllers and " } else { "" };
            lines.push(format!(
                "no pod of kube-system is in the files, so {controllers}kube-proxies are not seen; add the output of \
                 `kubectl get pods -n kube-system -o yaml`"
            ));
        }
        lines
    }
}

/// Hands each JSON or YAML document of `paths` to `each`, with the name of its file; returns what could not be read.
///
/// # Errors
/// When something that was named cannot be read. A broken file inside a folder is among what is returned instead.
pub(super) fn documents(
    paths: &[PathBuf],
    each: &mut dyn FnMut(&str, &RawValue),
) -> Result<Vec<String>, Unreadable> {
    let mut faults = Vec::new();
    for input in input::find(paths).map_err(Unreadable)?.0 {
        let read = input.text().and_then(|text| objects::documents(&text, &mut |raw| each(&input.name, raw)));
        match read {
            Err(why) if input.named => return Err(Unreadable(format!("{}: {why}", input.name))),
            Err(why) => faults.push(format!("{}: {why}", input.name)),
            Ok(()) => {}
        }
    }
    Ok(faults)
}

/// A path that was given, as it is shown.
pub fn shown(path: &Path) -> String {
    input::shown(path)
}
