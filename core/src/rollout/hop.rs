//! Which hop of the plan is carried out now.
//!
//! The plan is made anew at every look, from where the cluster is, so that its first hop is what is to be done next. A
//! hop stays the current one while something of it is under way; while a component that was seen before is not seen; and
//! while a controller leads whose version nothing shows, unless a person answered for it, because it may be a minor behind
//! (policy, "kube-controller-manager, kube-scheduler, and cloud-controller-manager"). The invariant: what is not seen never
//! takes the upgrade to the next hop.

use super::claim::Claim;
use super::hidden::hidden_controllers;
use super::world::World;
use crate::cluster::Component;
use crate::plan::{Hop, Pass, Picked, Plan, PlanInput, Planned, Step, is_there};
use crate::skew::lifecycle::Catalogue;
use crate::skew::policy::Policy;
use crate::upgrade::{ComponentPlace, Progress, Upgrade};
use crate::version::{KubeVersion, Minor};

/// The plan of `upgrade` from where `world` is now. `releases` name the minors on the way that neither a person nor an
/// earlier look named.
pub fn planned(upgrade: &Upgrade, progress: &Progress, world: World<'_>, releases: &Catalogue) -> Planned {
    let hidden = hidden_controllers(world, progress);
    Planned::of(&PlanInput {
        cluster: world.cluster,
        upgrade,
        members: &upgrade.members(world.cluster),
        recorded: &progress.via,
        policy: Policy::default(),
        catalogue: releases,
        hidden: &hidden,
        absent_executors: world.absent_executors,
        now: world.now,
    })
}

/// The hop that is carried out now.
pub(super) struct CurrentHop {
    /// The version that every component of this hop goes to.
    pub(super) version: KubeVersion,
    /// It is the last one: when it is done, the upgrade is.
    pub(super) last: bool,
    /// Which kubelets move in it.
    pub(super) pass: Pass,
    /// The steps of the control plane that are left, in order.
    pub(super) steps: Vec<Step>,
}

impl CurrentHop {
    /// The hop to carry out now. `missing` is what was seen before and is not seen now, `hidden` the controllers that
    /// nobody answers for.
    pub(super) fn of(
        plan: &Plan,
        progress: &Progress,
        mine: &[&Claim],
        missing: &[ComponentPlace],
        hidden: &[String],
    ) -> Self {
        let next = plan.hops.first();
        let busy = |version: &&KubeVersion| {
            let of_it = |claim: &&&Claim| claim.state.unfinished() && claim.subject.to == **version;
            let leaves_behind = next.is_some_and(|next| next.version.minor() > version.minor());
            !missing.is_empty()
                || !hidden.is_empty() && leaves_behind
                || mine.iter().any(|claim| of_it(&claim))
        };
        let Some(stays) = progress.hop.as_ref().filter(busy) else {
            return next.map_or_else(|| Self::nothing_left(plan, &plan.to), Self::begins);
        };
        let left = plan.hops.iter().find(|hop| hop.version == *stays);
        left.map_or_else(|| Self::nothing_left(plan, stays), Self::begins)
    }

    fn begins(hop: &Hop) -> Self {
        Self {
            version: hop.version.clone(),
            last: hop.picked == Picked::Target,
            pass: hop.kubelets,
            steps: hop.steps.clone(),
        }
    }

    fn nothing_left(plan: &Plan, version: &KubeVersion) -> Self {
        let last = *version == plan.to;
        let pass = if last { Pass::All } else { Pass::Before(Minor::new(0, 0)) };
        Self { version: version.clone(), last, pass, steps: Vec::new() }
    }

    /// Whether `component` of the control plane, which runs `version`, has nothing to do in this hop.
    pub(super) fn reached(&self, component: Component, version: &KubeVersion) -> bool {
        if self.last {
            is_there(component, version, &self.version)
        } else {
            version.minor() >= self.version.minor()
        }
    }

    /// Whether a kubelet that runs `version` has nothing to do in this hop.
    pub(super) fn is_past(&self, version: &KubeVersion) -> bool {
        if self.last { version.satisfies(&self.version) } else { !self.pass.moves(version, &self.version) }
    }

    /// Which of the steps that are left is the first whose first component `is`.
    pub(super) fn next_of(&self, is: impl Fn(Component) -> bool) -> Option<&Step> {
        self.steps.iter().find(|step| step.components.first().is_some_and(|component| is(*component)))
    }
}
