//! Which control-plane components were seen, and which of them are missing now.
//!
//! A component that is gone for a moment, as a static pod is while it is replaced, is not done: absence is no progress.
//! The invariant: a component that runs on a Node is expected there until the Node is gone, however many more join. One
//! that may be made anew on any node is expected once, wherever it runs then. On hosts that are no Nodes as many are
//! expected as there were at the beginning: the old one and the new one may be seen together for a while, and afterwards
//! one of them is enough.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{Cluster, Component, Evidence, Instance};
use crate::plan::Stage;
use crate::upgrade::ComponentPlace;

/// Where an instance is: its node, or its own name where no node is visible.
pub(super) fn name_of(instance: &Instance) -> &Arc<str> {
    instance.node.as_ref().unwrap_or(&instance.name)
}

fn place_of(cluster: &Cluster, instance: &Instance) -> ComponentPlace {
    let name = name_of(instance);
    let node_uid = cluster.node(name).map_or_else(|| "".into(), |node| Arc::clone(&node.uid));
    ComponentPlace { component: instance.component, name: Arc::clone(name), node_uid }
}

/// Whether `instance` may be made anew on any node: its pod is a Deployment's, or the like; or it is known by its lease alone,
/// which another process may take over. A static pod, a DaemonSet's and a process of its host come back where they were.
fn roams(cluster: &Cluster, instance: &Instance) -> bool {
    // Of several processes only the one that leads is seen so.
    if instance.evidence == Evidence::Candidate {
        return true;
    }
    let mut pods = instance.node.iter().flat_map(|node| cluster.pods_on(node));
    instance.component != Component::KubeApiserver && pods.any(|pod| pod.name == instance.name && pod.roams())
}

/// The places to expect components at from now on, in order, and those of them at which none is seen. `begun` is whether
/// the upgrade has begun, after which no further place is expected on hosts that are no Nodes.
pub(super) fn follow(
    cluster: &Cluster,
    before: &[ComponentPlace],
    begun: bool,
) -> (Vec<ComponentPlace>, Vec<ComponentPlace>) {
    let (mut now, mut missing) = (Vec::new(), Vec::new());
    for component in Component::ALL {
        if Stage::of(component).is_none_or(|stage| stage == Stage::Kubelets) {
            continue;
        }
        let before: Vec<&ComponentPlace> =
            before.iter().filter(|place| place.component == component).collect();
        let seen =
            cluster.of(component).map(|instance| (place_of(cluster, instance), roams(cluster, instance)));
        let here: Here = seen.collect();
        let away = missing_of(cluster, &before, &here);
        now.extend(expected_of(&before, here, begun));
        now.extend(away.iter().cloned());
        missing.extend(away);
    }
    now.sort();
    missing.sort();
    (now, missing)
}

/// Where a component is, and whether it roams there.
type Here = BTreeMap<ComponentPlace, bool>;

/// The places among `before` that nothing is seen at, unless others of `here` have taken their place.
fn missing_of(cluster: &Cluster, before: &[&ComponentPlace], here: &Here) -> Vec<ComponentPlace> {
    let there = |place: &ComponentPlace| here.keys().any(|at| at.name == place.name);
    let node_is_gone = |place: &ComponentPlace| {
        !place.node_uid.is_empty() && cluster.node(&place.name).is_none_or(|node| node.uid != place.node_uid)
    };
    let left: Vec<&ComponentPlace> = before.iter().copied().filter(|place| !node_is_gone(place)).collect();
    // Where nothing is bound to its node any more, one is enough.
    if !here.is_empty() && here.values().all(|roams| *roams) {
        return Vec::new();
    }
    let all: Vec<&ComponentPlace> = left.iter().copied().filter(|place| !there(place)).collect();
    let on_nodes: Vec<&ComponentPlace> =
        all.iter().copied().filter(|place| !place.node_uid.is_empty()).collect();
    let others_are_enough = here.len() + on_nodes.len() >= left.len();
    (if others_are_enough { on_nodes } else { all }).into_iter().cloned().collect()
}

/// The places of `here` to expect a component at, of which those `before` were expected.
fn expected_of(before: &[&ComponentPlace], here: Here, begun: bool) -> Vec<ComponentPlace> {
    let mut here: Vec<(ComponentPlace, bool)> = here.into_iter().collect();
    // Those on Nodes count first, and of the others those that are known.
    let known = |place: &ComponentPlace| before.contains(&place);
    here.sort_by_cached_key(|(place, roams)| {
        (*roams, place.node_uid.is_empty(), !known(place), place.clone())
    });
    let (mut expected, mut roaming) = (Vec::new(), false);
    for (place, roams) in here {
        let surplus = begun && place.node_uid.is_empty() && expected.len() >= before.len().max(1);
        if !(surplus || roams && roaming) {
            roaming |= roams;
            expected.push(place);
        }
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Owner, Pod};
    use crate::fixture::{cluster, instance, node, pod};

    fn places(cluster: &Cluster) -> Vec<ComponentPlace> {
        follow(cluster, &[], false).0
    }

    fn names(places: &[ComponentPlace]) -> Vec<String> {
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
        let (after, missing) = follow(&without("cp-2"), &seen, true);
        assert_eq!((after.len(), names(&missing)), (4, vec!["kube-apiserver cp-2".to_owned()]));
        let mut replaced = without("cp-2");
        replaced.add_instance(instance(Component::KubeApiserver, "cp-9", "v1.36.4"));
        let (after, missing) = follow(&replaced, &seen, true);
        assert!(missing.is_empty() && names(&after).contains(&"kube-apiserver cp-9".to_owned()));
        // Where its Node was seen, the place goes with the Node.
        let mut with_node = whole.clone();
        with_node.set_node(node("cp-2", "v1.36.4"));
        let seen = places(&with_node);
        let (after, missing) = follow(&without("cp-2"), &seen, true);
        assert!(missing.is_empty() && after.len() == 3, "{missing:?}");
    }

    /// Else workers would be upgraded while a kube-apiserver of the old version is only away.
    #[test]
    fn a_node_that_joins_takes_the_place_of_none_that_is_there() {
        let mut whole = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &[]);
        for name in ["cp-1", "cp-2"] {
            whole.set_node(node(name, "v1.36.4"));
        }
        let on_nodes = |cluster: &Cluster| {
            let of = |of: &Instance| Instance { node: Some(of.name.clone()), ..of.clone() };
            cluster.instances().iter().map(of).collect::<Vec<_>>()
        };
        whole.set_instances(on_nodes(&whole));
        let seen = places(&whole);
        let mut joined = whole.clone();
        let stays = |of: &&Instance| !(of.component == Component::KubeApiserver && *of.name == *"cp-2");
        joined.set_instances(whole.instances().iter().filter(stays).cloned().collect());
        joined.set_node(node("cp-4", "v1.37.1"));
        let fourth = instance(Component::KubeApiserver, "cp-4", "v1.37.1");
        joined.add_instance(Instance { node: Some("cp-4".into()), ..fourth });
        let (after, missing) = follow(&joined, &seen, true);
        assert_eq!((after.len(), names(&missing)), (5, vec!["kube-apiserver cp-2".to_owned()]));
        // It is missed at the next look too.
        let (_, missing) = follow(&joined, &after, true);
        assert_eq!(names(&missing), ["kube-apiserver cp-2"]);
    }

    #[test]
    fn of_what_roams_one_is_missed_wherever_it_is() {
        let mut cluster = cluster(&["v1.36.4"], "v1.36.4", &["v1.36.4", "v1.36.4"]);
        let whole = cluster.instances().to_vec();
        // Two pods of a Deployment, of which the second one is there before the first one goes.
        let on = |node: &str, number: usize| {
            let pod = pod("cloud", number, node);
            let of = instance(Component::CloudControllerManager, node, "v1.36.4");
            (Instance { name: pod.name.clone(), ..of }, pod)
        };
        let mut are = |all: &[(Instance, Pod)]| {
            let instances = all.iter().map(|(instance, _)| instance);
            cluster.set_instances(whole.iter().chain(instances).cloned().collect());
            for (_, pod) in all {
                cluster.set_pod(pod.clone());
            }
            cluster.clone()
        };
        let (seen, _) = follow(&are(&[on("n-1", 0)]), &[], false);
        let (seen, missing) = follow(&are(&[on("n-1", 0), on("n-2", 1)]), &seen, true);
        assert_eq!((seen.len(), missing.len()), (4, 0), "one of two: {seen:?}");
        let (seen, missing) = follow(&are(&[on("n-2", 1)]), &seen, true);
        assert!(missing.is_empty(), "{missing:?}");
        let (_, missing) = follow(&are(&[]), &seen, true);
        assert_eq!(names(&missing), ["cloud-controller-manager n-2"]);
        // A status of before may name both.
        let both = are(&[on("n-1", 0), on("n-2", 1)]);
        let both: Vec<ComponentPlace> = both.instances().iter().map(|of| place_of(&both, of)).collect();
        assert!(follow(&are(&[on("n-2", 1)]), &both, true).1.is_empty());
        // One of a DaemonSet comes back to its node.
        let of_set = |node: &str, number: usize| {
            let (of, mut pod) = on(node, number);
            let owner = pod.owner.as_deref().unwrap().clone();
            pod.owner = Some(Arc::new(Owner { kind: "DaemonSet".into(), ..owner }));
            (of, pod)
        };
        let (seen, _) = follow(&are(&[of_set("n-1", 0), of_set("n-2", 1)]), &[], false);
        let (_, missing) = follow(&are(&[of_set("n-2", 1)]), &seen, true);
        assert_eq!(names(&missing), ["cloud-controller-manager n-1"]);
    }

    #[test]
    fn hosts_that_are_no_nodes_are_as_many_as_there_were_at_the_beginning() {
        let servers = |names: &[&str]| {
            let mut cluster = cluster(&[], "v1.36.4", &[]);
            for name in names {
                cluster.add_instance(instance(Component::KubeApiserver, name, "v1.36.4"));
            }
            cluster
        };
        let (seen, _) = follow(&servers(&["a"]), &[], false);
        // What is seen before the beginning is expected.
        let (seen, _) = follow(&servers(&["a", "b"]), &seen, false);
        let (seen, missing) = follow(&servers(&["a", "b", "c"]), &seen, true);
        assert_eq!(
            (names(&seen).join(" "), missing.len()),
            (
                "kube-apiserver a kube-apiserver b kube-controller-manager cp-1 kube-scheduler cp-1"
                    .to_owned(),
                0
            )
        );
        let (seen, missing) = follow(&servers(&["b", "c"]), &seen, true);
        assert!(missing.is_empty() && names(&seen).contains(&"kube-apiserver c".to_owned()), "{seen:?}");
        // One less is one less.
        let (seen, missing) = follow(&servers(&["c"]), &seen, true);
        assert_eq!((seen.len(), names(&missing)), (4, vec!["kube-apiserver b".to_owned()]));
    }
}
