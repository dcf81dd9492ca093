//! In which order the nodes that exist now go, by groups, canaries and zones.
//!
//! The invariants: a node is in the wave of the first group that selects it; inside of a group the waves go one after
//! the other; and a group begins when the groups that it depends on are done.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hops::Plan;
use crate::cluster::{Cluster, Component, Node, Phase, Pod};
use crate::disruption::CordonMark;
use crate::upgrade::{Member, NodeGroup, Upgrade, Zones};
use crate::version::KubeVersion;

/// The label that says in which zone a node is.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// The zone of `node`; empty where it has none.
pub fn zone(node: &Node) -> &str {
    node.labels.get(ZONE).map_or("", String::as_str)
}

/// Nodes of one group that may be under way at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// The index of the group in [`Upgrade::groups`].
    pub group: usize,
    /// They go first, before the others of their group, and these follow when they run the version.
    pub canary: bool,
    /// Their zone, where zones go one after the other; empty for nodes without one.
    pub zone: Option<Arc<str>>,
    /// How many of the group may be unavailable at once.
    pub at_once: usize,
    /// The nodes, in the order in which they are taken up.
    pub nodes: Vec<Arc<str>>,
}

/// The waves of each hop of `plan`, for the nodes of `members`, which are those of `cluster`, as they are now. Nodes
/// that a person holds or cordoned are in none, and neither are those that have long been silent.
pub fn waves(plan: &Plan, upgrade: &Upgrade, cluster: &Cluster, members: &[Member<'_>]) -> Vec<Vec<Wave>> {
    let stays = |node: &Node| is_left_alone(node) || plan.silent.contains(&node.name);
    let mut runs: Vec<Option<KubeVersion>> =
        members.iter().map(|member| member.node.kubelet.known().cloned()).collect();
    let mut all = Vec::new();
    for hop in &plan.hops {
        let with_server = hop.steps.iter().filter(|step| step.components.contains(&Component::Kubelet));
        let places: Vec<&Arc<str>> = with_server.map(|step| &step.place).collect();
        let mut moving: BTreeMap<usize, Vec<(usize, &Node, KubeVersion)>> = BTreeMap::new();
        let mut sizes = vec![0_usize; upgrade.groups.len()];
        // Nodes that run the version when the first canary would be taken up, whoever moved them: each is as good as a
        // canary, or takes the place of one until it is ready.
        let mut there = sizes.clone();
        let mut away = sizes.clone();
        for (member, runs) in members.iter().zip(&mut runs) {
            let of = member.group;
            let (Some(size), Some(there), Some(away)) =
                (sizes.get_mut(of), there.get_mut(of), away.get_mut(of))
            else {
                continue;
            };
            let at = *size;
            *size += 1;
            *away += usize::from(!member.node.ready || member.node.unschedulable);
            let Some(version) = runs.as_mut() else { continue };
            let moves = !stays(member.node);
            if moves && places.contains(&&member.node.name) {
                *version = hop.version.clone();
            }
            if version.satisfies(&hop.version) {
                *there += 1;
            } else if moves && hop.kubelets.moves(version, &hop.version) {
                moving.entry(member.group).or_default().push((at, member.node, version.clone()));
                *version = hop.version.clone();
            }
        }
        let of_groups = by_dependency(&upgrade.groups).into_iter().filter_map(|at| {
            let (group, size) = (upgrade.groups.get(at)?, *sizes.get(at)?);
            let canaries = group.canary.saturating_sub(*there.get(at)?);
            let mut moving = moving.remove(&at)?;
            // Unhealthy ones first: they are unavailable already. Then spare ones, and then the oldest.
            moving.sort_by_cached_key(|(at, node, runs)| {
                (node.ready, !is_spare(cluster, node), runs.release(), rank(cluster, *at))
            });
            let moving = moving.into_iter().map(|(_, node, _)| node).collect();
            let full = *away.get(at)? >= group.max_unavailable.of(size);
            Some(of_group(at, group, (size, canaries, full), moving))
        });
        all.push(of_groups.flatten().collect());
    }
    all
}

/// Whether a person holds or cordoned `node`.
fn is_left_alone(node: &Node) -> bool {
    node.held || CordonMark::is_foreign(node)
}

/// The indices of `groups`, each after those that it depends on; else in their order.
fn by_dependency(groups: &[NodeGroup]) -> Vec<usize> {
    let mut ordered: Vec<usize> = Vec::new();
    while ordered.len() < groups.len() {
        let ready = |(at, group): &(usize, &NodeGroup)| {
            let done =
                |name: &Arc<str>| ordered.iter().any(|at| groups.get(*at).is_some_and(|g| g.name == *name));
            !ordered.contains(at) && group.depends_on.iter().all(done)
        };
        let next: Vec<usize> = groups.iter().enumerate().filter(ready).map(|(at, _)| at).collect();
        if next.is_empty() {
            // A circle, which no validated upgrade has.
            ordered.extend((0..groups.len()).filter(|at| !ordered.contains(at)).collect::<Vec<_>>());
        }
        ordered.extend(next);
    }
    ordered
}

/// The scheduler looks at every node of a cluster of this size; of a larger one, for each pod, at a part of the nodes, in
/// the order of their names (`minFeasibleNodesToFind` in `pkg/scheduler/schedule_one.go`).
const LOOKED_AT: usize = 100;

/// The rank of the node that is the `at`th of its group by name, from 0, among those that are alike: the least goes first.
/// It is by name in a cluster in which the scheduler looks at every node. In a larger one those that are upgraded lie spread
/// over all names at any time, halfway between those before them, so that some are among the nodes that the
/// scheduler looks at; else it would place a pod on a node that is to be upgraded yet, and the pod would move again.
pub fn rank(cluster: &Cluster, at: usize) -> usize {
    if cluster.nodes().len() <= LOOKED_AT { at } else { at.reverse_bits() }
}

/// Whether `node` is a worker that nothing has to leave. Such a node goes first: what leaves the others finds a place there
/// that it does not have to leave again. Nodes of the control plane usually take no other pods.
pub fn is_spare(cluster: &Cluster, node: &Node) -> bool {
    !cluster.goes_alone(node) && is_empty(cluster, node)
}

/// Whether nothing has to leave `node` for it to be upgraded, as far as its pods alone tell.
pub fn is_empty(cluster: &Cluster, node: &Node) -> bool {
    let stays = |pod: &Pod| {
        let of_set = pod.owner.as_ref().is_some_and(|owner| *owner.kind == *"DaemonSet");
        pod.mirror || of_set || pod.phase == Phase::Finished
    };
    cluster.pods_on(&node.name).all(stays)
}

/// The waves of one group of `size` nodes, of which `moving` move in this order, so many of them as canaries. Canaries
/// are no exception to the order of zones: they are the first nodes of the first zone, and of the next ones where it
/// has too few. Where the group is `full` of nodes that are away, those of them that move come before all zones: nothing else
/// could begin.
fn of_group(
    at: usize,
    group: &NodeGroup,
    (size, mut canaries, full): (usize, usize, bool),
    moving: Vec<&Node>,
) -> Vec<Wave> {
    let mut zones: BTreeMap<Option<(bool, &str)>, Vec<&Node>> = BTreeMap::new();
    for node in moving {
        let zone = (group.zones == Zones::OneAtATime).then(|| (full && node.ready, zone(node)));
        zones.entry(zone).or_default().push(node);
    }
    let mut waves = Vec::new();
    for (zone, mut nodes) in zones {
        let zone = zone.map(|(_, zone)| zone);
        let rest = nodes.split_off(canaries.min(nodes.len()));
        canaries -= nodes.len();
        for (canary, nodes) in [(true, nodes), (false, rest)] {
            if !nodes.is_empty() {
                waves.push(Wave {
                    group: at,
                    canary,
                    zone: zone.map(Arc::from),
                    at_once: group.max_unavailable.of(size),
                    nodes: nodes.iter().map(|node| node.name.clone()).collect(),
                });
            }
        }
    }
    waves
}
