//! What is done to an upgrade, whichever it is: each fault at each of its requests, deaths, failovers, stale reads, and
//! events that are lost.
//!
//! Here belong the scripts; how many of them a change tries, and what a run of them must hold, is said by the campaigns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_sim::faults::Call;
use tokio::time::Instant;

use super::super::campaign::is_long;
use super::super::script::{self, Step};
use super::{Turn, run};

pub const LEADER: &str = "evenkeel-a";
/// The leader when it renews its lease.
pub const LEASE: &str = "evenkeel-a-lease";

/// Every kind that the operator watches.
pub const WATCHED: [&str; 14] = [
    "nodes",
    "pods",
    "poddisruptionbudgets.policy",
    "persistentvolumes",
    "volumeattachments.storage.k8s.io",
    "statefulsets.apps",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "clusterupgrades.evenkeel.dev",
    "nodeupgrades.evenkeel.dev",
    "upgradeexecutors.evenkeel.dev",
    "jobs.batch",
];

/// What may happen to an event.
const TOLD: [&str; 9] =
    ["drop", "duplicate", "delay:4", "delay:20", "swap", "gone", "end", "reset", "garbage"];

pub type Script = (u64, Vec<Step>);

pub fn call(nth: u64, times: u64, fault: &str) -> Step {
    Step::Call { agent: LEADER.to_owned(), nth, times, fault: fault.to_owned() }
}

pub fn at(millis: u64, deed: &str) -> Step {
    Step::At { millis, deed: deed.to_owned() }
}

/// The steps of a script that is written in one line.
pub fn steps(script: &str) -> Vec<Step> {
    let all = script.split(';').map(str::trim).filter(|step| !step.is_empty());
    all.map(|step| step.parse().unwrap()).collect()
}

/// All of it in a long campaign; else `some` of it, spread over the whole.
pub fn spread<T>(all: Vec<T>, some: usize) -> Vec<T> {
    if is_long() || all.len() <= some {
        return all;
    }
    let count = all.len();
    // A step without a common divisor meets every kind, whatever repeats.
    let picked: BTreeSet<usize> = (0..some).map(|at| (at * count / some + at * 7) % count).collect();
    all.into_iter().enumerate().filter(|(at, _)| picked.contains(at)).map(|(_, one)| one).collect()
}

/// An upgrade, and what was asked and told in its run without faults.
pub struct Attacked {
    begins: Vec<Step>,
    /// What the operator asked.
    pub calls: Vec<Call>,
    /// When it was told an event, of each resource.
    told: BTreeMap<String, Vec<Duration>>,
    /// Every state that a claim came into.
    turns: Vec<Turn>,
    begun: Instant,
    /// How long it took, and what the run waited until it was sure of that.
    took: Duration,
}

impl Attacked {
    /// The upgrade that begins so.
    pub fn of(begins: Vec<Step>) -> Self {
        let run = run(1, &begins);
        // A person asks for the upgrade.
        let begun = run.calls.first().map(|call| call.at).unwrap();
        let calls = run.calls.into_iter().filter(|call| call.agent == LEADER).collect();
        Self { begins, calls, told: run.told, turns: run.turns, begun, took: run.took }
    }

    /// The same, and nothing is done to what was asked and told later: for upgrades that repeat themselves from then on.
    pub fn until(mut self, end: Duration) -> Self {
        let begun = self.begun;
        self.calls.retain(|call| call.at <= begun + end);
        self.told.values_mut().for_each(|all| all.retain(|at| *at <= end));
        self.turns.retain(|turn| turn.at <= end);
        self
    }

    /// How long it takes until a claim has been parked `times` times, of all claims that are parked so often.
    pub fn parked(&self, times: usize) -> Duration {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        let parked = self.turns.iter().filter(|turn| turn.state == "Parked");
        let last = parked.filter(|turn| {
            let count = count.entry(&turn.claim).or_default();
            *count += 1;
            *count == times
        });
        last.map(|turn| turn.at).max().expect("a claim is parked so often")
    }

    /// So many moments of the upgrade, in milliseconds, each `after` such a moment.
    pub fn moments(&self, count: u64, after: u64) -> impl Iterator<Item = u64> + use<> {
        let whole = self.took.saturating_sub(AT_REST).as_millis() as u64;
        (0..count).map(move |step| step * whole / count + after)
    }

    /// What `deeds` says that happens at each of so many moments.
    pub fn happens(&self, count: u64, after: u64, deeds: impl Fn(u64) -> Vec<Vec<Step>>) -> Vec<Script> {
        let at = self.moments(count, after);
        at.flat_map(deeds).map(|deeds| self.script(deeds)).collect()
    }

    fn script(&self, more: Vec<Step>) -> Script {
        (1, [self.begins.clone(), more].concat())
    }

    /// The operator's writes.
    pub fn writes(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.is_write())
    }

    /// One of these faults at each write.
    pub fn at_writes(&self, faults: &[&str]) -> Vec<Script> {
        let of = |write: &Call| {
            let nth = write.nth;
            faults.iter().map(move |fault| self.script(vec![call(nth, 1, fault)]))
        };
        self.writes().flat_map(of).collect()
    }

    /// It dies before or after each write.
    pub fn crashes(&self) -> Vec<Script> {
        self.at_writes(&["crash-before", "crash-after"])
    }

    /// Every fault at every request that can meet it; of an upgrade of another kind than the usual, one of each class.
    pub fn faults(&self) -> Vec<Script> {
        self.faults_at(|_| true)
    }

    /// Every answer that `asked` can get instead of its own; in an upgrade that is otherwise than usual one of each class.
    fn answers_to(&self, asked: &Call) -> impl Iterator<Item = String> + use<> {
        let all = if self.is_usual() { script::statuses_of(asked) } else { script::classes_of(asked) };
        all.into_iter()
    }

    /// Every fault at every such request.
    pub fn faults_at(&self, which: impl Fn(&Call) -> bool) -> Vec<Script> {
        let of = |asked: &Call| {
            let nth = asked.nth;
            let faults = self.answers_to(asked);
            faults.map(move |fault| self.script(vec![call(nth, 1, &fault)]))
        };
        self.calls.iter().filter(|asked| which(asked)).flat_map(of).collect()
    }

    /// Every fault at all requests of a kind, for a while.
    pub fn lasting(&self) -> Vec<Script> {
        let kinds: BTreeMap<String, &Call> =
            self.calls.iter().map(|call| (script::kind_of(call), call)).collect();
        let like =
            |line: &String, fault: String| Step::Like { agent: LEADER.into(), line: line.clone(), fault };
        let of = |(line, call): (&String, &&Call)| {
            let faults = self.answers_to(call);
            faults.map(|fault| self.script(vec![like(line, fault)])).collect::<Vec<_>>()
        };
        kinds.iter().flat_map(of).collect()
    }

    /// It is stopped, another leads, and it wakes with the request that it was about to send.
    pub fn pauses(&self) -> Vec<Script> {
        self.at_writes(&["pause:12", "pause:40"])
    }

    /// It is cut off at each write, and another leads.
    pub fn cuts(&self) -> Vec<Script> {
        let millis = |write: &Call| (write.at - self.begun).as_millis() as u64 + 1;
        self.writes().map(|write| self.script(vec![at(millis(write), "cut evenkeel-a 60")])).collect()
    }

    /// Whether nothing is otherwise than usual.
    fn is_usual(&self) -> bool {
        self.begins.is_empty()
    }

    /// It reads what was so before, and its requests come late. What is compacted, and how late a request comes, is tried
    /// at each request of the usual upgrade, and how old it is what is read; in any other, what is read is old and what is
    /// written late.
    pub fn stale(&self) -> Vec<Script> {
        let mut scripts = Vec::new();
        for asked in &self.calls {
            let nth = asked.nth;
            let of_any =
                |fault: &&str| self.is_usual() || *fault == "late:30" && asked.is_write() || is_old(fault);
            let faults = stale_of(asked).filter(of_any);
            scripts.extend(faults.map(|fault| self.script(vec![call(nth, 1, fault)])));
            // A death after a read leaves what a death before it leaves.
            if asked.is_write() {
                scripts.push(self.script(vec![call(nth, 1, "crash-after"), call(nth + 1, 12, "stale:9")]));
            }
        }
        scripts
    }

    /// Whether a claim comes into `state`.
    pub fn comes_to(&self, state: &str) -> bool {
        self.turns.iter().any(|turn| turn.state == state)
    }

    /// What `deeds` says that happens to a claim, by its component and its node, just after it came into another state.
    pub fn after_turns(&self, deeds: impl Fn(u64, &str, &str) -> Vec<Vec<Step>>) -> Vec<Script> {
        let of = |turn: &Turn| {
            let (_, place) = turn.claim.split_once('.').unwrap();
            let (component, node) = place.split_once('.').unwrap();
            deeds(turn.at.as_millis() as u64 + 1, component, node)
        };
        self.turns.iter().flat_map(of).map(|deeds| self.script(deeds)).collect()
    }

    /// Events that are lost, doubled, late or swapped: of each resource at most so many. What a watch does with an event
    /// does not depend on the kind of the executor, so that each single event, and all that may happen to one, is met in the
    /// usual upgrade alone; in any other, some are lost or late, and some watches have to begin anew.
    pub fn events(&self) -> Vec<Script> {
        let most = if self.is_usual() { 120 } else { 30 };
        self.events_of(&WATCHED, most, is_long() && self.is_usual())
    }

    /// The same of these resources and of at most so many events of each, and of `each` event what happens to it alone.
    pub fn events_of(&self, resources: &[&str], most: usize, each: bool) -> Vec<Script> {
        let mut scripts = Vec::new();
        for &resource in resources {
            let count = self.told.get(resource).map_or(0, Vec::len);
            let is_lease = resource.starts_with("leases");
            // A lease tells the same all the time.
            let most = if is_lease { most.min(40) } else { most };
            let step = count.div_ceil(most).max(1);
            for nth in 0..count {
                let sampled = nth.is_multiple_of(step);
                // What happens to the event alone differs from one to the next; a watch that ends is much the same at each.
                let each = each && !is_lease;
                let tried = told(resource, nth as u64)
                    .filter(|told| sampled || each && is_of_the_event(told))
                    .filter(|told| self.is_usual() || is_for_all(told));
                scripts.extend(tried.map(|told| self.script(vec![told])));
            }
        }
        scripts
    }
}

/// What may be late or old of a request: only what is read can be old, and only a watch can be silent.
fn stale_of(asked: &Call) -> impl Iterator<Item = &'static str> {
    let of_watches: &[&str] = if asked.verb == "watch" { &["bookmarks", "silence"] } else { &[] };
    let of_reads: &[&str] = if asked.is_write() { &[] } else { &["stale:1", "stale:7", "stale:40"] };
    ["compact", "late:3", "late:30"].iter().chain(of_reads).chain(of_watches).copied()
}

/// Whether a fault makes an answer old, or keeps back what a watch would tell.
fn is_old(fault: &str) -> bool {
    fault == "stale:7" || fault == "silence"
}

/// What a run waits until it is sure that its upgrade is at rest.
const AT_REST: Duration = Duration::from_secs(30);

/// Clocks are set, and nobody is answered.
pub fn clocks(millis: u64) -> Vec<Vec<Step>> {
    let deeds = ["jump 3600", "jump -3600", "blackout 1", "blackout 30", "blackout 600", "compact"];
    deeds.into_iter().map(|deed| vec![at(millis, deed)]).collect()
}

/// A zone, and what runs on `host` of the control plane, goes away and comes back.
pub fn machines(millis: u64, host: &str) -> Vec<Vec<Step>> {
    let zone = [20, 120]
        .map(|seconds| vec![at(millis, "zone c silent"), at(millis + seconds * 1000, "zone c again")]);
    let components = ["kube-apiserver", "kube-controller-manager"].map(|component| {
        let (gone, back) = (format!("take {host} {component}"), format!("start {host} {component}"));
        vec![at(millis, &gone), at(millis + 20_000, &back)]
    });
    [zone, components].concat()
}

/// What people do; `host` is one of the control plane.
pub fn people(millis: u64, host: &str) -> Vec<Vec<Step>> {
    let later = |seconds: u64, deed: &str| at(millis + seconds * 1000, deed);
    vec![
        vec![at(millis, "cordon main-3"), later(60, "uncordon main-3")],
        vec![at(millis, "cordon main-3")],
        vec![at(millis, "uncordon main-1")],
        vec![at(millis, "leave main-2"), later(5, "rejoin main-2")],
        vec![at(millis, "leave main-6")],
        // So quickly that nobody sees it gone.
        vec![at(millis, "leave main-2"), at(millis, "rejoin main-2")],
        vec![at(millis, "budget cart maxUnavailable 0"), later(90, "budget cart maxUnavailable 2")],
        vec![at(millis, "budget cart maxUnavailable 100%")],
        vec![at(millis, "suspend up"), later(60, "resume up")],
        vec![at(millis, "suspend up")],
        vec![at(millis, "upgrade second"), later(30, "delete-upgrade second")],
        vec![at(millis, "invalid broken")],
        vec![at(millis, "hold main-4"), later(60, "unhold main-4")],
        vec![at(millis, "hold main-4")],
        vec![at(millis, "upgrade up v1.36.4"), later(60, "upgrade up v1.37.1")],
        vec![at(millis, "upgrade up v1.37.2")],
        vec![at(millis, "delete-upgrade up")],
        vec![at(millis, "delete-upgrade up"), later(30, "upgrade up v1.37.1")],
        vec![at(millis, "delete-claim kubelet main-1")],
        vec![at(millis, &format!("delete-claim kube-apiserver {host}"))],
        vec![at(millis, "kubelet main-1 v1.36.4")],
        vec![at(millis, "kubelet canary-1 v1.36.4")],
        vec![at(millis, "change-executor machines 60")],
        vec![at(millis, "uninstall machines"), later(60, "install machines")],
    ]
}

/// What people and machines do to Jobs.
pub fn to_jobs(millis: u64) -> Vec<Vec<Step>> {
    let back = at(millis + 90_000, "image there");
    vec![vec![at(millis, "delete-jobs")], vec![at(millis, "image missing"), back]]
}

/// Whether a fault is of one event, and not of the watch that tells it.
fn is_of_the_event(told: &Step) -> bool {
    matches!(told, Step::Told { fault, .. } if ["drop", "duplicate", "delay:4", "delay:20", "swap"].contains(&fault.as_str()))
}

/// Whether a fault of an event or its watch is tried in every upgrade.
fn is_for_all(told: &Step) -> bool {
    matches!(told, Step::Told { fault, .. } if ["drop", "delay:20", "gone"].contains(&fault.as_str()))
}

/// What may happen to the `nth` event of `resource`.
pub fn told(resource: &str, nth: u64) -> impl Iterator<Item = Step> {
    TOLD.into_iter().map(move |fault| Step::Told {
        agent: LEADER.into(),
        resource: resource.into(),
        nth,
        fault: fault.into(),
    })
}
