//! One thing in the way of a drain: what it is about, how it ends, and what to change.
//!
//! Here belong the values and how they are made; which of them there are is found by the other files. The invariant: a
//! cause has the same id in every run.

use std::fmt;
use std::sync::Arc;

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

/// What a cause is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// `PodDisruptionBudget`, `Pod`, `Node`, or the kind of a pod's controller.
    pub kind: Arc<str>,
    /// Empty for what has no namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Object {
    pub(super) fn new(kind: &str, namespace: &Arc<str>, name: &Arc<str>) -> Self {
        Self { kind: kind.into(), namespace: Arc::clone(namespace), name: Arc::clone(name) }
    }

    /// A Node.
    pub fn node(name: &Arc<str>) -> Self {
        Self::new("Node", &"".into(), name)
    }

    /// A budget.
    pub fn budget(budget: &Budget) -> Self {
        Self::new("PodDisruptionBudget", &budget.namespace, &budget.name)
    }

    /// What a person changes when `pod` is to behave otherwise: its controller, or the pod itself.
    pub fn behind(pod: &Pod) -> Self {
        match &pod.owner {
            Some(owner) => Self::new(&owner.kind, &pod.namespace, &owner.name),
            None => Self::new("Pod", &pod.namespace, &pod.name),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if &*self.kind == "PodDisruptionBudget" { "PDB" } else { &*self.kind };
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
    /// Its short name, such as `U3`; U is about budgets, B about pods and nodes.
    pub code: &'static str,
    /// How it ends.
    pub outlook: Outlook,
    /// What it is about.
    pub object: Object,
    /// What is so, with the numbers.
    pub what: String,
    /// What to change.
    pub remedy: String,
    /// The pods that it keeps, or that it costs.
    pub pods: Vec<String>,
    /// The nodes they are on.
    pub nodes: Vec<Arc<str>>,
}

impl Cause {
    pub(super) fn new(
        code: &'static str,
        outlook: Outlook,
        object: Object,
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
        self.outlook == Outlook::NotNow && matches!(self.code, "B4" | "B6" | "B8" | "B9" | "B10")
    }

    /// Takes out of it what would act on a terminal: names and messages may come from a file that anybody wrote.
    pub fn harmless(&mut self) {
        let shared = |text: &mut Arc<str>| *text = text::harmless(text).into();
        self.what = text::harmless(&self.what);
        self.pods.iter_mut().for_each(|pod| *pod = text::harmless(pod));
        self.nodes.iter_mut().for_each(shared);
        [&mut self.object.kind, &mut self.object.namespace, &mut self.object.name]
            .into_iter()
            .for_each(shared);
    }

    /// The code and the object as one text: the same for the same cause in every run.
    pub fn id(&self) -> String {
        format!("{}/{}/{}/{}", self.code, self.object.kind, self.object.namespace, self.object.name)
    }
}
