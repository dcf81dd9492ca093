//! Create, update, delete: the one way into the store, for requests and models alike.
//!
//! How a request is read never belongs here. The invariant: but for what kubelets write often, models write by the same
//! rules as requests.

mod apply;
mod create;
mod delete;
mod object;
mod update;

use std::sync::Arc;

use serde_json::Value;

use super::custom;
use super::kinds::Kind;
use super::state::ApiState;
use super::status::{Failure, Named, Outcome};
use crate::clock;
use crate::record::Record;

/// How a write is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) manager: String,
    pub(crate) subresource: Option<String>,
    pub(crate) dry_run: bool,
    /// Whether `managedFields` are kept up to date.
    pub(crate) tracked: bool,
}

/// How an object is deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deletion {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) propagation: Option<String>,
    pub(crate) dry_run: bool,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct WriteResult {
    pub(crate) object: Arc<Value>,
    pub(crate) warnings: Vec<String>,
}

fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    let found = path.split('/').skip(1).try_fold(object, |at, name| at.get(name));
    found.and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn drop_field(object: &mut Value, name: &str) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove(name);
    }
}

impl ApiState {
    pub(crate) fn now(&self) -> String {
        clock::seconds(self.clock.now())
    }

    /// Refuses a namespace that does not exist or is being deleted.
    pub(crate) fn check_namespace(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Outcome<()> {
        let Some(namespace) = namespace.filter(|_| kind.namespaced) else { return Ok(()) };
        let missing = Named { group: "", kind: "namespaces", name: namespace };
        let record = self.store.get("namespaces", namespace).ok_or_else(|| Failure::not_found(missing))?;
        if record.leaving {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            return Err(Failure::forbidden(kind.named(name), why).with_cause(
                "NamespaceTerminating",
                &format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ));
        }
        Ok(())
    }

    /// Name and namespace must be those of the request.
    fn check_names(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        object: &mut Value,
        name: Option<&str>,
    ) -> Outcome<()> {
        if let Some(name) = name {
            match text(object, "/metadata/name") {
                Some(sent) if sent != name => {
                    return Err(Failure::bad_request(format!(
                        "the name of the object ({sent}) does not match the name on the URL ({name})"
                    )));
                }
                Some(_) => {}
                None => object["metadata"]["name"] = name.into(),
            }
        }
        match namespace.filter(|_| kind.namespaced) {
            Some(namespace) => {
                if text(object, "/metadata/namespace").is_some_and(|sent| sent != namespace) {
                    return Err(Failure::bad_request(
                        "the namespace of the provided object does not match the namespace sent on the request",
                    ));
                }
                object["metadata"]["namespace"] = namespace.into();
            }
            None => drop_field(object, "namespace"),
        }
        Ok(())
    }

    /// Stores an object, and serves the kinds of a CustomResourceDefinition. Returns the object with its revision.
    pub(crate) fn put(&mut self, kind: &Arc<Kind>, key: &str, mut object: Value) -> Arc<Value> {
        if kind.converts()
            && let Some(kept) = self.kinds.stored(&kind.resource)
        {
            let kept = kind.keep_as(kept, &object);
            let revision = self.store.put(&kind.resource, key, kept, false).revision;
            object["metadata"]["resourceVersion"] = revision.to_string().into();
            return Arc::new(object);
        }
        let object = self.store.put(&kind.resource, key, object, false).value();
        if kind.kind == "CustomResourceDefinition" {
            custom::serve(&mut self.kinds, &object);
        }
        object
    }

    /// Takes an object out of the store, and stops serving the kinds of a CustomResourceDefinition. Returns the object
    /// as it was at its end.
    pub(crate) fn remove(&mut self, kind: &Arc<Kind>, key: &str) -> Option<Arc<Record>> {
        let gone = self.store.remove(&kind.resource, key)?;
        if kind.kind == "CustomResourceDefinition" {
            self.kinds.remove(key);
        }
        Some(gone)
    }
}

/// Whether two objects differ in nothing but their revision and the times in `managedFields`.
fn same(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return old == new };
    alike(old, new, &["metadata"])
        && match (old.get("metadata"), new.get("metadata")) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                alike(old, new, &["resourceVersion", "managedFields"])
                    && match (owners(old), owners(new)) {
                        (Some(old), Some(new)) => {
                            old.len() == new.len() && old.iter().zip(new).all(same_entry)
                        }
                        (old, new) => old == new,
                    }
            }
            (old, new) => old == new,
        }
}

type Fields = serde_json::Map<String, Value>;

fn owners(metadata: &Fields) -> Option<&Vec<Value>> {
    metadata.get("managedFields").and_then(Value::as_array)
}

/// Whether two entries of `managedFields` differ in nothing but the time.
fn same_entry((old, new): (&Value, &Value)) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => alike(old, new, &["time"]),
        _ => old == new,
    }
}

/// Whether all fields are the same, `but` these.
fn alike(old: &Fields, new: &Fields, but: &[&str]) -> bool {
    let counts = |(name, _): &(&String, &Value)| !but.contains(&name.as_str());
    old.iter().filter(counts).eq(new.iter().filter(counts))
}

fn warnings(unknown: Vec<String>) -> Vec<String> {
    unknown.into_iter().map(|field| format!("unknown field {field:?}")).collect()
}
