//! What runs in a cluster besides its API: controllers, scheduler, kubelets.
//!
//! A model is told which objects changed, a little later, and takes one small step for each: it reads the store, decides,
//! and writes through the same rules as a request. All run in one task, in the order of time and then of arrival, so that
//! one seed gives one history. Never here: HTTP, or a clock of its own.

mod claim;
mod control;
mod daemons;
mod deployments;
mod disruption;
mod endpoints;
mod garbage;
mod jobs;
mod kubelets;
mod lifecycle;
mod namespaces;
mod pods;
mod replicas;
mod scheduler;
mod sets;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub use control::{COMPONENTS, ControlPlane};
pub(crate) use kubelets::returned;
pub use kubelets::{Deed, Kubelets, Times};

use crate::api::{Deletion, Kind, Options, Outcome, Shared, State};
use crate::random::Random;
use crate::record::Record;
use crate::store::Change;

/// Sets a condition in a status; its transition time moves only when its status changes. Returns whether anything
/// changed.
pub(crate) fn condition(status: &mut Value, wanted: &Value, now: &str) -> bool {
    if !status.is_object() {
        *status = json!({});
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return false };
    let mut condition = wanted.clone();
    if condition["message"] == "" && condition["type"] != "DisruptionAllowed" {
        drop(condition.as_object_mut().map(|condition| condition.remove("message")));
    }
    condition["lastTransitionTime"] = now.into();
    let Some(found) = conditions.iter_mut().find(|found| found["type"] == wanted["type"]) else {
        conditions.push(condition);
        return true;
    };
    if found["status"] == wanted["status"] {
        condition["lastTransitionTime"] = found["lastTransitionTime"].clone();
    }
    let changed = *found != condition;
    *found = condition;
    changed
}

/// A condition of an object, by its type.
pub(crate) fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// An owner reference to a controller.
pub(crate) fn owned_by(owner: &Value) -> Value {
    json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
}

/// Whether the object has a deletionTimestamp.
pub(crate) fn leaving(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

/// One controller.
pub(crate) trait Model: Send {
    /// The field manager of the model's writes.
    fn name(&self) -> &'static str;
    /// The keys of what the model has to look at because of a change.
    fn keys(&mut self, resource: &str, change: &Change, state: &State) -> Vec<String>;
    /// Looks at what `key` names, and takes one step.
    fn step(&mut self, key: &str, world: &mut World<'_>);
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
pub(crate) struct World<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) random: &'a mut Random,
    manager: &'static str,
    later: Vec<(Duration, String)>,
}

impl World<'_> {
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
        let options = Options { manager: self.manager.to_owned(), tracked: true, ..Options::default() };
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
        let options = Options {
            manager: self.manager.to_owned(),
            subresource: status.then(|| "status".to_owned()),
            tracked: true,
            ..Options::default()
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

/// A model at work.
struct Worker {
    model: Box<dyn Model>,
    hears_beats: bool,
    random: Random,
    /// When the model may take its next step.
    free: Duration,
    /// The keys that were due before that, in order.
    backlog: VecDeque<Arc<str>>,
}

/// Steps the models: which one takes its next step, and when.
struct Driver {
    shared: Shared,
    workers: Vec<Worker>,
    /// What is due, by time and then by arrival: a worker and a key, or without a key the first of the worker's
    /// backlog.
    queue: BinaryHeap<Reverse<(Duration, u64, usize, Option<Arc<str>>)>>,
    /// What is in the queue or a backlog, with its time. Never iterated, so its order does not matter.
    pending: HashMap<(usize, Arc<str>), Duration>,
    count: u64,
    /// Memory for what the models are told.
    news: Vec<(Arc<str>, Change)>,
    compacted: Duration,
    mark: u64,
}

impl Driver {
    fn push(&mut self, model: usize, due: Duration, key: String) {
        let key: Arc<str> = key.into();
        let pending = self.pending.entry((model, key.clone())).or_insert(Duration::MAX);
        if due < *pending {
            *pending = due;
            self.enqueue(due, model, Some(key));
        }
    }

    fn enqueue(&mut self, due: Duration, model: usize, key: Option<Arc<str>>) {
        self.count += 1;
        self.queue.push(Reverse((due, self.count, model, key)));
    }

    /// Tells the models what was written since they were last told.
    fn tell(&mut self, now: Duration) {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        state.store.news(&mut self.news);
        let mut due = Vec::new();
        for (resource, change) in self.news.drain(..) {
            for (at, worker) in self.workers.iter_mut().enumerate() {
                if change.quiet && !worker.hears_beats {
                    continue;
                }
                let Worker { model, random, .. } = worker;
                for key in model.keys(&resource, &change, &state) {
                    let (least, most) = model.lag();
                    due.push((at, now + Duration::from_millis(random.between(least, most)), key));
                }
            }
        }
        drop(state);
        for (model, due, key) in due {
            self.push(model, due, key);
        }
    }

    /// Takes every step that is due. Returns when the next one is due.
    fn work(&mut self, now: Duration) -> Option<Duration> {
        loop {
            let Reverse((due, ..)) = self.queue.peek()?;
            if *due > now {
                return Some(*due);
            }
            let Reverse((due, _, at, key)) = self.queue.pop()?;
            let Some(worker) = self.workers.get_mut(at) else { continue };
            let waits = worker.free > now || !worker.backlog.is_empty();
            let key = match key {
                Some(key) if self.pending.get(&(at, key.clone())) != Some(&due) => continue,
                Some(key) if waits => {
                    worker.backlog.push_back(key);
                    let (first, free) = (worker.backlog.len() == 1, worker.free);
                    if first {
                        self.enqueue(free, at, None);
                    }
                    continue;
                }
                Some(key) => key,
                None => match worker.backlog.pop_front() {
                    Some(key) => key,
                    None => continue,
                },
            };
            self.pending.remove(&(at, key.clone()));
            worker.free = now + worker.model.pace();
            let (more, free) = (!worker.backlog.is_empty(), worker.free);
            if more {
                self.enqueue(free, at, None);
            }
            let Some(Worker { model, random, .. }) = self.workers.get_mut(at) else { continue };
            let shared = self.shared.clone();
            let mut state = shared.lock_as(model.name());
            let mut world = World { manager: model.name(), state: &mut state, random, later: Vec::new() };
            model.step(&key, &mut world);
            let later = world.later;
            if now >= self.compacted + crate::api::COMPACTION {
                self.compacted = now;
                // As a real server does: what was the past at the last compaction is forgotten at this one.
                state.store.compact(self.mark);
                self.mark = state.store.revision();
            }
            drop(state);
            for (time, key) in later {
                self.push(at, now + time, key);
            }
            self.tell(now);
        }
    }
}

/// Runs the models of a cluster until it is dropped.
pub(crate) async fn run(shared: Shared, kubelets: Kubelets, control: ControlPlane, seed: u64) {
    let models: Vec<Box<dyn Model>> = vec![
        Box::new(namespaces::Namespaces),
        Box::new(garbage::Garbage::default()),
        Box::new(deployments::Deployments),
        Box::new(replicas::Replicas::sets()),
        Box::new(sets::StatefulSets),
        Box::new(daemons::DaemonSets),
        Box::new(jobs::Jobs),
        Box::new(disruption::Disruption::default()),
        Box::new(endpoints::Endpoints),
        Box::new(scheduler::Scheduler::default()),
        Box::new(lifecycle::Lifecycle::default()),
        Box::new(kubelets::Model::new(kubelets, control.clone())),
        Box::new(control::Model::new(control)),
        Box::new(replicas::Replicas::controllers()),
    ];
    let mut random = Random::new(seed ^ 0x6d6f_6465_6c73);
    let (mut changes, clock) = {
        let state = shared.lock();
        (state.store.changes(), state.clock.clone())
    };
    let mut driver = Driver {
        shared,
        workers: models
            .into_iter()
            .map(|model| Worker {
                hears_beats: model.hears_beats(),
                model,
                random: random.split(),
                free: Duration::ZERO,
                backlog: VecDeque::new(),
            })
            .collect(),
        queue: BinaryHeap::new(),
        pending: HashMap::new(),
        count: 0,
        news: Vec::new(),
        compacted: Duration::ZERO,
        mark: 0,
    };
    for at in 0..driver.workers.len() {
        let begin = driver.workers.get_mut(at).map(|worker| worker.model.begin()).unwrap_or_default();
        for (due, key) in begin {
            driver.push(at, due, key);
        }
    }
    loop {
        changes.look();
        let now = clock.elapsed();
        driver.tell(now);
        let next = driver.work(now);
        let due = async {
            match next {
                Some(due) => tokio::time::sleep_until(clock.at(due)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            lives = changes.changed() => if !lives { return },
            () = due => {}
        }
    }
}
