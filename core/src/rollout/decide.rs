//! The one entry: what to do about an upgrade now, and in which order the questions are asked.
//!
//! Each question has its own module; here they are put together. The invariants: nothing begins of a stage while an
//! earlier one has something left, and what is in flight goes on even where nothing new may begin.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::action::Action;
use super::claim::{Claim, ClaimState};
use super::control_plane_whole::{shown_stage, static_pods_settle};
use super::controllers::{begun, last_step};
use super::exceptions::excepted;
use super::halt::halted;
use super::hidden::{hidden_controllers, remembered, unanswered_for};
use super::hop::CurrentHop;
use super::leftovers::{forget, goes_with, holds, node_of, settle};
use super::presence::follow;
use super::refusal_retries::{Withheld, withhold};
use super::round::{Round, Selected, is_approved, release, selected};
use super::status::{RoundNotes, UpgradeStatus, status};
use super::upgrade_phase::UpgradePhase;
use super::waiting::{WaitReason, Waiting};
use super::world::World;
use super::{absence, avoid, blocked, components, group, next_nodes, nodes, soak, trial};
use crate::cluster::{Cluster, Component, Instance};
use crate::disruption::Budgets;
use crate::drain::Batch;
use crate::plan::{self, Planned, Stage, StageProgress};
use crate::skew::kubelets_ceiling;
use crate::upgrade::{ComponentPlace, Progress, Upgrade};
use crate::version::KubeVersion;

/// What to do now, and how things stand.
#[derive(Debug)]
pub struct Decision {
    /// The writes, in the order in which to begin them.
    pub actions: Vec<Action>,
    /// How the upgrade stands after this look: what its status, its events and its metrics say.
    pub status: UpgradeStatus,
    /// When to decide again even if nothing changes.
    pub again_at: Option<Timestamp>,
}

/// What to do about `upgrade` now, and how it stands: what `planned` names is opened, in its order. Total: any world has
/// an answer.
pub fn decide(planned: &Planned, upgrade: &Upgrade, progress: &Progress, world: World<'_>) -> Decision {
    let cluster = world.cluster;
    let mine: Vec<&Claim> = world.claims.iter().filter(|claim| claim.upgrade_uid == upgrade.uid).collect();
    let (seen, missing) = follow(cluster, &progress.seen, progress.started.is_some());
    let (from, way, hash) = what_is_approved(planned, upgrade, progress, cluster);
    let controllers = hidden_controllers(world, progress);
    let hidden = unanswered_for(&controllers, upgrade, planned.plan(), &missing);
    let current = CurrentHop::of(planned.plan(), progress, &mine, &missing, &hidden);
    let whole = upgrade;
    // What is wanted of this hop: the same, to its version.
    let of_hop = (!current.last).then(|| Upgrade { version: current.version.clone(), ..upgrade.clone() });
    let upgrade = of_hop.as_ref().unwrap_or(upgrade);
    let mut members = upgrade.members(cluster);
    let nodes_of_hops = plan::moved_nodes(planned.plan(), &members);
    for member in members.iter_mut().filter(|_| !current.last) {
        member.at_target = member.node.kubelet.known().map(|version| current.is_past(version));
    }
    let stages = plan::progress(cluster, &members, upgrade.control_plane.unit, |of, version| {
        current.reached(of, version)
    });
    let mut unsure: Vec<String> = hidden.iter().map(|why| question(why, &current)).collect();
    unsure.extend(emulated(upgrade, cluster));
    let selected = selected(members, &mine);
    let stage = current_stage(&stages, (&mine, &selected), &missing, &unsure);
    // Only the last hop ends the upgrade.
    let stage = stage.or_else(|| (!current.last).then_some(Stage::Kubelets));
    let told = told(stages, &current, whole, cluster);
    let approved = is_approved(upgrade, hash.as_deref());
    let policy = upgrade.drain.policy(world.executors);
    let mut round = Round {
        upgrade,
        hop: &current,
        progress,
        world,
        mine: &mine,
        begun: begun(&mine, progress.started),
        stepped: last_step(cluster, &mine, &progress.soaks, world.now),
        zones: OnceCell::new(),
        static_pods_until: static_pods_settle(cluster, &mine, world.now),
        untried: None,
        selected,
        stage,
        missing: &missing,
        halted: halted(cluster, upgrade, &mine, world.now),
        undrainable: Vec::new(),
        may_disrupt: approved && may_disrupt(upgrade, progress, world),
        preflight: planned.refused(),
        hash: hash.as_deref(),
        policy: &policy,
        batch: Batch::new(cluster, &policy.rules, world.now),
        budgets: Budgets::new(cluster, world.memory.budgets.clone(), world.now),
        actions: Vec::new(),
        opened: Vec::new(),
        again_at: None,
        hope: false,
        soaks: progress.soaks.clone(),
        held_back: Vec::new(),
        blocked: Vec::new(),
        working: Vec::new(),
        excepted: BTreeMap::new(),
        out: Vec::new(),
        went_back: false,
        needs_a_person: Vec::new(),
        lasting: Vec::new(),
    };
    excepts(&mut round);
    let mut notes = RoundNotes { from, way, nodes_of_hops, approved, seen, ..RoundNotes::default() };
    notes.away = absence::away(cluster, &missing);
    notes.hidden = remembered(&controllers, &missing);
    notes.preflight = planned.refused().to_vec();
    notes.blockage = blocked::blockage(&mut round, planned);
    take_steps(&mut round, &unsure);
    let (mut actions, withheld, again_at) = conclude(round, &mut notes);
    (notes.hop, notes.hash) = (Some(current.version.clone()), hash);
    let stage = stage.map(|stage| shown_stage(stage, &mine, cluster));
    let status = status(whole, progress, world, &mine, (told, stage), notes, &actions);
    actions.extend(withheld.again);
    let again_at = [again_at, withheld.again_at].into_iter().flatten().min();
    Decision { actions, status, again_at }
}

/// Finds which nodes may stay behind, and then whether a node that could not be drained stops everything.
fn excepts(round: &mut Round<'_>) {
    round.excepted = excepted(round);
    round.excepted.values().map(|by| by.until).min().into_iter().for_each(|until| round.wake(until));
    if round.may_disrupt && round.stage == Some(Stage::Kubelets) && !round.plan_is_blocked() {
        next_nodes::halt(round);
    }
}

/// Where `upgrade` comes from, the versions on its way, and the hash of both, which a person approves.
fn what_is_approved(
    planned: &Planned,
    upgrade: &Upgrade,
    progress: &Progress,
    cluster: &Cluster,
) -> (Option<KubeVersion>, Vec<KubeVersion>, Option<String>) {
    let from = progress.from.clone().or_else(|| plan::from_version(cluster));
    let way = from.as_ref().map(|from| plan::on_the_way(upgrade, from, &progress.via, Some(planned.plan())));
    let way = way.unwrap_or_default();
    let hash = from.as_ref().map(|from| plan::hash(upgrade, from, &way));
    (from, way, hash)
}

/// What the round found out goes into `notes`. Returns the writes, those besides that the server refuses, and when to
/// decide again.
fn conclude(mut round: Round<'_>, notes: &mut RoundNotes) -> (Vec<Action>, Withheld, Option<Timestamp>) {
    (notes.held, notes.halted) = (group::held(&round), round.halted.take());
    notes.undrainable = std::mem::take(&mut round.undrainable);
    notes.excepted = std::mem::take(&mut round.excepted);
    let Round {
        upgrade,
        world,
        mine,
        mut actions,
        again_at,
        hope,
        mut blocked,
        working,
        out,
        needs_a_person,
        soaks,
        mut held_back,
        lasting,
        ..
    } = round;
    let mut withheld = withhold(&mut actions, &upgrade.name, mine, world);
    held_back.splice(0..0, std::mem::take(&mut withheld.waits));
    let opens = actions.iter().any(|action| matches!(action, Action::Claim { .. } | Action::Protect));
    notes.control_plane_held = !needs_a_person.is_empty() && !opens;
    if notes.control_plane_held || has_failed_step(mine) {
        let waits = mine.iter().copied().filter(|claim| drains(claim) || is_unbegun_step(claim));
        withheld.stuck.extend(waits.map(|claim| claim.name.clone()));
    }
    notes.stuck = withheld.stuck.len();
    let halted = notes.halted.iter().map(|line| (UpgradePhase::NodesHalted, line.clone()));
    let held = needs_a_person.into_iter().map(|line| (UpgradePhase::ControlPlaneHeld, line));
    let first = halted.chain(held).map(|(phase, line)| Waiting::new(WaitReason::Upgrade(phase), line));
    blocked.splice(0..0, first);
    blocked.extend(held_back.iter().map(Waiting::from));
    (notes.hope, notes.out, notes.soaks, notes.lasting) = (hope || withheld.hope, out, soaks, lasting);
    notes.held_back = held_back;
    notes.waits = blocked.into_iter().chain(working).collect();
    (actions, withheld, again_at)
}

/// Whether a step of the control plane failed, which only a person mends.
fn has_failed_step(mine: &[&Claim]) -> bool {
    mine.iter().any(|claim| !claim.is_of_kubelet() && matches!(claim.state, ClaimState::Failed { .. }))
}

/// Whether its node drains, or is empty and not given to its executor yet.
fn drains(claim: &Claim) -> bool {
    matches!(claim.state, ClaimState::Draining { .. })
}

/// Whether it is of a step of the control plane that its executor has not begun.
fn is_unbegun_step(claim: &Claim) -> bool {
    !claim.is_of_kubelet() && matches!(claim.state, ClaimState::Claimed)
}

/// Whether an upgrade whose plan is approved may disrupt anything.
fn may_disrupt(upgrade: &Upgrade, progress: &Progress, world: World<'_>) -> bool {
    let free = !upgrade.suspended && !progress.ending && progress.queued_behind.is_none();
    free && world.absent_executors.is_empty()
}

/// How far each stage is, for a person: a node that only has nothing to do in this hop is not upgraded.
fn told(
    stages: [StageProgress; 3],
    current: &CurrentHop,
    upgrade: &Upgrade,
    cluster: &Cluster,
) -> [StageProgress; 3] {
    if current.last {
        return stages;
    }
    plan::progress(cluster, &upgrade.members(cluster), upgrade.control_plane.unit, |of, version| {
        current.reached(of, version)
    })
}

/// What a person is asked because of a hidden controller before `current` is done. The answer holds for every hop.
fn question(why: &str, current: &CurrentHop) -> String {
    let rest =
        if current.last { "" } else { ", and will go to every further minor with the kube-apiservers" };
    let version = &current.version;
    format!("{why}; set spec.controlPlane.hidden to Accept when you know that it runs {version}{rest}")
}

/// Why kubelets must not go to the version of `upgrade` yet, although every kube-apiserver runs it: one of them behaves as
/// an older minor, which no kubelet may be newer than (KEP-4330, "Skew").
fn emulated(upgrade: &Upgrade, cluster: &Cluster) -> Option<String> {
    let target = upgrade.version.minor();
    let ceiling = kubelets_ceiling(cluster).filter(|ceiling| *ceiling < target)?;
    let runs = |server: &Instance| server.version.minor().is_some_and(|minor| minor >= target);
    let all = cluster.of(Component::KubeApiserver).all(runs);
    all.then(|| {
        format!(
            "kube-apiservers are at {target} and emulate {ceiling}: raise --emulated-version before kubelets go to \
             {target}"
        )
    })
}

/// The first stage that is not done; `None` when all are. A stage is done when everything of it that is seen runs the
/// target, everything that was seen before is seen again, and every claim of it has ended: that of a node says so, too,
/// before the upgrade is complete, because nothing is written after that.
fn current_stage(
    stages: &[StageProgress],
    (mine, selected): (&[&Claim], &[Selected<'_>]),
    missing: &[ComponentPlace],
    unsure: &[String],
) -> Option<Stage> {
    let open = |of: Stage| {
        let moves = |claim: &&&Claim| claim.subject.stage() == of && claim.state.unfinished();
        let absent = |place: &&ComponentPlace| Stage::of(place.component) == Some(of);
        mine.iter().any(|claim| moves(&claim)) || missing.iter().any(|place| absent(&place))
    };
    let out = |of: &Selected<'_>| {
        let parked = |claim: &Claim| matches!(claim.state, ClaimState::Parked { .. });
        of.has_failed() || of.claim.is_some_and(parked)
    };
    let done = |progress: &StageProgress| match progress.stage {
        Stage::Apiservers => progress.done() && progress.total > 0 && !open(Stage::Apiservers),
        Stage::Controllers => progress.done() && !open(Stage::Controllers) && unsure.is_empty(),
        Stage::Kubelets => progress.done() && !selected.iter().any(out),
    };
    stages.iter().find(|progress| !done(progress)).map(|progress| progress.stage)
}

/// Whatever is to be done now about what is under way, what is next, and what is left behind.
fn take_steps(round: &mut Round<'_>, unsure: &[String]) {
    if round.progress.ending {
        ends(round);
    } else if round.progress.completed.is_none() {
        goes_on(round, unsure);
    } else {
        tidies(round);
    }
    avoid::follow(round);
}

/// The upgrade is complete: a claim that somebody deletes goes, a node that was to be given back still is, and one that is
/// parked takes part no more.
fn tidies(round: &mut Round<'_>) {
    for claim in round.mine {
        let given_back = matches!(claim.state, ClaimState::Parked { .. } | ClaimState::Upgraded { .. });
        let left = given_back && node_of(round.world.cluster, claim).is_some_and(|node| holds(claim, node));
        if claim.ending || left || matches!(claim.state, ClaimState::Parked { .. }) {
            goes_with(round, claim, settle(round.world.cluster, claim));
        }
    }
}

/// Takes every claim a step further, those that are nearest to their end first, and opens what may be opened.
fn goes_on(round: &mut Round<'_>, unsure: &[String]) {
    let mut by_age = round.mine.to_vec();
    by_age.sort_by_key(|claim| match claim.state {
        ClaimState::Draining { since, .. } => since,
        _ => Timestamp::MAX,
    });
    for claim in &by_age {
        let on_node = round.world.cluster.node(&claim.subject.node).is_some_and(|node| node.unschedulable);
        let away = claim.state.in_flight() || matches!(claim.state, ClaimState::Failed { .. }) && on_node;
        if claim.is_of_kubelet() && away && round.empties(claim) {
            round.batch.open(&claim.subject.node);
        }
    }
    // Before the claims go on: a node that drains has to know in this very decision that its controllers take up their work.
    round.went_back = components::any_went_back(round);
    round.soaks = soak::follow(round);
    round.stepped = last_step(round.world.cluster, round.mine, &round.soaks, round.world.now);
    for claim in by_age {
        if claim.is_of_kubelet() {
            nodes::advance(round, claim);
        } else {
            components::advance(round, claim);
        }
    }
    let next = components::next_subject(round);
    let refused = trial::refused(round, next.as_ref());
    if round.may_disrupt {
        absence::remember_static_pods(round);
        absence::tell(round);
    }
    if round.may_disrupt && !round.plan_is_blocked() && round.halted.is_none() {
        match round.stage {
            Some(_) if !refused.is_empty() => refused.into_iter().for_each(|wait| round.hold_back(wait)),
            Some(Stage::Kubelets) if !round.went_back => next_nodes::open(round),
            // What is away then comes back by itself.
            Some(stage) if stage < Stage::Kubelets && round.static_pods_until.is_none() => {
                components::open(round, stage);
                let step = |claim: &&Claim| !claim.is_of_kubelet() && claim.state.unfinished();
                if stage == Stage::Controllers && !round.mine.iter().any(step) {
                    round.needs_a_person.extend(unsure.iter().cloned());
                }
            }
            _ => {}
        }
    }
    forget(round);
}

/// Somebody deleted the upgrade: what is in flight settles, every node is given back or handed over, then it goes.
fn ends(round: &mut Round<'_>) {
    for claim in round.mine {
        match claim.state {
            ClaimState::Upgrading { .. } if claim.is_of_kubelet() => nodes::advance(round, claim),
            ClaimState::Upgrading { .. } => components::advance(round, claim),
            _ if claim.is_of_kubelet() => goes_with(round, claim, settle(round.world.cluster, claim)),
            _ => goes_with(round, claim, release(claim)),
        }
    }
    if !round.mine.is_empty() || avoid::any(round.world.cluster, &round.upgrade.uid) {
        return;
    }
    let finalizers = &round.progress.finalizers;
    if round.progress.protected {
        round.actions.push(Action::Unprotect);
    } else if !finalizers.is_empty() {
        let line = format!("it stays until finalizer {} is taken off", finalizers.join(", "));
        round.blocks(WaitReason::Upgrade(UpgradePhase::Deleting), line);
    }
}
