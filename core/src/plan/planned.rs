//! A plan together with its judgement, and the versions that it goes over.
//!
//! Plans are made in `make` and judged in `check`; here belongs only the plan that passed the judgement, or why it did not.
//! The invariant: what may be carried out is a [`Checked`] plan, which the second judge alone gives out.

use super::check::{Checked, check};
use super::finding::Weight;
use super::hops::{MAX_MINORS, Picked, Plan};
use super::make::make;
use super::plan_input::PlanInput;
use crate::upgrade::{Member, Upgrade};
use crate::version::KubeVersion;

/// What became of a [`PlanInput`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Planned {
    /// A plan that may be carried out.
    May(Checked<Plan>),
    /// One that may not.
    MustNot {
        /// What was planned, to be shown.
        plan: Plan,
        /// Why not, one line each.
        why: Vec<String>,
    },
}

impl Planned {
    /// Makes the plan of `input` and judges it.
    pub fn of(input: &PlanInput<'_>) -> Self {
        let plan = make(input);
        match check(plan.clone(), input.cluster, input.members, &input.policy) {
            Ok(plan) => Self::May(plan),
            Err(why) => Self::MustNot { plan, why: why.iter().map(ToString::to_string).collect() },
        }
    }

    /// The plan, whatever became of it.
    pub fn plan(&self) -> &Plan {
        match self {
            Self::May(plan) => plan,
            Self::MustNot { plan, .. } => plan,
        }
    }

    /// Why it may not be carried out, one line each; empty when it may.
    pub fn refused(&self) -> &[String] {
        match self {
            Self::May(_) => &[],
            Self::MustNot { why, .. } => why,
        }
    }

    /// Whether all that keeps it from being carried out may end by itself in a moment, as that a kube-apiserver does not answer.
    pub fn may_mend_itself(&self) -> bool {
        let Self::MustNot { plan, why } = self else { return false };
        let blocks = || plan.findings.iter().filter(|finding| finding.weight == Weight::Blocks);
        blocks().all(|finding| finding.passing) && blocks().count() == why.len()
    }
}

/// The versions of the minors between `from` and the target, in order: those that a person names, else those that are
/// `recorded` from an earlier look, else those of `plan`. They are part of what a person approves, and a later look at a
/// cluster that has gone on must not forget them. There are fewer of them than [`MAX_MINORS`], however old `from` is.
pub fn on_the_way(
    upgrade: &Upgrade,
    from: &KubeVersion,
    recorded: &[KubeVersion],
    plan: Option<&Plan>,
) -> Vec<KubeVersion> {
    let hops = plan.iter().flat_map(|plan| &plan.hops);
    let planned = hops.filter(|hop| hop.picked != Picked::Target);
    let target = upgrade.version.minor();
    let first = from.minor().max(target.back(MAX_MINORS));
    let mut way: Vec<KubeVersion> = Vec::new();
    let known = upgrade.via.iter().chain(recorded).chain(planned.map(|hop| &hop.version));
    for version in known {
        let between = version.minor() > first && version.minor() < target;
        if between && way.iter().all(|other| other.minor() != version.minor()) {
            way.push(version.clone());
        }
    }
    way.sort_by_key(KubeVersion::minor);
    way
}

/// How many nodes of `members` move in each hop of `plan`.
pub fn moved_nodes(plan: &Plan, members: &[Member<'_>]) -> Vec<usize> {
    let mut runs: Vec<&KubeVersion> =
        members.iter().filter_map(|member| member.node.kubelet.known()).collect();
    let mut moved = Vec::new();
    for hop in &plan.hops {
        let moving = runs.iter_mut().filter(|version| hop.kubelets.moves(version, &hop.version));
        moved.push(moving.map(|version| *version = &hop.version).count());
    }
    moved
}
