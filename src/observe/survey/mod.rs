//! One look at everything that a drain depends on: from a cluster by lists, or from files.
//!
//! Both arrive as the same JSON and are read by the same code. Here belongs which kinds are read and how objects are
//! told apart; what they mean for a drain is the core's. The invariant: what could not be read is named, and its
//! part of the model is `None` rather than empty.

mod placement;
mod quantity;
mod unread;
mod webhooks;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_core::cluster::{
    Autoscaler, Capacity, Cluster, FullQuota, Parts, Placement, Surroundings, Workload,
};
use evenkeel_core::disruption::preflight::{Cause, ObjectKind};
use evenkeel_core::version::escape;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::files::{self, Piece, Unreadable, Use};
use super::fold::{Fold, Watched as _};
use super::interner::Interner;
use super::lean::{Node, PersistentVolume, Pod, PodDisruptionBudget, VolumeSeen};
use crate::clients::{one_line, within};
use webhooks::{NamespaceLabels, WebhookSeen};
use wire::NamespacedName;

/// The paths that are listed, and whether a failure of the list ends the survey.
const LISTS: [(&str, bool); 16] = [
    ("/api/v1/nodes", true),
    ("/api/v1/pods", true),
    ("/apis/policy/v1/poddisruptionbudgets", true),
    ("/apis/apps/v1/deployments", false),
    ("/apis/apps/v1/replicasets", false),
    ("/apis/apps/v1/statefulsets", false),
    ("/apis/apps/v1/daemonsets", false),
    ("/api/v1/replicationcontrollers", false),
    ("/apis/batch/v1/jobs", false),
    ("/api/v1/persistentvolumes", false),
    ("/api/v1/namespaces", false),
    ("/api/v1/resourcequotas", false),
    ("/apis/autoscaling/v2/horizontalpodautoscalers", false),
    ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", false),
    ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", false),
    ("/apis/discovery.k8s.io/v1/endpointslices", false),
];
const PAGE: u32 = 500;
/// Longest wait for one page.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// Longest reason that is shown, in characters.
const MAX_SHOWN: usize = 120;
/// How many lines there are at most about what cannot be read.
const MAX_FAULTS: usize = 10;

/// Everything that was read, from a cluster or from files, before it becomes a [`Cluster`].
pub struct Survey {
    nodes: Fold<Node>,
    pods: Fold<Pod>,
    budgets: Fold<PodDisruptionBudget>,
    workloads: Option<Vec<Workload>>,
    volumes: Option<BTreeMap<NamespacedName, Vec<Arc<str>>>>,
    claims: BTreeMap<Arc<str>, NamespacedName>,
    capacity: Capacity,
    placements: BTreeMap<Arc<str>, Arc<Placement>>,
    known: placement::Known,
    terminating: Option<Vec<Arc<str>>>,
    namespaces: NamespaceLabels,
    webhooks: Option<Vec<WebhookSeen>>,
    endpoints: Option<BTreeMap<NamespacedName, Vec<Arc<str>>>>,
    quotas: Option<Vec<FullQuota>>,
    autoscalers: Option<Vec<Autoscaler>>,
    /// What could not be read, one line each.
    pub missing: Vec<String>,
    more_missing: usize,
    /// The paths that a person named and that gave nothing, one line each.
    pub unused: Vec<String>,
    /// Why an object that is there cannot be read.
    unread: BTreeMap<ObjectKey, String>,
    /// No file has a budget, which is no word that the cluster has none.
    without_budgets: bool,
    /// The file that an object came from.
    places: BTreeMap<ObjectKey, Arc<str>>,
}

/// The kind, the namespace and the name of an object.
type ObjectKey = (ObjectKind, NamespacedName);

/// The fields that tell of what kind an object is, and the items of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KindAndItems<'a> {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
    /// Kept as text, so that a wrong type in it spoils no other field.
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl KindAndItems<'_> {
    fn meta(&self) -> ListMeta {
        self.metadata.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMeta {
    #[serde(rename = "continue")]
    more: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
}

impl Survey {
    fn begun() -> Self {
        let mut survey = Self {
            nodes: Fold::default(),
            pods: Fold::default(),
            budgets: Fold::default(),
            workloads: None,
            volumes: None,
            claims: BTreeMap::new(),
            capacity: Capacity::default(),
            placements: BTreeMap::new(),
            known: placement::Known::default(),
            terminating: None,
            namespaces: NamespaceLabels::new(),
            webhooks: None,
            endpoints: None,
            quotas: None,
            autoscalers: None,
            missing: Vec::new(),
            more_missing: 0,
            unused: Vec::new(),
            unread: BTreeMap::new(),
            without_budgets: false,
            places: BTreeMap::new(),
        };
        survey.nodes.list_begins();
        survey.pods.list_begins();
        survey.budgets.list_begins();
        survey
    }

    /// Lists everything with `client` (a read client).
    ///
    /// # Errors
    /// When nodes, pods or budgets cannot be listed; one line.
    pub async fn of_cluster(client: &Client) -> Result<Self, String> {
        let mut survey = Self::begun();
        let mut unread = Vec::new();
        for (path, needed) in LISTS {
            if let Err(why) = survey.list(client, path).await {
                let resource = path.rsplit('/').next().unwrap_or(path);
                let line = format!("cannot list {resource}: {why}");
                if needed {
                    return Err(line);
                }
                survey.fault(line);
                unread.push(path);
            }
        }
        // Two lists may tell of one part, so it is forgotten when all are read.
        for path in unread {
            survey.forget(path);
        }
        Ok(survey)
    }

    /// Lists only the `PersistentVolumes`, with where each can be mounted. If they cannot be listed,
    /// [`Survey::missing`] says why.
    pub async fn of_volumes(client: &Client) -> Self {
        let mut survey = Self::begun();
        if let Err(why) = survey.list(client, "/api/v1/persistentvolumes").await {
            survey.forget("/api/v1/persistentvolumes");
            survey.fault(format!("cannot list persistentvolumes: {why}"));
        }
        survey
    }

    async fn list(&mut self, client: &Client, path: &str) -> Result<(), String> {
        let mut more = String::new();
        loop {
            let token = if more.is_empty() { String::new() } else { format!("&continue={more}") };
            let request = http::Request::get(format!("{path}?limit={PAGE}{token}")).body(Vec::new());
            let request = request.map_err(|error| error.to_string())?;
            let text =
                within(PATIENCE, client.request_text(request)).await.map_err(|error| one_line(&error))?;
            let raw: &RawValue = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            match self.document(raw) {
                Some(next) => more = next,
                None => break,
            }
        }
        // A list that is empty was read too.
        self.read(path);
        Ok(())
    }

    /// Takes the part that the list at `path` tells of for one that was read.
    fn read(&mut self, path: &str) {
        match path.rsplit('/').next().unwrap_or_default() {
            "persistentvolumes" => _ = self.volumes.get_or_insert_default(),
            "namespaces" => _ = self.terminating.get_or_insert_default(),
            "resourcequotas" => _ = self.quotas.get_or_insert_default(),
            "horizontalpodautoscalers" => _ = self.autoscalers.get_or_insert_default(),
            "endpointslices" => _ = self.endpoints.get_or_insert_default(),
            _ => {}
        }
    }

    /// Takes the part that the list at `path` tells of for one that was not read, whatever pages of it were.
    fn forget(&mut self, path: &str) {
        let kind = match path.rsplit('/').next().unwrap_or_default() {
            "persistentvolumes" => return self.volumes = None,
            "namespaces" => return self.terminating = None,
            "resourcequotas" => return self.quotas = None,
            "horizontalpodautoscalers" => return self.autoscalers = None,
            "endpointslices" => return self.endpoints = None,
            "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
                return self.webhooks = None;
            }
            "deployments" => "Deployment",
            "replicasets" => "ReplicaSet",
            "statefulsets" => "StatefulSet",
            "daemonsets" => "DaemonSet",
            "replicationcontrollers" => "ReplicationController",
            "jobs" => "Job",
            _ => return,
        };
        if let Some(workloads) = &mut self.workloads {
            workloads.retain(|workload| *workload.this.kind != *kind);
        }
    }

    /// Reads files, folders (and what is in them) and `-` for standard input.
    ///
    /// # Errors
    /// When something that was named cannot be read, or no Node is in any of it.
    pub fn of_files(paths: &[PathBuf]) -> Result<Self, String> {
        let mut survey = Self::begun();
        let read = files::pieces(paths, &mut |file, piece| survey.piece(file, piece));
        let read = read.map_err(|error: Unreadable| error.to_string())?;
        for fault in read.faults {
            survey.fault(fault);
        }
        survey.unused = read.unused;
        let given: Vec<_> = paths.iter().map(|path| files::shown_path(path)).collect();
        let kinds = "nodes,pods,pdb,deploy,rs,sts,ds,jobs,pv";
        for (what, missing) in [("Node", survey.nodes.is_empty()), ("Pod", survey.pods.is_empty())] {
            if missing {
                let given = given.join(", ");
                let why = survey.unused.join("; ");
                let why = if why.is_empty() { why } else { format!(" ({why})") };
                return Err(format!(
                    "no {what} in {given}{why}: give the output of `kubectl get {kinds} -A -o json`"
                ));
            }
        }
        survey.without_budgets =
            survey.budgets.is_empty() && !survey.unread.keys().any(|(kind, _)| *kind == ObjectKind::Budget);
        if survey.without_budgets {
            survey.fault(
                "no PodDisruptionBudget is in the files: are they there? (`kubectl get pdb -A`)".to_owned(),
            );
        }
        if survey.workloads.is_none() {
            survey.fault(
                "no controller of pods is in the files, so budgets are judged by their status alone"
                    .to_owned(),
            );
        }
        Ok(survey)
    }

    fn fault(&mut self, line: String) {
        if self.missing.len() < MAX_FAULTS {
            self.missing.push(line);
        } else {
            self.more_missing += 1;
        }
    }

    /// Takes in one page of a list; returns the token of a list that goes on.
    fn document(&mut self, raw: &RawValue) -> Option<String> {
        let head: KindAndItems<'_> = match serde_json::from_str(raw.get()) {
            Ok(head) => head,
            // A text, a number or an array is no list.
            Err(_) => return None,
        };
        let more = head.meta().more;
        let of_list = head.kind.as_deref().and_then(|kind| kind.strip_suffix("List"));
        for item in head.items.into_iter().flatten() {
            if let Err(why) = self.object(None, head.api_version.as_deref(), of_list, item) {
                self.fault(format!("the server: {why}"));
            }
        }
        more.filter(|token| !token.is_empty())
    }

    /// Takes in one piece of a file, and says whether it was of use.
    fn piece(&mut self, file: &Arc<str>, piece: &Piece<'_>) -> Use {
        let Piece::Object { raw, list, place } = *piece else {
            return match piece {
                Piece::CutOff => {
                    Use::Fault(format!("{file}: its list ends without a kind; the file may be cut off"))
                }
                _ => Use::None,
            };
        };
        let read = self.object(Some(file), list.api_version.as_deref(), list.kind.as_deref(), raw);
        match read {
            Ok(true) => Use::Some,
            Ok(false) => Use::None,
            Err(why) => Use::Fault(format!("{}: {why}", files::item(place, file))),
        }
    }

    /// Takes in one object and returns whether it is of a kind that is looked for. `of_list` and `kind_of_list` are
    /// the apiVersion and kind that its list says, for an object that does not say them itself.
    fn object(
        &mut self,
        file: Option<&Arc<str>>,
        of_list: Option<&str>,
        kind_of_list: Option<&str>,
        raw: &RawValue,
    ) -> Result<bool, String> {
        let head: KindAndItems<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        let api_version = head.api_version.as_deref().or(of_list).unwrap_or("v1");
        let Some(kind) = head.kind.as_deref().or(kind_of_list) else { return Ok(false) };
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let read = match (group, kind) {
            ("", "Node") => decoded(raw).map(|node| {
                self.nodes.listed(node);
                self.offers(raw);
            }),
            ("", "Pod") => decoded(raw).map(|pod| {
                self.pods.listed(pod);
                self.requests(raw);
            }),
            ("policy", "PodDisruptionBudget") => decoded(raw).map(|budget| _ = self.budgets.listed(budget)),
            ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("", "ReplicationController")
            | ("batch", "Job") => decoded(raw).map(|object| {
                self.workloads.get_or_insert_default().push(wire::workload(api_version, kind, object));
            }),
            ("", "PersistentVolume") => decoded::<PersistentVolume>(raw).map(|object| {
                let volumes = self.volumes.get_or_insert_default();
                let Some(seen) = object.keep(&mut Interner::default()) else { return };
                let VolumeSeen { volume, claim, hosts, zones } = seen;
                self.claims.insert(volume, claim.clone());
                self.capacity.zones.extend(zones.map(|zones| (claim.clone(), zones)));
                if !hosts.is_empty() {
                    volumes.insert(claim, hosts);
                }
            }),
            ("", "Namespace") => decoded::<wire::Object<serde::de::IgnoredAny>>(raw).map(|object| {
                let terminating = self.terminating.get_or_insert_default();
                let going = object.metadata.deletion_timestamp.is_some();
                let Some(name) = object.metadata.name.map(Arc::<str>::from) else { return };
                terminating.extend(Some(Arc::clone(&name)).filter(|_| going));
                self.namespaces.insert(name, object.metadata.labels.unwrap_or_default());
            }),
            ("", "ResourceQuota") => decoded(raw).map(|object| {
                self.quotas.get_or_insert_default().extend(wire::quota(&object));
            }),
            ("autoscaling", "HorizontalPodAutoscaler") => decoded(raw).map(|object| {
                self.autoscalers.get_or_insert_default().extend(wire::autoscaler(&object));
            }),
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
            ) => decoded(raw).map(|object| {
                self.webhooks.get_or_insert_default().extend(webhooks::webhooks(&object));
            }),
            ("discovery.k8s.io", "EndpointSlice") => decoded(raw).map(|object| {
                let all = self.endpoints.get_or_insert_default();
                if let Some((service, nodes)) = wire::endpoints(&object) {
                    all.entry(service).or_default().extend(nodes);
                }
            }),
            _ => return Ok(false),
        };
        let key = key(group, kind, &head.meta());
        if let Some((key, file)) = key.clone().zip(file) {
            self.places.insert(key, Arc::clone(file));
        }
        read.map(|()| true).map_err(|error| {
            let name = head.meta().name.map(|name| format!(" {}", escape(&name))).unwrap_or_default();
            let why: String = files::without_place(&error).chars().take(MAX_SHOWN).collect();
            let line = format!("{kind}{name} cannot be read: {why}");
            self.unread.extend(key.map(|key| (key, why)));
            line
        })
    }

    /// The file that holds the object of `cause`, or else the first pod that it keeps; `None` if neither came from a
    /// file.
    pub fn place_of(&self, cause: &Cause) -> Option<&str> {
        let of = |kind: &ObjectKind, namespace: &str, name: &str| {
            // A webhook is named after its configuration and itself.
            let name = if *kind == ObjectKind::Webhook { name.split('/').next()? } else { name };
            self.places.get(&(kind.clone(), (namespace.into(), name.into())))
        };
        let object = &cause.object;
        let pod = || {
            let (namespace, name) = cause.pods.first()?.split_once('/')?;
            of(&ObjectKind::Pod, namespace, name)
        };
        of(&object.kind, &object.namespace, &object.name).or_else(pod).map(AsRef::as_ref)
    }

    /// Notes what a Node offers. If that cannot be read, the Node is still part of the survey.
    fn offers(&mut self, raw: &RawValue) {
        let Ok(node) = decoded::<wire::Offering>(raw) else { return };
        if let Some((name, amounts)) = node.metadata.name.as_deref().zip(wire::offers(&node)) {
            self.capacity.offers.insert(name.into(), amounts);
        }
    }

    /// Notes what a pod requests, and what it asks of its node. If that cannot be read, the pod is still part of the
    /// survey.
    fn requests(&mut self, raw: &RawValue) {
        let Ok(pod) = decoded::<wire::Object<wire::RoomSpec>>(raw) else { return };
        if let Some((uid, spec)) = pod.metadata.uid.as_deref().zip(pod.spec.as_ref()) {
            self.capacity.requests.insert(uid.into(), wire::requests(spec));
            let asked = self.known.placement(spec.node_selector.as_ref(), spec.affinity.as_ref());
            self.placements.extend(asked.map(|asked| (uid.into(), asked)));
        }
    }

    /// About when the objects were read from the cluster: the newest heartbeat of its Nodes.
    pub fn taken(&self) -> Option<Timestamp> {
        self.nodes.values().filter_map(|seen| seen.node.heartbeat).max()
    }

    /// The cluster, sorted. Pods that are not bound are in it too; the name of their node is empty.
    pub fn cluster(&self) -> Cluster {
        let settled = |seen: &WebhookSeen| seen.settled(self.endpoints.as_ref(), &self.namespaces);
        Parts {
            nodes: self.nodes.values().map(|seen| seen.node.clone()).collect(),
            pods: self.pods.values().map(|seen| seen.pod.as_ref().clone()).collect(),
            budgets: self.budgets.values().map(|budget| budget.as_ref().clone()).collect(),
            surroundings: Surroundings {
                workloads: self.workloads.as_ref().map(|all| all.iter().cloned().collect()),
                volumes: self.volumes.clone(),
                terminating: self.terminating.clone(),
                pod_webhooks: self.webhooks.as_ref().map(|all| all.iter().map(settled).collect()),
                full_quotas: self.quotas.clone(),
                autoscalers: self.autoscalers.clone(),
                claims: self.volumes.as_ref().map(|_| self.claims.clone()),
                attached: None,
                placements: Some(self.placements.clone()),
                capacity: Some(self.capacity.clone()).filter(|capacity| !capacity.offers.is_empty()),
            },
            ..Parts::default()
        }
        .seal()
    }

    /// What was not read, one line each.
    pub fn missing(&self) -> Vec<String> {
        let more = (self.more_missing > 0).then(|| format!("and {} more", self.more_missing));
        self.missing.iter().cloned().chain(more).collect()
    }
}

/// What an object is told apart by; `None` of a kind that nobody asks for by its name.
fn key(group: &str, kind: &str, meta: &ListMeta) -> Option<ObjectKey> {
    let kind = match (group, kind) {
        ("", "Node") => ObjectKind::Node,
        ("", "Pod") => ObjectKind::Pod,
        ("policy", "PodDisruptionBudget") => ObjectKind::Budget,
        ("admissionregistration.k8s.io", _) => ObjectKind::Webhook,
        _ => return None,
    };
    let text = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or_default());
    Some((kind, (text(&meta.namespace), text(&meta.name))))
}

fn decoded<T: DeserializeOwned>(raw: &RawValue) -> Result<T, serde_json::Error> {
    serde_json::from_str(raw.get())
}

#[cfg(test)]
mod tests;
