//! What a person has to know of a plan before it is carried out.
//!
//! Here belong the values and their order; what is found is in `start`, `make`, `node_pools` and `drains`. The
//! invariant: what a person accepted stays in the plan, with what it would do otherwise.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::finding_id::FindingId;
use crate::skew::sample_names;
use crate::version::Minor;

/// How many names a finding shows.
const SAMPLES: usize = 5;

/// What a finding does to the plan; the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Nothing may begin.
    Blocks,
    /// It begins, and stops there or leaves nodes behind until somebody changes something.
    Stops,
    /// It costs something, or is only to be known.
    Warns,
}

impl Weight {
    /// `blocks`, `stops`, `warns`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Stops => "stops",
            Self::Warns => "warns",
        }
    }
}

/// A person took a finding upon them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Until when.
    pub until: Timestamp,
    /// Why, in the person's words.
    pub reason: Arc<str>,
    /// What the finding would do otherwise.
    pub instead_of: Weight,
}

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFinding {
    /// The rule and what it is about.
    pub id: FindingId,
    /// What it does.
    pub weight: Weight,
    /// Whether a person may take it upon them. What would break the skew policy never.
    pub acceptable: bool,
    /// Who did.
    pub accepted: Option<Accepted>,
    /// It may end by itself in a moment.
    pub passing: bool,
    /// The minor of the hop that it is about.
    pub hop: Option<Minor>,
    /// What is so, in one line.
    pub what: String,
    /// What to do, in one line.
    pub remedy: String,
    /// The first few of what it is about.
    pub samples: Vec<Arc<str>>,
    /// How many there are.
    pub count: usize,
}

impl PlanFinding {
    /// A finding about nothing in particular, which nobody may accept.
    pub(crate) fn new(id: impl Into<FindingId>, weight: Weight, what: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            weight,
            acceptable: false,
            accepted: None,
            passing: false,
            hop: None,
            what: what.into(),
            remedy: String::new(),
            samples: Vec::new(),
            count: 0,
        }
    }

    /// This finding, with what to do about it.
    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    /// This finding, as one that ends by itself in a moment where `passing` says so.
    pub(super) fn passing(self, passing: bool) -> Self {
        Self { passing, ..self }
    }

    /// This finding, as one that a person may accept.
    pub(super) fn acceptable(self) -> Self {
        Self { acceptable: true, ..self }
    }

    /// This finding, about the hop to `minor`.
    pub(super) fn at(self, minor: Minor) -> Self {
        Self { hop: Some(minor), ..self }
    }

    /// This finding, about all of `names`, of which the first few are shown.
    pub(super) fn about<'a>(self, names: impl IntoIterator<Item = &'a Arc<str>>) -> Self {
        let mut all: Vec<Arc<str>> = names.into_iter().cloned().collect();
        all.sort();
        all.dedup();
        let count = all.len();
        all.truncate(SAMPLES);
        Self { samples: all, count, ..self }
    }
}

impl fmt::Display for PlanFinding {
    /// What is so, about what, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.samples.is_empty() {
            write!(f, " ({})", sample_names(self.count, &self.samples))?;
        }
        if !self.remedy.is_empty() {
            write!(f, ": {}", self.remedy)?;
        }
        Ok(())
    }
}
