//! From text to objects: JSON or YAML, one document or many, lists of any mixture, bare arrays, single objects.
//!
//! Here belong the forms in which tools write objects down, and what an object is. List items are read one by one into
//! the lean types; a list is never held as a tree. The invariant: one object that cannot be read costs that object and
//! no other.

pub(super) mod piece;
mod stream;
mod yaml;

use std::fmt;

use evenkeel_core::cluster::Component;
use evenkeel_core::version::Observed;
use k8s_openapi::apimachinery::pkg::version::Info;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use super::super::lean::{Node, Pod, PodDisruptionBudget, ValidatingWebhooks};
use super::super::version_answer::VersionAnswer;
use super::input::InputText;
use super::json_error::without_place;
use super::text::{brief, is_blackened_name, is_json, said};
use piece::{Head, List, Piece, Sink};

/// What a kube-apiserver accepts as a name and as a label's value, in bytes.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

const WEBHOOKS: [&str; 2] = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

/// A kind of object that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Pod,
    /// A `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
    Webhooks,
    Budget,
    /// Something whose kind is not known: it is no object, or has none.
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Webhooks => "webhook configuration",
            Self::Budget => "PodDisruptionBudget",
            Self::Object => "object",
        })
    }
}

/// What a piece of a file holds, as far as a report needs it.
pub(super) enum PieceContent {
    Node(Box<Node>),
    /// A Node whose name a person or a tool took out, and its place in the list.
    Nameless(Box<Node>, usize),
    /// One of kube-system.
    Pod(Box<Pod>),
    /// A `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
    Webhooks(Box<ValidatingWebhooks>),
    Budget(Box<PodDisruptionBudget>),
    /// What a kube-apiserver says of its version.
    Version(VersionAnswer),
    /// What an OpenShift `ClusterOperator` says it rolled out of a component.
    Operator(Component, Observed),
    /// The output of a `kubectl version` that did not reach a server.
    NoServer,
    /// That many objects that a report does not need.
    Other(usize),
    /// A list with nothing in it.
    EmptyList {
        /// Of webhook configurations; a plain `List`, as kubectl writes it, names no kind.
        of_webhooks: bool,
    },
    /// What the server answered instead of objects: why it refused.
    Refused(String),
    /// A table, which the server made for people.
    Table,
    Bad(Bad),
    /// A list that ends before its kind: its file may be cut off.
    CutOff,
}

/// An object that cannot be read.
pub(super) struct Bad {
    pub(super) kind: Kind,
    /// Its name, where that can be read.
    pub(super) name: Option<String>,
    /// Which item of the list, from 1; 0 when it is not in a list.
    pub(super) item: usize,
    /// Why, harmless to print.
    pub(super) why: String,
}

impl Bad {
    /// The line about it, an object of `file`.
    pub(super) fn told(&self, file: &str) -> String {
        let name = self.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        format!("{}: {}{name} cannot be read: {}", item(self.item, file), self.kind, self.why)
    }
}

/// `item 3 of nodes.json`, or the file's name alone.
pub(in super::super) fn item(item: usize, file: &str) -> String {
    if item == 0 { file.to_owned() } else { format!("item {item} of {file}") }
}

/// Hands everything in `source` to `sink`.
///
/// # Errors
/// When the text is broken or cannot be read; what is before the break has been handed over.
pub(super) fn parse(source: InputText, sink: &mut Sink<'_>) -> Result<(), String> {
    match source {
        InputText::Json(reader) => stream::json(reader, sink),
        InputText::Text(text) if is_json(&text) => stream::json(text.as_bytes(), sink),
        InputText::Text(text) => {
            let mut read = Ok(());
            let mut each = |raw: &RawValue| {
                let before = std::mem::replace(&mut read, Ok(()));
                read = before.and_then(|()| stream::json(raw.get().as_bytes(), sink));
            };
            yaml::parse(&text, &mut each).and(read)
        }
    }
}

/// What `piece` holds.
pub(super) fn content(piece: &Piece<'_>) -> PieceContent {
    let (raw, list, item) = match *piece {
        Piece::Scalar => return PieceContent::Other(1),
        Piece::EmptyList(list) => {
            let of_webhooks = list.kind.as_deref().is_some_and(|kind| WEBHOOKS.contains(&kind));
            return PieceContent::EmptyList { of_webhooks };
        }
        Piece::CutOff => return PieceContent::CutOff,
        Piece::Broken(error) => return unreadable(Kind::Object, None, 0, error),
        Piece::Object { raw, list, place } => (raw, list, place),
    };
    // Serde reads an array as a struct too, field by field.
    if !raw.get().starts_with('{') {
        // An array of texts is somebody's note, or a log.
        if raw.get().starts_with('"') && list.kind.is_none() && list.api_version.is_none() {
            return PieceContent::Other(1);
        }
        let why = "it is not an object".to_owned();
        return PieceContent::Bad(Bad { kind: kind_of(list), name: None, item, why });
    }
    match serde_json::from_str::<Head<'_>>(raw.get()) {
        Ok(head) => object(raw, &head, list, item),
        Err(error) => unreadable(kind_of(list), None, item, &error),
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
}

fn value<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// The answer to `/version` in `raw`: nothing else has a `gitVersion`.
fn answer(raw: Option<&RawValue>) -> Option<VersionAnswer> {
    value::<Head<'_>>(raw)?.git_version?;
    value::<Info>(raw).map(VersionAnswer::from)
}

fn kind_of(list: &List) -> Kind {
    match list.kind.as_deref() {
        Some("Node") => Kind::Node,
        Some("Pod") => Kind::Pod,
        Some("PodDisruptionBudget") => Kind::Budget,
        _ => Kind::Object,
    }
}

fn object(raw: &RawValue, head: &Head<'_>, list: &List, item: usize) -> PieceContent {
    let kind: Option<String> = value(head.kind);
    let api_version: Option<String> = value(head.api_version);
    let api_version = api_version.or_else(|| list.api_version.clone());
    let kind = kind.or_else(|| list.kind.clone());
    let of_openshift = kind.as_deref() == Some("ClusterOperator")
        && api_version.as_deref().is_none_or(|group| group.starts_with("config.openshift.io/"));
    let kind = match (kind, api_version.as_deref()) {
        (Some(kind), None | Some("v1")) if kind == "Node" => Some(Kind::Node),
        (Some(kind), None | Some("v1")) if kind == "Pod" => Some(Kind::Pod),
        (Some(kind), Some(group))
            if WEBHOOKS.contains(&kind.as_str()) && group.starts_with("admissionregistration.k8s.io/") =>
        {
            Some(Kind::Webhooks)
        }
        (Some(kind), None | Some("policy/v1")) if kind == "PodDisruptionBudget" => Some(Kind::Budget),
        // A Node or Pod of another API group is not the one that is looked for.
        (Some(_), _) => None,
        (None, _) => by_shape(head),
    };
    let meta: Meta = value(head.metadata).unwrap_or_default();
    match kind {
        Some(Kind::Node) => node(raw, &meta, item),
        Some(Kind::Pod) if meta.namespace.as_deref() == Some("kube-system") => {
            decoded(raw, Kind::Pod, &meta, item, |pod| PieceContent::Pod(Box::new(pod)))
        }
        // Both kinds have the fields that are read.
        Some(Kind::Webhooks) => {
            decoded(raw, Kind::Webhooks, &meta, item, |all| PieceContent::Webhooks(Box::new(all)))
        }
        Some(Kind::Budget) => {
            decoded(raw, Kind::Budget, &meta, item, |budget| PieceContent::Budget(Box::new(budget)))
        }
        _ if of_openshift => operator(raw, &meta).unwrap_or(PieceContent::Other(1)),
        _ => version_or_other(raw, head),
    }
}

fn node(raw: &RawValue, meta: &Meta, item: usize) -> PieceContent {
    let nameless = is_taken_out(meta);
    let node = if nameless {
        serde_json::from_str::<Node>(raw.get()).map_err(|error| Bad {
            kind: Kind::Node,
            name: None,
            item,
            why: without_place(&error),
        })
    } else {
        decode::<Node>(raw, Kind::Node, meta, item)
    };
    let node = match node {
        Ok(node) => Box::new(node),
        Err(bad) => return PieceContent::Bad(bad),
    };
    // A report shows either as the name of a pool.
    let wrong = |(key, label): (&String, &String)| {
        if !is_label_key(key) {
            Some(format!("no cluster accepts a label with the key {}", brief(key)))
        } else if !is_label(label) {
            Some(format!("label {} has a value that no cluster accepts", brief(key)))
        } else {
            None
        }
    };
    match node.metadata.labels.iter().flatten().find_map(wrong) {
        Some(why) => PieceContent::Bad(Bad { kind: Kind::Node, name: name_of(meta), item, why }),
        None if nameless => PieceContent::Nameless(node, item),
        None => PieceContent::Node(node),
    }
}

fn decoded<K: DeserializeOwned>(
    raw: &RawValue,
    kind: Kind,
    meta: &Meta,
    item: usize,
    content: fn(K) -> PieceContent,
) -> PieceContent {
    decode(raw, kind, meta, item).map_or_else(PieceContent::Bad, content)
}

/// The kind of an object that a client library wrote without its kind, known by a field that no other kind has.
fn by_shape(head: &Head<'_>) -> Option<Kind> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct NodeStatus {
        #[serde(rename = "nodeInfo")]
        _node_info: IgnoredAny,
    }
    #[derive(Deserialize)]
    struct PodSpec {
        #[serde(rename = "containers")]
        _containers: IgnoredAny,
    }
    head.metadata?;
    if value::<NodeStatus>(head.status).is_some() {
        Some(Kind::Node)
    } else {
        value::<PodSpec>(head.spec).map(|_| Kind::Pod)
    }
}

fn version_or_other(raw: &RawValue, head: &Head<'_>) -> PieceContent {
    let own = || answer(Some(raw)).filter(|_| head.kind.is_none());
    if let Some(answer) = own().or_else(|| answer(head.server_version)).or_else(|| answer(head.info)) {
        PieceContent::Version(answer)
    } else if head.client_version.is_some() && head.kind.is_none() {
        PieceContent::NoServer
    } else if let Some(why) = refused(head) {
        PieceContent::Refused(why)
    } else if value::<String>(head.kind).as_deref() == Some("Table") {
        PieceContent::Table
    } else {
        PieceContent::Other(1)
    }
}

/// Why the server refused, where it answered with a `Status`.
fn refused(head: &Head<'_>) -> Option<String> {
    let is = |field, wanted: &str| value::<String>(field).as_deref() == Some(wanted);
    let message: String = (is(head.kind, "Status") && is(head.status, "Failure"))
        .then(|| value(head.message).unwrap_or_else(|| "it does not say why".to_owned()))?;
    Some(said(&message))
}

/// What the `ClusterOperator` of a component's own name rolled out of it.
fn operator(raw: &RawValue, meta: &Meta) -> Option<PieceContent> {
    #[derive(Deserialize)]
    struct Operator {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        versions: Vec<Version>,
    }
    #[derive(Deserialize)]
    struct Version {
        name: String,
        version: String,
    }
    let component = Component::from_name(meta.name.as_deref()?)?;
    let operator: Operator = value(Some(raw))?;
    // The operator's own version and that of the whole release stand beside it.
    let own = operator.status.versions.iter().find(|version| version.name == component.name())?;
    Some(PieceContent::Operator(component, Observed::from_report(&own.version)))
}

fn decode<K: DeserializeOwned>(raw: &RawValue, kind: Kind, meta: &Meta, item: usize) -> Result<K, Bad> {
    let name = name_of(meta);
    let bad = |name, why: String| Err(Bad { kind, name, item, why });
    if meta.name.is_none() {
        return bad(None, "it has no metadata.name".to_owned());
    }
    if name.is_none() {
        return bad(None, "its metadata.name is not one that a cluster accepts".to_owned());
    }
    serde_json::from_str(raw.get()).or_else(|error| bad(name, without_place(&error)))
}

fn unreadable(kind: Kind, name: Option<String>, item: usize, error: &serde_json::Error) -> PieceContent {
    PieceContent::Bad(Bad { kind, name, item, why: without_place(error) })
}

/// The name, if a cluster could have accepted it; any other name could hold anything and be of any length.
fn name_of(meta: &Meta) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    meta.name.clone().filter(|name| !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(allowed))
}

/// Whether a person or a tool took the name of the object out.
fn is_taken_out(meta: &Meta) -> bool {
    name_of(meta).is_none() && meta.name.as_deref().is_some_and(is_blackened_name)
}

/// A name as long as a label's value, after a prefix that is as long as an object's name.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("", key));
    prefix.len() <= MAX_NAME && is_label(name) && prefix.chars().all(is_of_label)
}

fn is_label(value: &str) -> bool {
    value.len() <= MAX_LABEL && value.chars().all(is_of_label)
}

fn is_of_label(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._".contains(c)
}
