//! What lies ahead of an upgrade: how long it still takes, by what its own nodes took so far, and what will be in its
//! way.
//!
//! Here belongs which finished claims count; how a length follows from them is reckoned by [`crate::plan`]. Nothing is
//! decided by it, and it is too slow to be made at every look: a look shows the last one.

use jiff::SignedDuration;

use super::claim::{Claim, ClaimState};
use super::trial::refused_jobs;
use super::world::World;
use crate::cluster::Component;
use crate::plan::{
    Durations, ForecastInput, Plan, PlanFinding, PlanTiming, Took, Wave, Weight, foresee, timing, waves,
};
use crate::upgrade::{Soak, Upgrade};

/// The waves of a plan as the nodes are now, how long they take, and what a person has to know of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The waves of each hop.
    pub waves: Vec<Vec<Wave>>,
    /// How long it all takes from now on, when nothing is in its way.
    pub timing: PlanTiming,
    /// The findings of the plan, what keeps its nodes from being drained, and the Jobs that the server would refuse.
    pub findings: Vec<PlanFinding>,
}

/// What lies ahead of `plan` of `upgrade` from where `world` is now, with those of `soaks` that are under way.
pub fn forecast(plan: &Plan, upgrade: &Upgrade, soaks: &[Soak], world: World<'_>) -> Forecast {
    let waves = waves(plan, upgrade, world.cluster, &upgrade.members(world.cluster));
    let rules = upgrade.drain.policy(world.executors).rules;
    let mine: Vec<&Claim> = world.claims.iter().filter(|claim| claim.upgrade_uid == upgrade.uid).collect();
    let World { cluster, now, .. } = world;
    let input = ForecastInput { plan, waves: &waves, upgrade, cluster, rules: &rules, now };
    let timing = timing(&input, &durations(&mine), soaks);
    let mut findings = foresee(&input);
    let refused = refused_jobs(upgrade, world.jobs, now);
    let at = findings.partition_point(|finding| finding.weight <= Weight::Blocks);
    findings.splice(at..at, refused);
    Forecast { waves, timing, findings }
}

/// How long the parts of an upgrade take: as its finished `claims` took, where there are enough of a kind, else as
/// guessed.
fn durations(claims: &[&Claim]) -> Durations {
    let guessed = Durations::default();
    let of = |kind: fn(Component) -> bool| took(claims, |claim| kind(claim.subject.component));
    Durations {
        server: of(|component| component == Component::KubeApiserver).unwrap_or(guessed.server),
        controller: of(Component::is_controller).unwrap_or(guessed.controller),
        node: of(|component| component == Component::Kubelet).unwrap_or(guessed.node),
        ..guessed
    }
}

/// How long those of `claims` took that are `alike`, from when they were made until the new version was observed; `None`
/// where there are too few to say. What was tried several times lay parked between, and does not count.
pub(super) fn took(claims: &[&Claim], alike: impl Fn(&Claim) -> bool) -> Option<Took> {
    let finished = claims.iter().filter(|claim| claim.attempt == 1 && alike(claim));
    let took = finished.filter_map(|claim| match claim.state {
        ClaimState::Upgraded { at } => Some(at.duration_since(claim.created?)),
        _ => None,
    });
    let mut took: Vec<SignedDuration> = took.filter(|took| !took.is_negative()).collect();
    if took.len() < Took::ENOUGH { None } else { Took::of(&mut took) }
}
