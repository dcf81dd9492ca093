//! Controllers that lead, or led, where nothing shows their version.
//!
//! Here belongs which of them are remembered, and which of them nobody answers for. The invariant: one that falls silent is
//! as unknown as before, so that it is remembered until something of its component is seen.

use super::world::World;
use crate::cluster::{Cluster, Component};
use crate::plan::{Plan, hidden_id};
use crate::upgrade::{ComponentPlace, Hidden, Progress, Upgrade};

/// The controllers that lead out of sight in `world`, and those that did when `progress` was stored, each with a line for a
/// person.
pub(super) fn hidden_controllers(world: World<'_>, progress: &Progress) -> Vec<(Component, String)> {
    let mut all = world.hidden.to_vec();
    for component in &progress.hidden {
        let leads = all.iter().any(|(other, _)| other == component);
        if !leads && !is_seen(world.cluster, *component) {
            let line = format!("{component} was led by what cannot be seen from here, and is silent now");
            all.push((*component, line));
        }
    }
    all
}

fn is_seen(cluster: &Cluster, component: Component) -> bool {
    cluster.of(component).next().is_some()
}

/// Those of `hidden` to remember: one that was seen, and is `missing`, is away, and its lease outlives the pod that is being
/// replaced.
pub(super) fn remembered(hidden: &[(Component, String)], missing: &[ComponentPlace]) -> Vec<Component> {
    let mut all: Vec<Component> =
        hidden.iter().map(|(component, _)| *component).filter(|of| !is_away(missing, *of)).collect();
    all.sort();
    all.dedup();
    all
}

fn is_away(missing: &[ComponentPlace], component: Component) -> bool {
    missing.iter().any(|place| place.component == component)
}

/// The lines of those of `hidden` that nobody answers for. One that is `missing` is away.
pub(super) fn unanswered_for(
    hidden: &[(Component, String)],
    upgrade: &Upgrade,
    plan: &Plan,
    missing: &[ComponentPlace],
) -> Vec<String> {
    if upgrade.control_plane.hidden == Hidden::Accept {
        return Vec::new();
    }
    let accepted = |component: Component| {
        let id = hidden_id(component);
        plan.findings.iter().any(|finding| finding.id == id && finding.accepted.is_some())
    };
    let open = hidden.iter().filter(|(of, _)| !accepted(*of) && !is_away(missing, *of));
    open.map(|(_, why)| why.clone()).collect()
}
