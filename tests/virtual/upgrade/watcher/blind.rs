//! What the operator cannot know although it is not new: a fault kept an event or an answer from it.
//!
//! Here belongs which objects those are, for which replica, and until when, and which requests come after their time; how
//! the watcher comes to know of it is in `faults`. The invariant: a fault excuses nothing of any other object or replica,
//! and a request that was held back nothing of those that follow it.

use std::time::Duration;

use evenkeel_sim::Write;
use evenkeel_sim::faults::Call;
use tokio::time::Instant;

use super::super::super::script::Step;
use super::model::text;

/// What happened so lately need not be known to the operator.
pub const MOMENT: Duration = Duration::from_secs(3);
/// However little was told, everything is listed anew by then.
const LONGEST: Duration = Duration::from_mins(5);
/// A single object that was read as it was before is looked at again by then.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// What ends it that something is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// A list: a watch goes on after what it did not tell.
    List,
    /// A list or a watch, which begins where the last one stopped.
    Watch,
    /// Another read of the object.
    Get,
    /// The answer, which takes so long, or another list, or another watch.
    After(Duration),
}

impl Ends {
    /// By when it ends at the latest.
    pub fn at_last(self) -> Duration {
        match self {
            Self::Get => READ_AGAIN,
            Self::List | Self::Watch => LONGEST,
            Self::After(time) => time.saturating_add(MOMENT),
        }
    }
}

/// What is not known.
#[derive(Clone, Debug)]
pub struct Spot {
    /// To whom.
    pub agent: String,
    pub resource: String,
    /// `name` or `namespace/name`; any object where there is none.
    pub object: Option<String>,
    /// What happened before is known all the same; nothing is where there is none.
    pub from: Option<Instant>,
    pub until: Instant,
    pub ends: Ends,
}

/// A request that is carried out long after it was sent.
#[derive(Clone, Debug)]
struct HeldBack {
    agent: String,
    resource: String,
    namespace: String,
    /// Its object; whichever it is in the namespace where the request does not say.
    name: Option<String>,
    arrives: Instant,
    time: Duration,
    /// By how many writes it is carried out.
    writes: usize,
}

/// A program that was stopped for some time.
#[derive(Clone, Debug)]
struct Sleep {
    agent: String,
    wakes: Instant,
    time: Duration,
}

/// A request that is woken up is carried out within this time.
const AT_ONCE: Duration = Duration::from_millis(10);

/// What is not known to whom, and the faults that are still to come.
#[derive(Default)]
pub struct Blind {
    pub spots: Vec<Spot>,
    /// The steps of the script that are faults, and how often each of them is still met.
    pub faults: Vec<(Step, u64)>,
    held_back: Vec<HeldBack>,
    sleeps: Vec<Sleep>,
    /// The watches that tell everything later, by whom and of what, and by how much.
    pub lags: Vec<(String, String, Duration)>,
    /// Everything that was ever not known: the resource, and the object where it is a single one.
    pub ever: Vec<(String, Option<String>)>,
}

impl Blind {
    /// From now on, until `ends`, `agent` does not know what `spot` says.
    pub fn add(&mut self, spot: Spot) {
        self.ever.push((spot.resource.clone(), spot.object.clone()));
        self.spots.push(spot);
    }

    /// What hides so is known `soon`.
    pub fn ends(&mut self, soon: Instant, which: impl Fn(&Spot) -> bool) {
        for spot in self.spots.iter_mut().filter(|spot| which(spot)) {
            spot.until = spot.until.min(soon);
        }
    }

    /// The write `call` is carried out after `time`, whatever happens meanwhile.
    pub fn holds_back(&mut self, call: &Call, time: Duration) {
        let evicts = call.subresource.as_deref() == Some("eviction");
        let name = call.name.clone().unwrap_or_else(|| text(&call.sent()["metadata"]["name"]));
        let of = HeldBack {
            agent: call.agent.clone(),
            resource: call.resource.clone(),
            namespace: call.namespace.clone().unwrap_or_default(),
            name: Some(name),
            arrives: Instant::now() + time,
            time,
            // A pod is marked as evicted, and then deleted.
            writes: if evicts { 2 } else { 1 },
        };
        if evicts {
            // And its budget is told of it.
            let resource = "poddisruptionbudgets.policy".to_owned();
            self.held_back.push(HeldBack { resource, name: None, writes: 1, ..of.clone() });
        }
        self.held_back.push(of);
    }

    /// By how much a fault held back the request by which `write` is done now. What follows it at once is on time.
    pub fn delay_of(&mut self, write: &Write<'_>) -> Option<Duration> {
        let now = Instant::now();
        let is = |of: &&mut HeldBack| {
            let kind = of.agent == write.author() && of.resource == write.resource();
            let named = of.name.as_deref().is_none_or(|name| name == write.name());
            kind && of.namespace == write.namespace()
                && named
                && of.writes > 0
                && of.arrives <= now
                && now <= of.arrives + AT_ONCE
        };
        let found = self.held_back.iter_mut().find(is)?;
        found.writes -= 1;
        Some(found.time)
    }

    /// `agent`, or the program that elects it, is stopped for `time`.
    pub fn sleeps(&mut self, agent: &str, time: Duration) {
        let agent = agent.trim_end_matches("-lease").to_owned();
        self.sleeps.push(Sleep { agent, wakes: Instant::now() + time, time });
    }

    /// For how long `agent` heard nothing, if it has only just been woken.
    pub fn slept(&self, agent: &str) -> Duration {
        let lately = |of: &&Sleep| of.agent == agent && Instant::now() <= of.wakes + MOMENT;
        self.sleeps.iter().filter(lately).map(|of| of.time).max().unwrap_or_default()
    }

    /// Whether `agent` cannot know what has been so of `object` since `since`.
    pub fn hides(&self, agent: &str, resource: &str, object: &str, since: Instant) -> bool {
        let late = |(of, what, lag): &(String, String, Duration)| {
            of == agent && what == resource && since.elapsed() <= *lag + MOMENT
        };
        self.lags.iter().any(late)
            || self.spots.iter().any(|spot| {
                let about = spot.resource == resource && spot.object.as_deref().is_none_or(|of| of == object);
                let hides = spot.from.is_none_or(|from| since >= from) && Instant::now() < spot.until;
                about && hides && spot.agent == agent
            })
    }
}

/// An object's name, with its namespace where it has one.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// The kind of what a person wants.
pub const UPGRADES: &str = "clusterupgrades.evenkeel.dev";
