//! Snapshot files instead of watches: what `kubectl get`, `kubectl cluster-info dump`, must-gather and their like
//! write, read into the same lean types and joined by the same [`components::instances`].
//!
//! Here belongs what was found in which file; what a component's pod or version means does not. The invariants: what
//! could not be read is named and never silently left out; files that hold no Node make no [`Cluster`]; and no text
//! of a file is shown before everything in it that could act on a terminal is replaced.

mod input;
mod json_error;
mod objects;
mod text;
mod unused;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_core::cluster::{Cluster, Component, Parts, Webhook};
use evenkeel_core::version::Observed;
use jiff::Timestamp;

use super::components::{self, Sources};
use super::fold::{Fold, Watched as _};
use super::interner::Interner;
use super::lean::{Node, Pod, PodDisruptionBudget};
use super::platform::{self, Platform};
use super::recognise;
use super::stated_versions;
use super::version_answer::VersionAnswer;
use input::{Input, InputText};
pub(super) use json_error::without_place;
pub(super) use objects::item;
pub(crate) use objects::piece::{List, Piece};
use objects::{Bad, Kind, PieceContent, content, parse};
use unused::GivenPath;

/// How many lines there are at most about objects that cannot be read; the rest is counted.
const MAX_FAULTS: usize = 10;

/// Why nothing can be said about these files, in one line that also says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// What was read and what was passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files that were read, those of folders and standard input included.
    pub files: usize,
    /// Nodes among the objects that were taken in.
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
    /// Files in folders whose names do not end like those of JSON or YAML.
    pub other_files: usize,
}

/// Which file each object came from, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFiles {
    nodes: BTreeMap<Arc<str>, Arc<str>>,
    others: BTreeMap<Arc<str>, Arc<str>>,
}

impl ObjectFiles {
    /// The file of a component's instance, by the name that it has in a report.
    pub fn of(&self, component: Component, name: &str) -> Option<&str> {
        let places = if component == Component::Kubelet { &self.nodes } else { &self.others };
        places.get(name).map(AsRef::as_ref)
    }
}

/// The objects of some files.
#[derive(Default)]
pub struct Snapshot {
    nodes: Fold<Node>,
    pods: Fold<Pod>,
    servers: Vec<(String, VersionAnswer)>,
    webhooks: Vec<Webhook>,
    /// A list of webhook configurations is in the files, and is empty.
    no_webhooks: bool,
    budgets: Fold<PodDisruptionBudget>,
    /// What OpenShift's operators rolled out.
    operators: Vec<(Component, Observed)>,
    counts: Counts,
    /// How often a Node was found again with another UID.
    re_created: usize,
    faults: Vec<String>,
    more_faults: usize,
    places: ObjectFiles,
    /// For each path that a person named, what was found in it.
    given: Vec<GivenPath>,
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
        snapshot.given = paths.iter().map(|path| GivenPath::of(input::shown_path(path))).collect();
        for input in inputs {
            let name: Arc<str> = input.name.as_str().into();
            let (given, known) = (input.given, snapshot.known_faults());
            let before = snapshot.given[given].used();
            let read = source_of(&input, &mut snapshot.given[given]).and_then(|source| {
                let Some(source) = source else { return Ok(()) };
                parse(source, &mut |piece| snapshot.add(content(&piece), &input, &name))
            });
            snapshot.counts.files += 1;
            match read {
                Err(why) if input.named => return Err(Unreadable(format!("{}: {why}", input.name))),
                Err(why) => snapshot.fault(format!("{}: {why}", input.name)),
                Ok(()) => {}
            }
            let useless = snapshot.given[given].used() == before;
            if useless && snapshot.known_faults() > known && input.is_left_out() {
                snapshot.forget_faults(known);
            }
        }
        snapshot.nodes.list_ends("");
        snapshot.pods.list_ends("");
        snapshot.budgets.list_ends("");
        if snapshot.nodes.is_empty() { Err(snapshot.nothing(paths)) } else { Ok(snapshot) }
    }

    fn nothing(&self, paths: &[PathBuf]) -> Unreadable {
        let given: Vec<_> = paths.iter().map(|path| input::shown_path(path)).collect();
        let found = if self.pods.len() + self.counts.versions > 0 { "no Node" } else { "nothing recognised" };
        let told = unused::lines(&self.given);
        if self.given.iter().all(|given| given.told().is_some()) {
            let told = told.join("; ");
            return Unreadable(format!(
                "{told}; what is needed is the output of `kubectl get nodes -o yaml`, or a folder that holds it"
            ));
        }
        let told = (!told.is_empty()).then(|| told.join("; "));
        let why = self.faults.first().cloned().or(told).map(|why| format!(" ({why})")).unwrap_or_default();
        Unreadable(format!(
            "{found} in {}{why}: give the output of `kubectl get nodes -o yaml`, or a folder that holds it",
            given.join(", ")
        ))
    }

    fn add(&mut self, content: PieceContent, input: &Input, file: &Arc<str>) {
        self.given[input.given].takes(&content);
        match content {
            PieceContent::Node(node) => self.node(*node, file),
            PieceContent::Nameless(mut node, place) => {
                node.metadata.name = Some(format!("({})", item(place, &input.name)));
                self.node(*node, file);
            }
            PieceContent::Pod(pod) => {
                self.places
                    .others
                    .insert(pod.metadata.name.as_deref().unwrap_or_default().into(), file.clone());
                self.pods.listed(*pod);
            }
            PieceContent::Budget(budget) => _ = self.budgets.listed(*budget),
            PieceContent::Webhooks(webhooks) => {
                self.webhooks.extend(webhooks.keep(&mut Interner::default()).iter().cloned());
                self.counts.webhooks += 1;
            }
            PieceContent::Version(answer) => {
                self.places.others.insert(file.clone(), file.clone());
                self.servers.push((input.name.clone(), answer));
                self.counts.versions += 1;
            }
            PieceContent::Operator(component, version) => {
                self.places.others.insert(format!("clusteroperator/{component}").into(), file.clone());
                self.operators.push((component, version));
                self.counts.operators += 1;
            }
            PieceContent::NoServer => self.without_server = Some(input.name.clone()),
            PieceContent::Other(count) => self.counts.other_objects += count,
            PieceContent::EmptyList { of_webhooks } => self.no_webhooks |= of_webhooks,
            PieceContent::Refused(_) | PieceContent::Table => self.counts.other_objects += 1,
            PieceContent::Bad(bad) => self.bad(&bad, input, file),
            PieceContent::CutOff => self.fault(cut_off(&input.name)),
        }
    }

    fn node(&mut self, node: Node, file: &Arc<str>) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.places.nodes.insert(name.into(), file.clone());
        let held = self.nodes.get("", name).map_or("", |seen| seen.node.uid.as_ref());
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        if !held.is_empty() && !uid.is_empty() && held != uid {
            self.re_created += 1;
        }
        self.nodes.listed(node);
    }

    /// A Node that cannot be read is still a Node: it is in the model, with a kubelet that is not known.
    fn bad(&mut self, bad: &Bad, input: &Input, file: &Arc<str>) {
        if bad.kind == Kind::Node {
            let name = bad.name.clone().unwrap_or_else(|| format!("({})", item(bad.item, &input.name)));
            if let Ok(node) = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})) {
                self.node(node, file);
            }
        }
        self.fault(bad.told(&input.name));
    }

    fn fault(&mut self, line: String) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(line);
        } else {
            self.more_faults += 1;
        }
    }

    fn known_faults(&self) -> usize {
        self.faults.len() + self.more_faults
    }

    fn forget_faults(&mut self, known: usize) {
        self.faults.truncate(known);
        self.more_faults = known - self.faults.len();
    }

    /// Which file each object came from.
    pub fn places(&self) -> &ObjectFiles {
        &self.places
    }

    /// The paths that a person named and that gave nothing, one line each.
    pub fn unused(&self) -> Vec<String> {
        unused::lines(&self.given)
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
            // A file does not tell which kube-apiservers serve now: leases in it are old, and endpoints cannot be
            // asked.
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
            stated_versions::front_door(&mut cluster, file, version);
        }
        for (component, version) in &self.operators {
            stated_versions::rolled_out(&mut cluster, *component, version);
        }
        cluster
    }

    /// The platform of the cluster in the files; `None` if it is not recognised.
    pub fn platform(&self) -> Option<Platform> {
        let nodes: Vec<_> = self.nodes.values().map(AsRef::as_ref).collect();
        recognise::platform(&nodes, &self.pods.values().collect::<Vec<_>>())
    }

    /// What `cluster` (the one of these files, with what a person added) shows nothing of, and why, one line each.
    pub fn hidden(&self, cluster: &Cluster) -> Vec<String> {
        platform::hidden(self.platform(), cluster, &[], !self.pods.is_empty())
    }

    /// Why no kube-apiserver of `cluster` (the one of these files, with what a person added) has a known version, in one line
    /// that says what to add; `None` where one has.
    pub fn without_servers(&self, cluster: &Cluster) -> Option<String> {
        let mut servers = cluster.of(Component::KubeApiserver);
        let unknown = servers.all(|server| server.version.known().is_none());
        let why = match &self.without_server {
            Some(file) => format!("{file} names no server: kubectl did not reach it"),
            None => "no kube-apiserver's version is in the files".to_owned(),
        };
        unknown.then(|| {
            format!("{why}; add the output of `kubectl version -o json`, or say --apiserver-version v1.36.4")
        })
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
        lines.extend(self.without_servers(cluster));
        if let Some(unseen) = self.unseen_without_pods(cluster) {
            lines.push(format!(
                "no pod of kube-system is in the files, so {unseen} are not seen; add the output of \
                 `kubectl get pods -n kube-system -o yaml`"
            ));
        }
        lines
    }

    /// Why it is not known which webhooks the cluster has, in one line.
    pub fn without_webhooks(&self) -> Option<&'static str> {
        let listed = self.no_webhooks || self.counts.webhooks > 0;
        (!listed).then_some(
            "no webhook configuration is in the files; add the output of `kubectl get \
             validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml`",
        )
    }

    /// Which components pods of kube-system would have shown, in words; `None` where there are such pods, or `cluster`
    /// has each of these components from somewhere else.
    fn unseen_without_pods(&self, cluster: &Cluster) -> Option<String> {
        if !self.pods.is_empty() {
            return None;
        }
        let shown = |component| self.platform().is_none_or(|platform| platform.shows(component));
        // What is seen or said of one component tells nothing of another.
        let unseen = |component: &Component| shown(*component) && cluster.of(*component).next().is_none();
        let controllers = [Component::KubeControllerManager, Component::KubeScheduler];
        let mut words: Vec<String> =
            controllers.iter().filter(|of| unseen(of)).map(|of| format!("{of}s")).collect();
        if words.len() == controllers.len() {
            words = vec!["controllers".to_owned()];
        }
        words.extend(unseen(&Component::KubeProxy).then(|| "kube-proxies".to_owned()));
        (!words.is_empty()).then(|| words.join(" and "))
    }
}

/// What `input` holds; nothing where that was written for people, which `given` then tells.
fn source_of(input: &Input, given: &mut GivenPath) -> Result<Option<InputText>, String> {
    let source = input.source()?;
    if let InputText::Text(text) = &source
        && let Some(what) = text::for_people(text)
    {
        given.notes(what);
        return Ok(None);
    }
    Ok(Some(source))
}

fn cut_off(file: &str) -> String {
    format!("{file}: its list ends without a kind; the file may be cut off")
}

/// What pieces of files gave besides themselves.
pub(crate) struct Read {
    /// What could not be read, one line each.
    pub(crate) faults: Vec<String>,
    /// The paths that a person named and that gave nothing, one line each.
    pub(crate) unused: Vec<String>,
    /// Those of `unused` that hold no objects but a table, a refusal or an error, which tells nothing of what there is.
    pub(crate) not_objects: Vec<String>,
}

/// Hands everything in `paths` to `each`, with the name of its file; `each` says whether it has a use for it. What is
/// no object, and may have been one of any kind, is among the faults, also where `each` has no use for it.
///
/// # Errors
/// When something that was named cannot be read. A broken file inside a folder is among what is returned instead.
pub(crate) fn pieces(
    paths: &[PathBuf],
    each: &mut dyn FnMut(&Arc<str>, &Piece<'_>) -> Use,
) -> Result<Read, Unreadable> {
    let mut faults = Vec::new();
    let mut given: Vec<_> = paths.iter().map(|path| GivenPath::of(input::shown_path(path))).collect();
    for input in input::find(paths).map_err(Unreadable)?.0 {
        let name: Arc<str> = input.name.as_str().into();
        let known = faults.len();
        let given = &mut given[input.given];
        let before = given.used();
        let read = source_of(&input, given).and_then(|source| {
            let Some(source) = source else { return Ok(()) };
            parse(source, &mut |piece| match each(&name, &piece) {
                Use::Some => given.uses(),
                Use::None => {
                    let content = content(&piece);
                    given.takes(&content);
                    match content {
                        PieceContent::CutOff => faults.push(cut_off(&name)),
                        PieceContent::Bad(bad) if bad.kind == Kind::Object => faults.push(bad.told(&name)),
                        _ => {}
                    }
                }
                Use::Fault(why) => {
                    given.lacks();
                    faults.push(why);
                }
            })
        });
        match read {
            Err(why) if input.named => return Err(Unreadable(format!("{}: {why}", input.name))),
            Err(why) => faults.push(format!("{}: {why}", input.name)),
            Ok(()) => {}
        }
        if faults.len() > known && given.used() == before && input.is_left_out() {
            faults.truncate(known);
        }
    }
    Ok(Read { faults, unused: unused::lines(&given), not_objects: unused::not_objects(&given) })
}

/// What became of a piece.
pub(crate) enum Use {
    /// It is part of what was asked for.
    Some,
    /// Its kind is not asked for here.
    None,
    /// It should be, and cannot be read: a line about it.
    Fault(String),
}

/// A path that was given, as it is shown.
pub fn shown_path(path: &Path) -> String {
    input::shown_path(path)
}
