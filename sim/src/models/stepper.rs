//! Which model takes its next step, and when.
//!
//! Here belong the queue of what is due and the task that works it off. What a step does never belongs here. The
//! invariant: steps are taken in the order of time and then of arrival, so that one seed gives one history.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::control::{self, ControlPlane};
use super::kubelets::{self, Kubelets};
use super::model::{Model, ModelStep};
use super::{
    daemons, deployments, disruption, endpoints, garbage, jobs, lifecycle, namespaces, replicas, scheduler,
    sets,
};
use crate::api::Shared;
use crate::random::Random;
use crate::store::Change;

/// A model that waits until its controller is at work looks so often whether it is.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

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
struct Stepper {
    shared: Shared,
    control: ControlPlane,
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

impl Stepper {
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

    /// What was `due` is done `later`: a key, or the first of the backlog.
    fn later(&mut self, (later, due): (Duration, Duration), model: usize, key: Option<Arc<str>>) {
        if let Some(key) = &key {
            match self.pending.get_mut(&(model, key.clone())) {
                Some(pending) if *pending == due => *pending = later,
                // It was asked for once more, and that is in the queue.
                _ => return,
            }
        }
        self.enqueue(later, model, key);
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
            if self.control.holds_back(worker.model.name()) {
                self.later((now + LOOKS_AGAIN, due), at, key);
                continue;
            }
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
            let mut world = ModelStep { manager: model.name(), state: &mut state, random, later: Vec::new() };
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
        Box::new(kubelets::KubeletModel::new(kubelets, control.clone())),
        Box::new(control::ControlModel::new(control.clone())),
        Box::new(replicas::Replicas::controllers()),
    ];
    let mut random = Random::new(seed ^ 0x6d6f_6465_6c73);
    let (mut changes, clock) = {
        let state = shared.lock();
        (state.store.changes(), state.clock.clone())
    };
    let mut stepper = Stepper {
        shared,
        control,
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
    for at in 0..stepper.workers.len() {
        let begin = stepper.workers.get_mut(at).map(|worker| worker.model.begin()).unwrap_or_default();
        for (due, key) in begin {
            stepper.push(at, due, key);
        }
    }
    loop {
        changes.look();
        let now = clock.elapsed();
        stepper.tell(now);
        let next = stepper.work(now);
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
