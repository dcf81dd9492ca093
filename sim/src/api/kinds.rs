//! Which kinds the server has, and what is special about each.
//!
//! Built-in ones are a table; custom ones come and go with their CustomResourceDefinition.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::schema::{Custom, Shape, builtin};

/// One kind in one version.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) shape: Arc<Shape>,
    /// Where it is kept: `pods`, `deployments.apps`.
    pub(crate) resource: Arc<str>,
    pub(crate) status: bool,
    pub(crate) scale: bool,
    /// Its objects have a `metadata.generation`, which counts the changes of the spec.
    pub(crate) generation: bool,
    /// An update must name the resourceVersion that it changes.
    pub(crate) conditional: bool,
    /// The answer to a deletion is the deleted object, not a `Status`.
    pub(crate) shows_deleted: bool,
    pub(crate) selectable: Vec<String>,
    pub(crate) custom: Option<Arc<Custom>>,
}

impl Kind {
    /// `v1`, `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The Go package's name: `core`, `apps`, `coordination`.
    pub(crate) fn package(&self) -> &str {
        if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or_default() }
    }

    /// The type of a built-in kind, as `kubernetes.txt` names it.
    pub(crate) fn type_name(&self) -> String {
        format!("{}.{}", self.package(), self.kind)
    }

    /// The key of an object of this kind.
    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) if self.namespaced => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        }
    }
}

/// group, kind, plural, short names, categories, marks, selectable fields. Marks: n namespaced, s status, c scale,
/// g generation, r updates need a resourceVersion, d a deletion shows the object.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const BUILTIN: &[Row] = &[
    (
        "core",
        "Pod",
        "pods",
        "po",
        "all",
        "nsgd",
        "spec.nodeName spec.restartPolicy spec.schedulerName \
        spec.serviceAccountName spec.hostNetwork status.phase status.podIP status.nominatedNodeName",
    ),
    ("core", "Node", "nodes", "no", "", "s", "spec.unschedulable"),
    ("core", "Namespace", "namespaces", "ns", "", "sd", "status.phase"),
    ("core", "ConfigMap", "configmaps", "cm", "", "n", ""),
    ("core", "Secret", "secrets", "", "", "n", "type"),
    ("core", "Service", "services", "svc", "all", "nsd", "spec.clusterIP spec.type"),
    ("core", "ServiceAccount", "serviceaccounts", "sa", "", "nd", ""),
    (
        "core",
        "Event",
        "events",
        "ev",
        "",
        "n",
        "involvedObject.kind involvedObject.namespace involvedObject.name \
        involvedObject.uid involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason \
        reportingComponent source type",
    ),
    // Kept as those of the core group.
    ("events", "Event", "events", "ev", "", "n", "reason type"),
    ("core", "PersistentVolume", "persistentvolumes", "pv", "", "sd", ""),
    ("core", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "", "nsd", ""),
    ("core", "ResourceQuota", "resourcequotas", "quota", "", "nsd", ""),
    ("core", "ReplicationController", "replicationcontrollers", "rc", "all", "nscg", "status.replicas"),
    ("core", "PodTemplate", "podtemplates", "", "", "ndg", ""),
    ("apps", "Deployment", "deployments", "deploy", "all", "nscg", ""),
    ("apps", "ReplicaSet", "replicasets", "rs", "all", "nscg", "status.replicas"),
    ("apps", "StatefulSet", "statefulsets", "sts", "all", "nscg", "status.successful"),
    ("apps", "DaemonSet", "daemonsets", "ds", "all", "nsg", ""),
    ("apps", "ControllerRevision", "controllerrevisions", "", "", "n", ""),
    ("batch", "Job", "jobs", "", "all", "nsg", "status.successful"),
    ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "all", "nsg", ""),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "", "nsg", ""),
    ("coordination", "Lease", "leases", "", "", "nr", ""),
    ("discovery", "EndpointSlice", "endpointslices", "", "", "ng", ""),
    ("scheduling", "PriorityClass", "priorityclasses", "pc", "", "g", ""),
    ("storage", "StorageClass", "storageclasses", "sc", "", "d", ""),
    ("storage", "VolumeAttachment", "volumeattachments", "", "", "sd", ""),
    (
        "admissionregistration",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "",
        "api-extensions",
        "g",
        "",
    ),
    (
        "admissionregistration",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "",
        "api-extensions",
        "g",
        "",
    ),
    (
        "apiextensions",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd crds",
        "api-extensions",
        "sgr",
        "",
    ),
];

fn group(short: &str) -> String {
    match short {
        "core" => String::new(),
        "apps" | "autoscaling" | "batch" | "policy" => short.to_owned(),
        other => format!("{other}.k8s.io"),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The kind of an eviction, which is not stored or served by itself, but named in answers.
pub(crate) fn eviction() -> Kind {
    Kind {
        group: "policy".into(),
        version: "v1".into(),
        kind: "Eviction".into(),
        plural: "evictions".into(),
        singular: "eviction".into(),
        short: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        shape: builtin("policy.Eviction"),
        resource: "evictions.policy".into(),
        status: false,
        scale: false,
        generation: false,
        conditional: false,
        shows_deleted: false,
        selectable: Vec::new(),
        custom: None,
    }
}

/// Every kind that is served now.
#[derive(Debug)]
pub(crate) struct Kinds {
    /// By group, version and plural.
    served: BTreeMap<(String, String, String), Arc<Kind>>,
    /// The version in which the models read and write.
    stored: BTreeMap<Arc<str>, Arc<Kind>>,
}

impl Default for Kinds {
    fn default() -> Self {
        let mut kinds = Self { served: BTreeMap::new(), stored: BTreeMap::new() };
        for (package, kind, plural, short, categories, marks, fields) in BUILTIN {
            let group = group(package);
            let has = |mark| marks.contains(mark);
            let mut selectable = words("metadata.name");
            if has('n') {
                selectable.push("metadata.namespace".into());
            }
            selectable.extend(words(fields));
            let resource = if group.is_empty() || *package == "events" {
                (*plural).to_owned()
            } else {
                format!("{plural}.{group}")
            };
            kinds.insert(Kind {
                version: if *package == "autoscaling" { "v2" } else { "v1" }.into(),
                kind: (*kind).into(),
                plural: (*plural).into(),
                singular: kind.to_lowercase(),
                short: words(short),
                categories: words(categories),
                namespaced: has('n'),
                shape: builtin(&format!("{package}.{kind}")),
                resource: resource.into(),
                status: has('s'),
                scale: has('c'),
                generation: has('g'),
                conditional: has('r'),
                shows_deleted: has('d'),
                selectable,
                custom: None,
                group,
            });
        }
        kinds
    }
}

impl Kinds {
    pub(crate) fn insert(&mut self, kind: Kind) {
        let kind = Arc::new(kind);
        if !kind.converts() {
            self.stored.insert(kind.resource.clone(), kind.clone());
        }
        self.served.insert((kind.group.clone(), kind.version.clone(), kind.plural.clone()), kind);
    }

    /// Stops serving a custom resource.
    pub(crate) fn remove(&mut self, resource: &str) {
        self.served.retain(|_, kind| &*kind.resource != resource);
        self.stored.remove(resource);
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.served.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The kind of a resource such as `pods` or `deployments.apps`, in the version that is stored.
    pub(crate) fn stored(&self, resource: &str) -> Option<&Arc<Kind>> {
        self.stored.get(resource)
    }

    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.served
            .values()
            .find(|found| found.kind == kind && found.group == group && found.version == version)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.served.values()
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.stored.values()
    }
}
