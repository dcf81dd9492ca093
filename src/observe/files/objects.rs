//! From text to objects: JSON or YAML, one document or many, lists of any mixture, bare arrays, single objects.
//!
//! Here belong the forms in which tools write objects down, and how what cannot be read is told. List items are read
//! one by one into the lean types; a list is never held as a tree. The invariant: one object that cannot be read
//! costs that object and no other.

mod stream;
mod yaml;

use std::fmt;

use evenkeel_core::cluster::Component;
use evenkeel_core::version::Observed;
use k8s_openapi::apimachinery::pkg::version::Info;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use super::super::answer::Answer;
use super::super::lean::{Node, Pod, ValidatingWebhooks};
use super::input::Source;

/// Longest text of a file that is shown, in characters.
const MAX_SHOWN: usize = 120;
/// What an apiserver accepts as a name and as a label's value, in bytes.
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
    /// Not known: it is no object, or has no kind.
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Webhooks => "webhook configuration",
            Self::Object => "object",
        })
    }
}

/// Something in a file.
pub(super) enum Found {
    Node(Box<Node>),
    /// One of kube-system.
    Pod(Box<Pod>),
    /// A `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
    Webhooks(Box<ValidatingWebhooks>),
    /// What a kube-apiserver says of its version.
    Version(Answer),
    /// What an OpenShift `ClusterOperator` says it rolled out of a component.
    Operator(Component, Observed),
    /// The answer of `kubectl version` without a server.
    NoServer,
    /// That many objects that a report does not need.
    Other(usize),
    Bad(Bad),
    /// The end of a list that is not whole.
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

/// `item 3 of nodes.json`, or the file's name alone.
pub(super) fn item(item: usize, file: &str) -> String {
    if item == 0 { file.to_owned() } else { format!("item {item} of {file}") }
}

type Sink<'a> = dyn FnMut(Found) + 'a;

/// Hands everything in `source` to `sink`.
///
/// # Errors
/// When the text is broken or cannot be read; what is before the break has been handed over.
pub(super) fn parse(source: Source, sink: &mut Sink<'_>) -> Result<(), String> {
    match source {
        Source::Json(reader) => stream::json(reader, sink),
        Source::Text(text) if is_json(&text) => stream::json(text.as_bytes(), sink),
        Source::Text(text) => {
            let mut read = Ok(());
            let mut each = |raw: &RawValue| {
                let before = std::mem::replace(&mut read, Ok(()));
                read = before.and_then(|()| stream::json(raw.get().as_bytes(), sink));
            };
            yaml::parse(&text, &mut each).and(read)
        }
    }
}

/// Hands each document of `text`, as JSON, to `each`.
///
/// # Errors
/// When the text is broken; what is before the break has been handed over.
pub(super) fn documents(text: &str, each: &mut dyn FnMut(&RawValue)) -> Result<(), String> {
    if is_json(text) { json(text, each) } else { yaml::parse(text, each) }
}

/// YAML may begin with a brace too; but then no quote follows it.
pub(super) fn is_json(text: &str) -> bool {
    let mut start = text.trim_start().chars();
    match start.next() {
        Some('{') => matches!(start.find(|c| !c.is_whitespace()), Some('"' | '}') | None),
        Some('[') => matches!(start.find(|c| !c.is_whitespace()), Some('{' | ']' | '[' | '"') | None),
        _ => false,
    }
}

fn json(text: &str, each: &mut dyn FnMut(&RawValue)) -> Result<(), String> {
    for document in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        match document {
            Ok(raw) => each(raw),
            Err(error) => return Err(stream::broken(&error)),
        }
    }
    Ok(())
}

/// The fields that tell what an object is. Each is taken as it is, so that a wrong type spoils that field only.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head<'a> {
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    git_version: Option<&'a RawValue>,
    #[serde(borrow)]
    server_version: Option<&'a RawValue>,
    #[serde(borrow)]
    client_version: Option<&'a RawValue>,
    /// Support bundles wrap the answer of `/version` in this.
    #[serde(borrow)]
    info: Option<&'a RawValue>,
}

impl<'a> Head<'a> {
    fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
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
fn answer(raw: Option<&RawValue>) -> Option<Answer> {
    value::<Head<'_>>(raw)?.git_version?;
    value::<Info>(raw).map(Answer::from)
}

/// What the items of a list are, where the list says it and they do not.
#[derive(Clone, Default)]
struct List {
    api_version: Option<String>,
    kind: Option<String>,
}

impl List {
    /// A list of `item`s; of anything when that is empty, which is what `kubectl get` writes.
    fn of(api_version: Option<String>, item: &str) -> Self {
        Self { api_version, kind: Some(item.to_owned()).filter(|item| !item.is_empty()) }
    }
}

fn kind_of(list: &List) -> Kind {
    match list.kind.as_deref() {
        Some("Node") => Kind::Node,
        Some("Pod") => Kind::Pod,
        _ => Kind::Object,
    }
}

fn object(raw: &RawValue, head: &Head<'_>, list: &List, item: usize, sink: &mut Sink<'_>) {
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
        // Other groups have Nodes of their own.
        (Some(_), _) => None,
        (None, _) => by_shape(head),
    };
    let meta: Meta = value(head.metadata).unwrap_or_default();
    match kind {
        Some(Kind::Node) => sink(match decode::<Node>(raw, Kind::Node, &meta, item) {
            Ok(node) => match node.metadata.labels.iter().flatten().find(|(_, label)| !is_label(label)) {
                None => Found::Node(Box::new(node)),
                Some((key, _)) => {
                    let why = format!("label {} has a value that no cluster accepts", harmless(key));
                    Found::Bad(Bad { kind: Kind::Node, name: name_of(&meta), item, why })
                }
            },
            Err(bad) => Found::Bad(bad),
        }),
        Some(Kind::Pod) if meta.namespace.as_deref() == Some("kube-system") => {
            sink(match decode::<Pod>(raw, Kind::Pod, &meta, item) {
                Ok(pod) => Found::Pod(Box::new(pod)),
                Err(bad) => Found::Bad(bad),
            });
        }
        // Both kinds have the fields that are read.
        Some(Kind::Webhooks) => sink(match decode(raw, Kind::Webhooks, &meta, item) {
            Ok(webhooks) => Found::Webhooks(Box::new(webhooks)),
            Err(bad) => Found::Bad(bad),
        }),
        _ if of_openshift => sink(operator(raw, &meta).unwrap_or(Found::Other(1))),
        _ => sink(version_or_other(raw, head)),
    }
}

/// What client libraries write without a kind is told by what only it has.
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

fn version_or_other(raw: &RawValue, head: &Head<'_>) -> Found {
    let own = || answer(Some(raw)).filter(|_| head.kind.is_none());
    if let Some(answer) = own().or_else(|| answer(head.server_version)).or_else(|| answer(head.info)) {
        Found::Version(answer)
    } else if head.client_version.is_some() && head.kind.is_none() {
        Found::NoServer
    } else {
        Found::Other(1)
    }
}

/// What the `ClusterOperator` of a component's own name rolled out of it.
fn operator(raw: &RawValue, meta: &Meta) -> Option<Found> {
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
    Some(Found::Operator(component, Observed::from_report(&own.version)))
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

fn unreadable(kind: Kind, name: Option<String>, item: usize, error: &serde_json::Error) -> Found {
    Found::Bad(Bad { kind, name, item, why: without_place(error) })
}

/// The error without its line, which would be that of the object and not of the file.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    harmless(text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text))
}

/// The name, if a cluster could have accepted it; another one could hold anything and be of any length.
fn name_of(meta: &Meta) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    meta.name.clone().filter(|name| !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(allowed))
}

fn is_label(value: &str) -> bool {
    value.len() <= MAX_LABEL && value.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

/// `text` on one line, short, without anything that moves a terminal's cursor or turns the direction of writing.
pub(super) fn harmless(text: &str) -> String {
    // Everything that a terminal does not print as itself: controls, and the marks that are format characters.
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    let mut shown: String = text.chars().take(MAX_SHOWN).map(|c| if hidden(c) { '?' } else { c }).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}
