//! One thing in the way of a drain: what it is about, how it ends, and what to change.
//!
//! Here belong the values and how they are made; which of them there are is found by the other files. The invariant: a
//! cause has the same id in every run.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::code::Code;
use crate::cluster::{Budget, Pod};
use crate::text;

/// How a cause ends; the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outlook {
    /// Only by a change that somebody makes.
    Never,
    /// By itself, perhaps.
    NotNow,
    /// It stops nothing, and costs something.
    Caution,
}

impl Outlook {
    /// `never`, `not-now`, `caution`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::NotNow => "not-now",
            Self::Caution => "caution",
        }
    }
}

/// Of what kind an object is that a cause is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// A PodDisruptionBudget.
    Budget,
    /// A Pod that no controller made.
    Pod,
    /// A Node whose own state is in the way.
    Node,
    /// A webhook that the server asks.
    Webhook,
    /// The kind of a pod's controller, as the pod names it.
    Controller(Arc<str>),
}

impl ObjectKind {
    /// The kind that is written like this.
    pub fn read(text: &str) -> Self {
        let known = [Self::Budget, Self::Pod, Self::Node, Self::Webhook];
        let kind = known.into_iter().find(|kind| kind.text() == text);
        kind.unwrap_or_else(|| Self::Controller(text.into()))
    }

    /// As an API object writes it: `PodDisruptionBudget`.
    pub fn text(&self) -> &str {
        match self {
            Self::Budget => "PodDisruptionBudget",
            Self::Pod => "Pod",
            Self::Node => "Node",
            Self::Webhook => "Webhook",
            Self::Controller(kind) => kind,
        }
    }
}

/// By their text, in which they stand in every list.
impl Ord for ObjectKind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text().cmp(other.text())
    }
}

impl PartialOrd for ObjectKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What a cause is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CauseObject {
    /// What is changed to remove the cause: a controller rather than its pods.
    pub kind: ObjectKind,
    /// Empty for what has no namespace.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl CauseObject {
    pub(super) fn new(kind: ObjectKind, namespace: &Arc<str>, name: &Arc<str>) -> Self {
        Self { kind, namespace: Arc::clone(namespace), name: Arc::clone(name) }
    }

    /// The object of a cause with this [`Cause::id`], which a person may have written; `None` where it is none.
    pub fn of_id(id: &str) -> Option<Self> {
        let mut parts = id.splitn(4, '/').skip(1);
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { kind: ObjectKind::read(kind), namespace: namespace.into(), name: name.into() })
    }

    /// Its kind, namespace and name as one text, the same in every run: what follows the code in a [`Cause::id`].
    pub(crate) fn path(&self) -> String {
        let Self { kind, namespace, name } = self;
        format!("{}/{namespace}/{name}", kind.text())
    }

    /// The Node of that name, which has no namespace.
    pub fn node(name: &Arc<str>) -> Self {
        Self::new(ObjectKind::Node, &"".into(), name)
    }

    /// The object that `budget` is.
    pub fn budget(budget: &Budget) -> Self {
        Self::new(ObjectKind::Budget, &budget.namespace, &budget.name)
    }

    /// What a person changes when `pod` is to behave otherwise: its controller, or the pod itself.
    pub fn behind(pod: &Pod) -> Self {
        match &pod.owner {
            Some(owner) => Self::new(ObjectKind::read(&owner.kind), &pod.namespace, &owner.name),
            None => Self::new(ObjectKind::Pod, &pod.namespace, &pod.name),
        }
    }
}

impl fmt::Display for CauseObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == ObjectKind::Budget { "PDB" } else { self.kind.text() };
        if self.namespace.is_empty() {
            write!(f, "{kind} {}", self.name)
        } else {
            write!(f, "{kind} {}/{}", self.namespace, self.name)
        }
    }
}

/// One thing in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which kind of cause; it begins the cause's [`Cause::id`].
    pub code: Code,
    /// Whether it ends by itself or only by a person.
    pub outlook: Outlook,
    /// What a person would change to remove it.
    pub object: CauseObject,
    /// What is so, with the numbers.
    pub what: String,
    /// What to do about it, in one line.
    pub remedy: String,
    /// The pods that it keeps, or that it costs.
    pub pods: Vec<String>,
    /// The nodes that those pods are on, by name.
    pub nodes: Vec<Arc<str>>,
}

impl Cause {
    pub(super) fn new(
        code: Code,
        outlook: Outlook,
        object: CauseObject,
        what: String,
        remedy: impl Into<String>,
    ) -> Self {
        Self { code, outlook, object, what, remedy: remedy.into(), pods: Vec::new(), nodes: Vec::new() }
    }

    pub(super) fn of(mut self, pods: &[&Pod]) -> Self {
        self.pods.extend(pods.iter().map(|pod| pod.full_name()));
        self.nodes.extend(pods.iter().map(|pod| Arc::clone(&pod.node)));
        self.nodes.sort();
        self.nodes.dedup();
        self
    }

    /// Whether it lets the pods leave, and only keeps their replacements from finding a place.
    pub(super) fn is_about_its_replacement(&self) -> bool {
        self.outlook == Outlook::NotNow && self.code.keeps_a_replacement()
    }

    /// Takes out of it what would act on a terminal: names and messages may come from a file that anybody wrote.
    pub fn harmless(&mut self) {
        let shared = |text: &mut Arc<str>| *text = text::harmless(text).into();
        for text in [&mut self.what, &mut self.remedy] {
            *text = text::harmless(text);
        }
        self.pods.iter_mut().for_each(|pod| *pod = text::harmless(pod));
        self.nodes.iter_mut().for_each(shared);
        [&mut self.object.namespace, &mut self.object.name].into_iter().for_each(shared);
        if let ObjectKind::Controller(kind) = &mut self.object.kind {
            shared(kind);
        }
    }

    /// The code and the object as one text: the same for the same cause in every run.
    pub fn id(&self) -> String {
        format!("{}/{}", self.code, self.object.path())
    }
}
