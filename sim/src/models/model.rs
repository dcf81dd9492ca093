//! What a model is, and what it works with for one step.
//!
//! Here belongs what is alike for all models. Which model takes its step when never belongs here; that is in
//! `stepper.rs`. The invariant: a model writes through the same rules as a request; only what kubelets write often goes
//! around them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::{ApiState, Deletion, Kind, Outcome, WriteOptions};
use crate::random::Random;
use crate::record::Record;
use crate::store::Change;

/// One controller.
pub(crate) trait Model: Send {
    /// The field manager of the model's writes.
    fn name(&self) -> &'static str;
    /// The keys of what the model has to look at because of a change.
    fn keys(&mut self, resource: &str, change: &Change, state: &ApiState) -> Vec<String>;
    /// Looks at what `key` names, and takes one step.
    fn step(&mut self, key: &str, world: &mut ModelStep<'_>);
    /// Whether the model is told of heartbeats, too.
    fn hears_beats(&self) -> bool {
        false
    }
    /// How long after a change the model looks, in milliseconds: the least and the most.
    fn lag(&self) -> (u64, u64) {
        (1, 10)
    }
    /// The least time between two steps.
    fn pace(&self) -> Duration {
        Duration::ZERO
    }
    /// What the model looks at when the cluster begins, and how long after.
    fn begin(&mut self) -> Vec<(Duration, String)> {
        Vec::new()
    }
}

/// What a model works with for one step.
pub(crate) struct ModelStep<'a> {
    pub(crate) state: &'a mut ApiState,
    pub(crate) random: &'a mut Random,
    pub(super) manager: &'static str,
    pub(super) later: Vec<(Duration, String)>,
}

impl ModelStep<'_> {
    /// Has the model look at `key` again after this time.
    pub(crate) fn after(&mut self, time: Duration, key: impl Into<String>) {
        self.later.push((time, key.into()));
    }

    pub(crate) fn kind(&self, resource: &str) -> Option<Arc<Kind>> {
        self.state.kinds.stored(resource).cloned()
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<Arc<Value>> {
        self.state.store.get(resource, key).map(|record| record.value())
    }

    pub(crate) fn record(&self, resource: &str, key: &str) -> Option<Arc<Record>> {
        self.state.store.get(resource, key).cloned()
    }

    /// All objects of a kind in a namespace; with an empty namespace, in all namespaces.
    pub(crate) fn each(&self, resource: &str, namespace: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.state.store.within(resource, namespace)
    }

    /// The same as a copy, so that the caller can write meanwhile.
    pub(crate) fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Record>> {
        self.each(resource, namespace).cloned().collect()
    }

    /// Creates an object.
    pub(crate) fn create(
        &mut self,
        resource: &str,
        namespace: Option<&str>,
        object: Value,
    ) -> Outcome<Arc<Value>> {
        let options =
            WriteOptions { manager: self.manager.to_owned(), tracked: true, ..WriteOptions::default() };
        let Some(kind) = self.kind(resource) else { return Ok(Arc::default()) };
        self.state.create(&kind, namespace, object, &options).map(|written| written.object)
    }

    /// Changes the object, or its status, if `change` changes anything.
    pub(crate) fn change(
        &mut self,
        resource: &str,
        key: &str,
        status: bool,
        change: impl FnOnce(&mut Value),
    ) -> Outcome<()> {
        let (Some(kind), Some(before)) = (self.kind(resource), self.record(resource, key)) else {
            return Ok(());
        };
        let old = before.value();
        let mut object = Value::clone(&old);
        change(&mut object);
        if object == *old {
            return Ok(());
        }
        let options = WriteOptions {
            manager: self.manager.to_owned(),
            subresource: status.then(|| "status".to_owned()),
            tracked: true,
            ..WriteOptions::default()
        };
        self.state.replace_seen(&kind, key, &before, &old, object, &options).map(drop)
    }

    /// Writes an object without the rules for requests: for what kubelets write often. `quiet` says that it is only a
    /// heartbeat.
    pub(crate) fn put(&mut self, resource: &str, key: &str, object: Value, quiet: bool) {
        self.state.store.put(resource, key, object, quiet);
    }

    pub(crate) fn delete(&mut self, resource: &str, key: &str, how: &Deletion) -> Outcome<()> {
        let Some(kind) = self.kind(resource) else { return Ok(()) };
        self.state.delete(&kind, key, how).map(drop)
    }

    pub(crate) fn now(&self) -> String {
        self.state.now()
    }
}
