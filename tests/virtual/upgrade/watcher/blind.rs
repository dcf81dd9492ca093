//! What the operator cannot know although it is not new: a fault kept an event or an answer from it.
//!
//! Here belongs which objects those are, for which replica, and until when; how the watcher comes to know of it is in
//! `faults`. The invariant: a fault excuses nothing of any other object or replica.

use std::time::Duration;

use tokio::time::Instant;

use super::super::super::script::Step;

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
}

impl Ends {
    /// By when it ends at the latest.
    pub const fn at_last(self) -> Duration {
        match self {
            Self::Get => READ_AGAIN,
            Self::List | Self::Watch => LONGEST,
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

/// What is not known to whom, and the faults that are still to come.
#[derive(Default)]
pub struct Blind {
    pub spots: Vec<Spot>,
    /// The steps of the script that are faults, and how often each of them is still met.
    pub faults: Vec<(Step, u64)>,
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

    /// Whether `agent` cannot know what has been so of `object` since `since`.
    pub fn hides(&self, agent: &str, resource: &str, object: &str, since: Instant) -> bool {
        self.spots.iter().any(|spot| {
            let about = spot.resource == resource && spot.object.as_deref().is_none_or(|of| of == object);
            let hides = spot.from.is_none_or(|from| since >= from) && Instant::now() < spot.until;
            about && hides && spot.agent == agent
        })
    }
}

/// The kind of what a person wants.
pub const UPGRADES: &str = "clusterupgrades.evenkeel.dev";
