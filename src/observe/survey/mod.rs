//! One look at everything that a drain depends on: from a cluster by lists, or from files.
//!
//! Both arrive as the same JSON and go the same way. Here belongs what is asked for and how objects are told apart;
//! what they mean for a drain is the core's. The invariant: what could not be read is named, and its part of the model
//! is `None` rather than empty.

mod quantity;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_core::cluster::{Around, Autoscaler, Cluster, FullQuota, Parts, PodWebhook, Room, Workload};
use evenkeel_core::version::escape;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::files::{self, Unreadable};
use super::fold::Fold;
use super::lean::{Node, Pod, PodDisruptionBudget};
use crate::clients::{one_line, within};

/// What is listed, and whether nothing can be said without it.
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

/// Everything that was read.
pub struct Survey {
    nodes: Fold<Node>,
    pods: Fold<Pod>,
    budgets: Fold<PodDisruptionBudget>,
    workloads: Option<Vec<Workload>>,
    volumes: Option<BTreeMap<Name, Vec<Arc<str>>>>,
    claims: BTreeMap<Arc<str>, Name>,
    room: Room,
    terminating: Option<Vec<Arc<str>>>,
    webhooks: Option<Vec<PodWebhook>>,
    endpoints: Option<BTreeMap<Name, Vec<Arc<str>>>>,
    quotas: Option<Vec<FullQuota>>,
    autoscalers: Option<Vec<Autoscaler>>,
    /// What could not be read, one line each.
    pub missing: Vec<String>,
    more_missing: usize,
}

type Name = (Arc<str>, Arc<str>);

/// What tells what an object is, and a list's items.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head<'a> {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
    /// Taken as it is, so that a wrong type in it spoils nothing else.
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl Head<'_> {
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
            room: Room::default(),
            terminating: None,
            webhooks: None,
            endpoints: None,
            quotas: None,
            autoscalers: None,
            missing: Vec::new(),
            more_missing: 0,
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
        for (path, needed) in LISTS {
            if let Err(why) = survey.list(client, path).await {
                let resource = path.rsplit('/').next().unwrap_or(path);
                let line = format!("cannot list {resource}: {why}");
                if needed {
                    return Err(line);
                }
                survey.fault(line);
            }
        }
        Ok(survey)
    }

    /// Lists only volumes and where each can be mounted; what cannot be listed is among [`Survey::missing`].
    pub async fn of_volumes(client: &Client) -> Self {
        let mut survey = Self::begun();
        if let Err(why) = survey.list(client, "/api/v1/persistentvolumes").await {
            survey.volumes = None;
            survey.fault(format!("cannot list persistentvolumes: {why}"));
        }
        survey
    }

    async fn list(&mut self, client: &Client, path: &str) -> Result<(), String> {
        let mut more = String::new();
        // A list that is empty was read too.
        self.seen(path);
        loop {
            let token = if more.is_empty() { String::new() } else { format!("&continue={more}") };
            let request = http::Request::get(format!("{path}?limit={PAGE}{token}")).body(Vec::new());
            let request = request.map_err(|error| error.to_string())?;
            let text =
                within(PATIENCE, client.request_text(request)).await.map_err(|error| one_line(&error))?;
            let raw: &RawValue = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            match self.document("the server", raw) {
                Some(next) => more = next,
                None => return Ok(()),
            }
        }
    }

    fn seen(&mut self, path: &str) {
        match path.rsplit('/').next().unwrap_or_default() {
            "persistentvolumes" => _ = self.volumes.get_or_insert_default(),
            "namespaces" => _ = self.terminating.get_or_insert_default(),
            "resourcequotas" => _ = self.quotas.get_or_insert_default(),
            "horizontalpodautoscalers" => _ = self.autoscalers.get_or_insert_default(),
            "endpointslices" => _ = self.endpoints.get_or_insert_default(),
            _ => {}
        }
    }

    /// Reads files, folders (and what is in them) and `-` for standard input.
    ///
    /// # Errors
    /// When something that was named cannot be read, or no Node is in any of it.
    pub fn of_files(paths: &[PathBuf]) -> Result<Self, String> {
        let mut survey = Self::begun();
        let faults = files::documents(paths, &mut |file, raw| _ = survey.document(file, raw));
        let faults = faults.map_err(|error: Unreadable| error.to_string())?;
        for fault in faults {
            survey.fault(fault);
        }
        let given: Vec<_> = paths.iter().map(|path| files::shown(path)).collect();
        let kinds = "nodes,pods,pdb,deploy,rs,sts,ds,jobs,pv";
        for (what, missing) in [("Node", survey.nodes.is_empty()), ("Pod", survey.pods.is_empty())] {
            if missing {
                let given = given.join(", ");
                return Err(format!(
                    "no {what} in {given}: give the output of `kubectl get {kinds} -A -o json`"
                ));
            }
        }
        if survey.budgets.is_empty() {
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

    /// Takes in one document, an object or a list; returns the token of a list that goes on.
    fn document(&mut self, file: &str, raw: &RawValue) -> Option<String> {
        let head: Head<'_> = match serde_json::from_str(raw.get()) {
            Ok(head) => head,
            // A text, a number, an array: nothing of ours.
            Err(_) => return None,
        };
        let more = head.meta().more;
        let Some(items) = head.items else {
            self.object(file, head.api_version.as_deref(), head.kind.as_deref(), raw);
            return None;
        };
        let of_list = head.kind.as_deref().and_then(|kind| kind.strip_suffix("List"));
        let of_list = of_list.filter(|kind| !kind.is_empty());
        for item in items {
            let own: Head<'_> = serde_json::from_str(item.get()).unwrap_or_default();
            let api_version = own.api_version.as_deref().or(head.api_version.as_deref());
            self.object(file, api_version, own.kind.as_deref().or(of_list), item);
        }
        more.filter(|token| !token.is_empty())
    }

    fn object(&mut self, file: &str, api_version: Option<&str>, kind: Option<&str>, raw: &RawValue) {
        let api_version = api_version.unwrap_or("v1");
        let Some(kind) = kind else { return };
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
            ("", "PersistentVolume") => decoded(raw).map(|object| {
                let volumes = self.volumes.get_or_insert_default();
                let Some(wire::Places { volume, claim, hosts, zones }) = wire::volume(&object) else {
                    return;
                };
                self.claims.insert(volume, claim.clone());
                if !zones.is_empty() {
                    self.room.zones.insert(claim.clone(), zones);
                }
                if !hosts.is_empty() {
                    volumes.insert(claim, hosts);
                }
            }),
            ("", "Namespace") => decoded::<wire::Object<serde::de::IgnoredAny>>(raw).map(|object| {
                let terminating = self.terminating.get_or_insert_default();
                let going = object.metadata.deletion_timestamp.is_some();
                terminating.extend(object.metadata.name.filter(|_| going).map(Into::into));
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
                self.webhooks.get_or_insert_default().extend(wire::webhooks(&object));
            }),
            ("discovery.k8s.io", "EndpointSlice") => decoded(raw).map(|object| {
                let all = self.endpoints.get_or_insert_default();
                if let Some((service, nodes)) = wire::endpoints(&object) {
                    all.entry(service).or_default().extend(nodes);
                }
            }),
            _ => Ok(()),
        };
        if let Err(why) = read {
            let head: Head<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
            let name = head.meta().name.map(|name| format!(" {}", escape(&name))).unwrap_or_default();
            // The line would be that of the object and not of the file.
            let why: String =
                why.split(" at line ").next().unwrap_or_default().chars().take(MAX_SHOWN).collect();
            self.fault(format!("{file}: {kind}{name} cannot be read: {why}"));
        }
    }

    /// What a node offers. Nodes and pods that were read already are not refused for amounts that cannot be.
    fn offers(&mut self, raw: &RawValue) {
        let Ok(node) = decoded::<wire::Offering>(raw) else { return };
        if let Some((name, amounts)) = node.metadata.name.as_deref().zip(wire::offers(&node)) {
            self.room.offers.insert(name.into(), amounts);
        }
    }

    /// What a pod requests.
    fn requests(&mut self, raw: &RawValue) {
        let Ok(pod) = decoded::<wire::Object<wire::RoomSpec>>(raw) else { return };
        if let Some((uid, spec)) = pod.metadata.uid.as_deref().zip(pod.spec.as_ref()) {
            self.room.requests.insert(uid.into(), wire::requests(spec));
        }
    }

    /// About when it was so: the newest heartbeat of the nodes.
    pub fn taken(&self) -> Option<Timestamp> {
        self.nodes.values().filter_map(|seen| seen.node.heartbeat).max()
    }

    /// The cluster, sorted. Pods without a node are in it too, under an empty name.
    pub fn cluster(&self) -> Cluster {
        let mut webhooks = self.webhooks.clone();
        for webhook in webhooks.iter_mut().flatten() {
            let all = self.endpoints.as_ref().zip(webhook.service.as_ref());
            webhook.endpoints = all.map(|(all, service)| all.get(service).cloned().unwrap_or_default());
        }
        Parts {
            nodes: self.nodes.values().map(|seen| seen.node.clone()).collect(),
            pods: self.pods.values().map(|seen| seen.pod.as_ref().clone()).collect(),
            budgets: self.budgets.values().map(|budget| budget.as_ref().clone()).collect(),
            around: Around {
                workloads: self.workloads.as_ref().map(|all| all.iter().cloned().collect()),
                volumes: self.volumes.clone(),
                terminating: self.terminating.clone(),
                pod_webhooks: webhooks,
                full_quotas: self.quotas.clone(),
                autoscalers: self.autoscalers.clone(),
                claims: self.volumes.as_ref().map(|_| self.claims.clone()),
                attached: None,
                room: Some(self.room.clone()).filter(|room| !room.offers.is_empty()),
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

fn decoded<T: DeserializeOwned>(raw: &RawValue) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|error| error.to_string())
}
