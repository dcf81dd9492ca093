//! What a plan is made from.
//!
//! Here belong what a person wants and what is seen, side by side and as values. What follows from them never belongs
//! here. The invariant: a plan depends on nothing else, so that whoever has the same input gets the same plan.

use jiff::Timestamp;

use crate::cluster::{Cluster, Component};
use crate::skew::lifecycle::Catalogue;
use crate::skew::policy::Policy;
use crate::upgrade::{AbsentExecutor, Member, Upgrade};
use crate::version::KubeVersion;

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The cluster as it is.
    pub cluster: &'a Cluster,
    /// What a person wants.
    pub upgrade: &'a Upgrade,
    /// The nodes of `cluster` that take part: [`Upgrade::members`].
    pub members: &'a [Member<'a>],
    /// The versions of minors on the way that an earlier look recorded, for minors of which a person names none.
    pub recorded: &'a [KubeVersion],
    /// The rules.
    pub policy: Policy,
    /// What is known of releases, for the versions of minors on the way.
    pub catalogue: &'a Catalogue,
    /// Controllers that lead where nothing shows their version, each with a line for a person.
    pub hidden: &'a [(Component, String)],
    /// The executors that `upgrade` names and that are not there, by name.
    pub absent_executors: &'a [AbsentExecutor],
    /// The time, for acceptances that end.
    pub now: Timestamp,
}
