//! Which control-plane components were seen, and which of them are missing now.
//!
//! A component that is gone for a moment, as a static pod is while it is replaced, is not done: absence is no progress.
//! The invariant: a place is forgotten only when its Node is gone, or when others have taken its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{Cluster, Component, Instance};
use crate::plan::Stage;
use crate::upgrade::Place;

/// Where an instance is: its node, or its own name where no node is visible.
pub(super) fn name_of(instance: &Instance) -> &Arc<str> {
    instance.node.as_ref().unwrap_or(&instance.name)
}

fn place_of(cluster: &Cluster, instance: &Instance) -> Place {
    let name = name_of(instance);
    let node_uid = cluster.node(name).map_or_else(|| "".into(), |node| Arc::clone(&node.uid));
    Place { component: instance.component, name: Arc::clone(name), node_uid }
}

/// The places to expect components at from now on, in order, and those of them at which none is seen.
pub(super) fn follow(cluster: &Cluster, before: &[Place]) -> (Vec<Place>, Vec<Place>) {
    let moved =
        |instance: &&Instance| Stage::of(instance.component).is_some_and(|stage| stage < Stage::Kubelets);
    let mut now: Vec<Place> =
        cluster.instances().iter().filter(moved).map(|instance| place_of(cluster, instance)).collect();
    now.sort();
    now.dedup();
    let there = |place: &Place| now.iter().any(|at| at.component == place.component && at.name == place.name);
    let node_is_gone = |place: &Place| {
        !place.node_uid.is_empty() && cluster.node(&place.name).is_none_or(|node| node.uid != place.node_uid)
    };
    let mut expected: BTreeMap<Component, usize> = BTreeMap::new();
    for place in before.iter().filter(|place| !node_is_gone(place)) {
        *expected.entry(place.component).or_default() += 1;
    }
    let replaced = |component: Component| {
        let here = now.iter().filter(|place| place.component == component).count();
        here >= expected.get(&component).copied().unwrap_or_default()
    };
    let missing: Vec<Place> = before
        .iter()
        .filter(|place| !there(place) && !node_is_gone(place) && !replaced(place.component))
        .cloned()
        .collect();
    now.extend(missing.iter().cloned());
    now.sort();
    (now, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{cluster, node};

    fn places(cluster: &Cluster) -> Vec<Place> {
        follow(cluster, &[]).0
    }

    fn names(places: &[Place]) -> Vec<String> {
        places.iter().map(|place| format!("{} {}", place.component, place.name)).collect()
    }

    #[test]
    fn what_was_seen_is_missed_until_its_node_is_gone_or_another_took_its_place() {
        let whole = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &[]);
        let seen = places(&whole);
        assert_eq!(seen.len(), 4);
        let without = |name: &str| {
            let mut less = whole.clone();
            let kept = |i: &&Instance| !(i.component == Component::KubeApiserver && *i.name == *name);
            less.set_instances(whole.instances().iter().filter(kept).cloned().collect());
            less
        };
        let (after, missing) = follow(&without("cp-2"), &seen);
        assert_eq!((after.len(), names(&missing)), (4, vec!["kube-apiserver cp-2".to_owned()]));
        let mut replaced = without("cp-2");
        replaced.add_instance(crate::fixture::instance(Component::KubeApiserver, "cp-9", "v1.36.4"));
        let (after, missing) = follow(&replaced, &seen);
        assert!(missing.is_empty() && names(&after).contains(&"kube-apiserver cp-9".to_owned()));
        // Where its Node was seen, the place goes with the Node.
        let mut with_node = whole.clone();
        with_node.set_node(node("cp-2", "v1.36.4"));
        let seen = places(&with_node);
        let (after, missing) = follow(&without("cp-2"), &seen);
        assert!(missing.is_empty() && after.len() == 3, "{missing:?}");
    }
}
