//! One version of one object: its text, and the few facts that everybody asks for all the time, so that nobody has to
//! read 150,000 texts for them.
//!
//! Where a record is kept never belongs here, nor does what follows from a fact. The invariants: a record never
//! changes; every fact is what the text says, and so is the value, whether it is still at hand or read anew.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use jiff::Timestamp;
use serde_json::Value;

use crate::heartbeat::Template;
use crate::labels::{LabelSelector, Labels};

/// So many values that were read lately stay at hand.
const KEPT: usize = 512;

thread_local! {
    /// The values that were read lately. Most objects are read again within a moment, by the next model.
    static LATELY_READ: RefCell<VecDeque<Arc<Value>>> = const { RefCell::new(VecDeque::new()) };
}

/// One version of one object.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) revision: u64,
    facts: Arc<Facts>,
    text: Text,
    /// The object, as long as somebody holds it.
    value: Mutex<Weak<Value>>,
}

/// The whole object as JSON, resourceVersion included.
#[derive(Debug)]
enum Text {
    Written(Arc<str>, OnceLock<Option<Arc<Template>>>),
    /// The text of a heartbeat. Hardly anybody reads it, so it is made when somebody does.
    Beat(Arc<Template>, Timestamp, OnceLock<Box<str>>),
}

/// What everybody asks for all the time. A heartbeat has the same facts as the version before it.
#[derive(Debug)]
pub(crate) struct Facts {
    /// `namespace/name`, or `name`.
    pub(crate) key: Arc<str>,
    /// How many bytes of the key are the namespace.
    namespace: usize,
    pub(crate) uid: Box<str>,
    pub(crate) labels: Arc<Labels>,
    /// `spec.nodeName`.
    pub(crate) node: Option<Arc<str>>,
    /// UIDs of the owners.
    pub(crate) owners: Box<[Box<str>]>,
    /// The owner that controls it.
    pub(crate) controller: Option<Box<Owner>>,
    /// It has a deletionTimestamp.
    pub(crate) leaving: bool,
    /// `status.phase`, if it is one that a pod can have.
    pub(crate) phase: Phase,
    /// Its Ready condition is true.
    pub(crate) ready: bool,
    /// It has the finalizer `foregroundDeletion` or `orphan`: when it is deleted, it stays until what it owns is
    /// deleted or has lost this owner.
    pub(crate) finalizes: bool,
    /// `spec.selector`, if it selects anything.
    pub(crate) selector: Option<Box<LabelSelector>>,
    /// `spec.replicas`.
    pub(crate) replicas: Option<i64>,
    /// `spec.restartPolicy` is `Always`.
    pub(crate) restarts: bool,
}

impl Deref for Record {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

/// An owner that controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    /// No phase, or one that no pod has.
    #[default]
    Other,
}

impl Phase {
    /// Whether a pod in this phase has ended for good.
    pub(crate) fn finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Whether the Ready condition of an object is true.
pub(crate) fn ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// What an object selects; `None` if nothing.
pub(crate) fn selector(object: &Value) -> Option<Box<LabelSelector>> {
    let selector = object["spec"].get("selector").filter(|selector| selector.is_object())?;
    // The oldest kinds name labels only.
    let selector = if object["kind"] == "Service" || object["kind"] == "ReplicationController" {
        LabelSelector::map(selector)
    } else {
        LabelSelector::object(Some(selector))?
    };
    Some(Box::new(selector))
}

impl Record {
    /// The record of an object that has its resourceVersion already; `text` is its text.
    pub(crate) fn new(
        key: &str,
        revision: u64,
        object: &Arc<Value>,
        text: Arc<str>,
        labels: Arc<Labels>,
        node: Option<Arc<str>>,
    ) -> Self {
        let metadata = &object["metadata"];
        let owners = || metadata["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners().find(|owner| owner["controller"] == true).map(|owner| {
            let text = |name: &str| owner[name].as_str().unwrap_or_default().into();
            Box::new(Owner {
                api_version: text("apiVersion"),
                kind: text("kind"),
                name: text("name"),
                uid: text("uid"),
            })
        });
        let facts = Facts {
            key: key.into(),
            namespace: key.find('/').unwrap_or(0),
            uid: metadata["uid"].as_str().unwrap_or_default().into(),
            labels,
            node,
            owners: owners().filter_map(|owner| Some(owner["uid"].as_str()?.into())).collect(),
            controller,
            leaving: metadata.get("deletionTimestamp").is_some(),
            phase: match object["status"]["phase"].as_str() {
                Some("Pending") => Phase::Pending,
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Other,
            },
            ready: ready(object),
            finalizes: metadata["finalizers"].as_array().is_some_and(|all| {
                all.iter().any(|finalizer| finalizer == "foregroundDeletion" || finalizer == "orphan")
            }),
            selector: selector(object),
            replicas: object["spec"]["replicas"].as_i64(),
            restarts: object["spec"]["restartPolicy"] == "Always",
        };
        let text = Text::Written(text, OnceLock::new());
        Self { revision, facts: Arc::new(facts), text, value: Mutex::new(Arc::downgrade(object)) }
    }

    /// The next version of the same object, which is a heartbeat at `time`: all facts stay as they are. `None` if the
    /// object has no heartbeats.
    pub(crate) fn beat(&self, revision: u64, time: Timestamp) -> Option<Self> {
        let template = match &self.text {
            Text::Beat(template, ..) => template,
            Text::Written(text, template) => {
                template.get_or_init(|| Template::of(text.clone()).map(Arc::new)).as_ref()?
            }
        };
        let text = Text::Beat(template.clone(), time, OnceLock::new());
        Some(Self { revision, facts: self.facts.clone(), text, value: Mutex::default() })
    }

    /// The whole object as JSON, resourceVersion included.
    pub(crate) fn text(&self) -> &str {
        match &self.text {
            Text::Written(text, _) => text,
            Text::Beat(template, time, text) => {
                text.get_or_init(|| template.at(self.revision, *time).into_boxed_str())
            }
        }
    }

    /// The object.
    pub(crate) fn value(&self) -> Arc<Value> {
        let mut kept = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        kept.upgrade().unwrap_or_else(|| {
            // The text was written from a `Value`.
            let read = Arc::new(serde_json::from_str(self.text()).unwrap_or_default());
            *kept = Arc::downgrade(&read);
            LATELY_READ.with_borrow_mut(|lately| {
                lately.truncate(KEPT - 1);
                lately.push_front(Arc::clone(&read));
            });
            read
        })
    }

    /// The object, for whoever changes it.
    pub(crate) fn copy(&self) -> Value {
        Arc::unwrap_or_clone(self.value())
    }

    pub(crate) fn namespace(&self) -> &str {
        self.key.get(..self.facts.namespace).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        let slash = usize::from(self.facts.namespace > 0);
        self.key.get(self.facts.namespace + slash..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn facts_are_what_the_text_says() {
        let pod = json!({
            "metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "a"},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "b", "controller": true}]},
            "status": {"phase": "Failed", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let of = |key: &str, object: &Value| {
            let object = Arc::new(object.clone());
            (Record::new(key, 7, &object, object.to_string().into(), Arc::default(), None), object)
        };
        let (record, at_hand) = of("shop/web", &pod);
        assert_eq!((record.namespace(), record.name(), &*record.uid), ("shop", "web", "u"));
        assert!(record.leaving && record.ready && record.phase.finished());
        let owner = record.controller.as_ref().map(|of| (&*of.api_version, &*of.kind, &*of.name, &*of.uid));
        assert_eq!(owner, Some(("apps/v1", "ReplicaSet", "r", "b")));
        assert_eq!(record.owners.iter().map(|uid| &**uid).collect::<Vec<_>>(), ["a", "b"]);
        assert!(Arc::ptr_eq(&record.value(), &at_hand));
        drop(at_hand);
        let read = record.value();
        assert_eq!(*read, pod, "read anew");
        assert!(Arc::ptr_eq(&record.value(), &read), "and at hand again");

        let bare = json!({"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let (record, _) = of("node", &bare);
        assert!(
            !record.leaving && !record.ready && record.phase == Phase::Other && record.controller.is_none()
        );
    }
}
