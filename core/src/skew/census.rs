//! Who runs what, counted: the compact form of a cluster that the judgement is made from.
//!
//! Thousands of nodes run a handful of versions in a handful of pools. Here each node becomes the number of its group,
//! so that counting again touches four bytes of it, and a node that changes touches two groups and no other node. What
//! a group's version allows is decided by [`super::policy`]. The invariant: a census that followed every change is
//! equal to one made anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::policy::Servers;
use super::samples::SAMPLES;
use super::servers::{Meetings, Met};
use crate::cluster::{Cluster, Component, Evidence, Instance, Node};
use crate::version::{Effective, KubeVersion, Minor, Observed};

/// What all members of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey {
    pub(super) component: Component,
    pub(super) pool: Arc<str>,
    /// The version as it is shown: all unknown versions are one.
    version: String,
    pub(super) evidence: Evidence,
    pub(super) met: Met,
    pub(super) emulation: Option<Minor>,
}

/// Members of one kind, pool and version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CensusGroup {
    key: GroupKey,
    /// The version of the member that made the group. Where it is unknown, other members may have other reasons.
    version: Observed,
    count: u32,
    /// The first members, as places among the cluster's nodes, or among its instances where they are no kubelets.
    first: [u32; SAMPLES],
}

/// How many slots there are, by which a group is found without comparing texts.
const SLOTS: usize = 256;
/// In how many slots a group may be.
const PROBES: usize = 4;

/// A cluster's components in groups.
#[derive(Clone, Debug)]
pub struct Census {
    groups: Vec<CensusGroup>,
    by_key: BTreeMap<GroupKey, u32>,
    /// For each slot, the number of a group that falls into it, plus one; 0 where there is none.
    slots: Box<[u32; SLOTS]>,
    /// The group of each node.
    nodes: Vec<u32>,
    /// The group of each instance.
    instances: Vec<u32>,
    /// Which kube-apiservers each of them meets. No kubelet's version is part of it, so it outlasts changes of nodes.
    meetings: Meetings,
}

impl Census {
    /// Counts everything in `cluster`.
    pub fn of(cluster: &Cluster) -> Self {
        let mut census = Self {
            groups: Vec::new(),
            by_key: BTreeMap::new(),
            slots: Box::new([0; SLOTS]),
            nodes: Vec::with_capacity(cluster.nodes().len()),
            instances: Vec::with_capacity(cluster.instances().len()),
            meetings: Meetings::of(cluster),
        };
        let control_plane: Arc<str> = "control-plane".into();
        let (unknown, clients): (Arc<str>, Arc<str>) = ("unknown".into(), "clients".into());
        let mut pools: HashMap<&str, &Arc<str>> = HashMap::new();
        if cluster.instances().iter().any(|instance| instance.component == Component::KubeProxy) {
            pools.extend(cluster.nodes().iter().map(|node| (node.name.as_ref(), &node.pool)));
        }
        for instance in cluster.instances() {
            let pool = match instance.component {
                Component::KubeProxy => {
                    instance.node.as_deref().and_then(|node| pools.get(node).copied()).unwrap_or(&unknown)
                }
                Component::Kubectl => &clients,
                _ => &control_plane,
            };
            let group = census.group_of_instance(instance, pool);
            census.instances.push(group);
        }
        for node in cluster.nodes() {
            let group = census.group_of_node(node);
            census.nodes.push(group);
        }
        census.count();
        census
    }

    /// Counts every member again, from the groups' numbers alone.
    pub fn count(&mut self) {
        for group in &mut self.groups {
            group.count = 0;
        }
        // A group's members are all of the one sort or all of the other.
        for members in [&self.instances, &self.nodes] {
            for (place, group) in (0..).zip(members) {
                let Some(group) = self.groups.get_mut(*group as usize) else { continue };
                if let Some(first) = group.first.get_mut(group.count as usize) {
                    *first = place;
                }
                group.count += 1;
            }
        }
    }

    /// The node at `place` (of the sorted nodes) is now as `node` says: its kubelet or its pool may be another. Nodes
    /// that come or go need a new census, and so does a change of anything but nodes.
    pub fn changed(&mut self, place: usize, node: &Node) {
        let to = self.group_of_node(node);
        let Some(held) = self.nodes.get_mut(place) else { return };
        let from = std::mem::replace(held, to);
        let Ok(place) = u32::try_from(place) else { return };
        if from == to {
            return;
        }
        if let Some(group) = self.groups.get_mut(from as usize) {
            let shown = group.shown();
            group.count -= 1;
            if let Some(gap) = group.first.iter().take(shown).position(|first| *first == place) {
                let last = group.first.get(shown - 1).copied().unwrap_or(place);
                group.first.copy_within(gap + 1..shown, gap);
                // The member that moves up is the next one after the last that was shown.
                if group.count as usize >= shown {
                    let behind = (last as usize + 1..).zip(self.nodes.iter().skip(last as usize + 1));
                    let next = behind.into_iter().find(|(_, group)| **group == from);
                    if let (Some((next, _)), Some(end)) = (next, group.first.get_mut(shown - 1)) {
                        *end = u32::try_from(next).unwrap_or(u32::MAX);
                    }
                }
            }
        }
        if let Some(group) = self.groups.get_mut(to as usize) {
            let shown = group.shown();
            let before = group.first.iter().take(shown).take_while(|first| **first < place).count();
            if before < SAMPLES {
                group.first.copy_within(before..shown.min(SAMPLES - 1), before + 1);
                group.first[before] = place;
            }
            group.count += 1;
        }
    }

    fn group_of_node(&mut self, node: &Node) -> u32 {
        let met = self.meetings.of_kubelet(node);
        self.group(Component::Kubelet, &node.pool, (&node.kubelet, node.evidence), met, None)
    }

    fn group_of_instance(&mut self, instance: &Instance, pool: &Arc<str>) -> u32 {
        let met = self.meetings.of_instance(instance);
        let emulation = instance.effective.map(Effective::emulation);
        self.group(instance.component, pool, (&instance.version, instance.evidence), met, emulation)
    }

    /// The number of the group that has these properties; makes the group if there is none.
    fn group(
        &mut self,
        component: Component,
        pool: &Arc<str>,
        (version, evidence): (&Observed, Evidence),
        met: Met,
        emulation: Option<Minor>,
    ) -> u32 {
        // What is in a slot is only a guess, so all of it is compared; but a shared pool is known by its address.
        let slots = slots(component, pool, version);
        for slot in slots.clone() {
            let Some(found) = self.slots.get(slot).and_then(|number| number.checked_sub(1)) else { break };
            if let Some(group) = self.groups.get(found as usize)
                && group.key.component == component
                && Arc::ptr_eq(&group.key.pool, pool)
                && same(&group.version, version)
                && group.key.evidence == evidence
                && group.key.met == met
                && group.key.emulation == emulation
            {
                return found;
            }
        }
        let (pool, text) = (Arc::clone(pool), version.to_string());
        let key = GroupKey { component, pool, version: text, evidence, met, emulation };
        let next = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let number = *self.by_key.entry(key.clone()).or_insert(next);
        if number == next {
            self.groups.push(CensusGroup { key, version: version.clone(), count: 0, first: [0; SAMPLES] });
        }
        let free = slots.clone().find(|slot| self.slots.get(*slot) == Some(&0));
        if let Some(slot) = free.or(slots.into_iter().next()).and_then(|slot| self.slots.get_mut(slot)) {
            *slot = number.saturating_add(1);
        }
        number
    }

    /// Every group that has a member, by key.
    pub(super) fn groups<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = GroupCount<'a>> {
        let groups = self.by_key.values().filter_map(|number| self.groups.get(*number as usize));
        groups.filter_map(|group| GroupCount::new(group, cluster))
    }

    /// The oldest and the newest known kubelet.
    pub(super) fn kubelets(&self, cluster: &Cluster) -> Option<(KubeVersion, KubeVersion)> {
        let kubelets = self.groups(cluster).filter(|group| group.key.component == Component::Kubelet);
        let known: Vec<_> = kubelets.filter_map(|group| group.version.known()).collect();
        span(&known)
    }
}

/// The oldest and the newest of `versions`, by how far they are on the way of an upgrade. Those that have no order, such as
/// builds of two vendors, stand by their text.
pub(super) fn span(versions: &[&KubeVersion]) -> Option<(KubeVersion, KubeVersion)> {
    let order =
        |a: &&&KubeVersion, b: &&&KubeVersion| a.progress(b).then_with(|| a.to_string().cmp(&b.to_string()));
    let (oldest, newest) = (versions.iter().min_by(order)?, versions.iter().max_by(order)?);
    Some(((*oldest).clone(), (*newest).clone()))
}

impl GroupKey {
    /// The parts of the key that a report shows.
    pub(super) fn kind(&self) -> (Component, &str, &str, Evidence) {
        (self.component, &self.pool, &self.version, self.evidence)
    }
}

impl CensusGroup {
    /// How many members are shown by name.
    fn shown(&self) -> usize {
        (self.count as usize).min(SAMPLES)
    }
}

/// A group that has a member.
pub(super) struct GroupCount<'a> {
    pub(super) key: &'a GroupKey,
    /// That of the first member.
    pub(super) version: &'a Observed,
    pub(super) count: usize,
    group: &'a CensusGroup,
    cluster: &'a Cluster,
}

impl<'a> GroupCount<'a> {
    fn new(group: &'a CensusGroup, cluster: &'a Cluster) -> Option<Self> {
        let first = group.first.first().filter(|_| group.count > 0)?;
        let (_, version) = member(group.key.component, cluster, *first)?;
        Some(Self { key: &group.key, version, count: group.count as usize, group, cluster })
    }

    /// The first few names, in order.
    pub(super) fn samples(&self) -> Vec<Arc<str>> {
        let places = self.group.first.iter().take(self.group.shown());
        let members = places.filter_map(|place| member(self.key.component, self.cluster, *place));
        members.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// The kube-apiservers that the members meet, if `all` are the cluster's.
    pub(super) fn met(&self, all: Option<Servers>) -> Option<Servers> {
        match self.key.met {
            Met::All => all,
            Met::Own(servers) => servers,
        }
    }
}

fn member(component: Component, cluster: &Cluster, place: u32) -> Option<(&Arc<str>, &Observed)> {
    let place = place as usize;
    match component {
        Component::Kubelet => cluster.nodes().get(place).map(|node| (&node.name, &node.kubelet)),
        _ => cluster.instances().get(place).map(|instance| (&instance.name, &instance.version)),
    }
}

/// Whether both are equal. Most suffixes are empty, and those are not compared: the address of an empty text is no
/// memory, which makes the comparison of two of them slower than all the rest (a hundred nanoseconds with AVX-512).
fn same(a: &Observed, b: &Observed) -> bool {
    match (a, b) {
        (Observed::Known(a), Observed::Known(b)) => {
            a.release() == b.release()
                && ((a.suffix().is_empty() && b.suffix().is_empty()) || a.suffix() == b.suffix())
        }
        _ => a == b,
    }
}

/// Where a group is looked for first. Groups that share slots cost time and nothing else.
fn slots(component: Component, pool: &Arc<str>, version: &Observed) -> impl Iterator<Item = usize> + Clone {
    let (minor, patch, suffix): (u64, u64, usize) = match version {
        Observed::Known(version) => {
            let (minor, patch) = version.release();
            (minor.minor().into(), patch.unwrap_or_default().into(), version.suffix().len())
        }
        Observed::Unknown(_) => (0, 0, 0),
    };
    let pool = Arc::as_ptr(pool).cast::<u8>() as u64;
    let version = u64::from(component as u8) ^ (minor << 8) ^ (patch << 24) ^ ((suffix as u64) << 56);
    // The upper bits of a product by an odd number depend on all bits of what was multiplied (Fibonacci hashing).
    let hash = (pool ^ version.rotate_left(7)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    (0..PROBES).map(move |probe| (hash as usize + probe) % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::cluster;
    use crate::skew::policy::Policy;
    use crate::skew::{assess, assess_counted};

    const VERSIONS: [&str; 7] =
        ["v1.36.4", "v1.35.7", "v1.36.4+k3s1", "", "nonsense", "v1.33.1", "v1.37.1+k3s1"];

    proptest::proptest! {
        #[test]
        fn a_census_that_followed_every_change_is_equal_to_one_made_anew(
            begin in proptest::collection::vec(0..VERSIONS.len(), 1..40),
            changes in proptest::collection::vec((0usize..40, 0..VERSIONS.len(), proptest::bool::ANY), 0..60),
        ) {
            let kubelets: Vec<&str> = begin.iter().map(|n| VERSIONS[*n]).collect();
            let mut cluster = cluster(&["v1.36.4", "v1.37.1+k3s1"], "v1.36.4", &kubelets);
            // The newer kube-apiserver is one service with the first kubelet.
            cluster.change_instances(|instance| {
                if &*instance.name == "cp-2" {
                    instance.node = Some("n-1".into());
                }
            });
            let mut census = Census::of(&cluster);
            for (place, version, gpu) in changes {
                let place = place % cluster.nodes().len();
                let name = Arc::clone(&cluster.nodes()[place].name);
                cluster.change_node(&name, |node| {
                    node.kubelet = Observed::from_report(VERSIONS[version]);
                    node.pool = if gpu { "gpu".into() } else { "default".into() };
                });
                census.changed(place, &cluster.nodes()[place]);
                proptest::prop_assert_eq!(
                    assess_counted(&census, &cluster, &Policy::default()),
                    assess(&cluster, &Policy::default())
                );
            }
        }
    }
}
