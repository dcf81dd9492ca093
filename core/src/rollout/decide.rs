//! The one entry: what to do about an upgrade now.

use jiff::Timestamp;

use super::round::{Round, release};
use super::status::{Outlook, status};
use super::{Claim, Decision, State, World, nodes, servers};
use crate::cluster::Component;
use crate::disruption::Budgets;
use crate::plan::{self, Mode, Stage, Upgrade};

/// How many finished claims are kept to look at; beyond, the oldest are deleted.
const KEPT_UPGRADED: usize = 100;

/// What to do about `upgrade` now, and how it stands. Total: any world has an answer.
pub fn decide(upgrade: &Upgrade, world: World<'_>) -> Decision {
    let cluster = world.cluster;
    let progress = plan::progress(cluster, upgrade);
    let from = upgrade.from.clone().or_else(|| plan::from_version(cluster));
    let hash = from.as_ref().map(|from| plan::hash(upgrade, from));
    let approved = match upgrade.mode {
        Mode::PlanOnly => false,
        Mode::Automatic => true,
        Mode::RequireApproval => hash.is_some() && upgrade.approved_hash.as_deref() == hash.as_deref(),
    };
    let mut round = Round {
        upgrade,
        world,
        stage: plan::current_stage(&progress),
        may_disrupt: approved && !upgrade.suspended && upgrade.queued_behind.is_none(),
        budgets: Budgets::new(cluster, world.memory.budgets.clone(), world.now),
        actions: Vec::new(),
        again_at: None,
        hope: false,
        blocked: Vec::new(),
        working: Vec::new(),
    };
    let preflight = plan::preflight(cluster, upgrade);
    let mine: Vec<&Claim> = world.claims.iter().filter(|claim| claim.upgrade == upgrade.name).collect();
    let mut outlook = Outlook { from, hash, approved, preflight, ..Outlook::default() };

    if upgrade.completed.is_none() {
        let mut by_age = mine.clone();
        by_age.sort_by_key(|claim| match claim.state {
            State::Draining { since } => (since, claim.name.clone()),
            _ => (Timestamp::MAX, claim.name.clone()),
        });
        for claim in by_age {
            match claim.subject.component {
                Component::Kubelet => nodes::advance(&mut round, claim),
                _ => servers::advance(&mut round, claim),
            }
        }
        if round.may_disrupt && outlook.preflight.is_empty() {
            match round.stage {
                Some(Stage::Kubelets) => nodes::open(&mut round, &mine),
                Some(stage) => servers::open(&mut round, stage, &mine),
                None => {}
            }
        }
        forget_oldest(&mut round, &mine);
    }
    outlook.held = nodes::held(&round, &mine);
    let Round { actions, again_at, hope, blocked, working, .. } = round;
    outlook.hope = hope;
    outlook.waits = blocked.into_iter().chain(working).collect();
    let status = status(upgrade, world, &mine, &progress, outlook, &actions);
    Decision { actions, status, again_at }
}

fn forget_oldest(round: &mut Round<'_>, mine: &[&Claim]) {
    let mut finished: Vec<_> = mine
        .iter()
        .filter_map(|claim| match claim.state {
            State::Upgraded { at } => Some((at, *claim)),
            _ => None,
        })
        .collect();
    finished.sort_by(|(a, x), (b, y)| (a, &x.name).cmp(&(b, &y.name)));
    let surplus = finished.len().saturating_sub(KEPT_UPGRADED);
    for (_, claim) in finished.into_iter().take(surplus) {
        round.actions.push(release(claim));
    }
}
