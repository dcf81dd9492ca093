//! Everything that a decision is made from.
//!
//! Here belong plain values, read and remembered by the caller; nothing here decides. The invariant: whatever of it is
//! not stored can be lost at any time, and is then looked at or asked again.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::absence::Away;
use super::claim::{Claim, UnreadableClaim};
use super::gate_object::Gates;
use super::jobs::Jobs;
use super::refused_writes::RefusedWrites;
use super::since::Since;
use crate::cluster::{Cluster, Component, Renewals};
use crate::disruption::Memory;
use crate::upgrade::AbsentExecutor;

/// How fresh what is seen is. Losing it is safe: it is looked at again.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    /// Since when every source has been seen without a gap.
    pub unbroken_since: Timestamp,
    /// When a node and its pods were last read by a request of their own, by the node's name.
    pub reread: BTreeMap<Arc<str>, Timestamp>,
    /// When a Job was last read so, with its node and the pods of that, by the UID of its claim.
    pub reread_jobs: BTreeMap<Arc<str>, Timestamp>,
    /// When the attached volumes were last read by a request of their own.
    pub attachments: Timestamp,
    /// When controllers renewed their leases.
    pub renewals: Renewals,
    /// Since when parts of the control plane are away.
    pub absences: Since<Away>,
    /// Since when plans are blocked, by the UIDs of their upgrades.
    pub blocked: Since<Arc<str>>,
    /// Since when nodes at which an upgrade would halt cannot be drained, by their UIDs.
    pub undrainable: Since<Arc<str>>,
}

impl Freshness {
    /// Forgets when nodes and Jobs were read that none of `claims`, which are all there are, is about.
    pub fn forget(&mut self, claims: &[Claim]) {
        self.reread.retain(|node, _| claims.iter().any(|claim| claim.subject.node == *node));
        self.reread_jobs.retain(|uid, _| claims.iter().any(|claim| claim.uid == *uid));
    }
}

/// Everything a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// What is seen of the cluster, as of `now`; it lags behind the cluster by as much as its watches do.
    pub cluster: &'a Cluster,
    /// Every stored claim, by name.
    pub claims: &'a [Claim],
    /// Stored claims that only hold their nodes.
    pub unreadable: &'a [UnreadableClaim],
    /// What is seen of executors' Jobs, and what the server answered to those that it refused.
    pub jobs: &'a Jobs,
    /// Controllers that lead where nothing shows their version, each with a line for a person.
    pub hidden: &'a [(Component, String)],
    /// The executors that the upgrade names and that are not there, by name.
    pub absent_executors: &'a [AbsentExecutor],
    /// What is under way.
    pub memory: &'a Memory,
    /// The objects of gates.
    pub gates: &'a Gates,
    /// Writes that the server refuses.
    pub refused: &'a RefusedWrites,
    /// How fresh the rest of it is.
    pub freshness: &'a Freshness,
    /// The namespace executors' Jobs run in.
    pub executors: &'a str,
    /// The time of the look; the core has no clock.
    pub now: Timestamp,
}
