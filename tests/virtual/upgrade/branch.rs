//! Runs that begin alike are played once: where the first fault of a script would be, the process is copied, and the copy
//! meets the fault and goes on to the end. A run of a whole campaign so costs what comes after its fault.
//!
//! Never here: what goes wrong, or what must hold. Invariant: a copy ends as a run of its own would, which
//! `branch_alike` checks. A copied process has only the thread that copied it, so no other test may
//! run beside: `--test-threads=1`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use evenkeel_sim::Cluster;
use evenkeel_sim::faults::{Call, Told};
use fork::{Fork, fork, wait_any_event};

use super::super::campaign::{Wrong, is_only_counted};
use super::super::script::{self, Step, has_two};
use super::watcher::Watcher;
use super::watcher::faults::{attend, fair};

/// So many scripts share one run: each of its requests is held against each of them.
const SHARE: usize = 500;

thread_local! {
    /// The script of this process, where it is a copy.
    static MINE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A script with its seed.
pub type Seeded = (u64, Vec<Step>);

/// The scripts of one run, and the copies of it that are under way.
pub struct Branches {
    scripts: Vec<Vec<Step>>,
    answers: PathBuf,
    under_way: Mutex<BTreeMap<i32, usize>>,
    at_once: usize,
}

/// Where a script leaves the run without faults.
fn first(script: &[Step]) -> Option<&Step> {
    script.iter().filter(|step| !begins(step)).min_by_key(|step| match step {
        Step::Call { nth, .. } | Step::Told { nth, .. } => *nth,
        Step::At { millis, .. } => *millis,
        Step::Like { .. } => 0,
    })
}

/// Whether a step says how the upgrade is, and not what happens to it.
pub fn begins(step: &Step) -> bool {
    matches!(step, Step::At { millis: 0, .. })
}

/// What runs have to have in common to begin as one: their seed, how their upgrade is, whether there are two replicas, and
/// whether what happens to them is counted or timed. Nothing for a script that cannot share its beginning.
fn alike(seed: u64, script: &[Step]) -> Option<(u64, String, bool, bool)> {
    let rest: Vec<&Step> = script.iter().filter(|step| !begins(step)).collect();
    let timed = rest.iter().all(|step| matches!(step, Step::At { .. }));
    let one = |of: &dyn Fn(&Step) -> bool| !rest.is_empty() && rest.iter().all(|step| of(step));
    let counted = [super::attacks::LEADER, super::attacks::LEASE];
    let same = |of: &str| one(&|step| matches!(step, Step::Call { agent, .. } if agent == of));
    let called = counted.into_iter().any(same);
    let told = one(&|step| matches!(step, Step::Told { .. })) && rest.len() == 1;
    if rest.is_empty() || !(timed || called || told) {
        return None;
    }
    let begin: Vec<Step> = script.iter().filter(|step| begins(step)).cloned().collect();
    Some((seed, script::line(&begin), has_two(script), timed))
}

/// Plays `scripts` by copies of as few runs as there are kinds of beginnings. `play` plays a beginning with branches; in a
/// copy it returns what was wrong at the end, and in the run itself nothing of interest.
///
/// Returns the scripts that were wrong, with what was, and those that did not leave such a run.
pub fn all(
    name: &str,
    scripts: Vec<Seeded>,
    play: impl Fn(u64, &[Step], &Arc<Branches>) -> Wrong,
) -> (Vec<(Seeded, Wrong)>, Vec<Seeded>) {
    let began = Instant::now();
    let (mut groups, mut left) = (BTreeMap::new(), Vec::new());
    for (seed, script) in scripts {
        match alike(seed, &script) {
            Some(key) => groups.entry(key).or_insert_with(Vec::new).push(script),
            None => left.push((seed, script)),
        }
    }
    let (mut wrong, mut count) = (Vec::new(), 0);
    let to_come: usize = groups.values().map(Vec::len).sum();
    eprintln!("{name}: {to_come} branches of {} beginnings are to come", groups.len());
    if is_only_counted() {
        return (Vec::new(), left);
    }
    for ((seed, ..), scripts) in groups {
        for scripts in scripts.chunks(SHARE) {
            let answers = tempfile::tempdir().unwrap();
            let branches = Branches::new(scripts.to_vec(), answers.path());
            let beginning: Vec<Step> = common(scripts);
            let said = play(seed, &beginning, &branches);
            if let Some(mine) = MINE.get() {
                branches.answer(mine, &said);
            }
            branches.wait(0);
            for (at, script) in scripts.iter().enumerate() {
                match branches.answer_of(at) {
                    Some(said) if said.is_empty() => {}
                    Some(said) => wrong.push(((seed, script.clone()), said)),
                    None => left.push((seed, script.clone())),
                }
            }
            count += scripts.len();
            let seconds = began.elapsed().as_secs_f64();
            eprintln!("{name}: {count} branches played in {seconds:.1} s, {} wrong", wrong.len());
        }
    }
    (wrong, left)
}

/// How the upgrade of these scripts is.
fn common(scripts: &[Vec<Step>]) -> Vec<Step> {
    scripts.first().into_iter().flatten().filter(|step| begins(step)).cloned().collect()
}

impl Branches {
    pub fn new(scripts: Vec<Vec<Step>>, answers: &Path) -> Arc<Self> {
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self { scripts, answers: answers.to_owned(), under_way: Mutex::default(), at_once })
    }

    /// Whether the runs need the second replica.
    pub fn has_two(&self) -> bool {
        self.scripts.first().is_some_and(|script| has_two(script))
    }

    /// Puts the faults of every script into the cluster, each for its own copy, and lets the copies leave.
    pub fn arm(self: &Arc<Self>, cluster: &Cluster, watcher: &Arc<Mutex<Watcher>>) {
        let (here, seeing) = (Arc::clone(self), Arc::clone(watcher));
        let leave = move |fits: &dyn Fn(&Step) -> bool| {
            for (at, script) in here.scripts.iter().enumerate() {
                if MINE.get().is_none() && first(script).is_some_and(fits) && here.leave(at) {
                    fair(&mut seeing.lock().unwrap_or_else(PoisonError::into_inner), script);
                }
            }
            false
        };
        let of_told = leave.clone();
        let called = move |call: &Call| {
            leave(
                &|step| matches!(step, Step::Call { agent, nth, .. } if *agent == call.agent && *nth == call.nth),
            )
        };
        // These two never fit: they are there to be asked first, whenever a fault may begin.
        cluster.faults().when(called, evenkeel_sim::faults::Fault::Compact, 1);
        let told = move |told: &Told| {
            of_told(&|step| {
                matches!(step, Step::Told { agent, resource, nth, .. }
                    if *agent == told.agent && *resource == told.resource && *nth == told.nth)
            })
        };
        cluster.faults().when_told(told, evenkeel_sim::faults::WatchFault::Drop, 1);
        attend(cluster, watcher);
        for (at, script) in self.scripts.iter().enumerate() {
            script::arm_while(cluster, script, move || MINE.get() == Some(at));
        }
    }

    /// The moments at which scripts leave that are timed, in milliseconds, in order.
    pub fn moments(&self) -> Vec<(u64, usize)> {
        let first = |(at, script): (usize, &Vec<Step>)| match first(script) {
            Some(Step::At { millis, .. }) => Some((*millis, at)),
            _ => None,
        };
        let mut moments: Vec<(u64, usize)> = self.scripts.iter().enumerate().filter_map(first).collect();
        moments.sort_unstable();
        moments
    }

    /// Copies the process for a script; whether this is the copy. Waits while as many copies run as there are cores.
    pub fn leave(&self, at: usize) -> bool {
        self.wait(self.at_once - 1);
        // A copy that dies has left all the same.
        std::fs::write(self.file(at), []).unwrap();
        match fork().unwrap() {
            Fork::Child => {
                MINE.set(Some(at));
                true
            }
            Fork::Parent(process) => {
                self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(process, at);
                false
            }
        }
    }

    /// The script of this process, where it is a copy.
    pub fn mine(&self) -> Option<&[Step]> {
        self.scripts.get(MINE.get()?).map(Vec::as_slice)
    }

    /// Waits until no more copies than `most` run.
    fn wait(&self, most: usize) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        while under_way.len() > most {
            let event = wait_any_event().unwrap();
            if event.is_terminal() {
                under_way.remove(&event.pid().get());
            }
        }
    }

    fn file(&self, at: usize) -> PathBuf {
        self.answers.join(at.to_string())
    }

    /// Leaves the answer of this copy for the run that it left, and ends the process.
    fn answer(&self, at: usize, wrong: &Wrong) -> ! {
        let written = serde_json::to_vec(wrong).unwrap();
        std::fs::write(self.file(at), written).unwrap();
        std::process::exit(0)
    }

    /// What a copy answered. A copy that left and ended without an answer is wrong; nothing where none left.
    fn answer_of(&self, at: usize) -> Option<Wrong> {
        let read = std::fs::read(self.file(at)).ok()?;
        Some(
            serde_json::from_slice(&read).unwrap_or_else(|_| vec!["the copy's answer has no end".to_owned()]),
        )
    }
}
